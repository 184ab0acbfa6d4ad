//! Checks with injected faults: transactions that the database undoes, and commits whose answer is lost.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use onceward::{
    Completed, Error, ErrorKind, Fault, Id, Lease, Outcome, Swap, Swapped, Transactions, Version,
};

use super::super::trial::{Checked, ensure};
use super::fixture::{TransactionFixture, ask, ran};
use super::{Harness, Tx};

/// What goes wrong, the first few times.
#[derive(Clone, Copy, Debug)]
pub(super) enum InjectedFault {
    /// The database undoes it as it begins.
    UndoneAtBegin,
    /// The database undoes it as it commits.
    UndoneAtCommit,
    /// It is committed, and nobody is told.
    AnswerLost,
    /// It is not committed, and nobody is told.
    CommitLost,
}

/// The driver's transactions with an injected fault.
pub(super) struct FaultyTransactions<'a, T> {
    inner: &'a T,
    fault: InjectedFault,
    /// How many times the fault still occurs.
    left: AtomicUsize,
}

impl<'a, T: Transactions> FaultyTransactions<'a, T> {
    pub(super) fn new(inner: &'a T, fault: InjectedFault, times: usize) -> Self {
        Self { inner, fault, left: AtomicUsize::new(times) }
    }

    fn strikes(&self) -> bool {
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    /// What happens to a commit: it is not made, or made, and perhaps its answer is lost.
    async fn before_commit(&self, tx: T::Tx) -> Result<(T::Tx, Option<Fault>), Fault> {
        let lost = || Fault::Failed(Error::new(ErrorKind::Unavailable, "lost on purpose").maybe_applied());
        match self.fault {
            InjectedFault::UndoneAtCommit if self.strikes() => {
                self.inner.rollback(tx).await;
                Err(Fault::Undone(Error::new(ErrorKind::Unavailable, "undone on purpose")))
            }
            InjectedFault::CommitLost if self.strikes() => {
                self.inner.rollback(tx).await;
                Err(lost())
            }
            InjectedFault::AnswerLost if self.strikes() => Ok((tx, Some(lost()))),
            _ => Ok((tx, None)),
        }
    }
}

impl<T: Transactions> Transactions for FaultyTransactions<'_, T> {
    type Tx = T::Tx;

    async fn begin(
        &self,
        claim: &Swap,
        retention: Option<Duration>,
        patience: Duration,
    ) -> Result<(Self::Tx, Swapped), Fault> {
        let (tx, swapped) = self.inner.begin(claim, retention, patience).await?;
        if matches!(self.fault, InjectedFault::UndoneAtBegin) && self.strikes() {
            self.inner.rollback(tx).await;
            return Err(Fault::Undone(Error::new(ErrorKind::Unavailable, "undone on purpose")));
        }
        Ok((tx, swapped))
    }

    async fn begin_bare(&self, patience: Duration) -> Result<Self::Tx, Fault> {
        self.inner.begin_bare(patience).await
    }

    async fn commit(&self, tx: Self::Tx, completion: &Swap) -> Result<(), Fault> {
        match self.before_commit(tx).await? {
            (tx, None) => self.inner.commit(tx, completion).await,
            (tx, Some(lost)) => self.inner.commit(tx, completion).await.and(Err(lost)),
        }
    }

    async fn commit_written(&self, tx: Self::Tx, id: &Id, written: Version) -> Result<(), Fault> {
        match self.before_commit(tx).await? {
            (tx, None) => self.inner.commit_written(tx, id, written).await,
            (tx, Some(lost)) => self.inner.commit_written(tx, id, written).await.and(Err(lost)),
        }
    }

    async fn rollback(&self, tx: Self::Tx) {
        self.inner.rollback(tx).await;
    }

    fn is_worth_repeating(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.inner.is_worth_repeating(error)
    }
}

pub(super) async fn an_undone_transaction_is_repeated<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    is_there_once(&fixture, "a", InjectedFault::UndoneAtBegin, 3, 1).await?;
    is_there_once(&fixture, "b", InjectedFault::UndoneAtCommit, 3, 4).await
}

pub(super) async fn a_commit_without_an_answer_is_looked_up<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    is_there_once(&fixture, "a", InjectedFault::AnswerLost, 1, 1).await
}

pub(super) async fn a_lost_commit_is_repeated<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    is_there_once(&fixture, "a", InjectedFault::CommitLost, 2, 3).await
}

/// With a fault `times` times, the work runs `runs` times, and its write is there once.
async fn is_there_once<B: Harness>(
    fixture: &TransactionFixture<B>,
    key: &str,
    fault: InjectedFault,
    times: usize,
    runs: u64,
) -> Checked {
    let faulty = FaultyTransactions::new(fixture.transactions(), fault, times);
    let worked = AtomicU64::new(0);
    let work = async |_: Lease, mut tx: Tx<B>| {
        worked.fetch_add(1, Ordering::SeqCst);
        fixture.harness.write(&mut tx, key).await?;
        Ok(Outcome::succeeded("written"))
    };
    let done = ran(fixture.engine()?.transact(&faulty, ask(key), work).await)?;
    is_once(fixture, key, fault, &done, (worked.load(Ordering::SeqCst), runs)).await?;

    // The same where the outcome is known beforehand.
    let key = &format!("{key}-known");
    let faulty = FaultyTransactions::new(fixture.transactions(), fault, times);
    let worked = AtomicU64::new(0);
    let work = async |_: Lease, mut tx: Tx<B>| {
        worked.fetch_add(1, Ordering::SeqCst);
        fixture.harness.write(&mut tx, key).await
    };
    let known = Outcome::succeeded("written");
    let done = ran(fixture.engine()?.transact_with_outcome(&faulty, ask(key), known, work).await)?;
    is_once(fixture, key, fault, &done, (worked.load(Ordering::SeqCst), runs)).await
}

/// The write of work that ran `worked` times, and must run `runs` times, is there once.
async fn is_once<B: Harness>(
    fixture: &TransactionFixture<B>,
    key: &str,
    fault: InjectedFault,
    done: &Completed,
    (worked, runs): (u64, u64),
) -> Checked {
    ensure!(!done.replayed, "{fault:?}: its own commit was taken for somebody else's: {done:?}");
    ensure!(worked == runs, "{fault:?}: the work ran {worked} times, and must {runs} times");
    fixture.count_is(key, 1).await?;
    let again = fixture.transact(&fixture.engine()?, ask(key)).await?;
    ensure!(again.replayed, "{fault:?}: a retry got {again:?}");
    fixture.count_is(key, 1).await
}

/// It could wait for itself, for a row or for a connection.
pub(super) async fn a_transaction_inside_another_is_refused<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    let engine = fixture.engine()?;
    let inner = async |_: Lease, mut tx: Tx<B>| {
        fixture.harness.write(&mut tx, "inner").await?;
        Ok(Outcome::succeeded("inner"))
    };
    let outer = async |_: Lease, mut tx: Tx<B>| {
        fixture.harness.write(&mut tx, "outer").await?;
        let nested = engine.transact(fixture.transactions(), ask("inner"), inner).await;
        let refused = nested.is_err_and(|error| error.kind() == ErrorKind::Invalid);
        Ok(Outcome::succeeded(if refused { "refused" } else { "nested" }))
    };
    let done = ran(engine.transact(fixture.transactions(), ask("outer"), outer).await)?;
    ensure!(&done.outcome.body()[..] == b"refused", "a transaction ran inside another one");
    fixture.count_is("outer", 1).await?;
    fixture.count_is("inner", 0).await
}
