//! Ends a run inside a transaction of its work: the business writes and the receipt of the run commit together.
//!
//! ```text
//! begin ──▶ work ──▶ Held ⇒ Done as the last write + commit ──▶ the run is over, this is its outcome
//!   ▲                          │
//!   │                          ├─ undone by the database: the same again
//!   │                          ├─ another owner has the claim: nothing is committed, the lease is lost
//!   └──────────────────────────┴─ answer lost: a renewal by compare-and-set decides. Won: it was not committed
//!                                 and never will be. Lost to our own outcome: it was.
//! ```
//!
//! During the commit the lease is not renewed: a renewal would change the version that the commit expects. For a
//! renewal that was sent before, the transaction waits on the row.

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::answer::{Completed, Recorded};
use super::answer_without_run::contended;
use super::finish::bounded;
use super::group_commit::{SwapReply, Urgency};
use super::in_flight::{Flight, Renewal, RunningLease};
use super::inner::Inner;
use super::sealed::{open_any, seal};
use super::transact::{PAUSE_MAX, RESOLVE_MAX, UNDONE_MAX, check_nesting, check_store, inside, swap_one};
use crate::error::{Applied, Error, ErrorKind, Result};
use crate::join::{Fault, Transactions};
use crate::outcome::{Outcome, Stopped};
use crate::receipt::{Receipt, Status};
use crate::store::{Seen, Swap, Swapped, Version};
use crate::transition::{self, Finish};

/// How long a transaction may take to begin: the wait for a connection, and for others where one writes at a time.
const BEGIN_MAX: Duration = Duration::from_secs(30);
/// A receipt that is ours is written to only by us, and by us once more at most.
const LOCKS_MAX: usize = 8;

/// What became of one transaction: how it ended, or why it was certainly not committed, where the same again makes sense.
type TryResult = ControlFlow<Result<Completed>, Error>;

/// Runs `work` in a transaction, and ends the run of `main` with its outcome, and those of `others` with the same.
pub(crate) async fn transact<T, F, W>(
    inner: &Arc<Inner>,
    main: &Arc<Flight>,
    others: Option<&[Arc<Flight>]>,
    transactions: &T,
    mut work: F,
) -> Result<Completed>
where
    T: Transactions,
    F: FnMut(T::Tx) -> W,
    W: Future<Output = Result<Outcome, Stopped>>,
{
    check_store(inner)?;
    check_nesting(inner)?;
    let runs = Runs { inner, main, others: others.unwrap_or_default() };
    let (mut undone, mut pause) = (0, Duration::from_millis(1));
    loop {
        let error = match runs.try_once(transactions, &mut work).await {
            ControlFlow::Break(ended) => return ended,
            ControlFlow::Continue(error) => error,
        };
        undone += 1;
        if undone >= UNDONE_MAX {
            return Err(error);
        }
        inner.runtime.sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// The runs that end together.
struct Runs<'a> {
    inner: &'a Arc<Inner>,
    main: &'a Arc<Flight>,
    others: &'a [Arc<Flight>],
}

/// The leases under which the outcome is written, the main one first. None of them is renewed until this is dropped.
struct PausedRenewals<'a> {
    leases: Vec<(&'a Arc<Flight>, RunningLease)>,
    /// Whether a renewal may be on its way.
    renewal_under_way: bool,
}

impl Drop for PausedRenewals<'_> {
    fn drop(&mut self) {
        for (flight, _) in &self.leases {
            flight.with_running(|running| running.renewal = Renewal::Due);
        }
    }
}

/// What became of a commit that failed or whose answer was lost.
enum CommitResult {
    Committed,
    /// It was not, and never will be: the lease is ours under a later version.
    NotCommitted,
    /// Another owner has the receipt; this is it.
    Lost(Option<Box<Receipt>>),
    Unresolved,
}

