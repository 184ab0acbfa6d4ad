//! The admin listener: health, metrics and the receipts API. Everything an operator, a monitor or a
//! service in another language asks of a running process; nothing of the traffic passes here.
//!
//! ```text
//! /healthz  /readyz  /metrics        for machines that watch
//! /v1/…     /openapi.json            for those who claim, look and settle
//! ```

mod api;
mod door;
mod health;
mod json;
mod listen;
mod metrics;
mod problem;

use std::sync::Arc;
use std::time::SystemTime;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use onceward::Onceward;
use tracing::Instrument;

pub use api::shape;
pub use door::Door;
pub use health::Readiness;
pub use listen::serve;

use crate::measured::Measures;
use crate::telemetry;
use problem::Problem;

/// What the admin listener knows of the process it speaks for.
pub struct AdminState {
    onceward: Onceward,
    measures: Arc<Measures>,
    readiness: Arc<Readiness>,
    door: Door,
    extra_metrics: ExtraMetrics,
    settlements: metrics::Settlements,
    started: SystemTime,
}

/// Adds metrics of the rest of the process, as Prometheus text.
pub type ExtraMetrics = Box<dyn Fn(&mut String) + Send + Sync>;

impl AdminState {
    /// Speaks for an engine. `measures` watch its store; `door` says who may come in.
    pub fn new(
        onceward: Onceward,
        measures: Arc<Measures>,
        readiness: Arc<Readiness>,
        door: Door,
        extra_metrics: ExtraMetrics,
    ) -> Arc<Self> {
        let (settlements, started) = (metrics::Settlements::default(), SystemTime::now());
        Arc::new(Self { onceward, measures, readiness, door, extra_metrics, settlements, started })
    }
}

fn router(state: Arc<AdminState>) -> Router {
    let (api, document) = api::router(state.clone());
    let document = document.to_json().expect("a document made of plain values is JSON");
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(async || ([(http::header::CONTENT_TYPE, "application/json")], document)))
        .with_state(state.clone())
        .merge(api)
        .fallback(async || Problem::NoSuchPath)
        .method_not_allowed_fallback(async || Problem::NoSuchMethod)
        .layer(middleware::from_fn(move |request: Request, next: Next| admit(state.clone(), request, next)))
}

async fn admit(state: Arc<AdminState>, request: Request, next: Next) -> Response {
    match state.door.admits_page(&request) {
        Ok(()) => {
            let span = telemetry::span("admin", &request);
            next.run(request).instrument(span).await
        }
        Err(problem) => problem.into_response(),
    }
}
