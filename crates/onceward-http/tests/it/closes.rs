//! Undos with `Onceward-Closes`: what they name is closed before they run, and never runs after them.

use std::sync::Arc;

use onceward::{Limits, OnDuplicate, Policy};
use onceward_http::{Route, Secrets};
use onceward_stores::MemoryStore;
use tokio::io::AsyncReadExt;

use crate::stage::{Answer, Stage};

const CLOSES: &str = "\"charge-1\"; operation=\"POST /charges\"";

fn route() -> Route {
    Route::builder().with_closes(["POST /charges"]).build().unwrap()
}

async fn charge(stage: &Stage, key: &str, body: &str) -> Answer {
    stage.send("POST", "/charges", &[("Authorization", "Bearer me"), ("Idempotency-Key", key)], body).await
}

async fn undo(stage: &Stage, key: &str, caller: &str, closes: &str) -> Answer {
    let fields = [("Authorization", caller), ("Idempotency-Key", key), ("Onceward-Closes", closes)];
    stage.send("POST", "/refunds", &fields, "{}").await
}

#[tokio::test]
async fn what_never_ran_is_closed_and_a_late_copy_is_refused() {
    let stage = Stage::start(route()).await;
    assert_eq!(undo(&stage, "undo-1", "Bearer me", CLOSES).await.status, 201);
    assert_eq!(stage.charges(), 1, "the undo itself ran");
    assert_eq!(charge(&stage, "charge-1", "{}").await.problem(), "closed");
    assert_eq!(stage.charges(), 1);
    // A retry of the undo gets its answer, and a second undo finds the request closed.
    assert_eq!(undo(&stage, "undo-1", "Bearer me", CLOSES).await.field("idempotent-replayed"), Some("true"));
    assert_eq!(undo(&stage, "undo-2", "Bearer me", CLOSES).await.status, 201);
    // Another caller's request under the same key is another request.
    let other = [("Authorization", "Bearer other"), ("Idempotency-Key", "charge-1")];
    assert_eq!(stage.send("POST", "/charges", &other, "{}").await.status, 201);
}

#[tokio::test]
async fn what_ran_stays_done() {
    let stage = Stage::start(route()).await;
    let first = charge(&stage, "charge-1", "{}").await;
    assert_eq!(undo(&stage, "undo-1", "Bearer me", CLOSES).await.status, 201);
    let retry = charge(&stage, "charge-1", "{}").await;
    assert_eq!((retry.status, &retry.body), (201, &first.body), "its answer is still replayed");
    assert_eq!(stage.charges(), 2);
}

#[tokio::test]
async fn what_runs_is_waited_for() {
    let policy = Policy::http().to_builder().with_on_duplicate(OnDuplicate::Conflict).build().unwrap();
    let store = Arc::new(MemoryStore::new());
    let charging = Stage::over(store.clone(), Limits::default(), route()).await;
    let hasty = route().to_builder().with_policy(policy).build().unwrap();
    let hasty = Stage::over(store.clone(), Limits::default(), hasty).await;
    let patient = Arc::new(Stage::over(store, Limits::default(), route()).await);
    charging.gate.send_replace(false);
    let fields = [("Authorization", "Bearer me"), ("Idempotency-Key", "charge-1")];
    let mut running = charging.begin("POST", "/charges", &fields, "{}").await;
    charging.charges_begun(1).await;
    let refused = undo(&hasty, "undo-1", "Bearer me", CLOSES).await;
    assert_eq!((refused.problem(), refused.field("retry-after").is_some()), ("in-progress", true));
    assert_eq!(hasty.charges(), 0);
    let waiting = {
        let patient = patient.clone();
        tokio::spawn(async move { undo(&patient, "undo-2", "Bearer me", CLOSES).await })
    };
    patient.guarded_begun(1).await;
    assert_eq!(patient.charges(), 0, "it waits");
    charging.gate.send_replace(true);
    assert_eq!(waiting.await.unwrap().status, 201);
    assert_eq!(patient.charges(), 1);
    let mut bytes = Vec::new();
    running.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(Answer::parse(&bytes).status, 201, "the charge was not disturbed");
    // Refused before its effect: the undo runs under the same key.
    assert_eq!(undo(&hasty, "undo-1", "Bearer me", CLOSES).await.status, 201);
}

#[tokio::test]
async fn an_unknown_outcome_stops_the_undo() {
    let stage = Stage::start(route()).await;
    assert_eq!(charge(&stage, "charge-1", "\"unanswered\"").await.status, 504);
    for key in ["undo-1", "undo-1"] {
        assert_eq!(undo(&stage, key, "Bearer me", CLOSES).await.problem(), "outcome-unknown");
    }
    assert_eq!(stage.charges(), 1, "the undo did not run");
}

#[tokio::test]
async fn an_undo_closes_under_every_secret() {
    let store = Arc::new(MemoryStore::new());
    let both = Secrets::new([1; 32]).with_older([[2; 32]]);
    let rotating = Stage::under(both, store.clone(), route()).await;
    let old = Stage::under(Secrets::new([2; 32]), store.clone(), route()).await;
    let new = Stage::under(Secrets::new([1; 32]), store, route()).await;
    assert_eq!(undo(&rotating, "undo-1", "Bearer me", CLOSES).await.status, 201);
    for stage in [&old, &new, &rotating] {
        assert_eq!(charge(stage, "charge-1", "{}").await.problem(), "closed");
    }
    // Done under the one secret is done.
    assert_eq!(charge(&old, "charge-2", "{}").await.status, 201);
    let second = CLOSES.replace("charge-1", "charge-2");
    assert_eq!(undo(&rotating, "undo-2", "Bearer me", &second).await.status, 201);
    assert_eq!(charge(&old, "charge-2", "{}").await.status, 201);
}

#[tokio::test]
async fn nothing_is_closed_by_strangers_without_a_key_or_by_mistake() {
    let stage = Stage::start(route()).await;
    let anonymous = [("Idempotency-Key", "undo-1"), ("Onceward-Closes", CLOSES)];
    assert_eq!(stage.send("POST", "/refunds", &anonymous, "{}").await.problem(), "scope-missing");
    for wrong in ["charge-1", "\"charge-1\"", "\"charge-1\"; operation=\"POST /payouts\""] {
        assert_eq!(undo(&stage, "undo-1", "Bearer me", wrong).await.problem(), "key-malformed", "{wrong}");
    }
    assert_eq!(stage.charges(), 0);
    let optional = route().to_builder().with_key(onceward_http::KeyRule::Optional).build().unwrap();
    let stage = Stage::start(optional).await;
    let keyless = [("Authorization", "Bearer me"), ("Onceward-Closes", CLOSES)];
    assert_eq!(stage.send("POST", "/refunds", &keyless, "{}").await.problem(), "key-missing");
    assert_eq!(stage.charges(), 0);
    // A route that closes nothing does not look at the field.
    let stage = Stage::start(Route::default()).await;
    assert_eq!(undo(&stage, "undo-1", "Bearer me", CLOSES).await.status, 201);
    assert_eq!(charge(&stage, "charge-1", "{}").await.status, 201);
}
