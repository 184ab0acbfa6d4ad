//! Two duplicates, one of which is in trouble at the worst moment: each order of events is forced, on every
//! engine. `transact.rs` has the common ones; here are those in which a second effect would hide.
//!
//! | the first one … | the duplicate … |
//! |---|---|
//! | has its claim undone before the work | runs |
//! | commits, and is not told | replays, before the first one has found out |
//! | is told nothing, and its commit never came | runs, before the first one has found out |
//! | is told nothing, and its commit comes later | waits; neither runs again |
//! | is told nothing, and is undone later | waits; one of them runs |
//! | has ended its own transaction, and then completes | ran meanwhile; the completion loses |
//! | is rolled back, and so is the duplicate | a third one runs |
//! | works | asks for something else: refused, or free to run after a rollback |
//! | is a slow owner whose lease is over | has taken over in a transaction; one of them has the word |

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::{
    Answer, Applied, Ask, Changed, Claimed, Error, ErrorKind, Fault, Fingerprint, Id, Lease, OnUnknown,
    Onceward, Outcome, Policy, Ran, Refusal, Stopped, Swap, Swapped, Transactions,
};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::transact::Bank;

/// A bank whose transactions can be ended behind the engine's back.
pub(crate) trait Undo: Bank {
    /// `ROLLBACK`, as work that misbehaves would say it.
    fn undo(tx: &Tx<Self>) -> impl Future<Output = ()> + Send;
}

pub(crate) type Tx<B> = <<B as Bank>::T as Transactions>::Tx;

/// One process, and whoever asks it.
struct Process<B: Bank> {
    onceward: Onceward,
    transactions: B::T,
}

impl<B: Bank> Process<B> {
    async fn new(bank: &B) -> Arc<Self> {
        let (store, transactions) = bank.process().await;
        Arc::new(Self { onceward: Onceward::new(store).unwrap(), transactions })
    }

    /// Charges through these transactions, and counts how often it worked.
    async fn charge_through<T: Transactions<Tx = Tx<B>>>(
        &self,
        transactions: &T,
        ask: Ask,
        who: &str,
        worked: &AtomicUsize,
    ) -> onceward::Result<Answer> {
        let key = ask.id().key().to_owned();
        let work = async |_: Lease, tx: Tx<B>| {
            worked.fetch_add(1, Ordering::SeqCst);
            B::charge(&tx, &key).await?;
            Ok(Outcome::succeeded(who.to_owned()))
        };
        self.onceward.transact(transactions, ask, work).await
    }

    async fn charge(&self, key: &str, who: &str) -> onceward::Result<Answer> {
        self.charge_through(&self.transactions, ask(key), who, &AtomicUsize::new(0)).await
    }

    /// Charges, and stands still with the charge written until it is told to end.
    async fn charge_slowly(self: &Arc<Self>, ask: Ask, who: &'static str, then: Then) -> Slow {
        let (inside, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (process, reached, told) = (Arc::clone(self), Arc::clone(&inside), Arc::clone(&go_on));
        let running = tokio::spawn(async move {
            let key = ask.id().key().to_owned();
            let work = async |_: Lease, tx: Tx<B>| {
                B::charge(&tx, &key).await?;
                reached.notify_one();
                told.notified().await;
                match then {
                    Then::Succeed => Ok(Outcome::succeeded(who)),
                    Then::Stop => Err(Stopped::unknown("told to stop")),
                }
            };
            process.onceward.transact(&process.transactions, ask, work).await
        });
        inside.notified().await;
        Slow { running, go_on }
    }

    fn charge_beside(
        self: &Arc<Self>,
        key: &'static str,
        who: &'static str,
    ) -> JoinHandle<onceward::Result<Answer>> {
        let process = Arc::clone(self);
        tokio::spawn(async move { process.charge(key, who).await })
    }
}

#[derive(Clone, Copy)]
enum Then {
    Succeed,
    Stop,
}

struct Slow {
    running: JoinHandle<onceward::Result<Answer>>,
    go_on: Arc<Notify>,
}

impl Slow {
    async fn end(self) -> onceward::Result<Answer> {
        self.go_on.notify_one();
        self.running.await.unwrap()
    }
}

fn ask(key: &str) -> Ask {
    Ask::new(id(key), Fingerprint::of(b"12"), Arc::new(Policy::http()))
}

fn id(key: &str) -> Id {
    Id::new("tenant", "charge", key).unwrap()
}

fn ran(answer: onceward::Result<Answer>) -> Ran {
    answer.unwrap().ran().unwrap()
}

/// Whose outcome it is, and whether it is a replay.
fn said(answer: onceward::Result<Answer>) -> (String, bool) {
    let ran = ran(answer);
    (String::from_utf8(ran.outcome.body().to_vec()).unwrap(), ran.replayed)
}

fn first_of(who: &str) -> (String, bool) {
    (who.to_owned(), false)
}

fn replay_of(who: &str) -> (String, bool) {
    (who.to_owned(), true)
}

/// What goes wrong with the first transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// It has begun and claimed, and is undone; the asker is told of a failure.
    Claim,
    /// It is committed; the asker hears nothing.
    Answer,
    /// It is undone; the asker hears nothing.
    Commit,
    /// The asker hears nothing while it is still open; it is committed later.
    LateCommit,
    /// The asker hears nothing while it is still open; it is undone later.
    LateRollback,
}

