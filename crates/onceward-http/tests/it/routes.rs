//! What a route can set, seen from outside.

use std::time::Duration;

use http::{HeaderName, Method, StatusCode};
use onceward::{OnExpired, Policy, Retention};
use onceward_http::key::KeyForm;
use onceward_http::webhook::{Arrivals, Receiver, Scheme, StoreFirst, Verifier};
use onceward_http::{
    Action, KeyRule, OnAnonymous, OnStoreFailure, Operation, Problem, Route, RouteBuilder, ScopeFrom,
    StatusClass,
};

use crate::stage::{Answer, Stage};

#[tokio::test]
async fn a_problem_can_have_another_status_and_keeps_its_type() {
    let route = Route::builder().with_problem_status("key-reused", StatusCode::CONFLICT).build().unwrap();
    let stage = Stage::start(route).await;
    stage.post("k", "{}").await;
    let reused = stage.post("k", "[]").await;
    assert_eq!((reused.status, reused.problem()), (409, "key-reused"));
    assert!(reused.body.contains("\"status\":409"), "{}", reused.body);
    assert_eq!(stage.send("POST", "/charges", &[], "{}").await.status, 400, "the others stay");
    assert!(Route::builder().with_problem_status("no-such", StatusCode::CONFLICT).build().is_err());
    assert!(Route::builder().with_problem_status("key-reused", StatusCode::OK).build().is_err());
}

#[tokio::test]
async fn keys_can_have_a_least_length_and_a_pattern() {
    let route = Route::builder().with_key_length_min(3).with_key_pattern("[a-z]+").build().unwrap();
    let stage = Stage::start(route).await;
    for (key, status) in [("ab", 400), ("abc", 201), ("\"abc\"", 201), ("ABC", 400), ("abc1", 400)] {
        let answer = stage.post(key, "{}").await;
        assert_eq!(answer.status, status, "{key}");
        if status == 400 {
            assert_eq!(answer.problem(), "key-malformed");
        }
    }
    assert_eq!(stage.charges(), 1);
}

/// Seconds from `Date` to `Idempotency-Expires`.
fn promised(answer: &Answer) -> Option<u64> {
    let at = |name| answer.field(name).map(|date| httpdate::parse_http_date(date).unwrap());
    Some(at("idempotency-expires")?.duration_since(at("date")?).unwrap().as_secs())
}

#[tokio::test]
async fn each_class_can_have_a_retention_of_its_own() {
    let hour = Retention::For(Duration::from_secs(3_600));
    let route = Route::builder()
        .with_retention(StatusClass::Success, Retention::Forever)
        .with_retention(StatusClass::ClientError, hour)
        .build()
        .unwrap();
    let stage = Stage::start(route).await;
    for _ in 0..2 {
        assert_eq!(promised(&stage.post("a", "{}").await), None, "kept forever");
        let client_error = promised(&stage.post("b", "\"status 404\"").await).unwrap();
        assert!((3_590..=3_601).contains(&client_error), "{client_error}");
        let redirection = promised(&stage.post("c", "\"status 303\"").await).unwrap();
        assert!((86_390..=86_401).contains(&redirection), "by the policy: {redirection}");
    }
    assert!(
        Route::builder()
            .with_retention(StatusClass::Success, Retention::For(Duration::ZERO))
            .build()
            .is_err()
    );
}

#[tokio::test]
async fn cookies_are_replayed_only_where_it_is_said() {
    let stage = Stage::start(Route::builder().with_cookies_replayed().build().unwrap()).await;
    let first = stage.post("k", "{}").await;
    assert_eq!(first.field("set-cookie"), Some("session=1"));
    assert_eq!(stage.post("k", "{}").await.field("set-cookie"), Some("session=1"));
}

#[tokio::test]
async fn a_named_operation_has_one_key_for_all_its_paths() {
    let stage =
        Stage::start(Route::builder().with_operation(Operation::named("payments").unwrap()).build().unwrap())
            .await;
    let key = [("Idempotency-Key", "k")];
    assert_eq!(stage.send("POST", "/charges", &key, "{}").await.status, 201);
    let other = stage.send("POST", "/refunds", &key, "{}").await;
    assert_eq!((other.status, other.problem()), (422, "key-reused"));
    assert_eq!(stage.charges(), 1);
}

