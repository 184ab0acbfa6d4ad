//! One ask whose receipt rides in a transaction of the caller's own.
//!
//! ```text
//! begin + claim ── Won ──▶ work ──▶ completion + commit ──▶ answer
//!       ▲           Lost: decide, as everywhere        │
//!       │                                              ├─ undone: the same again, same attempt
//!       └──────────────────────────────────────────────┴─ answer lost: the same again
//! ```
//!
//! A commit whose answer was lost needs no rule of its own. Claiming again waits on the unique index until
//! that transaction is over, one way or the other; then its receipt is there, with our attempt in it, or
//! it never will be.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::answer::{Answer, Ran, Recorded};
use super::conclude::{bounded, done};
use super::flight::{Flight, Joined, Named};
use super::inner::{Inner, change};
use super::lead::{Patience, ROUNDS_MAX, answer, answer_from, contended, put_in_doubt, refuse, wait_here};
use super::lease::Lease;
use super::ticket::{Claimed, Ticket};
use crate::ask::Ask;
use crate::codec::{self, FENCE_IS_VERSION};
use crate::decide::{Decision, Refusal, Takeover};
use crate::error::{Applied, Error, ErrorKind, Result};
use crate::join::{Fault, Join, Transactions};
use crate::outcome::{Outcome, Stopped, Verdict};
use crate::policy::{OnDuplicate, OnFailure};
use crate::receipt::{Attempt, Claim, Fence, Held, Receipt, Status};
use crate::store::{Due, Found, Seen, Swap, Swapped, Version};

/// Who does not wait for duplicates still waits this long for a transaction that is about to end.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// Between two looks at a run that holds its lease outside of any transaction.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// After a transaction that was undone or lost, for the others to get ahead.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The work is done anew so often because the database undid it.
const UNDONE_MAX: usize = 20;
/// How long the fate of a commit is asked for.
const RESOLVE_MAX: Duration = Duration::from_secs(30);

pub(crate) async fn transact<T, F, W>(
    inner: &Arc<Inner>,
    transactions: &T,
    mut ask: Ask,
    mut work: F,
) -> Result<Answer>
where
    T: Transactions,
    F: FnMut(Lease, T::Tx) -> W,
    W: Future<Output = Result<Outcome, Stopped>>,
{
    check_store(inner)?;
    let named = if ask.attempt.is_some() { Named::ByCaller } else { Named::ByEngine };
    let attempt = *ask.attempt.get_or_insert_with(|| Attempt(inner.world.random()));
    let mut patience = Patience::default();
    for _ in 0..ROUNDS_MAX {
        if let Some(receipt) = inner.cache.load(&ask.id, &*inner.world)
            && let Some(answer) = answer_from(inner, &ask, Some(&receipt))
        {
            inner.counters.replays_cached.one();
            return Ok(answer);
        }
        match inner.flights.join(&ask.id, &ask.policy, attempt, named) {
            Joined::Leader(flight) => {
                let leader = Leader { inner: inner.clone(), flight, attempt };
                return leader.lead(transactions, &ask, &mut work, &mut patience).await;
            }
            Joined::Waiter(flight) => {
                if let Some(answer) = wait_here(inner, &ask, &flight, &mut patience).await? {
                    return Ok(answer);
                }
            }
        }
    }
    Err(contended())
}

/// Claims inside a transaction that the caller holds.
pub(crate) async fn claim_in<J: Join + ?Sized>(inner: &Inner, tx: &mut J, ask: &Ask) -> Result<Claimed> {
    check_store(inner)?;
    let attempt = ask.attempt.unwrap_or_else(|| Attempt(inner.world.random()));
    let mut swapped = tx.swap(&claim(ask, attempt, Seen::Absent)).await?;
    for _ in 0..ROUNDS_MAX {
        let found = match swapped {
            Swapped::Won(version) => {
                inner.counters.claims.one();
                let fence = Fence(version.0);
                return Ok(Claimed::Yes(Ticket { id: ask.id.clone(), attempt, fence }));
            }
            Swapped::Lost(found) => found.as_ref().map(codec::decode).transpose()?,
        };
        let seen = match inner.decide(ask, found.as_ref()) {
            Decision::Run(_) => found.map_or(Seen::Absent, |found| Seen::Version(found.version)),
            // The run that has it holds no lock of this database's, so there is nothing to wait on here.
            Decision::Wait { .. } => {
                let due = found.map_or(Due::Never, |found| found.due);
                return Ok(Claimed::No(refuse(inner, Refusal::in_progress(due))));
            }
            decision => {
                let answer = answer(inner, found, decision);
                return Ok(Claimed::No(answer.expect("replays and refusals are answers")));
            }
        };
        swapped = tx.swap(&claim(ask, attempt, seen)).await?;
    }
    Err(contended())
}

