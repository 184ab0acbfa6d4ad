//! Tests of receipts in transactions of sqlx. What holds for all drivers is in `transact` and
//! `interleavings`.

use std::time::Duration;

use onceward::{Lease, Outcome, Stopped};
use onceward_stores::sql::sqlx::{Driver, SqlxTransactions, SqlxTx};
use onceward_stores::sql::{Inserted, SqlTransaction, States, Transition, Value, insert, transition};
use sqlx::Connection;

use crate::bank::{
    Bank, MySqlBank, PostgresBank, Process, SqliteBank, Then, Through, Tx, ask, first_of, on_every_engine,
    ran, replay_of, said,
};

/// All that is particular to sqlx, on one engine.
async fn on<B, DB>(bank: &Through<B>)
where
    B: Bank,
    DB: Driver,
    for<'c> &'c mut DB::Connection: sqlx::Executor<'c, Database = DB>,
    Through<B>: Bank<T = SqlxTransactions<DB>>,
{
    let (ours, theirs) = (Process::new(&bank.0, "ours").await, Process::new(bank, "theirs").await);
    side_by_side(bank, &ours, &theirs).await;
    savepoints(bank, &theirs).await;
    dropped_anywhere(bank, &theirs).await;
    let create = "CREATE TABLE orders (id VARCHAR(32) PRIMARY KEY, state VARCHAR(32))";
    sqlx::Executor::execute(&mut *theirs.transactions.pool().acquire().await.unwrap(), create).await.unwrap();
    natural(&theirs, "order-81").await;
    natural(&ours, "order-82").await;
}

/// One process with sqlx and one without see each other's receipts, in either order.
async fn side_by_side<B: Bank>(bank: &Through<B>, ours: &Process<B>, theirs: &Process<Through<B>>)
where
    Through<B>: Bank,
{
    assert_eq!(said(ours.charge(ask("a")).await), first_of("ours", "a"));
    assert_eq!(said(theirs.charge(ask("a")).await), replay_of("ours", "a"));
    assert_eq!(said(theirs.charge(ask("b")).await), first_of("theirs", "b"));
    assert_eq!(said(ours.charge(ask("b")).await), replay_of("theirs", "b"));

    // While one is at work, the other waits until it ends, whatever the outcome.
    for (key, then, expected) in [
        ("commits", Then::Succeed, replay_of("theirs", "commits")),
        ("rolls-back", Then::Stop, first_of("ours", "rolls-back")),
    ] {
        let first = theirs.charge_slowly(ask(key)).await;
        let second = ours.charge_beside(ask(key));
        let _ = first.end(then).await;
        assert_eq!(said(second.await.unwrap()), expected);
        assert_eq!(bank.count(key), 1, "{key}");
    }
    for round in 0..5 {
        let key = format!("both-{round}");
        let crowd = (0..40).map(|number| {
            if number % 2 == 0 { ours.charge_beside(ask(&key)) } else { theirs.charge_beside(ask(&key)) }
        });
        let mut first = 0;
        for one in crowd.collect::<Vec<_>>() {
            first += usize::from(!ran(one.await.unwrap()).replayed);
        }
        assert_eq!((first, bank.count(&key)), (1, 1));
    }
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
                _ => Ok(Outcome::succeeded("kept")),
            }
        };
        process.onceward.transact(&process.transactions, ask(key), work).await
    };
    run("part", Then::Stop).await.unwrap_err();
    assert_eq!(bank.count("part"), 0);
    assert_eq!(said(run("part", Then::Succeed).await), ("kept".into(), false));
    assert_eq!(bank.count("part"), 1);
}

/// A transaction that is dropped at any point is undone, and the next one on the pool starts clean.
async fn dropped_anywhere<B, DB>(bank: &Through<B>, process: &Process<Through<B>>)
where
    DB: Driver,
    Through<B>: Bank<T = SqlxTransactions<DB>>,
{
    for round in 0..60 {
        let key = format!("dropped-{}", round % 6);
        // Polled a fixed number of times: each round it is dropped a little later.
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
        assert_eq!(said(process.charge(ask(&key)).await).0, first_of("theirs", &key).0);
        assert_eq!(bank.count(&key), 1, "{key}");
    }
}

/// Writes that are idempotent by themselves, through any driver.
async fn natural<B: Bank>(process: &Process<B>, order: &str) {
    let work = async |_: Lease, mut tx: Tx<B>| {
        place_and_pay(&mut tx, order).await;
        Ok(Outcome::succeeded("paid"))
    };
    process.onceward.transact(&process.transactions, ask(order), work).await.unwrap().into_result().unwrap();
}

async fn place_and_pay<T: SqlTransaction>(tx: &mut T, order: &str) {
    const ORDERS: States<'static> = States::new("orders", "id", "state");
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

on_every_engine!(on:
    postgres Through<PostgresBank>, mysql Through<MySqlBank>, sqlite Through<SqliteBank>);
