//! Runs the conformance suite on every store. The promises of each store are repeated here, so that an accidental
//! change of a promise fails.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use onceward::{Caps, Hints, Promises, Stopped, Store};
use onceward_stores::memory::{MemoryStore, MemoryTransactions, MemoryTx};
use onceward_verify::conformance;

fn announced(name: &'static str, promises: Promises, hints: Hints) -> Caps {
    Caps::new(name, promises).with_hints(hints)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory() {
    let make = async || Ok(Arc::new(MemoryStore::new()) as Arc<dyn Store>);
    let caps = announced(
        "memory",
        Promises::default().with_durable(false).with_atomic(true).with_shared(false).with_transactions(true),
        Hints::default().with_batches_in_flight(1).with_batches_internally(false),
    );
    conformance::run(make, caps).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_transactions() {
    conformance::transactions(async || Ok(MemoryHarness::new())).await;
}

/// The counters are numbers in this process, locked by their names as a database locks rows.
struct MemoryHarness {
    store: MemoryStore,
    transactions: MemoryTransactions,
    counters: Arc<Mutex<HashMap<String, u64>>>,
}

impl MemoryHarness {
    fn new() -> Self {
        let store = MemoryStore::new();
        let transactions = MemoryTransactions::new(&store);
        Self { store, transactions, counters: Arc::default() }
    }
}

impl conformance::Harness for MemoryHarness {
    type T = MemoryTransactions;

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn transactions(&self) -> &MemoryTransactions {
        &self.transactions
    }

    async fn write(&self, tx: &mut MemoryTx, key: &str) -> Result<(), Stopped> {
        tx.lock(key).await?;
        let (counters, key) = (Arc::clone(&self.counters), key.to_owned());
        tx.on_commit(move || *counters.lock().unwrap().entry(key).or_default() += 1)?;
        Ok(())
    }

    async fn count(&self, key: &str) -> Result<u64, Stopped> {
        Ok(self.counters.lock().unwrap().get(key).copied().unwrap_or_default())
    }
}

#[cfg(feature = "embedded")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded() {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use onceward_stores::EmbeddedStore;
    use onceward_stores::embedded::Options;

    let root = tempfile::tempdir().expect("a temporary folder");
    let opened = AtomicUsize::new(0);
    let make = async || {
        let folder = root.path().join(opened.fetch_add(1, Ordering::Relaxed).to_string());
        let store = EmbeddedStore::open(&folder, Options::default()).await?;
        Ok(Arc::new(store) as Arc<dyn Store>)
    };
    let caps = announced(
        "embedded",
        Promises::default().with_durable(true).with_atomic(true).with_record_bytes_max(2 << 30),
        Hints::default().with_batches_in_flight(2).with_batches_internally(true),
    );
    conformance::run(make, caps).await;
}

/// What every database promises.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
fn in_a_database(record_bytes_max: usize) -> Promises {
    Promises::default()
        .with_durable(true)
        .with_atomic(true)
        .with_shared(true)
        .with_transactions(true)
        .with_record_bytes_max(record_bytes_max)
}

/// A fresh schema for each check: as good as a fresh database, and much faster to make.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use onceward_stores::{PostgresStore, sql::Options};

    let Some(server) = crate::servers::Postgres::shared() else { return };
    let (database, opened) = (server.fresh(), AtomicUsize::new(0));
    let make = async || {
        let schema = format!("check{}", opened.fetch_add(1, Ordering::Relaxed));
        server.sql(&database, &format!("CREATE SCHEMA {schema}"));
        let url = format!("{}?options=-csearch_path%3D{schema}", server.url(&database));
        Ok(Arc::new(PostgresStore::open(&url, Options::default()).await?) as Arc<dyn Store>)
    };
    let caps = announced(
        "postgres",
        in_a_database((1 << 30) - (16 << 20)),
        Hints::default().with_batches_in_flight(2).with_batches_internally(false),
    );
    conformance::run(make, caps).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite() {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use onceward_stores::{SqliteStore, sql::Options};

    let root = tempfile::tempdir().expect("a temporary folder");
    let opened = AtomicUsize::new(0);
    let make = async || {
        let file = root.path().join(opened.fetch_add(1, Ordering::Relaxed).to_string());
        Ok(Arc::new(SqliteStore::open(file, Options::default()).await?) as Arc<dyn Store>)
    };
    let caps = announced(
        "sqlite",
        in_a_database(1_000_000_000 - (64 << 10)),
        Hints::default().with_batches_in_flight(2).with_batches_internally(false),
    );
    conformance::run(make, caps).await;
}

/// `MariaDB` stands for both.
#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql() {
    use onceward_stores::{MySqlStore, sql::Options};

    let Some(server) = crate::servers::MariaDb::shared() else { return };
    let make = async || {
        let url = server.url(&server.fresh());
        Ok(Arc::new(MySqlStore::open(&url, Options::default()).await?) as Arc<dyn Store>)
    };
    let caps = announced(
        "mysql",
        // Half of what the server takes by default, in hexadecimal.
        in_a_database(((16 << 20) - (64 << 10)) / 2 - (2 << 10)),
        Hints::default().with_batches_in_flight(4).with_batches_internally(false),
    );
    conformance::run(make, caps).await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis() {
    use onceward_stores::{RedisStore, redis::Options};

    let Some(server) = crate::servers::Redis::shared() else { return };
    let make =
        async || Ok(Arc::new(RedisStore::open(&server.url(), Options::default()).await?) as Arc<dyn Store>);
    conformance::run(make, redis_caps()).await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_cluster() {
    use onceward_stores::{RedisStore, redis::Options};

    let Some(nodes) = crate::servers::Redis::start_cluster() else { return };
    let make =
        async || Ok(Arc::new(RedisStore::open(&nodes[0].url(), Options::default()).await?) as Arc<dyn Store>);
    conformance::run(make, redis_caps()).await;
}

/// The primary that a sentinel names.
#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_sentinel() {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use onceward_stores::{RedisStore, redis::Options};

    let Some(primary) = crate::servers::Redis::start() else { return };
    let port = primary.port().to_string();
    let Some(_replica) = crate::servers::Redis::start_with(&["--replicaof", "127.0.0.1", &port]) else {
        return;
    };
    let (sentinel, opened) = (primary.start_sentinel(), AtomicUsize::new(0));
    let make = async || {
        let prefix = opened.fetch_add(1, Ordering::Relaxed);
        let url = format!("redis://127.0.0.1:{}/0?sentinel=main&prefix=p{prefix}", sentinel.port());
        Ok(Arc::new(RedisStore::open(&url, Options::default()).await?) as Arc<dyn Store>)
    };
    conformance::run(make, redis_caps()).await;
}

/// What every Redis promises that syncs its writes.
#[cfg(feature = "redis")]
fn redis_caps() -> Caps {
    let promises = Promises::default().with_durable(true).with_atomic(true).with_failover_loss(true);
    announced(
        "redis",
        promises.with_shared(true).with_record_bytes_max(64 << 20),
        Hints::default().with_batches_in_flight(2).with_batches_internally(false),
    )
}

#[cfg(feature = "etcd")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd() {
    use onceward_stores::{EtcdStore, etcd::Options};

    let Some(server) = crate::servers::Etcd::shared() else { return };
    let make =
        async || Ok(Arc::new(EtcdStore::open(&server.url(), Options::default()).await?) as Arc<dyn Store>);
    conformance::run(make, etcd_caps()).await;
}

#[cfg(feature = "etcd")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_cluster() {
    use onceward_stores::{EtcdStore, etcd::Options};

    let Some(nodes) = crate::servers::Etcd::start_cluster() else { return };
    let make = async || {
        let url = crate::servers::Etcd::cluster_url(&nodes);
        Ok(Arc::new(EtcdStore::open(&url, Options::default()).await?) as Arc<dyn Store>)
    };
    conformance::run(make, etcd_caps()).await;
}

/// Durable, also across a failover; with the clock of the processes.
#[cfg(feature = "etcd")]
fn etcd_caps() -> Caps {
    let clock = onceward::ClockSource::Process { margin: std::time::Duration::from_secs(2) };
    let promises = Promises::default().with_durable(true).with_atomic(true).with_shared(true);
    announced(
        "etcd",
        promises.with_clock(clock).with_record_bytes_max(1 << 20),
        Hints::default().with_batches_in_flight(4).with_batches_internally(false),
    )
}
