//! Tests of writes that need no receipt, on every engine and through every driver: state machines, rows by business
//! key, and writes that depend on a version.

use std::sync::Mutex;

use onceward::{Error, Lease, Outcome, Stopped};
use onceward_stores::sql::{
    If, Machine, Moved, Reason, SqlTransaction, States, TagColumn, Transition, Upserted, Value, Versioned,
    Written, insert, transition, upsert, versioned,
};

use crate::bank::{Bank, Process, Tx, ask, on_every_engine};

const DOCUMENTS: Versioned<'static> = Versioned::new("documents", "id", TagColumn::Version("version"));
const ORDERS: States<'static> = States::new("orders", "id", "state");
const NOTES: Versioned<'static> = Versioned::new("notes", "id", TagColumn::Random("tag"));

async fn on<B: Bank>(bank: &B) {
    for table in [
        "orders (id VARCHAR(32) PRIMARY KEY, state VARCHAR(32))",
        "order_history (entity VARCHAR(32), from_state VARCHAR(32), to_state VARCHAR(32), actor VARCHAR(32), \
         idempotency_key VARCHAR(64))",
        "one_row_each (entity VARCHAR(32) PRIMARY KEY, from_state VARCHAR(32), to_state VARCHAR(32), actor VARCHAR(32), \
         idempotency_key VARCHAR(64))",
        "mails (order_id VARCHAR(32), kind VARCHAR(32))",
        "documents (id VARCHAR(32) PRIMARY KEY, version BIGINT NOT NULL, body VARCHAR(64))",
        "notes (id VARCHAR(32) PRIMARY KEY, tag VARCHAR(64) NOT NULL, body VARCHAR(64))",
        "prices (sku VARCHAR(32) PRIMARY KEY, cents BIGINT, currency VARCHAR(3))",
    ] {
        bank.sql(&format!("CREATE TABLE {table}"));
    }
    let process = Process::new(bank, "one").await;
    machine(bank, &process).await;
    machine_raced(bank, &process).await;
    transition_after_a_snapshot(bank, &process).await;
    upserts(&process).await;
    conditions(bank, &process).await;
    editors(bank, &process).await;
}

/// Does something in a transaction of its own, under a key of its own. An error undoes it.
async fn within<B: Bank, R>(
    process: &Process<B>,
    key: &str,
    work: impl AsyncFn(&mut Tx<B>) -> Result<R, Error>,
) -> Result<R, Error> {
    let result = Mutex::new(None);
    let run = async |_: Lease, mut tx: Tx<B>| {
        // A deadlock or a serialization failure is an error too, and makes the whole run again.
        let value = work(&mut tx).await?;
        *result.lock().unwrap() = Some(value);
        Ok::<_, Stopped>(Outcome::succeeded("done"))
    };
    let answer = process.onceward.transact(&process.transactions, ask(key), run).await?;
    assert!(!answer.into_result().unwrap().replayed, "{key} was used before");
    Ok(result.into_inner().unwrap().expect("the work has run"))
}

fn orders() -> Machine {
    Machine::builder("orders", "id", "state")
        .with_initial("placed")
        .with_allowed("placed", ["paid", "cancelled"])
        .with_allowed("paid", ["shipped"])
        .with_history("order_history")
        .with_effect("paid", |mut tx, change| {
            Box::pin(async move {
                let mail = [("order_id", change.key), ("kind", Value::Text(change.to))];
                insert(&mut tx, "mails", &mail).await.map(drop)
            })
        })
        .build()
        .unwrap()
}

