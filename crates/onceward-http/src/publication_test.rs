//! Tests of the published policy.

use http::StatusCode;
use onceward::Policy;

use super::*;
use crate::route::OnStoreFailure;

fn one(route: Route) -> Value {
    let published = json(&[("/charges".to_owned(), Arc::new(route))]);
    published["routes"][0].clone()
}

#[test]
fn the_default_route_publishes_the_profile() {
    let route = one(Route::default());
    assert_eq!(route["methods"], json!(["POST", "PATCH"]));
    assert_eq!(
        route["key"],
        json!({
            "rule": "required", "from": "header:idempotency-key", "form": "lenient", "length_min": 1, "length_max": 255,
            "pattern": null
        })
    );
    assert_eq!(route["scope"], json!({ "from": ["auto"], "anonymous": "shared" }));
    assert_eq!(route["duplicates"], json!({ "rule": "wait", "seconds_max": 30 }));
    let kept = json!({ "action": "replay", "kept_seconds": 86_400 });
    let (freed, unknown) = (json!({ "action": "retry" }), json!({ "action": "unknown" }));
    let mut outcomes = json!({ "2xx": kept, "3xx": kept, "4xx": kept, "5xx": kept, "520-599": unknown });
    for name in ["401", "403", "407", "412", "421", "423", "425", "426", "428", "429", "409 with Retry-After"]
    {
        outcomes[name] = freed.clone();
    }
    for name in ["408", "502", "503", "504"] {
        outcomes[name] = unknown.clone();
    }
    assert_eq!(route["outcomes"], outcomes);
    assert_eq!((&route["unknown"], &route["expired"]["rule"]), (&json!("hold"), &json!("run")));
    let problems = route["problems"].as_array().unwrap();
    assert_eq!(problems.len(), Problem::NAMES.len());
    assert!(problems.iter().any(|p| p["type"] == "urn:onceward:problem:key-reused" && p["status"] == 422));
}

#[test]
fn settings_are_published() {
    let route = Route::preset("ledger")
        .unwrap()
        .to_builder()
        .with_problem_status("key-reused", StatusCode::CONFLICT)
        .with_key_pattern("[a-z]+")
        .with_on_class(StatusClass::ServerError, crate::Action::Unknown)
        .with_on_store_failure(OnStoreFailure::PassUnguarded)
        .build()
        .unwrap();
    let route = one(route);
    assert_eq!(route["outcomes"]["2xx"], json!({ "action": "replay", "kept_seconds": null }));
    assert_eq!(route["outcomes"]["5xx"], json!({ "action": "unknown" }));
    assert_eq!(route["key"]["pattern"], "[a-z]+");
    assert_eq!(route["store_failure"], "pass-unguarded");
    let problems = route["problems"].as_array().unwrap();
    assert!(problems.iter().any(|p| p["type"] == "urn:onceward:problem:key-reused" && p["status"] == 409));
    // A policy that keeps no failures does not say that it does.
    assert_eq!(
        one(Route::builder().with_policy(Policy::queue()).build().unwrap())["outcomes"]["4xx"],
        json!({ "action": "retry" })
    );
    assert_eq!(
        one(Route::builder().with_key(KeyRule::Ignored).build().unwrap())["key"],
        json!({ "rule": "ignored" })
    );
}

#[test]
fn the_openapi_fragment_has_each_guarded_operation_once() {
    let ignored = Route::builder().with_key(KeyRule::Ignored).build().unwrap();
    let routes: Vec<_> = [
        ("/charges", Route::default()),
        ("/charges", Route::preset("stripe").unwrap()),
        ("/health", ignored),
    ]
    .into_iter()
    .map(|(path, route)| (path.to_owned(), Arc::new(route)))
    .collect();
    let fragment = openapi(&routes);
    let charges = &fragment["paths"]["/charges"];
    assert_eq!(charges["post"]["parameters"][0]["required"], true, "the first route counts");
    assert_eq!(charges["patch"]["x-idempotency"]["key"]["rule"], "required");
    assert_eq!(fragment["paths"].as_object().unwrap().len(), 1);
    assert_eq!(charges["post"]["responses"]["422"]["description"], "key-reused");
    assert_eq!(
        charges["post"]["responses"]["400"]["description"],
        "key-missing, key-malformed, scope-missing, precondition-malformed"
    );
}

#[test]
fn a_required_precondition_is_published_also_where_keys_are_ignored() {
    let required = json!({ "rule": "required", "methods": ["PUT", "PATCH", "DELETE"] });
    for key in [KeyRule::Optional, KeyRule::Ignored] {
        let route = Route::builder().with_key(key).with_precondition(PreconditionRule::Required);
        assert_eq!(one(route.build().unwrap())["precondition"], required, "{key:?}");
    }
    assert_eq!(one(Route::default())["precondition"], json!({ "rule": "optional" }));
}