#[tokio::test]
async fn a_scope_found_out_in_front_of_the_layer_keeps_tenants_apart() {
    let stage = Stage::start(Route::builder().with_scope(ScopeFrom::Extension).build().unwrap()).await;
    for (caller, replayed) in [("a", None), ("b", None), ("a", Some("true")), ("b", Some("true"))] {
        // A credential that is refreshed between two tries does not matter here.
        let fields =
            [("Idempotency-Key", "k"), ("x-caller", caller), ("Authorization", replayed.unwrap_or("old"))];
        let answer = stage.send("POST", "/charges", &fields, "{}").await;
        assert_eq!((answer.status, answer.field("idempotent-replayed")), (201, replayed), "{caller}");
    }
    assert_eq!(stage.charges(), 2);
    for fields in [&[("Idempotency-Key", "k")][..], &[("Idempotency-Key", "k"), ("x-caller", "")]] {
        let refused = stage.send("POST", "/charges", fields, "{}").await;
        assert_eq!((refused.status, refused.problem()), (400, "scope-missing"));
    }
    assert_eq!(stage.charges(), 2);

    let route = Route::builder()
        .with_scope(ScopeFrom::Extension)
        .with_on_anonymous(OnAnonymous::Share)
        .build()
        .unwrap();
    assert_eq!(Stage::start(route).await.post("k", "{}").await.status, 201);
    let strict = Stage::start(Route::builder().with_on_anonymous(OnAnonymous::Refuse).build().unwrap()).await;
    assert_eq!(strict.post("k", "{}").await.problem(), "scope-missing");
}

/// Callers without a credential that is known share a scope. A field that tells them apart must count.
#[tokio::test]
async fn a_credential_with_an_unlucky_name_is_never_taken_for_a_trace() {
    for field in [
        "X-Web3-Token",
        "X-Makespan-Account",
        "X-Retryable-Account",
        "X-Trace-User",
        "X-Forwarded-User",
        "X-Forwarded-Email",
        "X-Forwarded-Access-Token",
        "X-Forwarded-Client-Cert",
    ] {
        let stage = Stage::start(Route::default()).await;
        let by = async |who| {
            let fields =
                [("Idempotency-Key", "k"), (field, who), ("X-Request-Id", who), ("traceparent", who)];
            stage.send("POST", "/charges", &fields, "{}").await
        };
        assert_eq!(by("alice").await.status, 201, "{field}");
        assert_eq!(by("bob").await.problem(), "key-reused", "{field}");
        // The other two tell only tries apart.
        let fields = [("Idempotency-Key", "k"), (field, "alice"), ("X-Request-Id", "2")];
        let again = stage.send("POST", "/charges", &fields, "{}").await;
        assert_eq!(again.field("idempotent-replayed"), Some("true"), "{field}");
        assert_eq!(stage.charges(), 1);
    }
}

#[tokio::test]
async fn every_request_is_counted_once() {
    let stage = Stage::start(Route::builder().with_key(KeyRule::Optional).build().unwrap()).await;
    stage.send("GET", "/charges", &[], "").await;
    stage.send("POST", "/charges", &[], "{}").await;
    stage.post("k", "{}").await;
    stage.post("k", "{}").await;
    stage.post("k", "[]").await;
    for (name, label, expect) in [
        ("requests_other_methods", None, 1),
        ("requests_keyless", None, 1),
        ("requests_guarded", None, 3),
        ("in_flight", None, 0),
        ("refusals", Some("key-reused"), 1),
        ("refusals", Some("in-progress"), 0),
    ] {
        assert_eq!(stage.meter(name, label), expect, "{name} {label:?}");
    }
    assert_eq!(stage.metrics.each().filter(|(name, ..)| *name == "refusals").count(), Problem::NAMES.len());
}

#[tokio::test]
async fn the_stripe_preset_replays_every_response() {
    let stage = Stage::start(Route::preset("stripe").unwrap()).await;
    assert_eq!(stage.send("POST", "/charges", &[], "{}").await.status, 201, "a key may be left out");
    for replayed in [None, Some("true")] {
        let answer = stage.post("order 7, second try", "\"status 500\"").await;
        assert_eq!((answer.status, answer.field("idempotent-replayed")), (500, replayed));
    }
}

#[test]
fn presets_have_their_documented_settings() {
    let day = Retention::For(Duration::from_secs(24 * 3_600));
    let week = Retention::For(Duration::from_secs(7 * 24 * 3_600));
    for (name, success, client_error, server_error, kept) in [
        ("ietf", Action::Replay, Action::Replay, Action::Replay, day),
        ("stripe", Action::Replay, Action::Replay, Action::Replay, day),
        ("queue", Action::Replay, Action::Retry, Action::Retry, week),
        ("ledger", Action::Replay, Action::Replay, Action::Replay, Retention::Forever),
        ("transactional", Action::Replay, Action::Replay, Action::Retry, day),
    ] {
        let route = Route::preset(name).unwrap();
        let of = |class| route.class_action(class);
        let seen = (of(StatusClass::Success), of(StatusClass::ClientError), of(StatusClass::ServerError));
        assert_eq!(seen, (success, client_error, server_error), "{name}");
        assert_eq!(route.retention(StatusClass::Success), kept, "{name}");
    }
    assert_eq!(Route::PRESETS.map(|name| Route::preset(name).is_ok()), [true; 6]);
    let unknown = Route::preset("strpie").unwrap_err().to_string();
    assert!(unknown.contains("stripe"), "{unknown}");
}

