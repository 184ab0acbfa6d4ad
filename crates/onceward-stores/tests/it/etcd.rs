//! etcd from outside: damage, bad input, a full server, several processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onceward::{
    Applied, Ask, Error, ErrorKind, Fingerprint, Id, Onceward, Outcome, Policy, Seen, State, Store, Swapped,
};
use onceward_stores::EtcdStore;
use onceward_stores::etcd::Options;
use onceward_verify::conformance::{self, Damage};

use crate::dated_proxy::{DatedProxy, NO_DATE};
use crate::opening::Log;
use crate::servers::Etcd;
use crate::support::{id, put};

async fn open(url: &str) -> Result<EtcdStore, Error> {
    EtcdStore::open(url, Options::default().with_call_timeout(Duration::from_secs(5))).await
}

/// The error of an opening that must fail.
async fn refused(url: &str) -> Error {
    open(url).await.err().unwrap_or_else(|| panic!("{url} opened"))
}

fn says(error: &Error, kind: ErrorKind, word: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(word), "{error}");
}

/// A record whose state is of a later version.
struct LaterState {
    store: Arc<EtcdStore>,
    server: &'static Etcd,
    prefix: String,
}

impl Damage for LaterState {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn damage(&self, id: &Id) {
        let key = [self.prefix.as_bytes(), b"r/", id.as_bytes()].concat();
        let value = b"oe1z, and what may follow that in a later version";
        self.server.put(&STANDARD.encode(key), &STANDARD.encode(value));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable() {
    let Some(server) = Etcd::shared() else { return };
    conformance::unreadable(async || {
        let url = server.url();
        let prefix = url.split_once("prefix=").unwrap().1.to_owned();
        Ok(LaterState { store: Arc::new(open(&url).await?), server, prefix })
    })
    .await;
}

#[tokio::test]
async fn wrong_addresses_say_what_to_do() {
    let Some(server) = Etcd::start() else { return };
    let at = format!("127.0.0.1:{}", server.port());
    server.cli(&["user", "add", "root:secret"]);
    server.cli(&["user", "grant-role", "root", "root"]);
    server.cli(&["auth", "enable"]);
    says(&refused(&format!("etcd://root:wrong@{at}")).await, ErrorKind::Invalid, "login");
    says(&refused(&format!("etcd://{at}")).await, ErrorKind::Invalid, "login");
    let store = open(&format!("etcd://root:secret@{at}")).await.unwrap();
    let swapped = store.swap(&[put(id(1), Seen::Absent, State::Held, Some(60))]).await.unwrap();
    assert!(matches!(swapped[..], [Swapped::Won(_)]));
    drop(server);
    says(
        &refused(&format!("etcd://{at}")).await,
        ErrorKind::Unavailable,
        &format!("cannot reach etcd at {at}"),
    );
}

/// The login of a store that is open ends: a simple token is forgotten when the server starts again.
#[tokio::test]
async fn a_login_that_has_ended_is_renewed() {
    let Some(mut server) = Etcd::start() else { return };
    server.cli(&["user", "add", "root:secret"]);
    server.cli(&["user", "grant-role", "root", "root"]);
    server.cli(&["auth", "enable"]);
    let store = open(&format!("etcd://root:secret@127.0.0.1:{}", server.port())).await.unwrap();
    assert!(store.load(&[id(1)]).await.unwrap()[0].is_ok());
    server.kill();
    assert!(store.load(&[id(1)]).await.is_err());
    server.up();
    let swapped = store.swap(&[put(id(1), Seen::Absent, State::Held, Some(60))]).await.unwrap();
    assert!(matches!(swapped[..], [Swapped::Won(_)]), "{swapped:?}");
}

#[tokio::test]
async fn a_prefix_of_somebody_else_is_refused() {
    let Some(server) = Etcd::shared() else { return };
    let url = server.url();
    let prefix = url.split_once("prefix=").unwrap().1;
    server.cli(&["put", &format!("{prefix}format"), "theirs"]);
    says(&refused(&url).await, ErrorKind::Foreign, "another prefix");
    server.cli(&["put", &format!("{prefix}format"), "onceward receipts 2"]);
    says(&refused(&url).await, ErrorKind::Foreign, "newer");
}

#[tokio::test]
async fn without_the_gateway_it_says_so() {
    let Some(server) = Etcd::start_with(&["--enable-grpc-gateway=false"]) else { return };
    says(&refused(&server.url()).await, ErrorKind::Unavailable, "--enable-grpc-gateway");
}

/// At its quota etcd takes no writes, and says so; what is there stays readable.
#[tokio::test]
async fn a_full_server_says_so_and_nothing_is_written() {
    let Some(server) = Etcd::start_with(&["--quota-backend-bytes", "4194304"]) else { return };
    let store = open(&server.url()).await.unwrap();
    let big = |key: usize| {
        let mut swap = put(id(key), Seen::Absent, State::Held, Some(60));
        swap.new = Some(swap.new.unwrap().with_bytes(vec![7; 700_000]));
        swap
    };
    let full = async {
        for key in 0.. {
            match store.swap(&[big(key)]).await {
                Ok(swapped) => assert!(matches!(swapped[..], [Swapped::Won(_)]), "{swapped:?}"),
                Err(error) => return (key, error),
            }
        }
        unreachable!("the quota is small")
    };
    let (key, error) = tokio::time::timeout(Duration::from_secs(60), full).await.unwrap();
    says(&error, ErrorKind::Full, "quota");
    // As far as the answer tells: the transaction with which a server passes its quota is applied and then refused.
    assert_eq!(error.applied(), Applied::Maybe);
    assert!(key > 0);
    let loaded = store.load(&[id(0), id(key)]).await.unwrap();
    assert!(matches!(loaded[..], [Ok(Some(_)), Ok(None)]));
    // A process that is started now says it to its operator, and that it cannot begin.
    let (log, guard) = Log::begin();
    says(&refused(&server.url()).await, ErrorKind::Full, "quota");
    let said = log.text();
    for line in
        ["bytes of a quota of 4194304 are used", "at the quota it takes no writes", "the alarm NOSPACE"]
    {
        assert!(said.contains(line), "{line}: {said}");
    }
    drop(guard);
}

/// A server that is never compacted keeps every version of every key, and fills its quota. A process that is started says it
/// to its operator, until the server is compacted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_history_that_is_never_compacted_is_said_in_the_log() {
    let Some(server) = Etcd::start() else { return };
    let said_at_open = async || {
        let (log, guard) = Log::begin();
        drop(open(&server.url()).await.unwrap());
        drop(guard);
        log.text()
    };
    let said = said_at_open().await;
    assert!(!said.contains("--auto-compaction-retention"), "a short history is no reason: {said}");
    server.write_versions(10_001);
    let said = said_at_open().await;
    assert!(said.contains("keeps every version of every key since it began"), "{said}");
    assert!(said.contains("--auto-compaction-retention") && said.contains("WARN"), "{said}");
    server.cli(&["compact", "10000"]);
    let said = said_at_open().await;
    assert!(!said.contains("--auto-compaction-retention"), "{said}");
}

/// A process that was paused learns it from the answer to its next claim. The lease that it stamped with the time before the
/// pause would be over already for all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_after_a_pause_has_its_whole_lease() {
    let Some(server) = Etcd::shared() else { return };
    let url = server.url();
    crate::paused::a_claim_after_a_pause_has_its_whole_lease(server.port(), async |port| {
        open(&url.replace(&format!(":{}", server.port()), &format!(":{port}"))).await
    })
    .await;
}

