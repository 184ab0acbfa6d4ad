//! Applies what a person or a hook decides about a receipt: settles an unknown outcome, retries a dead intent, closes
//! one that must not be run.

use super::erase::erase_steps;
use super::finish::bounded;
use super::front::wake_watchers;
use super::group_commit::Urgency;
use super::inner::Inner;
use super::sealed::{open_any, seal};
use super::ticket::Changed;
use super::transact::swap_one;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Id;
use crate::join::Join;
use crate::policy::Policy;
use crate::receipt::{Closed, Fence, Receipt, Status};
use crate::store::{Seen, Swapped};
use crate::transition::{self, Erase, Settlement, Write};

/// Settles an unknown outcome. `fence` names the run that was examined: if another run has taken
/// its place meanwhile, nothing is changed.
pub(crate) async fn settle(
    inner: &Inner,
    id: &Id,
    fence: Fence,
    settlement: &Settlement,
    policy: &Policy,
) -> Result<Changed> {
    refuse_if_known(inner, id, fence)?;
    let found = inner.load(id).await?;
    match found.filter(|found| found.status.fence() == fence) {
        Some(found) => {
            match transition::settle(id, &found, &bounded_beside(inner, &found, settlement, policy), policy)?
            {
                Some(write) => replace(inner, id, Some(&found), write).await,
                None => Ok(Changed::NotOwner(Some(found))),
            }
        }
        None => Ok(Changed::NotOwner(inner.load(id).await?)),
    }
}

/// A decision of an operator must not replace an outcome that this process knows.
fn refuse_if_known(inner: &Inner, id: &Id, fence: Fence) -> Result<()> {
    if inner.flights.find(id).is_some_and(|flight| flight.has_unrecorded_outcome(fence)) {
        let detail = "this process knows the outcome of that run and writes it as soon as the store takes it";
        return Err(Error::new(ErrorKind::Conflict, detail.to_owned()));
    }
    Ok(())
}

/// The settlement, with an outcome as it may be stored in this receipt.
fn bounded_beside(inner: &Inner, found: &Receipt, settlement: &Settlement, policy: &Policy) -> Settlement {
    match settlement {
        Settlement::Done(outcome) => {
            let input_bytes = transition::kept_input_bytes(found.status.job(), policy);
            Settlement::Done(bounded(inner, outcome, input_bytes))
        }
        other => other.clone(),
    }
}

/// Has a dead intent tried again.
pub(crate) async fn retry(inner: &Inner, id: &Id) -> Result<Changed> {
    let Some(found) = inner.load(id).await? else { return Ok(Changed::NotOwner(None)) };
    refuse_if_known(inner, id, found.status.fence())?;
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

/// Closes an intent: it will not be run.
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
    if let Some(found) = &found {
        refuse_if_known(inner, id, found.status.fence())?;
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

/// Closes an intent that has not begun, if its receipt is still as it was found.
pub(crate) async fn close_found(
    inner: &Inner,
    id: &Id,
    found: Option<&Receipt>,
    policy: &Policy,
) -> Result<Changed> {
    if let Some(found) = found {
        refuse_if_known(inner, id, found.status.fence())?;
    }
    match transition::close(id, found, Closed::Undone, policy)? {
        Some(write) => {
            let changed = replace(inner, id, found, write).await?;
            if changed == Changed::Applied {
                inner.counters.closed.one();
            }
            Ok(changed)
        }
        None => Ok(Changed::NotOwner(found.cloned())),
    }
}

/// Rounds against a receipt that keeps changing under it.
const CLOSE_ROUNDS_MAX: usize = 100;

/// Closes an intent that has not begun, inside a transaction that the caller holds.
pub(crate) async fn close_in<J: Join + ?Sized>(
    inner: &Inner,
    tx: &mut J,
    id: &Id,
    policy: &Policy,
) -> Result<Changed> {
    let mut found = None;
    for _ in 0..CLOSE_ROUNDS_MAX {
        let Some(write) = transition::close(id, found.as_ref(), Closed::Undone, policy)? else {
            return Ok(Changed::NotOwner(found));
        };
        let seen = found.as_ref().map_or(Seen::Absent, |found| Seen::Version(found.version));
        found = match swap_one(tx, &seal(id, seen, Some(&write))).await? {
            Swapped::Won(_) => {
                inner.counters.closed.one();
                return Ok(Changed::Applied);
            }
            Swapped::Lost(now) => open_any(now.as_ref())?,
            Swapped::Failed(error) => return Err(error),
        };
    }
    Err(super::answer_without_run::contended())
}

/// Has an intent that waits for its time begin now.
pub(crate) async fn start_now(inner: &Inner, id: &Id) -> Result<Changed> {
    let found = inner.load(id).await?;
    match found.as_ref().and_then(transition::start_now) {
        Some(write) => replace(inner, id, found.as_ref(), write).await,
        None => Ok(Changed::NotOwner(found)),
    }
}

/// Removes a receipt whose outcome was unknown and did not happen, and its steps, if it is still as it was found.
pub(crate) async fn forget_unknown(inner: &Inner, id: &Id, found: &Receipt) -> Result<Changed> {
    transition::forget_unknown(found)?;
    refuse_if_known(inner, id, found.status.fence())?;
    // Not on an old view: somebody may have settled it, and its next run needs the steps.
    let now = inner.load(id).await?;
    if now.as_ref().map(|now| now.version) != Some(found.version) {
        return Ok(Changed::NotOwner(now));
    }
    erase_steps(inner, id, &Erase::new().with_reopen(true)).await?;
    match inner.swap(id, Seen::Version(found.version), None, Urgency::Required).await.result? {
        Swapped::Won(_) => {
            inner.counters.releases.one();
            wake_watchers(inner, id);
            Ok(Changed::Applied)
        }
        Swapped::Lost(now) => Ok(Changed::NotOwner(open_any(now.as_ref())?)),
        Swapped::Failed(error) => Err(error),
    }
}

async fn replace(inner: &Inner, id: &Id, found: Option<&Receipt>, write: Write) -> Result<Changed> {
    let seen = found.map_or(Seen::Absent, |found| Seen::Version(found.version));
    match inner.swap(id, seen, Some(&write), Urgency::Required).await.result? {
        Swapped::Won(_) => {
            wake_watchers(inner, id);
            inner.enqueued.wake();
            Ok(Changed::Applied)
        }
        Swapped::Lost(now) => Ok(Changed::NotOwner(open_any(now.as_ref())?)),
        Swapped::Failed(error) => Err(error),
    }
}
