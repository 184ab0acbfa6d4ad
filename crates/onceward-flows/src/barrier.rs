//! A barrier for participants of a saga that another service coordinates: in the participant's own transaction it decides
//! whether an action or its undo is to run, by idempotency keys made of saga, step and direction.
//!
//! | call | what was there | the barrier says |
//! |---|---|---|
//! | action | nothing | run |
//! | action, again | its outcome | already done, with the outcome |
//! | action, after its undo | closed | closed: it must not run any more |
//! | undo | the action's outcome | run |
//! | undo, again | its outcome | already done, with the outcome |
//! | undo | nothing | nothing to undo; the action is closed for good |
//! | undo | an action that was refused | nothing to undo |
//!
//! An action and its undo that come at the same time wait for each other, on the row of the action.
//!
//! A call is known by saga, step and direction, or by its own idempotency key: an undo then names the key of its action,
//! as in the field `Onceward-Closes`.

use std::sync::Arc;
use std::time::Duration;

use onceward::receipt::{Done, End, Status};
use onceward::{
    Answer, Ask, Changed, Claimed, Closed, Error, ErrorKind, Fingerprint, Id, Join, OnDuplicate, OnFailure,
    Onceward, Outcome, Policy, Refusal, Result, Retention, Ticket, Verdict,
};

use crate::saga::Direction;

/// How long a barrier remembers, if nothing else is said.
const RETENTION: Duration = Duration::from_hours(24 * 30);
const OPERATION: &str = "barrier:";
/// Of calls by key, so that no operation meets a step of the same name.
const CALL_OPERATION: &str = "barrier-call:";

/// Decides in a participant's transaction whether an action or an undo is to run.
#[derive(Clone, Debug)]
pub struct Barrier {
    onceward: Onceward,
    scope: String,
    policy: Arc<Policy>,
}

/// The decision of a barrier.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Debug)]
#[must_use]
pub enum Entered {
    /// Run it, then [complete](BarrierGuard::complete_in) the guard in the same transaction and commit.
    Run(BarrierGuard),
    /// It was done before: answer with this outcome.
    AlreadyDone(Outcome),
    /// There is nothing to undo: the action never ran, or was refused. If it never ran, it never will.
    NothingToUndo,
    /// An action whose undo came first: it must not run. Answer that it was refused.
    Closed,
}

/// The right to run one action or undo, in the transaction that it was given in.
#[derive(Debug)]
#[must_use = "without `complete_in` the transaction must be rolled back"]
pub struct BarrierGuard {
    onceward: Onceward,
    ticket: Ticket,
    direction: Direction,
}

/// A call as its participant knows it: the operation, and the idempotency key that it came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyedCall<'a> {
    /// The participant's name of what is called: `POST /charges`.
    pub operation: &'a str,
    /// The idempotency key.
    pub key: &'a str,
}

impl<'a> KeyedCall<'a> {
    /// A call of an operation under a key.
    pub fn new(operation: &'a str, key: &'a str) -> Self {
        Self { operation, key }
    }
}

impl Barrier {
    /// A barrier over the engine of the participant's database. It remembers for 30 days.
    pub fn new(onceward: Onceward) -> Self {
        let policy = Policy::http().to_builder();
        let policy = policy.with_on_duplicate(OnDuplicate::Conflict).with_on_failure(OnFailure::Replay);
        let policy = policy.with_retention(Retention::For(RETENTION)).build();
        let policy = Arc::new(policy.expect("every value is within its bounds"));
        Self { onceward, scope: "barrier".to_owned(), policy }
    }

    /// Sets the scope: one for each coordinator whose sagas have names of their own.
    pub fn with_scope(mut self, scope: &str) -> Self {
        scope.clone_into(&mut self.scope);
        self
    }

    /// Sets the policy of its receipts. Its retention must be longer than the coordinator can repeat a call. A duplicate
    /// gets a conflict and a failure is replayed, whatever the policy says.
    pub fn with_policy(mut self, policy: &Policy) -> Self {
        let policy = policy.to_builder().with_on_duplicate(OnDuplicate::Conflict);
        let policy = policy.with_on_failure(OnFailure::Replay).build();
        self.policy = Arc::new(policy.expect("the policy is valid, and so are these rules"));
        self
    }