/// Transactions, the first of which goes wrong; what comes after that waits until it is told to go on.
struct Staged<T> {
    inner: T,
    loss: Loss,
    begun: AtomicUsize,
    commits: AtomicUsize,
    reached: Notify,
    begun_again: Notify,
    go_on: Arc<Notify>,
}

impl<T> Staged<T> {
    fn new(inner: T, loss: Loss) -> Self {
        let (begun, commits) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (reached, begun_again, go_on) = (Notify::new(), Notify::new(), Arc::new(Notify::new()));
        Self { inner, loss, begun, commits, reached, begun_again, go_on }
    }
}

impl<T: Transactions<Tx: Send + Sync> + Clone + 'static> Transactions for Staged<T> {
    type Tx = T::Tx;

    async fn begin<'a>(&'a self, claim: &'a Swap, patience: Duration) -> Result<(T::Tx, Swapped), Fault> {
        if self.begun.fetch_add(1, Ordering::SeqCst) == 1 {
            self.begun_again.notify_one();
        }
        let begun = self.inner.begin(claim, patience).await?;
        if self.loss == Loss::Claim {
            self.inner.rollback(begun.0).await;
            return Err(Fault::Failed(Error::new(ErrorKind::Unavailable, "the wire broke")));
        }
        Ok(begun)
    }

    async fn commit<'a>(&'a self, tx: T::Tx, completion: &'a Swap) -> Result<(), Fault> {
        if self.commits.fetch_add(1, Ordering::SeqCst) > 0 {
            return self.inner.commit(tx, completion).await;
        }
        let (inner, completion, go_on) = (self.inner.clone(), completion.clone(), Arc::clone(&self.go_on));
        match self.loss {
            Loss::Claim => unreachable!("it does not get here"),
            Loss::Answer => {
                inner.commit(tx, &completion).await?;
                self.reached.notify_one();
                go_on.notified().await;
            }
            Loss::Commit => {
                inner.rollback(tx).await;
                self.reached.notify_one();
                go_on.notified().await;
            }
            Loss::LateCommit => {
                tokio::spawn(async move {
                    go_on.notified().await;
                    inner.commit(tx, &completion).await.expect("a late commit is a commit");
                });
                self.reached.notify_one();
            }
            Loss::LateRollback => {
                tokio::spawn(async move {
                    go_on.notified().await;
                    inner.rollback(tx).await;
                });
                self.reached.notify_one();
            }
        }
        Err(Fault::Failed(Error::new(ErrorKind::Unavailable, "the wire broke").maybe_applied()))
    }

    async fn rollback(&self, tx: T::Tx) {
        self.inner.rollback(tx).await;
    }

    fn is_worth_repeating(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.inner.is_worth_repeating(error)
    }
}

pub(crate) async fn everything<B: Undo>() {
    let Some(bank) = B::open().await else { return };
    let (one, two) = (Process::new(&bank).await, Process::new(&bank).await);
    lost_claim(&bank, &one, &two).await;
    found_out_after_the_duplicate(&bank, &one, &two).await;
    found_out_while_still_open(&bank, &one, &two).await;
    ended_by_its_own_work(&bank, &one, &two).await;
    one_rollback_after_the_other(&bank, &one, &two).await;
    something_else_under_the_same_key(&bank, &one, &two).await;
    a_slow_owner_and_its_successor(&bank, &one, &two).await;
}

