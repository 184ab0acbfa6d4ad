//! The answers when the store is down or too slow, and when a receipt is past its retention.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use onceward::{
    Ask, Caps, Choose, Error, ErrorKind, Fingerprint, Id, Lease, Limits, Loaded, OnExpired, OnUnknown,
    Onceward, Page, Policy, Retention, Scan, State, Stopped, Store, StoreFuture, Swap, Swapped, Watch,
    Worker,
};
use onceward_http::fingerprint::{Caller, Head, Rules, fingerprint};
use onceward_http::{OnStoreFailure, Route};
use onceward_stores::MemoryStore;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::stage::{Answer, Stage};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    Well,
    Down,
    Stuck,
    /// It accepts calls and never answers.
    Mute,
}

/// A store whose health the test decides.
struct Ailing {
    inner: MemoryStore,
    health: watch::Receiver<Health>,
}

impl Store for Ailing {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async move {
            let mut health = self.health.clone();
            let now = *health.wait_for(|health| *health != Health::Stuck).await.unwrap();
            match now {
                Health::Down => Err(Error::new(ErrorKind::Unavailable, "the store is down")),
                Health::Mute => {
                    self.inner.swap(batch).await?;
                    Err(Error::new(ErrorKind::Unavailable, "the answer was lost").maybe_applied())
                }
                _ => self.inner.swap(batch).await,
            }
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        Box::pin(async move {
            if *self.health.borrow() == Health::Mute {
                return Err(Error::new(ErrorKind::Unavailable, "the answer was lost"));
            }
            self.inner.load(ids).await
        })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        self.inner.scan(query)
    }

    fn take<'a>(&'a self, _: State, _: usize, _: Choose<'a>) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        None
    }

    fn watch(&self) -> Option<Watch> {
        self.inner.watch()
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }
}

async fn ailing(limits: Limits) -> (Stage, watch::Sender<Health>) {
    ailing_under(limits, Route::default()).await
}

async fn ailing_under(limits: Limits, route: Route) -> (Stage, watch::Sender<Health>) {
    let (health, receiver) = watch::channel(Health::Well);
    let store = Arc::new(Ailing { inner: MemoryStore::new(), health: receiver });
    (Stage::over(store, limits, route).await, health)
}

#[tokio::test]
async fn a_store_that_is_down_is_reported_and_nothing_runs() {
    let (stage, health) = ailing(Limits::default()).await;
    health.send_replace(Health::Down);
    let refused = stage.post("k", "{}").await;
    assert_eq!((refused.status, refused.problem()), (503, "store-unavailable"));
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert!(refused.body.contains("\"retryable\":true"), "{}", refused.body);
    assert_eq!(stage.charges(), 0);
    health.send_replace(Health::Well);
    assert_eq!(stage.post("k", "{}").await.status, 201, "the same request, sent again");
}

#[tokio::test]
async fn a_route_can_pass_requests_unguarded_and_the_answer_says_so() {
    let route = || Route::builder().with_on_store_failure(OnStoreFailure::PassUnguarded).build().unwrap();
    let (stage, health) = ailing_under(Limits::default(), route()).await;
    assert_eq!(stage.post("before", "{}").await.field("onceward-unguarded"), None);
    health.send_replace(Health::Down);
    let passed = stage.post("k", "{}").await;
    assert_eq!((passed.status, passed.body.as_str()), (201, "charge 2"));
    assert_eq!(passed.field("onceward-unguarded"), Some("store-unavailable"));
    assert_eq!(passed.field("idempotency-expires"), None, "nothing is promised for it");
    assert_eq!(stage.meter("requests_passed_unguarded", None), 1);
    assert_eq!(stage.meter("refusals", Some("store-unavailable")), 0);
    health.send_replace(Health::Well);
    assert_eq!(stage.post("k", "{}").await.body, "charge 3", "the store never knew of it");

    // A claim that may have been taken is no licence: another process may find it and go by it.
    let (stage, health) = ailing_under(Limits::default(), route()).await;
    health.send_replace(Health::Mute);
    let refused = stage.post("k", "{}").await;
    assert_eq!((refused.status, refused.problem()), (503, "store-unavailable"));
    assert_eq!((stage.charges(), stage.meter("requests_passed_unguarded", None)), (0, 0));
}

