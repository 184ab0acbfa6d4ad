//! Dead letters keep the order of their key: parked, retried, discarded, skipped.

use std::cell::Cell;
use std::rc::Rc;

use onceward::Policy;
use onceward_flows::{DeadLetterFilter, DeadLetterState, Failure, OnDead, Received};
use onceward_stores::sql::postgres::PostgresTx;

use super::{Running, Stock, locally, note, options, order};

const DEAD: &str =
    "SELECT coalesce(string_agg(convert_from(payload, 'UTF8') || ' ' || state, ', ' ORDER BY number), '')
    FROM onceward_dead_letters";

/// A handler that refuses payloads that begin with `bad` for as long as the flag is set.
fn picky(
    is_broken: &Rc<Cell<bool>>,
    failure: fn(&str) -> Failure,
) -> impl Fn(Received, PostgresTx) -> std::pin::Pin<Box<dyn Future<Output = Result<(), Failure>>>> + use<> {
    let is_broken = is_broken.clone();
    move |received, tx| {
        let is_broken = is_broken.clone();
        Box::pin(async move {
            note(&received, &tx).await?;
            if is_broken.get() && received.message.payload().starts_with(b"bad") {
                return Err(failure("it is bad"));
            }
            Ok(())
        })
    }
}

#[tokio::test]
async fn later_messages_of_the_key_wait_and_go_with_it() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let (consumer, is_broken) = (stock.consumer(), Rc::new(Cell::new(true)));
        let dead = consumer.dead_letters();
        stock.commit([order("a", 1), order("a", "bad1"), order("a", 2), order("b", 1)]).await;
        let running = Running::start_with(&consumer, picky(&is_broken, |error| Failure::transient(error)));
        stock.until(DEAD, "bad1 dead, 2 behind").await;
        stock.until_effects("b", "1").await;
        stock.commit([order("a", "bad2"), order("a", 3), order("b", 2)]).await;
        stock.until(DEAD, "bad1 dead, 2 behind, bad2 behind, 3 behind").await;
        stock.until_effects("b", "1 2").await;
        assert_eq!(stock.effects("a"), "1");
        let all = dead.list(&DeadLetterFilter::default(), 0, 10).await.unwrap();
        assert_eq!((all[0].tries, &*all[0].error), (3, "it is bad"));
        assert_eq!(all[1].state, DeadLetterState::Behind);

        // One behind cannot go first. A retry while it is still broken parks the rest again.
        let error = dead.retry(all[1].message.id()).await.unwrap_err();
        assert!(error.to_string().contains(all[0].message.id()), "{error}");
        assert!(dead.retry(all[0].message.id()).await.unwrap());
        assert!(dead.retry(all[0].message.id()).await.unwrap(), "twice is once");
        stock.until("SELECT state FROM onceward_sequences", "parked").await;
        assert_eq!(stock.database.sql(DEAD), "bad1 dead, 2 behind, bad2 behind, 3 behind");

        is_broken.set(false);
        assert_eq!(dead.retry_all(&DeadLetterFilter::default().with_error("is bad"), 1000).await.unwrap(), 1);
        stock.commit([order("a", 4)]).await;
        stock.until_effects("a", "1 bad1 2 bad2 3 4").await;
        stock.until("SELECT count(*) FROM onceward_sequences", "0").await;
        assert_eq!(stock.database.sql(DEAD), "");
        assert_eq!(stock.database.sql("SELECT count(*) - count(DISTINCT id) FROM effects"), "0");
        running.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_failure_while_draining_parks_the_rest_behind_it() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let (consumer, is_broken) = (stock.consumer(), Rc::new(Cell::new(true)));
        let dead = consumer.dead_letters();
        stock.commit([order("a", "bad1"), order("a", 2), order("a", "bad3"), order("a", 4)]).await;
        let running = Running::start_with(&consumer, picky(&is_broken, |error| Failure::permanent(error)));
        stock.until(DEAD, "bad1 dead, 2 behind, bad3 behind, 4 behind").await;
        let first =
            dead.list(&DeadLetterFilter::default().with_state(DeadLetterState::Dead), 0, 10).await.unwrap();
        assert_eq!(first[0].tries, 1, "a permanent failure is tried once");
        // Discarded, the next ones can go: up to the next bad one.
        assert!(dead.discard(first[0].message.id(), &Policy::queue()).await.unwrap());
        let all = dead.list(&DeadLetterFilter::default(), 0, 10).await.unwrap();
        assert!(dead.retry(all[0].message.id()).await.unwrap());
        stock.until(DEAD, "bad3 dead, 4 behind").await;
        assert_eq!(stock.effects("a"), "2");
        // A copy of what was discarded is not handled.
        stock.commit([first[0].message.clone()]).await;
        stock.until("SELECT count(*) FROM onceward_outbox", "0").await;
        is_broken.set(false);
        assert!(dead.retry(all[1].message.id()).await.unwrap());
        stock.until_effects("a", "2 bad3 4").await;
        running.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_copy_of_a_dead_or_waiting_message_is_not_queued_twice() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let (consumer, is_broken) = (stock.consumer(), Rc::new(Cell::new(true)));
        let messages = [order("a", "bad1"), order("a", 2)];
        stock.commit(messages.clone()).await;
        let running = Running::start_with(&consumer, picky(&is_broken, |error| Failure::permanent(error)));
        stock.until(DEAD, "bad1 dead, 2 behind").await;
        stock.commit(messages).await;
        stock.until("SELECT count(*) FROM onceward_outbox", "0").await;
        assert_eq!(stock.database.sql(DEAD), "bad1 dead, 2 behind");
        running.stop().await;
    })
    .await;
}