#[test]
fn a_stored_event_is_acknowledged_with_2xx_only() {
    let with_status = |status| {
        let verifier = Verifier::new(Scheme::GitHub, ["It's a Secret to Everybody"]).unwrap();
        let stored = StoreFirst::new(Arrivals::new()).with_status(status);
        let route = Route::preset("webhook").unwrap().to_builder();
        route
            .with_scope(ScopeFrom::Shared)
            .with_webhook(Receiver::new(verifier).with_store_first(stored))
            .build()
    };
    assert!(with_status(StatusCode::OK).is_ok());
    let refused = with_status(StatusCode::INTERNAL_SERVER_ERROR).unwrap_err().to_string();
    assert!(refused.contains("2xx") && refused.contains("500"), "{refused}");
}

/// What a run has sent may still take effect when its lease has ended: zero must be said.
#[test]
fn the_time_for_late_effects_is_never_zero_by_itself() {
    let late = |route: RouteBuilder| route.build().unwrap().policy().late_effect_max();
    assert_eq!(Route::default().policy().late_effect_max(), Duration::from_secs(60));
    for preset in Route::PRESETS {
        assert_eq!(late(Route::preset(preset).unwrap().to_builder()), Duration::from_secs(60), "{preset}");
    }
    assert_eq!(late(Route::builder().with_policy(Policy::ledger())), Duration::from_secs(60));
    let longer = Policy::http().to_builder().with_late_effect_max(Duration::from_secs(600)).build().unwrap();
    assert_eq!(late(Route::builder().with_policy(longer)), Duration::from_secs(600));
    assert_eq!(late(Route::builder().with_late_effect_max(Duration::ZERO)), Duration::ZERO);
    assert_eq!(late(Route::builder().with_effects_in_transaction()), Duration::ZERO);
    let far = Route::builder().with_late_effect_max(Duration::MAX).build();
    assert!(far.unwrap_err().to_string().contains("late"));
}

/// Whatever was set can be read back: what is published is what is done.
#[test]
fn every_setting_of_a_route_can_be_read_back() {
    let policy = Policy::ledger().to_builder().with_on_expired(OnExpired::Refuse(Retention::Forever));
    let policy = policy.with_late_effect_max(Duration::from_secs(7)).build().unwrap();
    let route = Route::builder()
        .with_key(KeyRule::Optional)
        .with_key_form(KeyForm::Strict)
        .with_key_length_min(16)
        .with_key_pattern("[0-9a-f-]+")
        .with_methods([Method::PUT])
        .with_policy(policy.clone())
        .with_scope(ScopeFrom::Header(HeaderName::from_static("x-tenant")))
        .with_request_bytes_max(10)
        .with_response_bytes_max(20)
        .with_write_timeout(Duration::from_secs(9))
        .with_omitted_field(HeaderName::from_static("x-trace"))
        .with_cookies_replayed()
        .with_on_status(StatusCode::IM_A_TEAPOT, Action::Unknown)
        .with_on_store_failure(OnStoreFailure::PassUnguarded)
        .build()
        .unwrap();
    assert_eq!((route.key(), route.key_shape().form()), (KeyRule::Optional, KeyForm::Strict));
    assert_eq!((route.key_shape().length_min(), route.key_shape().pattern()), (16, Some("[0-9a-f-]+")));
    assert_eq!((route.methods(), &**route.policy()), (&[Method::PUT][..], &policy));
    assert_eq!(route.scope(), [ScopeFrom::Header(HeaderName::from_static("x-tenant"))]);
    assert_eq!(route.on_anonymous(), OnAnonymous::Refuse, "only auto shares by itself");
    assert_eq!((route.request_bytes_max(), route.response_bytes_max()), (10, 20));
    assert_eq!(route.write_timeout(), Duration::from_secs(9));
    assert!(Route::builder().with_write_timeout(Duration::ZERO).build().is_err());
    let omitted: Vec<_> = route.omitted_fields().map(HeaderName::as_str).collect();
    assert!(omitted.contains(&"x-trace") && omitted.contains(&"date") && !omitted.contains(&"set-cookie"));
    let teapot = (StatusCode::IM_A_TEAPOT, Action::Unknown);
    assert!(route.status_actions().any(|listed| listed == teapot));
    assert_eq!(route.action(StatusCode::IM_A_TEAPOT), Action::Unknown);
    assert_eq!(route.on_store_failure(), OnStoreFailure::PassUnguarded);
    assert_eq!(*route.operation(), Operation::Path);
}