async fn lost_claim<B: Undo>(bank: &B, one: &Arc<Process<B>>, two: &Arc<Process<B>>) {
    let (staged, worked) = (Staged::new(one.transactions.clone(), Loss::Claim), AtomicUsize::new(0));
    let error = one.charge_through(&staged, ask("claim"), "one", &worked).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Unavailable, Applied::No), "{error}");
    assert_eq!((worked.load(Ordering::SeqCst), bank.count("claim").await), (0, 0));
    assert_eq!(said(two.charge("claim", "two").await), first_of("two"));
    assert_eq!(said(one.charge("claim", "one").await), replay_of("two"));
    assert_eq!(bank.count("claim").await, 1);
}

/// The duplicate comes and goes while the first one still waits for an answer that never comes.
async fn found_out_after_the_duplicate<B: Undo>(bank: &B, one: &Arc<Process<B>>, two: &Arc<Process<B>>) {
    for (key, loss, first, second) in [
        ("answer", Loss::Answer, first_of("one"), replay_of("one")),
        ("commit", Loss::Commit, replay_of("two"), first_of("two")),
    ] {
        let (staged, worked) = (Staged::new(one.transactions.clone(), loss), AtomicUsize::new(0));
        let (one, two) = tokio::join!(one.charge_through(&staged, ask(key), "one", &worked), async {
            staged.reached.notified().await;
            let answer = two.charge(key, "two").await;
            staged.go_on.notify_one();
            answer
        });
        assert_eq!((said(one), said(two)), (first, second), "{key}");
        assert_eq!((worked.load(Ordering::SeqCst), bank.count(key).await), (1, 1), "{key}");
    }
}

/// The first one has asked for the fate of its commit, and the duplicate has come, before there is one.
async fn found_out_while_still_open<B: Undo>(bank: &B, one: &Arc<Process<B>>, two: &Arc<Process<B>>) {
    for (key, loss) in [("late commit", Loss::LateCommit), ("late rollback", Loss::LateRollback)] {
        let (staged, worked) = (Staged::new(one.transactions.clone(), loss), AtomicUsize::new(0));
        let (first, second) = tokio::join!(one.charge_through(&staged, ask(key), "one", &worked), async {
            staged.reached.notified().await;
            let duplicate = two.charge_beside(key, "two");
            staged.begun_again.notified().await;
            staged.go_on.notify_one();
            duplicate.await.unwrap()
        });
        let (first, second) = (said(first), said(second));
        assert_eq!(first.0, second.0, "two answers for {key}");
        assert_eq!(bank.count(key).await, 1, "{key}");
        if loss == Loss::LateCommit {
            assert_eq!((first, second), (first_of("one"), replay_of("one")));
            assert_eq!(worked.load(Ordering::SeqCst), 1);
        }
    }
}

/// The work has rolled its own transaction back, and somebody else has run since: the completion must not
/// touch what is there now.
async fn ended_by_its_own_work<B: Undo>(bank: &B, one: &Arc<Process<B>>, two: &Arc<Process<B>>) {
    let second = std::sync::Mutex::new(None);
    let work = async |_: Lease, tx: Tx<B>| {
        B::charge(&tx, "ended").await?;
        B::undo(&tx).await;
        let answer = two.charge("ended", "two").await;
        second.lock().unwrap().replace(answer);
        Ok(Outcome::succeeded("one"))
    };
    let error = one.onceward.transact(&one.transactions, ask("ended"), work).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Conflict, Applied::No), "{error}");
    assert!(error.to_string().contains("has ended the transaction"), "{error}");
    let second = second.lock().unwrap().take().expect("it was asked");
    assert_eq!(said(second), first_of("two"));
    assert_eq!(said(one.charge("ended", "one").await), replay_of("two"));
    assert_eq!(bank.count("ended").await, 1);
    // And where nobody else came, nothing is left behind.
    let work = async |_: Lease, tx: Tx<B>| {
        B::charge(&tx, "ended alone").await?;
        B::undo(&tx).await;
        Ok(Outcome::succeeded("one"))
    };
    let error = one.onceward.transact(&one.transactions, ask("ended alone"), work).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Conflict, Applied::No), "{error}");
    assert_eq!(bank.count("ended alone").await, 0);
    assert_eq!(said(two.charge("ended alone", "two").await), first_of("two"));
    assert_eq!(bank.count("ended alone").await, 1);
}

