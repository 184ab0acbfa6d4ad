//! Applies what a person or a hook decides about a receipt: settles an unknown outcome, retries a dead intent, closes
//! one that must not be run.

use super::finish::bounded;
use super::group_commit::Urgency;
use super::inner::Inner;
use super::sealed::open_any;
use super::ticket::Changed;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Id;
use crate::policy::Policy;
use crate::receipt::{Closed, Fence, Receipt, Status};
use crate::store::{Seen, Swapped};
use crate::transition::{self, Settlement, Write};

/// Settles an unknown outcome. `fence` names the run that was examined: if another run has taken
/// its place meanwhile, nothing is changed.
pub(crate) async fn settle(
    inner: &Inner,
    id: &Id,
    fence: Fence,
    settlement: &Settlement,
    policy: &Policy,
) -> Result<Changed> {
    let settlement = match settlement {
        Settlement::Done(outcome) => &Settlement::Done(bounded(inner, outcome)),
        other => other,
    };
    // A person's decision must not replace an outcome that is known.
    if inner.flights.find(id).is_some_and(|flight| flight.has_unrecorded_outcome(fence)) {
        let detail = "this process knows the outcome of that run and writes it as soon as the store takes it";
        return Err(Error::new(ErrorKind::Conflict, detail.to_owned()));
    }
    let found = inner.load(id).await?;
    match found.filter(|found| found.status.fence() == fence) {
        Some(found) => match transition::settle(id, &found, settlement, policy)? {
            Some(write) => replace(inner, id, Some(&found), write).await,
            None => Ok(Changed::NotOwner(Some(found))),
        },
        None => Ok(Changed::NotOwner(inner.load(id).await?)),
    }
}

/// Has a dead intent tried again.
pub(crate) async fn retry(inner: &Inner, id: &Id) -> Result<Changed> {
    let Some(found) = inner.load(id).await? else { return Ok(Changed::NotOwner(None)) };
    match transition::retry(&found)? {
        Some(write) => replace(inner, id, Some(&found), write).await,
        None => Ok(Changed::NotOwner(Some(found))),
    }
}

/// Which receipts may be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closable {
    Waiting,
    Dead,
    /// Whatever has not begun, also what was never asked for.
    NotBegun,
}

/// Closes an intent: nobody will run it.
pub(crate) async fn close(
    inner: &Inner,
    id: &Id,
    of: Closable,
    why: Closed,
    policy: &Policy,
) -> Result<Changed> {
    let found = inner.load(id).await?;
    let fits = matches!(
        (of, found.as_ref().map(|found| &found.status)),
        (Closable::NotBegun, _)
            | (Closable::Waiting, Some(Status::Waiting(_)))
            | (Closable::Dead, Some(Status::Dead(_)))
    );
    if !fits {
        return Ok(Changed::NotOwner(found));
    }
    match transition::close(id, found.as_ref(), why, policy)? {
        Some(write) => {
            let changed = replace(inner, id, found.as_ref(), write).await?;
            if changed == Changed::Applied {
                inner.counters.closed.one();
            }
            Ok(changed)
        }
        None => Ok(Changed::NotOwner(found)),
    }
}

async fn replace(inner: &Inner, id: &Id, found: Option<&Receipt>, write: Write) -> Result<Changed> {
    let seen = found.map_or(Seen::Absent, |found| Seen::Version(found.version));
    match inner.swap(id, seen, Some(&write), Urgency::Required).await.result? {
        Swapped::Won(_) => {
            inner.poller.look_now();
            inner.enqueued.wake();
            Ok(Changed::Applied)
        }
        Swapped::Lost(now) => Ok(Changed::NotOwner(open_any(now.as_ref())?)),
        Swapped::Failed(error) => Err(error),
    }
}
