//! The same request under another key, in simulated time: the end of the window, writers that died, a slow store.

use std::fmt::Write;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::routing::post;
use onceward::{Ask, Claimed, Clock, Fingerprint, Id, OnUnknown, Onceward, Policy, Store};
use onceward_http::fingerprint::{Caller, Head, Rules, fingerprint};
use onceward_http::{Metrics, OnSameRequest, OncewardLayer, Route, SameRequest};
use onceward_stores::MemoryStore;
use tokio::time::{Instant, sleep, timeout};
use tower_service::Service;

use crate::held_store::{HeldStore, Holds};

const OPERATION: &str = "onceward/same-request";
const WINDOW: Duration = Duration::from_secs(60);
const JUST_WITHIN: Duration = Duration::from_secs(59);
const SECRET: [u8; 32] = [7; 32];

struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now_us(&self) -> u64 {
        1_700_000_000_000_000 + u64::try_from(self.0.elapsed().as_micros()).unwrap()
    }
}

fn memory() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new_with_clock(Arc::new(TokioClock(Instant::now()))))
}

/// A service that refuses the same request under another key.
struct Simulated {
    app: Router,
    metrics: Arc<Metrics>,
}

impl Simulated {
    fn over(store: Arc<dyn Store>) -> Self {
        let rule = SameRequest::within(WINDOW).with_on_found(OnSameRequest::Refuse);
        let route = Route::builder().with_same_request(rule).build().unwrap();
        let onceward = Onceward::builder(store).accept_volatile().build().unwrap();
        let metrics = Arc::new(Metrics::new());
        let layer = OncewardLayer::new(onceward, SECRET, route).with_metrics(metrics.clone());
        Self { app: Router::new().route("/charges", post(async || "charged")).layer(layer), metrics }
    }

    /// Sends a charge, by somebody or nobody, and returns its status and problem.
    async fn charge(&self, who: Option<&str>, key: &str) -> (u16, String) {
        let mut request = charge().header("idempotency-key", key);
        if let Some(who) = who {
            request = request.header("authorization", format!("Bearer {who}"));
        }
        let mut app = self.app.clone();
        poll_fn(|cx| Service::<Request>::poll_ready(&mut app, cx)).await.unwrap();
        let response = app.call(request.body(Body::from("{}")).unwrap()).await.unwrap();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 10_000).await.unwrap();
        let problem = serde_json::from_slice::<serde_json::Value>(&body).ok();
        let problem = problem.and_then(|problem| problem["type"].as_str().map(str::to_owned));
        (status, problem.unwrap_or_default().replace("urn:onceward:problem:", ""))
    }

    fn other_scopes(&self) -> u64 {
        let mut all = self.metrics.each();
        all.find(|(name, ..)| *name == "same_requests_other_scope").unwrap().2
    }
}

fn charge() -> http::request::Builder {
    Request::post("/charges").header("host", "here").header("content-type", "application/json")
}

/// Where the record of the charge is.
fn record_of(scope: &str, caller: Caller) -> Id {
    let (parts, ()) = charge().body(()).unwrap().into_parts();
    let print = fingerprint(&Rules::default(), &SECRET, &Head::from(&parts).with_caller(caller), b"{}");
    let hex = print.digest().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    Id::new(scope, OPERATION, &hex).unwrap()
}

/// A process claims this record, and dies before it says anything.
async fn claim_and_die(store: &Arc<MemoryStore>, record: Id) {
    let elsewhere = Onceward::builder(store.clone()).accept_volatile().build().unwrap();
    let policy = Policy::http().to_builder().with_lease(Duration::from_secs(5));
    let policy = policy.with_on_unknown(OnUnknown::Retry).build().unwrap();
    let ask = Ask::new(record, Fingerprint::of(b"of the process that died"), policy);
    let Claimed::Granted(lease) = elsewhere.claim(ask).await.unwrap() else { panic!("the record is new") };
    // A lease that is dropped may be given back; a process that died gives nothing back.
    std::mem::forget(lease);
    std::mem::forget(elsewhere);
}

fn fine() -> (u16, String) {
    (200, String::new())
}

fn refused() -> (u16, String) {
    (409, "same-request-other-key".to_owned())
}

#[tokio::test(start_paused = true)]
async fn the_same_request_runs_after_the_window_and_not_within_it() {
    let service = Simulated::over(memory());
    assert_eq!(service.charge(None, "one").await, fine());
    sleep(JUST_WITHIN).await;
    // A refusal does not make the window longer.
    assert_eq!(service.charge(None, "two").await, refused());
    sleep(Duration::from_secs(2)).await;
    assert_eq!(service.charge(None, "three").await, fine());
    // That one has a window of its own.
    sleep(JUST_WITHIN).await;
    assert_eq!(service.charge(None, "four").await, refused());
    sleep(Duration::from_secs(2)).await;
    assert_eq!(service.charge(None, "five").await, fine());
}

/// Its record is of nobody, and says nothing.
#[tokio::test(start_paused = true)]
async fn a_process_that_died_while_it_wrote_its_record_stands_in_nobodys_way() {
    let store = memory();
    let service = Simulated::over(store.clone());
    claim_and_die(&store, record_of("anonymous", Caller::Anonymous)).await;
    // As long as its lease lives, it may still be writing.
    assert_eq!(service.charge(None, "two").await, refused());
    sleep(Duration::from_secs(6)).await;
    assert_eq!(service.charge(None, "three").await, fine());
    // The record is that of the third one now.
    assert_eq!(service.charge(None, "four").await, refused());
}

#[tokio::test(start_paused = true)]
async fn a_record_of_a_process_that_died_is_not_counted_as_another_scope() {
    let store = memory();
    let service = Simulated::over(store.clone());
    claim_and_die(&store, record_of("onceward", Caller::Named)).await;
    sleep(Duration::from_secs(6)).await;
    assert_eq!(service.charge(Some("a"), "one").await, fine());
    sleep(Duration::from_secs(2)).await;
    assert_eq!(service.other_scopes(), 0);
    assert_eq!(service.charge(Some("b"), "one").await, fine());
    sleep(Duration::from_secs(2)).await;
    assert_eq!(service.other_scopes(), 1);
}

/// It is a check of clients: what it cannot find out within a second it lets pass.
#[tokio::test(start_paused = true)]
async fn a_slow_store_holds_a_request_up_for_a_second_in_all() {
    let (store, hold) = HeldStore::over(memory(), Holds::LoadsOf(OPERATION));
    let service = Simulated::over(store);
    assert_eq!(service.charge(None, "one").await, fine());
    hold.send_replace(true);
    let began = Instant::now();
    let second = timeout(Duration::from_secs(60), service.charge(None, "two")).await;
    assert_eq!(second.expect("it waits for the store"), fine());
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    hold.send_replace(false);
    assert_eq!(service.charge(None, "three").await, refused());
}
