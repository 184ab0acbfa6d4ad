//! A real Redis as a volatile front before real databases: replays need no trip to the database, and whatever happens to
//! the front, every key has one effect and one answer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::{
    Answer, Ask, Changed, Erase, ErrorKind, Fingerprint, Lease, Onceward, Outcome, Policy, Refusal,
};
use onceward_stores::sql::Options;
use onceward_stores::{PostgresStore, open_with_metrics, renew_identity};

use crate::opening::Log;
use crate::servers::{Certificates, MariaDb, Postgres, Redis};
use crate::support::{id, usual_or_long};

/// A server for entries that may be lost.
fn cache() -> Option<Redis> {
    Redis::start_with(&["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"])
}

fn ask(key: impl std::fmt::Display) -> Ask {
    Ask::new(id(key), Fingerprint::of(b"12"), Policy::http())
}

/// One process: an engine of its own on this database, with this front.
async fn process(database: &str, redis: &Redis) -> Onceward {
    let opened =
        open_with_metrics(&format!("{database}?front=redis://127.0.0.1:{}/0", redis.port())).await.unwrap();
    let front = opened.front.expect("the address names one");
    Onceward::builder(opened.store).with_front(front).build().unwrap()
}

/// Asks for something else until the front is in use.
async fn use_front(process: &Onceward) {
    for number in 0..10_000 {
        let before = process.counts().front_misses;
        process.answer_without_running(&ask(format!("nothing-{number}"))).await.unwrap();
        if process.counts().front_misses > before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the front is never used: {:?}", process.counts());
}

fn trips(process: &Onceward) -> u64 {
    process.counts().store_batches + process.counts().store_loads
}

async fn pay(process: &Onceward, key: &str) {
    let paid = async |_: Lease| Ok(Outcome::succeeded(format!("paid {key}")));
    process.run(ask(key), paid).await.unwrap().into_result().unwrap();
}

async fn never(_: Lease) -> Result<Outcome, onceward::Stopped> {
    panic!("this must not run")
}

async fn replays(process: &Onceward, key: &str) -> bool {
    let answer = process.run(ask(key), never).await.unwrap();
    matches!(answer, Answer::Completed(completed) if completed.outcome.body() == format!("paid {key}").as_bytes())
}

/// Waits until the front has this many entries: they are written behind the callers' backs.
async fn until_entries(redis: &Redis, count: usize) {
    for _ in 0..10_000 {
        if redis.cli(&["DBSIZE"]) == count.to_string() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("there are {} entries, not {count}", redis.cli(&["DBSIZE"]));
}

async fn another_process_needs_no_trip(database: &str, redis: &Redis) {
    let (one, two) = (process(database, redis).await, process(database, redis).await);
    use_front(&one).await;
    pay(&one, "a").await;
    until_entries(redis, 1).await;
    let lives_ms: u64 = redis.cli(&["PTTL", &redis.cli(&["KEYS", "*"])]).parse().unwrap();
    assert!((1..=60_000).contains(&lives_ms), "it is kept for {lives_ms} ms");
    use_front(&two).await;
    let before = trips(&two);
    assert!(replays(&two, "a").await);
    assert_eq!((trips(&two) - before, two.counts().front_hits), (0, 1));

    assert_eq!(one.erase(&id("a"), &Erase::new()).await.unwrap(), Changed::Applied);
    assert_eq!(redis.cli(&["DBSIZE"]), "0", "an erased answer is still in the front");
    let three = process(database, redis).await;
    let answer = three.run(ask("a"), never).await.unwrap();
    assert!(matches!(answer, Answer::Refused(Refusal::ResponseNotStored { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process_needs_no_trip_to_postgres() {
    let (Some(server), Some(redis)) = (Postgres::shared(), cache()) else { return };
    another_process_needs_no_trip(&server.url(&server.fresh()), &redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process_needs_no_trip_to_mysql() {
    let (Some(server), Some(redis)) = (MariaDb::shared(), cache()) else { return };
    another_process_needs_no_trip(&server.url(&server.fresh()), &redis).await;
}

async fn entries_of_a_former_identity_are_misses(database: &str, redis: &Redis) {
    let one = process(database, redis).await;
    use_front(&one).await;
    pay(&one, "a").await;
    until_entries(redis, 1).await;
    let former = redis.cli(&["KEYS", "*"]);
    renew_identity(database).await.unwrap();
    let two = process(database, redis).await;
    use_front(&two).await;
    let before = trips(&two);
    assert!(replays(&two, "a").await);
    assert_eq!((trips(&two) - before, two.counts().front_hits), (1, 0));
    // Also where somebody puts the old bytes in the place of the new ones.
    until_entries(redis, 2).await;
    let all = redis.cli(&["KEYS", "*"]);
    let now = all.lines().find(|key| *key != former).expect("another name under another identity");
    redis.cli(&["COPY", &former, now, "REPLACE"]);
    let three = process(database, redis).await;
    use_front(&three).await;
    assert!(replays(&three, "a").await);
    assert_eq!((three.counts().front_hits, three.counts().front_bad_seals), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_a_previous_life_of_postgres_are_misses() {
    let (Some(server), Some(redis)) = (Postgres::shared(), cache()) else { return };
    entries_of_a_former_identity_are_misses(&server.url(&server.fresh()), &redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_a_previous_life_of_mysql_are_misses() {
    let (Some(server), Some(redis)) = (MariaDb::shared(), cache()) else { return };
    entries_of_a_former_identity_are_misses(&server.url(&server.fresh()), &redis).await;
}

/// The name of the identity of a database, and its key.
async fn identity(url: &str) -> (Vec<u8>, [u8; 32]) {
    let store = PostgresStore::open(url, Options::default()).await.unwrap();
    let identity = store.identity().read().await.unwrap();
    (identity.name, identity.seal_key)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_and_promoted_standbys_have_identities_of_their_own() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database("shop");
    let (name, key) = identity(&url).await;
    assert_eq!(identity(&url).await, (name.clone(), key), "it stays as it is");
    server.sql("postgres", "CREATE DATABASE copied TEMPLATE shop");
    let copied = identity(&server.url("copied")).await;
    assert!(copied.0 != name && copied.1 == key, "a copy has the same key and another name");
    let standby = server.standby("one");
    standby.promote();
    let promoted = identity(&standby.url("shop")).await;
    assert!(promoted.0 != name && promoted.1 == key, "a promoted standby is on another timeline");
    renew_identity(&url).await.unwrap();
    let renewed = identity(&url).await;
    assert!(renewed.0 != name && renewed.1 != key);
}

#[tokio::test]
async fn fronts_that_cannot_be_used_are_refused() {
    for (url, word) in [
        ("memory:?front=redis://127.0.0.1:1", "is for postgres://"),
        ("embedded:./nowhere?front=redis://127.0.0.1:1", "is for postgres://"),
        ("postgres://127.0.0.1:1/db?front=", "no value"),
    ] {
        // A store that forgets is opened first, and one on disk is not to be left behind.
        let folder = tempfile::tempdir().unwrap();
        let url = url.replace("./nowhere", &folder.path().join("nowhere").display().to_string());
        let error = open_with_metrics(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}: {error}");
        assert!(error.to_string().contains(word), "{url}: {error}");
    }
    let Some(server) = Postgres::shared() else { return };
    for (front, word) in [
        ("http://127.0.0.1", "redis://"),
        ("redis://127.0.0.1:1,127.0.0.1:2", "several hosts"),
        ("redis://127.0.0.1:1/0?sentinel=main", "sentinel"),
    ] {
        let url = format!("{}?front={front}", server.url(&server.fresh()));
        let error = open_with_metrics(&url).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(word), "{front}: {error}");
    }
}

/// A front that will never work as it is configured is no speed that was lost for a moment: it is said at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_front_with_a_wrong_login_is_refused_with_the_reason() {
    let (Some(server), Some(redis)) = (Postgres::shared(), cache()) else { return };
    let database = server.url(&server.fresh());
    redis.cli(&["ACL", "SETUSER", "reader", "on", ">pass", "~*", "&*", "+@all", "-del"]);
    redis.cli(&[
        "ACL",
        "SETUSER",
        "front",
        "on",
        ">p",
        "resetchannels",
        "~shop:*",
        "&shop:*",
        "+@all",
        "-eval",
    ]);
    redis.cli(&["ACL", "SETUSER", "default", ">secret"]);
    let at = |login: &str, rest: &str| {
        format!("{database}?front=redis://{login}127.0.0.1:{}/{rest}", redis.port())
    };
    for (login, rest, word) in [
        ("", "0", "password"),
        (":wrong@", "0", "password"),
        ("nobody:secret@", "0", "password"),
        (":secret@", "99", "database"),
        ("reader:pass@", "0", "DEL"),
        ("front:p@", "0", "prefix"),
    ] {
        let error = open_with_metrics(&at(login, rest)).await.unwrap_err();
        let text = format!("{error}: {}", std::error::Error::source(&error).expect("it has a cause"));
        assert_eq!(error.kind(), ErrorKind::Invalid, "{login}: {text}");
        assert!(text.contains("`front=`") && text.contains(word), "{login}{rest}: {text}");
        assert!(!text.contains("secret") && !text.contains("wrong@"), "{text}");
    }
    for (login, rest) in [(":secret@", "0"), ("front:p@", "0?prefix=shop")] {
        open_with_metrics(&at(login, rest)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_front_may_be_reached_by_tls() {
    let Some(server) = Postgres::shared() else { return };
    let certificates = Certificates::new("redis");
    certificates.sign("server", "21000101000000Z");
    let (cert, key, ours) =
        (certificates.path("server.pem"), certificates.path("server.key"), certificates.path("ca.pem"));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let files = ["--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &ours];
    let tls_port = port.to_string();
    let options = [&["--tls-port", &tls_port, "--tls-auth-clients", "no"], &files[..]].concat();
    let Some(redis) = Redis::start_with(&options) else { return };
    let database = server.url(&server.fresh());
    let fronted = format!("{database}?front=rediss://localhost:{port}/0?sslrootcert={ours}");
    let open = async || {
        let opened = open_with_metrics(&fronted).await.unwrap();
        Onceward::builder(opened.store).with_front(opened.front.unwrap()).build().unwrap()
    };
    let (one, two) = (open().await, open().await);
    use_front(&one).await;
    use_front(&two).await;
    pay(&one, "a").await;
    until_entries(&redis, 1).await;
    let before = trips(&two);
    assert!(replays(&two, "a").await);
    assert_eq!((trips(&two) - before, two.counts().front_hits), (0, 1));
    // One that shows a certificate of another authority is not used, and the store is.
    let others = Certificates::new("redis");
    let (log, guard) = Log::begin();
    let wrong = fronted.replace(&ours, &others.path("ca.pem"));
    open_with_metrics(&wrong).await.unwrap();
    assert!(
        log.text().contains("without its front") && log.text().contains("UnknownIssuer"),
        "{}",
        log.text()
    );
    drop(guard);
}

/// Another database may be behind a new connection, so the identity is read again at once. `end_connections` ends all
/// connections to the database, and returns when they are gone.
async fn a_new_connection_has_the_identity_read_again(
    database: &str,
    redis: &Redis,
    end_connections: impl AsyncFn(),
) {
    let (one, two) = (process(database, redis).await, process(database, redis).await);
    use_front(&one).await;
    use_front(&two).await;
    pay(&one, "a").await;
    until_entries(redis, 1).await;
    renew_identity(database).await.unwrap();
    end_connections().await;
    // The first ask after that opens a connection, and none after it believes an entry of the former identity.
    while two.answer_without_running(&ask("nothing")).await.is_err() {}
    let before = two.counts();
    assert!(replays(&two, "a").await);
    assert_eq!(two.counts().front_hits, before.front_hits, "an entry of the former identity was believed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_to_mysql_has_the_identity_read_again() {
    let (Some(server), Some(redis)) = (MariaDb::start(), cache()) else { return };
    let connected = || {
        server
            .sql("mysql", "SELECT id FROM information_schema.processlist WHERE db = 'receipts'")
            .leak()
            .lines()
    };
    let end = async || {
        for connection in connected() {
            server.sql("mysql", &format!("KILL CONNECTION {connection}"));
        }
        while connected().next().is_some() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    a_new_connection_has_the_identity_read_again(&server.database("receipts"), &redis, end).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_to_postgres_has_the_identity_read_again() {
    let (Some(server), Some(redis)) = (Postgres::start(), cache()) else { return };
    let end = async || {
        let connected = "FROM pg_stat_activity WHERE datname = 'receipts'";
        server.sql("postgres", &format!("SELECT pg_terminate_backend(pid) {connected}"));
        while server.sql("postgres", &format!("SELECT count(*) {connected}")) != "0" {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    a_new_connection_has_the_identity_read_again(&server.database("receipts"), &redis, end).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_front_that_is_away_is_used_when_it_is_back() {
    let (Some(server), Some(mut redis)) = (Postgres::shared(), cache()) else { return };
    let database = server.url(&server.fresh());
    redis.kill();
    let one = process(&database, &redis).await;
    pay(&one, "a").await;
    assert!(replays(&process(&database, &redis).await, "a").await);
    redis.up();
    use_front(&one).await;
}

/// Callers in three processes that ask for each key from all of them at once.
struct Load {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    effects: Arc<Mutex<BTreeMap<String, u64>>>,
    callers: Vec<tokio::task::JoinHandle<()>>,
}

const CALLERS: usize = 8;

impl Load {
    fn start(processes: &[Onceward]) -> Self {
        let (stop, rounds, effects) = (Arc::default(), Arc::default(), Arc::default());
        let mut load = Self { stop, rounds, effects, callers: Vec::new() };
        for caller in 0..CALLERS {
            let (stop, rounds, effects) = (load.stop.clone(), load.rounds.clone(), load.effects.clone());
            let processes = processes.to_vec();
            load.callers.push(tokio::spawn(async move {
                let mut round = 0;
                while !stop.load(Ordering::SeqCst) {
                    round += 1;
                    ask_everywhere(&processes, &format!("{caller}-{round}"), &effects).await;
                    // An old one, too.
                    ask_everywhere(&processes, &format!("{caller}-{}", round / 2 + 1), &effects).await;
                    rounds.fetch_add(1, Ordering::SeqCst);
                }
            }));
        }
        load
    }

    /// Waits for this many further rounds.
    async fn more(&self, rounds: u64) {
        let wanted = self.rounds.load(Ordering::SeqCst) + rounds;
        while self.rounds.load(Ordering::SeqCst) < wanted {
            assert!(!self.callers.iter().any(tokio::task::JoinHandle::is_finished), "a caller has failed");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn stop(self) -> BTreeMap<String, u64> {
        self.stop.store(true, Ordering::SeqCst);
        for caller in self.callers {
            caller.await.unwrap();
        }
        std::mem::take(&mut *self.effects.lock().unwrap())
    }
}

/// Every process gets the same answer, and it is that of the one effect.
async fn ask_everywhere(processes: &[Onceward], key: &str, effects: &Mutex<BTreeMap<String, u64>>) {
    let run = async |process: &Onceward| {
        let work = async |_: Lease| {
            let mut effects = effects.lock().unwrap();
            let effect = effects.entry(key.to_owned()).or_default();
            *effect += 1;
            Ok(Outcome::succeeded(format!("{key}: {effect}")))
        };
        process.run(ask(key), work).await.unwrap().into_result().unwrap().outcome
    };
    let (one, two, three) = tokio::join!(run(&processes[0]), run(&processes[1]), run(&processes[2]));
    assert!(one == two && two == three, "{key}: {one:?}, {two:?}, {three:?}");
    assert_eq!(one.body(), format!("{key}: 1").as_bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_effect_per_key_whatever_happens_to_the_front() {
    let (Some(server), Some(mut redis)) = (Postgres::start(), cache()) else { return };
    let database = server.database("receipts");
    let mut processes = Vec::new();
    for _ in 0..3 {
        processes.push(process(&database, &redis).await);
    }
    let load = Load::start(&processes);
    load.more(50).await;
    for turn in 0..usual_or_long(2, 20) {
        redis.cli(&["FLUSHALL"]);
        load.more(30).await;
        redis.freeze();
        load.more(30).await;
        redis.thaw();
        load.more(30).await;
        // Entries of another life, and of other keys, in the places of those that are there.
        if turn % 2 == 1 {
            renew_identity(&database).await.unwrap();
        }
        let keys = redis.cli(&["KEYS", "*"]);
        // Hints would end within a second, and all that is copied from them.
        let is_success = |key: &&str| redis.cli(&["GETRANGE", key, "0", "0"]) == "\u{1}";
        let keys: Vec<&str> = keys.lines().filter(|key| !key.is_empty()).filter(is_success).collect();
        for pair in keys.windows(2) {
            redis.cli(&["COPY", pair[0], pair[1], "REPLACE"]);
        }
        if turn == 0 {
            // A process that has nothing in its memory finds them all, and gives the right answers.
            let late = process(&database, &redis).await;
            use_front(&late).await;
            let keys: Vec<String> = load.effects.lock().unwrap().keys().cloned().collect();
            for key in keys {
                let answer = late.run(ask(&key), never).await.unwrap().into_result().unwrap();
                assert_eq!(answer.outcome.body(), format!("{key}: 1").as_bytes());
            }
            assert!(late.counts().front_bad_seals > 0, "no foreign entry was found: {:?}", late.counts());
        }
        load.more(30).await;
        tokio::task::block_in_place(|| redis.kill());
        load.more(30).await;
        tokio::task::block_in_place(|| redis.up());
        load.more(30).await;
    }
    // Back to health: it is used again.
    for process in &processes {
        use_front(process).await;
    }
    let effects = load.stop().await;
    let twice: Vec<_> = effects.iter().filter(|(_, effects)| **effects != 1).collect();
    assert!(twice.is_empty(), "of {} keys these ran more than once: {twice:?}", effects.len());
    let sum = |count: fn(&onceward::Counts) -> u64| {
        processes.iter().map(|process| count(&process.counts())).sum::<u64>()
    };
    assert!(sum(|counts| counts.front_hits) > 0, "the front was never of use");
    assert!(sum(|counts| counts.front_bypasses) > 0, "the front was never away");
}
