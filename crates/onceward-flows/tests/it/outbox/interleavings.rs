//! Two transactions in every order that matters, forced step by step.

use onceward::Transactions;
use onceward_flows::{Message, Outbox};
use onceward_stores::sql::postgres::PostgresTransactions;
use tokio::task::JoinHandle;

use crate::support::Database;

/// The messages in the order in which a relay would read them within one lane.
const ORDER: &str = "SELECT string_agg(convert_from(payload, 'UTF8'), ' ' ORDER BY position) FROM onceward_outbox WHERE ordering_key = 'k'";

fn message(text: &str) -> Message {
    Message::new("t", text.to_owned()).with_ordering_key("k")
}

/// Returns when a transaction waits for a lane.
async fn until_one_waits(database: &Database) {
    let waiting = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
        WHERE d.datname = current_database() AND locktype = 'advisory' AND NOT granted";
    while database.sql(waiting) == "0" {
        tokio::task::yield_now().await;
    }
}

/// Adds a message in a transaction of its own and commits; in a task, because it may have to wait.
fn add_and_commit(database: &Database, text: &'static str) -> JoinHandle<()> {
    let url = database.url();
    tokio::spawn(async move {
        let mut client = crate::support::connect(&url).await;
        let mut tx = client.transaction().await.unwrap();
        let _ = Outbox::new().add_all(&mut tx, [message(text)]).await.unwrap();
        tx.commit().await.unwrap();
    })
}

#[tokio::test]
async fn the_second_writer_of_a_key_waits_for_the_end_of_the_first() {
    for first_commits in [true, false] {
        let Some(database) = Database::fresh().await else { return };
        let mut client = database.client().await;
        let mut first = client.transaction().await.unwrap();
        let _ = Outbox::new().add_all(&mut first, [message("first")]).await.unwrap();
        let second = add_and_commit(&database, "second");
        until_one_waits(&database).await;
        assert_eq!(database.sql("SELECT count(*) FROM onceward_outbox"), "0");
        if first_commits {
            first.commit().await.unwrap();
        } else {
            first.rollback().await.unwrap();
        }
        second.await.unwrap();
        assert_eq!(database.sql(ORDER), if first_commits { "first second" } else { "second" });
    }
}

/// A position that is drawn before the lock is granted would be lower than that of a message which is added, and committed,
/// while its transaction waits.
#[tokio::test]
async fn a_writer_that_waits_has_no_positions_yet() {
    // The plan must not matter: that of one call, or the one that a server keeps for a prepared statement.
    let plans = ["force_custom_plan", "force_generic_plan"];
    let waiting = [&["second"][..], &["second", "third"][..]];
    for (plan, waiting) in plans.into_iter().flat_map(|plan| waiting.map(|waiting| (plan, waiting))) {
        let Some(database) = Database::fresh().await else { return };
        let mut client = database.client().await;
        let mut first = client.transaction().await.unwrap();
        let _ = Outbox::new().add_all(&mut first, [message("first")]).await.unwrap();
        let url = database.url();
        let second = tokio::spawn(async move {
            let mut client = crate::support::connect(&url).await;
            client.batch_execute(&format!("SET plan_cache_mode = {plan}")).await.unwrap();
            let mut tx = client.transaction().await.unwrap();
            let messages = waiting.iter().map(|text| message(text));
            let _ = Outbox::new().add_all(&mut tx, messages).await.unwrap();
            tx.commit().await.unwrap();
        });
        until_one_waits(&database).await;
        let _ = Outbox::new().add_all(&mut first, [message("before"), message("them")]).await.unwrap();
        first.commit().await.unwrap();
        second.await.unwrap();
        assert_eq!(database.sql(ORDER), format!("first before them {}", waiting.join(" ")));
    }
}

#[tokio::test]
async fn a_connection_that_is_cut_frees_its_lane() {
    let Some(database) = Database::fresh().await else { return };
    let mut client = database.client().await;
    let mut first = client.transaction().await.unwrap();
    let _ = Outbox::new().add_all(&mut first, [message("first")]).await.unwrap();
    let second = add_and_commit(&database, "second");
    until_one_waits(&database).await;
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'idle in transaction'";
    assert_eq!(database.sql(cut), "1");
    second.await.unwrap();
    assert_eq!(database.sql(ORDER), "second");
}

