//! A relay that is stopped for longer than its lease, with messages in its hands, and wakes up when another one has taken over
//! and gone on: what it then publishes are copies of old messages, behind newer ones. A consumer handles each message once,
//! in the order of its key.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward_flows::{
    Consumer, NatsPublisher, NatsSource, Outbox, Outgoing, PublishFuture, Publisher, RedisPublisher,
    RedisSource, Relay,
};
use onceward_stores::sql::postgres::PostgresTransactions;

use super::publishing::{Running, numbered, options};
use crate::consumer::{self, Stock, locally};
use crate::servers::{Nats, Redis};

const PARTITIONS: u32 = 4;
const KEYS: usize = 4;

/// Holds its whole thread, with everything that runs in it, from its first batch until it is woken.
struct Paused {
    inner: Arc<dyn Publisher>,
    gate: Mutex<Option<Gate>>,
}

struct Gate {
    stopped: Sender<usize>,
    woken: Receiver<()>,
}

impl Publisher for Paused {
    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> PublishFuture<'a> {
        if let Some(gate) = self.gate.lock().unwrap().take() {
            gate.stopped.send(batch.len()).unwrap();
            gate.woken.recv().unwrap();
        }
        self.inner.publish(batch)
    }

    fn target(&self) -> String {
        self.inner.target()
    }
}

/// A broker by its address. Connections belong to the runtime that makes them.
#[derive(Clone)]
enum Broker {
    Nats(String),
    Redis(String),
}

impl Broker {
    async fn publisher(&self) -> Arc<dyn Publisher> {
        match self {
            Self::Nats(url) => Arc::new(
                NatsPublisher::new(crate::nats::stream(url, "paused").await, "paused", PARTITIONS).unwrap(),
            ),
            Self::Redis(url) => Arc::new(RedisPublisher::open(url, "paused", PARTITIONS).await.unwrap()),
        }
    }

    async fn consumer(&self, stock: &Stock) -> Consumer<PostgresTransactions> {
        match self {
            Self::Nats(url) => {
                let context = crate::nats::stream(url, "paused").await;
                stock.consumer_of(NatsSource::new(context, "paused", "paused", PARTITIONS).unwrap())
            }
            Self::Redis(url) => stock.consumer_of(RedisSource::new(url, "paused", PARTITIONS).unwrap()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_a_relay_that_was_paused_are_dropped_by_the_broker() {
    let Some(nats) = Nats::start() else { return };
    let duplicates = wakes_up(&Broker::Nats(nats.url())).await;
    assert_eq!(duplicates, Some(0), "JetStream drops them in its duplicate window");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_of_a_relay_that_was_paused_have_no_effect() {
    let Some(redis) = Redis::start() else { return };
    let duplicates = wakes_up(&Broker::Redis(format!("redis://127.0.0.1:{}/0", redis.port()))).await;
    assert!(duplicates > Some(0), "Redis keeps them: {duplicates:?}");
}

/// Returns how many copies the consumer has seen.
async fn wakes_up(broker: &Broker) -> Option<u64> {
    let stock = Stock::fresh().await?;
    stock.commit(numbered(KEYS, 2)).await;
    let (stopped, is_stopped) = channel();
    let (wake, woken) = channel();
    let (started, first) = channel();
    let (stop, stopping) = tokio::sync::oneshot::channel::<()>();
    let (url, of_first) = (stock.database.url(), broker.clone());
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let inner = of_first.publisher().await;
            let publisher = Paused { inner, gate: Mutex::new(Some(Gate { stopped, woken })) };
            let tables = onceward_flows::FlowTables::open(&url).await.unwrap();
            let relay = Relay::new(tables, &Outbox::new(), publisher).with_options(options());
            started.send(relay.clone()).unwrap();
            relay.run_until(async { drop(stopping.await) }).await.unwrap();
        });
    });
    let (first, held) =
        tokio::task::spawn_blocking(move || (first.recv().unwrap(), is_stopped.recv().unwrap()))
            .await
            .unwrap();
    assert!(held > 0);
    // Its lease ends, another one takes over, and newer messages are published.
    let second = Running::start(&stock.database.tables, &stock.outbox, broker.publisher().await);
    second.relay.drained().await.unwrap();
    stock.commit(numbered(KEYS, 4).skip(KEYS * 2)).await;
    second.relay.drained().await.unwrap();
    assert!(second.relay.counts().takeovers > 0);
    assert_eq!(second.relay.counts().published, KEYS as u64 * 4);
    wake.send(()).unwrap();
    while first.counts().published < held as u64 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stock.commit(numbered(KEYS, 5).skip(KEYS * 4)).await;
    let mut duplicates = 0;
    locally(async {
        let consumer = broker.consumer(&stock).await;
        let running = consumer::Running::start(&consumer);
        for key in 0..KEYS {
            stock.until_effects(&format!("k{key}"), "0 1 2 3 4").await;
        }
        while matches!(broker, Broker::Redis(_)) && consumer.counts().duplicates < held as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // An effect can be seen in the database before its consumer knows of the commit.
        while consumer.counts().handled < KEYS as u64 * 5 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(consumer.counts().handled, KEYS as u64 * 5);
        assert_eq!(consumer.counts().dead, 0);
        duplicates = consumer.counts().duplicates;
        running.stop().await;
    })
    .await;
    second.stop().await;
    stop.send(()).unwrap();
    tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
    Some(duplicates)
}
