//! Enqueues an intent for workers: it waits with its input until one of them begins.

use super::acquire::check_input;
use super::former_steps::{forget_steps, forget_steps_in};
use super::group_commit::Urgency;
use super::inner::Inner;
use super::sealed::{open_any, seal};
use crate::ask::Ask;
use crate::decide::{Decision, Refusal, Takeover};
use crate::error::{Applied, Error, Result};
use crate::join::Join;
use crate::receipt::Receipt;
use crate::store::{Seen, State, Swap, Swapped};
use crate::transition::{self, Enqueue};

/// The result of enqueueing an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Enqueued {
    /// It waits for a worker.
    Accepted,
    /// It was there already, in this state: nothing was changed.
    AlreadyThere(State),
    /// The key was used for something else, or is past its retention.
    Refused(Refusal),
}

/// Rounds against a receipt that keeps changing under it.
const ROUNDS_MAX: usize = 100;

pub(crate) async fn enqueue(inner: &Inner, ask: &Ask) -> Result<Enqueued> {
    check_input(inner, ask)?;
    let mut swap = first(ask);
    // Whether the answer to a write was lost: it may still arrive.
    let mut lost = false;
    for _ in 0..ROUNDS_MAX {
        let reply = inner.group_commit.swap(swap, Urgency::Refusable).await;
        let found = match reply.result {
            Ok(Swapped::Won(_)) => {
                inner.counters.enqueued.one();
                inner.enqueued.wake();
                return Ok(Enqueued::Accepted);
            }
            Ok(Swapped::Lost(found)) => open_any(found.as_ref()).map_err(|error| after(lost, error))?,
            // The receipt that is there now counts, no matter who wrote it.
            Ok(Swapped::Failed(error)) | Err(error) if error.applied() == Applied::Maybe => {
                lost = true;
                inner.load(&ask.id).await.map_err(|_| error)?
            }
            Ok(Swapped::Failed(error)) | Err(error) => return Err(after(lost, error)),
        };
        let decision = inner.decide(ask, found.as_ref());
        if let (Decision::Run(Takeover::Expired), Some(found)) = (&decision, &found) {
            forget_steps(inner, &ask.id, found).await.map_err(|error| after(lost, error))?;
        }
        match next(ask, &decision, found.as_ref()) {
            Ok(again) => swap = again,
            Err(enqueued) => return Ok(enqueued),
        }
    }
    Err(after(lost, super::answer_without_run::contended()))
}

/// An error, after a write whose answer may have been lost.
fn after(lost: bool, error: Error) -> Error {
    if lost { error.maybe_applied() } else { error }
}

/// The same inside a transaction that the caller holds.
pub(crate) async fn enqueue_in<J: Join + ?Sized>(inner: &Inner, tx: &mut J, ask: &Ask) -> Result<Enqueued> {
    check_input(inner, ask)?;
    let mut swap = first(ask);
    for _ in 0..ROUNDS_MAX {
        let found = match super::transact::swap_one(tx, &swap).await? {
            Swapped::Won(_) => {
                inner.counters.enqueued.one();
                return Ok(Enqueued::Accepted);
            }
            Swapped::Lost(found) => open_any(found.as_ref())?,
            Swapped::Failed(error) => return Err(error),
        };
        let decision = inner.decide(ask, found.as_ref());
        if let (Decision::Run(Takeover::Expired), Some(found)) = (&decision, &found) {
            forget_steps_in(inner, tx, &ask.id, found).await?;
        }
        match next(ask, &decision, found.as_ref()) {
            Ok(again) => swap = again,
            Err(enqueued) => return Ok(enqueued),
        }
    }
    Err(super::answer_without_run::contended())
}

fn first(ask: &Ask) -> Swap {
    let Enqueue::Write(write) = transition::enqueue(ask, &Decision::Run(Takeover::Absent), None) else {
        unreachable!("where nothing is, it is written")
    };
    seal(&ask.id, Seen::Absent, Some(&write))
}

/// What to write against what was found; or what has become of it.
fn next(ask: &Ask, decision: &Decision, found: Option<&Receipt>) -> Result<Swap, Enqueued> {
    match transition::enqueue(ask, decision, found) {
        Enqueue::Write(write) => {
            let seen = found.map_or(Seen::Absent, |found| Seen::Version(found.version));
            Ok(seal(&ask.id, seen, Some(&write)))
        }
        Enqueue::AlreadyThere(state) => Err(Enqueued::AlreadyThere(state)),
        Enqueue::Refused(refusal) => Err(Enqueued::Refused(refusal)),
    }
}
