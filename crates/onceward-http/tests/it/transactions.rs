//! Routes whose handlers commit their response with their own writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Extension, Router};
use onceward::receipt::Status;
use onceward::{Id, OnUnknown, Onceward, Policy, Stopped};
use onceward_http::{Admission, Metrics, OncewardLayer, ResponseLease, Route, Secrets};
use onceward_stores::MemoryStore;
use onceward_stores::memory::{MemoryTransactions, MemoryTx};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::stage::Stage;

/// A stage whose charges are committed with their responses.
struct Scene {
    stage: Stage,
    onceward: Onceward,
}

#[derive(Clone)]
struct Service {
    transactions: MemoryTransactions,
    /// Committed charges.
    charges: Arc<AtomicUsize>,
}

impl Scene {
    async fn start(route: Route) -> Self {
        Self::over(&MemoryStore::new(), Secrets::new([7; 32]), route).await
    }

    async fn over(store: &MemoryStore, secrets: Secrets, route: Route) -> Self {
        let charges = Arc::new(AtomicUsize::new(0));
        let service = Service { transactions: MemoryTransactions::new(store), charges: charges.clone() };
        let onceward = Onceward::builder(Arc::new(store.clone())).accept_volatile().build().unwrap();
        let (metrics, admission) = (Arc::new(Metrics::new()), Arc::new(Admission::new()));
        let route = route.to_builder().with_effects_in_transaction().build().unwrap();
        let layer = OncewardLayer::new(onceward.clone(), secrets, route).with_metrics(metrics.clone());
        let handler = move |Extension(lease): Extension<ResponseLease>, request: Request| {
            let service = service.clone();
            async move { service.charge(lease, request).await }
        };
        let app = Router::new().route("/charges", any(handler)).layer(layer);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        let (gate, _) = watch::channel(true);
        Self { stage: Stage { address, metrics, admission, charges, gate }, onceward }
    }

    async fn status(&self) -> Option<Status> {
        let id = Id::new("anonymous", "POST /charges", "k").unwrap();
        self.onceward.receipt(&id).await.unwrap().map(|receipt| receipt.status)
    }
}

impl Service {
    /// Charges, does what the body says, and returns the response that the layer is not to send.
    async fn charge(&self, lease: ResponseLease, request: Request) -> Response {
        let body = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
        let word = String::from_utf8(body.to_vec()).unwrap().trim_matches('"').to_owned();
        if word == "malformed" {
            return (StatusCode::BAD_REQUEST, "malformed").into_response();
        }
        let committed = lease.transact(&self.transactions, async |tx: MemoryTx| {
            let charges = self.charges.clone();
            let charge = move || {
                charges.fetch_add(1, Ordering::SeqCst);
            };
            tx.on_commit(charge)?;
            match word.as_str() {
                "busy" => Ok((StatusCode::SERVICE_UNAVAILABLE, "busy").into_response()),
                "declined" => Ok((StatusCode::PAYMENT_REQUIRED, "declined").into_response()),
                "stopped" => Err(Stopped::before_effect("no such account")),
                "large" => Ok("x".repeat(5_000).into_response()),
                _ => {
                    let fields = [("set-cookie", "session=1"), ("x-charge", "1")];
                    Ok((StatusCode::CREATED, fields, "charged").into_response())
                }
            }
        });
        match (committed.await, word.as_str()) {
            (Ok(_), "regretted") => {
                (StatusCode::INTERNAL_SERVER_ERROR, "a bug after the commit").into_response()
            }
            (Ok(_), "panicked") => panic!("a bug after the commit"),
            (Ok(response), _) => response.into_response(),
            (Err(error), _) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
        }
    }
}

#[tokio::test]
async fn the_committed_response_is_sent_and_replayed() {
    for word in ["\"plain\"", "\"regretted\""] {
        let scene = Scene::start(Route::default()).await;
        let first = scene.stage.post("k", word).await;
        assert_eq!((first.status, first.body.as_str()), (201, "charged"), "{word}");
        assert_eq!((first.field("set-cookie"), first.field("x-charge")), (Some("session=1"), Some("1")));
        assert_eq!(first.field("idempotent-replayed"), None);
        assert!(first.field("idempotency-expires").is_some());
        let again = scene.stage.post("k", word).await;
        assert_eq!((again.status, &again.body), (201, &first.body));
        assert_eq!(again.lasting_fields(), first.lasting_fields());
        assert_eq!(again.field("idempotent-replayed"), Some("true"));
        assert_eq!(scene.stage.charges(), 1);
    }
}

