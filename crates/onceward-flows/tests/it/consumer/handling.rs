//! One consumer: effects, duplicates, retries, bad messages.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use onceward_flows::{Failure, Message, NatsPublisher, NatsSource, Outgoing, Publisher, Received};
use onceward_stores::sql::postgres::PostgresTx;

use super::{Running, Stock, locally, note, order};
use crate::servers::Nats;

#[tokio::test]
async fn without_a_broker_every_message_has_one_effect_in_order() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let consumer = stock.consumer();
        stock.commit((0..30).map(|n| order("a", n))).await;
        let running = Running::start(&consumer);
        stock.commit((0..30).map(|n| order("b", n))).await;
        let expected: Vec<String> = (0..30).map(|n| n.to_string()).collect();
        for key in ["a", "b"] {
            stock.until_effects(key, &expected.join(" ")).await;
        }
        stock.until("SELECT count(*) FROM onceward_outbox", "0").await;
        running.stop().await;
        assert_eq!(consumer.counts().handled, 60);
        let written = "SELECT count(*), count(*) FILTER (WHERE updated > created) FROM onceward_receipts";
        assert_eq!(stock.database.sql(written), "60|0", "each receipt is written once, as done");
        let free =
            "SELECT count(*) FROM onceward_parts WHERE owner IS NULL AND flow = 'consumer:outbox/stock'";
        assert_eq!(stock.database.sql(free), "4");
    })
    .await;
}

/// The runtime moves its future between threads, which takes that it is `Send` where its handler is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_can_be_spawned() {
    let Some(stock) = Stock::fresh().await else { return };
    let consumer = stock.consumer();
    stock.commit((0..10).map(|n| order("a", n))).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let handler = async |received: Received, tx: PostgresTx| note(&received, &tx).await;
    let handling =
        tokio::spawn(async move { consumer.handle_until(async { drop(stopped.await) }, handler).await });
    stock.until_effects("a", "0 1 2 3 4 5 6 7 8 9").await;
    stop.send(()).unwrap();
    handling.await.unwrap().unwrap();
}

#[tokio::test]
async fn from_nats_a_replay_of_everything_has_no_second_effect() {
    locally(async {
        let (Some(stock), Some(nats)) = (Stock::fresh().await, Nats::shared()) else { return };
        let context = crate::nats::stream(&nats.url(), "replay").await;
        let publisher = NatsPublisher::new(context.clone(), "replay", 4).unwrap();
        for n in 0..20 {
            let batch = ["a", "b"].map(|key| Outgoing::new(order(key, n), n));
            for result in publisher.publish(&batch).await {
                result.unwrap();
            }
        }
        let consumer = stock.consumer_of(NatsSource::new(context, "replay", "replay", 4).unwrap());
        let expected: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let running = Running::start(&consumer);
        stock.until_effects("a", &expected.join(" ")).await;
        stock.until_effects("b", &expected.join(" ")).await;
        running.stop().await;
        assert_eq!(
            stock.database.sql("SELECT max(position) FROM onceward_parts"),
            "40",
            "the last in the stream"
        );
        stock.database.sql("UPDATE onceward_parts SET position = 0");
        let running = Running::start(&consumer);
        while consumer.counts().duplicates < 40 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        running.stop().await;
        assert_eq!(consumer.counts().handled, 40);
        assert_eq!(stock.effects("a"), expected.join(" "));
    })
    .await;
}

#[tokio::test]
async fn a_broker_that_was_away_is_read_again() {
    locally(async {
        let (Some(stock), Some(mut nats)) = (Stock::fresh().await, Nats::start()) else { return };
        let context = crate::nats::stream(&nats.url(), "away").await;
        let publisher = NatsPublisher::new(context.clone(), "away", 1).unwrap();
        let consumer = stock.consumer_of(NatsSource::new(context, "away", "away", 1).unwrap());
        let running = Running::start(&consumer);
        let mut expected = Vec::new();
        for n in 0..4 {
            // Until it is confirmed: the client may not have noticed yet that the server is back.
            let batch = [Outgoing::new(order("a", n), n)];
            while publisher.publish(&batch).await[0].is_err() {}
            expected.push(n.to_string());
            stock.until_effects("a", &expected.join(" ")).await;
            // The server forgets the reader, which is waiting for the answer to a request.
            nats.kill();
            nats.up();
        }
        running.stop().await;
    })
    .await;
}

#[tokio::test]
async fn what_fails_is_tried_again_before_its_successors_and_holds_up_no_other_key() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let consumer = stock.consumer();
        stock.commit([order("a", 1), order("a", 2), order("b", 1)]).await;
        let seen: Rc<RefCell<HashMap<String, u32>>> = Rc::default();
        let tries = seen.clone();
        let running = Running::start_with(&consumer, move |received: Received, tx: PostgresTx| {
            let tries = tries.clone();
            async move {
                note(&received, &tx).await?; // rolled back with the failure
                let name =
                    format!("{}{:?}", received.message.ordering_key().unwrap(), received.message.payload());
                let attempts = { *tries.borrow_mut().entry(name).and_modify(|n| *n += 1).or_insert(1) };
                assert_eq!(attempts, received.tries + 1);
                match (received.message.ordering_key(), &received.message.payload()[..], attempts) {
                    (Some("a"), b"1", 1) => Err(Failure::transient("not yet")),
                    (Some("a"), b"1", 2) => panic!("a bug"),
                    _ => Ok(()),
                }
            }
        });
        stock.until_effects("a", "1 2").await;
        stock.until_effects("b", "1").await;
        running.stop().await;
        assert_eq!(seen.borrow().values().sum::<u32>(), 5);
        assert_eq!(consumer.counts().failed, 2);
        assert_eq!(stock.database.sql("SELECT count(*) FROM onceward_tries"), "0");
    })
    .await;
}

