//! Receipts in transactions of sqlx: everything that holds for our own drivers, and the two side by side.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::{Claimed, Lease, Outcome, Stopped, Store, Transactions};
use onceward_stores::sql::sqlx::{Driver, SqlxTransactions, SqlxTx};
use onceward_stores::sql::{Inserted, Joined, SqlTransaction, States, Transition, Value, insert, transition};
use onceward_stores::{MySqlStore, PostgresStore, SqliteStore, sql::Options};
use sqlx::Connection;
use sqlx::pool::PoolOptions;
use tokio::sync::Barrier;

use crate::servers::{MariaDb, Postgres};
use crate::transact::sqlite::File;
use crate::transact::{Bank, Process, Then, ask, every_scenario, ran, was_charged};

/// The same bank as with the driver of our own, through a pool of sqlx's.
struct Through<B>(B);

/// Connections of one process.
const CONNECTIONS: u32 = 8;

macro_rules! bank {
    ($server:ty, $database:ty, $store:ident, $url:expr, $address:expr, $insert:literal) => {
        impl Bank for Through<$server> {
            type T = SqlxTransactions<$database>;

            async fn open() -> Option<Self> {
                <$server>::open().await.map(Self)
            }

            async fn process(&self) -> (Arc<dyn Store>, Self::T) {
                let store = $store::open(&$address(&self.0), Options::default()).await.unwrap();
                let pool = PoolOptions::new().max_connections(CONNECTIONS).connect(&$url(&self.0)).await;
                (Arc::new(store), SqlxTransactions::new(pool.unwrap()))
            }

            async fn charge(tx: &SqlxTx<$database>, key: &str) -> Result<(), Stopped> {
                sqlx::query($insert).bind(key).execute(&mut *tx.lock().await).await?;
                Ok(())
            }

            async fn count(&self, key: &str) -> usize {
                self.0.count(key).await
            }
        }
    };
}

fn postgres_url(server: &Postgres) -> String {
    server.url("postgres")
}

fn mysql_url(server: &MariaDb) -> String {
    server.url("bank")
}

fn sqlite_path(file: &File) -> std::path::PathBuf {
    file.path()
}

fn sqlite_url(file: &File) -> String {
    format!("sqlite:{}", file.path().display())
}

bank!(Postgres, sqlx::Postgres, PostgresStore, postgres_url, postgres_url, "INSERT INTO charges VALUES ($1)");
bank!(MariaDb, sqlx::MySql, MySqlStore, mysql_url, mysql_url, "INSERT INTO charges VALUES (?)");
bank!(File, sqlx::Sqlite, SqliteStore, sqlite_url, sqlite_path, "INSERT INTO charges VALUES (?1)");

/// All that is particular to sqlx, on one engine.
async fn on<B, DB>()
where
    B: Bank,
    DB: Driver,
    for<'c> &'c mut DB::Connection: sqlx::Executor<'c, Database = DB>,
    Through<B>: Bank<T = SqlxTransactions<DB>>,
    <B::T as Transactions>::Tx: SqlTransaction,
{
    let Some(bank) = Through::<B>::open().await else { return };
    let theirs = Process::new(&bank).await;
    side_by_side(&bank, &theirs).await;
    in_a_transaction_of_the_callers_own(&bank, &theirs).await;
    savepoints(&bank, &theirs).await;
    dropped_anywhere(&bank, &theirs).await;
    let create = "CREATE TABLE orders (id VARCHAR(32) PRIMARY KEY, state VARCHAR(32))";
    sqlx::Executor::execute(&mut *theirs.transactions.pool().acquire().await.unwrap(), create).await.unwrap();
    natural(&theirs, "order-81").await;
    natural(&Process::<B>::new(&bank.0).await, "order-82").await;
}

