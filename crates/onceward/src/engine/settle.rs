//! Ending a doubt: an operator or a reconcile hook says what became of an effect.

use super::conclude::{bounded, done};
use super::group::Urgency;
use super::inner::Inner;
use super::ticket::Changed;
use crate::codec;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Id;
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::receipt::{Fence, Status};
use crate::store::{Seen, Swapped};

/// What somebody found out about an effect in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It happened, and this was its outcome.
    Done(Outcome),
    /// It did not happen; the next ask runs.
    NotDone,
}

/// Settles a receipt in doubt. `fence` names the run that was looked into: if another run has taken
/// its place meanwhile, nothing is changed.
pub(crate) async fn settle(
    inner: &Inner,
    id: &Id,
    fence: Fence,
    settlement: &Settlement,
    policy: &Policy,
) -> Result<Changed> {
    let Some(found) = inner.load(id).await? else { return Ok(Changed::No(None)) };
    let claim = match &found.status {
        Status::Unknown(unknown) if unknown.claim.fence == fence => unknown.claim,
        // Nobody has asked since the lease ended, so nobody has written the doubt down yet.
        Status::Held(held) if held.claim.fence == fence && found.due.is_over() => held.claim,
        Status::Held(held) if held.claim.fence == fence => {
            let detail = "this run still has its lease; only an outcome in doubt can be settled";
            return Err(Error::new(ErrorKind::Conflict, detail));
        }
        _ => return Ok(Changed::No(Some(found))),
    };
    let new = match settlement {
        Settlement::Done(outcome) => Some(done(claim, bounded(inner, outcome), policy)),
        Settlement::NotDone => None,
    };
    match inner.swap(id, Seen::Version(found.version), new, Urgency::Must).await.result? {
        Swapped::Won(_) => {
            inner.poller.look_now();
            Ok(Changed::Yes)
        }
        Swapped::Lost(now) => Ok(Changed::No(now.as_ref().map(codec::decode).transpose()?)),
    }
}