async fn machine<B: Bank>(bank: &B, process: &Process<B>) {
    let orders = orders();
    bank.sql("INSERT INTO orders VALUES ('m-1', 'placed')");
    within(process, "check", async |tx| orders.check(tx).await).await.unwrap();
    let reason = Reason::default().with_actor("ann").with_idempotency_key("k-1");
    let illegal = |current: Option<&str>, allowed: &[&str]| Moved::Illegal {
        current: current.map(str::to_owned),
        allowed: allowed.iter().map(|state| (*state).to_owned()).collect(),
    };
    for (name, order, to, expected) in [
        ("skip", "m-1", "shipped", illegal(Some("placed"), &["paid", "cancelled"])),
        ("pay", "m-1", "paid", Moved::Changed { from: "placed".into() }),
        ("pay-again", "m-1", "paid", Moved::AlreadyThere),
        ("cancel", "m-1", "cancelled", illegal(Some("paid"), &["shipped"])),
        ("ship", "m-1", "shipped", Moved::Changed { from: "paid".into() }),
        ("pay-late", "m-1", "paid", illegal(Some("shipped"), &[])),
        ("missing", "m-none", "paid", illegal(None, &[])),
    ] {
        let change = async |tx: &mut Tx<B>| orders.change(tx, Value::Text(order), to, reason).await;
        assert_eq!(within(process, name, change).await.unwrap(), expected, "{name}");
    }
    let unknown = async |tx: &mut Tx<B>| orders.change(tx, Value::Text("m-1"), "lost", reason).await;
    let error = within(process, "unknown", unknown).await.unwrap_err().to_string();
    assert!(error.contains("`lost` is no state of orders"), "{error}");
    assert_eq!(bank.sql("SELECT count(*) FROM mails WHERE order_id = 'm-1'"), "1");
    assert_eq!(bank.sql("SELECT count(*) FROM order_history WHERE entity = 'm-1'"), "2");
    let first = "SELECT count(*) FROM order_history WHERE entity = 'm-1' AND from_state = 'placed' \
                 AND to_state = 'paid' AND actor = 'ann' AND idempotency_key = 'k-1'";
    assert_eq!(bank.sql(first), "1");

    // Undone with the transaction: the state, its history and its effect.
    bank.sql("INSERT INTO orders VALUES ('m-2', 'placed')");
    let undone = async |tx: &mut Tx<B>| {
        orders.change(tx, Value::Text("m-2"), "paid", reason).await?;
        Err::<(), _>(Error::new(onceward::ErrorKind::Invalid, "told to stop".to_owned()))
    };
    within(process, "undone", undone).await.unwrap_err();
    assert_eq!(bank.sql("SELECT state FROM orders WHERE id = 'm-2'"), "placed");
    assert_eq!(bank.sql("SELECT count(*) FROM mails WHERE order_id = 'm-2'"), "0");
    assert_eq!(bank.sql("SELECT count(*) FROM order_history WHERE entity = 'm-2'"), "0");

    bank.sql("INSERT INTO orders VALUES ('m-3', 'misplaced')");
    let error = within(process, "check-again", async |tx| orders.check(tx).await).await.unwrap_err();
    assert!(error.to_string().contains("the state `misplaced`"), "{error}");
    // Another spelling is another state, whatever the collation of the column.
    bank.sql("UPDATE orders SET state = 'Paid' WHERE id = 'm-3'");
    let error = within(process, "check-spelling", async |tx| orders.check(tx).await).await.unwrap_err();
    assert!(error.to_string().contains("the state `Paid`"), "{error}");
    let spelt = async |tx: &mut Tx<B>| transition(tx, ORDERS, Value::Text("m-3"), "paid", "shipped").await;
    assert_eq!(within(process, "move-spelling", spelt).await.unwrap(), Transition::Illegal);
    bank.sql("UPDATE orders SET state = 'shipped' WHERE id = 'm-3'");

    // A history that keeps a row out would have a hole: the change fails.
    bank.sql("INSERT INTO orders VALUES ('m-4', 'placed')");
    let holed = Machine::builder("orders", "id", "state")
        .with_allowed("placed", ["paid"])
        .with_allowed("paid", ["shipped"])
        .with_history("one_row_each")
        .build()
        .unwrap();
    let change = async |key: &str, to: &str| {
        let change = async |tx: &mut Tx<B>| holed.change(tx, Value::Text("m-4"), to, reason).await;
        within(process, key, change).await
    };
    assert_eq!(change("hole-1", "paid").await.unwrap(), Moved::Changed { from: "placed".into() });
    let error = change("hole-2", "shipped").await.unwrap_err().to_string();
    assert!(error.contains("unique index"), "{error}");
    assert_eq!(bank.sql("SELECT state FROM orders WHERE id = 'm-4'"), "paid", "it was undone");
}

