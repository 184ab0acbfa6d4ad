//! Redis is killed under load, again and again: nothing that it acknowledged is lost.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::{Id, Seen, State, Store, Swap, Swapped, Version};
use onceward_stores::RedisStore;
use onceward_stores::redis::Options;

use crate::servers::Redis;
use crate::support::{id, put, usual_or_long};

const WRITERS: usize = 8;
/// Acknowledged writes between two kills.
const WRITES_PER_KILL: usize = 300;

/// The last acknowledged version of each id.
#[derive(Default)]
struct Acknowledged(Mutex<BTreeMap<Id, Version>>);

impl Acknowledged {
    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Writers that go on until they are told to stop, whatever happens to the servers.
struct Load {
    acknowledged: Arc<Acknowledged>,
    stop: Arc<AtomicBool>,
    writers: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn start(store: &Arc<RedisStore>) -> Self {
        let (acknowledged, stop) = (Arc::<Acknowledged>::default(), Arc::new(AtomicBool::new(false)));
        let writers = (0..WRITERS)
            .map(|writer| tokio::spawn(write(store.clone(), acknowledged.clone(), stop.clone(), writer)));
        let writers = writers.collect();
        Self { acknowledged, stop, writers }
    }

    /// Waits until this number of further ids is acknowledged.
    async fn more(&self, ids: usize) {
        let wanted = self.acknowledged.count() + ids;
        while self.acknowledged.count() < wanted {
            assert!(!self.writers.iter().any(tokio::task::JoinHandle::is_finished), "a writer has failed");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Stops the writers, and returns the acknowledged ids that another process finds lost, and how many there were.
    async fn lost(self, url: &str) -> (Vec<Id>, usize) {
        self.stop.store(true, Ordering::SeqCst);
        for writer in self.writers {
            writer.await.unwrap();
        }
        let acknowledged = self.acknowledged.0.lock().unwrap().clone();
        let ids: Vec<Id> = acknowledged.keys().cloned().collect();
        let other = RedisStore::open(url, Options::default()).await.unwrap();
        let loaded = other.load(&ids).await.unwrap().into_iter().map(Result::unwrap);
        let lost = ids
            .iter()
            .zip(loaded)
            .filter(|(id, found)| found.as_ref().is_none_or(|found| found.version < acknowledged[id]));
        (lost.map(|(id, _)| id.clone()).collect(), ids.len())
    }
}

async fn open(url: &str) -> Arc<RedisStore> {
    let options = Options::default().with_call_timeout(Duration::from_secs(5));
    Arc::new(RedisStore::open(url, options).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost() {
    let Some(mut server) = Redis::start() else { return };
    let url = server.url();
    let store = open(&url).await;
    assert!(store.caps().promises.durable);
    let load = Load::start(&store);
    for _ in 0..usual_or_long(10, 50) {
        load.more(WRITES_PER_KILL).await;
        tokio::task::block_in_place(|| {
            server.kill();
            server.up();
        });
    }
    let (lost, acknowledged) = load.lost(&url).await;
    assert!(lost.is_empty(), "{} of {acknowledged} acknowledged ids are lost: {lost:?}", lost.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_a_cluster() {
    let Some(mut nodes) = Redis::start_cluster() else { return };
    let url = nodes[0].url();
    let store = open(&url).await;
    assert!(store.caps().promises.durable);
    let load = Load::start(&store);
    for kill in 0..usual_or_long(5, 50) {
        load.more(WRITES_PER_KILL).await;
        let node = kill % nodes.len();
        tokio::task::block_in_place(|| {
            nodes[node].kill();
            nodes[node].up();
        });
    }
    load.more(WRITES_PER_KILL).await;
    let (lost, acknowledged) = load.lost(&url).await;
    assert!(lost.is_empty(), "{} of {acknowledged} acknowledged ids are lost: {lost:?}", lost.len());
}

/// Slots move from node to node under load: calls are refused for a moment, and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_slots_move() {
    let Some(nodes) = Redis::start_cluster() else { return };
    let url = nodes[0].url();
    let store = open(&url).await;
    let load = Load::start(&store);
    load.more(WRITES_PER_KILL).await;
    let (first, second) = (nodes[0].cli(&["CLUSTER", "MYID"]), nodes[1].cli(&["CLUSTER", "MYID"]));
    tokio::task::block_in_place(|| {
        let moved = nodes[0].cli(&[
            "--cluster",
            "reshard",
            &format!("127.0.0.1:{}", nodes[0].port()),
            "--cluster-from",
            &first,
            "--cluster-to",
            &second,
            "--cluster-slots",
            "1000",
            "--cluster-yes",
        ]);
        assert!(moved.contains("Moving slot"), "{moved}");
    });
    load.more(WRITES_PER_KILL).await;
    let (lost, acknowledged) = load.lost(&url).await;
    assert!(lost.is_empty(), "{} of {acknowledged} acknowledged ids are lost: {lost:?}", lost.len());
}

/// A replica takes over. What it had not received is lost, as the caps say; the store goes on by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_by_sentinel_is_followed() {
    let Some(mut primary) = Redis::start() else { return };
    let port = primary.port().to_string();
    let Some(replica) = Redis::start_with(&["--replicaof", "127.0.0.1", &port]) else { return };
    let sentinel = primary.start_sentinel();
    let url = format!("redis://127.0.0.1:{}/0?sentinel=main", sentinel.port());
    let store = open(&url).await;
    assert!(store.caps().promises.failover_loss);
    let load = Load::start(&store);
    load.more(WRITES_PER_KILL).await;
    tokio::task::block_in_place(|| primary.kill());
    load.more(WRITES_PER_KILL).await;
    assert!(replica.cli(&["ROLE"]).starts_with("master"), "the replica was not promoted");
    // It has no log of its own: what the store says follows the server.
    assert!(!store.caps().promises.durable);
    let (lost, acknowledged) = load.lost(&url).await;
    println!("{} of {acknowledged} acknowledged ids were lost in the failover", lost.len());
    let wrong = RedisStore::open(&url.replace("=main", "=other"), Options::default()).await.unwrap_err();
    assert!(wrong.to_string().contains("knows no primary `other`"), "{wrong}");
    let bare = url.split_once('?').unwrap().0;
    let wrong = RedisStore::open(bare, Options::default()).await.unwrap_err();
    assert!(wrong.to_string().contains("is a sentinel"), "{wrong}");
}

/// Claims and completes one id after the other. What an error leaves open is looked up.
async fn write(
    store: Arc<RedisStore>,
    acknowledged: Arc<Acknowledged>,
    stop: Arc<AtomicBool>,
    writer: usize,
) {
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let id = id(format!("{writer}-{number}"));
        let mut seen = Seen::Absent;
        for state in [State::Held, State::Done] {
            let swap = put(id.clone(), seen, state, Some(3600));
            // The acknowledged claim is gone: that is counted in the end.
            let Some(version) = swap_until_known(&store, &swap).await else { break };
            acknowledged.0.lock().unwrap().insert(id.clone(), version);
            seen = Seen::Version(version);
        }
    }
}

/// Swaps until it is known to be done. Nobody else writes this id; `None` if what it replaces is not there any more.
async fn swap_until_known(store: &RedisStore, swap: &Swap) -> Option<Version> {
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
