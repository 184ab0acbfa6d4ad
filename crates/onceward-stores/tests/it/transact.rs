//! Receipts in the caller's own transaction: key and business write commit together or not at all,
//! whoever interferes at whatever point. The same tests on every engine.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::{
    Answer, Applied, Ask, Claimed, Error, ErrorKind, Fault, Fingerprint, Id, Lease, OnDuplicate, OnFailure,
    Onceward, Outcome, Policy, Ran, Refusal, Stopped, Store, Swap, Swapped, Transactions,
};
use tokio::sync::{Notify, oneshot};

/// One database with a business table in it: `charges (key)`, which takes any key any number of times.
pub(crate) trait Bank: Send + Sync + Sized + 'static {
    type T: Transactions<Tx: Send + Sync> + Clone + 'static;

    fn open() -> impl Future<Output = Option<Self>> + Send;
    /// The store and the transactions of one more process.
    fn process(&self) -> impl Future<Output = (Arc<dyn Store>, Self::T)> + Send;
    fn charge(
        tx: &<Self::T as Transactions>::Tx,
        key: &str,
    ) -> impl Future<Output = Result<(), Stopped>> + Send;
    fn count(&self, key: &str) -> impl Future<Output = usize> + Send;
}

pub(crate) struct Process<B: Bank> {
    pub(crate) onceward: Onceward,
    pub(crate) transactions: B::T,
}

impl<B: Bank> Clone for Process<B> {
    fn clone(&self) -> Self {
        Self { onceward: self.onceward.clone(), transactions: self.transactions.clone() }
    }
}

impl<B: Bank> Process<B> {
    pub(crate) async fn new(bank: &B) -> Self {
        let (store, transactions) = bank.process().await;
        Self { onceward: Onceward::new(store).unwrap(), transactions }
    }

    pub(crate) async fn charge(&self, ask: Ask) -> onceward::Result<Answer> {
        let key = ask.id().key().to_owned();
        let work = async |_: Lease, tx: <B::T as Transactions>::Tx| {
            B::charge(&tx, &key).await?;
            Ok(Outcome::succeeded(format!("charged {key}")))
        };
        self.onceward.transact(&self.transactions, ask, work).await
    }

