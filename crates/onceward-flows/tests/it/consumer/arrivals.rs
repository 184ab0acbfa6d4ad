//! What a source says of a message beside the message: its number in the outbox, and that it had no id.

use std::time::Duration;

use onceward_flows::{DeadLetterFilter, Failure, MissingId, Received};
use onceward_stores::sql::postgres::PostgresTx;

use super::log::Log;
use super::sharing::Log as Logged;
use super::{Running, Stock, locally, note, options, order};

/// Everything runs in the thread of the test, whose log it is.
#[tokio::test]
async fn an_older_message_behind_a_newer_one_is_handled_counted_and_reported() {
    let logged = Logged::default();
    let _guard = logged.begin();
    locally(async {
        for in_batches in [false, true] {
            let Some(stock) = Stock::fresh().await else { return };
            let log = Log::new("log");
            let consumer = stock.consumer_of(log.clone());
            log.add_numbered(order("a", 1).with_id("a1"), 1);
            log.add_numbered(order("a", 3).with_id("a3"), 7);
            // Another key: numbers are compared within a key.
            log.add_numbered(order("b", 1), 2);
            // Copies, which say nothing of the order of what is new.
            log.add_numbered(order("a", 1).with_id("a1"), 1);
            log.add_numbered(order("a", 3).with_id("a3"), 7);
            log.add_numbered(order("a", 2).with_id("a2"), 5);
            // One of a publisher that gives no numbers.
            log.add(order("a", "none"));
            log.add_numbered(order("a", 4), 9);
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let one = async |received: Received, tx: PostgresTx| note(&received, &tx).await;
            let several = async |batch: Vec<Received>, tx: PostgresTx| {
                for received in &batch {
                    note(received, &tx).await?;
                }
                Ok(())
            };
            let until = async { drop(stopped.await) };
            let checking = async {
                stock.until_effects("a", "1 3 2 none 4").await;
                stock.until_effects("b", "1").await;
                while consumer.counts().handled + consumer.counts().duplicates < 8 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                stop.send(()).unwrap();
            };
            if in_batches {
                tokio::join!(
                    async { consumer.handle_batches_until(until, several).await.unwrap() },
                    checking
                );
            } else {
                tokio::join!(async { consumer.handle_until(until, one).await.unwrap() }, checking);
            }
            let counts = consumer.counts();
            assert_eq!((counts.out_of_order, counts.duplicates, counts.handled), (1, 2, 6), "{counts:?}");
            let said = logged.text();
            let line = said.lines().find(|line| line.contains("behind a newer one of its ordering key"));
            let line = line.unwrap_or_else(|| panic!("{said}"));
            assert!(line.contains("WARN") && line.contains("a2") && line.contains("newer=7"), "{line}");
        }
    })
    .await;
}

/// There the consumer itself lets later ones go ahead.
#[tokio::test]
async fn an_early_message_is_not_out_of_order() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let log = Log::new("log");
        log.add_numbered(order("a", 1), 1);
        log.add_numbered(order("a", 2), 2);
        let consumer = stock.consumer_of(log);
        let running = Running::start_with(&consumer, async |received: Received, tx: PostgresTx| {
            if received.tries == 0 && received.message.payload() == "1" {
                return Err(Failure::early("2 is needed"));
            }
            note(&received, &tx).await
        });
        stock.until_effects("a", "2 1").await;
        running.stop().await;
        assert_eq!(consumer.counts().out_of_order, 0);
    })
    .await;
}

#[tokio::test]
async fn a_message_without_an_id_is_handled_under_its_place_or_is_dead() {
    locally(async {
        for (missing_id, is_dead) in [(MissingId::Place, false), (MissingId::Dead, true)] {
            let Some(stock) = Stock::fresh().await else { return };
            let log = Log::new("log");
            let consumer = stock.consumer_of(log.clone()).with_options(options().with_missing_id(missing_id));
            let running = Running::start(&consumer);
            log.add_without_id(order("a", 1).with_id("log:1"));
            log.add(order("b", 1));
            stock.until_effects("b", "1").await;
            if is_dead {
                stock.until("SELECT count(*) FROM onceward_dead_letters", "1").await;
                let dead = consumer.dead_letters();
                let letter = dead.list(&DeadLetterFilter::default(), 0, 10).await.unwrap().remove(0);
                assert_eq!((letter.message.id(), stock.effects("a").as_str()), ("log:1", ""));
                assert!(letter.error.contains("no message id"), "{}", letter.error);
                assert!(dead.retry("log:1").await.unwrap());
            }
            stock.until_effects("a", "1").await;
            running.stop().await;
            assert_eq!(consumer.counts().dead, u64::from(is_dead));
            assert_eq!(stock.database.sql("SELECT id FROM effects WHERE key = 'a'"), "log:1");
        }
    })
    .await;
}