#[tokio::test]
async fn another_key_does_not_wait() {
    let Some(database) = Database::fresh().await else { return };
    let (mut one, mut two) = (database.client().await, database.client().await);
    let mut first = one.transaction().await.unwrap();
    let _ = Outbox::new().add_all(&mut first, [message("first")]).await.unwrap();
    let mut second = two.transaction().await.unwrap();
    let other = Message::new("t", "second").with_ordering_key("another");
    let _ = Outbox::new().add_all(&mut second, [other]).await.unwrap();
    second.commit().await.unwrap();
    first.commit().await.unwrap();
    assert_eq!(database.sql("SELECT count(*) FROM onceward_outbox"), "2");
}

#[tokio::test]
async fn a_savepoint_that_is_rolled_back_takes_its_rows_and_frees_the_lane() {
    let Some(database) = Database::fresh().await else { return };
    let (outbox, mut client) = (Outbox::new(), database.client().await);
    let mut first = client.transaction().await.unwrap();
    let mut savepoint = first.savepoint("s").await.unwrap();
    let _ = outbox.add_all(&mut savepoint, [message("undone")]).await.unwrap();
    savepoint.rollback().await.unwrap();
    // Not in a task: it must not wait.
    add_and_commit(&database, "second").await.unwrap();
    let _ = outbox.add_all(&mut first, [message("first")]).await.unwrap();
    first.commit().await.unwrap();
    assert_eq!(database.sql(ORDER), "second first", "the order of the commits");
}

#[tokio::test]
async fn a_lane_that_was_locked_before_a_savepoint_stays_locked() {
    let Some(database) = Database::fresh().await else { return };
    let (outbox, mut client) = (Outbox::new(), database.client().await);
    let mut first = client.transaction().await.unwrap();
    let _ = outbox.add_all(&mut first, [message("kept")]).await.unwrap();
    let mut savepoint = first.savepoint("s").await.unwrap();
    let _ = outbox.add_all(&mut savepoint, [message("undone")]).await.unwrap();
    savepoint.rollback().await.unwrap();
    let second = add_and_commit(&database, "second");
    until_one_waits(&database).await;
    let _ = outbox.add_all(&mut first, [message("last")]).await.unwrap();
    first.commit().await.unwrap();
    second.await.unwrap();
    assert_eq!(database.sql(ORDER), "kept last second");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_in_opposite_orders_in_one_call_do_not_deadlock() {
    let Some(database) = Database::fresh().await else { return };
    let writer = |keys: [&'static str; 3]| {
        let url = database.url();
        tokio::spawn(async move {
            let mut client = crate::support::connect(&url).await;
            for _ in 0..100 {
                let mut tx = client.transaction().await.unwrap();
                let messages = keys.map(|key| Message::new("t", "").with_ordering_key(key));
                let _ = Outbox::new().add_all(&mut tx, messages).await.unwrap();
                tx.commit().await.unwrap();
            }
        })
    };
    let writers = [writer(["a", "b", "c"]), writer(["c", "b", "a"]), writer(["b", "c", "a"])];
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(database.sql("SELECT count(*) FROM onceward_outbox"), "900");
}

#[tokio::test]
async fn keys_in_opposite_orders_in_two_calls_deadlock_and_that_is_worth_repeating() {
    let Some(database) = Database::fresh().await else { return };
    let outbox = Outbox::new();
    let add = |key: &str| [Message::new("t", "").with_ordering_key(key)];
    let (mut one, mut two) = (database.client().await, database.client().await);
    let (mut first, mut second) = (one.transaction().await.unwrap(), two.transaction().await.unwrap());
    let _ = outbox.add_all(&mut first, add("a")).await.unwrap();
    let _ = outbox.add_all(&mut second, add("b")).await.unwrap();
    let (first, second) =
        tokio::join!(outbox.add_all(&mut first, add("b")), outbox.add_all(&mut second, add("a")));
    let error = match (first, second) {
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => error,
        both => panic!("one of them is undone: {both:?}"),
    };
    let transactions = PostgresTransactions::open(&database.url(), 1).unwrap();
    assert!(transactions.is_worth_repeating(&error), "{error}");
}
