//! Relays share the lanes, and go on when one of them is gone; what is refused holds up its own key only.

use onceward_flows::{MemoryPublisher, Message, Outbox};

use super::{Db, Engine, on_every_engine};
use crate::relay::publishing::{Running, check_order, numbered};

on_every_engine!(relays_share_lanes_and_take_over_from_the_dead, a_bad_topic_holds_up_its_own_key_only);

const OWNED: &str =
    "SELECT count(DISTINCT owner) FROM onceward_parts WHERE flow = 'relay' AND owner IS NOT NULL";

async fn relays_share_lanes_and_take_over_from_the_dead<E: Engine>() {
    let Some(db) = Db::<E>::fresh().await else { return };
    let (outbox, publisher) = (Outbox::new(), MemoryPublisher::new());
    let start = || Running::start(&db.tables, &outbox, publisher.clone());
    let (first, second) = (start(), start());
    db.until(OWNED, "2").await;
    for number in 0..20 {
        db.commit(&outbox, numbered(20, number + 1).skip(20 * number)).await;
    }
    first.kill();
    for number in 20..40 {
        db.commit(&outbox, numbered(20, number + 1).skip(20 * number)).await;
    }
    second.relay.drained().await.unwrap();
    check_order(&publisher.published(), 40);
    db.until("SELECT count(*) FROM onceward_parts WHERE owner IS NOT NULL", "64").await;
    db.until(OWNED, "1").await;
    assert!(second.relay.counts().takeovers > 0);
    second.stop().await;
    assert_eq!(db.sql("SELECT count(*) FROM onceward_parts WHERE owner IS NOT NULL").await, "0");
    assert_eq!(db.sql("SELECT count(*) FROM onceward_members").await, "0");
}

async fn a_bad_topic_holds_up_its_own_key_only<E: Engine>() {
    let Some(db) = Db::<E>::fresh().await else { return };
    let (outbox, publisher) = (Outbox::new(), MemoryPublisher::new());
    publisher.refuse_topic("bad");
    let message = |topic: &str, key: &str| Message::new(topic.to_owned(), "").with_ordering_key(key);
    db.commit(&outbox, [message("bad", "k"), message("good", "k"), message("good", "other")]).await;
    let running = Running::start(&db.tables, &outbox, publisher.clone());
    while publisher.published().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    while running.relay.counts().failed < 3 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(publisher.published().len(), 1, "the successor of a refused message waits");
    while db.tables.backlog().await.unwrap().messages != 2 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    publisher.accept_topic("bad");
    running.relay.drained().await.unwrap();
    let topics: Vec<_> = publisher.published().iter().map(|message| message.topic().to_owned()).collect();
    assert_eq!(topics, ["good", "bad", "good"]);
    running.stop().await;
}