/// Records the outcome of a claim made by [`claim_in`], in the same transaction.
pub(crate) async fn complete_in<J: Join + ?Sized>(
    inner: &Inner,
    tx: &mut J,
    ask: &Ask,
    ticket: &Ticket,
    outcome: &Outcome,
) -> Result<()> {
    let claim = Claim { fingerprint: ask.fingerprint, attempt: ticket.attempt, fence: ticket.fence };
    let completion = completion(inner, ask, claim, Version(ticket.fence.0), outcome);
    match tx.swap(&completion).await? {
        Swapped::Won(_) => {
            inner.counters.completions.one();
            Ok(())
        }
        Swapped::Lost(_) => Err(Error::new(
            ErrorKind::Conflict,
            "this transaction does not hold the claim that it wants to complete; roll it back",
        )),
    }
}

fn check_store(inner: &Inner) -> Result<()> {
    let caps = inner.store.caps();
    if caps.transactions {
        return Ok(());
    }
    let detail = format!(
        "the {} store cannot join a transaction; use the store of the database that the transaction is in",
        caps.name
    );
    Err(Error::new(ErrorKind::Unfit, detail))
}

fn claim(ask: &Ask, attempt: Attempt, seen: Seen) -> Swap {
    let claim = Claim { fingerprint: ask.fingerprint, attempt, fence: FENCE_IS_VERSION };
    let held = Held { claim, on_unknown: ask.policy.unknown_rule() };
    change(&ask.id, seen, Some((Status::Held(held), Some(ask.policy.lease_duration()))))
}

fn completion(inner: &Inner, ask: &Ask, claim: Claim, version: Version, outcome: &Outcome) -> Swap {
    change(&ask.id, Seen::Version(version), Some(done(claim, bounded(inner, outcome), &ask.policy)))
}

/// The one in this process who asks for all. However it ends, the others are told.
struct Leader {
    inner: Arc<Inner>,
    flight: Arc<Flight>,
    attempt: Attempt,
}

/// What became of one transaction.
enum Tried {
    /// An answer, and the receipt behind it for all who wait.
    Answer(Answer, Option<Receipt>),
    /// Somebody holds a lease outside of any transaction.
    Wait(Receipt, Duration),
    Undone(Error),
    /// The commit may have happened.
    Lost(Error),
    Failed(Error),
}

