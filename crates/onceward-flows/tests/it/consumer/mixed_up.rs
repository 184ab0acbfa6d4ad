//! What is easily mixed up: consumers of the same name, messages of the same id, arrivals during a drain, other
//! readers of the outbox.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use onceward::ErrorKind;
use onceward_flows::{
    Consumer, DeadLetterFilter, Failure, MemoryPublisher, Message, OutboxSource, Received, Relay,
};
use onceward_stores::sql::postgres::PostgresTx;
use tokio::sync::Notify;

use super::log::Log;
use super::{Running, Stock, locally, note, options, order};

const LETTERS: &str = "SELECT coalesce(string_agg(convert_from(payload, 'UTF8') || ' ' || state, ', ' ORDER BY ordering_key, number), '')
    FROM onceward_dead_letters";

/// A handler that refuses payloads that begin with `bad` for as long as the flag is set.
fn start_picky(consumer: &Consumer<super::PostgresTransactions>, is_broken: &Rc<Cell<bool>>) -> Running {
    let is_broken = is_broken.clone();
    Running::start_with(consumer, move |received: Received, tx: PostgresTx| {
        let is_broken = is_broken.clone();
        async move {
            note(&received, &tx).await?;
            if is_broken.get() && received.message.payload().starts_with(b"bad") {
                return Err(Failure::permanent("it is bad"));
            }
            Ok(())
        }
    })
}

#[tokio::test]
async fn consumers_of_the_same_name_over_two_sources_have_nothing_in_common() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let (orders, returns) = (Log::new("orders"), Log::new("returns"));
        let (of_orders, of_returns) = (stock.consumer_of(orders.clone()), stock.consumer_of(returns.clone()));
        let is_broken = Rc::new(Cell::new(true));
        let running = start_picky(&of_orders, &is_broken);
        orders.add(order("a", "bad").with_id("m"));
        stock.until(LETTERS, "bad dead").await;
        let other = Running::start(&of_returns);
        returns.add(order("a", "return").with_id("m"));
        stock.until_effects("a", "return").await;
        assert_eq!(
            of_returns.dead_letters().list(&DeadLetterFilter::default(), 0, 10).await.unwrap().len(),
            0
        );
        is_broken.set(false);
        assert!(!of_returns.dead_letters().retry("m").await.unwrap());
        assert!(of_orders.dead_letters().retry("m").await.unwrap());
        stock.until_effects("a", "return bad").await;
        running.stop().await;
        other.stop().await;
    })
    .await;
}

#[tokio::test]
async fn every_content_under_a_used_id_is_kept() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let (log, is_broken) = (Log::new("orders"), Rc::new(Cell::new(true)));
        let consumer = stock.consumer_of(log.clone());
        let running = start_picky(&consumer, &is_broken);
        // One that was handled, one that is a dead letter; after each, two others and a copy under its id.
        for (id, first) in [("done", "1"), ("dead", "bad1")] {
            log.add(order(id, first).with_id(id));
            for text in ["2", "3", first] {
                log.add(order(id, text).with_id(id));
            }
        }
        stock.until(LETTERS, "bad1 dead, 2 dead, 3 dead, 2 dead, 3 dead").await;
        while consumer.counts().duplicates < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(stock.effects("done"), "1");
        // After a retry each has its effect, once, also if all of it comes again.
        is_broken.set(false);
        consumer.dead_letters().retry_all(&DeadLetterFilter::default(), 1_000).await.unwrap();
        stock.until_effects("done", "1 2 3").await;
        stock.until_effects("dead", "bad1 2 3").await;
        running.stop().await;
        stock.database.sql("UPDATE onceward_parts SET position = 0");
        let again = stock.consumer_of(log.clone());
        let running = Running::start(&again);
        while again.counts().duplicates < 8 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        running.stop().await;
        assert_eq!(stock.database.sql(LETTERS), "");
        assert_eq!(stock.database.sql("SELECT count(*) FROM effects"), "6");
    })
    .await;
}

