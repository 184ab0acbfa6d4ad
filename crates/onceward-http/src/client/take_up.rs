//! How a request that lies in the journal becomes somebody's to send, and how it is taken away.
//!
//! **Nobody sends what they have not written under their claim.** Who holds the claim and finds its request
//! in place writes it anew, the same bytes under an attempt of its own, before the first byte leaves. For
//! since the request was put there, others may have made up their minds to take it away: who settles the
//! intent, or who found that the name is another's (`contest.rs`). Those look at the request first and at
//! the receipt behind it, and take away no version but the one they saw. So of the two writes one loses:
//! what is taken away is not sent, and what is sent stays until its answer is recorded or somebody has
//! settled it.

use onceward::receipt::Claim;
use onceward::{Attempt, Fingerprint, Id, Result, Seen, Swap, Swapped, Version};

use super::attend::From;
use super::journal::Journal;
use super::open::{self, Open, Put};

/// What became of a request that was to be taken away.
pub(crate) enum Withdrawn {
    /// It is gone.
    Gone,
    /// It is still there, written anew by somebody who is about to send it.
    Lies(Version),
}

impl Journal {
    /// Gets the request of an intent ready to be sent by the one who holds its claim.
    pub(crate) async fn take_up(&self, id: &Id, from: &mut From) -> Result<Put> {
        // Each round but the last means that somebody else has changed it meanwhile.
        loop {
            let (put, attempt) = match from {
                From::Caller(putting) => (self.put(putting).await?, putting.claim.attempt),
                From::Journal { seen, attempt } => match self.request(id).await? {
                    Some(open) if open.fingerprint() == seen.fingerprint() => (Put::Found(open), *attempt),
                    _ => (Put::Gone, *attempt),
                },
            };
            let found = match put {
                Put::Found(open) if self.honoured_for(&open).is_some() => open,
                put => return Ok(put),
            };
            // Under its first attempt nobody else has taken it up, so nobody has sent it.
            let first = found.claim.attempt == attempt;
            if let Some(own) = self.write_anew(found, attempt).await? {
                return Ok(if first { Put::New(own) } else { Put::Found(own) });
            }
        }
    }

    /// Takes away a request that lies here and is not to be sent, unless somebody has taken it up.
    pub(crate) async fn withdraw(
        &self,
        (id, version): (Id, Version),
        fingerprint: Fingerprint,
    ) -> Result<Withdrawn> {
        let swap = Swap { id: id.clone(), seen: Seen::Version(version), new: None };
        let Swapped::Lost(Some(found)) = self.swap(swap).await? else { return Ok(Withdrawn::Gone) };
        let open = Open::decode(id, &found)?;
        // Another request in its place is another's.
        let lies = open.fingerprint() == fingerprint;
        Ok(if lies { Withdrawn::Lies(open.version) } else { Withdrawn::Gone })
    }

    async fn write_anew(&self, open: Open, attempt: Attempt) -> Result<Option<Open>> {
        let claim = Claim { attempt, ..open.claim };
        let bytes = open.stored.encode().expect("what was read can be written");
        let new = Some(open::record(claim, bytes));
        let swap = Swap { id: open.id.clone(), seen: Seen::Version(open.version), new };
        Ok(match self.swap(swap).await? {
            Swapped::Won(version) => Some(Open { version, claim, ..open }),
            Swapped::Lost(_) => None,
        })
    }
}