    /// Decides about one call of a coordinator, inside the caller's transaction. After an error, roll back.
    pub async fn enter<J: Join + ?Sized>(
        &self,
        tx: &mut J,
        saga: &str,
        step: &str,
        direction: Direction,
    ) -> Result<Entered> {
        let action = Id::new(&self.scope, &format!("{OPERATION}{step}"), saga)?;
        match direction {
            Direction::Action => self.claim(tx, action, Direction::Action).await,
            Direction::Undo => {
                let undo = || Id::new(&self.scope, &format!("{OPERATION}{step}/undo"), saga);
                self.enter_undo(tx, undo, &action).await
            }
        }
    }

    /// The same for a call that is known by its own idempotency key. `closes` is what an undo undoes: the operation and
    /// the key of the action, as the field `Onceward-Closes` names them; `onceward_http::ClosesField` reads it. Without it
    /// the call is an action. Keys of several callers need a [scope](Self::with_scope) each. After an error, roll back.
    pub async fn enter_by_key<J: Join + ?Sized>(
        &self,
        tx: &mut J,
        call: KeyedCall<'_>,
        closes: Option<KeyedCall<'_>>,
    ) -> Result<Entered> {
        let id = |call: KeyedCall<'_>| {
            Id::new(&self.scope, &format!("{CALL_OPERATION}{}", call.operation), call.key)
        };
        match closes {
            None => self.claim(tx, id(call)?, Direction::Action).await,
            Some(action) if action == call => Err(Error::new(
                ErrorKind::Invalid,
                "an undo that closes itself: its operation and key are those of its action",
            )),
            Some(action) => self.enter_undo(tx, || id(call), &id(action)?).await,
        }
    }

    /// Closes the action if it has not run; the undo of one that has is claimed.
    async fn enter_undo<J: Join + ?Sized>(
        &self,
        tx: &mut J,
        undo: impl FnOnce() -> Result<Id>,
        action: &Id,
    ) -> Result<Entered> {
        let found = match self.onceward.close_in(tx, action, &self.policy).await? {
            Changed::Applied => return Ok(Entered::NothingToUndo),
            Changed::NotOwner(found) => found.map(|found| found.status),
        };
        match found {
            Some(Status::Done(Done { end: End::Outcome(outcome), .. }))
                if outcome.verdict() == Verdict::Succeeded =>
            {
                self.claim(tx, undo()?, Direction::Undo).await
            }
            _ => Ok(Entered::NothingToUndo),
        }
    }

    async fn claim<J: Join + ?Sized>(&self, tx: &mut J, id: Id, direction: Direction) -> Result<Entered> {
        let ask = Ask::new(id, Fingerprint::of(b"barrier"), self.policy.clone());
        match self.onceward.claim_in(tx, &ask).await? {
            Claimed::Granted(ticket) => {
                Ok(Entered::Run(BarrierGuard { onceward: self.onceward.clone(), ticket, direction }))
            }
            Claimed::Answered(Answer::Completed(completed)) => Ok(Entered::AlreadyDone(completed.outcome)),
            Claimed::Answered(Answer::Refused(Refusal::Closed(Closed::Undone))) => Ok(Entered::Closed),
            Claimed::Answered(Answer::Refused(refusal)) => {
                Err(Error::new(ErrorKind::Conflict, refusal.to_string()))
            }
        }
    }
}

impl BarrierGuard {
    /// Records the outcome in the same transaction: [`Outcome::succeeded`], or [`Outcome::failed`] for an action that was
    /// refused and has written nothing, which then has nothing to undo. A failed undo is not recorded: roll back, and let
    /// the coordinator repeat it.
    pub async fn complete_in<J: Join + ?Sized>(self, tx: &mut J, outcome: &Outcome) -> Result<()> {
        if self.direction == Direction::Undo && outcome.verdict() == Verdict::Failed {
            let detail = "an undo that failed must be repeated: roll back instead of recording it";
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        self.onceward.complete_in(tx, &self.ticket, outcome).await
    }
}

/// Decides about one call of a coordinator, with a [`Barrier`] as it is by default.
pub async fn barrier<J: Join + ?Sized>(
    onceward: &Onceward,
    tx: &mut J,
    saga: &str,
    step: &str,
    direction: Direction,
) -> Result<Entered> {
    Barrier::new(onceward.clone()).enter(tx, saga, step, direction).await
}
