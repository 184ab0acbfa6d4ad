//! Broken sweeps: what people write who think that everything that is due can go.

use onceward::receipt::Status;
use onceward::{Result, Scan, ScanOf, Seen, State, Store, Swap, Swapped, Sweep, codec};

/// What is wrong with a sweep.
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
    /// It removes what is in doubt, so that nobody has to look into it.
    RemovesUnknown,
}

impl SweepFlaw {
    /// One sweep.
    pub async fn sweep(self, store: &dyn Store, sweep: &Sweep) -> Result<()> {
        let of = match self {
            Self::RemovesKept => ScanOf::Matching { scope: None, operation: None, state: Some(State::Done) },
            Self::RemovesUnknown => {
                ScanOf::Matching { scope: None, operation: None, state: Some(State::Unknown) }
            }
            _ => ScanOf::Due,
        };
        let page = store.scan(&Scan { of, after: None, limit: sweep.slice_records }).await?;
        for (id, found) in page.found {
            let Ok(receipt) = codec::decode(&found) else { continue };
            if self == Self::ForgetsTombstones && !matches!(receipt.status, Status::Done(_)) {
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