#[tokio::test]
async fn a_graceful_stop_finishes_what_is_in_flight() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let consumer = stock.consumer();
        let (begun, go_on) = (Rc::new(tokio::sync::Notify::new()), Rc::new(tokio::sync::Notify::new()));
        let (inside, waits) = (begun.clone(), go_on.clone());
        let running = Running::start_with(&consumer, move |received: Received, tx: PostgresTx| {
            let (inside, waits) = (inside.clone(), waits.clone());
            async move {
                note(&received, &tx).await?;
                inside.notify_one();
                waits.notified().await;
                Ok(())
            }
        });
        stock.commit([order("a", 1)]).await;
        begun.notified().await;
        let stopping = tokio::task::spawn_local(running.stop());
        tokio::task::yield_now().await;
        go_on.notify_one();
        stopping.await.unwrap();
        assert_eq!(stock.effects("a"), "1");
        assert_eq!(stock.database.sql("SELECT count(*) FROM onceward_outbox"), "0");
    })
    .await;
}

#[tokio::test]
async fn foreign_and_malformed_messages_are_kept() {
    locally(async {
        let (Some(stock), Some(nats)) = (Stock::fresh().await, Nats::shared()) else { return };
        let context = crate::nats::stream(&nats.url(), "foreign").await;
        // Without an id: its place in the stream is its id. With a poisoned one: it is a dead letter, with its payload.
        context.publish("foreign.0.orders", "no id".into()).await.unwrap().await.unwrap();
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Nats-Msg-Id", "a b");
        context.publish_with_headers("foreign.0.orders", headers, "bad id".into()).await.unwrap().await.unwrap();
        let consumer = stock.consumer_of(NatsSource::new(context.clone(), "foreign", "foreign", 1).unwrap());
        let running = Running::start(&consumer);
        stock.until_effects("none", "no id").await;
        assert_eq!(stock.database.sql("SELECT id FROM effects"), "foreign:1");
        let dead = "SELECT message_id || ' ' || convert_from(payload, 'UTF8') || ' ' || error FROM onceward_dead_letters";
        let start = "foreign:2 bad id the message id contains byte 0x20";
        while !stock.database.sql(dead).starts_with(start) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Too long, and with a key: the next one of the key waits behind it.
        for size in [1_000_000, 1] {
            let mut headers = async_nats::HeaderMap::new();
            headers.insert("Onceward-Ordering-Key", "k");
            headers.insert("trace", "7");
            let payload = vec![b'x'; size].into();
            context.publish_with_headers("foreign.0.orders", headers, payload).await.unwrap().await.unwrap();
        }
        let of_k = "SELECT string_agg(topic || ' ' || state || ' ' || length(payload) || ' ' || headers, ', ' ORDER BY number)
            FROM onceward_dead_letters WHERE ordering_key = 'k'";
        let trace = "{\"trace\":\"7\"}";
        let expected = format!("orders dead 1000000 {trace}, orders behind 1 {trace}");
        stock.until(of_k, &expected).await;
        running.stop().await;
    })
    .await;
}

#[tokio::test]
async fn another_content_under_the_same_id_is_a_dead_letter() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        stock
            .commit([order("a", 1).with_id("m"), order("a", 1).with_id("m"), order("a", 2).with_id("m")])
            .await;
        let consumer = stock.consumer();
        let running = Running::start(&consumer);
        stock
            .until("SELECT count(*) FROM onceward_dead_letters WHERE error LIKE 'another message%'", "1")
            .await;
        assert_eq!((stock.effects("a"), consumer.counts().duplicates), ("1".to_owned(), 1));
        running.stop().await;
    })
    .await;
}

#[tokio::test]
async fn sources_that_do_not_fit_are_refused_at_the_start() {
    locally(async {
        let (Some(stock), Some(nats)) = (Stock::fresh().await, Nats::shared()) else { return };
        let context = crate::nats::stream(&nats.url(), "unfit").await;
        let refused = async |source: NatsSource, retention: Duration, what: &str| {
            let mut options = super::options();
            let keep = onceward::Retention::For(retention);
            options.policy = options.policy.to_builder().with_retention(keep).build().unwrap();
            let consumer = stock.consumer_of(source).with_options(options);
            let handler = async |_: Received, _: PostgresTx| Ok(());
            let error = consumer.handle_until(std::future::ready(()), handler).await.unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        };
        let source =
            |stream: &str, partitions| NatsSource::new(context.clone(), stream, stream, partitions).unwrap();
        let week = Duration::from_hours(24 * 7);
        refused(source("unfit", 4), Duration::from_hours(1), "could run an effect twice").await;
        refused(source("missing", 4), week, "no stream `missing`").await;
        let publisher = NatsPublisher::new(context.clone(), "unfit", 4).unwrap();
        let batch: Vec<Outgoing> = (0..8).map(|n| Outgoing::new(Message::new("t", ""), n)).collect();
        for result in publisher.publish(&batch).await {
            result.unwrap();
        }
        refused(source("unfit", 1), week, "they would never be handled").await;
        let work_queue = async_nats::jetstream::stream::Config {
            name: "queue".into(),
            subjects: vec!["queue.>".into()],
            retention: async_nats::jetstream::stream::RetentionPolicy::WorkQueue,
            ..Default::default()
        };
        context.create_stream(work_queue).await.unwrap();
        refused(source("queue", 4), week, "make one with `limits`").await;
        // Another number of partitions than before.
        let consumer = stock.consumer_of(source("unfit", 4));
        let handler = async |_: Received, _: PostgresTx| Ok(());
        consumer.handle_until(std::future::ready(()), handler).await.unwrap();
        refused(source("unfit", 8), week, "was divided into 4 parts").await;
    })
    .await;
}