#[tokio::test]
async fn a_malformed_arrival_does_not_stop_a_drain() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let (log, is_broken) = (Log::new("orders"), Rc::new(Cell::new(true)));
        let consumer = stock.consumer_of(log.clone());
        let (begun, go_on) = (Rc::new(Notify::new()), Rc::new(Notify::new()));
        let (inside, waits, broken) = (begun.clone(), go_on.clone(), is_broken.clone());
        let running = Running::start_with(&consumer, move |received: Received, tx: PostgresTx| {
            let (inside, waits, broken) = (inside.clone(), waits.clone(), broken.clone());
            async move {
                if received.message.payload().starts_with(b"bad") {
                    if broken.get() {
                        return Err(Failure::permanent("it is bad"));
                    }
                    inside.notify_one();
                    waits.notified().await;
                }
                note(&received, &tx).await
            }
        });
        log.add(order("a", "bad1"));
        log.add(order("a", "2"));
        stock.until(LETTERS, "bad1 dead, 2 behind").await;
        is_broken.set(false);
        let dead = consumer.dead_letters();
        assert_eq!(dead.retry_all(&DeadLetterFilter::default(), 1_000).await.unwrap(), 1);
        begun.notified().await;
        log.add_faulty(order("a", "3"), "a header is no text");
        log.add(order("a", "4"));
        // The arrival waits for the row of the sequence, which the effect has locked.
        let waiting = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        stock.until(waiting, "t").await;
        go_on.notify_one();
        stock.until_effects("a", "bad1 2 3 4").await;
        stock.until("SELECT count(*) FROM onceward_sequences", "0").await;
        running.stop().await;
    })
    .await;
}

#[tokio::test]
async fn an_interrupted_drain_is_begun_again_by_a_retry_of_all() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let (log, is_broken) = (Log::new("orders"), Rc::new(Cell::new(true)));
        let consumer = stock.consumer_of(log.clone());
        let running = start_picky(&consumer, &is_broken);
        log.add(order("a", "bad1"));
        log.add(order("a", "2"));
        stock.until(LETTERS, "bad1 dead, 2 behind").await;
        running.stop().await;
        let dead = consumer.dead_letters();
        assert_eq!(dead.retry_all(&DeadLetterFilter::default(), 1_000).await.unwrap(), 1);
        assert_eq!(dead.retry_all(&DeadLetterFilter::default(), 1_000).await.unwrap(), 0, "twice is once");
        stock.database.sql("UPDATE onceward_sequences SET state = 'parked'");
        is_broken.set(false);
        let running = start_picky(&consumer, &is_broken);
        assert_eq!(dead.retry_all(&DeadLetterFilter::default(), 1_000).await.unwrap(), 1);
        stock.until_effects("a", "bad1 2").await;
        running.stop().await;
    })
    .await;
}

/// A long sequence must not hold up a short one that was begun after it.
#[tokio::test]
async fn sequences_are_retried_in_turns() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let (log, is_broken) = (Log::new("orders"), Rc::new(Cell::new(true)));
        let consumer = stock.consumer_of(log.clone());
        let running = start_picky(&consumer, &is_broken);
        log.add(order("long", "bad"));
        stock.until(LETTERS, "bad dead").await;
        let many = "INSERT INTO onceward_dead_letters (consumer, message_id, part, state, topic, ordering_key, headers,
                payload, tries, error, first_at, last_at)
            SELECT consumer, 'm' || n, 0, 'behind', topic, 'long', '{}', convert_to(n::text, 'UTF8'), 0, '', now(), now()
            FROM onceward_dead_letters, generate_series(1, 250) AS n";
        stock.database.sql(many);
        log.add(order("short", "bad"));
        log.add(order("short", "1"));
        stock.until("SELECT count(*) FROM onceward_dead_letters", "253").await;
        is_broken.set(false);
        consumer.dead_letters().retry_all(&DeadLetterFilter::default(), 1_000).await.unwrap();
        stock.until_effects("short", "bad 1").await;
        let early = stock.database.sql("SELECT count(*) FROM effects WHERE key = 'long'");
        assert!(early.parse::<usize>().unwrap() < 200, "{early} of the long one were before the short one");
        running.stop().await;
        let ordered = "SELECT bool_and(number > before) FROM (SELECT number, lag(number, 1, 0) OVER (ORDER BY payload::int)
            AS before FROM effects WHERE key = 'long' AND payload <> 'bad') AS effects";
        assert_eq!(stock.database.sql(ordered), "t");
    })
    .await;
}

#[tokio::test]
async fn what_the_source_was_not_told_is_told_again() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let log = Log::new("orders");
        log.state().failures = 2;
        let consumer = stock.consumer_of(log.clone());
        let running = Running::start(&consumer);
        log.add(order("a", 1));
        stock.until_effects("a", "1").await;
        while log.state().handled.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(log.state().handled, [1]);
        running.stop().await;
    })
    .await;
}

