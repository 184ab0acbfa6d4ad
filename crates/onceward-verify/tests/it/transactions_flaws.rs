//! Transaction drivers with one flaw each: the conformance suite reports each of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward::{
    Age, Caps, Choose, Due, Error, ErrorKind, Fault, Found, Id, Join, Loaded, Page, Result, Scan, Seen,
    State, Stopped, Store, StoreFuture, Swap, Swapped, Transactions, Version, Watch, take_by_scan,
};
use onceward_stores::memory::{MemoryTransactions, MemoryTx};
use onceward_verify::conformance::{self, Harness};
use tokio::task::JoinSet;

use crate::transactions::MemoryHarness;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    UncommittedIsSeen,
    RollbackCommits,
    CommitsAlthoughItLost,
    ClaimsWhateverIsThere,
    BusyIsAFailure,
    AnswersOnlyTheFirst,
    LookCreates,
    WritesBesideTheTransaction,
    NothingIsWorthRepeating,
    EverythingIsWorthRepeating,
    LostIsNoConflict,
    HandleOutlivesTheCommit,
    CommitsWithoutItsReceipt,
}

/// Each flaw, and the check that is expected to name it.
const CAUGHT_BY: [(Flaw, &str); 13] = [
    (Flaw::UncommittedIsSeen, "transactions::claims::a_claim_is_seen_only_after_the_commit"),
    (Flaw::RollbackCommits, "transactions::claims::a_rollback_leaves_nothing"),
    (Flaw::CommitsAlthoughItLost, "transactions::commits::a_completion_that_loses_commits_nothing"),
    (Flaw::ClaimsWhateverIsThere, "transactions::claims::a_losing_claim_learns_what_is_there"),
    (Flaw::BusyIsAFailure, "transactions::claims::the_second_is_busy_when_its_patience_ends"),
    (Flaw::AnswersOnlyTheFirst, "transactions::joined::an_empty_batch_is_answered"),
    (Flaw::LookCreates, "transactions::joined::each_swap_has_its_own_answer"),
    (Flaw::WritesBesideTheTransaction, "transactions::claims::a_losing_claim_learns_what_is_there"),
    (Flaw::NothingIsWorthRepeating, "transactions::engine::a_deadlock_is_repeated"),
    (Flaw::EverythingIsWorthRepeating, "transactions::engine::stopped_work_leaves_nothing"),
    (Flaw::LostIsNoConflict, "transactions::bare::it_commits_nothing_over_a_claim_that_moved"),
    (Flaw::HandleOutlivesTheCommit, "transactions::commits::a_handle_is_of_no_use_after_the_commit"),
    (Flaw::CommitsWithoutItsReceipt, "transactions::written::a_receipt_that_is_gone_commits_nothing"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_flaw_is_named() {
    let mut hunts = JoinSet::new();
    for (flaw, check) in CAUGHT_BY {
        hunts.spawn(async move {
            let failure = conformance::first_transaction_failure(async || Ok(FlawedHarness::new(flaw))).await;
            let named = failure.as_ref().is_some_and(|failure| failure.check == check);
            (!named).then(|| format!("{flaw:?}: not named by {check}, but: {failure:?}"))
        });
    }
    let others: Vec<String> = hunts.join_all().await.into_iter().flatten().collect();
    assert!(others.is_empty(), "{}", others.join("\n"));
}

/// A right bench behind a flaw.
struct FlawedHarness {
    inner: Arc<MemoryHarness>,
    store: Arc<LeakingStore>,
    transactions: FlawedTransactions,
}

impl FlawedHarness {
    fn new(flaw: Flaw) -> Self {
        let inner = Arc::new(MemoryHarness::fresh());
        let leaked = Leaked::default();
        let store = Arc::new(LeakingStore { inner: inner.store(), leaked: Arc::clone(&leaked) });
        let of = inner.transactions().clone();
        let transactions = FlawedTransactions { inner: of, store: inner.store(), leaked, flaw };
        Self { inner, store, transactions }
    }
}

impl Harness for FlawedHarness {
    type T = FlawedTransactions;

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn transactions(&self) -> &FlawedTransactions {
        &self.transactions
    }

    async fn write(&self, tx: &mut FlawedTx, key: &str) -> Result<(), Stopped> {
        self.inner.write(&mut tx.inner, key).await
    }

    async fn count(&self, key: &str) -> Result<u64, Stopped> {
        self.inner.count(key).await
    }
}

struct FlawedTransactions {
    inner: MemoryTransactions,
    store: Arc<dyn Store>,
    leaked: Leaked,
    flaw: Flaw,
}

#[derive(Clone)]
struct FlawedTx {
    inner: MemoryTx,
    store: Arc<dyn Store>,
    flaw: Flaw,
}

impl FlawedTransactions {
    fn wrap(&self, inner: MemoryTx) -> FlawedTx {
        FlawedTx { inner, store: Arc::clone(&self.store), flaw: self.flaw }
    }

    fn leak(&self, claim: &Swap, swapped: &Swapped) {
        let (Flaw::UncommittedIsSeen, Swapped::Won(version), Some(new)) = (self.flaw, swapped, &claim.new)
        else {
            return;
        };
        let due = new.due_in.map_or(Due::Never, Due::In);
        let found = Found::new(*version, new.state, due, Age::default(), new.bytes.clone());
        lock(&self.leaked).insert(claim.id.clone(), found);
    }
}

impl Transactions for FlawedTransactions {
    type Tx = FlawedTx;

    async fn begin(
        &self,
        claim: &Swap,
        retention: Option<Duration>,
        patience: Duration,
    ) -> Result<(FlawedTx, Swapped), Fault> {
        let (mut tx, mut swapped) = match self.inner.begin(claim, retention, patience).await {
            Err(Fault::Busy) if self.flaw == Flaw::BusyIsAFailure => {
                return Err(Fault::Failed(Error::new(ErrorKind::Unavailable, "it took too long")));
            }
            begun => begun?,
        };
        if self.flaw == Flaw::ClaimsWhateverIsThere {
            let claim = over_what_is_there(&mut tx, claim).await?;
            let mut answers = tx.swap(std::slice::from_ref(&claim)).await.map_err(Fault::Failed)?;
            swapped = answers.remove(0);
        }
        self.leak(claim, &swapped);
        Ok((self.wrap(tx), swapped))
    }

    async fn begin_bare(&self, patience: Duration) -> Result<FlawedTx, Fault> {
        Ok(self.wrap(self.inner.begin_bare(patience).await?))
    }

    async fn commit(&self, mut tx: FlawedTx, completion: &Swap) -> Result<(), Fault> {
        lock(&self.leaked).remove(&completion.id);
        let mut completion = completion.clone();
        if self.flaw == Flaw::CommitsAlthoughItLost {
            completion = over_what_is_there(&mut tx.inner, &completion).await?;
        }
        match self.inner.commit(tx.inner, &completion).await {
            Err(Fault::Failed(error)) if self.flaw == Flaw::LostIsNoConflict => {
                Err(Fault::Failed(Error::new(ErrorKind::Unavailable, error.to_string())))
            }
            committed => committed,
        }
    }

    async fn commit_written(&self, tx: FlawedTx, id: &Id, written: Version) -> Result<(), Fault> {
        lock(&self.leaked).remove(id);
        if self.flaw == Flaw::CommitsWithoutItsReceipt {
            return tx.inner.commit().map_err(Fault::Failed);
        }
        self.inner.commit_written(tx.inner, id, written).await
    }

    async fn rollback(&self, tx: FlawedTx) {
        if self.flaw == Flaw::RollbackCommits {
            let _ = tx.inner.commit();
        } else {
            self.inner.rollback(tx.inner).await;
        }
    }

    fn is_worth_repeating(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        match self.flaw {
            Flaw::NothingIsWorthRepeating => false,
            Flaw::EverythingIsWorthRepeating => true,
            _ => self.inner.is_worth_repeating(error),
        }
    }
}

/// The same write, made to win.
async fn over_what_is_there(tx: &mut MemoryTx, swap: &Swap) -> Result<Swap, Fault> {
    let look = Swap { id: swap.id.clone(), seen: Seen::Absent, new: None };
    let answer = tx.swap(std::slice::from_ref(&look)).await.map_err(Fault::Failed)?.remove(0);
    let seen = match answer {
        Swapped::Lost(Some(found)) => Seen::Version(found.version),
        _ => Seen::Absent,
    };
    Ok(Swap { seen, ..swap.clone() })
}

impl Join for FlawedTx {
    fn swap<'a>(&'a mut self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move {
            match self.flaw {
                Flaw::AnswersOnlyTheFirst => match batch.first() {
                    Some(first) => self.inner.swap(std::slice::from_ref(first)).await,
                    None => Err(Error::new(ErrorKind::Invalid, "an empty batch")),
                },
                Flaw::LookCreates => {
                    let mut batch = batch.to_vec();
                    for swap in batch.iter_mut().filter(|swap| swap.seen == Seen::Absent) {
                        swap.new.get_or_insert_with(|| {
                            onceward::Record::new(onceward::State::Held, bytes::Bytes::new())
                        });
                    }
                    self.inner.swap(&batch).await
                }
                Flaw::WritesBesideTheTransaction => self.store.swap(batch).await,
                Flaw::HandleOutlivesTheCommit => match self.inner.swap(batch).await {
                    Ok(answers) => Ok(answers),
                    Err(_) => self.store.swap(batch).await,
                },
                _ => self.inner.swap(batch).await,
            }
        })
    }
}

type Leaked = Arc<Mutex<BTreeMap<Id, Found>>>;

/// Shows claims that were not committed, if there are any.
struct LeakingStore {
    inner: Arc<dyn Store>,
    leaked: Leaked,
}

impl Store for LeakingStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        self.inner.swap(batch)
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        Box::pin(async move {
            let mut loaded = self.inner.load(ids).await?;
            for (id, loaded) in ids.iter().zip(&mut loaded) {
                if let Some(found) = lock(&self.leaked).get(id) {
                    *loaded = Ok(Some(found.clone()));
                }
            }
            Ok(loaded)
        })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        self.inner.scan(query)
    }

    fn take<'a>(
        &'a self,
        state: State,
        limit: usize,
        choose: Choose<'a>,
    ) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        take_by_scan(self, state, limit, choose)
    }

    fn watch(&self) -> Option<Watch> {
        self.inner.watch()
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
