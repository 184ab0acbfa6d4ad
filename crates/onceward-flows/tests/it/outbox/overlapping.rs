//! Many overlapping transactions with random keys, pauses, savepoints and rollbacks, beside a reader that goes on behind
//! the last position of each lane. Nothing may ever appear behind its back, and within a key positions must be in the
//! order in which the transactions changed the business row.

use std::collections::HashMap;

use onceward_flows::{Message, Outbox};
use tokio_postgres::Client;

use crate::support::{Database, Random};

const KEYS: u64 = 5;
const WRITERS: u64 = 8;

/// When a transaction changes the business row, seen from its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Before,
    After,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_appears_behind_a_reader_and_keys_are_in_commit_order() {
    let Some(database) = Database::fresh().await else { return };
    let rounds = if std::env::var_os("ONCEWARD_LONG").is_some() { 1_000 } else { 40 };
    database.sql(
        "CREATE TABLE entities (key text PRIMARY KEY, version bigint NOT NULL);
         CREATE TABLE changes (key text, version bigint, message text, PRIMARY KEY (key, version));
         ALTER DATABASE CURRENT_DATABASE SET deadlock_timeout = '20ms'"
            .replace("CURRENT_DATABASE", &database.name)
            .as_str(),
    );
    for key in 0..KEYS {
        database.sql(&format!("INSERT INTO entities VALUES ('k{key}', 0)"));
    }
    let writers: Vec<_> = (0..WRITERS)
        .map(|seed| {
            let url = database.url();
            tokio::spawn(async move { write(&url, seed, rounds).await })
        })
        .collect();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let reader = tokio::spawn(read(database.client().await, stopped));
    let mut committed = 0;
    for writer in writers {
        committed += writer.await.unwrap();
    }
    stop.send(()).unwrap();
    let seen = reader.await.unwrap();

    let inversions = "SELECT count(*) FROM (
            SELECT c.version, lag(c.version) OVER (PARTITION BY c.key ORDER BY o.position) AS before
            FROM onceward_outbox o JOIN changes c ON c.message = o.id) AS changes
        WHERE version < before";
    assert_eq!(database.sql(inversions), "0", "messages are not in the order of the changes");
    assert_eq!(database.sql("SELECT count(*) FROM changes"), committed.to_string());
    assert_eq!(
        database.sql("SELECT count(*) FROM onceward_outbox"),
        committed.to_string(),
        "lost or invented messages"
    );
    assert_eq!(seen, committed, "the reader has missed messages");
}

/// Returns how many changes were committed.
async fn write(url: &str, seed: u64, rounds: usize) -> usize {
    let (outbox, mut random) = (Outbox::new(), Random(seed));
    let mut client = crate::support::connect(url).await;
    let mut committed = 0;
    for _ in 0..rounds {
        let keys = [random.below(KEYS), random.below(KEYS)];
        let keys = if keys[0] == keys[1] { &keys[..1] } else { &keys[..] };
        let change = if random.below(2) == 0 { Change::Before } else { Change::After };
        let roll_back = random.below(5) == 0;
        // A deadlock is worth repeating: the business row and the lane are locked in both orders here.
        while !transaction(&mut client, &outbox, &mut random, keys, change, roll_back).await {}
        committed += if roll_back { 0 } else { keys.len() };
    }
    committed
}

/// Returns whether it ended as it should; otherwise the database undid it.
async fn transaction(
    client: &mut Client,
    outbox: &Outbox,
    random: &mut Random,
    keys: &[u64],
    change: Change,
    roll_back: bool,
) -> bool {
    let mut tx = client.transaction().await.unwrap();
    let messages: Vec<Message> =
        keys.iter().map(|key| Message::new("t", "").with_ordering_key(format!("k{key}"))).collect();
    if change == Change::Before && !write_changes(&tx, &messages).await {
        return false;
    }
    if random.below(3) == 0 {
        let mut savepoint = tx.savepoint("undone").await.unwrap();
        if outbox.add_all(&mut savepoint, messages.iter().map(|m| m.clone().with_id("undone"))).await.is_err()
        {
            return false;
        }
        savepoint.rollback().await.unwrap();
    }
    if outbox.add_all(&mut tx, messages.clone()).await.is_err() {
        return false;
    }
    if change == Change::After && !write_changes(&tx, &messages).await {
        return false;
    }
    for _ in 0..random.below(20) {
        tx.query_one("SELECT 1", &[]).await.unwrap();
    }
    if roll_back {
        tx.rollback().await.unwrap();
    } else {
        tx.commit().await.unwrap();
    }
    true
}

/// Changes the business row of each message, and notes which version that made.
async fn write_changes(tx: &tokio_postgres::Transaction<'_>, messages: &[Message]) -> bool {
    for message in messages {
        let change = "WITH changed AS (UPDATE entities SET version = version + 1 WHERE key = $1 RETURNING key, version)
            INSERT INTO changes SELECT key, version, $2 FROM changed";
        if tx.execute(change, &[&message.ordering_key().unwrap(), &message.id()]).await.is_err() {
            return false;
        }
    }
    true
}

/// Reads as a relay does: behind the last position of each lane, and never below it.
async fn read(client: Client, mut stopped: tokio::sync::oneshot::Receiver<()>) -> usize {
    let mut last: HashMap<i32, i64> = HashMap::new();
    let mut seen = 0;
    loop {
        let is_last = stopped.try_recv().is_ok();
        for row in client
            .query("SELECT lane, position FROM onceward_outbox ORDER BY lane, position", &[])
            .await
            .unwrap()
        {
            let (lane, position): (i32, i64) = (row.get(0), row.get(1));
            let last = last.entry(lane).or_insert(0);
            if position > *last {
                *last = position;
                seen += 1;
            }
        }
        if is_last {
            return seen;
        }
    }
}
