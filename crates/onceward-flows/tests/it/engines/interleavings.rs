//! Two transactions in every order that matters, forced step by step.

use std::time::Duration;

use onceward_flows::{Advance, FirstVersion, Message, Outbox, advance, advance_to};
use sqlx::Connection;
use tokio::task::JoinHandle;

use super::{Db, Engine, on_every_engine};

on_every_engine!(
    the_second_writer_of_a_key_waits_for_the_end_of_the_first,
    another_key_does_not_wait,
    a_savepoint_that_is_rolled_back_takes_its_rows,
    a_lane_that_was_locked_before_a_savepoint_stays_locked,
    keys_in_opposite_orders_in_one_call_do_not_deadlock,
    keys_in_opposite_orders_in_two_calls_are_worth_repeating,
    everything_that_a_message_has_is_kept,
    versions_advance_with_the_transaction,
    of_two_first_versions_one_is_applied,
);

fn message(text: &str) -> Message {
    Message::new("t", text.to_owned()).with_ordering_key("k")
}

/// The payloads in the order of their positions.
async fn order<E: Engine>(db: &Db<E>) -> String {
    db.texts("onceward_outbox", "position", "payload", "ordering_key = 'k'").await
}

async fn until_one_waits<E: Engine>(db: &Db<E>) {
    let start = std::time::Instant::now();
    while db.sql(E::WAITING).await == "0" {
        assert!(start.elapsed().as_secs() < 30, "nobody waits");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// In a task, because it may have to wait.
fn add_and_commit<E: Engine>(db: &Db<E>, text: &'static str) -> JoinHandle<()> {
    let db = db.clone();
    tokio::spawn(async move { db.commit(&Outbox::new(), [message(text)]).await })
}

async fn the_second_writer_of_a_key_waits_for_the_end_of_the_first<E: Engine>() {
    for first_commits in [true, false] {
        let Some(db) = Db::<E>::fresh().await else { return };
        let mut first = db.begin().await;
        let _ = Outbox::new().add_all(&mut first, [message("first")]).await.unwrap();
        let second = add_and_commit(&db, "second");
        until_one_waits(&db).await;
        assert!(!second.is_finished());
        assert_eq!(db.sql("SELECT count(*) FROM onceward_outbox").await, "0");
        if first_commits {
            first.commit().await.unwrap();
        } else {
            first.rollback().await.unwrap();
        }
        second.await.unwrap();
        assert_eq!(order(&db).await, if first_commits { "first second" } else { "second" });
    }
}

async fn another_key_does_not_wait<E: Engine>() {
    if E::ONE_WRITER {
        return;
    }
    let Some(db) = Db::<E>::fresh().await else { return };
    let mut first = db.begin().await;
    let _ = Outbox::new().add_all(&mut first, [message("first")]).await.unwrap();
    let other = Message::new("t", "second").with_ordering_key("another");
    db.commit(&Outbox::new(), [other]).await;
    first.commit().await.unwrap();
    assert_eq!(db.sql("SELECT count(*) FROM onceward_outbox").await, "2");
}

/// If it was all that the transaction had done, the lane is free again: no rows are left that the lock protected.
async fn a_savepoint_that_is_rolled_back_takes_its_rows<E: Engine>() {
    let Some(db) = Db::<E>::fresh().await else { return };
    let (outbox, mut first) = (Outbox::new(), db.begin().await);
    let mut savepoint = first.begin().await.unwrap();
    let _ = outbox.add_all(&mut savepoint, [message("undone")]).await.unwrap();
    savepoint.rollback().await.unwrap();
    if !E::ONE_WRITER {
        add_and_commit(&db, "second").await.unwrap();
    }
    let _ = outbox.add_all(&mut first, [message("first")]).await.unwrap();
    first.commit().await.unwrap();
    let expected = if E::ONE_WRITER { "first" } else { "second first" };
    assert_eq!(order(&db).await, expected, "the order of the commits");
}

async fn a_lane_that_was_locked_before_a_savepoint_stays_locked<E: Engine>() {
    let Some(db) = Db::<E>::fresh().await else { return };
    let (outbox, mut first) = (Outbox::new(), db.begin().await);
    let _ = outbox.add_all(&mut first, [message("kept")]).await.unwrap();
    let mut savepoint = first.begin().await.unwrap();
    let _ = outbox.add_all(&mut savepoint, [message("undone")]).await.unwrap();
    savepoint.rollback().await.unwrap();
    let second = add_and_commit(&db, "second");
    until_one_waits(&db).await;
    let _ = outbox.add_all(&mut first, [message("last")]).await.unwrap();
    assert!(!second.is_finished());
    first.commit().await.unwrap();
    second.await.unwrap();
    assert_eq!(order(&db).await, "kept last second");
}

async fn keys_in_opposite_orders_in_one_call_do_not_deadlock<E: Engine>() {
    let Some(db) = Db::<E>::fresh().await else { return };
    let writer = |keys: [&'static str; 3]| {
        let db = db.clone();
        tokio::spawn(async move {
            for _ in 0..50 {
                let messages = keys.map(|key| Message::new("t", "").with_ordering_key(key));
                db.commit(&Outbox::new(), messages).await;
            }
        })
    };
    for writer in [writer(["a", "b", "c"]), writer(["c", "b", "a"]), writer(["b", "c", "a"])] {
        writer.await.unwrap();
    }
    assert_eq!(db.sql("SELECT count(*) FROM onceward_outbox").await, "450");
}

async fn keys_in_opposite_orders_in_two_calls_are_worth_repeating<E: Engine>() {
    if E::ONE_WRITER {
        return;
    }
    let Some(db) = Db::<E>::fresh().await else { return };
    let outbox = Outbox::new();
    let add = |key: &str| [Message::new("t", "").with_ordering_key(key)];
    let (mut first, mut second) = (db.begin().await, db.begin().await);
    let _ = outbox.add_all(&mut first, add("a")).await.unwrap();
    let _ = outbox.add_all(&mut second, add("b")).await.unwrap();
    let (first, second) =
        tokio::join!(outbox.add_all(&mut first, add("b")), outbox.add_all(&mut second, add("a")));
    let error = match (first, second) {
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => error,
        both => panic!("one of them is undone: {both:?}"),
    };
    let transactions = onceward_stores::sql::sqlx::SqlxTransactions::new(db.pool.clone());
    assert!(onceward::Transactions::is_worth_repeating(&transactions, &error), "{error}");
}

/// In the order of the call, whatever the size of the batch; and nothing is added by a call with a bad message in it.
async fn everything_that_a_message_has_is_kept<E: Engine>() {
    let Some(db) = Db::<E>::fresh().await else { return };
    let full = Message::new("a.b", vec![0, 1, 39, 92, 255])
        .with_ordering_key("Müller & Söhne")
        .with_header("trace", "00-ä ö");
    let many = (0..200).map(|number| message(&number.to_string()));
    let large = Message::new("large", vec![7; onceward_flows::PAYLOAD_BYTES_MAX]);
    db.commit(&Outbox::new(), [full.clone(), Message::new("none", "")].into_iter().chain(many)).await;
    db.commit(&Outbox::new(), vec![large; 20]).await;
    let publisher = onceward_flows::MemoryPublisher::new();
    let running = crate::relay::publishing::Running::start(&db.tables, &Outbox::new(), publisher.clone());
    running.relay.drained().await.unwrap();
    running.stop().await;
    let all = publisher.published();
    assert_eq!(all.len(), 222);
    assert!(all.contains(&full), "it is not as it was");
    assert!(all.iter().any(|message| message.topic() == "none" && message.ordering_key().is_none()));
    let texts: Vec<_> = all.iter().filter(|message| message.ordering_key() == Some("k")).collect();
    for (number, message) in texts.iter().enumerate() {
        assert_eq!(message.payload(), number.to_string().as_bytes());
    }
    let mut tx = db.begin().await;
    Outbox::new().add_all(&mut tx, [message("1"), Message::new("no topic", "")]).await.unwrap_err();
    tx.commit().await.unwrap();
    assert_eq!(db.sql("SELECT count(*) FROM onceward_outbox").await, "0");
}

async fn versions_advance_with_the_transaction<E: Engine>() {
    let Some(db) = Db::<E>::fresh().await else { return };
    let steps = [
        (1, Advance::Applied),
        (1, Advance::Duplicate),
        (3, Advance::Gap { expected: 2 }),
        (2, Advance::Applied),
        (1, Advance::Stale),
    ];
    for (version, expected) in steps {
        let mut tx = db.begin().await;
        assert_eq!(advance(&mut tx, "stock", "item-7", version, FirstVersion::One).await.unwrap(), expected);
        tx.commit().await.unwrap();
    }
    let mut tx = db.begin().await;
    assert_eq!(advance(&mut tx, "stock", "item-7", 3, FirstVersion::One).await.unwrap(), Advance::Applied);
    tx.rollback().await.unwrap();
    let mut tx = db.begin().await;
    assert_eq!(advance_to(&mut tx, "stock", "item-7", 9).await.unwrap(), Advance::Applied);
    assert_eq!(advance_to(&mut tx, "stock", "item-7", 5).await.unwrap(), Advance::Stale);
    tx.commit().await.unwrap();
    assert_eq!(db.sql("SELECT scope, version FROM onceward_versions").await, "stock|9");
}

async fn of_two_first_versions_one_is_applied<E: Engine>() {
    let Some(db) = Db::<E>::fresh().await else { return };
    let one = |db: Db<E>| async move {
        // Two that begin with the same row are undone in favour of each other at most: then again.
        loop {
            let mut tx = db.begin().await;
            if let Ok(advance) = advance(&mut tx, "stock", "item-7", 1, FirstVersion::One).await {
                tx.commit().await.unwrap();
                return format!("{advance:?}");
            }
        }
    };
    let (first, second) = tokio::join!(tokio::spawn(one(db.clone())), tokio::spawn(one(db.clone())));
    let mut both = [first.unwrap(), second.unwrap()];
    both.sort();
    assert_eq!(both, ["Applied", "Duplicate"]);
}