async fn one_rollback_after_the_other<B: Undo>(bank: &B, one: &Arc<Process<B>>, two: &Arc<Process<B>>) {
    let three = Process::new(bank).await;
    let first = one.charge_slowly(ask("rollbacks"), "one", Then::Stop).await;
    let second = {
        let two = Arc::clone(two);
        tokio::spawn(async move { two.charge_slowly(ask("rollbacks"), "two", Then::Stop).await })
    };
    assert_eq!(first.end().await.unwrap_err().kind(), ErrorKind::Stopped);
    let second = second.await.unwrap();
    let third = three.charge_beside("rollbacks", "three");
    assert_eq!(second.end().await.unwrap_err().kind(), ErrorKind::Stopped);
    assert_eq!(said(third.await.unwrap()), first_of("three"));
    assert_eq!(bank.count("rollbacks").await, 1);
}

async fn something_else_under_the_same_key<B: Undo>(bank: &B, one: &Arc<Process<B>>, two: &Arc<Process<B>>) {
    let other = |key| Ask::new(id(key), Fingerprint::of(b"13"), Arc::new(Policy::http()));
    for (key, then) in [("reused", Then::Succeed), ("reused after a rollback", Then::Stop)] {
        let first = one.charge_slowly(ask(key), "one", then).await;
        let second = {
            let two = Arc::clone(two);
            tokio::spawn(async move {
                two.charge_through(&two.transactions, other(key), "two", &AtomicUsize::new(0)).await
            })
        };
        let first = first.end().await;
        let second = second.await.unwrap();
        match then {
            Then::Succeed => {
                assert_eq!(said(first), first_of("one"));
                assert_eq!(second.unwrap(), Answer::Refused(Refusal::KeyReused));
            }
            Then::Stop => {
                assert_eq!(first.unwrap_err().kind(), ErrorKind::Stopped);
                assert_eq!(said(second), first_of("two"));
            }
        }
        assert_eq!(bank.count(key).await, 1, "{key}");
    }
}

