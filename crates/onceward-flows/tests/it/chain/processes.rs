//! The processes of the chain. Each is this test binary again, with a role.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onceward::Onceward;
use onceward_flows::{
    Consumer, ConsumerDatabase, Failure, FlowTables, Message, NatsPublisher, NatsSource, Outbox, Publisher,
    RabbitMqPublisher, RabbitMqSource, RabbitMqStreams, Received, RedisPublisher, RedisSource, Relay, Source,
};
use onceward_stores::sql::{Cell, Dialect, SqlTransaction, Value};

use super::{ALONE, BAD_KEYS, KEYS, PARTITIONS, STREAM, is_made_to_fail};
use crate::engines::{Engine, MariaDb, Postgres, Sqlite};
use crate::support::Random;

pub(super) const RELAY_LEASE: Duration = Duration::from_millis(500);
pub(super) const CONSUMER_LEASE: Duration = Duration::from_millis(900);
const ROLE: &str = "ONCEWARD_FLOWS_ROLE";
/// Set for a stock service that handles what is made to fail.
const FIXED: &str = "ONCEWARD_FIXED";

/// Where the processes find each other.
#[derive(Clone)]
pub(super) struct Addresses {
    pub(super) orders: String,
    pub(super) stock: String,
    pub(super) broker: String,
}

impl Addresses {
    /// What the processes of a role have to say: shown if the chain is stuck.
    pub(super) fn log_file(&self, role: &str) -> PathBuf {
        let scheme = |url: &str| url.split(':').next().unwrap_or_default().to_owned();
        let name = format!("{}-{}-{role}", scheme(&self.orders), scheme(&self.broker));
        std::env::temp_dir().join(format!("onceward-chain-{}-{name}.log", std::process::id()))
    }
}

/// A process of the chain; it ends with this one.
pub(super) struct Process {
    pub(super) role: &'static str,
    pub(super) child: Child,
}

impl Process {
    pub(super) fn start(role: &'static str, addresses: &Addresses, is_fixed: bool) -> Self {
        let file = addresses.log_file(role);
        let log = std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
        let Addresses { orders, stock, broker } = addresses;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "chain::processes::process_of_the_chain", "--nocapture"])
            .env(ROLE, role)
            .envs([("ONCEWARD_ORDERS", orders), ("ONCEWARD_STOCK", stock), ("ONCEWARD_BROKER", broker)])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log);
        if is_fixed {
            command.env(FIXED, "1");
        }
        Self { role, child: command.spawn().unwrap() }
    }

    /// SIGSTOP: it keeps its connections and does nothing.
    pub(super) fn pause(&self) {
        self.signal("-STOP");
    }

    /// SIGCONT.
    pub(super) fn wake(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(signal).arg(self.child.id().to_string()).status();
        assert!(sent.unwrap().success(), "{signal} to the process of {}", self.role);
    }
}

/// SIGKILL.
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_of_the_chain() {
    let Ok(role) = std::env::var(ROLE) else { return };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    // When the test is gone, so is its input.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let orders = std::env::var("ONCEWARD_ORDERS").unwrap();
    match orders.split(':').next() {
        Some("mysql") => run::<MariaDb>(&role, &orders).await,
        Some("sqlite") => run::<Sqlite>(&role, &orders).await,
        _ => run::<Postgres>(&role, &orders).await,
    }
}

