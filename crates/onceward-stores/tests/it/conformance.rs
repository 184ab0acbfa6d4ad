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
    };
    conformance::run(make, caps).await;
}
