//! Writers for tests that kill servers: they go on whatever happens, and remember what was acknowledged.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onceward::{Id, Loaded, Seen, State, Store, Swap, Swapped, Version};

use crate::support::{id, put};

const WRITERS: usize = 8;
/// Acknowledged writes between two kills.
pub(crate) const WRITES_PER_KILL: usize = 300;

/// The last acknowledged version of each id, and when it was acknowledged.
#[derive(Default)]
struct Acknowledged(Mutex<BTreeMap<Id, (Version, Instant)>>);

impl Acknowledged {
    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Writers that go on until they are told to stop, whatever happens to the servers.
pub(crate) struct Load {
    acknowledged: Arc<Acknowledged>,
    stop: Arc<AtomicBool>,
    writers: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(store: &Arc<dyn Store>) -> Self {
        let (acknowledged, stop) = (Arc::<Acknowledged>::default(), Arc::new(AtomicBool::new(false)));
        let writers = (0..WRITERS)
            .map(|writer| tokio::spawn(write(store.clone(), acknowledged.clone(), stop.clone(), writer)));
        let writers = writers.collect();
        Self { acknowledged, stop, writers }
    }

    /// Waits until this number of further ids is acknowledged.
    pub(crate) async fn more(&self, ids: usize) {
        let wanted = self.acknowledged.count() + ids;
        while self.acknowledged.count() < wanted {
            assert!(!self.writers.iter().any(tokio::task::JoinHandle::is_finished), "a writer has failed");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Stops the writers, and returns the acknowledged ids that another process finds lost, and how many there were.
    pub(crate) async fn lost(self, other: &dyn Store) -> (Vec<Id>, usize) {
        let (lost, acknowledged) = self.lost_when(other).await;
        (lost.into_iter().map(|(id, _)| id).collect(), acknowledged)
    }

    /// The same, with the moment at which each was acknowledged.
    pub(crate) async fn lost_when(self, other: &dyn Store) -> (Vec<(Id, Instant)>, usize) {
        self.stop.store(true, Ordering::SeqCst);
        for writer in self.writers {
            writer.await.unwrap();
        }
        let acknowledged = self.acknowledged.0.lock().unwrap().clone();
        let ids: Vec<Id> = acknowledged.keys().cloned().collect();
        let loaded = load_until_known(other, &ids).await.into_iter().map(Result::unwrap);
        let lost = ids
            .iter()
            .zip(loaded)
            .filter(|(id, found)| found.as_ref().is_none_or(|found| found.version < acknowledged[id].0));
        (lost.map(|(id, _)| (id.clone(), acknowledged[id].1)).collect(), ids.len())
    }
}

/// Reads all of these, for which a server that has just been started again may need a moment. In parts, which are read again
/// by themselves: one call for a hundred thousand ids takes longer than any call may.
async fn load_until_known(store: &dyn Store, ids: &[Id]) -> Vec<Loaded> {
    let mut known = Vec::with_capacity(ids.len());
    for part in ids.chunks(1_000) {
        let give_up = Instant::now() + Duration::from_secs(60);
        let loaded = loop {
            match store.load(part).await {
                Ok(loaded) if loaded.iter().all(Result::is_ok) => break loaded,
                answer => assert!(
                    Instant::now() < give_up,
                    "{:?}",
                    answer.map(|loaded| loaded.into_iter().find(Result::is_err))
                ),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        known.extend(loaded);
    }
    known
}

/// Claims and completes one id after the other. What an error leaves open is looked up.
async fn write(store: Arc<dyn Store>, acknowledged: Arc<Acknowledged>, stop: Arc<AtomicBool>, writer: usize) {
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let id = id(format!("{writer}-{number}"));
        let mut seen = Seen::Absent;
        for state in [State::Held, State::Done] {
            let swap = put(id.clone(), seen, state, Some(3600));
            // The acknowledged claim is gone: that is counted in the end.
            let Some(version) = swap_until_known(&*store, &swap).await else { break };
            acknowledged.0.lock().unwrap().insert(id.clone(), (version, Instant::now()));
            seen = Seen::Version(version);
        }
    }
}

/// Swaps until it is known to be done. Nobody else writes this id; `None` if what it replaces is not there any more.
async fn swap_until_known(store: &dyn Store, swap: &Swap) -> Option<Version> {
    let wanted = swap.new.as_ref().map(|record| record.state);
    loop {
        match store.swap(std::slice::from_ref(swap)).await.map(|mut answers| answers.remove(0)) {
            Ok(Swapped::Won(version)) => return Some(version),
            Ok(Swapped::Lost(Some(found))) if Some(found.state) == wanted => return Some(found.version),
            Ok(Swapped::Lost(None)) => return None,
            Ok(Swapped::Lost(found)) => panic!("{:?}: lost to {found:?}, and nobody else writes", swap.id),
            Ok(Swapped::Failed(_)) | Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}
