//! Runs one ask whose receipt is written in the caller's own transaction.
//!
//! ```text
//! begin + claim ── Won ──▶ work ──▶ completion + commit ──▶ answer
//!       ▲           Lost: decide, as everywhere        │
//!       │                                              ├─ undone: the same again, same attempt
//!       └──────────────────────────────────────────────┴─ answer lost: the same again
//! ```
//!
//! A commit whose answer was lost needs no rule of its own. Claiming again waits on the unique index until
//! that transaction has committed or rolled back; then its receipt is there, with our attempt in it, or
//! it never will be.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::acquire::{
    ClaimReply, Claimant, Granted, JoinResult, ROUNDS_MAX, check_input, claim_from_store, join_flight,
};
use super::answer::{Answer, Completed, Recorded};
use super::answer_without_run::{WaitDeadline, answer, contended, refuse};
use super::finish::bounded;
use super::in_flight::{Flight, RunningLease};
use super::inner::Inner;
use super::lease::Lease;
use super::sealed::{open_any, seal};
use super::ticket::{Claimed, Ticket};
use crate::ask::Ask;
use crate::decide::{Decision, Refusal, Takeover};
use crate::error::{Applied, Error, ErrorKind, Result};
use crate::join::{Fault, Join, Transactions};
use crate::outcome::{Outcome, Stopped, Verdict};
use crate::policy::{KeepInput, OnDuplicate};
use crate::receipt::{Attempt, Claim, Fence, Held, Owner, Receipt, Status};
use crate::store::{Age, Due, Seen, Swap, Swapped, Version};
use crate::transition::{self, Ending};

/// Shortest wait for another transaction on the same id, also under a policy that does not wait for duplicates.
const LOCK_WAIT_MIN: Duration = Duration::from_secs(1);
/// After a transaction that was undone or lost, for the others to get ahead.
pub(super) const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How often the work is done again because the database undid it.
pub(super) const UNDONE_MAX: usize = 20;
/// How long to find out whether a commit happened.
pub(super) const RESOLVE_MAX: Duration = Duration::from_secs(30);

tokio::task_local! {
    /// The engine whose transaction the current task is in, by its address.
    pub(super) static IN_TRANSACTION_OF: usize;
}

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
    check_nesting(inner)?;
    check_input(inner, &ask)?;
    let mut deadline = WaitDeadline::default();
    for _ in 0..ROUNDS_MAX {
        match join_flight(inner, &mut ask, &mut deadline).await? {
            JoinResult::Answer(answer) => return Ok(answer),
            JoinResult::LookAgain => {}
            JoinResult::Leader(flight) => {
                let run = TransactionRun { inner: inner.clone(), flight };
                return run.run(transactions, &ask, &mut work, &mut deadline).await;
            }
        }
    }
    Err(contended())
}

/// Claims inside a transaction that the caller holds.
pub(crate) async fn claim_in<J: Join + ?Sized>(inner: &Inner, tx: &mut J, ask: &Ask) -> Result<Claimed> {
    check_store(inner)?;
    check_input(inner, ask)?;
    let attempt = ask.attempt.unwrap_or_else(|| Attempt(inner.runtime.random()));
    let (mut takeover, mut found) = (Takeover::Absent, None);
    for _ in 0..ROUNDS_MAX {
        let held = transition::claim(ask, attempt, Owner::Run, takeover, found.as_ref());
        let seen = found.as_ref().map_or(Seen::Absent, |found: &Receipt| Seen::Version(found.version));
        let claim = seal(&ask.id, seen, Some(&transition::hold(held, &ask.policy)));
        found = match swap_one(tx, &claim).await? {
            Swapped::Won(version) => {
                inner.counters.claims.one();
                if takeover != Takeover::Absent {
                    inner.counters.takeovers.one();
                }
                return Ok(Claimed::Granted(Ticket::of(ask, attempt, Fence(version.0))));
            }
            Swapped::Lost(found) => open_any(found.as_ref())?,
            Swapped::Failed(error) => return Err(error),
        };
        takeover = match inner.decide(ask, found.as_ref()) {
            Decision::Run(takeover) => takeover,
            // The run that has it holds no lock of this database's, so there is nothing to wait on here.
            Decision::Wait { .. } => {
                let due = found.map_or(Due::Never, |found| found.due);
                return Ok(Claimed::Answered(refuse(inner, Refusal::in_progress(due))));
            }
            decision => {
                let answer = answer(inner, found, decision);
                return Ok(Claimed::Answered(answer.expect("replays and refusals are answers")));
            }
        };
    }
    Err(contended())
}