#[tokio::test]
async fn without_a_clock_to_go_by_it_is_refused() {
    let Some(server) = Etcd::shared() else { return };
    let url = server.url();
    let proxy = DatedProxy::start(server.port(), NO_DATE).await;
    let url = url.replace(&format!(":{}", server.port()), &format!(":{}", proxy.port));
    says(&refused(&url).await, ErrorKind::Unfit, "no Date field");
}

#[tokio::test]
async fn servers_whose_clocks_differ_are_refused() {
    let Some(server) = Etcd::shared() else { return };
    let (one, other) =
        (DatedProxy::start(server.port(), 0).await, DatedProxy::start(server.port(), 10).await);
    let prefix = server.url().split_once('?').unwrap().1.to_owned();
    let url = format!("etcd://127.0.0.1:{},127.0.0.1:{}?{prefix}", one.port, other.port);
    says(&refused(&url).await, ErrorKind::Unfit, "synchronise");
    other.set(0);
    open(&url).await.unwrap();
}

/// A user of etcd's own may read and write under its prefix only.
#[tokio::test]
async fn a_user_without_rights_is_told_which_it_needs() {
    let Some(server) = Etcd::start() else { return };
    for command in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "theirs"],
        &["role", "grant-permission", "theirs", "--prefix=true", "readwrite", "theirs/"],
        &["user", "add", "app:secret"],
        &["user", "grant-role", "app", "theirs"],
        &["auth", "enable"],
    ] {
        server.cli(command);
    }
    let at = format!("etcd://app:secret@127.0.0.1:{}", server.port());
    says(&refused(&at).await, ErrorKind::Invalid, "lacks a right");
    let store = open(&format!("{at}?prefix=theirs/")).await.unwrap();
    let swapped = store.swap(&[put(id(1), Seen::Absent, State::Held, Some(60))]).await.unwrap();
    assert!(matches!(swapped[..], [Swapped::Won(_)]), "{swapped:?}");
}

