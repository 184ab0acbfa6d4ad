//! The answers to a client: replays, and each refusal.

use onceward::{OnDuplicate, Policy};
use onceward_http::key::KeyForm;
use onceward_http::{KeyRule, Route, ScopeFrom};

use crate::stage::Stage;

#[tokio::test]
async fn a_replay_is_the_same_response_and_says_so() {
    let stage = Stage::start(Route::default()).await;
    let first = stage.post("\"k\"", "{\"amount\":12}").await;
    assert_eq!((first.status, first.body.as_str()), (201, "charge 1"));
    assert_eq!(first.field("idempotent-replayed"), None);
    assert!(first.field("idempotency-expires").unwrap().ends_with("GMT"));
    assert_eq!(first.field("set-cookie"), Some("session=1"));
    for _ in 0..3 {
        let replay = stage.post("\"k\"", "{\"amount\":12}").await;
        assert_eq!((replay.status, &replay.body), (first.status, &first.body));
        assert_eq!(replay.lasting_fields(), first.lasting_fields(), "same fields, same order, same number");
        assert_eq!(replay.field("idempotent-replayed"), Some("true"));
        assert!(replay.field("idempotency-expires").is_some());
        assert_eq!(replay.field("set-cookie"), None, "never replayed");
    }
    assert_eq!(stage.charges(), 1);
}

#[tokio::test]
async fn a_quoted_and_a_raw_key_are_the_same() {
    let stage = Stage::start(Route::default()).await;
    stage.post("\"8e03\"", "{}").await;
    assert_eq!(stage.post("8e03", "{}").await.field("idempotent-replayed"), Some("true"));
    let strict = Stage::start(Route::builder().with_key_form(KeyForm::Strict).build().unwrap()).await;
    assert_eq!(strict.post("8e03", "{}").await.problem(), "key-malformed");
    assert_eq!(strict.charges(), 0);
}

#[tokio::test]
async fn a_missing_or_bad_key_is_refused_before_anything_happens() {
    let stage = Stage::start(Route::default()).await;
    let missing = stage.send("POST", "/charges", &[], "{}").await;
    assert_eq!((missing.status, missing.problem()), (400, "key-missing"));
    for key in ["", "\"\"", "\"open", "a, b", "\"a\";p=1", &"k".repeat(256)] {
        let bad = stage.post(key, "{}").await;
        assert_eq!((bad.status, bad.problem()), (400, "key-malformed"), "{key:?}");
    }
    let twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "a")];
    assert_eq!(stage.send("POST", "/charges", &twice, "{}").await.problem(), "key-malformed");
    assert_eq!(stage.charges(), 0);
}

/// Among few fields the key is found otherwise than among many.
#[tokio::test]
async fn a_key_is_found_among_any_number_of_fields() {
    let stage = Stage::start(Route::default()).await;
    let names: Vec<_> = (0..24).map(|at| format!("Accept-{at}")).collect();
    for others in 0..names.len() {
        let mut fields: Vec<_> = names[..others].iter().map(|name| (name.as_str(), "x")).collect();
        assert_eq!(stage.send("POST", "/charges", &fields, "{}").await.problem(), "key-missing");
        fields.insert(others / 2, ("Idempotency-Key", "a"));
        let answer = stage.send("POST", "/charges", &fields, "{}").await;
        assert_eq!((answer.status, answer.body.as_str()), (201, "charge 1"), "{others} others");
        fields.push(("Idempotency-Key", "a"));
        assert_eq!(stage.send("POST", "/charges", &fields, "{}").await.problem(), "key-malformed");
    }
    assert_eq!(stage.charges(), 1);
}

#[tokio::test]
async fn a_problem_has_all_its_members() {
    let stage = Stage::start(Route::default()).await;
    let missing = stage.send("POST", "/charges", &[], "{}").await;
    let body: serde_json::Value = serde_json::from_str(&missing.body).unwrap();
    assert_eq!(body["type"], "urn:onceward:problem:key-missing");
    assert_eq!(body["status"], 400);
    assert_eq!(body["retryable"], false);
    for member in ["title", "detail"] {
        assert!(body[member].as_str().is_some_and(|text| text.len() > 10), "{member}");
    }
    let instance = body["instance"].as_str().unwrap();
    assert!(instance.starts_with("urn:uuid:") && instance.len() == 45, "{instance}");
    assert_eq!(missing.field("link"), Some("</.well-known/idempotency>; rel=\"describedby\""));
}