impl Leader {
    async fn lead<T, F, W>(
        self,
        transactions: &T,
        ask: &Ask,
        work: &mut F,
        patience: &mut Patience,
    ) -> Result<Answer>
    where
        T: Transactions,
        F: FnMut(Lease, T::Tx) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        let inner = &self.inner;
        let (mut undone, mut pause) = (0, Duration::from_millis(1));
        let mut lost: Option<(Error, Duration)> = None;
        loop {
            let tried = self.try_once(transactions, ask, work, patience, lost.is_some()).await;
            match tried {
                Tried::Answer(answer, receipt) => {
                    inner.flights.end(&self.flight, receipt);
                    return Ok(answer);
                }
                Tried::Wait(receipt, at_most) => {
                    let now = inner.now();
                    let due = receipt.due;
                    self.flight.follow(receipt, now);
                    let Some(remaining) = patience.remaining(now, at_most) else {
                        return Ok(refuse(inner, Refusal::in_progress(due)));
                    };
                    inner.world.sleep(remaining.min(LOOK_PAUSE)).await;
                    continue;
                }
                Tried::Undone(error) => {
                    undone += 1;
                    if undone >= UNDONE_MAX {
                        return Err(self.fail(error, lost));
                    }
                }
                Tried::Lost(error) => {
                    let until = inner.now() + RESOLVE_MAX;
                    tracing::warn!(id = ?ask.id, %error, "the answer to a commit was lost, asking for its fate");
                    lost.get_or_insert((error, until));
                }
                // While the fate of a commit is open, a database that cannot be reached is asked again.
                Tried::Failed(error) => match &lost {
                    Some((_, until)) if inner.now() < *until => {}
                    _ => return Err(self.fail(error, lost)),
                },
            }
            inner.world.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn fail(&self, error: Error, lost: Option<(Error, Duration)>) -> Error {
        let error = match lost {
            Some((lost, _)) => lost.maybe_applied(),
            None => error,
        };
        self.inner.flights.fail(&self.flight, error.clone());
        error
    }

    async fn try_once<T, F, W>(
        &self,
        transactions: &T,
        ask: &Ask,
        work: &mut F,
        patience: &mut Patience,
        in_doubt: bool,
    ) -> Tried
    where
        T: Transactions,
        F: FnMut(Lease, T::Tx) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        let inner = &self.inner;
        let wait = match ask.policy.duplicate_rule() {
            OnDuplicate::Wait(at_most) => patience.remaining(inner.now(), at_most).unwrap_or_default(),
            OnDuplicate::Conflict => PATIENCE_MIN,
        };
        let first = claim(ask, self.attempt, Seen::Absent);
        let kept_for = ask.policy.retention(Verdict::Succeeded).duration();
        let asked_at = inner.now();
        let begun = transactions.begin(&first, kept_for, wait.max(PATIENCE_MIN)).await;
        let (mut tx, mut swapped) = match begun {
            Ok(begun) => begun,
            Err(Fault::Busy) => {
                return Tried::Answer(refuse(inner, Refusal::in_progress(Due::Never)), None);
            }
            Err(Fault::Undone(error)) => return Tried::Undone(error),
            Err(Fault::Failed(error)) => return Tried::Failed(error),
        };
        for _ in 0..ROUNDS_MAX {
            let found = match swapped {
                Swapped::Won(version) => return self.work(transactions, ask, work, tx, version).await,
                Swapped::Lost(found) => found,
            };
            match self.lost_to(ask, found.as_ref(), asked_at, in_doubt) {
                Ok(LostTo::Takeover(seen)) => match tx.swap(&claim(ask, self.attempt, seen)).await {
                    Ok(next) => swapped = next,
                    Err(error) => {
                        transactions.rollback(tx).await;
                        return if transactions.is_worth_repeating(&error) {
                            Tried::Undone(error)
                        } else {
                            Tried::Failed(error)
                        };
                    }
                },
                Ok(LostTo::Ended(tried)) => {
                    transactions.rollback(tx).await;
                    return tried;
                }
                Ok(LostTo::Doubtful(found)) => {
                    transactions.rollback(tx).await;
                    // The refusal stands without it; the next one who asks will write it down.
                    let now = put_in_doubt(inner, ask, found).await.ok().flatten();
                    return Tried::Answer(refuse(inner, Refusal::OutcomeUnknown), now);
                }
                Err(error) => {
                    transactions.rollback(tx).await;
                    return Tried::Failed(error);
                }
            }
        }
        transactions.rollback(tx).await;
        Tried::Failed(contended())
    }