/// Records the outcome of a claim made by [`claim_in`], in the same transaction.
pub(crate) async fn complete_in<J: Join + ?Sized>(
    inner: &Inner,
    tx: &mut J,
    ticket: &Ticket,
    outcome: &Outcome,
) -> Result<()> {
    let policy = ticket.policy();
    let ending = Ending::of(bounded(inner, outcome), policy);
    let held = match ticket.fingerprint {
        // Only where the job has to be kept does it matter which one it was.
        Some(fingerprint) if !ending.is_release() && policy.keep_input() != KeepInput::WithReceipt => {
            let ask = Ask::new(ticket.id().clone(), fingerprint, policy.clone());
            let held = transition::claim(&ask, ticket.attempt(), Owner::Run, Takeover::Absent, None);
            Held { claim: Claim { fence: ticket.fence(), ..held.claim }, ..held }
        }
        _ => held_in(tx, ticket).await?.ok_or_else(not_held)?,
    };
    let write = transition::end(ticket.id(), &held, &ending, policy);
    let swap = seal(ticket.id(), Seen::Version(Version(ticket.fence().0)), write.as_ref());
    match swap_one(tx, &swap).await? {
        Swapped::Won(_) => {
            inner.counters.completions.one();
            Ok(())
        }
        Swapped::Lost(_) => Err(not_held()),
        Swapped::Failed(error) => Err(error),
    }
}

fn not_held() -> Error {
    Error::new(
        ErrorKind::Conflict,
        "this transaction does not hold the claim that it wants to complete; roll it back",
    )
}

/// What the transaction itself holds. (A swap from absent to absent is a read.)
async fn held_in<J: Join + ?Sized>(tx: &mut J, ticket: &Ticket) -> Result<Option<Held>> {
    let look = Swap { id: ticket.id().clone(), seen: Seen::Absent, new: None };
    let found = match swap_one(tx, &look).await? {
        Swapped::Won(_) => None,
        Swapped::Lost(found) => open_any(found.as_ref())?,
        Swapped::Failed(error) => return Err(error),
    };
    Ok(match found.map(|found| found.status) {
        Some(Status::Held(held)) if held.claim.attempt == ticket.attempt() => Some(held),
        _ => None,
    })
}

/// One swap inside a transaction.
pub(crate) async fn swap_one<J: Join + ?Sized>(tx: &mut J, swap: &Swap) -> Result<Swapped> {
    let mut swapped = tx.swap(std::slice::from_ref(swap)).await?;
    match (swapped.pop(), swapped.pop()) {
        (Some(swapped), None) => Ok(swapped),
        _ => Err(Error::new(ErrorKind::Damaged, "the transaction gave another number of answers than swaps")),
    }
}

pub(super) fn check_store(inner: &Inner) -> Result<()> {
    let caps = inner.store.caps();
    if caps.promises.transactions {
        return Ok(());
    }
    let detail = format!(
        "the {} store cannot join a transaction; use the store of the database that the transaction is in",
        caps.name
    );
    Err(Error::new(ErrorKind::Unfit, detail))
}

/// A transaction inside another one of the same engine waits for a connection that the outer one may be
/// holding, and for a row that it may have locked.
pub(super) fn check_nesting(inner: &Arc<Inner>) -> Result<()> {
    let nested = IN_TRANSACTION_OF.try_with(|of| *of == Arc::as_ptr(inner).addr()).unwrap_or(false);
    if !nested {
        return Ok(());
    }
    Err(Error::invalid(
        "a transaction inside the work of another one can wait for it forever; write through the transaction that \
         the work was given (claim_in), or begin the second one after the first",
    ))
}

/// The transaction of the first ask in this process. However it ends, the asks that wait for it are told.
struct TransactionRun {
    inner: Arc<Inner>,
    flight: Arc<Flight>,
}

