//! Redis from outside: damage, bad input, loss.

use std::sync::Arc;
use std::time::Duration;

use onceward::{
    Applied, Error, ErrorKind, Filter, Id, Onceward, Scan, ScanTarget, Seen, State, Store, Swap, Swapped,
    Version,
};
use onceward_stores::RedisStore;
use onceward_stores::redis::Options;
use onceward_verify::conformance::{self, Damage};

use crate::servers::Redis;
use crate::support::{id, put};

async fn open(url: &str) -> Result<RedisStore, Error> {
    RedisStore::open(url, Options::default().with_call_timeout(Duration::from_secs(5))).await
}

/// The error of an opening that must fail.
async fn refused(url: &str) -> Error {
    open(url).await.err().unwrap_or_else(|| panic!("{url} opened"))
}

/// A record whose state is of a later version.
struct LaterState {
    store: Arc<RedisStore>,
    server: &'static Redis,
    prefix: String,
}

impl Damage for LaterState {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn damage(&self, id: &Id) {
        const DAMAGE: &str =
            "local keys = redis.call('KEYS', ARGV[1]); redis.call('SETRANGE', keys[1], 3, 'z'); return #keys";
        let pattern = format!("{}:*:r:*{}*", self.prefix, id.operation());
        assert_eq!(self.server.cli(&["EVAL", DAMAGE, "0", &pattern]), "1");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable() {
    let Some(server) = Redis::shared() else { return };
    conformance::unreadable(async || {
        let url = server.url();
        let prefix = url.split_once("prefix=").unwrap().1.to_owned();
        Ok(LaterState { store: Arc::new(open(&url).await?), server, prefix })
    })
    .await;
}

/// Swaps one record.
async fn swap(store: &RedisStore, swap: Swap) -> Result<Swapped, Error> {
    store.swap(&[swap]).await.map(|mut answers| answers.remove(0))
}

async fn created(store: &RedisStore, key: &str) -> Version {
    match swap(store, put(id(key), Seen::Absent, State::Held, Some(60))).await.unwrap() {
        Swapped::Won(version) => version,
        other => panic!("{key}: {other:?}"),
    }
}

/// The error of one id, of which nothing was written.
async fn failed(store: &RedisStore, key: &str) -> Error {
    let error = match swap(store, put(id(key), Seen::Absent, State::Held, Some(60))).await {
        Ok(Swapped::Failed(error)) | Err(error) => error,
        Ok(other) => panic!("{key}: {other:?}"),
    };
    assert_eq!(error.applied(), Applied::No, "{error}");
    error
}

fn says(error: &Error, kind: ErrorKind, word: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(word), "{error}");
}

#[tokio::test]
async fn wrong_addresses_say_what_to_do() {
    let Some(server) = Redis::start_with(&["--requirepass", "open sesame"]) else { return };
    let at = format!("127.0.0.1:{}", server.port());
    says(&refused(&format!("redis://:wrong@{at}/0")).await, ErrorKind::Invalid, "password");
    says(&refused(&format!("redis://{at}/0")).await, ErrorKind::Invalid, "password");
    says(&refused(&format!("redis://:open%20sesame@{at}/99")).await, ErrorKind::Invalid, "database");
    open(&format!("redis://:open%20sesame@{at}/1")).await.unwrap();
    drop(server);
    says(
        &refused(&format!("redis://{at}/0")).await,
        ErrorKind::Unavailable,
        &format!("cannot reach Redis at {at}"),
    );
}

#[tokio::test]
async fn what_can_be_lost_must_be_accepted() {
    let Some(server) = Redis::shared() else { return };
    let url = server.url();
    let error = onceward_stores::open(&url).await.err().expect("it was not accepted");
    says(&error, ErrorKind::Unfit, "accept=volatile");
    let opened = onceward_stores::open_with_metrics(&format!("{url}&accept=volatile")).await.unwrap();
    let losses = opened.accepted_losses.expect("it can lose something");
    assert!(losses.contains("failover") && losses.contains("runs again"), "{losses}");
    let error = Onceward::new(opened.store.clone()).unwrap_err();
    says(&error, ErrorKind::Unfit, "accept_volatile()");
    Onceward::builder(opened.store).accept_volatile().build().unwrap();
}

/// Asked at every connection: its configuration may change while no one is looking.
#[tokio::test]
async fn durability_is_what_the_server_says() {
    let Some(mut server) = Redis::start() else { return };
    let store = open(&server.url()).await.unwrap();
    assert!(store.caps().promises.durable);
    assert!(store.losses().contains("a crash loses nothing"), "{}", store.losses());
    server.restart_with(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    // The first call finds out that the connection is gone.
    let _ = store.load(&[id(1)]).await;
    store.load(&[id(1)]).await.unwrap();
    assert!(!store.caps().promises.durable);
    assert!(store.losses().contains("everysec"), "{}", store.losses());
    server.restart_with(&[]);
    assert!(!open(&server.url()).await.unwrap().caps().promises.durable);

    server.cli(&["ACL", "SETUSER", "limited", "on", ">pass", "~*", "&*", "+@all", "-config"]);
    server.cli(&["CONFIG", "SET", "appendonly", "yes", "appendfsync", "always"]);
    assert!(open(&server.url()).await.unwrap().caps().promises.durable);
    let limited = server.url().replace("redis://", "redis://limited:pass@");
    let limited = open(&limited).await.unwrap();
    assert!(!limited.caps().promises.durable);
    assert!(limited.losses().contains("CONFIG GET is not allowed"), "{}", limited.losses());
}

#[tokio::test]
async fn a_server_that_evicts_is_refused() {
    let Some(server) = Redis::start_with(&["--maxmemory-policy", "allkeys-lru"]) else { return };
    says(&refused(&server.url()).await, ErrorKind::Unfit, "noeviction");
}

#[tokio::test]
async fn a_replica_is_refused() {
    let Some(server) = Redis::start() else { return };
    let url = server.url();
    let store = open(&url).await.unwrap();
    created(&store, "before").await;
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    says(&failed(&store, "during").await, ErrorKind::Unavailable, "primary");
    says(&refused(&url).await, ErrorKind::Unavailable, "primary");
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    created(&store, "during").await;
}

/// A primary that was demoted keeps its connections. The store asks again where the primary is, instead of asking a replica
/// until somebody closes the connection.
#[tokio::test]
async fn a_primary_that_was_demoted_is_left() {
    let Some(server) = Redis::start() else { return };
    let store = open(&server.url()).await.unwrap();
    created(&store, "before").await;
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    says(&failed(&store, "1").await, ErrorKind::Unavailable, "primary");
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    let connections = || {
        let info = server.cli(&["INFO", "stats"]);
        let count = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        count.unwrap().trim().parse::<u64>().unwrap()
    };
    let before = connections();
    created(&store, "2").await;
    // Of these, one is that of the second look itself.
    assert_eq!(connections() - before, 2, "the connection to the demoted server was kept");
}

#[tokio::test]
async fn a_server_without_memory_loses_nothing() {
    let Some(server) = Redis::start() else { return };
    let store = open(&server.url()).await.unwrap();
    let version = created(&store, "before").await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1mb"]);
    says(&failed(&store, "during").await, ErrorKind::Full, "maxmemory");
    assert_eq!(store.load(&[id("before")]).await.unwrap().remove(0).unwrap().unwrap().version, version);
    // What frees memory is done, and what is refused beside it is not done by halves.
    let batch = [
        Swap { id: id("before"), seen: Seen::Version(version), new: None },
        put(id("during"), Seen::Absent, State::Held, Some(60)),
    ];
    let answers = store.swap(&batch).await.unwrap();
    assert!(matches!(&answers[..], [Swapped::Won(_), Swapped::Failed(_)]), "{answers:?}");
    let held = store.scan(&Scan::new(ScanTarget::Matching(Filter::default()), 10)).await.unwrap();
    assert!(held.found.is_empty() && matches!(store.load(&[id("during")]).await.unwrap()[..], [Ok(None)]));
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    created(&store, "during").await;
}

/// Values of other programs under our keys fail their own id, stay as they are, and stop nobody else.
#[tokio::test]
async fn values_of_others_are_left_alone() {
    const OVERWRITE: &str = "local key = redis.call('KEYS', ARGV[1])[1]; redis.call('DEL', key); \
        redis.call(ARGV[2], key, ARGV[3]); return redis.call('TYPE', key).ok";
    let Some(server) = Redis::shared() else { return };
    let url = server.url();
    let prefix = url.split_once("prefix=").unwrap().1;
    let store = open(&url).await.unwrap();
    for (key, command, kind) in [("text", "SET", "string"), ("list", "RPUSH", "list")] {
        created(&store, key).await;
        let pattern = format!("{prefix}:*:r:*{key}");
        assert_eq!(server.cli(&["EVAL", OVERWRITE, "0", &pattern, command, "17"]), kind);
        says(&failed(&store, key).await, ErrorKind::Foreign, "prefix");
        let loaded = store.load(&[id(key), id("absent")]).await.unwrap();
        says(loaded[0].as_ref().unwrap_err(), ErrorKind::Foreign, "not onceward's");
        assert!(matches!(loaded[1], Ok(None)));
        let value = server.cli(&["EVAL", "return #redis.call('KEYS', ARGV[1])", "0", &pattern]);
        assert_eq!(value, "1");
    }
    created(&store, "beside").await;
    // The prefix of another program.
    let url = server.url();
    server.cli(&["SET", &format!("{}:{{0}}:format", url.split_once("prefix=").unwrap().1), "a cache"]);
    says(&refused(&url).await, ErrorKind::Foreign, "another prefix");
}

/// The mark of a prefix has the number of its buckets: all processes use the same, whatever a new prefix would have.
#[tokio::test]
async fn a_prefix_stays_divided_as_it_was_begun() {
    let Some(server) = Redis::shared() else { return };
    for (buckets, used) in [("1", vec!["0"]), ("256", vec!["202", "232"])] {
        let url = server.url();
        let prefix = url.split_once("prefix=").unwrap().1;
        let mark = format!("onceward receipts 2, buckets: {buckets}");
        assert_eq!(server.cli(&["SET", &format!("{prefix}:{{0}}:format"), &mark]), "OK");
        let store = open(&url).await.unwrap();
        let batch = ["1", "2"].map(|key| put(id(key), Seen::Absent, State::Held, Some(60)));
        let answers = store.swap(&batch).await.unwrap();
        assert!(answers.iter().all(|answer| matches!(answer, Swapped::Won(_))), "{answers:?}");
        let versions = server.cli(&["KEYS", &format!("{prefix}:{{*}}:v")]);
        let mut versions: Vec<&str> = versions.lines().collect();
        versions.sort_unstable();
        assert_eq!(versions, used.iter().map(|tag| format!("{prefix}:{{{tag}}}:v")).collect::<Vec<_>>());
        let mut all = Scan::new(ScanTarget::Matching(Filter::default()), 1);
        let page = store.scan(&all).await.unwrap();
        assert_eq!((page.found.len(), page.next.is_some()), (1, true));
        all.after = page.next;
        let page = store.scan(&all).await.unwrap();
        assert_eq!((page.found.len(), page.next), (1, None));
    }
    for (mark, word) in
        [("onceward receipts 1", "before the first release"), ("onceward receipts 3", "newer")]
    {
        let url = server.url();
        server.cli(&["SET", &format!("{}:{{0}}:format", url.split_once("prefix=").unwrap().1), mark]);
        says(&refused(&url).await, ErrorKind::Foreign, word);
    }
}

/// A call tells the script of swaps that are alike together. Each has its own answer, in the order of the batch.
#[tokio::test]
async fn a_batch_of_all_kinds_is_answered_one_by_one() {
    const FOREIGN: &str = "local key = redis.call('KEYS', ARGV[1])[1]; redis.call('DEL', key); \
        return redis.call('RPUSH', key, '17')";
    let Some(server) = Redis::shared() else { return };
    let url = server.url();
    let prefix = url.split_once("prefix=").unwrap().1;
    let store = open(&url).await.unwrap();
    let mut versions = Vec::new();
    for key in ["b", "c", "d", "e", "f", "g"] {
        versions.push(created(&store, key).await);
    }
    let [_, c, d, e, _, g] = versions[..] else { panic!("six") };
    assert_eq!(server.cli(&["EVAL", FOREIGN, "0", &format!("{prefix}:*:r:*f")]), "1");
    let mut signals = store.watch().unwrap();
    assert_eq!(signals.changed().await, None, "it has subscribed");
    let step = id("b").step("charge").unwrap();
    let batch = [
        put(id("a"), Seen::Absent, State::Held, Some(60)),
        put(id("b"), Seen::Absent, State::Held, Some(60)),
        put(step.clone(), Seen::Absent, State::Held, Some(60)),
        put(id("c"), Seen::Version(c), State::Done, Some(600)),
        put(id("d"), Seen::Version(c), State::Done, Some(600)),
        Swap { id: id("e"), seen: Seen::Version(e), new: None },
        put(id("f"), Seen::Absent, State::Held, Some(60)),
        put(id("g"), Seen::Version(g), State::Gone, Some(60)),
        put(id("h"), Seen::Version(g), State::Done, None),
        put(id("i"), Seen::Absent, State::Waiting, None),
    ];
    let answers = store.swap(&batch).await.unwrap();
    let kinds: Vec<&str> = answers
        .iter()
        .map(|answer| match answer {
            Swapped::Won(version) if *version > g => "won",
            Swapped::Lost(Some(found)) if found.state == State::Held => "lost",
            Swapped::Lost(None) => "lost to nothing",
            Swapped::Failed(error) if error.kind() == ErrorKind::Foreign => "failed",
            _ => "wrong",
        })
        .collect();
    let expected = ["won", "lost", "won", "won", "lost", "won", "failed", "won", "lost to nothing", "won"];
    assert_eq!(kinds, expected, "{answers:?}");
    assert!(matches!(&answers[4], Swapped::Lost(Some(found)) if found.version == d));
    let mut changed = Vec::new();
    while changed.len() < 6 {
        let signal = tokio::time::timeout(Duration::from_secs(5), signals.changed()).await;
        changed.extend(signal.expect("what won is announced"));
    }
    changed.sort();
    let mut won = [0, 2, 3, 5, 7, 9].map(|at: usize| batch[at].id.clone());
    won.sort();
    assert_eq!(changed, won);

    let ids: Vec<Id> = batch.iter().map(|swap| swap.id.clone()).collect();
    let states: Vec<Option<State>> = store
        .load(&ids)
        .await
        .unwrap()
        .into_iter()
        .map(|read| read.ok().flatten().map(|found| found.state))
        .collect();
    let (held, done) = (Some(State::Held), Some(State::Done));
    let (gone, waiting) = (Some(State::Gone), Some(State::Waiting));
    assert_eq!(states, [held, held, held, done, held, None, None, gone, None, waiting]);
    // One entry for each record, in the index of its state.
    let entries = |letter: &str| {
        let entries = "local n = 0; for _, key in ipairs(redis.call('KEYS', ARGV[1])) do n = n + redis.call('ZCARD', key) end; return n";
        server.cli(&["EVAL", entries, "0", &format!("{prefix}:*:i:{letter}")])
    };
    // That of the value of another program is left.
    assert_eq!(["h", "d", "g", "w"].map(entries), ["5", "1", "1", "1"]);
    let steps = store.scan(&Scan::new(ScanTarget::StepsOf(id("b")), 10)).await.unwrap();
    assert_eq!(steps.found.len(), 1);
}

#[tokio::test]
async fn scripts_that_were_flushed_are_loaded_again() {
    let Some(server) = Redis::start() else { return };
    let store = open(&server.url()).await.unwrap();
    created(&store, 1.to_string().as_str()).await;
    server.cli(&["SCRIPT", "FLUSH"]);
    created(&store, "2").await;
}

/// No answer in time: the write may have happened, and a look tells.
#[tokio::test]
async fn a_server_that_hangs_may_have_written() {
    let Some(server) = Redis::start() else { return };
    let options = Options::default().with_call_timeout(Duration::from_millis(300));
    let store = RedisStore::open(&server.url(), options).await.unwrap();
    server.freeze();
    let error = swap(&store, put(id("1"), Seen::Absent, State::Held, Some(60))).await.unwrap_err();
    assert_eq!(error.applied(), Applied::Maybe, "{error}");
    says(&error, ErrorKind::Unavailable, "did not answer in time");
    server.thaw();
    // It was sent before the server hung, so it is there.
    assert!(store.load(&[id("1")]).await.unwrap().remove(0).unwrap().is_some());
}

/// Redis may remove a tombstone long after it was due. Its entry in the index goes with the next scan, and the id can be
/// used again.
#[tokio::test]
async fn a_tombstone_that_redis_has_removed_is_forgotten() {
    const EXPIRE: &str = "local key = redis.call('KEYS', ARGV[1])[1]; \
        local left = redis.call('PTTL', key); redis.call('DEL', key); return left";
    let Some(server) = Redis::shared() else { return };
    let url = server.url();
    let prefix = url.split_once("prefix=").unwrap().1;
    let store = open(&url).await.unwrap();
    let gone = |id: Id| put(id, Seen::Absent, State::Gone, Some(0));
    let mut versions = Vec::new();
    for key in ["again", "once"] {
        let Swapped::Won(version) = swap(&store, gone(id(key))).await.unwrap() else { panic!("it is new") };
        versions.push(version);
        let left = server.cli(&["EVAL", EXPIRE, "0", &format!("{prefix}:*:r:*{key}")]);
        let left_ms: u64 = left.parse().unwrap();
        assert!((3_500_000..=3_600_000).contains(&left_ms), "{left_ms}");
    }
    // A step is removed by nobody but a sweep.
    let step = id("again").step("charge").unwrap();
    assert!(matches!(swap(&store, gone(step)).await.unwrap(), Swapped::Won(_)));
    let pattern = format!("{prefix}:*:r:*#charge*");
    assert_eq!(
        server.cli(&["EVAL", "return redis.call('PTTL', redis.call('KEYS', ARGV[1])[1])", "0", &pattern]),
        "-1"
    );

    assert!(created(&store, "again").await > versions[0]);
    let due = store.scan(&Scan::new(ScanTarget::Due(None), 100)).await.unwrap();
    let due: Vec<&str> = due.found.iter().map(|(id, _)| id.operation()).collect();
    assert_eq!(due, ["POST /charges#charge"]);
    let entries = "local n = 0; for _, key in ipairs(redis.call('KEYS', ARGV[1])) do n = n + redis.call('ZCARD', key) end; return n";
    assert_eq!(server.cli(&["EVAL", entries, "0", &format!("{prefix}:*:i:g")]), "1");
}

/// While a slot is on its way to another node, what is not on the old one any more is refused, and nothing is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_is_being_moved_says_so() {
    let Some(nodes) = Redis::start_cluster() else { return };
    let store = RedisStore::open(&nodes[0].url(), Options::default()).await.unwrap();
    let claim = put(id("moved"), Seen::Absent, State::Held, Some(60));
    assert!(matches!(store.swap(std::slice::from_ref(&claim)).await.unwrap()[..], [Swapped::Won(_)]));
    // The tag of the bucket that it is in: its keys are bytes that a command line cannot have.
    let tag = |node: &Redis| {
        let keys = node.cli(&["KEYS", "*:{*}:r:*"]);
        keys.split_inclusive('}').next().filter(|tag| tag.ends_with('}')).map(str::to_owned)
    };
    let from = nodes.iter().position(|node| tag(node).is_some()).unwrap();
    let (from, to) = (&nodes[from], &nodes[(from + 1) % nodes.len()]);
    let slot = from.cli(&["CLUSTER", "KEYSLOT", &tag(from).unwrap()]);
    from.cli(&["FLUSHALL"]);
    to.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from.cli(&["CLUSTER", "MYID"])]);
    from.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to.cli(&["CLUSTER", "MYID"])]);
    let error =
        store.swap(std::slice::from_ref(&claim)).await.map(|answers| format!("{answers:?}")).unwrap_err();
    assert!(error.to_string().contains("the cluster is being changed"), "{error}");
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Unavailable, Applied::No), "{error}");
    for node in [from, to] {
        node.cli(&["CLUSTER", "SETSLOT", &slot, "STABLE"]);
    }
    assert!(matches!(store.swap(&[claim]).await.unwrap()[..], [Swapped::Won(_)]));
}

