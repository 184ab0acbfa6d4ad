//! Many overlapping transactions with random keys, savepoints and rollbacks, that change the business row before or after
//! they add their messages. Messages must be in the order of the changes: no inversion, no loss, nothing stuck. Several
//! keys share a lane, so that a lane is written to by transactions that have no row in common.

use std::collections::HashMap;

use onceward_flows::{MemoryPublisher, Message, Outbox, Outgoing};
use onceward_stores::sql::{Dialect, SqlTransaction};
use sqlx::Connection;
use tokio::sync::oneshot;

use super::{Db, Engine, SharedDb, on_every_engine};
use crate::relay::publishing::Running;
use crate::support::Random;

on_every_engine!(what_is_published_is_in_the_order_of_the_changes, nothing_appears_behind_a_reader);

const LANES: u64 = 3;
const KEYS_OF_LANE: usize = 2;
const WRITERS: u64 = 6;

/// When a transaction changes the business row, seen from its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Before,
    After,
}

fn lane(key: &str) -> u32 {
    Outgoing::new(Message::new("t", "").with_ordering_key(key), 0).partition(1024)
}

/// The keys, those of a lane side by side.
fn keys() -> Vec<String> {
    let mut keys = Vec::new();
    for first in 0..LANES {
        let lane_of_first = lane(&format!("k{first}"));
        let all = (0..).map(|n| if n == 0 { format!("k{first}") } else { format!("k{first}-{n}") });
        keys.extend(all.filter(|key| lane(key) == lane_of_first).take(KEYS_OF_LANE));
    }
    keys
}

fn rounds() -> usize {
    if std::env::var_os("ONCEWARD_LONG").is_some() { 1_000 } else { 40 }
}

async fn prepare<E: Engine>() -> Option<SharedDb<E>> {
    let db = Db::<E>::fresh().await?;
    db.sql("CREATE TABLE entities (name varchar(20) PRIMARY KEY, version bigint NOT NULL)").await;
    db.sql("CREATE TABLE changes (message varchar(40) PRIMARY KEY, version bigint NOT NULL)").await;
    for key in keys() {
        db.sql(&format!("INSERT INTO entities VALUES ('{key}', 0)")).await;
    }
    Some(SharedDb::new(db))
}

/// Fails if the messages, in this order, are not all changes of their keys in the order in which they were made.
async fn check<E: Engine>(db: &Db<E>, messages: impl IntoIterator<Item = (String, String)>) {
    let (mut last, mut count) = (HashMap::<String, u64>::new(), 0);
    for (key, id) in messages {
        let version = db.sql(&format!("SELECT version FROM changes WHERE message = '{id}'")).await;
        let version: u64 = version.parse().expect("an invented message");
        let last = last.entry(key.clone()).or_default();
        assert_eq!(version, *last + 1, "an inversion, a loss or a copy in {key}");
        *last = version;
        count += 1;
    }
    assert_eq!(db.sql("SELECT count(*) FROM changes").await, count.to_string(), "lost messages");
}

async fn what_is_published_is_in_the_order_of_the_changes<E: Engine>() {
    let Some(db) = prepare::<E>().await else { return };
    let (outbox, publisher) = (Outbox::new(), MemoryPublisher::new());
    let relays = [(); 2].map(|()| Running::start(&db.tables, &outbox, publisher.clone()));
    write_all(&db, &outbox).await;
    relays[0].relay.drained().await.unwrap();
    let key_and_id =
        |message: &Message| (message.ordering_key().unwrap().to_owned(), message.id().to_owned());
    check(&db, publisher.published().iter().map(key_and_id)).await;
    for relay in relays {
        relay.stop().await;
    }
}

/// It goes on behind the last position of each lane, as a relay does, and never looks back.
async fn nothing_appears_behind_a_reader<E: Engine>() {
    let Some(db) = prepare::<E>().await else { return };
    let (stop, stopped) = oneshot::channel();
    let reader = tokio::spawn(read(db.clone(), stopped));
    write_all(&db, &Outbox::new()).await;
    stop.send(()).unwrap();
    check(&db, reader.await.unwrap()).await;
}