/// One process with sqlx and one without see each other's receipts, whoever comes first.
async fn side_by_side<B: Bank>(bank: &Through<B>, theirs: &Process<Through<B>>)
where
    Through<B>: Bank,
{
    let ours = Process::<B>::new(&bank.0).await;
    was_charged(ours.charge(ask("ours-first")).await, "ours-first", false);
    was_charged(theirs.charge(ask("ours-first")).await, "ours-first", true);
    was_charged(theirs.charge(ask("theirs-first")).await, "theirs-first", false);
    was_charged(ours.charge(ask("theirs-first")).await, "theirs-first", true);

    // While one is at work, the other waits for its end; whichever end it is.
    for (key, then) in [("commits", Then::Succeed), ("rolls-back", Then::Stop)] {
        let first = theirs.charge_slowly(ask(key)).await;
        let second = {
            let ours = ours.clone();
            tokio::spawn(async move { ours.charge(ask(key)).await })
        };
        let _ = first.end(then).await;
        was_charged(second.await.unwrap(), key, matches!(then, Then::Succeed));
        assert_eq!(bank.count(key).await, 1, "{key}");
    }
    for round in 0..5 {
        let key = format!("both-{round}");
        let crowd = (0..40).map(|number| {
            let (ours, theirs, key) = (ours.clone(), theirs.clone(), key.clone());
            tokio::spawn(async move {
                if number % 2 == 0 { ours.charge(ask(&key)).await } else { theirs.charge(ask(&key)).await }
            })
        });
        let mut first = 0;
        for one in crowd.collect::<Vec<_>>() {
            first += usize::from(!ran(one.await.unwrap()).replayed);
        }
        assert_eq!((first, bank.count(&key).await), (1, 1));
    }
}

