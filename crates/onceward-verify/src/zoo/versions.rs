//! Services that guard versions or known events wrongly.

use super::careful::Habits;
use super::events::Events;
use super::limits::Versions;

/// It compares the version, and then writes.
pub(super) struct StaleWrites;

impl Habits for StaleWrites {
    fn versions(&self) -> Versions {
        Versions::CheckThenWrite
    }
}

/// The version is compared before the key is looked for.
pub(super) struct VersionBeforeKey;

impl Habits for VersionBeforeKey {
    fn versions(&self) -> Versions {
        Versions::BeforeTheKey
    }
}

/// An event is known again by its signature.
pub(super) struct EventsBySignature;

impl Habits for EventsBySignature {
    fn events(&self) -> Events {
        Events::BySignature
    }
}

/// An event is known once its work is done.
pub(super) struct EventsWhenDone;

impl Habits for EventsWhenDone {
    fn events(&self) -> Events {
        Events::WhenDone
    }
}
