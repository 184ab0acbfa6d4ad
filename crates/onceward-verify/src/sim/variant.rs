//! What is simulated: the real engine, or a variant with one flaw.

use std::sync::{Arc, Mutex};

use crate::broken::callers::CallerFlaw;
use crate::broken::fronts::FrontFlaw;
use crate::broken::operators::OperatorFlaw;
use crate::broken::runtimes::RuntimeFlaw;
use crate::broken::stores::{Memory, StoreFlaw};
use crate::broken::sweeps::SweepFlaw;
use crate::broken::transactions::TransactionFlaw;
use crate::broken::workers::WorkerFlaw;

/// The shape of the rules that the engine goes by.
pub type Rules = onceward::Rules;

/// The engine and its environment, correct or with one flaw.
#[derive(Clone)]
pub struct Variant {
    /// A flaw of the store, and what it remembers.
    pub store: Option<(StoreFlaw, Arc<Mutex<Memory>>)>,
    /// The rules.
    pub rules: Rules,
    /// A flaw of the runtime.
    pub runtime: RuntimeFlaw,
    /// A sweep that is not the engine's own.
    pub sweeps: Option<SweepFlaw>,
    /// A flaw of the callers.
    pub caller: CallerFlaw,
    /// A flaw of the workers.
    pub worker: WorkerFlaw,
    /// A flaw of the transactions.
    pub transactions: TransactionFlaw,
    /// A flaw of the operators.
    pub operator: OperatorFlaw,
    /// A flaw of the use of a front.
    pub front: FrontFlaw,
    /// An engine that does not remember which claims it must release.
    pub forgets_owed: bool,
    /// An embedded store that answers before it has synced.
    pub unsynced: bool,
}

impl Variant {
    /// The real thing.
    pub fn sound() -> Self {
        Self {
            store: None,
            rules: onceward::decide,
            runtime: RuntimeFlaw::None,
            sweeps: None,
            caller: CallerFlaw::None,
            worker: WorkerFlaw::None,
            transactions: TransactionFlaw::None,
            operator: OperatorFlaw::None,
            front: FrontFlaw::None,
            forgets_owed: false,
            unsynced: false,
        }
    }
}
