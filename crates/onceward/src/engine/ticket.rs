//! Tickets: claims for callers that cannot pass a closure: another process, another language, a framework
//! that splits one operation over several calls. Nothing is renewed by itself here.

use std::sync::Arc;

use super::acquire::{Acquired, acquire};
use super::answer::Answer;
use super::finish::bounded;
use super::front::wake_watchers;
use super::group_commit::Urgency;
use super::inner::Inner;
use super::sealed::open_any;
use super::unknown_log;
use crate::ask::Ask;
use crate::decide::Takeover;
use crate::error::{Applied, Result};
use crate::fingerprint::Fingerprint;
use crate::id::Id;
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::receipt::{Attempt, Claim, Fence, Owner, Receipt, Status, UnknownReason};
use crate::store::{Seen, Swapped};
use crate::transition::{self, AfterLoss, Finish, Write};

/// Proof of a claim, and the policy that it was made under. Its parts can be sent to another process, which
/// makes the same ticket of them with [`Ticket::new`]. Its holder is the owner of the claim.
#[derive(Clone, Debug)]
pub struct Ticket {
    id: Id,
    attempt: Attempt,
    fence: Fence,
    policy: Arc<Policy>,
    /// Known to the process that made the claim. Without it, the receipt has to be read first.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// What a claim took over that is written in a transaction and not counted yet.
    pub(crate) claim_in_transaction: Option<Takeover>,
}

impl Ticket {
    /// The ticket of a claim from its parts, as [`Onceward::claim`](crate::Onceward::claim) gave them: perhaps to
    /// another process.
    pub fn new(id: Id, attempt: Attempt, fence: Fence, policy: impl Into<Arc<Policy>>) -> Self {
        Self { id, attempt, fence, policy: policy.into(), fingerprint: None, claim_in_transaction: None }
    }

    /// Sets the policy under which the claim is renewed and ended.
    pub fn with_policy(mut self, policy: impl Into<Arc<Policy>>) -> Self {
        self.policy = policy.into();
        self
    }

    /// Of a claim that an ask has just made.
    pub(crate) fn of(ask: &Ask, attempt: Attempt, fence: Fence) -> Self {
        let fingerprint = Some(ask.fingerprint);
        Self {
            id: ask.id.clone(),
            attempt,
            fence,
            policy: ask.policy.clone(),
            fingerprint,
            claim_in_transaction: None,
        }
    }

    /// The intent that was claimed.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// The try that has claimed it.
    pub fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// The fence of the claim. Hand it to whatever has the effect, so that a previous owner is refused there.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The policy of the claim.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }
}

/// By the claim and its policy: it does not matter how the ticket came about.
impl PartialEq for Ticket {
    fn eq(&self, other: &Self) -> bool {
        (&self.id, self.attempt, self.fence, &self.policy)
            == (&other.id, other.attempt, other.fence, &other.policy)
    }
}

impl Eq for Ticket {}

/// The result of a claim with a ticket.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It is yours until the lease ends; renew it in time.
    Granted(Ticket),
    /// There is an answer already.
    Answered(Answer),
}

/// What became of a change made with a ticket.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of it at a time, and its caller looks at it at once"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Done as asked.
    Applied,
    /// The receipt is not this ticket's any more; this is what is there.
    NotOwner(Option<Receipt>),
}

/// What a ticket's holder wants to change.
pub(crate) enum Change {
    Renew,
    End(Finish),
}

impl Change {
    pub(crate) fn complete(outcome: Outcome, policy: &Policy) -> Self {
        Self::End(Finish::of(outcome, policy))
    }

    /// The same, with an outcome as it may be stored in this receipt.
    fn bounded(self, inner: &Inner, found: &Receipt, policy: &Policy) -> Self {
        let input_bytes = transition::kept_input_bytes(found.status.job(), policy);
        match self {
            Self::End(Finish::Done(outcome)) => {
                Self::End(Finish::Done(bounded(inner, &outcome, input_bytes)))
            }
            other => other,
        }
    }

    pub(crate) fn release() -> Self {
        Self::End(Finish::Release("it was released".into()))
    }

    pub(crate) fn mark_unknown() -> Self {
        Self::End(Finish::Unknown(UnknownReason::Reported, "its owner cannot tell".into()))
    }
}

pub(crate) async fn claim(inner: &Arc<Inner>, mut ask: Ask) -> Result<Claimed> {
    match acquire(inner, &mut ask, Owner::Ticket).await? {
        Acquired::Run(mut guard) => {
            let (attempt, fence) = (guard.flight.attempt, guard.fence());
            guard.detach();
            Ok(Claimed::Granted(Ticket::of(&ask, attempt, fence)))
        }
        Acquired::Answer(answer) => Ok(Claimed::Answered(answer)),
    }
}

/// A renewal or an ending may be written this often against a receipt that keeps moving under it.
const TRIES_MAX: usize = 8;

