//! One relay: order, back-off, wake-ups, a broker and a database that go away.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onceward::Backoff;
use onceward_flows::postgres::FlowTables;
use onceward_flows::{
    Answered, MemoryPublisher, Message, NatsPublisher, Outbox, Outgoing, PublishEachFuture, PublishFuture,
    Publisher, Relay, RelayOptions,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::servers::{Nats, Postgres};
use crate::support::Database;

/// A relay in a task, until it is stopped.
pub(crate) struct Running {
    pub(crate) relay: Relay,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(tables: &FlowTables, outbox: &Outbox, publisher: impl Publisher + 'static) -> Self {
        Self::start_with(tables, outbox, publisher, options())
    }

    pub(crate) fn start_with(
        tables: &FlowTables,
        outbox: &Outbox,
        publisher: impl Publisher + 'static,
        options: RelayOptions,
    ) -> Self {
        let relay = Relay::new(tables.clone(), outbox, publisher).with_options(options);
        let (stop, stopped) = oneshot::channel();
        let working = relay.clone();
        let task = tokio::spawn(async move {
            working.run_until(async { drop(stopped.await) }).await.unwrap();
        });
        Self { relay, stop, task }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }

    /// As if the process ended without warning.
    pub(crate) fn kill(self) {
        self.task.abort();
    }
}

pub(crate) fn options() -> RelayOptions {
    let mut options = RelayOptions::default();
    options.backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(100));
    options.lease = Duration::from_secs(1);
    options
}

/// Commits messages, one transaction each.
pub(crate) async fn commit(
    database: &Database,
    outbox: &Outbox,
    messages: impl IntoIterator<Item = Message>,
) {
    let mut client = database.client().await;
    for message in messages {
        let mut tx = client.transaction().await.unwrap();
        let wake = outbox.add_all(&mut tx, [message]).await.unwrap();
        tx.commit().await.unwrap();
        wake.fire();
    }
}

/// Checks that the numbers of each key are complete and in their order; copies may repeat what was there before.
pub(crate) fn check_order(published: &[Message], per_key: usize) {
    let mut next: HashMap<&str, usize> = HashMap::new();
    for message in published {
        let number: usize = std::str::from_utf8(message.payload()).unwrap().parse().unwrap();
        let key = message.ordering_key().unwrap();
        let next = next.entry(key).or_insert(0);
        assert!(number <= *next, "{key}: {number} came before {next}");
        *next = (*next).max(number + 1);
    }
    assert!(next.values().all(|next| *next == per_key), "not all were published: {next:?}");
}

