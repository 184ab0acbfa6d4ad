//! The whole conformance suite on every store, one call each. What a store is to promise is written here
//! once more: a promise that changes by accident fails.

use std::sync::Arc;

use onceward::{Caps, Store};
use onceward_stores::MemoryStore;
use onceward_verify::conformance;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory() {
    let make = async || Ok(Arc::new(MemoryStore::new()) as Arc<dyn Store>);
    let caps = Caps {
        name: "memory",
        durable: false,
        atomic: true,
        shared: false,
        transactions: false,
        batches_in_flight: 1,
        gathers: false,
    };
    conformance::run(make, caps).await;
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
    let caps = Caps {
        name: "embedded",
        durable: true,
        atomic: true,
        shared: false,
        transactions: false,
        batches_in_flight: 2,
        gathers: true,
    };
    conformance::run(make, caps).await;
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
    let caps = Caps {
        name: "postgres",
        durable: true,
        atomic: true,
        shared: true,
        transactions: true,
        batches_in_flight: 2,
        gathers: false,
    };
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
    let caps = Caps {
        name: "sqlite",
        durable: true,
        atomic: true,
        shared: true,
        transactions: true,
        batches_in_flight: 2,
        gathers: false,
    };
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
    let caps = Caps {
        name: "mysql",
        durable: true,
        atomic: true,
        shared: true,
        transactions: true,
        batches_in_flight: 4,
        gathers: false,
    };
    conformance::run(make, caps).await;
}