    /// Begins a charge and stands still inside its work, with the charge written; goes on as told.
    pub(crate) async fn charge_slowly(&self, ask: Ask) -> Slow {
        let (inside, reached) = oneshot::channel();
        let go_on = Arc::new(Notify::new());
        let (process, waits) = (self.clone(), Arc::clone(&go_on));
        let how = Arc::new(std::sync::Mutex::new(Then::Succeed));
        let told = Arc::clone(&how);
        let running = tokio::spawn(async move {
            let key = ask.id().key().to_owned();
            let inside = std::sync::Mutex::new(Some(inside));
            let work = async |_: Lease, tx: <B::T as Transactions>::Tx| {
                B::charge(&tx, &key).await?;
                let first = inside.lock().unwrap().take();
                if let Some(inside) = first {
                    let _ = inside.send(());
                    waits.notified().await;
                }
                let then = *told.lock().unwrap();
                match then {
                    Then::Succeed => Ok(Outcome::succeeded(format!("charged {key}"))),
                    Then::Fail => Ok(Outcome::failed("declined")),
                    Then::Stop => Err(Stopped::unknown("told to stop")),
                }
            };
            process.onceward.transact(&process.transactions, ask, work).await
        });
        reached.await.expect("the work is reached");
        Slow { running, go_on, how }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Then {
    Succeed,
    Fail,
    Stop,
}

pub(crate) struct Slow {
    pub(crate) running: tokio::task::JoinHandle<onceward::Result<Answer>>,
    go_on: Arc<Notify>,
    how: Arc<std::sync::Mutex<Then>>,
}

impl Slow {
    pub(crate) async fn end(self, then: Then) -> onceward::Result<Answer> {
        *self.how.lock().unwrap() = then;
        self.go_on.notify_one();
        self.running.await.unwrap()
    }
}

pub(crate) fn ask(key: &str) -> Ask {
    ask_under(key, Policy::http())
}

pub(crate) fn ask_under(key: &str, policy: Policy) -> Ask {
    Ask::new(Id::new("tenant", "charge", key).unwrap(), Fingerprint::of(b"12"), Arc::new(policy))
}

pub(crate) fn ran(answer: onceward::Result<Answer>) -> Ran {
    answer.unwrap().ran().unwrap()
}

pub(crate) fn was_charged(answer: onceward::Result<Answer>, key: &str, replayed: bool) {
    let ran = ran(answer);
    assert_eq!((&ran.outcome.body()[..], ran.replayed), (format!("charged {key}").as_bytes(), replayed));
}

/// Every scenario, one after the other, on one engine.
pub(crate) async fn every_scenario<B: Bank>() {
    let Some(bank) = B::open().await else { return };
    let (one, two) = (Process::new(&bank).await, Process::new(&bank).await);

    // Once, and then the same answer: to the same process, and to another.
    was_charged(one.charge(ask("plain")).await, "plain", false);
    was_charged(one.charge(ask("plain")).await, "plain", true);
    was_charged(two.charge(ask("plain")).await, "plain", true);
    let other = Ask::new(ask("plain").id().clone(), Fingerprint::of(b"13"), Arc::new(Policy::http()));
    assert_eq!(two.charge(other).await.unwrap(), Answer::Refused(Refusal::KeyReused));
    assert_eq!(bank.count("plain").await, 1);

    // A duplicate elsewhere waits for the first one's commit.
    let first = one.charge_slowly(ask("commit")).await;
    let second = {
        let two = two.clone();
        tokio::spawn(async move { two.charge(ask("commit")).await })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!second.is_finished());
    was_charged(first.end(Then::Succeed).await, "commit", false);
    was_charged(second.await.unwrap(), "commit", true);
    assert_eq!(bank.count("commit").await, 1);

    // A duplicate elsewhere runs when the first one is rolled back.
    let first = one.charge_slowly(ask("rollback")).await;
    let second = {
        let two = two.clone();
        tokio::spawn(async move { two.charge(ask("rollback")).await })
    };
    tokio::time::sleep(Duration::from_millis(20)).await;
    let error = first.end(Then::Stop).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Stopped, Applied::No), "{error}");
    was_charged(second.await.unwrap(), "rollback", false);
    assert_eq!(bank.count("rollback").await, 1);

    // Or when it is dropped in the middle of its work.
    let first = one.charge_slowly(ask("drop")).await;
    let second = {
        let two = two.clone();
        tokio::spawn(async move { two.charge(ask("drop")).await })
    };
    tokio::time::sleep(Duration::from_millis(20)).await;
    first.running.abort();
    was_charged(second.await.unwrap(), "drop", false);
    was_charged(one.charge(ask("drop")).await, "drop", true);
    assert_eq!(bank.count("drop").await, 1);

    // Who does not want to wait is told so, and nothing happens.
    let conflict = || Policy::http().on_duplicate(OnDuplicate::Conflict).unwrap();
    let first = one.charge_slowly(ask("conflict")).await;
    for process in [&one, &two] {
        let answer = process.charge(ask_under("conflict", conflict())).await.unwrap();
        assert!(matches!(answer, Answer::Refused(Refusal::InProgress { .. })), "{answer:?}");
    }
    was_charged(first.end(Then::Succeed).await, "conflict", false);
    assert_eq!(bank.count("conflict").await, 1);

    // A failure is the answer, with all that the work wrote; or it is undone and forgotten.
    let first = one.charge_slowly(ask("failed")).await;
    assert_eq!(ran(first.end(Then::Fail).await).outcome, Outcome::failed("declined"));
    assert_eq!(ran(two.charge(ask("failed")).await).outcome, Outcome::failed("declined"));
    assert_eq!(bank.count("failed").await, 1);
    let retry = || ask_under("retry", Policy::http().on_failure(OnFailure::Retry));
    let first = one.charge_slowly(retry()).await;
    assert_eq!(ran(first.end(Then::Fail).await).outcome, Outcome::failed("declined"));
    assert_eq!(bank.count("retry").await, 0);
    was_charged(two.charge(retry()).await, "retry", false);

