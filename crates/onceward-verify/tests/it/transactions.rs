//! Runs the conformance suite for transactions on the memory driver, which passes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use onceward::{Stopped, Store};
use onceward_stores::MemoryStore;
use onceward_stores::memory::{MemoryTransactions, MemoryTx};
use onceward_verify::conformance::{self, Harness};

/// Counters in memory, changed at the commit.
pub(crate) struct MemoryHarness {
    store: MemoryStore,
    transactions: MemoryTransactions,
    counters: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl MemoryHarness {
    pub(crate) fn fresh() -> Self {
        let store = MemoryStore::new();
        let transactions = MemoryTransactions::new(&store);
        Self { store, transactions, counters: Arc::default() }
    }
}

impl Harness for MemoryHarness {
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
        tx.on_commit(move || {
            *counters.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
        })?;
        Ok(())
    }

    async fn count(&self, key: &str) -> Result<u64, Stopped> {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(counters.get(key).copied().unwrap_or_default())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_passes() {
    conformance::transactions(async || Ok(MemoryHarness::fresh())).await;
}

#[tokio::test]
async fn memory_passes_on_one_thread() {
    conformance::transactions(async || Ok(MemoryHarness::fresh())).await;
}
