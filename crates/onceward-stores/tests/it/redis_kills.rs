//! Redis is killed under load, again and again: nothing that it acknowledged is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::Store;
use onceward_stores::RedisStore;
use onceward_stores::redis::Options;

use crate::kill_load::{Load, WRITES_PER_KILL};
use crate::servers::Redis;
use crate::support::usual_or_long;

async fn open(url: &str) -> Arc<dyn Store> {
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
    let (lost, acknowledged) = load.lost(&*open(&url).await).await;
    assert!(lost.is_empty(), "{} of {acknowledged} acknowledged ids are lost: {lost:?}", lost.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_a_cluster() {
    let Some(mut nodes) = Redis::start_cluster() else { return };
    let url = nodes[0].url();
    let store = open(&url).await;
    assert!(store.caps().promises.durable);
    let load = Load::start(&store);
    for kill in 0..usual_or_long(10, 50) {
        load.more(WRITES_PER_KILL).await;
        let node = kill % nodes.len();
        tokio::task::block_in_place(|| {
            nodes[node].kill();
            nodes[node].up();
        });
    }
    load.more(WRITES_PER_KILL).await;
    let (lost, acknowledged) = load.lost(&*open(&url).await).await;
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
    let (lost, acknowledged) = load.lost(&*open(&url).await).await;
    assert!(lost.is_empty(), "{} of {acknowledged} acknowledged ids are lost: {lost:?}", lost.len());
}

/// How much later than it arrived an acknowledgement may be noted by a writer.
const NOTED: Duration = Duration::from_millis(50);

/// A replica takes over, again and again, and the store goes on by itself. What the replica had not received is lost, as the
/// caps say, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failovers_by_sentinel_lose_only_what_the_replica_had_not_received() {
    fail_over(None, usual_or_long(10, 50)).await;
}

/// As servers are run that others can reach: clients and replicas log in, and the sentinel too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_with_a_password_fail_over() {
    fail_over(Some("open-sesame"), 2).await;
}

async fn fail_over(password: Option<&str>, failovers: usize) {
    // Otherwise a server waits for seconds before it sends a new replica what it has.
    let no_delay = ["--repl-diskless-sync-delay", "0"];
    let log = ["--appendonly", "yes", "--appendfsync", "always"];
    let logins = password.map(|password| ["--requirepass", password, "--masterauth", password]);
    let logins = logins.as_ref().map_or(&[][..], |logins| &logins[..]);
    let Some(mut primary) = Redis::start_with(&[&log[..], &no_delay, logins].concat()) else { return };
    let port = primary.port().to_string();
    let follows = ["--replicaof", "127.0.0.1", &port];
    let Some(mut replica) = Redis::start_with(&[&follows[..], &no_delay, logins].concat()) else { return };
    let sentinel = primary.start_sentinel();
    tokio::task::block_in_place(|| sentinel.until_replica_of(&replica, &primary));
    let login = password.map(|password| format!(":{password}@")).unwrap_or_default();
    let url = format!("redis://{login}127.0.0.1:{}/0?sentinel=main", sentinel.port());
    let store = open(&url).await;
    assert!(store.caps().promises.failover_loss);
    let load = Load::start(&store);
    // From when on what was acknowledged may be lost in each failover, and until when.
    let mut exposed = Vec::new();
    for failover in 0..failovers {
        load.more(WRITES_PER_KILL).await;
        tokio::task::block_in_place(|| {
            let from = Instant::now();
            // Whatever was acknowledged before is with the replica now.
            primary.until_replicated();
            primary.kill();
            // An acknowledgement that has just arrived is noted a moment later.
            exposed.push(from..=Instant::now() + NOTED);
            sentinel.fail_over(&replica);
        });
        load.more(WRITES_PER_KILL).await;
        assert!(replica.cli(&["ROLE"]).starts_with("master"), "the replica was not promoted");
        // One of the two has no log of its own: what the store says follows the server.
        assert_eq!(store.caps().promises.durable, failover % 2 == 1);
        tokio::task::block_in_place(|| {
            // The one that was killed comes back as a replica of the other, and is the next to take over.
            primary.up();
            sentinel.until_replica_of(&primary, &replica);
        });
        std::mem::swap(&mut primary, &mut replica);
    }
    let (lost, acknowledged) = load.lost_when(&*open(&url).await).await;
    println!("{} of {acknowledged} acknowledged ids were lost in {failovers} failovers", lost.len());
    let unexplained: Vec<_> =
        lost.iter().filter(|(_, at)| !exposed.iter().any(|exposed| exposed.contains(at))).collect();
    assert!(unexplained.is_empty(), "lost although the replica had them: {unexplained:?}");
    let wrong = RedisStore::open(&url.replace("=main", "=other"), Options::default()).await.unwrap_err();
    assert!(wrong.to_string().contains("knows no primary `other`"), "{wrong}");
    if let Some(password) = password {
        for wrong in [url.replace(password, "wrong"), url.replace(&login, "")] {
            let wrong = RedisStore::open(&wrong, Options::default()).await.unwrap_err();
            assert!(wrong.to_string().contains("password"), "{wrong}");
        }
        return;
    }
    let bare = url.split_once('?').unwrap().0;
    let wrong = RedisStore::open(bare, Options::default()).await.unwrap_err();
    assert!(wrong.to_string().contains("is a sentinel"), "{wrong}");
}
