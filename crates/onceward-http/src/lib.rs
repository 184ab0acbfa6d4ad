#![doc = include_str!("../README.md")]

mod action;
#[cfg(feature = "admin")]
pub mod admin;
mod admission;
mod answer;
mod body;
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

/// The example of the user's page, which must compile.
#[cfg(all(doctest, feature = "admin"))]
#[doc = include_str!("../../../docs/receipts-api.md")]
mod receipts_page {}