/// A value of another program under one of our keys fails its own id, stays as it is, and stops nobody else.
#[tokio::test]
async fn values_of_others_are_left_alone() {
    let Some(server) = Etcd::shared() else { return };
    let url = server.url();
    let prefix = url.split_once("prefix=").unwrap().1;
    let store = open(&url).await.unwrap();
    let key = STANDARD.encode([prefix.as_bytes(), b"r/", id("theirs").as_bytes()].concat());
    server.put(&key, &STANDARD.encode(b"a cache"));
    let batch = ["ours", "theirs"].map(|key| put(id(key), Seen::Absent, State::Held, Some(60)));
    let swapped = store.swap(&batch).await.unwrap();
    let [Swapped::Won(_), Swapped::Failed(error)] = &swapped[..] else { panic!("{swapped:?}") };
    says(error, ErrorKind::Foreign, "not onceward's");
    let loaded = store.load(&[id("theirs"), id("ours")]).await.unwrap();
    says(loaded[0].as_ref().unwrap_err(), ErrorKind::Foreign, "another prefix");
    assert!(matches!(loaded[1], Ok(Some(_))));
}

/// What a process has never read or written it can replace all the same, and what it remembers wrongly it cannot.
#[tokio::test]
async fn processes_replace_what_others_wrote() {
    let Some(server) = Etcd::shared() else { return };
    let url = server.url();
    let (one, other) = (open(&url).await.unwrap(), open(&url).await.unwrap());
    let swap = async |store: &EtcdStore, seen, state| {
        store.swap(&[put(id(1), seen, state, Some(60))]).await.unwrap().remove(0)
    };
    let Swapped::Won(first) = swap(&one, Seen::Absent, State::Held).await else { panic!("it was absent") };
    let Swapped::Won(second) = swap(&other, Seen::Version(first), State::Held).await else {
        panic!("as seen")
    };
    let Swapped::Lost(Some(found)) = swap(&one, Seen::Version(first), State::Done).await else {
        panic!("not as seen")
    };
    assert_eq!(found.version, second);
    let Swapped::Won(_) = swap(&one, Seen::Version(second), State::Done).await else { panic!("as seen") };
}

/// Three engines on the three nodes of a cluster, as of three processes: one effect a round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engines_that_share_a_cluster_run_once() {
    const COPIES: usize = 60;
    let Some(nodes) = Etcd::start_cluster() else { return };
    let mut engines = Vec::new();
    for first in 0..nodes.len() {
        let hosts: Vec<String> =
            (0..3).map(|at| format!("127.0.0.1:{}", nodes[(first + at) % 3].port())).collect();
        let store = open(&format!("etcd://{}?prefix=shared/", hosts.join(","))).await.unwrap();
        engines.push(Onceward::new(Arc::new(store) as Arc<dyn Store>).unwrap());
    }
    let policy = Arc::new(Policy::http());
    for round in 0..crate::support::usual_or_long(10, 50) {
        let runs = Arc::new(AtomicUsize::new(0));
        let mut copies = tokio::task::JoinSet::new();
        for copy in 0..COPIES {
            let (engine, policy, runs) = (engines[copy % 3].clone(), Arc::clone(&policy), Arc::clone(&runs));
            copies.spawn(async move {
                let ask = Ask::new(id(round), Fingerprint::of(b"same"), policy);
                let work = async move |_| {
                    runs.fetch_add(1, Ordering::SeqCst);
                    Ok(Outcome::succeeded("done"))
                };
                engine.run(ask, work).await.unwrap().into_result().unwrap();
            });
        }
        while let Some(copy) = copies.join_next().await {
            copy.unwrap();
        }
        assert_eq!(runs.load(Ordering::SeqCst), 1, "round {round}");
    }
}