/// A known run is not repeated, even if the route passes requests unguarded.
#[tokio::test]
async fn nothing_is_passed_unguarded_if_an_earlier_run_is_known() {
    let policy = Policy::http()
        .to_builder()
        .with_lease(Duration::from_millis(20))
        .with_on_unknown(OnUnknown::Retry)
        .build()
        .unwrap();
    let route = Route::builder()
        .with_policy(policy.clone())
        .with_on_store_failure(OnStoreFailure::PassUnguarded)
        .build()
        .unwrap();
    // The first swap sees the lapsed claim of another process, the second cannot take it over.
    let store = Arc::new(DownAfter { inner: MemoryStore::new(), swaps: AtomicUsize::new(2) });
    let elsewhere = Onceward::builder(store.clone()).accept_volatile().build().unwrap();
    let stage = Stage::over(store, Limits::default(), route).await;
    let id = Id::new("anonymous", "POST /charges", "k").unwrap();
    elsewhere.claim(Ask::new(id.clone(), print_of("{}"), Arc::new(policy))).await.unwrap();
    let lapsed = async {
        while !elsewhere.receipt(&id).await.unwrap().unwrap().due.is_over() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), lapsed).await.expect("the lease never ended");
    let refused = stage.post("k", "{}").await;
    assert_eq!((refused.status, refused.problem()), (503, "store-unavailable"));
    assert_eq!(stage.charges(), 0);
}

/// A store that goes down after a number of calls.
struct DownAfter {
    inner: MemoryStore,
    swaps: AtomicUsize,
}

impl Store for DownAfter {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        let left = self.swaps.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match left {
            Ok(_) => self.inner.swap(batch),
            Err(_) => Box::pin(async { Err(Error::new(ErrorKind::Unavailable, "the store is down")) }),
        }
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        self.inner.load(ids)
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        self.inner.scan(query)
    }

    fn take<'a>(&'a self, _: State, _: usize, _: Choose<'a>) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        None
    }

    fn watch(&self) -> Option<Watch> {
        self.inner.watch()
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }
}

#[tokio::test]
async fn claims_beyond_the_queue_are_refused_with_retry_after() {
    let (stage, health) = ailing(Limits::default().with_queue_claims_max(1)).await;
    health.send_replace(Health::Stuck);
    let stage = Arc::new(stage);
    let mut posts = tokio::task::JoinSet::new();
    for at in 0..6 {
        let stage = stage.clone();
        posts.spawn(async move { stage.post(&format!("k{at}"), "{}").await });
    }
    // One is by itself, one is under way, one waits; the other three are answered while the store is stuck.
    for _ in 0..3 {
        let refused = posts.join_next().await.unwrap().unwrap();
        assert_eq!((refused.status, refused.problem()), (503, "overloaded"));
    }
    health.send_replace(Health::Well);
    for answer in posts.join_all().await {
        assert_eq!(answer.status, 201);
    }
    assert_eq!(stage.charges(), 3);
}

#[tokio::test]
async fn a_late_key_is_refused_where_the_route_says_so() {
    let policy = Policy::http()
        .to_builder()
        .with_retention(Retention::For(Duration::from_millis(200)))
        .build()
        .unwrap();
    let policy = policy.to_builder().with_on_expired(OnExpired::Refuse(Retention::Forever)).build().unwrap();
    let stage = Stage::start(Route::builder().with_policy(policy).build().unwrap()).await;
    assert_eq!(stage.post("k", "{}").await.status, 201);
    let refused = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let answer = stage.post("k", "{}").await;
            if answer.status != 201 {
                return answer;
            }
        }
    });
    let refused = refused.await.expect("the retention never ended");
    assert_eq!((refused.status, refused.problem()), (410, "key-expired"));
    assert_eq!(stage.charges(), 1);
}

/// A request does not run an intent that is dead or closed.
#[tokio::test]
async fn dead_and_closed_keys_are_refused_and_not_to_be_sent_again() {
    let store = Arc::new(MemoryStore::new());
    let elsewhere = Onceward::builder(store.clone()).accept_volatile().build().unwrap();
    let stage = Stage::over(store, Limits::default(), Route::default()).await;
    let id = |key| Id::new("anonymous", "POST /charges", key).unwrap();
    let policy = Arc::new(
        Policy::http().to_builder().with_tries_max(1).with_on_unknown(OnUnknown::Retry).build().unwrap(),
    );

    elsewhere.close(&id("closed"), &policy).await.unwrap();
    elsewhere.enqueue(Ask::new(id("dead"), print_of("{}"), policy.clone()).with_input("12")).await.unwrap();
    let fails = async |_: Lease| Err(Stopped::before_effect("no such account"));
    let worker =
        Worker::builder(elsewhere.clone()).with_operation("POST /charges", policy, fails).build().unwrap();
    assert_eq!(worker.run_once().await.unwrap().dead, 1);

    for key in ["dead", "closed"] {
        let refused = stage.post(key, "{}").await;
        assert_eq!((refused.status, refused.problem()), (409, key));
        assert_eq!(refused.field("retry-after"), None);
        assert!(refused.body.contains("\"retryable\":false"), "{}", refused.body);
        assert!(!refused.body.contains("account"), "the reason is not sent to clients: {}", refused.body);
        assert_eq!(stage.meter("refusals", Some(key)), 1);
    }
    let other = stage.post("closed", "{\"amount\":13}").await;
    assert_eq!(other.problem(), "closed", "decided before fingerprints are compared");
    assert_eq!(stage.charges(), 0);
}

