//! Versions of entities through consumers: what a gap does, also where the missing message has the same ordering key.

use std::rc::Rc;

use onceward_flows::{
    Consumer, ConsumerOptions, DeadLetterFilter, Failure, FirstVersion, Message, OnGap, Received,
    VersionAction, VersionRule, advance_to,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::consumers::{Stock, note};
use super::{Engine, on_every_engine};
use crate::consumer::{locally, options, short_lease};

on_every_engine!(
    a_message_that_waits_lets_its_predecessor_go_ahead,
    also_where_messages_are_taken_one_at_a_time,
    a_dead_letter_lets_the_predecessor_behind_it_go_ahead,
    a_gap_is_fetched_or_applied_by_the_rule_of_the_consumer,
);

#[expect(clippy::needless_pass_by_value, reason = "numbers and texts are passed alike")]
fn versioned(key: &str, version: impl ToString) -> Message {
    let version = version.to_string();
    Message::new("items.changed", version.clone()).with_ordering_key(key).with_header("version", version)
}

fn rule(on_gap: OnGap) -> ConsumerOptions {
    options().with_versions(VersionRule::new(FirstVersion::One, on_gap))
}

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    /// With a handler that notes what is to be applied. A fetch finds version 9.
    fn start<E: Engine>(consumer: Consumer<E::Transactions>) -> Self {
        let (stop, stopped) = oneshot::channel();
        let versions = Rc::new(consumer.versions());
        let task = tokio::task::spawn_local(async move {
            let handler = move |received: Received, mut tx: E::Tx| {
                let versions = versions.clone();
                async move {
                    let entity = received.message.ordering_key().unwrap().to_owned();
                    let fetched = received.clone();
                    let mut fetching = tx.clone();
                    let fetch = async |expected: u64| {
                        let message = Message::new("t", format!("fetched at {expected}"))
                            .with_ordering_key(entity.clone());
                        let mut fetched = fetched;
                        fetched.message = message.into();
                        note::<E>(&fetched, &mut fetching).await?;
                        Ok::<_, Failure>(9)
                    };
                    let advanced =
                        versions.advance_or_fetch(&mut tx, &received.message, &entity, fetch).await?;
                    if advanced == VersionAction::Apply {
                        note::<E>(&received, &mut tx).await?;
                    }
                    Ok(())
                }
            };
            consumer.handle_until(async { drop(stopped.await) }, handler).await.unwrap();
        });
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }

    /// As if the process ended without warning.
    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Everything has one ordering key, as messages of one entity mostly do.
async fn a_message_that_waits_lets_its_predecessor_go_ahead<E: Engine>() {
    locally(async {
        let Some(stock) = Stock::<E>::fresh().await else { return };
        let consumer = stock.consumer().await.with_options(rule(OnGap::Wait).with_tries_max(50));
        stock.commit([versioned("a", 1), versioned("a", 3), versioned("a", 4)]).await;
        stock.commit([versioned("a", 2), versioned("a", 5), versioned("a", 5)]).await;
        let running = Running::start::<E>(consumer.clone());
        stock.until_effects("a", "1 2 3 4 5").await;
        stock.until_outbox_is_empty().await;
        assert_eq!(consumer.counts().dead, 0, "nothing was given up");
        running.stop().await;
    })
    .await;
}

/// After an unclean end: any message may be the cause.
async fn also_where_messages_are_taken_one_at_a_time<E: Engine>() {
    locally(async {
        let Some(stock) = Stock::<E>::fresh().await else { return };
        let options = rule(OnGap::Wait).with_tries_max(50).with_lease(short_lease().lease);
        let consumer = stock.consumer().await.with_options(options);
        let killed = Running::start::<E>(consumer.clone());
        stock.commit([versioned("a", 1)]).await;
        stock.until_effects("a", "1").await;
        killed.kill().await;
        stock.commit([3, 4, 2].map(|version| versioned("a", version))).await;
        let running = Running::start::<E>(consumer.clone());
        stock.until_effects("a", "1 2 3 4").await;
        assert!(consumer.counts().takeovers > 0);
        assert_eq!(consumer.counts().dead, 0, "nothing was given up");
        running.stop().await;
    })
    .await;
}

/// The predecessor comes when the tries are used up, and waits behind the dead letter.
async fn a_dead_letter_lets_the_predecessor_behind_it_go_ahead<E: Engine>() {
    locally(async {
        let Some(stock) = Stock::<E>::fresh().await else { return };
        let consumer = stock.consumer().await.with_options(rule(OnGap::Wait));
        stock.commit([versioned("a", 1), versioned("a", 4)]).await;
        let running = Running::start::<E>(consumer.clone());
        stock.until_dead("4 dead").await;
        let error =
            consumer.dead_letters().list(&DeadLetterFilter::default(), 0, 1).await.unwrap()[0].error.clone();
        assert_eq!(error, "version 4 of `a` has come, and version 2 has not");
        stock.commit([versioned("a", 5), versioned("a", 3)]).await;
        stock.until_dead("4 dead, 5 behind, 3 behind").await;
        // Without version 2 a retry ends as before, whatever the order is then.
        let retry = async || {
            let all = DeadLetterFilter::default();
            assert_eq!(consumer.dead_letters().retry_all(&all, 1000).await.unwrap(), 1);
        };
        retry().await;
        stock.until("SELECT state FROM onceward_sequences", "parked").await;
        assert_eq!(stock.effects("a").await, "1");
        stock.commit([versioned("a", 2)]).await;
        stock.until("SELECT count(*) FROM onceward_dead_letters", "4").await;
        retry().await;
        stock.until_effects("a", "1 2 3 4 5").await;
        stock.until("SELECT count(*) FROM onceward_sequences", "0").await;
        running.stop().await;
    })
    .await;
}

async fn a_gap_is_fetched_or_applied_by_the_rule_of_the_consumer<E: Engine>() {
    for (on_gap, effects) in [(OnGap::Fetch, "1 fetched at 2 10"), (OnGap::Apply, "1 7 10")] {
        locally(async {
            let Some(stock) = Stock::<E>::fresh().await else { return };
            let consumer = stock.consumer().await.with_options(rule(on_gap));
            // 6 is older than what was fetched or applied.
            stock.commit([1, 7, 6].map(|version| versioned("a", version))).await;
            let running = Running::start::<E>(consumer);
            stock.until_outbox_is_empty().await;
            let mut tx = stock.begin().await;
            advance_to(&mut tx, "outbox/stock", "a", 9).await.unwrap();
            tx.commit().await.unwrap();
            stock.commit([versioned("a", 9), versioned("a", 10)]).await;
            stock.until_effects("a", effects).await;
            // What is no version is a dead letter at once.
            stock.commit([versioned("b", "seven")]).await;
            stock.until_dead("seven dead").await;
            running.stop().await;
        })
        .await;
    }
}