/// Sentinels may have a password, or users, of their own. The login before the host is that of the servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_with_a_password() {
    let login = ["--requirepass", "of-the-servers", "--masterauth", "of-the-servers"];
    let Some(primary) = Redis::start_with(&login) else { return };
    let port = primary.port().to_string();
    let follows = [&login[..], &["--replicaof", "127.0.0.1", &port]].concat();
    let Some(_replica) = Redis::start_with(&follows) else { return };
    let sentinel = primary.start_sentinel_with(Some("of&the=sentinel"));
    let url = format!("redis://:of-the-servers@127.0.0.1:{}/0?sentinel=main", sentinel.port());

    let with = |login: &str| format!("{url}{login}");
    created(&open(&with("&sentinel_password=of%26the%3Dsentinel")).await.unwrap(), "1").await;
    let rights = ["-@all", "+auth", "+sentinel|get-master-addr-by-name"];
    let user = ["ACL", "SETUSER", "app", "on", ">of-the-user"];
    assert_eq!(sentinel.cli(&[&user[..], &rights].concat()), "OK");
    created(&open(&with("&sentinel_user=app&sentinel_password=of-the-user")).await.unwrap(), "2").await;
    assert_eq!(sentinel.cli(&["ACL", "SETUSER", "blind", "on", ">of-the-user", "-@all", "+auth"]), "OK");
    for wrong in [
        "",
        "&sentinel_password=of-the-servers",
        "&sentinel_user=app&sentinel_password=of-the-servers",
        "&sentinel_user=blind&sentinel_password=of-the-user",
    ] {
        let error = refused(&with(wrong)).await;
        says(&error, ErrorKind::Invalid, "sentinel_password=");
        let printed = format!("{error:?} {error}");
        assert!(!printed.contains("of-the-"), "{printed}");
    }
    // With one that cannot be reached, it may come right by itself.
    let two = with("").replace('@', "@127.0.0.1:1,");
    says(&refused(&two).await, ErrorKind::Unavailable, "sentinel_password=");
}
