//! The same traffic through our outbox and through a hand-written one: rows in the order of their ids, taken by two
//! relays with `FOR UPDATE SKIP LOCKED`. The second one must show inversions, so that the test is known to see them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use onceward_flows::{MemoryPublisher, Message, Outbox};
use tokio_postgres::Client;

use super::publishing::Running;
use crate::support::{Database, connect};

const WRITERS: usize = 4;
const ROUNDS: usize = 100;
const KEYS: usize = 3;

/// How many messages were published after a later one of the same key.
fn inversions<'a>(published: impl Iterator<Item = (&'a str, u64)>) -> (usize, usize) {
    let mut last: HashMap<&str, u64> = HashMap::new();
    let (mut inverted, mut count) = (0, 0);
    for (key, version) in published {
        let last = last.entry(key).or_insert(0);
        inverted += usize::from(version < *last);
        *last = version.max(*last);
        count += 1;
    }
    (inverted, count)
}

/// Changes the entity of a key and returns its version, which the row lock puts in the order of the commits.
async fn change(tx: &tokio_postgres::Transaction<'_>, key: &str) -> i64 {
    let change = "UPDATE entities SET version = version + 1 WHERE key = $1 RETURNING version";
    tx.query_one(change, &[&key]).await.unwrap().get(0)
}

async fn prepare() -> Option<Database> {
    let database = Database::fresh().await?;
    database.sql(
        "CREATE TABLE entities (key text PRIMARY KEY, version bigint NOT NULL);
         INSERT INTO entities SELECT 'k' || generate_series(0, 2), 0;
         CREATE TABLE plain_outbox (id bigserial PRIMARY KEY, key text, version bigint)",
    );
    Some(database)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_written_outbox_inverts_and_ours_does_not() {
    let Some(database) = prepare().await else { return };
    let (outbox, publisher) = (Outbox::new(), MemoryPublisher::new());
    let relays = [(); 2].map(|()| Running::start(&database.tables, &outbox, publisher.clone()));
    let writers = (0..WRITERS).map(|writer| {
        let (url, outbox) = (database.url(), outbox.clone());
        tokio::spawn(async move {
            let mut client = connect(&url).await;
            for round in 0..ROUNDS {
                let key = format!("k{}", (writer + round) % KEYS);
                let mut tx = client.transaction().await.unwrap();
                let version = change(&tx, &key).await;
                let message = Message::new("t", version.to_string()).with_ordering_key(key);
                let wake = outbox.add_all(&mut tx, [message]).await.unwrap();
                tx.commit().await.unwrap();
                wake.fire();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    relays[0].relay.drained().await.unwrap();
    let ours = publisher.published();
    let number = |message: &Message| std::str::from_utf8(message.payload()).unwrap().parse().unwrap();
    let ours = inversions(ours.iter().map(|message| (message.ordering_key().unwrap(), number(message))));
    assert_eq!(ours, (0, WRITERS * ROUNDS));
    for relay in relays {
        relay.stop().await;
    }

    let theirs = Arc::new(Mutex::new(Vec::new()));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let url = database.url();
            tokio::spawn(async move {
                let mut client = connect(&url).await;
                for round in 0..ROUNDS {
                    let key = format!("k{}", (writer + round) % KEYS);
                    let tx = client.transaction().await.unwrap();
                    let version = change(&tx, &key).await;
                    let insert = "INSERT INTO plain_outbox (key, version) VALUES ($1, $2)";
                    tx.execute(insert, &[&key, &version]).await.unwrap();
                    tx.commit().await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let (one, two) = (database.client().await, database.client().await);
    tokio::join!(hand_written(one, &theirs), hand_written(two, &theirs));
    let theirs = theirs.lock().unwrap();
    let (inverted, count) =
        inversions(theirs.iter().map(|(key, version): &(String, u64)| (key.as_str(), *version)));
    assert_eq!(count, WRITERS * ROUNDS);
    println!(
        "the hand-written outbox published {inverted} of {count} messages after a later one of their key"
    );
    assert!(inverted > 0, "the test does not see inversions");
}

/// As many services have it: take a few rows, publish them, delete them, commit.
async fn hand_written(mut client: Client, published: &Mutex<Vec<(String, u64)>>) {
    loop {
        let tx = client.transaction().await.unwrap();
        let take = "SELECT id, key, version FROM plain_outbox ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED";
        let rows = tx.query(take, &[]).await.unwrap();
        if rows.is_empty()
            && tx.query_one("SELECT count(*) FROM plain_outbox", &[]).await.unwrap().get::<_, i64>(0) == 0
        {
            return;
        }
        for row in &rows {
            // A round trip to the broker.
            tx.query_one("SELECT 1", &[]).await.unwrap();
            published.lock().unwrap().push((row.get(1), row.get::<_, i64>(2).unsigned_abs()));
        }
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        tx.execute("DELETE FROM plain_outbox WHERE id = ANY($1)", &[&ids]).await.unwrap();
        tx.commit().await.unwrap();
    }
}
