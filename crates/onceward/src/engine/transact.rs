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
//!
//! Where the outcome is known before the work begins, the receipt is written as done in place of the claim: no other transaction
//! sees it before the commit, and duplicates wait on its row as they would on a claim. The commit then writes nothing.
//! Over a receipt that is there already it is claimed and completed as always.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::acquire::{
    Claimant, Granted, JoinResult, ROUNDS_MAX, check_input, claim_from_store, count_lapse, decide,
    join_flight, lapsed,
};
use super::answer::{Answer, Completed, Recorded};
use super::answer_without_run::{WaitDeadline, answer, contended, refuse};
use super::finish::bounded;
use super::former_steps::forget_steps_in;
use super::front::{answer_from_front, put_committed};
use super::in_flight::{Flight, RunningLease};
use super::inner::Inner;
use super::lease::Lease;
use super::sealed::{open_any, seal};
use super::ticket::{Claimed, Ticket};
use crate::ask::Ask;
use crate::codec::FENCE_IS_VERSION;
use crate::decide::{Decision, Refusal, Takeover};
use crate::error::{Applied, Error, ErrorKind, Result};
use crate::join::{Fault, Join, Transactions};
use crate::outcome::{Outcome, Stopped, Verdict};
use crate::policy::{KeepInput, OnDuplicate};
use crate::receipt::{Attempt, Claim, Fence, Held, Owner, Receipt, Status};
use crate::store::{Age, Due, Seen, Swap, Swapped, Version};
use crate::transition::{self, Finish};

/// Shortest wait for another transaction on the same id, also under a policy that does not wait for duplicates.
const LOCK_WAIT_MIN: Duration = Duration::from_secs(1);
/// After a transaction that was undone or lost, for the others to get ahead.
pub(super) const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How often the work is done again because the database undid it.
pub(super) const UNDONE_MAX: usize = 20;
/// How long to find out whether a commit happened.
pub(super) const RESOLVE_MAX: Duration = Duration::from_secs(30);
/// The most that a receipt which was written before its work may be kept longer than asked for; and not by more than a
/// 64th. If the work takes longer, the receipt is written again.
const KEPT_LONGER_MAX: Duration = Duration::from_mins(1);

tokio::task_local! {
    /// The engines whose transactions the current task is in, by their addresses.
    static IN_TRANSACTIONS_OF: Arc<[usize]>;
}

/// Does the work of a transaction of this engine, in which no other one of the same engine may begin.
pub(super) async fn inside<W: Future>(inner: &Arc<Inner>, work: W) -> W::Output {
    let own = Arc::as_ptr(inner).addr();
    let all = IN_TRANSACTIONS_OF.try_with(|outer| outer.iter().copied().chain([own]).collect());
    IN_TRANSACTIONS_OF.scope(all.unwrap_or_else(|_| Arc::from([own])), work).await
}

pub(crate) async fn transact<T, F, W>(
    inner: &Arc<Inner>,
    transactions: &T,
    mut ask: Ask,
    known: Option<&Outcome>,
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
                let known = known.and_then(|outcome| KnownEnd::of(inner, &ask, outcome));
                let run = TransactionRun { inner: inner.clone(), flight, known };
                if inner.front.is_some()
                    && let Some((answer, receipt)) =
                        Box::pin(answer_from_front(inner, &ask, &mut deadline)).await
                {
                    inner.flights.end(&run.flight, Some(receipt));
                    return Ok(answer);
                }
                return run.run(transactions, &ask, &mut work, &mut deadline).await;
            }
        }
    }
    Err(contended())
}

