//! What differs from the real thing in a simulated world: nothing, or one flaw.

use std::sync::{Arc, Mutex};

use crate::broken::callers::CallerFlaw;
use crate::broken::completers::CompleterFlaw;
use crate::broken::stores::{Memory, StoreFlaw};
use crate::broken::sweeps::SweepFlaw;
use crate::broken::worlds::WorldFlaw;

/// The shape of the rules that the engine goes by.
pub type Rules = onceward::Rules;

/// One make of the engine and what is around it.
#[derive(Clone)]
pub struct Variant {
    /// A flaw of the store, and what it remembers.
    pub store: Option<(StoreFlaw, Arc<Mutex<Memory>>)>,
    /// The rules.
    pub rules: Rules,
    /// A flaw of the surroundings.
    pub world: WorldFlaw,
    /// A sweep that is not the engine's own.
    pub sweeps: Option<SweepFlaw>,
    /// A flaw of the callers.
    pub caller: CallerFlaw,
    /// A flaw of the completers.
    pub completer: CompleterFlaw,
    /// An embedded store that answers before it has synced.
    pub unsynced: bool,
}

impl Variant {
    /// The real thing.
    pub fn sound() -> Self {
        Self {
            store: None,
            rules: onceward::decide,
            world: WorldFlaw::None,
            sweeps: None,
            caller: CallerFlaw::None,
            completer: CompleterFlaw::None,
            unsynced: false,
        }
    }
}
