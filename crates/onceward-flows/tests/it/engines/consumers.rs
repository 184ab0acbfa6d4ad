//! Consumers: every message has one effect, in the order of its key, whatever fails; dead letters keep the order.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use onceward::Policy;
use onceward_flows::{
    Consumer, DeadLetterFilter, DeadLetterState, Failure, Message, Outbox, OutboxSource, Received,
};
use onceward_stores::sql::{SqlTransaction, Value};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{Db, Engine, on_every_engine};
use crate::consumer::{locally, options, order, short_lease};

on_every_engine!(
    every_message_has_one_effect_in_order,
    later_messages_of_the_key_wait_and_go_with_it,
    a_sequence_without_its_first_is_reached,
    a_former_owner_has_no_effect_and_records_nothing,
    partitions_are_taken_over,
    a_part_is_not_taken_while_an_effect_can_commit,
    a_message_that_ends_its_process_is_given_up_after_five_deaths,
);

/// A stock service with a consumer of the outbox in its own database.
pub(super) struct Stock<E: Engine> {
    db: Db<E>,
    outbox: Outbox,
}

impl<E: Engine> Stock<E> {
    pub(super) async fn fresh() -> Option<Self> {
        let db = Db::fresh().await?;
        db.sql(&format!(
            "CREATE TABLE effects (number {}, name varchar(50), payload varchar(50), id varchar(50))",
            E::COUNTED
        ))
        .await;
        Some(Self { db, outbox: Outbox::new() })
    }

    pub(super) async fn consumer(&self) -> Consumer<E::Transactions> {
        let source = OutboxSource::new(self.db.tables.clone(), &self.outbox, 4);
        Consumer::new("stock", source, self.db.consumer_database().await).with_options(options())
    }

    pub(super) async fn commit(&self, messages: impl IntoIterator<Item = Message>) {
        self.db.commit(&self.outbox, messages).await;
    }

    pub(super) async fn effects(&self, key: &str) -> String {
        self.db.texts("effects", "number", "payload", &format!("name = '{key}'")).await
    }

