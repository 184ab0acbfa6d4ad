//! The wire: what a client sees of Onceward over HTTP.
//!
//! [`OncewardLayer`] goes around any tower service that speaks HTTP, axum's included, and makes its
//! mutating requests safe to retry. A refusal is a response; the inner service's error type is left
//! alone. It names no store: it is given an engine.

mod body;
pub mod fingerprint;
mod future;
mod guard;
pub mod headers;
pub mod key;
mod layer;
pub mod problem;
mod route;
mod scope;
pub mod snapshot;

pub use body::{BoxError, ResponseBody};
pub use future::ResponseFuture;
pub use layer::{OncewardLayer, OncewardService};
pub use route::{Action, KeyRule, Route};
pub use scope::ScopeFrom;