#[tokio::test]
async fn a_panic_after_the_commit_changes_nothing_for_retries() {
    let scene = Scene::start(Route::default()).await;
    let broken = scene.stage.post("k", "\"panicked\"").await;
    assert_eq!(broken.status, 0, "the connection breaks");
    let again = scene.stage.post("k", "\"panicked\"").await;
    assert_eq!((again.status, again.body.as_str()), (201, "charged"));
    assert_eq!(scene.stage.charges(), 1);
}

#[tokio::test]
async fn a_response_that_frees_the_key_commits_nothing() {
    let scene = Scene::start(Route::default()).await;
    for word in ["\"busy\"", "\"stopped\""] {
        let refused = scene.stage.post("k", word).await;
        assert!(matches!(refused.status, 502 | 503), "{refused:?}");
        assert!(scene.status().await.is_none(), "{word}: the key is free");
    }
    assert_eq!(scene.stage.charges(), 0);
    assert_eq!(scene.stage.post("k", "{}").await.status, 201);
}

#[tokio::test]
async fn failures_and_large_responses_are_committed_by_the_rules_of_the_route() {
    let scene = Scene::start(Route::builder().with_response_bytes_max(1_000).build().unwrap()).await;
    for _ in 0..2 {
        let declined = scene.stage.post("k", "\"declined\"").await;
        assert_eq!((declined.status, declined.body.as_str()), (402, "declined"));
    }
    assert_eq!(scene.stage.charges(), 1, "what was written with a refusal is committed with it");
    let first = scene.stage.post("large", "\"large\"").await;
    assert_eq!((first.status, first.body.len()), (200, 5_000));
    let again = scene.stage.post("large", "\"large\"").await;
    assert_eq!(again.problem(), "response-not-stored");
    assert!(again.body.contains("\"original_status\":200"), "{}", again.body);
    assert_eq!(scene.stage.charges(), 2);
}

#[tokio::test]
async fn a_handler_that_commits_nothing_is_under_the_usual_rules() {
    let scene = Scene::start(Route::default()).await;
    let refused = scene.stage.post("k", "\"malformed\"").await;
    assert_eq!((refused.status, refused.body.as_str()), (400, "malformed"));
    assert_eq!(scene.stage.post("k", "\"malformed\"").await.field("idempotent-replayed"), Some("true"));
    assert_eq!(scene.stage.charges(), 0);
}

#[test]
fn such_a_route_has_no_unknown_outcomes_under_any_policy() {
    let hold = Policy::http()
        .to_builder()
        .with_on_unknown(OnUnknown::Hold)
        .with_lease(Duration::from_secs(7))
        .build()
        .unwrap();
    for route in [
        Route::builder().with_policy(hold.clone()).with_effects_in_transaction().build().unwrap(),
        Route::builder().with_effects_in_transaction().with_policy(hold).build().unwrap(),
    ] {
        assert_eq!(route.policy().on_unknown(), OnUnknown::Retry);
        assert_eq!(route.policy().lease(), Duration::from_secs(7));
        assert!(route.has_effects_in_transaction());
    }
}

/// A process that knows only one of the secrets finds the outcome under that one, also if the process that
/// committed it did nothing more.
#[tokio::test]
async fn a_commit_counts_under_every_secret_at_once() {
    let (old, new) = ([1; 32], [2; 32]);
    for secrets in [[old, new], [new, old]] {
        let store = MemoryStore::new();
        let both = Secrets::new(secrets[0]).with_older([secrets[1]]);
        let scene = Scene::over(&store, both, Route::default()).await;
        let fields = [("Idempotency-Key", "k"), ("Authorization", "Bearer t")];
        let first = scene.stage.send("POST", "/charges", &fields, "{}").await;
        assert_eq!(first.status, 201);
        let counts = scene.onceward.counts();
        assert_eq!((counts.claims, counts.completions), (2, 2));
        for alone in [old, new] {
            let other = Scene::over(&store, Secrets::new(alone), Route::default()).await;
            let again = other.stage.send("POST", "/charges", &fields, "{}").await;
            assert_eq!((again.status, again.field("idempotent-replayed")), (201, Some("true")));
            assert_eq!(other.stage.charges(), 0);
        }
        assert_eq!(scene.stage.charges(), 1);
    }
}
