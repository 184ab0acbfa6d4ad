//! Claims for callers that cannot pass a closure: another process, another language, a framework
//! that splits one operation over several calls. Nothing is renewed by itself here.

use std::sync::Arc;
use std::time::Duration;

use super::answer::Answer;
use super::conclude::{bounded, done};
use super::group::Urgency;
use super::inner::Inner;
use super::lead::{Led, lead};
use crate::ask::Ask;
use crate::codec;
use crate::error::{Applied, Result};
use crate::id::Id;
use crate::outcome::{Outcome, Verdict};
use crate::policy::{OnFailure, OnUnknown, Policy};
use crate::receipt::{Attempt, Doubt, Fence, Receipt, Status, Unknown};
use crate::store::{Seen, Swapped};

/// Proof of a claim. Its parts can be sent anywhere; whoever shows them is the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Which intent.
    pub id: Id,
    /// Which try.
    pub attempt: Attempt,
    /// The fence of the claim.
    pub fence: Fence,
}

/// What a claim by hand leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It is yours until the lease ends; renew it in time.
    Yes(Ticket),
    /// There is an answer already.
    No(Answer),
}

/// What became of a change made with a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Done as asked.
    Yes,
    /// The receipt is not this ticket's any more; this is what is there.
    No(Option<Receipt>),
}

/// What a ticket's holder wants to change.
pub(crate) enum Change {
    Renew,
    Complete(Outcome),
    Doubt,
    Release,
}

pub(crate) async fn claim(inner: &Arc<Inner>, mut ask: Ask) -> Result<Claimed> {
    match lead(inner, &mut ask).await? {
        Led::Run(mut owner, claim) => {
            owner.hand_over();
            Ok(Claimed::Yes(Ticket { id: ask.id, attempt: claim.attempt, fence: claim.fence }))
        }
        Led::Answer(answer) => Ok(Claimed::No(answer)),
    }
}

/// A renewal or an ending may be written this often against a receipt that keeps moving under it.
const TRIES_MAX: usize = 8;

pub(crate) async fn change(
    inner: &Inner,
    ticket: &Ticket,
    policy: &Policy,
    change: Change,
) -> Result<Changed> {
    let mut receipt = inner.load(&ticket.id).await?;
    let mut last = None;
    for _ in 0..TRIES_MAX {
        let Some(found) = receipt.filter(|found| is_of(found, ticket)) else {
            break;
        };
        let Step::Write(new) = step(inner, &found, policy, &change) else {
            // A repeated call whose first answer was lost: what it wants is already so.
            return Ok(settled_as_asked(&found, &change));
        };
        let removes = new.is_none();
        let trip = inner.swap(&ticket.id, Seen::Version(found.version), new, Urgency::Must).await;
        match trip.result {
            Ok(Swapped::Won(_)) => {
                count(inner, &change);
                inner.poller.look_now();
                return Ok(Changed::Yes);
            }
            Ok(Swapped::Lost(found)) => receipt = found.as_ref().map(codec::decode).transpose()?,
            Err(error) if error.applied() == Applied::Maybe => {
                receipt = inner.load(&ticket.id).await.map_err(|_| error.clone())?;
                if receipt.is_none() && removes {
                    return Ok(Changed::Yes);
                }
                last = Some(error);
            }
            Err(error) => return Err(error),
        }
        if let Some(receipt) = &receipt {
            inner.cache.keep(&ticket.id, receipt, trip.sent_at);
        }
    }
    if let Some(error) = last {
        return Err(error);
    }
    inner.counters.fenced_off.one();
    Ok(Changed::No(inner.load(&ticket.id).await?))
}

/// What a ticket's change means for the receipt that is there.
enum Step {
    Write(Option<(Status, Option<Duration>)>),
    /// There is nothing to do any more.
    Rest,
}

fn step(inner: &Inner, found: &Receipt, policy: &Policy, change: &Change) -> Step {
    let Some(claim) = found.status.claim().copied() else { return Step::Rest };
    match (&found.status, change) {
        (Status::Held(held), Change::Renew) => {
            Step::Write(Some((Status::Held(*held), Some(policy.lease_duration()))))
        }
        // Whoever did the work can end a doubt that others had.
        (Status::Held(_) | Status::Unknown(_), Change::Complete(outcome)) => {
            match (outcome.verdict(), policy.failure_rule()) {
                (Verdict::Failed, OnFailure::Retry) => Step::Write(None),
                _ => Step::Write(Some(done(claim, bounded(inner, outcome), policy))),
            }
        }
        (Status::Held(_), Change::Doubt) => match policy.unknown_rule() {
            OnUnknown::Hold => {
                Step::Write(Some((Status::Unknown(Unknown { claim, doubt: Doubt::Reported }), None)))
            }
            OnUnknown::Retry => Step::Write(None),
        },
        (Status::Held(_) | Status::Unknown(_), Change::Release) => Step::Write(None),
        _ => Step::Rest,
    }
}

fn settled_as_asked(found: &Receipt, change: &Change) -> Changed {
    match (&found.status, change) {
        (Status::Done(done), Change::Complete(outcome)) if done.outcome == *outcome => Changed::Yes,
        (Status::Unknown(_), Change::Doubt) => Changed::Yes,
        _ => Changed::No(Some(found.clone())),
    }
}

fn is_of(receipt: &Receipt, ticket: &Ticket) -> bool {
    let claim = receipt.status.claim();
    claim.is_some_and(|claim| claim.attempt == ticket.attempt && claim.fence == ticket.fence)
}

fn count(inner: &Inner, change: &Change) {
    match change {
        Change::Renew => inner.counters.renewals.one(),
        Change::Complete(_) => inner.counters.completions.one(),
        Change::Doubt => inner.counters.unknowns.one(),
        Change::Release => inner.counters.releases.one(),
    }
}