pub(crate) fn numbered(keys: usize, per_key: usize) -> impl Iterator<Item = Message> {
    (0..per_key).flat_map(move |number| {
        (0..keys).map(move |key| Message::new("t", number.to_string()).with_ordering_key(format!("k{key}")))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_published_in_order_and_removed() {
    let Some(database) = Database::fresh().await else { return };
    let (outbox, publisher) = (Outbox::new(), MemoryPublisher::new());
    // Half of it is there before the relay begins.
    commit(&database, &outbox, numbered(7, 20)).await;
    let running = Running::start(&database.tables, &outbox, publisher.clone());
    commit(&database, &outbox, numbered(7, 40).skip(7 * 20)).await;
    running.relay.drained().await.unwrap();
    assert_eq!(publisher.published().len(), 7 * 40, "nothing twice");
    check_order(&publisher.published(), 40);
    assert_eq!(running.relay.counts().published, 7 * 40);
    running.stop().await;
    assert_eq!(database.sql("SELECT count(*) FROM onceward_parts WHERE owner IS NOT NULL"), "0");
    assert_eq!(database.sql("SELECT count(*) FROM onceward_members"), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_topic_holds_up_its_own_keys_only_and_goes_on_in_order() {
    let Some(database) = Database::fresh().await else { return };
    let (outbox, publisher) = (Outbox::new(), MemoryPublisher::new());
    publisher.refuse_topic("bad");
    let bad = |key: &str, text: &str| Message::new("bad", text.to_owned()).with_ordering_key(key);
    let good = |key: &str, text: &str| Message::new("good", text.to_owned()).with_ordering_key(key);
    // More failing keys than fit in memory.
    let mut options = options();
    options.buffered_messages_max = 10;
    commit(&database, &outbox, (0..50).map(|n| bad(&format!("bad{n}"), "0"))).await;
    commit(&database, &outbox, [bad("k", "0"), good("k", "1"), good("other", "0")]).await;
    let running = Running::start_with(&database.tables, &outbox, publisher.clone(), options);
    while !publisher.published().iter().any(|message| message.ordering_key() == Some("other")) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(publisher.published().len(), 1, "the successor of a refused message waits");
    // What was published is removed a moment later.
    while database.tables.backlog().await.unwrap().messages != 52 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    publisher.accept_topic("bad");
    running.relay.drained().await.unwrap();
    let all = publisher.published();
    let of_k: Vec<_> = all.iter().filter(|message| message.ordering_key() == Some("k")).collect();
    assert_eq!([of_k[0].topic(), of_k[1].topic()], ["bad", "good"]);
    assert_eq!(all.len(), 53);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_messages_are_no_hot_loop() {
    let Some(database) = Database::fresh().await else { return };
    let (outbox, publisher) = (Outbox::new(), MemoryPublisher::new());
    publisher.refuse_topic("t");
    commit(&database, &outbox, numbered(3, 1)).await;
    let running = Running::start(&database.tables, &outbox, publisher.clone());
    let start = Instant::now();
    while running.relay.counts().failed < 3 * 6 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Pauses of 10, 20, 40, 80 and 100 ms are before the sixth try.
    assert!(start.elapsed() >= Duration::from_millis(250), "{:?}", start.elapsed());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wake_up_is_faster_than_the_poll() {
    let Some(database) = Database::fresh().await else { return };
    let (outbox, publisher) = (Outbox::new(), MemoryPublisher::new());
    let mut options = options();
    options.poll_max = Duration::from_secs(3600);
    options.lease = Duration::from_secs(3600);
    let running = Running::start_with(&database.tables, &outbox, publisher.clone(), options);
    // The pause doubles from 5 ms: after this many reads it is longer than the test may take.
    while running.relay.counts().reads < 12 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let start = Instant::now();
    commit(&database, &outbox, numbered(1, 1)).await;
    running.relay.drained().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_and_a_database_that_are_killed_lose_nothing() {
    let (Some(mut server), Some(mut nats)) = (Postgres::start(), Nats::start()) else { return };
    let url = server.database("app");
    let tables = FlowTables::open(&url).await.unwrap();
    let context = crate::nats::stream(&nats.url(), "killed").await;
    let outbox = Outbox::new();
    let publisher = NatsPublisher::new(context, "killed", 8).unwrap();
    let running = Running::start(&tables, &outbox, publisher);
    for round in 0..4 {
        let mut client = crate::support::connect(&url).await;
        for number in round * 50..(round + 1) * 50 {
            let mut tx = client.transaction().await.unwrap();
            let message = Message::new("t", number.to_string()).with_ordering_key(format!("k{}", 0));
            outbox.add_all(&mut tx, [message]).await.unwrap().fire();
            tx.commit().await.unwrap();
        }
        if round % 2 == 0 {
            nats.kill();
            nats.up();
        } else {
            server.kill();
            server.up();
        }
    }
    running.relay.drained().await.or(running.relay.drained().await).unwrap();
    let context = crate::nats::stream(&nats.url(), "killed").await;
    check_order(&crate::nats::read_all(&context, "killed").await, 200);
    running.stop().await;
}

/// A publisher whose first call never ends, as that of a client whose broker was killed.
struct StuckOnce(AtomicBool, MemoryPublisher);

impl Publisher for StuckOnce {
    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> PublishFuture<'a> {
        if self.0.swap(true, Ordering::SeqCst) {
            self.1.publish(batch)
        } else {
            Box::pin(std::future::pending())
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_that_never_answers_holds_up_nothing() {
    let Some(database) = Database::fresh().await else { return };
    let (outbox, memory) = (Outbox::new(), MemoryPublisher::new());
    commit(&database, &outbox, numbered(3, 5)).await;
    let mut options = options();
    options.publish_timeout = Duration::from_millis(200);
    let publisher = StuckOnce(AtomicBool::new(false), memory.clone());
    let running = Running::start_with(&database.tables, &outbox, publisher, options);
    tokio::time::timeout(Duration::from_secs(60), running.relay.drained())
        .await
        .expect("it goes on")
        .unwrap();
    check_order(&memory.published(), 5);
    running.stop().await;
}

/// Confirms everything but the messages of one key, about which it never says anything.
struct SilentAbout(&'static str, MemoryPublisher);

impl Publisher for SilentAbout {
    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> PublishFuture<'a> {
        self.1.publish(batch)
    }

    fn publish_each<'a>(
        &'a self,
        batch: &'a [Outgoing],
        answered: &'a Answered<'a>,
    ) -> PublishEachFuture<'a> {
        Box::pin(async move {
            for (place, outgoing) in batch.iter().enumerate() {
                if outgoing.message().ordering_key() != Some(self.0) {
                    answered(place, self.1.publish(std::slice::from_ref(outgoing)).await.remove(0));
                }
            }
            std::future::pending::<()>().await;
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_confirmed_is_removed_while_the_call_waits_for_another_message() {
    let Some(database) = Database::fresh().await else { return };
    let (outbox, memory) = (Outbox::new(), MemoryPublisher::new());
    commit(&database, &outbox, numbered(5, 1)).await;
    let mut options = options();
    options.publish_timeout = Duration::from_secs(3600);
    let running = Running::start_with(&database.tables, &outbox, SilentAbout("k3", memory.clone()), options);
    while database.tables.backlog().await.unwrap().messages != 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(memory.published().len(), 4);
    running.kill();
}

#[tokio::test]
async fn a_publisher_that_may_take_longer_than_the_relay_waits_is_refused() {
    let Some(database) = Database::fresh().await else { return };
    let client = onceward_client::Client::builder().build().unwrap();
    let publisher = onceward_flows::HttpPublisher::new(client, "http://localhost:1/").unwrap();
    let relay = Relay::new(database.tables.clone(), &Outbox::new(), publisher.clone());
    relay.run_until(std::future::ready(())).await.unwrap();
    let slow = publisher.with_call_at_most(Duration::from_secs(30));
    let error =
        Relay::new(database.tables.clone(), &Outbox::new(), slow).run_until(std::future::ready(())).await;
    assert!(error.unwrap_err().to_string().contains("publish_timeout"));
}

/// Says when it is called, and publishes when it is told to.
struct Gated {
    called: std::sync::Arc<tokio::sync::Notify>,
    go_on: std::sync::Arc<tokio::sync::Notify>,
    memory: MemoryPublisher,
}

impl Publisher for Gated {
    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> PublishFuture<'a> {
        Box::pin(async move {
            self.called.notify_one();
            self.go_on.notified().await;
            self.memory.publish(batch).await
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_that_takes_longer_than_the_lease_keeps_the_lanes() {
    let Some(database) = Database::fresh().await else { return };
    let (outbox, memory) = (Outbox::new(), MemoryPublisher::new());
    let (called, go_on): (std::sync::Arc<tokio::sync::Notify>, std::sync::Arc<tokio::sync::Notify>) =
        Default::default();
    let mut options = options();
    options.lease = Duration::from_millis(300);
    commit(&database, &outbox, numbered(1, 1)).await;
    let gated = Gated { called: called.clone(), go_on: go_on.clone(), memory: memory.clone() };
    let running = Running::start_with(&database.tables, &outbox, gated, options);
    let end = "SELECT coalesce(extract(epoch FROM max(until)), 0) FROM onceward_parts";
    called.notified().await;
    let stopping = tokio::spawn(running.stop());
    let first: f64 = database.sql(end).parse().unwrap();
    let start = Instant::now();
    while database.sql(end).parse::<f64>().unwrap() < first + 0.7 {
        assert!(start.elapsed() < Duration::from_secs(20), "the lease is not renewed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    go_on.notify_one();
    stopping.await.unwrap();
    assert_eq!(memory.published().len(), 1);
    assert_eq!(database.sql("SELECT count(*) FROM onceward_outbox"), "0");
}