    // A run outside of any transaction is waited for too.
    let ticket = match one.onceward.claim(ask("held")).await.unwrap() {
        Claimed::Yes(ticket) => ticket,
        Claimed::No(answer) => panic!("{answer:?}"),
    };
    let second = {
        let two = two.clone();
        tokio::spawn(async move { two.charge(ask("held")).await })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!second.is_finished());
    one.onceward.complete(&ticket, &Policy::http(), Outcome::succeeded("charged held")).await.unwrap();
    was_charged(second.await.unwrap(), "held", true);
    assert_eq!(bank.count("held").await, 0);

    // A receipt that is given back is no obstacle, and fences only grow.
    let ticket = match one.onceward.claim(ask("released")).await.unwrap() {
        Claimed::Yes(ticket) => ticket,
        Claimed::No(answer) => panic!("{answer:?}"),
    };
    one.onceward.release(&ticket, &Policy::http()).await.unwrap();
    let next = ran(two.charge(ask("released")).await);
    assert!(!next.replayed && next.fence > ticket.fence);
    assert_eq!(bank.count("released").await, 1);

    many_at_once(&bank, &one, &two).await;
    lost_commits(&bank, &one, &two).await;
    steps(&bank, &one, &two).await;
}

/// A crowd in two processes: one charge, one answer.
async fn many_at_once<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    for round in 0..5 {
        let key = format!("crowd-{round}");
        let crowd: Vec<_> = (0..60)
            .map(|number| {
                let (process, key) = (if number % 2 == 0 { one.clone() } else { two.clone() }, key.clone());
                tokio::spawn(async move { process.charge(ask(&key)).await })
            })
            .collect();
        let mut first = 0;
        for one in crowd {
            let ran = ran(one.await.unwrap());
            assert_eq!(&ran.outcome.body()[..], format!("charged {key}").as_bytes());
            first += usize::from(!ran.replayed);
        }
        assert_eq!((first, bank.count(&key).await), (1, 1));
    }
}

/// Transactions whose first commit is answered by nothing.
struct Lossy<T> {
    inner: T,
    what: LossOf,
    commits: AtomicUsize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LossOf {
    /// It happened.
    Answer,
    /// It never reached the database.
    Commit,
}

impl<T: Transactions> Transactions for Lossy<T> {
    type Tx = T::Tx;

    async fn begin<'a>(&'a self, claim: &'a Swap, patience: Duration) -> Result<(T::Tx, Swapped), Fault> {
        self.inner.begin(claim, patience).await
    }

    async fn commit<'a>(&'a self, tx: T::Tx, completion: &'a Swap) -> Result<(), Fault> {
        let lost = || Fault::Failed(Error::new(ErrorKind::Unavailable, "the wire broke").maybe_applied());
        match (self.commits.fetch_add(1, Ordering::SeqCst), self.what) {
            (0, LossOf::Answer) => {
                self.inner.commit(tx, completion).await?;
                Err(lost())
            }
            (0, LossOf::Commit) => {
                drop(tx);
                Err(lost())
            }
            _ => self.inner.commit(tx, completion).await,
        }
    }

    async fn rollback(&self, tx: T::Tx) {
        self.inner.rollback(tx).await;
    }

    fn is_worth_repeating(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.inner.is_worth_repeating(error)
    }
}

/// A commit whose answer was lost: its fate is found out, and the effect is there once.
async fn lost_commits<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    for (key, what, works) in [("lost-answer", LossOf::Answer, 1), ("lost-commit", LossOf::Commit, 2)] {
        let lossy = Lossy { inner: one.transactions.clone(), what, commits: AtomicUsize::new(0) };
        let (worked, begun) = (AtomicUsize::new(0), Notify::new());
        let work = async |_: Lease, tx: <B::T as Transactions>::Tx| {
            worked.fetch_add(1, Ordering::SeqCst);
            begun.notify_one();
            B::charge(&tx, key).await?;
            Ok(Outcome::succeeded(format!("charged {key}")))
        };
        let (first, second) = tokio::join!(one.onceward.transact(&lossy, ask(key), work), async {
            // Only when the first one has the claim.
            begun.notified().await;
            two.charge(ask(key)).await
        });
        let (first, second) = (ran(first), ran(second));
        assert_eq!(first.outcome, second.outcome);
        if what == LossOf::Answer {
            assert!(!first.replayed && second.replayed);
            assert_eq!(worked.load(Ordering::SeqCst), works);
        }
        assert_eq!(bank.count(key).await, 1, "{key}");
        was_charged(two.charge(ask(key)).await, key, true);
    }
}