async fn read<E: Engine>(db: SharedDb<E>, mut stopped: oneshot::Receiver<()>) -> Vec<(String, String)> {
    let (keys, mut read) = (keys(), Vec::new());
    let mut last: HashMap<u32, String> =
        keys.iter().step_by(KEYS_OF_LANE).map(|key| (lane(key), "0".to_owned())).collect();
    loop {
        let is_last = stopped.try_recv().is_ok();
        for (lane, last) in &mut last {
            loop {
                let next = format!(
                    "SELECT position, ordering_key, id FROM onceward_outbox WHERE lane = {lane} AND position > {last}
                    ORDER BY position LIMIT 1"
                );
                let row = db.sql(&next).await;
                let mut cells = row.split('|').map(str::to_owned);
                let (Some(position), Some(key), Some(id)) = (cells.next(), cells.next(), cells.next()) else {
                    break;
                };
                *last = position;
                read.push((key, id));
            }
        }
        if is_last {
            return read;
        }
    }
}

async fn write_all<E: Engine>(db: &SharedDb<E>, outbox: &Outbox) {
    let writers: Vec<_> =
        (0..WRITERS).map(|seed| tokio::spawn(write(db.clone(), outbox.clone(), seed))).collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

async fn write<E: Engine>(db: SharedDb<E>, outbox: Outbox, seed: u64) {
    let (mut random, all) = (Random(seed), keys());
    for _ in 0..rounds() {
        let pick =
            |random: &mut Random| all[usize::try_from(random.below(all.len() as u64)).unwrap()].as_str();
        let keys = [pick(&mut random), pick(&mut random)];
        let keys = if keys[0] == keys[1] { &keys[..1] } else { &keys[..] };
        let change = if random.below(2) == 0 { Change::Before } else { Change::After };
        let roll_back = random.below(5) == 0;
        // Rows and lanes are locked in both orders here: what the database undoes is repeated.
        while !transaction(&db, &outbox, &mut random, keys, change, roll_back).await {}
    }
}

/// Returns whether it ended as it should; otherwise the database undid it.
async fn transaction<E: Engine>(
    db: &Db<E>,
    outbox: &Outbox,
    random: &mut Random,
    keys: &[&str],
    change: Change,
    roll_back: bool,
) -> bool {
    let mut tx = db.begin().await;
    if tx.dialect() == Dialect::Postgres {
        tx.fetch("SET LOCAL deadlock_timeout = '20ms'", &[]).await.unwrap();
    }
    let messages: Vec<Message> =
        keys.iter().map(|key| Message::new("t", "").with_ordering_key(*key)).collect();
    if change == Change::Before && !write_changes(&mut tx, &messages).await {
        return false;
    }
    if random.below(3) == 0 {
        let mut savepoint = tx.begin().await.unwrap();
        let undone = messages.iter().map(|message| message.clone().with_id("undone"));
        if outbox.add_all(&mut savepoint, undone.collect::<Vec<_>>()).await.is_err() {
            return false;
        }
        savepoint.rollback().await.unwrap();
    }
    let Ok(wake) = outbox.add_all(&mut tx, messages.clone()).await else { return false };
    for _ in 0..random.below(10) {
        tx.fetch("SELECT 1", &[]).await.unwrap();
    }
    if change == Change::After && !write_changes(&mut tx, &messages).await {
        return false;
    }
    if roll_back {
        tx.rollback().await.unwrap();
    } else {
        tx.commit().await.unwrap();
        wake.fire();
    }
    true
}

/// Changes the business row of each message, and notes which version that made.
async fn write_changes(tx: &mut impl SqlTransaction, messages: &[Message]) -> bool {
    for message in messages {
        let (key, id) = (message.ordering_key().unwrap(), message.id());
        let statements = [
            format!("UPDATE entities SET version = version + 1 WHERE name = '{key}'"),
            format!("INSERT INTO changes SELECT '{id}', version FROM entities WHERE name = '{key}'"),
        ];
        for statement in statements {
            if tx.fetch(&statement, &[]).await.is_err() {
                return false;
            }
        }
    }
    true
}