    /// What to do about a receipt that is there.
    fn lost_to(
        &self,
        ask: &Ask,
        found: Option<&Found>,
        asked_at: Duration,
        in_doubt: bool,
    ) -> Result<LostTo> {
        let inner = &self.inner;
        let receipt = found.map(codec::decode).transpose()?;
        if let Some(receipt) = &receipt {
            inner.cache.keep(&ask.id, receipt, asked_at);
        }
        Ok(match (inner.decide(ask, receipt.as_ref()), receipt) {
            (Decision::Run(takeover), found) => {
                if !matches!(takeover, Takeover::Absent | Takeover::Own) {
                    inner.counters.takeovers.one();
                }
                LostTo::Takeover(found.map_or(Seen::Absent, |found| Seen::Version(found.version)))
            }
            (Decision::Wait { at_most }, Some(found)) => LostTo::Ended(Tried::Wait(found, at_most)),
            (Decision::Refuse(Refusal::OutcomeUnknown), Some(found))
                if matches!(found.status, Status::Held(_)) =>
            {
                LostTo::Doubtful(found)
            }
            // The receipt of our own commit, whose answer was lost.
            (Decision::Replay, Some(receipt))
                if in_doubt && receipt.status.claim().is_some_and(|claim| claim.attempt == self.attempt) =>
            {
                let ran = Answer::replay(receipt.clone()).ran().map(|ran| Ran { replayed: false, ..ran });
                LostTo::Ended(Tried::Answer(ran.map_or_else(Answer::Refused, Answer::Ran), Some(receipt)))
            }
            (decision, receipt) => {
                let answer = answer(inner, receipt.clone(), decision);
                LostTo::Ended(Tried::Answer(answer.expect("replays and refusals are answers"), receipt))
            }
        })
    }

    /// The claim is ours: does the work, and commits both together.
    async fn work<T, F, W>(
        &self,
        transactions: &T,
        ask: &Ask,
        work: &mut F,
        tx: T::Tx,
        version: Version,
    ) -> Tried
    where
        T: Transactions,
        F: FnMut(Lease, T::Tx) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        let inner = &self.inner;
        let began = inner.now();
        let fence = Fence(version.0);
        let claim = Claim { fingerprint: ask.fingerprint, attempt: self.attempt, fence };
        inner.counters.claims.one();
        // Duplicates here wait for us and not on the database.
        let held = Status::Held(Held { claim, on_unknown: ask.policy.unknown_rule() });
        let due = Due::In(ask.policy.lease_duration());
        self.flight.follow(Receipt { version, due, status: held }, began);

        let lease = Lease::new(inner.clone(), self.flight.clone(), fence, ask.fingerprint);
        let outcome = match work(lease, tx.clone()).await {
            Ok(outcome) => outcome,
            Err(stopped) => {
                transactions.rollback(tx).await;
                inner.counters.releases.one();
                let repeat = stopped.cause().is_some_and(|cause| transactions.is_worth_repeating(cause));
                let detail = format!("the work ended without an outcome and was rolled back: {stopped}");
                let error = Error::new(ErrorKind::Stopped, detail);
                return if repeat { Tried::Undone(error) } else { Tried::Failed(error) };
            }
        };
        if outcome.verdict() == Verdict::Failed && ask.policy.failure_rule() == OnFailure::Retry {
            transactions.rollback(tx).await;
            inner.counters.releases.one();
            let ran = Ran { outcome, replayed: false, fence, recorded: Recorded::Released, expires_in: None };
            return Tried::Answer(Answer::Ran(ran), None);
        }
        let completion = completion(inner, ask, claim, version, &outcome);
        match transactions.commit(tx, &completion).await {
            Ok(()) => {
                inner.counters.completions.one();
                let expires_in = ask.policy.retention(outcome.verdict()).duration();
                let ran = Ran { outcome, replayed: false, fence, recorded: Recorded::Yes, expires_in };
                Tried::Answer(Answer::Ran(ran), None)
            }
            Err(Fault::Undone(error)) => Tried::Undone(error),
            Err(Fault::Busy) => Tried::Undone(contended()),
            Err(Fault::Failed(error)) if error.applied() == Applied::Maybe => Tried::Lost(error),
            Err(Fault::Failed(error)) => Tried::Failed(error),
        }
    }
}

/// What a claim that lost has come upon.
enum LostTo {
    /// Something in whose place we may run.
    Takeover(Seen),
    Ended(Tried),
    /// A lease that ended without a word, under `Hold`.
    Doubtful(Receipt),
}

impl Drop for Leader {
    fn drop(&mut self) {
        // Dropped midway, or over: whoever waits looks for itself.
        self.inner.flights.end(&self.flight, None);
    }
}