/// An operation of three phases that dies after each of them is finished by whoever asks next.
async fn steps<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let policy = Policy::queue().on_duplicate(OnDuplicate::Wait(Duration::from_secs(20))).unwrap();
    let (called, stands) = (AtomicUsize::new(0), Notify::new());
    let operation = async |process: &Process<B>, die_after: usize| {
        let work = async |lease: Lease| {
            let phases = async |lease: Lease| {
                let reserve = async |_: Lease, tx: <B::T as Transactions>::Tx| {
                    B::charge(&tx, "reserved").await?;
                    Ok(Outcome::succeeded("r"))
                };
                lease.step_in(&process.transactions, "reserve", reserve).await?.ran()?;
                if die_after == 1 {
                    stands.notify_one();
                    std::future::pending::<()>().await;
                }
                let call = async |_: Lease| {
                    called.fetch_add(1, Ordering::SeqCst);
                    Ok(Outcome::succeeded("c"))
                };
                lease.step("call", call).await?.ran()?;
                if die_after == 2 {
                    stands.notify_one();
                    std::future::pending::<()>().await;
                }
                let confirm = async |_: Lease, tx: <B::T as Transactions>::Tx| {
                    B::charge(&tx, "confirmed").await?;
                    Ok(Outcome::succeeded("done"))
                };
                Ok(lease.step_in(&process.transactions, "confirm", confirm).await?.ran()?.outcome)
            };
            phases(lease).await
        };
        process.onceward.run(ask_under("phases", policy.clone()), work).await
    };
    for die_after in [1, 2] {
        tokio::select! {
            answer = operation(one, die_after) => panic!("it was to stand still after phase {die_after}: {answer:?}"),
            () = stands.notified() => {}
        }
    }
    assert_eq!(&ran(operation(two, 0).await).outcome.body()[..], b"done");
    assert_eq!(bank.count("reserved").await, 1);
    assert_eq!(called.load(Ordering::SeqCst), 1);
    assert_eq!(bank.count("confirmed").await, 1);
}

/// A transaction that must not be touched.
struct Nothing;

impl onceward::Join for Nothing {
    fn swap<'a>(&'a mut self, _: &'a Swap) -> onceward::Fut<'a, Swapped> {
        unreachable!("the store is asked first")
    }
}

