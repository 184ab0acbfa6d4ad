//! Several relays: they share the lanes, and go on when one of them is gone.

use std::time::Duration;

use onceward_flows::{MemoryPublisher, Outbox};

use super::publishing::{Running, check_order, commit, numbered};
use crate::support::Database;

const OWNERS: &str = "SELECT coalesce(string_agg(count::text, ' ' ORDER BY count), '') FROM (
    SELECT count(*) FROM onceward_parts WHERE flow = 'relay' AND owner IS NOT NULL GROUP BY owner) AS owners";

async fn until(database: &Database, owners: &str) {
    while database.sql(OWNERS) != owners {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_share_lanes_evenly_and_take_over_from_the_dead() {
    let Some(database) = Database::fresh().await else { return };
    let (outbox, publisher) = (Outbox::new(), MemoryPublisher::new());
    let start = || Running::start(&database.tables, &outbox, publisher.clone());
    let first = start();
    until(&database, "64").await;
    let second = start();
    until(&database, "32 32").await;
    let third = start();
    until(&database, "20 22 22").await;
    let (committing, killing) = (commit(&database, &outbox, numbered(20, 60)), async {
        while publisher.published().len() < 200 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        first.kill();
    });
    tokio::join!(committing, killing);
    second.relay.drained().await.unwrap();
    check_order(&publisher.published(), 60);
    until(&database, "32 32").await;
    second.stop().await;
    until(&database, "64").await;
    let takeovers = third.relay.counts().takeovers;
    assert!(takeovers <= 22, "{takeovers}: lanes that were released are no takeover");
    third.stop().await;
}