#[tokio::test]
async fn another_body_under_the_same_key_is_refused_while_running_and_after() {
    let stage = Stage::start(Route::default()).await;
    let running = stage.begin_running("{\"amount\":12}").await;
    let other = stage.post("k", "{\"amount\":99}").await;
    assert_eq!((other.status, other.problem()), (422, "key-reused"));
    stage.gate.send_replace(true);
    drop(running);
    assert_eq!(stage.post("k", "{\"amount\":12}").await.status, 201);
    let other = stage.post("k", "{\"amount\":99}").await;
    assert_eq!((other.status, other.problem()), (422, "key-reused"));
    assert_eq!(stage.charges(), 1);
}

#[tokio::test]
async fn the_same_key_on_another_path_method_or_scope_is_another_intent() {
    let stage = Stage::start(Route::default()).await;
    let key = ("Idempotency-Key", "k");
    for (method, path, who) in [
        ("POST", "/charges", "a"),
        ("POST", "/charges", "b"),
        ("POST", "/refunds", "a"),
        ("PATCH", "/charges", "a"),
    ] {
        for replayed in [None, Some("true")] {
            let answer =
                stage.send(method, path, &[key, ("Authorization", &format!("Bearer {who}"))], "{}").await;
            assert_eq!(answer.field("idempotent-replayed"), replayed, "{method} {path} by {who}");
        }
    }
    assert_eq!(stage.charges(), 4);
    let shared = Stage::start(Route::builder().with_scope(ScopeFrom::Shared).build().unwrap()).await;
    for who in ["a", "b"] {
        shared.send("POST", "/charges", &[key, ("Authorization", &format!("Bearer {who}"))], "{}").await;
    }
    assert_eq!(shared.charges(), 1);
}

#[tokio::test]
async fn other_methods_and_keyless_requests_pass_where_they_may() {
    let stage = Stage::start(Route::default()).await;
    for _ in 0..2 {
        assert_eq!(stage.send("GET", "/charges", &[("Idempotency-Key", "k")], "").await.status, 201);
        assert_eq!(stage.send("PUT", "/charges", &[], "{}").await.status, 201);
    }
    assert_eq!(stage.charges(), 4, "nothing was guarded");
    for (rule, key) in [(KeyRule::Optional, None), (KeyRule::Ignored, Some("k"))] {
        let stage = Stage::start(Route::builder().with_key(rule).build().unwrap()).await;
        let fields: Vec<_> = key.map(|key| ("Idempotency-Key", key)).into_iter().collect();
        for _ in 0..2 {
            assert_eq!(stage.send("POST", "/charges", &fields, "{}").await.status, 201);
        }
        assert_eq!(stage.charges(), 2, "{rule:?}");
    }
}

#[tokio::test]
async fn a_body_over_the_bound_is_refused_and_does_nothing() {
    let stage = Stage::start(Route::builder().with_request_bytes_max(100).build().unwrap()).await;
    let refused = stage.post("k", &format!("\"{}\"", "x".repeat(200))).await;
    assert_eq!((refused.status, refused.problem()), (413, "body-too-large"));
    assert_eq!(stage.charges(), 0);
    assert_eq!(stage.post("k", "{}").await.status, 201, "the key is still free");
}

#[tokio::test]
async fn a_conflict_is_told_at_once_with_a_time_to_come_back() {
    let policy = Policy::http().to_builder().with_on_duplicate(OnDuplicate::Conflict).build().unwrap();
    let stage = Stage::start(Route::builder().with_policy(policy).build().unwrap()).await;
    let running = stage.begin_running("{}").await;
    let refused = stage.post("k", "{}").await;
    assert_eq!((refused.status, refused.problem()), (409, "in-progress"));
    let seconds: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&seconds), "{seconds}");
    stage.gate.send_replace(true);
    drop(running);
}

#[tokio::test]
async fn a_wait_that_runs_out_is_a_conflict() {
    let patience = std::time::Duration::from_millis(100);
    let policy = Policy::http().to_builder().with_on_duplicate(OnDuplicate::Wait(patience)).build().unwrap();
    let stage = Stage::start(Route::builder().with_policy(policy).build().unwrap()).await;
    let running = stage.begin_running("{}").await;
    let refused = stage.post("k", "{}").await;
    assert_eq!((refused.status, refused.problem()), (409, "in-progress"));
    stage.gate.send_replace(true);
    drop(running);
    assert_eq!(stage.post("k", "{}").await.field("idempotent-replayed"), Some("true"));
}