#[tokio::test]
async fn a_store_that_cannot_join_says_so() {
    let store = Arc::new(onceward_stores::MemoryStore::new());
    let onceward = Onceward::builder(store).accept_volatile().build().unwrap();
    let error = onceward.claim_in(&mut Nothing, &ask("x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unfit, "{error}");
}

#[cfg(feature = "sqlite")]
pub(crate) mod sqlite {
    use onceward_stores::sql::Joined;
    use onceward_stores::sql::sqlite::{SqliteTransactions, SqliteTx};
    use onceward_stores::{SqliteStore, sql::Options};

    use super::*;

    pub(crate) struct File(tempfile::TempDir);

    impl File {
        pub(crate) fn path(&self) -> std::path::PathBuf {
            self.0.path().join("bank.db")
        }
    }

    impl Bank for File {
        type T = SqliteTransactions;

        async fn open() -> Option<Self> {
            let file = Self(tempfile::tempdir().unwrap());
            rusqlite::Connection::open(file.path())
                .unwrap()
                .execute_batch("CREATE TABLE charges (key TEXT)")
                .unwrap();
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

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn sqlite() {
        every_scenario::<File>().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn sqlite_in_a_transaction_of_the_callers_own() {
        let file = File::open().await.unwrap();
        let process = Process::new(&file).await;
        let mut connection = rusqlite::Connection::open(file.path()).unwrap();
        for (round, end) in ["ROLLBACK", "COMMIT", "ROLLBACK"].into_iter().enumerate() {
            connection.execute_batch("BEGIN IMMEDIATE").unwrap();
            let claimed = process.onceward.claim_in(&mut Joined(&mut connection), &ask("own")).await.unwrap();
            match claimed {
                Claimed::Yes(ticket) => {
                    assert!(round < 2);
                    connection.execute("INSERT INTO charges VALUES ('own')", []).unwrap();
                    let outcome = Outcome::succeeded("charged own");
                    let mut joined = Joined(&mut connection);
                    process.onceward.complete_in(&mut joined, &ask("own"), &ticket, &outcome).await.unwrap();
                }
                Claimed::No(answer) => {
                    assert_eq!(round, 2);
                    was_charged(Ok(answer), "own", true);
                }
            }
            connection.execute_batch(end).unwrap();
        }
        assert_eq!(file.count("own").await, 1);
        was_charged(process.charge(ask("own")).await, "own", true);
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use onceward_stores::sql::Joined;
    use onceward_stores::sql::postgres::{Isolation, PostgresTransactions, PostgresTx};
    use onceward_stores::{PostgresStore, sql::Options};

    use super::*;
    use crate::servers::Postgres;

    impl Bank for Postgres {
        type T = PostgresTransactions;

        async fn open() -> Option<Self> {
            let server = Self::start()?;
            server.sql("postgres", "CREATE TABLE charges (key text)");
            Some(server)
        }

        async fn process(&self) -> (Arc<dyn Store>, PostgresTransactions) {
            let url = self.url("postgres");
            let store = PostgresStore::open(&url, Options::default()).await.unwrap();
            (Arc::new(store), PostgresTransactions::open(&url, 8).unwrap())
        }

        async fn charge(tx: &PostgresTx, key: &str) -> Result<(), Stopped> {
            tx.execute("INSERT INTO charges VALUES ($1)", &[&key]).await?;
            Ok(())
        }

        async fn count(&self, key: &str) -> usize {
            self.sql("postgres", &format!("SELECT count(*) FROM charges WHERE key = '{key}'"))
                .parse()
                .unwrap()
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn postgres() {
        every_scenario::<Postgres>().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn postgres_in_a_transaction_of_the_callers_own() {
        let Some(server) = Postgres::open().await else { return };
        let process = Process::<Postgres>::new(&server).await;
        let (mut client, connection) =
            tokio_postgres::connect(&server.url("postgres"), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        for round in 0..3 {
            let mut tx = client.transaction().await.unwrap();
            match process.onceward.claim_in(&mut Joined(&mut tx), &ask("own")).await.unwrap() {
                Claimed::Yes(ticket) => {
                    assert!(round < 2);
                    tx.execute("INSERT INTO charges VALUES ('own')", &[]).await.unwrap();
                    let outcome = Outcome::succeeded("charged own");
                    let mut joined = Joined(&mut tx);
                    process.onceward.complete_in(&mut joined, &ask("own"), &ticket, &outcome).await.unwrap();
                }
                Claimed::No(answer) => {
                    assert_eq!(round, 2);
                    was_charged(Ok(answer), "own", true);
                }
            }
            if round == 1 { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
        }
        assert_eq!(server.count("own").await, 1);
        was_charged(process.charge(ask("own")).await, "own", true);
    }

    /// The server ends the first one's connection in the middle of its work.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn postgres_that_cuts_the_line() {
        let Some(server) = Postgres::open().await else { return };
        let (one, two) = (Process::new(&server).await, Process::<Postgres>::new(&server).await);
        let first = one.charge_slowly(ask("cut")).await;
        let second = tokio::spawn(async move { two.charge(ask("cut")).await });
        server.sql(
            "postgres",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'",
        );
        let second = ran(second.await.unwrap());
        // Its commit went nowhere, and that is certain; whoever asks again gets what the second one did.
        let error = first.end(Then::Succeed).await.unwrap_err();
        assert_eq!((error.kind(), error.applied()), (ErrorKind::Unavailable, Applied::No), "{error}");
        let again = ran(one.charge(ask("cut")).await);
        assert_eq!((again.outcome, again.replayed), (second.outcome, true));
        assert_eq!(server.count("cut").await, 1);
    }

    /// Two transactions that cannot both be: the one that is undone is done anew.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn postgres_that_undoes_is_asked_again() {
        let Some(server) = Postgres::open().await else { return };
        server.sql("postgres", "CREATE TABLE balance (amount int); INSERT INTO balance VALUES (0)");
        let one = Process::<Postgres>::new(&server).await;
        let transactions = one.transactions.clone().isolation(Isolation::Serializable);
        let worked = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..8)
            .map(|number| {
                let (onceward, transactions) = (one.onceward.clone(), transactions.clone());
                let worked = Arc::clone(&worked);
                tokio::spawn(async move {
                    let work = async |_: Lease, tx: PostgresTx| {
                        worked.fetch_add(1, Ordering::SeqCst);
                        let amount: i32 = tx.query_one("SELECT amount FROM balance", &[]).await?.get(0);
                        tokio::task::yield_now().await;
                        tx.execute("UPDATE balance SET amount = $1", &[&(amount + 1)]).await?;
                        Ok(Outcome::succeeded("added"))
                    };
                    onceward.transact(&transactions, ask(&format!("add-{number}")), work).await
                })
            })
            .collect();
        for task in tasks {
            assert!(!ran(task.await.unwrap()).replayed);
        }
        assert_eq!(server.sql("postgres", "SELECT amount FROM balance"), "8");
        assert!(worked.load(Ordering::SeqCst) >= 8);
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use mysql_async::prelude::Queryable;
    use onceward_stores::sql::Joined;
    use onceward_stores::sql::mysql::{MySqlTransactions, MySqlTx};
    use onceward_stores::{MySqlStore, sql::Options};

    use super::*;
    use crate::servers::MariaDb;

    impl Bank for MariaDb {
        type T = MySqlTransactions;

        async fn open() -> Option<Self> {
            let server = Self::start()?;
            server.database("bank");
            server.sql("bank", "CREATE TABLE charges (name VARCHAR(64))");
            Some(server)
        }

        async fn process(&self) -> (Arc<dyn Store>, MySqlTransactions) {
            let url = self.url("bank");
            let store = MySqlStore::open(&url, Options::default()).await.unwrap();
            (Arc::new(store), MySqlTransactions::open(&url, 8).unwrap())
        }

        async fn charge(tx: &MySqlTx, key: &str) -> Result<(), Stopped> {
            tx.lock().await.exec_drop("INSERT INTO charges VALUES (?)", (key,)).await?;
            Ok(())
        }

        async fn count(&self, key: &str) -> usize {
            self.sql("bank", &format!("SELECT count(*) FROM charges WHERE name = '{key}'")).parse().unwrap()
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn mysql() {
        every_scenario::<MariaDb>().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn mysql_in_a_transaction_of_the_callers_own() {
        let Some(server) = MariaDb::open().await else { return };
        let process = Process::<MariaDb>::new(&server).await;
        let mut conn = mysql_async::Conn::from_url(server.url("bank")).await.unwrap();
        for round in 0..3 {
            let mut tx = conn.start_transaction(mysql_async::TxOpts::default()).await.unwrap();
            match process.onceward.claim_in(&mut Joined(&mut tx), &ask("own")).await.unwrap() {
                Claimed::Yes(ticket) => {
                    assert!(round < 2);
                    tx.query_drop("INSERT INTO charges VALUES ('own')").await.unwrap();
                    let outcome = Outcome::succeeded("charged own");
                    let mut joined = Joined(&mut tx);
                    process.onceward.complete_in(&mut joined, &ask("own"), &ticket, &outcome).await.unwrap();
                }
                Claimed::No(answer) => {
                    assert_eq!(round, 2);
                    was_charged(Ok(answer), "own", true);
                }
            }
            if round == 1 { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
        }
        assert_eq!(server.count("own").await, 1);
        was_charged(process.charge(ask("own")).await, "own", true);
    }
}