pub(crate) async fn change(inner: &Inner, ticket: &Ticket, mut change: Change) -> Result<Changed> {
    let mut receipt = inner.load(&ticket.id).await?;
    if let Some(found) = &receipt {
        change = change.bounded(inner, found, &ticket.policy);
    }
    let (mut last, mut contradicted) = (None, false);
    for _ in 0..TRIES_MAX {
        if let (Some(found), Change::End(ending), false) = (&receipt, &change, contradicted) {
            contradicted = is_settled_otherwise(inner, found, ending, ticket);
        }
        let Some(found) = receipt.filter(|found| is_of(found, ticket)) else {
            break;
        };
        let write = match action_of(inner, &found, &change, ticket) {
            ChangeAction::Write(write) => write,
            // A repeated call whose first answer was lost: what it wants is already so.
            ChangeAction::AlreadySo => return Ok(Changed::Applied),
            ChangeAction::Refuse => {
                inner.counters.fenced_off.one();
                return Ok(Changed::NotOwner(Some(found)));
            }
        };
        let seen = Seen::Version(found.version);
        let reply = inner.swap(&ticket.id, seen, write.as_ref(), Urgency::Required).await;
        match reply.result {
            Ok(Swapped::Won(_)) => {
                count(inner, &change);
                if let Change::End(ending) = &change {
                    unknown_log::ended(&ticket.id, ending, &ticket.policy);
                }
                match &change {
                    Change::End(_) => wake_watchers(inner, &ticket.id),
                    Change::Renew => inner.poller.look_now(),
                }
                return Ok(Changed::Applied);
            }
            Ok(Swapped::Lost(found)) => receipt = open_any(found.as_ref())?,
            Ok(Swapped::Failed(error)) | Err(error) if error.applied() == Applied::Maybe => {
                receipt = inner.load(&ticket.id).await.map_err(|_| error.clone())?;
                if receipt.is_none() && write.is_none() {
                    return Ok(Changed::Applied);
                }
                last = Some(error);
            }
            Ok(Swapped::Failed(error)) | Err(error) => return Err(error),
        }
        if let Some(receipt) = &receipt {
            inner.cache.keep(&ticket.id, receipt, reply.sent_at);
        }
    }
    if let Some(error) = last {
        return Err(error);
    }
    inner.counters.fenced_off.one();
    Ok(Changed::NotOwner(inner.load(&ticket.id).await?))
}

/// What a ticket's change means for the receipt that is there.
enum ChangeAction {
    /// `None` removes it.
    Write(Option<Write>),
    AlreadySo,
    Refuse,
}

fn action_of(inner: &Inner, found: &Receipt, change: &Change, ticket: &Ticket) -> ChangeAction {
    let policy = &*ticket.policy;
    let Change::End(ending) = change else {
        return match &found.status {
            Status::Held(held) => ChangeAction::Write(Some(inner.hold(held.clone(), policy))),
            _ => ChangeAction::Refuse,
        };
    };
    let Some(run) = transition::run_of(&found.status) else {
        return match (found.status.outcome(), ending) {
            (Some(there), Finish::Done(outcome)) if there == outcome => ChangeAction::AlreadySo,
            _ => ChangeAction::Refuse,
        };
    };
    // From the owner's side it is as after a write that lost: what is there is its own, or it is not.
    match transition::after_loss(&ticket.id, &run, ending, policy, Some(found)) {
        AfterLoss::WriteAgain(_) => ChangeAction::Write(transition::end(&ticket.id, &run, ending, policy)),
        AfterLoss::Recorded => ChangeAction::AlreadySo,
        AfterLoss::FencedOff => ChangeAction::Refuse,
    }
}

/// Whether somebody has settled the ticket's run otherwise than it ended, which is counted and logged.
fn is_settled_otherwise(inner: &Inner, found: &Receipt, ending: &Finish, ticket: &Ticket) -> bool {
    let fingerprint = found.status.claim().map_or(Fingerprint::of(b""), |claim| claim.fingerprint);
    let run = Claim { fingerprint, attempt: ticket.attempt, fence: ticket.fence, tries: 1 };
    let contradicted = transition::is_settled_otherwise(&run, ending, found);
    if contradicted {
        inner.counters.settlements_contradicted.one();
        unknown_log::settled_otherwise(&ticket.id, ticket.fence, found);
    }
    contradicted
}

fn is_of(receipt: &Receipt, ticket: &Ticket) -> bool {
    receipt.status.claim().is_some_and(|claim| claim.is_of(ticket.attempt, ticket.fence))
}

fn count(inner: &Inner, change: &Change) {
    match change {
        Change::Renew => inner.counters.renewals.one(),
        Change::End(Finish::Done(_)) => inner.counters.completions.one(),
        Change::End(Finish::Unknown(..)) => inner.counters.unknowns.one(),
        Change::End(Finish::Release(_) | Finish::Suspend(_)) => inner.counters.releases.one(),
    }
}