#[tokio::test]
async fn the_count_of_tries_outlives_its_process_and_is_forgotten_with_the_effect() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let log = Log::new("orders");
        let mut slow = options();
        slow.backoff = onceward::Backoff::new(Duration::from_secs(600), Duration::from_secs(600));
        let consumer = stock.consumer_of(log.clone()).with_options(slow);
        let running = Running::start_with(&consumer, async |_: Received, _: PostgresTx| {
            Err(Failure::transient("not yet"))
        });
        log.add(order("a", 1));
        stock.until("SELECT coalesce(max(tries), 0) FROM onceward_tries", "1").await;
        running.stop().await;
        let seen = Rc::new(Cell::new(99));
        let noted = seen.clone();
        let running = Running::start_with(&consumer, move |received: Received, tx: PostgresTx| {
            let noted = noted.clone();
            async move {
                noted.set(received.tries);
                note(&received, &tx).await
            }
        });
        stock.until_effects("a", "1").await;
        running.stop().await;
        assert_eq!(seen.get(), 1);
        assert_eq!(stock.database.sql("SELECT count(*) FROM onceward_tries"), "0");
    })
    .await;
}

#[tokio::test]
async fn a_reader_of_the_outbox_is_refused_beside_another_one() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let refused = async |name: &str| {
            let source = OutboxSource::new(stock.database.tables.clone(), &stock.outbox, 4);
            let consumer = Consumer::new(name, source, stock.parts.clone()).with_options(options());
            let handler = async |_: Received, _: PostgresTx| Ok(());
            consumer.handle_until(std::future::ready(()), handler).await.err()
        };
        let relay = |publisher: HttpLike| Relay::new(stock.database.tables.clone(), &stock.outbox, publisher);
        let running = Running::start(&stock.consumer());
        stock.until("SELECT count(*) > 0 FROM onceward_members", "t").await;
        let error = refused("billing").await.unwrap();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains("the consumer `stock`"), "{error}");
        let error = relay(HttpLike("one")).run_until(std::future::ready(())).await.unwrap_err();
        assert!(error.to_string().contains("the consumer `stock`"), "{error}");
        running.stop().await;

        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let first = relay(HttpLike("one"));
        let first =
            tokio::spawn(async move { first.run_until(async { drop(stopped.await) }).await.unwrap() });
        stock.until("SELECT count(*) FROM onceward_members", "1").await;
        let error = refused("stock").await.unwrap();
        assert!(error.to_string().contains("a relay to one"), "{error}");
        let error = relay(HttpLike("two")).run_until(std::future::ready(())).await.unwrap_err();
        assert!(error.to_string().contains("a relay to one"), "{error}");
        relay(HttpLike("one")).run_until(std::future::ready(())).await.unwrap();
        stop.send(()).unwrap();
        first.await.unwrap();
        assert!(refused("billing").await.is_none(), "nobody else is left");
    })
    .await;
}

/// A publisher to a place of this name.
struct HttpLike(&'static str);

impl onceward_flows::Publisher for HttpLike {
    fn publish<'a>(&'a self, batch: &'a [onceward_flows::Outgoing]) -> onceward_flows::PublishFuture<'a> {
        let memory = MemoryPublisher::new();
        Box::pin(async move { memory.publish(batch).await })
    }

    fn target(&self) -> String {
        self.0.to_owned()
    }
}

#[tokio::test]
async fn a_stop_that_takes_longer_than_the_lease_keeps_it() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let mut options = options();
        options.lease = Duration::from_millis(300);
        let consumer = stock.consumer().with_options(options);
        let (begun, go_on) = (Rc::new(Notify::new()), Rc::new(Notify::new()));
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
        stock.commit([Message::new("t", "1").with_ordering_key("a")]).await;
        begun.notified().await;
        let stopping = tokio::task::spawn_local(running.stop());
        let end = "SELECT extract(epoch FROM max(until)) FROM onceward_parts";
        let first: f64 = stock.database.sql(end).parse().unwrap();
        while stock.database.sql(end).parse::<f64>().unwrap() < first + 0.7 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let lapsed =
                "SELECT count(*) FROM onceward_parts WHERE until < clock_timestamp() - interval '2 s'";
            assert_eq!(stock.database.sql(lapsed), "0", "the lease was not renewed");
        }
        go_on.notify_one();
        stopping.await.unwrap();
        assert_eq!(stock.effects("a"), "1");
    })
    .await;
}