/// Claims inside a transaction that the caller holds. Whatever it writes, the steps of a previous life included, counts
/// when that transaction commits.
pub(crate) async fn claim_in<J: Join + ?Sized>(inner: &Inner, tx: &mut J, ask: &Ask) -> Result<Claimed> {
    check_store(inner)?;
    check_input(inner, ask)?;
    let attempt = ask.attempt.unwrap_or_else(|| Attempt(inner.runtime.random()));
    let (mut takeover, mut found) = (Takeover::Absent, None);
    for _ in 0..ROUNDS_MAX {
        let mut held = transition::claim(ask, attempt, Owner::Run, takeover, found.as_ref());
        // Also a claim of our own is claimed again: the fence of a ticket in a transaction is its version there.
        held.claim.fence = FENCE_IS_VERSION;
        let seen = found.as_ref().map_or(Seen::Absent, |found: &Receipt| Seen::Version(found.version));
        let claim = seal(&ask.id, seen, Some(&inner.hold(held, &ask.policy)));
        found = match swap_one(tx, &claim).await? {
            Swapped::Won(version) => {
                let mut ticket = Ticket::of(ask, attempt, Fence(version.0));
                ticket.claim_in_transaction = Some(takeover);
                return Ok(Claimed::Granted(ticket));
            }
            Swapped::Lost(found) => open_any(found.as_ref())?,
            Swapped::Failed(error) => return Err(error),
        };
        takeover = match (decide(inner, ask, found.as_ref()), &found) {
            (Decision::Run(takeover), found) => {
                if let (Takeover::Expired, Some(found)) = (takeover, found) {
                    forget_steps_in(inner, tx, &ask.id, found).await?;
                }
                takeover
            }
            // The run that has it holds no lock of this database's, so there is nothing to wait on here.
            (Decision::Wait { .. }, _) => {
                let due = found.map_or(Due::Never, |found| found.due);
                return Ok(Claimed::Answered(refuse(inner, Refusal::in_progress(due))));
            }
            (Decision::Refuse(refusal), Some(there))
                if let Some(write) = lapsed(&refusal, there, &ask.policy) =>
            {
                let seen = Seen::Version(there.version);
                if let Swapped::Won(_) = swap_one(tx, &seal(&ask.id, seen, Some(&write))).await? {
                    count_lapse(inner, &ask.id, &write.status);
                }
                return Ok(Claimed::Answered(refuse(inner, refusal)));
            }
            (decision, _) => {
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
    let is_release = Finish::frees_key(outcome, policy);
    let (version, held) = match ticket.fingerprint {
        // Only where the job has to be kept does it matter which one it was.
        Some(fingerprint) if !is_release && policy.keep_input() != KeepInput::WithReceipt => {
            let ask = Ask::new(ticket.id().clone(), fingerprint, policy.clone());
            let held = transition::claim(&ask, ticket.attempt(), Owner::Run, Takeover::Absent, None);
            let held = Held { claim: Claim { fence: ticket.fence(), ..held.claim }, ..held };
            (Version(ticket.fence().0), held)
        }
        _ => held_in(tx, ticket).await?.ok_or_else(not_held)?,
    };
    let input_bytes = transition::kept_input_bytes(held.job.as_ref(), policy);
    let ending = Finish::of(bounded(inner, outcome, input_bytes), policy);
    let write = transition::end(ticket.id(), &held, &ending, policy);
    let swap = seal(ticket.id(), Seen::Version(version), write.as_ref());
    match swap_one(tx, &swap).await? {
        // (Of a transaction that is never completed, the claim does not count either.)
        Swapped::Won(_) => {
            if let Some(takeover) = ticket.claim_in_transaction {
                inner.counters.claimed(takeover.is_of_another());
            }
            match ending {
                Finish::Done(_) => inner.counters.completions.one(),
                _ => inner.counters.releases.one(),
            }
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

/// What the transaction itself holds, and the version of it. (A swap from absent to absent is a read.)
async fn held_in<J: Join + ?Sized>(tx: &mut J, ticket: &Ticket) -> Result<Option<(Version, Held)>> {
    let look = Swap { id: ticket.id().clone(), seen: Seen::Absent, new: None };
    let found = match swap_one(tx, &look).await? {
        Swapped::Won(_) => None,
        Swapped::Lost(found) => open_any(found.as_ref())?,
        Swapped::Failed(error) => return Err(error),
    };
    Ok(found.and_then(|found| match found.status {
        Status::Held(held) if held.claim.is_of(ticket.attempt(), ticket.fence()) => {
            Some((found.version, held))
        }
        _ => None,
    }))
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
    let own = Arc::as_ptr(inner).addr();
    let nested = IN_TRANSACTIONS_OF.try_with(|all| all.contains(&own)).unwrap_or(false);
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
    known: Option<KnownEnd>,
}

/// The end of work whose outcome is known before it begins.
struct KnownEnd {
    finish: Finish,
    /// How long it is kept; nothing there: forever.
    retention: Option<Duration>,
}

impl KnownEnd {
    /// `None` where the receipt would have to keep something of the claim, or is not kept.
    fn of(inner: &Inner, ask: &Ask, outcome: &Outcome) -> Option<Self> {
        let finish = Finish::of(bounded(inner, outcome, 0), &ask.policy);
        let is_kept = matches!(finish, Finish::Done(_)) && ask.input.is_none();
        is_kept.then(|| Self { finish, retention: ask.policy.retention_of(outcome).duration() })
    }

    /// The receipt of a run that takes over nothing. It falls due as if the work took as long as it may. Its fence is the
    /// version that this write gets.
    fn write(&self, ask: &Ask, attempt: Attempt) -> Swap {
        let held = transition::claim(ask, attempt, Owner::Run, Takeover::Absent, None);
        let mut write = transition::end(&ask.id, &held, &self.finish, &ask.policy);
        if let Some(due_in) = write.as_mut().and_then(|write| write.due_in.as_mut()) {
            *due_in = due_in.saturating_add(kept_longer(*due_in));
        }
        seal(&ask.id, Seen::Absent, write.as_ref())
    }

    /// Whether a receipt that was written this long ago will have been kept for as long as its outcome is to be.
    fn is_kept_long_enough(&self, ago: Duration) -> bool {
        self.retention.is_none_or(|retention| ago <= kept_longer(retention))
    }
}

/// How much longer than this a receipt is kept that is written before its work.
fn kept_longer(retention: Duration) -> Duration {
    (retention / 64).min(KEPT_LONGER_MAX)
}

/// A claim that was won in a transaction.
struct Won<X> {
    tx: X,
    running: RunningLease,
    took_over: bool,
    /// When it was sent, if it was the receipt as it will be.
    known_since: Option<Duration>,
}

/// What became of one transaction.
#[expect(clippy::large_enum_variant, reason = "there is one of it at a time, and it is taken apart at once")]
enum TransactionTry {
    /// An answer, and the receipt behind it for the asks that wait.
    Answer(Answer, Option<Receipt>),
    Undone(Error),
    /// The commit may have happened; and whether its claim was won over another one.
    Lost(Error, bool),
    Failed(Error),
}

/// A commit whose answer was lost.
struct LostCommit {
    error: Error,
    /// How long to find out whether it happened.
    until: Duration,
    took_over: bool,
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
        let mut lost: Option<LostCommit> = None;
        loop {
            match self.try_once(transactions, ask, work, deadline).await {
                TransactionTry::Answer(answer, receipt) => {
                    let answer = match &lost {
                        Some(lost) => self.of_own_commit(lost, answer, receipt.as_ref()),
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
                TransactionTry::Lost(error, took_over) => {
                    let until = inner.now() + RESOLVE_MAX;
                    tracing::warn!(id = ?ask.id, %error, "the answer to a commit was lost, checking whether it happened");
                    lost.get_or_insert(LostCommit { error, until, took_over });
                }
                // While it is unknown whether a commit happened, a database that cannot be reached is asked again.
                TransactionTry::Failed(error) => match &lost {
                    Some(lost) if inner.now() < lost.until => {}
                    _ => return Err(self.fail(error, lost)),
                },
            }
            inner.runtime.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn fail(&self, error: Error, lost: Option<LostCommit>) -> Error {
        let error = match lost {
            Some(lost) => lost.error.maybe_applied(),
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

    /// A claim in a transaction counts with its commit: before that, it may be undone and made again.
    fn count_commit(&self, took_over: bool) {
        self.inner.counters.claimed(took_over);
        self.inner.counters.completions.one();
    }

    /// The receipt of our own commit, whose answer was lost, is no replay.
    fn of_own_commit(&self, lost: &LostCommit, answer: Answer, receipt: Option<&Receipt>) -> Answer {
        let ours = receipt
            .and_then(|receipt| receipt.status.claim())
            .is_some_and(|claim| claim.attempt == self.flight.attempt);
        match answer {
            Answer::Completed(completed) if ours => {
                self.count_commit(lost.took_over);
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
            done: self.known.as_ref().map(|known| known.write(ask, self.flight.attempt)),
            known_since: None,
            tx: None,
        };
        let granted = claim_from_store(inner, ask, &mut claimant, deadline).await;
        if let Ok(Granted::Run(running, took_over)) = granted {
            let tx = claimant.tx.take().expect("a claim was won in it");
            let won = Won { tx, running, took_over, known_since: claimant.known_since };
            return self.work(transactions, ask, work, won).await;
        }
        claimant.abort_write().await;
        match granted {
            Ok(Granted::Answer(answer, receipt)) => {
                TransactionTry::Answer(answer, receipt.map(|receipt| *receipt))
            }
            Ok(Granted::Undone(error)) => TransactionTry::Undone(error),
            Ok(Granted::Run(..)) => unreachable!("taken above"),
            Err(error) => TransactionTry::Failed(error),
        }
    }

    /// The claim is ours: does the work, and commits both together.
    async fn work<T, F, W>(
        &self,
        transactions: &T,
        ask: &Ask,
        work: &mut F,
        won: Won<T::Tx>,
    ) -> TransactionTry
    where
        T: Transactions,
        F: FnMut(Lease, T::Tx) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        let inner = &self.inner;
        let Won { tx, running, took_over, known_since } = won;
        let RunningLease { held, version, .. } = running;
        let fence = held.claim.fence;
        // Duplicates here wait for us and not on the database.
        let (due, age) = (Due::In(ask.policy.lease()), Age::default());
        let receipt = Receipt { version, due, age, status: Status::Held(held.clone()) };
        self.flight.set_held_elsewhere(receipt, inner.now());

        let lease = Lease::in_transaction(inner.clone(), self.flight.clone(), &held);
        let outcome = match inside(inner, work(lease, tx.clone())).await {
            Ok(outcome) => outcome,
            Err(stopped) => {
                // Neither claimed nor released, for the counters: of what is rolled back, nothing counts.
                transactions.rollback(tx).await;
                let repeat = stopped.cause().is_some_and(|cause| transactions.is_worth_repeating(cause));
                let detail = format!("the work ended without an outcome and was rolled back: {stopped}");
                let error = Error::new(ErrorKind::Stopped, detail);
                return if repeat { TransactionTry::Undone(error) } else { TransactionTry::Failed(error) };
            }
        };
        let ending = match (&self.known, known_since) {
            (Some(known), Some(_)) => known.finish.clone(),
            _ => {
                let input_bytes = transition::kept_input_bytes(held.job.as_ref(), &ask.policy);
                Finish::of(bounded(inner, &outcome, input_bytes), &ask.policy)
            }
        };
        if ending.is_release() {
            transactions.rollback(tx).await;
            let completed =
                Completed { outcome, replayed: false, fence, recorded: Recorded::Released, expires_in: None };
            return TransactionTry::Answer(Answer::Completed(completed), None);
        }
        let sent_at = inner.now();
        let is_written = known_since
            .zip(self.known.as_ref())
            .is_some_and(|(since, known)| known.is_kept_long_enough(sent_at.saturating_sub(since)));
        let committed = if is_written {
            transactions.commit_written(tx, &ask.id, version).await
        } else {
            let write = transition::end(&ask.id, &held, &ending, &ask.policy);
            let completion = seal(&ask.id, Seen::Version(version), write.as_ref());
            transactions.commit(tx, &completion).await
        };
        match committed {
            Ok(()) => {
                self.count_commit(took_over);
                put_committed(inner, &self.flight, &held, &ending, version, sent_at);
                let expires_in = ask.policy.retention_of(&outcome).duration();
                let completed =
                    Completed { outcome, replayed: false, fence, recorded: Recorded::Yes, expires_in };
                TransactionTry::Answer(Answer::Completed(completed), None)
            }
            Err(Fault::Undone(error)) => TransactionTry::Undone(error),
            Err(Fault::Busy) => TransactionTry::Undone(contended()),
            Err(Fault::Failed(error)) if error.applied() == Applied::Maybe => {
                TransactionTry::Lost(error, took_over)
            }
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
    /// The receipt as it will be, if that is known: written in place of a claim where nothing is there.
    done: Option<Swap>,
    /// When that was sent, if it was what was written last.
    known_since: Option<Duration>,
    tx: Option<T::Tx>,
}

impl<T: Transactions> Claimant for InTransaction<'_, T> {
    const IS_LEASE: bool = false;

    async fn write(&mut self, claim: Swap) -> (Duration, Result<Swapped, Fault>) {
        let sent_at = self.inner.now();
        let done = self.done.as_ref().filter(|_| claim.seen == Seen::Absent);
        self.known_since = done.map(|_| sent_at);
        // What is done has the due time that it will have.
        let (claim, retention) = done.map_or((&claim, self.retention), |done| (done, None));
        let reply = match &mut self.tx {
            None => {
                let begun = self.transactions.begin(claim, retention, self.wait_max).await;
                begun.map(|(tx, swapped)| {
                    self.tx = Some(tx);
                    swapped
                })
            }
            Some(tx) => swap_one(tx, claim).await.map_err(|error| {
                let undone = self.transactions.is_worth_repeating(&error);
                if undone { Fault::Undone(error) } else { Fault::Failed(error) }
            }),
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