/// The explicit form, in a transaction that sqlx has begun.
async fn in_a_transaction_of_the_callers_own<B, DB>(bank: &Through<B>, process: &Process<Through<B>>)
where
    DB: Driver,
    Through<B>: Bank<T = SqlxTransactions<DB>>,
    for<'c> &'c mut DB::Connection: sqlx::Executor<'c, Database = DB>,
{
    for round in 0..3 {
        let mut tx = process.transactions.pool().begin().await.unwrap();
        match process.onceward.claim_in(&mut Joined(&mut tx), &ask("own")).await.unwrap() {
            Claimed::Yes(ticket) => {
                assert!(round < 2);
                sqlx::Executor::execute(&mut *tx, "INSERT INTO charges VALUES ('own')").await.unwrap();
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
    assert_eq!(bank.count("own").await, 1);
    was_charged(process.charge(ask("own")).await, "own", true);
}

/// What the work begins on the connection is a part of the whole, and never ends it.
async fn savepoints<B, DB>(bank: &Through<B>, process: &Process<Through<B>>)
where
    DB: Driver,
    Through<B>: Bank<T = SqlxTransactions<DB>>,
    for<'c> &'c mut DB::Connection: sqlx::Executor<'c, Database = DB>,
{
    let run = async |key: &'static str, then: Then| {
        let work = async |_: Lease, tx: SqlxTx<DB>| {
            let mut connection = tx.lock().await;
            let mut kept = connection.begin().await?;
            let insert = format!("INSERT INTO charges VALUES ('{key}')");
            sqlx::Executor::execute(&mut *kept, sqlx::AssertSqlSafe(insert.clone())).await?;
            kept.commit().await?;
            let mut undone = connection.begin().await?;
            sqlx::Executor::execute(&mut *undone, sqlx::AssertSqlSafe(insert)).await?;
            drop(undone);
            match then {
                Then::Stop => Err(Stopped::unknown("told to stop")),
                _ => Ok(Outcome::succeeded(format!("charged {key}"))),
            }
        };
        process.onceward.transact(&process.transactions, ask(key), work).await
    };
    run("part", Then::Stop).await.unwrap_err();
    assert_eq!(bank.count("part").await, 0);
    was_charged(run("part", Then::Succeed).await, "part", false);
    assert_eq!(bank.count("part").await, 1);
}

/// Dropped wherever it stands, a transaction is undone, and the next one on the pool begins afresh.
async fn dropped_anywhere<B, DB>(bank: &Through<B>, process: &Process<Through<B>>)
where
    DB: Driver,
    Through<B>: Bank<T = SqlxTransactions<DB>>,
{
    for round in 0..60 {
        let key = format!("dropped-{}", round % 6);
        // Polled so often and no more: each round it is dropped a little further on.
        let mut charging = Box::pin(process.charge(ask(&key)));
        for _ in 0..=round / 6 {
            if std::future::poll_fn(|cx| std::task::Poll::Ready(charging.as_mut().poll(cx))).await.is_ready()
            {
                charging = Box::pin(process.charge(ask(&key)));
                break;
            }
            tokio::time::sleep(Duration::from_micros(200 * round)).await;
        }
        drop(charging);
    }
    for number in 0..6 {
        let key = format!("dropped-{number}");
        assert_eq!(
            &ran(process.charge(ask(&key)).await).outcome.body()[..],
            format!("charged {key}").as_bytes()
        );
        assert_eq!(bank.count(&key).await, 1, "{key}");
    }
}

/// Writes that are idempotent by themselves, through any driver.
async fn natural<B: Bank>(process: &Process<B>, order: &str)
where
    <B::T as Transactions>::Tx: SqlTransaction,
{
    let work = async |_: Lease, mut tx: <B::T as Transactions>::Tx| {
        place_and_pay(&mut tx, order).await;
        Ok(Outcome::succeeded("paid"))
    };
    process.onceward.transact(&process.transactions, ask(order), work).await.unwrap().ran().unwrap();
}

async fn place_and_pay<T: SqlTransaction>(tx: &mut T, order: &str) {
    const ORDERS: States<'static> = States { table: "orders", key: "id", state: "state" };
    let row = [("id", Value::Text(order)), ("state", Value::Text("placed"))];
    assert_eq!(insert(tx, "orders", &row).await.unwrap(), Inserted::New);
    assert_eq!(insert(tx, "orders", &row).await.unwrap(), Inserted::AlreadyThere);
    for (key, from, to, expected) in [
        (order, "placed", "paid", Transition::Changed),
        (order, "placed", "paid", Transition::AlreadyThere),
        (order, "placed", "shipped", Transition::Illegal),
        ("no such order", "placed", "paid", Transition::Illegal),
    ] {
        assert_eq!(transition(tx, ORDERS, Value::Text(key), from, to).await.unwrap(), expected);
    }
}

/// Two transactions that cannot both be: the one that is undone is done anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_that_undoes_is_asked_again() {
    let Some(bank) = Through::<Postgres>::open().await else { return };
    bank.0.sql("postgres", "CREATE TABLE balance (amount bigint); INSERT INTO balance VALUES (0)");
    let process = Process::new(&bank).await;
    let transactions = process.transactions.clone().begin_with("BEGIN ISOLATION LEVEL SERIALIZABLE");
    // Both have read before either writes, so one has to be undone.
    let (both, worked) = (Barrier::new(2), AtomicUsize::new(0));
    let add = async |key: &'static str| {
        let work = async |_: Lease, tx: SqlxTx<sqlx::Postgres>| {
            let mut tx = tx.lock().await;
            let amount: i64 = sqlx::query_scalar("SELECT amount FROM balance").fetch_one(&mut *tx).await?;
            if worked.fetch_add(1, Ordering::SeqCst) < 2 {
                both.wait().await;
            }
            sqlx::query("UPDATE balance SET amount = $1").bind(amount + 1).execute(&mut *tx).await?;
            Ok(Outcome::succeeded("added"))
        };
        process.onceward.transact(&transactions, ask(key), work).await
    };
    let (one, other) = tokio::join!(add("one"), add("other"));
    assert!(!ran(one).replayed && !ran(other).replayed);
    assert_eq!(bank.0.sql("postgres", "SELECT amount FROM balance"), "2");
    assert!(worked.load(Ordering::SeqCst) > 2, "neither was undone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    on::<Postgres, sqlx::Postgres>().await;
    every_scenario::<Through<Postgres>>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql() {
    on::<MariaDb, sqlx::MySql>().await;
    every_scenario::<Through<MariaDb>>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite() {
    on::<File, sqlx::Sqlite>().await;
    every_scenario::<Through<File>>().await;
}