/// What became of one transaction.
#[expect(clippy::large_enum_variant, reason = "there is one of it at a time, and it is taken apart at once")]
enum TransactionTry {
    /// An answer, and the receipt behind it for the asks that wait.
    Answer(Answer, Option<Receipt>),
    Undone(Error),
    /// The commit may have happened.
    Lost(Error),
    Failed(Error),
}

impl TransactionRun {
    async fn run<T, F, W>(
        self,
        transactions: &T,
        ask: &Ask,
        work: &mut F,
        deadline: &mut WaitDeadline,
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
            match self.try_once(transactions, ask, work, deadline).await {
                TransactionTry::Answer(answer, receipt) => {
                    let answer = match &lost {
                        Some(_) => self.of_own_commit(answer, receipt.as_ref()),
                        None => answer,
                    };
                    inner.flights.end(&self.flight, receipt);
                    return Ok(answer);
                }
                TransactionTry::Undone(error) => {
                    undone += 1;
                    if undone >= UNDONE_MAX {
                        return Err(self.fail(error, lost));
                    }
                }
                TransactionTry::Lost(error) => {
                    let until = inner.now() + RESOLVE_MAX;
                    tracing::warn!(id = ?ask.id, %error, "the answer to a commit was lost, checking whether it happened");
                    lost.get_or_insert((error, until));
                }
                // While it is unknown whether a commit happened, a database that cannot be reached is asked again.
                TransactionTry::Failed(error) => match &lost {
                    Some((_, until)) if inner.now() < *until => {}
                    _ => return Err(self.fail(error, lost)),
                },
            }
            inner.runtime.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn fail(&self, error: Error, lost: Option<(Error, Duration)>) -> Error {
        let error = match lost {
            Some((lost, _)) => lost.maybe_applied(),
            None => error,
        };
        if error.kind() == ErrorKind::Stopped {
            // How the work of this caller ended is no answer for the others: each of them asks for itself.
            self.inner.flights.end(&self.flight, None);
        } else {
            self.inner.flights.fail(&self.flight, error.clone());
        }
        error
    }

    /// The receipt of our own commit, whose answer was lost, is no replay.
    fn of_own_commit(&self, answer: Answer, receipt: Option<&Receipt>) -> Answer {
        let ours = receipt
            .and_then(|receipt| receipt.status.claim())
            .is_some_and(|claim| claim.attempt == self.flight.attempt);
        match answer {
            Answer::Completed(completed) if ours => {
                Answer::Completed(Completed { replayed: false, ..completed })
            }
            answer => answer,
        }
    }

    async fn try_once<T, F, W>(
        &self,
        transactions: &T,
        ask: &Ask,
        work: &mut F,
        deadline: &mut WaitDeadline,
    ) -> TransactionTry
    where
        T: Transactions,
        F: FnMut(Lease, T::Tx) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        let inner = &self.inner;
        let wait_max = match ask.policy.on_duplicate() {
            OnDuplicate::Wait(at_most) => deadline.remaining(inner.now(), at_most).unwrap_or_default(),
            OnDuplicate::Conflict => LOCK_WAIT_MIN,
        };
        let mut claimant = InTransaction {
            inner,
            transactions,
            flight: &self.flight,
            wait_max: wait_max.max(LOCK_WAIT_MIN),
            retention: ask.policy.retention(Verdict::Succeeded).duration(),
            tx: None,
        };
        let granted = claim_from_store(inner, ask, &mut claimant, deadline).await;
        if let Ok(Granted::Run(running)) = granted {
            let tx = claimant.tx.take().expect("a claim was won in it");
            return self.work(transactions, ask, work, tx, running).await;
        }
        claimant.abort_write().await;
        match granted {
            Ok(Granted::Answer(answer, receipt)) => {
                TransactionTry::Answer(answer, receipt.map(|receipt| *receipt))
            }
            Ok(Granted::Undone(error)) => TransactionTry::Undone(error),
            Ok(Granted::Run(_)) => unreachable!("taken above"),
            Err(error) => TransactionTry::Failed(error),
        }
    }

    /// The claim is ours: does the work, and commits both together.
    async fn work<T, F, W>(
        &self,
        transactions: &T,
        ask: &Ask,
        work: &mut F,
        tx: T::Tx,
        running: RunningLease,
    ) -> TransactionTry
    where
        T: Transactions,
        F: FnMut(Lease, T::Tx) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        let inner = &self.inner;
        let RunningLease { held, version, .. } = running;
        let fence = held.claim.fence;
        inner.counters.claims.one();
        // Duplicates here wait for us and not on the database.
        let (due, age) = (Due::In(ask.policy.lease()), Age::default());
        let receipt = Receipt { version, due, age, status: Status::Held(held.clone()) };
        self.flight.set_held_elsewhere(receipt, inner.now());