/// Of several callers that want the same change, one makes it; of two that want different ones, one.
async fn machine_raced<B: Bank>(bank: &B, process: &Process<B>) {
    let orders = orders();
    for round in 0..10 {
        let order = format!("r-{round}");
        bank.sql(&format!("INSERT INTO orders VALUES ('{order}', 'placed')"));
        let change = async |to: &'static str, number: u8| {
            let key = format!("{order}-{to}-{number}");
            let change =
                async |tx: &mut Tx<B>| orders.change(tx, Value::Text(&order), to, Reason::default()).await;
            within(process, &key, change).await.unwrap()
        };
        let (one, two, three) = tokio::join!(change("paid", 1), change("paid", 2), change("cancelled", 1));
        let all = [one, two, three];
        let changed = all.iter().filter(|moved| matches!(moved, Moved::Changed { .. })).count();
        assert_eq!(changed, 1, "round {round}: {all:?}");
        let state = bank.sql(&format!("SELECT state FROM orders WHERE id = '{order}'"));
        let mails = bank.sql(&format!("SELECT count(*) FROM mails WHERE order_id = '{order}'"));
        assert_eq!(mails, if state == "paid" { "1" } else { "0" }, "round {round}");
    }
}

/// A transaction that read something before another one changed the state is told what is so now. MySQL's plain reads
/// come from the moment of the first one.
async fn transition_after_a_snapshot<B: Bank>(bank: &B, process: &Process<B>) {
    if bank.url().starts_with("sqlite") {
        return; // Its transactions exclude each other from the start.
    }
    bank.sql("INSERT INTO orders VALUES ('s-1', 'placed')");
    let late = async |tx: &mut Tx<B>| {
        tx.fetch("SELECT count(*) FROM orders", &[]).await?;
        bank.sql("UPDATE orders SET state = 'paid' WHERE id = 's-1'");
        transition(tx, ORDERS, Value::Text("s-1"), "placed", "paid").await
    };
    assert_eq!(within(process, "snapshot", late).await.unwrap(), Transition::AlreadyThere);
}

async fn upserts<B: Bank>(process: &Process<B>) {
    let set = async |key: &str, cents: Option<i64>, currency: &str| {
        let write = async |tx: &mut Tx<B>| {
            let row = [("cents", Value::Int(cents)), ("currency", Value::Text(currency))];
            upsert(tx, "prices", ("sku", Value::Text("sku-1")), &row).await
        };
        within(process, key, write).await.unwrap()
    };
    assert_eq!(set("u-1", Some(100), "eur").await, Upserted::Inserted);
    assert_eq!(set("u-2", Some(100), "eur").await, Upserted::Unchanged);
    assert_eq!(set("u-3", Some(120), "eur").await, Upserted::Changed);
    assert_eq!(set("u-4", Some(120), "EUR").await, Upserted::Changed);
    assert_eq!(set("u-5", None, "EUR").await, Upserted::Changed);
    assert_eq!(set("u-6", None, "EUR").await, Upserted::Unchanged);
    for round in 0..10 {
        let cents = Some(1_000 + round);
        let (one, two) = (format!("u-{round}-one"), format!("u-{round}-two"));
        let both = tokio::join!(set(&one, cents, "EUR"), set(&two, cents, "EUR"));
        let changed = [both.0, both.1].iter().filter(|one| **one == Upserted::Changed).count();
        assert_eq!(changed, 1, "round {round}: {both:?}");
    }
    let key_in_row = async |tx: &mut Tx<B>| {
        upsert(tx, "prices", ("sku", Value::Text("a")), &[("sku", Value::Text("b"))]).await
    };
    assert!(within(process, "u-key", key_in_row).await.is_err());
}

