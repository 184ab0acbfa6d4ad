//! Broken sweeps: they remove receipts that must be kept.

use onceward::receipt::Status;
use onceward::{Filter, Id, Result, Scan, ScanTarget, Seen, State, Store, Swap, Swapped, Sweep, codec};

/// A flaw of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepFlaw {
    /// It removes held receipts whose lease is over, whatever their contract says.
    RemovesHeld,
    /// It removes what it saw, not minding that it has changed since.
    RemovesWithoutVersion,
    /// It removes outcomes whose retention has ended and leaves no tombstone.
    ForgetsTombstones,
    /// It removes everything that is done, due or not.
    RemovesKept,
    /// It removes receipts whose outcome is unknown, before anybody settles them.
    RemovesUnknown,
    /// It removes steps that are due, whatever their intents are doing.
    RemovesSteps,
    /// It removes what waits once it is due, whatever it carries.
    RemovesWaiting,
    /// It removes dead letters.
    RemovesDead,
}

impl SweepFlaw {
    /// Whether it removes what it found in this state. Each flaw keeps to its own states, so that what is
    /// caught is that flaw and no other.
    fn removes(self, id: &Id, status: &Status) -> bool {
        if id.is_step() != (self == Self::RemovesSteps) {
            return false;
        }
        match (self, status) {
            (Self::RemovesHeld, status) => matches!(status, Status::Held(_)),
            // What may rightly go when it is due, and is still what it was.
            (Self::RemovesWithoutVersion, Status::Done(done)) => done.tombstone.is_none(),
            (Self::RemovesWithoutVersion, status) => matches!(status, Status::Gone(_)),
            (Self::ForgetsTombstones, status) => matches!(status, Status::Done(_)),
            (Self::RemovesKept, status) => matches!(status, Status::Done(_)),
            (Self::RemovesUnknown, status) => matches!(status, Status::Unknown(_)),
            (Self::RemovesSteps, status) => matches!(status, Status::Done(_)),
            (Self::RemovesWaiting, status) => matches!(status, Status::Waiting(_)),
            (Self::RemovesDead, status) => matches!(status, Status::Dead(_)),
        }
    }

    /// One sweep.
    pub async fn sweep(self, store: &dyn Store, sweep: &Sweep) -> Result<()> {
        let matching = |state| ScanTarget::Matching(Filter::default().with_state(state));
        let of = match self {
            Self::RemovesKept => matching(State::Done),
            Self::RemovesUnknown => matching(State::Unknown),
            Self::RemovesDead => matching(State::Dead),
            _ => ScanTarget::Due(None),
        };
        let page = store.scan(&Scan::new(of, sweep.slice_records)).await?;
        for (id, found) in page.found {
            let Ok(receipt) = codec::decode(&found) else { continue };
            if !self.removes(&id, &receipt.status) {
                continue;
            }
            let mut seen = Seen::Version(found.version);
            loop {
                let removal = Swap { id: id.clone(), seen, new: None };
                match store.swap(&[removal]).await?.remove(0) {
                    Swapped::Lost(Some(now)) if self == Self::RemovesWithoutVersion => {
                        seen = Seen::Version(now.version);
                    }
                    _ => break,
                }
            }
        }
        Ok(())
    }
}