    pub(super) async fn until_effects(&self, key: &str, expected: &str) {
        let start = std::time::Instant::now();
        while self.effects(key).await != expected {
            assert!(start.elapsed().as_secs() < 60, "{}, not {expected}", self.effects(key).await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(super) async fn until(&self, statement: &str, expected: &str) {
        self.db.until(statement, expected).await;
    }

    pub(super) async fn until_outbox_is_empty(&self) {
        self.until("SELECT count(*) FROM onceward_outbox", "0").await;
    }

    pub(super) async fn begin(&self) -> sqlx::Transaction<'static, E::Sqlx> {
        self.db.begin().await
    }

    async fn dead(&self) -> String {
        let (payloads, states) = (
            self.db.texts("onceward_dead_letters", "number", "payload", "1 = 1").await,
            self.db.texts("onceward_dead_letters", "number", "state", "1 = 1").await,
        );
        let both = payloads.split(' ').zip(states.split(' '));
        both.map(|(payload, state)| format!("{payload} {state}")).collect::<Vec<_>>().join(", ")
    }

    pub(super) async fn until_dead(&self, expected: &str) {
        let start = std::time::Instant::now();
        while self.dead().await != expected {
            assert!(start.elapsed().as_secs() < 60, "{}, not {expected}", self.dead().await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The effect: a row, without any protection against a second one.
pub(super) async fn note<E: Engine>(received: &Received, tx: &mut E::Tx) -> Result<(), Failure> {
    let message = &received.message;
    let payload = String::from_utf8_lossy(message.payload()).into_owned();
    let places = match tx.dialect() {
        onceward_stores::sql::Dialect::Postgres => "$1, $2, $3",
        _ => "?, ?, ?",
    };
    let insert = format!("INSERT INTO effects (name, payload, id) VALUES ({places})");
    let key = message.ordering_key().unwrap_or("none");
    tx.fetch(&insert, &[Value::Text(key), Value::Text(&payload), Value::Text(message.id())]).await?;
    Ok(())
}

/// A consumer in a task, until it is stopped.
pub(super) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    /// It refuses payloads that begin with `bad` for as long as the flag is set, and hangs at `poison`.
    pub(super) fn start<E: Engine>(consumer: &Consumer<E::Transactions>, state: &Rc<State>) -> Self {
        let (consumer, state) = (consumer.clone(), state.clone());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::task::spawn_local(async move {
            let handler = move |received: Received, mut tx: E::Tx| {
                let state = state.clone();
                async move {
                    note::<E>(&received, &mut tx).await?;
                    let payload = received.message.payload();
                    if state.is_broken.get() && payload.starts_with(b"bad") {
                        return Err(Failure::transient("it is bad"));
                    }
                    if &payload[..] == b"poison" {
                        state.is_hanging.set(true);
                        std::future::pending::<()>().await;
                    }
                    Ok(())
                }
            };
            consumer.handle_until(async { drop(stopped.await) }, handler).await.unwrap();
        });
        Self { stop, task }
    }

    pub(super) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }

    /// As if the process ended without warning.
    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) is_broken: Cell<bool>,
    is_hanging: Cell<bool>,
}

async fn every_message_has_one_effect_in_order<E: Engine>() {
    locally(async {
        let Some(stock) = Stock::<E>::fresh().await else { return };
        let (consumer, state) = (stock.consumer().await, Rc::new(State::default()));
        let running = Running::start::<E>(&consumer, &state);
        let all: Vec<Message> =
            (0..10).flat_map(|n| (0..6).map(move |key| order(&format!("k{key}"), n))).collect();
        stock.commit(all.clone()).await;
        // Copies, as a broker makes them.
        stock.commit(all[..20].to_vec()).await;
        for key in 0..6 {
            stock.until_effects(&format!("k{key}"), "0 1 2 3 4 5 6 7 8 9").await;
        }
        stock.db.until("SELECT count(*) FROM onceward_outbox", "0").await;
        assert_eq!(consumer.counts().handled, 60);
        assert_eq!(consumer.counts().duplicates, 20);
        running.stop().await;
        assert_eq!(stock.db.sql("SELECT count(*) FROM onceward_tries").await, "0");
        assert_eq!(stock.db.sql("SELECT count(*) FROM onceward_parts WHERE owner IS NOT NULL").await, "0");
    })
    .await;
}

async fn later_messages_of_the_key_wait_and_go_with_it<E: Engine>() {
    locally(async {
        let Some(stock) = Stock::<E>::fresh().await else { return };
        let (consumer, state) = (stock.consumer().await, Rc::new(State::default()));
        state.is_broken.set(true);
        let dead = consumer.dead_letters();
        stock.commit([order("a", 1), order("a", "bad1"), order("a", 2), order("b", 1)]).await;
        let running = Running::start::<E>(&consumer, &state);
        stock.until_dead("bad1 dead, 2 behind").await;
        stock.commit([order("a", "bad2"), order("a", 3), order("b", 2)]).await;
        stock.until_dead("bad1 dead, 2 behind, bad2 behind, 3 behind").await;
        stock.until_effects("b", "1 2").await;
        assert_eq!(stock.effects("a").await, "1");
        let all = dead.list(&DeadLetterFilter::default(), 0, 10).await.unwrap();
        assert_eq!((all[0].tries, &*all[0].error), (3, "it is bad"));
        assert!(all[0].first_failed >= all[0].last_failed && all[0].first_failed < Duration::from_secs(60));
        let behind =
            DeadLetterFilter::default().with_state(DeadLetterState::Behind).with_topic("orders.placed");
        assert_eq!(dead.list(&behind.with_ordering_key("a"), 0, 10).await.unwrap().len(), 3);
        let old = DeadLetterFilter::default().with_older_than(Duration::from_secs(3600));
        assert_eq!(dead.list(&old, 0, 10).await.unwrap().len(), 0);

        let error = dead.retry(all[1].message.id()).await.unwrap_err();
        assert!(error.to_string().contains(all[0].message.id()), "{error}");
        assert!(dead.retry(all[0].message.id()).await.unwrap());
        stock.db.until("SELECT state FROM onceward_sequences", "parked").await;
        assert!(!dead.retry("no such message").await.unwrap());

        state.is_broken.set(false);
        assert_eq!(dead.retry_all(&DeadLetterFilter::default().with_error("is bad"), 1000).await.unwrap(), 1);
        stock.commit([order("a", 4)]).await;
        stock.until_effects("a", "1 bad1 2 bad2 3 4").await;
        stock.db.until("SELECT count(*) FROM onceward_sequences", "0").await;
        assert_eq!(stock.dead().await, " ");
        running.stop().await;
    })
    .await;
}

/// The first of a sequence is discarded, and the others must not be forgotten: they have no error of their own.
async fn a_sequence_without_its_first_is_reached<E: Engine>() {
    locally(async {
        let Some(stock) = Stock::<E>::fresh().await else { return };
        let (consumer, state) = (stock.consumer().await, Rc::new(State::default()));
        state.is_broken.set(true);
        let dead = consumer.dead_letters();
        stock.commit([order("a", "bad1"), order("a", 2), order("a", 3)]).await;
        let running = Running::start::<E>(&consumer, &state);
        stock.until_dead("bad1 dead, 2 behind, 3 behind").await;
        let all = dead.list(&DeadLetterFilter::default(), 0, 10).await.unwrap();
        assert!(dead.discard(all[0].message.id(), &Policy::queue()).await.unwrap());
        stock.until_dead("2 behind, 3 behind").await;
        assert_eq!(dead.retry_all(&DeadLetterFilter::default(), 1000).await.unwrap(), 1);
        stock.until_effects("a", "2 3").await;
        // A copy of what was discarded is not handled.
        stock.commit([all[0].message.clone(), order("a", 4)]).await;
        stock.until_effects("a", "2 3 4").await;
        running.stop().await;
    })
    .await;
}

async fn a_former_owner_has_no_effect_and_records_nothing<E: Engine>() {
    locally(async {
        let Some(stock) = Stock::<E>::fresh().await else { return };
        let mut options = options();
        // It believes in its lease for the whole test.
        options.lease = Duration::from_secs(600);
        let (consumer, state) = (stock.consumer().await.with_options(options), Rc::new(State::default()));
        let running = Running::start::<E>(&consumer, &state);
        stock.db.until("SELECT count(*) FROM onceward_parts WHERE owner IS NOT NULL", "4").await;
        // Another process has taken over, as it would after a pause of this one.
        stock.db.sql("UPDATE onceward_parts SET fence = fence + 1, owner = 'another'").await;
        if stock.db.url.starts_with("mysql:") {
            stock.db.sql("UPDATE onceward_fences SET fence = fence + 1").await;
        }
        stock.commit([order("a", "bad")]).await;
        state.is_broken.set(true);
        while consumer.counts().fenced_off == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for table in ["effects", "onceward_receipts", "onceward_dead_letters"] {
            assert_eq!(stock.db.sql(&format!("SELECT count(*) FROM {table}")).await, "0", "{table}");
        }
        assert_eq!(stock.db.sql("SELECT count(*) FROM onceward_outbox").await, "1");
        running.stop().await;
        assert_eq!(stock.db.sql("SELECT DISTINCT owner FROM onceward_parts").await, "another");
    })
    .await;
}

async fn partitions_are_taken_over<E: Engine>() {
    locally(async {
        let Some(stock) = Stock::<E>::fresh().await else { return };
        let state = Rc::new(State::default());
        let one = stock.consumer().await.with_options(short_lease());
        let two = stock.consumer().await.with_options(short_lease());
        let (first, second) = (Running::start::<E>(&one, &state), Running::start::<E>(&two, &state));
        let owners = "SELECT count(DISTINCT owner) FROM onceward_parts";
        stock.db.until(owners, "2").await;
        stock.commit((0..10).flat_map(|n| (0..12).map(move |key| order(&format!("k{key}"), n)))).await;
        while one.counts().handled + two.counts().handled < 30 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        first.kill().await;
        for key in 0..12 {
            stock.until_effects(&format!("k{key}"), "0 1 2 3 4 5 6 7 8 9").await;
        }
        stock.db.until(owners, "1").await;
        assert!(two.counts().takeovers >= 1, "{:?}", two.counts());
        second.stop().await;
    })
    .await;
}

async fn a_part_is_not_taken_while_an_effect_can_commit<E: Engine>() {
    if E::ONE_WRITER {
        return; // A takeover is a write, too.
    }
    let Some(stock) = Stock::<E>::fresh().await else { return };
    locally(async {
        let state = Rc::new(State::default());
        let running = Running::start::<E>(&stock.consumer().await.with_options(short_lease()), &state);
        stock.db.until("SELECT count(*) FROM onceward_parts WHERE owner IS NOT NULL", "4").await;
        running.kill().await;
        // An effect that has compared the fence, and has not committed.
        let mut effect = stock.db.begin().await;
        let (fence, lock) = if stock.db.url.starts_with("mysql:") {
            (
                "SELECT fence FROM onceward_fences WHERE flow = 'consumer:outbox/stock' AND part = 2",
                " LOCK IN SHARE MODE",
            )
        } else {
            ("SELECT fence FROM onceward_parts WHERE part = 2", " FOR KEY SHARE")
        };
        effect.fetch(&format!("{fence}{lock}"), &[]).await.unwrap();
        let other = stock.consumer().await.with_options(short_lease());
        let running = Running::start::<E>(&other, &state);
        while other.counts().takeovers < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(stock.db.sql(fence).await, "1");
        effect.commit().await.unwrap();
        stock.db.until(fence, "2").await;
        running.stop().await;
    })
    .await;
}

async fn a_message_that_ends_its_process_is_given_up_after_five_deaths<E: Engine>() {
    locally(async {
        let Some(stock) = Stock::<E>::fresh().await else { return };
        stock.commit([order("a", 1), order("poison", "poison"), order("b", 1)]).await;
        let mut deaths = 0;
        loop {
            let state = Rc::new(State::default());
            let consumer = stock.consumer().await.with_options(short_lease());
            let running = Running::start::<E>(&consumer, &state);
            while !state.is_hanging.get() && stock.dead().await == " " {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if !state.is_hanging.get() {
                running.stop().await;
                break;
            }
            running.kill().await;
            deaths += 1;
            assert!(deaths <= 5, "it was not recognised");
        }
        assert_eq!(deaths, 5);
        let error = stock.db.sql("SELECT error FROM onceward_dead_letters").await;
        assert_eq!(error, "it ended its process 5 times");
        let running = Running::start::<E>(&stock.consumer().await, &Rc::new(State::default()));
        stock.until_effects("a", "1").await;
        stock.until_effects("b", "1").await;
        running.stop().await;
    })
    .await;
}
