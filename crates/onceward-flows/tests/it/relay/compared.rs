//! The same traffic through our outbox and through a hand-written one, each while two relays publish: rows in the order of
//! their ids, taken with `FOR UPDATE SKIP LOCKED`. The second one must show inversions, so that the test is known to see
//! them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use onceward_flows::{MemoryPublisher, Message, Outbox};
use tokio_postgres::Client;

use super::publishing::Running;
use crate::support::{Database, connect};

const WRITERS: usize = 4;
const ROUNDS: usize = 100;
const KEYS: usize = 3;

/// What is wrong with an order, by kind.
#[derive(Debug, Default, PartialEq, Eq)]
struct Inversions {
    messages: usize,
    /// Messages that were published when their predecessor was not: the order of the commits is not that of the numbers, or
    /// one relay overtook the other.
    too_early: usize,
    /// Messages that were published after a later one of their key.
    too_late: usize,
    /// Messages that were published a second time.
    copies: usize,
}

fn inversions<'a>(published: impl Iterator<Item = (&'a str, u64)>) -> Inversions {
    let mut all: HashMap<&str, BTreeSet<u64>> = HashMap::new();
    let mut found = Inversions::default();
    for (key, version) in published {
        let seen = all.entry(key).or_default();
        let last = seen.last().copied().unwrap_or(0);
        let is_copy = !seen.insert(version);
        found.copies += usize::from(is_copy);
        found.too_late += usize::from(!is_copy && version < last);
        found.too_early += usize::from(version > last + 1);
        found.messages += 1;
    }
    found
}

/// Changes the entity of a key, and notes the version that a message is about. The row lock puts versions in the order of
/// the commits.
async fn change(tx: &tokio_postgres::Transaction<'_>, key: &str, message: &str) {
    let change =
        "WITH changed AS (UPDATE entities SET version = version + 1 WHERE key = $1 RETURNING version)
        INSERT INTO changes SELECT $2, version FROM changed";
    tx.execute(change, &[&key, &message]).await.unwrap();
}

async fn prepare() -> Option<Database> {
    let database = Database::fresh().await?;
    database.sql(
        "CREATE TABLE entities (key text PRIMARY KEY, version bigint NOT NULL);
         INSERT INTO entities SELECT 'k' || generate_series(0, 2), 0;
         CREATE TABLE changes (message text PRIMARY KEY, version bigint NOT NULL);
         CREATE TABLE plain_outbox (id bigserial PRIMARY KEY, key text)",
    );
    Some(database)
}

/// Writers whose transactions insert the message first and change the row then, as an application does that records an event
/// and applies it. `insert` adds the message of a key to an outbox; what it is about is known only later, so the version is
/// noted beside it.
async fn write_all<F, W>(url: &str, insert: F)
where
    F: Fn(Client, String) -> W + Clone + Send + 'static,
    W: Future<Output = Client> + Send,
{
    let writers = (0..WRITERS).map(|writer| {
        let (url, insert) = (url.to_owned(), insert.clone());
        tokio::spawn(async move {
            let mut client = connect(&url).await;
            for round in 0..ROUNDS {
                client = insert(client, format!("k{}", (writer + round) % KEYS)).await;
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

/// The version that a message was about.
fn versions(database: &Database) -> HashMap<String, u64> {
    let all = database.sql("SELECT message || ' ' || version FROM changes");
    let version = |line: &str| {
        let (message, version) = line.split_once(' ').unwrap();
        (message.to_owned(), version.parse().unwrap())
    };
    all.lines().map(version).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_outbox_inverts_nothing() {
    let Some(database) = prepare().await else { return };
    let (outbox, publisher) = (Outbox::new(), MemoryPublisher::new());
    let relays = [(); 2].map(|()| Running::start(&database.tables, &outbox, publisher.clone()));
    write_all(&database.url(), move |mut client, key| {
        let outbox = outbox.clone();
        async move {
            let mut tx = client.transaction().await.unwrap();
            let message = Message::new("t", "").with_ordering_key(key.clone());
            let id = message.id().to_owned();
            let wake = outbox.add_all(&mut tx, [message]).await.unwrap();
            change(&tx, &key, &id).await;
            tx.commit().await.unwrap();
            wake.fire();
            client
        }
    })
    .await;
    relays[0].relay.drained().await.unwrap();
    let (ours, versions) = (publisher.published(), versions(&database));
    let found =
        inversions(ours.iter().map(|message| (message.ordering_key().unwrap(), versions[message.id()])));
    assert_eq!(found, Inversions { messages: WRITERS * ROUNDS, ..Inversions::default() });
    for relay in relays {
        relay.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_written_outbox_inverts() {
    let Some(database) = prepare().await else { return };
    let published = Arc::new(Mutex::new(Vec::new()));
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let relays = [(); 2].map(|()| {
        let (url, published, stopped) = (database.url(), published.clone(), stopped.clone());
        tokio::spawn(async move { hand_written(connect(&url).await, &published, stopped).await })
    });
    write_all(&database.url(), |mut client, key| async move {
        let tx = client.transaction().await.unwrap();
        let insert = "INSERT INTO plain_outbox (key) VALUES ($1) RETURNING id";
        let id: i64 = tx.query_one(insert, &[&key]).await.unwrap().get(0);
        change(&tx, &key, &id.to_string()).await;
        tx.commit().await.unwrap();
        client
    })
    .await;
    stop.send(true).unwrap();
    for relay in relays {
        relay.await.unwrap();
    }
    let (published, versions) = (published.lock().unwrap(), versions(&database));
    let found = inversions(
        published.iter().map(|(key, id): &(String, i64)| (key.as_str(), versions[&id.to_string()])),
    );
    println!(
        "the hand-written outbox published {} messages: {} before their predecessor, {} after a later one of their key, {} twice",
        found.messages, found.too_early, found.too_late, found.copies
    );
    assert_eq!(found.messages, WRITERS * ROUNDS);
    assert!(found.too_early > 0 && found.too_late > 0, "the test does not see inversions: {found:?}");
}

/// The check sees each kind.
#[test]
fn kinds_of_inversions_are_told_apart() {
    let found = |versions: &[u64]| inversions(versions.iter().map(|version| ("k", *version)));
    let kinds = |too_early, too_late, copies| Inversions { messages: 3, too_early, too_late, copies };
    assert_eq!(found(&[1, 2, 3]), kinds(0, 0, 0));
    assert_eq!(found(&[2, 1, 3]), kinds(1, 1, 0));
    assert_eq!(found(&[1, 1, 2]), kinds(0, 0, 1));
    assert_eq!(found(&[1, 3, 4]), kinds(1, 0, 0));
}

/// As many services have it: take a few rows, publish them, delete them, commit.
async fn hand_written(
    mut client: Client,
    published: &Mutex<Vec<(String, i64)>>,
    stopped: tokio::sync::watch::Receiver<bool>,
) {
    loop {
        let is_stopped = *stopped.borrow();
        let tx = client.transaction().await.unwrap();
        let take = "SELECT id, key FROM plain_outbox ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED";
        let rows = tx.query(take, &[]).await.unwrap();
        let rest = "SELECT count(*) FROM plain_outbox";
        if is_stopped && rows.is_empty() && tx.query_one(rest, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            return;
        }
        for row in &rows {
            // A round trip to the broker.
            tx.query_one("SELECT 1", &[]).await.unwrap();
            published.lock().unwrap().push((row.get(1), row.get(0)));
        }
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        tx.execute("DELETE FROM plain_outbox WHERE id = ANY($1)", &[&ids]).await.unwrap();
        tx.commit().await.unwrap();
    }
}
