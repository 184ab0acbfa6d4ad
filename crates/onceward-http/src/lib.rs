//! The wire: what a client sees of Onceward over HTTP.
//!
//! [`OncewardLayer`] goes around any tower service that speaks HTTP, axum's included, and makes its
//! mutating requests safe to retry. A refusal is a response; the inner service's error type is left
//! alone. It names no store: it is given an engine.

mod action;
#[cfg(feature = "admin")]
pub mod admin;
mod admission;
mod answer;
mod body;
#[cfg(feature = "client")]
pub mod client;
mod collect;
pub mod fingerprint;
mod future;
mod guard;
pub mod headers;
pub mod key;
mod layer;
mod meters;
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
pub use fingerprint::Secrets;
pub use future::ResponseFuture;
pub use layer::{OncewardLayer, OncewardService};
pub use meters::Meters;
pub use operation::{Name, Operation};
pub use problem::Problem;
pub use reconcile::{Doubtful, Reconcile, Reconciled};
pub use route::{KeyRule, OnStoreFailure, Route};
pub use scope::{CallerScope, OnAnonymous, ScopeFrom};
pub use transact::ResponseLease;
