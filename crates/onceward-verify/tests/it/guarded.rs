//! Checks Onceward's own layer with the endpoint verifier: in memory with every scenario, and on disk with kills.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use onceward::Onceward;
use onceward_http::fingerprint::Rules;
use onceward_http::{Action, OncewardLayer, Route, StatusClass};
use onceward_stores::MemoryStore;
use onceward_verify::endpoint::{Check, Effects};
use onceward_verify::zoo::start::free_port;
use tokio::net::TcpListener;

type Books = Arc<AtomicUsize>;

async fn charge(request: Request, books: Books) -> Response {
    let head = request.into_parts().0;
    let field = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let work_ms = field("x-work-ms").and_then(|ms| ms.parse().ok()).unwrap_or(20);
    tokio::time::sleep(Duration::from_millis(work_ms)).await;
    if field("x-fail").is_some() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let number = books.fetch_add(1, Ordering::SeqCst);
    if let Some(status) = field("x-fail-after").and_then(|status| status.parse().ok()) {
        return StatusCode::from_u16(status).unwrap().into_response();
    }
    let location = [("location", format!("{}/{number}", head.uri.path()))];
    (StatusCode::CREATED, location, format!("charge {number}")).into_response()
}

/// The two instances are reached by different addresses, and a failure here means that nothing was charged.
fn route() -> Route {
    Route::builder()
        .with_fingerprint(Rules::default().with_host(false))
        .with_on_class(StatusClass::ServerError, Action::Retry)
        .build()
        .unwrap()
}

/// Two instances over one store.
async fn serve(route: Route) -> Check {
    let store = Arc::new(MemoryStore::new());
    let books = Books::default();
    let mut addresses = Vec::new();
    for _ in 0..2 {
        let onceward = Onceward::builder(store.clone()).accept_volatile().build().unwrap();
        let handler = {
            let books = books.clone();
            post(move |request| charge(request, books.clone()))
        };
        let app = Router::new()
            .route("/charges", handler.clone())
            .route("/refunds", handler)
            .layer(OncewardLayer::new(onceward, [7; 32], route.clone()));
        let count = books.clone();
        let app = app.route("/count", get(async move || count.load(Ordering::SeqCst).to_string()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        addresses.push(listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
    }
    let [one, other] = addresses[..] else { unreachable!("two listen") };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Check::new(format!("http://{one}/charges"))
        .with_body(r#"{"amount":12,"to":"anna"}"#)
        .with_clients(20)
        .with_rounds(6)
        .with_effects(Effects::url(format!("http://{one}/count")))
        .with_tenants([[pair("Authorization", "Bearer anna"), pair("Authorization", "Bearer bert")]])
        .with_other_url(format!("http://{one}/refunds"))
        .with_also_urls([format!("http://{other}/charges")])
        .with_fail_headers([pair("X-Fail", "yes")])
        .with_slow_header(pair("X-Work-Ms", "800"))
        .with_lease(Duration::from_millis(300))
        .with_retention(Duration::from_secs(2))
}

fn seeds() -> u64 {
    if std::env::var_os("ONCEWARD_LONG").is_some() { 50 } else { 1 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_layer_over_memory_holds() {
    let check = serve(route()).await;
    for seed in 0..seeds() {
        check.clone().with_seed(seed).run().await.unwrap().assert_holds();
    }
}

/// With the defaults a failure may have come after the effect: nothing runs again, whatever the status says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_layer_runs_nothing_again_after_a_failure_that_came_after_the_effect() {
    let by_default = Route::builder().with_fingerprint(Rules::default().with_host(false)).build().unwrap();
    let check = serve(by_default)
        .await
        .with_fail_after_effect_headers([("X-Fail-After".to_owned(), "{status}".to_owned())])
        .with_scenarios(["failed-after-effect"]);
    let report = check.run().await.unwrap();
    report.assert_holds();
    assert!(report.findings[0].why.contains("one effect each"), "{}", report.text());
}

/// The example, next to which the tests are built.
fn payments() -> PathBuf {
    let tests = std::env::current_exe().expect("a test is a file");
    let program =
        tests.parent().and_then(|folder| folder.parent()).expect("in a folder").join("examples/payments");
    assert!(program.exists(), "build it first: cargo build -p onceward-verify --example payments");
    program
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_layer_over_the_embedded_store_survives_kills() {
    for seed in 0..seeds().min(10) {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port().unwrap();
        let base = format!("http://127.0.0.1:{port}");
        let check = Check::new(format!("{base}/charges"))
            .with_start_command(format!(
                "exec '{}' {port} '{}'",
                payments().display(),
                folder.path().display()
            ))
            .with_effects(Effects::url(format!("{base}/charges/count")))
            .with_body(r#"{"amount":12}"#)
            .with_scenarios(["crash", "simultaneous-duplicates", "late-retry"])
            .with_clients(20)
            .with_rounds(3)
            .with_seed(seed)
            .with_lease(Duration::from_secs(2));
        check.run().await.unwrap().assert_holds();
    }
}