/// The store goes away between claim and completion.
async fn away_while_running(route: Route) -> (Stage, watch::Sender<Health>, TcpStream) {
    let (stage, health) = ailing_under(Limits::default(), route).await;
    let running = stage.begin_running("{}").await;
    health.send_replace(Health::Down);
    stage.gate.send_replace(true);
    (stage, health, running)
}

async fn read(mut socket: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).await.unwrap();
    Answer::parse(&bytes)
}

/// Nobody else may run it, so it can be answered; but nothing is promised before it is recorded.
#[tokio::test]
async fn under_hold_an_answer_waits_for_its_receipt_and_then_says_that_it_has_none_yet() {
    let wait = Duration::from_millis(100);
    let route = Route::builder().with_record_wait(wait).build().unwrap();
    let (stage, health, running) = away_while_running(route).await;
    let began = Instant::now();
    let answer = read(running).await;
    assert!(began.elapsed() >= wait, "{:?}", began.elapsed());
    assert_eq!((answer.status, answer.body.as_str()), (201, "charge 1"));
    assert_eq!(answer.field("onceward-recorded"), Some("not-yet"));
    assert_eq!(answer.field("idempotency-expires"), None, "nothing is promised");
    assert_eq!(stage.meter("answers_sent_unrecorded", None), 1);
    health.send_replace(Health::Well);
    let replay = stage.post("k", "{}").await;
    assert_eq!((replay.body.as_str(), replay.field("idempotent-replayed")), ("charge 1", Some("true")));
    assert_eq!((replay.field("onceward-recorded"), stage.charges()), (None, 1));
}

/// A store that is back in time changes nothing for the client.
#[tokio::test]
async fn an_answer_that_is_recorded_within_the_wait_is_an_ordinary_one() {
    let route = Route::builder().with_record_wait(Duration::from_secs(60)).build().unwrap();
    let (stage, health, running) = away_while_running(route).await;
    crate::stage::until("the store was not missed", || stage.meter("answers_recorded_late", None) == 1).await;
    health.send_replace(Health::Well);
    let answer = read(running).await;
    assert_eq!((answer.status, answer.field("onceward-recorded")), (201, None));
    assert!(answer.field("idempotency-expires").is_some());
    assert_eq!(stage.post("k", "{}").await.field("idempotent-replayed"), Some("true"));
    assert_eq!(stage.charges(), 1);
}

/// Another process may run it once the lease has ended, so an answer before that would be one of two.
#[tokio::test]
async fn under_retry_an_answer_is_withheld_until_it_is_recorded() {
    let policy = |lease| {
        let policy = Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).with_lease(lease);
        Route::builder().with_policy(policy.build().unwrap()).build().unwrap()
    };
    let (stage, _health, running) = away_while_running(policy(Duration::from_millis(200))).await;
    let answer = read(running).await;
    assert_eq!((answer.status, answer.problem()), (409, "outcome-unknown"));
    assert_eq!((answer.field("retry-after"), stage.charges()), (Some("1"), 1));

    let (stage, health, running) = away_while_running(policy(Duration::from_secs(60))).await;
    crate::stage::until("the store was not missed", || stage.meter("answers_recorded_late", None) == 1).await;
    health.send_replace(Health::Well);
    let answer = read(running).await;
    assert_eq!((answer.status, answer.body.as_str()), (201, "charge 1"));
    assert!(answer.field("idempotency-expires").is_some());
}

/// A live response: its head has left, so its end is all that can wait.
#[tokio::test]
async fn the_end_of_a_live_response_waits_for_a_store_that_is_away() {
    for (rule, whole) in [(OnUnknown::Hold, true), (OnUnknown::Retry, false)] {
        let policy = Policy::http().to_builder().with_on_unknown(rule).with_lease(Duration::from_millis(200));
        let route = Route::builder()
            .with_policy(policy.build().unwrap())
            .with_record_wait(Duration::from_millis(100))
            .with_response_bytes_max(10)
            .build()
            .unwrap();
        let (stage, health) = ailing_under(Limits::default(), route).await;
        let running = stage.begin_running("\"large 5000\"").await;
        health.send_replace(Health::Down);
        stage.gate.send_replace(true);
        let answer = read(running).await;
        assert_eq!((answer.status, answer.whole), (200, whole), "{rule:?}");
    }
}

/// The fingerprint of a charge with this body.
fn print_of(body: &str) -> Fingerprint {
    let request = http::Request::post("/charges").header("host", "here");
    let (parts, ()) = request.header("content-type", "application/json").body(()).unwrap().into_parts();
    let head = Head::from(&parts).with_caller(Caller::Anonymous);
    fingerprint(&Rules::default(), &[7; 32], &head, body.as_bytes())
}