#[tokio::test]
async fn with_skip_later_messages_are_handled_and_with_block_they_wait() {
    locally(async {
        for (on_dead, effects, dead) in [(OnDead::Skip, "2", "bad1 dead"), (OnDead::Block, "", "")] {
            let Some(stock) = Stock::fresh().await else { return };
            let is_broken = Rc::new(Cell::new(true));
            let mut options = options();
            options.on_dead = on_dead;
            let consumer = stock.consumer().with_options(options);
            stock.commit([order("a", "bad1"), order("a", 2), order("b", 1)]).await;
            let running =
                Running::start_with(&consumer, picky(&is_broken, |error| Failure::permanent(error)));
            stock.until_effects("b", "1").await;
            while on_dead == OnDead::Block && consumer.counts().failed < 10 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            stock.until_effects("a", effects).await;
            assert_eq!(stock.database.sql(DEAD), dead);
            is_broken.set(false);
            if on_dead == OnDead::Skip {
                assert_eq!(
                    consumer.dead_letters().retry_all(&DeadLetterFilter::default(), 100).await.unwrap(),
                    1
                );
                stock.until_effects("a", "2 bad1").await;
            } else {
                stock.until_effects("a", "bad1 2").await;
            }
            running.stop().await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_number_of_parked_messages_is_bounded() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        let is_broken = Rc::new(Cell::new(true));
        let mut options = options();
        options.parked_max = 2;
        let consumer = stock.consumer().with_options(options);
        stock.commit([order("a", "bad1"), order("a", 2), order("a", 3)]).await;
        let running = Running::start_with(&consumer, picky(&is_broken, |error| Failure::permanent(error)));
        stock.until(DEAD, "bad1 dead, 2 behind").await;
        while consumer.counts().failed < 5 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(stock.database.sql("SELECT count(*) FROM onceward_outbox"), "1", "3 stays where it is");
        is_broken.set(false);
        consumer.dead_letters().retry_all(&DeadLetterFilter::default(), 100).await.unwrap();
        stock.until_effects("a", "bad1 2 3").await;
        running.stop().await;
    })
    .await;
}