impl<'a> Runs<'a> {
    fn all(&self) -> impl Iterator<Item = &'a Arc<Flight>> {
        std::iter::once(self.main).chain(self.others)
    }

    async fn try_once<T, F, W>(&self, transactions: &T, work: &mut F) -> TryResult
    where
        T: Transactions,
        F: FnMut(T::Tx) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        let inner = self.inner;
        if !self.all().all(|flight| flight.is_running()) {
            return ControlFlow::Break(Err(not_held()));
        }
        let tx = match transactions.begin_bare(BEGIN_MAX).await {
            Ok(tx) => tx,
            Err(Fault::Undone(error)) => return ControlFlow::Continue(error),
            Err(Fault::Failed(error)) => return ControlFlow::Break(Err(error)),
            Err(Fault::Busy) => {
                let detail =
                    format!("no transaction could be begun within {BEGIN_MAX:?}; is the pool too small?");
                return ControlFlow::Break(Err(Error::new(ErrorKind::Unavailable, detail)));
            }
        };
        let outcome = match inside(inner, work(tx.clone())).await {
            Ok(outcome) => outcome,
            Err(stopped) => {
                transactions.rollback(tx).await;
                let repeat = stopped.cause().is_some_and(|cause| transactions.is_worth_repeating(cause));
                let detail = format!("the work ended without an outcome and was rolled back: {stopped}");
                let error = Error::new(ErrorKind::Stopped, detail);
                return if repeat { ControlFlow::Continue(error) } else { ControlFlow::Break(Err(error)) };
            }
        };
        let input_bytes = self.all().map(|flight| flight.kept_input_bytes()).max().unwrap_or_default();
        let ending = Finish::of(bounded(inner, &outcome, input_bytes), &self.main.policy);
        if ending.is_release() {
            transactions.rollback(tx).await;
            let fence = self.main.running().map_or(crate::Fence(0), |running| running.held.claim.fence);
            let completed =
                Completed { outcome, replayed: false, fence, recorded: Recorded::Released, expires_in: None };
            return ControlFlow::Break(Ok(completed));
        }
        self.commit(transactions, tx, outcome, &ending).await
    }

    async fn commit<T: Transactions>(
        &self,
        transactions: &T,
        mut tx: T::Tx,
        outcome: Outcome,
        ending: &Finish,
    ) -> TryResult {
        let asked_at = self.inner.now();
        let Some(paused) = self.pause() else {
            transactions.rollback(tx).await;
            return ControlFlow::Break(Err(not_held()));
        };
        let completion = match self.write_all_but_main(&mut tx, &paused, ending).await {
            Ok(Ok(main)) => main,
            Ok(Err((flight, found))) => {
                transactions.rollback(tx).await;
                return ControlFlow::Break(Err(self.lose(flight, found, asked_at)));
            }
            Err(error) => {
                transactions.rollback(tx).await;
                let repeat = transactions.is_worth_repeating(&error);
                return if repeat { ControlFlow::Continue(error) } else { ControlFlow::Break(Err(error)) };
            }
        };
        let error = match transactions.commit(tx, &completion).await {
            Ok(()) => return ControlFlow::Break(Ok(self.committed(&paused, &outcome))),
            Err(Fault::Undone(error)) => return ControlFlow::Continue(error),
            Err(Fault::Busy) => return ControlFlow::Continue(contended()),
            Err(Fault::Failed(error)) => error,
        };
        // Where the completion did not win, or nobody can tell.
        if error.applied() == Applied::No && error.kind() != ErrorKind::Conflict {
            return ControlFlow::Break(Err(error));
        }
        match self.resolve(&paused, ending).await {
            CommitResult::Committed => ControlFlow::Break(Ok(self.committed(&paused, &outcome))),
            CommitResult::NotCommitted if error.applied() == Applied::Maybe => ControlFlow::Continue(error),
            // The work has ended the transaction by itself: to do that again would be the same once more.
            CommitResult::NotCommitted => ControlFlow::Break(Err(error)),
            CommitResult::Lost(found) => {
                ControlFlow::Break(Err(self.lose(self.main, found.map(|found| *found), asked_at)))
            }
            CommitResult::Unresolved => ControlFlow::Break(Err(error.maybe_applied())),
        }
    }

    /// Stops the renewals. `None` if a lease was lost.
    fn pause(&self) -> Option<PausedRenewals<'a>> {
        let mut paused = PausedRenewals { leases: Vec::new(), renewal_under_way: false };
        for flight in self.all() {
            let (running, under_way) = flight.with_running(|running| {
                let under_way = running.renewal == Renewal::InProgress;
                running.renewal = Renewal::Ended;
                (running.clone(), under_way)
            })?;
            paused.leases.push((flight, running));
            paused.renewal_under_way |= under_way;
        }
        Some(paused)
    }

    /// Writes the outcome to all receipts but the main one, whose completion is sent with the commit: that one is
    /// given. The inner `Err`: another owner has this receipt.
    async fn write_all_but_main<J: crate::Join>(
        &self,
        tx: &mut J,
        paused: &PausedRenewals<'a>,
        ending: &Finish,
    ) -> Result<Result<Swap, (&'a Arc<Flight>, Option<Receipt>)>> {
        let lock_first = paused.renewal_under_way;
        let mut main = None;
        for (flight, running) in &paused.leases {
            let flight: &'a Arc<Flight> = flight;
            let mut version = running.version;
            if lock_first {
                match lock(self.inner, tx, flight, running).await? {
                    Ok(locked) => version = locked,
                    Err(found) => return Ok(Err((flight, found))),
                }
            }
            let write = transition::end(&flight.id, &running.held, ending, &flight.policy);
            let completion = seal(&flight.id, Seen::Version(version), write.as_ref());
            if main.is_none() {
                main = Some(completion);
                continue;
            }
            match swap_one(tx, &completion).await? {
                Swapped::Won(_) => {}
                Swapped::Lost(found) => return Ok(Err((flight, open_any(found.as_ref())?))),
                Swapped::Failed(error) => return Err(error),
            }
        }
        Ok(Ok(main.expect("there is a main one")))
    }

    /// The runs are over, and nothing more is written for them.
    fn committed(&self, paused: &PausedRenewals<'_>, outcome: &Outcome) -> Completed {
        let mut main = None;
        for (flight, running) in &paused.leases {
            self.inner.counters.completions.one();
            let completed = Completed {
                outcome: outcome.clone(),
                replayed: false,
                fence: running.held.claim.fence,
                recorded: Recorded::Yes,
                expires_in: flight.policy.retention_of(outcome).duration(),
            };
            main.get_or_insert_with(|| completed.clone());
            self.inner.flights.commit(flight, completed);
        }
        main.expect("there is a main one")
    }

    /// Another owner has this receipt: the run is cancelled, and the callers get the answer of the other run.
    fn lose(&self, flight: &Arc<Flight>, found: Option<Receipt>, asked_at: Duration) -> Error {
        let inner = self.inner;
        inner.counters.fenced_off.one();
        inner.counters.leases_lost.one();
        tracing::warn!(id = ?flight.id, "the lease was lost before the commit, which was rolled back");
        inner.flights.lose(flight, found.and_then(|found| found.aged(asked_at, inner.now())));
        not_held()
    }

    /// What became of a commit. The renewal waits on the row until that transaction has committed or rolled back.
    async fn resolve(&self, paused: &PausedRenewals<'_>, ending: &Finish) -> CommitResult {
        let (inner, flight) = (self.inner, self.main);
        let run = &paused.leases[0].1.held;
        let (until, mut pause) = (inner.now() + RESOLVE_MAX, Duration::from_millis(1));
        loop {
            let Some(running) = flight.running() else { return CommitResult::Lost(None) };
            let renewed = inner.hold(running.held, &flight.policy);
            let seen = Seen::Version(running.version);
            let SwapReply { sent_at, result } =
                inner.swap(&flight.id, seen, Some(&renewed), Urgency::Required).await;
            match result {
                Ok(Swapped::Won(version)) => {
                    renewed_to(flight, version, Some(sent_at));
                    return CommitResult::NotCommitted;
                }
                Ok(Swapped::Lost(found)) => match open_any(found.as_ref()) {
                    Ok(Some(receipt)) if receipt.status.is_of(&run.claim) => match receipt.status {
                        // (Another outcome would be a settlement, which is kept.)
                        Status::Done(_) if is_recorded(&receipt, ending) => return CommitResult::Committed,
                        // An earlier renewal of ours.
                        Status::Held(_) => renewed_to(flight, receipt.version, None),
                        _ => return CommitResult::Lost(Some(Box::new(receipt))),
                    },
                    Ok(found) => return CommitResult::Lost(found.map(Box::new)),
                    Err(_) => return CommitResult::Unresolved,
                },
                Ok(Swapped::Failed(_)) | Err(_) if inner.now() >= until => return CommitResult::Unresolved,
                Ok(Swapped::Failed(error)) | Err(error) => {
                    if pause < PAUSE_MAX {
                        tracing::warn!(id = ?flight.id, %error, "whether a commit happened is not known yet, retrying");
                    }
                    inner.runtime.sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }
}

/// Goes on from this version, and, if it was written at this time, from its lease.
fn renewed_to(flight: &Flight, version: Version, sent_at: Option<Duration>) {
    flight.with_running(|running| {
        running.version = running.version.max(version);
        if let Some(sent_at) = sent_at {
            let lease = flight.policy.lease();
            (running.lease_ends, running.renew_at) = (sent_at + lease, sent_at + lease / 3);
        }
    });
}

/// Takes the receipt inside the transaction, under whatever version our own renewals have left it. From then on its
/// version is known. The inner `Err`: another owner has it.
async fn lock<J: crate::Join>(
    inner: &Inner,
    tx: &mut J,
    flight: &Flight,
    running: &RunningLease,
) -> Result<Result<Version, Option<Receipt>>> {
    let renewed = inner.hold(running.held.clone(), &flight.policy);
    let mut version = running.version;
    for _ in 0..LOCKS_MAX {
        match swap_one(tx, &seal(&flight.id, Seen::Version(version), Some(&renewed))).await? {
            Swapped::Won(locked) => return Ok(Ok(locked)),
            Swapped::Lost(found) => match open_any(found.as_ref())? {
                Some(Receipt { version: now, status: Status::Held(held), .. })
                    if held.claim.is_same_run(&running.held.claim) =>
                {
                    version = now;
                }
                found => return Ok(Err(found)),
            },
            Swapped::Failed(error) => return Err(error),
        }
    }
    Err(contended())
}

fn is_recorded(receipt: &Receipt, ending: &Finish) -> bool {
    matches!(ending, Finish::Done(outcome) if receipt.status.outcome() == Some(outcome))
}

fn not_held() -> Error {
    Error::new(
        ErrorKind::LeaseLost,
        "this run does not have its lease any more, so its transaction was not committed",
    )
}