/// Every condition, on a row that is there and on one that is not, for both kinds of tag.
async fn conditions<B: Bank>(bank: &B, process: &Process<B>) {
    for of in [DOCUMENTS, NOTES] {
        let write = async |name: &str, condition: If<'_>, body: &str| {
            let key = format!("{}-{name}", of.table);
            let change = [("body", Value::Text(body))];
            let write =
                async |tx: &mut Tx<B>| versioned(tx, of, Value::Text("c-1"), condition, &change).await;
            within(process, &key, write).await.unwrap()
        };
        let now = |written: Written| match written {
            Written::Now(tag) => tag,
            Written::Conflict(current) => panic!("a conflict with {current:?}"),
        };
        assert_eq!(write("no-row", If::Match(&["1"]), "a").await, Written::Conflict(None));
        assert_eq!(write("no-row-any", If::Exists, "a").await, Written::Conflict(None));
        let first = now(write("make", If::Absent, "a").await);
        assert_eq!(write("make-again", If::Absent, "b").await, Written::Conflict(Some(first.clone())));
        let second = now(write("match", If::Match(&["nonsense", &first]), "c").await);
        assert_ne!(first, second);
        assert_eq!(write("stale", If::Match(&[&first]), "d").await, Written::Conflict(Some(second.clone())));
        assert_eq!(write("none", If::Match(&[]), "d").await, Written::Conflict(Some(second.clone())));
        let padded = format!("0{second}");
        assert_eq!(
            write("padded", If::Match(&[&padded]), "d").await,
            Written::Conflict(Some(second.clone()))
        );
        // Tags are compared by their bytes, whatever the collation of the column.
        let spelt = second.to_uppercase();
        if spelt != second {
            let other = write("spelt", If::Match(&[&spelt]), "d").await;
            assert_eq!(other, Written::Conflict(Some(second.clone())));
        }
        let third = now(write("any", If::Exists, "e").await);
        assert!(third != second && third != first);
        // A row that is deleted and made again has no tag of its previous life: an editor of that life conflicts.
        bank.sql(&format!("DELETE FROM {} WHERE id = 'c-1'", of.table));
        let remade = now(write("make-once-more", If::Absent, "f").await);
        for stale in [first, second, third] {
            let late = write(&format!("late-{stale}"), If::Match(&[&stale]), "g").await;
            assert_eq!(late, Written::Conflict(Some(remade.clone())));
        }
    }
    let many = vec!["1"; 1_000];
    let write =
        async |tx: &mut Tx<B>| versioned(tx, DOCUMENTS, Value::Text("c-1"), If::Match(&many), &[]).await;
    let error = within(process, "many", write).await.unwrap_err().to_string();
    assert!(error.contains("1000 tags in one condition"), "{error}");
}

/// Two editors that have seen the same version write at the same time: one of them wins, and the other is told of the
/// winner's version.
async fn editors<B: Bank>(bank: &B, process: &Process<B>) {
    let rounds = if std::env::var_os("ONCEWARD_LONG").is_some() { 10_000 } else { 300 };
    let other = Process::new(bank, "two").await;
    bank.sql("INSERT INTO documents VALUES ('d', 1, 'start')");
    for round in 1..=rounds {
        let seen = round.to_string();
        let edit = async |process: &Process<B>, name: &str| {
            let (key, body) = (format!("edit-{round}-{name}"), format!("{round} by {name}"));
            let change = [("body", Value::Text(&body))];
            let write = async |tx: &mut Tx<B>| {
                versioned(tx, DOCUMENTS, Value::Text("d"), If::Match(&[&seen]), &change).await
            };
            within(process, &key, write).await.unwrap()
        };
        let next = (round + 1).to_string();
        let (won, lost) = (Written::Now(next.clone()), Written::Conflict(Some(next)));
        let winner = match tokio::join!(edit(process, "one"), edit(&other, "two")) {
            (one, two) if one == won && two == lost => "one",
            (one, two) if two == won && one == lost => "two",
            both => panic!("round {round}: {both:?}"),
        };
        let body = bank.sql("SELECT body FROM documents WHERE id = 'd'");
        assert_eq!(body, format!("{round} by {winner}"));
    }
}

on_every_engine!(on);
