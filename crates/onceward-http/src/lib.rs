//! Idempotency for HTTP services: a tower layer that makes requests with an `Idempotency-Key` safe to retry.
//!
//! [`OncewardLayer`] goes around any tower service that speaks HTTP, axum's included. It replays recorded responses,
//! and answers a refusal as a response; the inner service's error type is left alone. It names no store: it is given
//! an engine.
//!
//! ```
//! use axum::{Router, routing::post};
//! use onceward_http::{OncewardLayer, Route};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let onceward = onceward_stores::in_memory();
//! let secret = [7; 32]; // of your own: it keys the hashes of bodies and credentials
//! let app: Router = Router::new()
//!     .route("/charges", post(async || "charged"))
//!     .layer(OncewardLayer::new(onceward, secret, Route::default()));
//! # let _ = app; }
//! ```

mod action;
mod admission;
mod answer;
mod body;
#[cfg(feature = "client")]
pub mod client;
mod collect;
#[cfg(feature = "axum")]
mod extract;
pub mod fingerprint;
mod future;
mod guard;
pub mod headers;
pub mod key;
mod layer;
mod metrics;
mod operation;
mod preset;
pub mod problem;
pub mod publication;
mod reading;
mod reconcile;
mod recorded;
mod rotation;
mod route;
mod run;
mod running;
mod scope;
pub mod snapshot;
mod transact;

pub use action::{Action, StatusClass};
pub use admission::Admission;
pub use body::{BoxError, ResponseBody};
#[cfg(feature = "axum")]
pub use extract::{LeaseMissing, RequestLease};
pub use fingerprint::Secrets;
pub use future::ResponseFuture;
pub use layer::{OncewardLayer, OncewardService};
pub use metrics::Metrics;
pub use operation::{Name, Operation};
pub use problem::Problem;
pub use reconcile::{Reconcile, Reconciled, UnknownRequest};
pub use route::{KeyRule, OnStoreFailure, Route, RouteBuilder};
pub use scope::{CallerScope, OnAnonymous, ScopeFrom};
pub use transact::ResponseLease;