        let lease = Lease::in_transaction(inner.clone(), self.flight.clone(), &held);
        let working = IN_TRANSACTION_OF.scope(Arc::as_ptr(inner).addr(), work(lease, tx.clone()));
        let outcome = match working.await {
            Ok(outcome) => outcome,
            Err(stopped) => {
                transactions.rollback(tx).await;
                inner.counters.releases.one();
                let repeat = stopped.cause().is_some_and(|cause| transactions.is_worth_repeating(cause));
                let detail = format!("the work ended without an outcome and was rolled back: {stopped}");
                let error = Error::new(ErrorKind::Stopped, detail);
                return if repeat { TransactionTry::Undone(error) } else { TransactionTry::Failed(error) };
            }
        };
        let ending = Ending::of(bounded(inner, &outcome), &ask.policy);
        if ending.is_release() {
            transactions.rollback(tx).await;
            inner.counters.releases.one();
            let completed =
                Completed { outcome, replayed: false, fence, recorded: Recorded::Released, expires_in: None };
            return TransactionTry::Answer(Answer::Completed(completed), None);
        }
        let write = transition::end(&ask.id, &held, &ending, &ask.policy);
        let completion = seal(&ask.id, Seen::Version(version), write.as_ref());
        match transactions.commit(tx, &completion).await {
            Ok(()) => {
                inner.counters.completions.one();
                let expires_in = ask.policy.retention_of(&outcome).duration();
                let completed =
                    Completed { outcome, replayed: false, fence, recorded: Recorded::Yes, expires_in };
                TransactionTry::Answer(Answer::Completed(completed), None)
            }
            Err(Fault::Undone(error)) => TransactionTry::Undone(error),
            Err(Fault::Busy) => TransactionTry::Undone(contended()),
            Err(Fault::Failed(error)) if error.applied() == Applied::Maybe => TransactionTry::Lost(error),
            Err(Fault::Failed(error)) => TransactionTry::Failed(error),
        }
    }
}

impl Drop for TransactionRun {
    fn drop(&mut self) {
        // Dropped before its end, or over: the asks that wait look again.
        self.inner.flights.end(&self.flight, None);
    }
}

/// Claims in a transaction, which begins with the first claim. Dropping it rolls back.
struct InTransaction<'a, T: Transactions> {
    inner: &'a Arc<Inner>,
    transactions: &'a T,
    flight: &'a Arc<Flight>,
    wait_max: Duration,
    retention: Option<Duration>,
    tx: Option<T::Tx>,
}

impl<T: Transactions> Claimant for InTransaction<'_, T> {
    const IS_LEASE: bool = false;

    async fn write(&mut self, claim: Swap) -> (Duration, ClaimReply) {
        let sent_at = self.inner.now();
        let reply = match &mut self.tx {
            None => match self.transactions.begin(&claim, self.retention, self.wait_max).await {
                Ok((tx, swapped)) => {
                    self.tx = Some(tx);
                    ClaimReply::Swapped(swapped)
                }
                Err(Fault::Busy) => ClaimReply::Busy,
                Err(Fault::Undone(error)) => ClaimReply::Undone(error),
                Err(Fault::Failed(error)) => ClaimReply::Failed(error),
            },
            Some(tx) => match swap_one(tx, &claim).await {
                Ok(swapped) => ClaimReply::Swapped(swapped),
                Err(error) if self.transactions.is_worth_repeating(&error) => ClaimReply::Undone(error),
                Err(error) => ClaimReply::Failed(error),
            },
        };
        (sent_at, reply)
    }

    async fn abort_write(&mut self) {
        if let Some(tx) = self.tx.take() {
            self.transactions.rollback(tx).await;
        }
    }

    fn flight(&self) -> &Arc<Flight> {
        self.flight
    }

    fn claim_may_exist(&self) -> bool {
        false
    }

    fn found_own(&mut self) {}

    fn owner(&self) -> Owner {
        Owner::Run
    }
}
