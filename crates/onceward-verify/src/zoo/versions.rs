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

/// A delivery that waits for the first one works itself after a while.
pub(super) struct EventWaiterLosesPatience;

impl Habits for EventWaiterLosesPatience {
    fn events(&self) -> Events {
        Events::WaiterLosesPatience
    }
}

/// The version is compared before slow work, and not again after it.
pub(super) struct VersionBeforeSlowWork;

impl Habits for VersionBeforeSlowWork {
    fn versions(&self) -> Versions {
        Versions::BeforeSlowWork
    }
}

/// A change of a version that is gone is told 409.
pub(super) struct VersionsWith409;

impl Habits for VersionsWith409 {
    fn versions(&self) -> Versions {
        Versions::RefusedWith409
    }
}