/// The owner's late word comes while its successor is inside a transaction: it waits for its end, and
/// counts only if nothing came of it.
async fn a_slow_owner_and_its_successor<B: Undo>(bank: &B, one: &Arc<Process<B>>, two: &Arc<Process<B>>) {
    let policy = Policy::http().on_unknown(OnUnknown::Retry).lease(Duration::from_millis(100)).unwrap();
    let policy = Arc::new(policy);
    for (key, then) in [("overtaken", Then::Succeed), ("nearly overtaken", Then::Stop)] {
        let ask = || Ask::new(id(key), Fingerprint::of(b"12"), Arc::clone(&policy));
        let Claimed::Yes(ticket) = one.onceward.claim(ask()).await.unwrap() else { panic!("it is new") };
        // It begins when the lease is over.
        let successor = two.charge_slowly(ask(), "successor", then).await;
        let owner = {
            let (one, policy) = (Arc::clone(one), Arc::clone(&policy));
            tokio::spawn(async move {
                one.onceward.complete(&ticket, &policy, Outcome::succeeded("owner")).await.unwrap()
            })
        };
        let successor = successor.end().await;
        let changed = owner.await.unwrap();
        let (said_so, charges) = match then {
            Then::Succeed => {
                assert_eq!(said(successor), first_of("successor"));
                assert!(matches!(changed, Changed::No(Some(_))), "{changed:?}");
                ("successor", 1)
            }
            Then::Stop => {
                assert_eq!(successor.unwrap_err().kind(), ErrorKind::Stopped);
                assert_eq!(changed, Changed::Yes);
                ("owner", 0)
            }
        };
        assert_eq!(said(one.charge(key, "again").await), replay_of(said_so));
        assert_eq!(said(two.charge(key, "again").await), replay_of(said_so));
        assert_eq!(bank.count(key).await, charges);
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use onceward::Store;
    use onceward_stores::sql::sqlite::{SqliteTransactions, SqliteTx};
    use onceward_stores::{SqliteStore, sql::Options};

    use super::*;

    struct File(tempfile::TempDir);

    impl File {
        fn path(&self) -> std::path::PathBuf {
            self.0.path().join("bank.db")
        }
    }

    impl Bank for File {
        type T = SqliteTransactions;

        async fn open() -> Option<Self> {
            let file = Self(tempfile::tempdir().unwrap());
            let connection = rusqlite::Connection::open(file.path()).unwrap();
            connection.execute_batch("CREATE TABLE charges (key TEXT)").unwrap();
            Some(file)
        }

        async fn process(&self) -> (Arc<dyn Store>, SqliteTransactions) {
            let store = SqliteStore::open(self.path(), Options::default()).await.unwrap();
            (Arc::new(store), SqliteTransactions::open(self.path()))
        }

        async fn charge(tx: &SqliteTx, key: &str) -> Result<(), Stopped> {
            tx.lock().execute("INSERT INTO charges VALUES (?1)", [key])?;
            Ok(())
        }

        async fn count(&self, key: &str) -> usize {
            let connection = rusqlite::Connection::open(self.path()).unwrap();
            let count = "SELECT count(*) FROM charges WHERE key = ?1";
            connection.query_row(count, [key], |row| row.get::<_, u32>(0)).unwrap() as usize
        }
    }

    impl Undo for File {
        async fn undo(tx: &SqliteTx) {
            tx.lock().execute_batch("ROLLBACK").unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn sqlite() {
        everything::<File>().await;
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use onceward_stores::sql::postgres::PostgresTx;

    use super::*;
    use crate::servers::Postgres;

    impl Undo for Postgres {
        async fn undo(tx: &PostgresTx) {
            tx.batch_execute("ROLLBACK").await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn postgres() {
        everything::<Postgres>().await;
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use mysql_async::prelude::Queryable;
    use onceward_stores::sql::mysql::MySqlTx;

    use super::*;
    use crate::servers::MariaDb;

    impl Undo for MariaDb {
        async fn undo(tx: &MySqlTx) {
            tx.lock().await.query_drop("ROLLBACK").await.unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn mysql() {
        everything::<MariaDb>().await;
    }

    /// The server ends the first one's connection in the middle of its work.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn mysql_that_cuts_the_line() {
        let Some(bank) = MariaDb::open().await else { return };
        let (one, two) = (Process::new(&bank).await, Process::<MariaDb>::new(&bank).await);
        let first = one.charge_slowly(ask("cut"), "one", Then::Succeed).await;
        let second = two.charge_beside("cut", "two");
        let working = "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx
            WHERE trx_rows_modified > 0 ORDER BY trx_started LIMIT 1";
        let thread = bank.sql("bank", working);
        bank.sql("bank", &format!("KILL CONNECTION {thread}"));
        assert_eq!(said(second.await.unwrap()), first_of("two"));
        // Its commit went nowhere, and that is certain.
        let error = first.end().await.unwrap_err();
        assert_eq!((error.kind(), error.applied()), (ErrorKind::Unavailable, Applied::No), "{error}");
        assert_eq!(said(one.charge("cut", "one").await), replay_of("two"));
        assert_eq!(bank.count("cut").await, 1);
    }

    /// Two that wait for each other in a circle: the one that the server undoes is done anew, once.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn mysql_that_undoes_is_asked_again() {
        let Some(bank) = MariaDb::open().await else { return };
        bank.sql("bank", "CREATE TABLE balance (id INT PRIMARY KEY, amount INT)");
        bank.sql("bank", "INSERT INTO balance VALUES (1, 0), (2, 0)");
        let one = Process::<MariaDb>::new(&bank).await;
        let both = Arc::new(tokio::sync::Barrier::new(2));
        let worked = Arc::new(AtomicUsize::new(0));
        let tasks = [("up", [1, 2]), ("down", [2, 1])].map(|(key, rows)| {
            let (one, both, worked) = (Arc::clone(&one), Arc::clone(&both), Arc::clone(&worked));
            tokio::spawn(async move {
                let tries = AtomicUsize::new(0);
                let work = async |_: Lease, tx: MySqlTx| {
                    worked.fetch_add(1, Ordering::SeqCst);
                    let add = "UPDATE balance SET amount = amount + 1 WHERE id = ?";
                    tx.lock().await.exec_drop(add, (rows[0],)).await?;
                    if tries.fetch_add(1, Ordering::SeqCst) == 0 {
                        both.wait().await;
                    }
                    tx.lock().await.exec_drop(add, (rows[1],)).await?;
                    Ok(Outcome::succeeded("added"))
                };
                one.onceward.transact(&one.transactions, ask(key), work).await
            })
        });
        for task in tasks {
            assert!(!ran(task.await.unwrap()).replayed);
        }
        assert_eq!(worked.load(Ordering::SeqCst), 3);
        assert_eq!(bank.sql("bank", "SELECT GROUP_CONCAT(amount) FROM balance"), "2,2");
    }
}
