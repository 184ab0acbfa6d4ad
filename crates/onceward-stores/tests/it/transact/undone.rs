//! Tests of rollbacks by the server: a connection that it cuts is certain not to have committed, and work that
//! conflicts with other work is retried.

use std::sync::atomic::{AtomicUsize, Ordering};

use mysql_async::prelude::Queryable;
use onceward::{Applied, ErrorKind, Lease, Outcome};
use onceward_stores::sql::mysql::MySqlTx;
use onceward_stores::sql::postgres::Isolation;
use onceward_stores::sql::{Cell, SqlTransaction, Value};
use tokio::sync::Barrier;

use crate::bank::{
    Bank, MySqlBank, PostgresBank, Process, Then, Through, Tx, ask, first_of, on_every_engine, ran,
    replay_of, said,
};

/// The server ends the first one's connection while it works.
async fn cuts_the_line<B: Bank>(bank: &B, cut: impl Fn(&B)) {
    let (one, two) = (Process::new(bank, "one").await, Process::new(bank, "two").await);
    let first = one.charge_slowly(ask("cut")).await;
    let second = two.charge_beside(ask("cut"));
    cut(bank);
    assert_eq!(said(second.await.unwrap()), first_of("two", "cut"));
    // It certainly did not commit; the next ask gets what the second one did.
    let error = first.end(Then::Succeed).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Unavailable, Applied::No), "{error}");
    assert_eq!(said(one.charge(ask("cut")).await), replay_of("two", "cut"));
    assert_eq!(bank.count("cut"), 1);
}

async fn postgres_that_cuts(bank: &PostgresBank) {
    cuts_the_line(bank, |bank| {
        bank.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE state = 'idle in transaction' AND datname = current_database()",
        );
    })
    .await;
}

async fn mysql_that_cuts(bank: &MySqlBank) {
    cuts_the_line(bank, |bank| {
        let working = "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx
            JOIN information_schema.processlist ON id = trx_mysql_thread_id
            WHERE trx_rows_modified > 0 AND db = DATABASE() ORDER BY trx_started LIMIT 1";
        let thread = bank.sql(working);
        bank.sql(&format!("KILL CONNECTION {thread}"));
    })
    .await;
}

on_every_engine!(postgres_that_cuts: postgres_that_cuts_the_line PostgresBank);
on_every_engine!(mysql_that_cuts: mysql_that_cuts_the_line MySqlBank);

/// Two that have both read before either writes: one has to be undone, and is done again.
async fn asks_again<B: Bank>(bank: &B, process: &Process<B>, serializable: &B::T) {
    bank.sql("CREATE TABLE balance (amount bigint)");
    bank.sql("INSERT INTO balance VALUES (0)");
    let (both, worked) = (Barrier::new(2), AtomicUsize::new(0));
    let add = async |key: &'static str| {
        let work = async |_: Lease, mut tx: Tx<B>| {
            let row = tx.fetch("SELECT amount FROM balance", &[]).await?;
            let Some([Cell::Int(amount)]) = row.as_deref() else { panic!("{row:?}") };
            if worked.fetch_add(1, Ordering::SeqCst) < 2 {
                both.wait().await;
            }
            tx.fetch("UPDATE balance SET amount = $1", &[Value::Int(Some(amount + 1))]).await?;
            Ok(Outcome::succeeded("added"))
        };
        process.onceward.transact(serializable, ask(key), work).await
    };
    let (one, other) = tokio::join!(add("one"), add("other"));
    assert!(!ran(one).replayed && !ran(other).replayed);
    assert_eq!(bank.sql("SELECT amount FROM balance"), "2");
    assert!(worked.load(Ordering::SeqCst) > 2, "neither was undone");
}

async fn postgres_that_undoes(bank: &PostgresBank) {
    let process = Process::new(bank, "one").await;
    let serializable = process.transactions.clone().with_isolation(Isolation::Serializable);
    asks_again(bank, &process, &serializable).await;
}

async fn sqlx_that_undoes(bank: &Through<PostgresBank>) {
    let process = Process::new(bank, "one").await;
    let serializable = process.transactions.clone().with_begin("BEGIN ISOLATION LEVEL SERIALIZABLE");
    asks_again(bank, &process, &serializable).await;
}

on_every_engine!(postgres_that_undoes: postgres_that_undoes_is_asked_again PostgresBank);
on_every_engine!(sqlx_that_undoes: sqlx_postgres_that_undoes_is_asked_again Through<PostgresBank>);

/// Two that wait for each other in a circle: the one that the server undoes is done again, once.
async fn mysql_that_undoes(bank: &MySqlBank) {
    bank.sql("CREATE TABLE balance (id INT PRIMARY KEY, amount INT)");
    bank.sql("INSERT INTO balance VALUES (1, 0), (2, 0)");
    let process = Process::new(bank, "one").await;
    let (both, worked) = (Barrier::new(2), AtomicUsize::new(0));
    let add = async |key: &'static str, rows: [u32; 2]| {
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
        process.onceward.transact(&process.transactions, ask(key), work).await
    };
    let (up, down) = tokio::join!(add("up", [1, 2]), add("down", [2, 1]));
    assert!(!ran(up).replayed && !ran(down).replayed);
    assert_eq!(worked.load(Ordering::SeqCst), 3);
    assert_eq!(bank.sql("SELECT GROUP_CONCAT(amount) FROM balance"), "2,2");
}

on_every_engine!(mysql_that_undoes: mysql_that_undoes_is_asked_again MySqlBank);
