//! The code of `docs/testing.md`, block by block.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::{
    Answer, Ask, Claimed, Clock, Fingerprint, Id, Lease, OnUnknown, Onceward, Outcome, Policy, Refusal,
    Stopped,
};
use onceward_stores::MemoryStore;
use tokio::time::{Instant, sleep, timeout};

fn ask(body: &str, on_unknown: OnUnknown) -> Ask {
    let policy = Policy::http().to_builder().with_lease(Duration::from_secs(10)).with_on_unknown(on_unknown);
    let id = Id::new("tenant-7", "charge", "order-81").unwrap();
    Ask::new(id, Fingerprint::of(body.as_bytes()), policy.build().unwrap())
}

/// The code under test: it takes a second, and then has its effect.
async fn charge(charges: &AtomicUsize) -> Result<Outcome, Stopped> {
    sleep(Duration::from_secs(1)).await;
    charges.fetch_add(1, Ordering::SeqCst);
    Ok(Outcome::succeeded("charged"))
}

#[tokio::test(start_paused = true)]
async fn duplicates_have_one_effect_and_one_answer() {
    let (onceward, charges) = (onceward_stores::in_memory(), Arc::new(AtomicUsize::new(0)));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (onceward, charges) = (onceward.clone(), charges.clone());
        callers.spawn(async move {
            let work = async |_: Lease| charge(&charges).await;
            onceward.run(ask("12 EUR", OnUnknown::Hold), work).await.unwrap().into_result().unwrap()
        });
    }
    let completed = callers.join_all().await;
    assert_eq!(charges.load(Ordering::SeqCst), 1);
    assert!(completed.iter().all(|one| one.outcome == Outcome::succeeded("charged")));
    assert_eq!(completed.iter().filter(|one| !one.replayed).count(), 1);

    // The same key with another body is refused, and has no effect.
    let work = async |_: Lease| charge(&charges).await;
    let reused = onceward.run(ask("13 EUR", OnUnknown::Hold), work).await.unwrap();
    assert_eq!(reused, Answer::Refused(Refusal::KeyReused));
    assert_eq!(charges.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_charge_is_held_and_not_repeated() {
    let (onceward, charges) = (onceward_stores::in_memory(), AtomicUsize::new(0));
    let work = async |_: Lease| charge(&charges).await;
    let run = onceward.run(ask("12 EUR", OnUnknown::Hold), work);
    assert!(timeout(Duration::from_millis(500), run).await.is_err());

    let retry = onceward.run(ask("12 EUR", OnUnknown::Hold), work).await.unwrap();
    assert_eq!(retry, Answer::Refused(Refusal::OutcomeUnknown));
    assert_eq!(charges.load(Ordering::SeqCst), 0);
}

struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now_us(&self) -> u64 {
        1_700_000_000_000_000 + u64::try_from(self.0.elapsed().as_micros()).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_takes_over_from_a_dead_process() {
    let (started, charges) = (Instant::now(), AtomicUsize::new(0));
    let store = MemoryStore::new_with_clock(Arc::new(TokioClock(started)));
    let onceward = Onceward::builder(Arc::new(store)).accept_volatile().build().unwrap();
    let claimed = onceward.claim(ask("12 EUR", OnUnknown::Retry)).await.unwrap();
    let Claimed::Granted(dead) = claimed else { panic!("the key is new") };

    let work = async |_: Lease| charge(&charges).await;
    let retry = onceward.run(ask("12 EUR", OnUnknown::Retry), work).await.unwrap().into_result().unwrap();
    assert!(!retry.replayed && retry.fence > dead.fence());
    assert!(started.elapsed() < Duration::from_secs(12), "the lease of 10 s, and the work of 1 s");
    assert_eq!(charges.load(Ordering::SeqCst), 1);
}

use axum::http::Request;
use onceward_http::{OncewardLayer, Route};
use tower_service::Service;

#[tokio::test]
async fn a_repeated_request_is_replayed() {
    let charges = Arc::new(AtomicUsize::new(0));
    let counter = charges.clone();
    let handler = async move || counter.fetch_add(1, Ordering::SeqCst).to_string();
    let layer = OncewardLayer::new(onceward_stores::in_memory(), [7; 32], Route::default());
    let app = axum::Router::new().route("/charges", axum::routing::post(handler)).layer(layer);

    let send = async || {
        let request = Request::post("/charges").header("idempotency-key", "order-81");
        app.clone().call(request.body(r#"{"amount":12}"#.to_owned()).unwrap()).await.unwrap()
    };
    let (first, retry) = (send().await, send().await);
    assert_eq!(retry.status(), first.status());
    assert_eq!(retry.headers()["idempotent-replayed"], "true");
    assert_eq!(charges.load(Ordering::SeqCst), 1);
}