async fn run<E: Engine>(role: &str, orders: &str) {
    let url = |name: &str| std::env::var(name).unwrap();
    loop {
        let ended = match role {
            "orders" => take_orders::<E>(orders).await,
            "relay" => relay(orders, &url("ONCEWARD_BROKER")).await,
            _ => {
                let (stock, broker) = (url("ONCEWARD_STOCK"), url("ONCEWARD_BROKER"));
                tokio::task::LocalSet::new().run_until(consume::<E>(role, &stock, &broker)).await
            }
        };
        // A server was killed at a bad moment; a supervisor would start the process again.
        eprintln!("{role} ended: {ended:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

type Ended = Result<(), Box<dyn std::error::Error>>;

/// Two orders in a transaction, mostly of keys whose messages all can be handled; one in ten is rolled back.
async fn take_orders<E: Engine>(url: &str) -> Ended {
    let (outbox, pool) = (Outbox::new(), E::pool(url).await);
    let mut random = Random(u64::from(std::process::id()));
    loop {
        let mut tx = pool.begin_with(E::BEGIN).await?;
        let mut messages = Vec::new();
        // Rows are locked in one order.
        let mut keys = [(); 2].map(|()| match random.below(20) {
            0 => random.below(BAD_KEYS),
            _ => BAD_KEYS + random.below(KEYS - BAD_KEYS),
        });
        keys.sort_unstable();
        let mut names: Vec<String> = keys.iter().map(|key| format!("k{key}")).collect();
        if random.below(50) == 0 {
            names.push(ALONE.to_owned());
        }
        for name in names {
            tx.fetch(&format!("UPDATE counters SET n = n + 1 WHERE name = '{name}'"), &[]).await?;
            let row = tx.fetch(&format!("SELECT n FROM counters WHERE name = '{name}'"), &[]).await?;
            let Some([Cell::Int(n)]) = row.as_deref() else { panic!("{row:?}") };
            let message = Message::new("orders.placed", n.to_string());
            let message = if name == ALONE { message } else { message.with_ordering_key(name.clone()) };
            insert(&mut tx, "orders", &name, *n, message.id()).await?;
            messages.push(message);
        }
        let wake = outbox.add_all(&mut tx, messages).await?;
        if random.below(10) == 0 {
            tx.rollback().await?;
        } else {
            tx.commit().await?;
        }
        wake.fire();
        // So that the rest of the chain keeps up.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn insert(
    tx: &mut impl SqlTransaction,
    table: &str,
    name: &str,
    n: i64,
    message: &str,
) -> onceward::Result<()> {
    let places = if tx.dialect() == Dialect::Postgres { "$1, $2, $3" } else { "?, ?, ?" };
    let insert = format!("INSERT INTO {table} (name, n, message) VALUES ({places})");
    tx.fetch(&insert, &[Value::Text(name), Value::Int(Some(n)), Value::Text(message)]).await.map(drop)
}

async fn relay(url: &str, broker: &str) -> Ended {
    let publisher: Arc<dyn Publisher> = match broker.split(':').next() {
        Some("nats") => {
            let context = async_nats::jetstream::new(async_nats::connect(broker).await?);
            Arc::new(NatsPublisher::new(context, STREAM, PARTITIONS)?)
        }
        Some("redis") => Arc::new(RedisPublisher::open(broker, STREAM, PARTITIONS).await?),
        _ => Arc::new(RabbitMqPublisher::open(&RabbitMqStreams::new(broker, STREAM, PARTITIONS)?).await?),
    };
    let mut options = onceward_flows::RelayOptions::default();
    options.lease = RELAY_LEASE;
    let relay = Relay::new(FlowTables::open(url).await?, &Outbox::new(), publisher).with_options(options);
    Ok(relay.run_until(std::future::pending()).await?)
}

async fn consume<E: Engine>(role: &str, url: &str, broker: &str) -> Ended {
    match broker.split(':').next() {
        Some("nats") => {
            let context = async_nats::jetstream::new(async_nats::connect(broker).await?);
            consume_from::<E>(role, url, NatsSource::new(context, STREAM, STREAM, PARTITIONS)?).await
        }
        Some("redis") => consume_from::<E>(role, url, RedisSource::new(broker, STREAM, PARTITIONS)?).await,
        _ => {
            let streams = RabbitMqStreams::new(broker, STREAM, PARTITIONS)?;
            consume_from::<E>(role, url, RabbitMqSource::new(&streams)).await
        }
    }
}

async fn consume_from<E: Engine>(role: &str, url: &str, source: impl Source + 'static) -> Ended {
    let onceward = Onceward::new(onceward_stores::open(url).await?)?;
    let database = ConsumerDatabase::new(onceward, E::transactions(url), FlowTables::open(url).await?);
    let mut options = crate::consumer::options();
    (options.lease, options.parked_max) = (CONSUMER_LEASE, 1_000_000);
    let consumer = Consumer::new("stock", source, database).with_options(options);
    let is_fixed = std::env::var_os(FIXED).is_some();
    let stop = std::future::pending();
    if role == "batches" {
        let several = async |batch: Vec<Received>, mut tx: E::Tx| {
            for received in &batch {
                effect(received, &mut tx, is_fixed).await?;
            }
            Ok(())
        };
        return Ok(consumer.handle_batches_until(stop, several).await?);
    }
    let one = async |received: Received, mut tx: E::Tx| effect(&received, &mut tx, is_fixed).await;
    Ok(consumer.handle_until(stop, one).await?)
}

async fn effect(received: &Received, tx: &mut impl SqlTransaction, is_fixed: bool) -> Result<(), Failure> {
    let message = &received.message;
    let n: i64 = std::str::from_utf8(message.payload())?.parse()?;
    let name = message.ordering_key().unwrap_or(ALONE);
    insert(tx, "effects", name, n, message.id()).await?;
    if is_made_to_fail(name, n) && !is_fixed {
        return Err(Failure::permanent("made to fail"));
    }
    Ok(())
}
