#![doc = include_str!("../README.md")]

mod action;
#[cfg(feature = "admin")]
pub mod admin;
mod admission;
mod answer;
mod body;
mod body_buffer;
mod closes;
mod cors;
mod drain_rate;
#[cfg(feature = "axum")]
mod extract;
pub mod fingerprint;
#[cfg(test)]
mod fuzz_test;
mod guard;
pub mod headers;
mod host;
mod identity;
mod intent_future;
pub mod key;
mod key_source;
mod late_record;
mod layer;
mod live_end;
mod metrics;
mod new_keys;
mod oldest_receipt;
mod operation;
mod permits;
pub mod precondition;
mod preset;
pub mod problem;
pub mod publication;
mod reconcile;
mod request_body;
mod request_fields;
mod request_id;
mod response_action;
mod response_future;
mod response_outcome;
mod route;
mod run;
mod same_request;
mod scope;
mod secret_rotation;
mod shedding;
pub mod snapshot;
mod transact;
pub mod webhook;

pub use action::{Action, ReportedEffect, StatusClass};
pub use admission::{Admission, AdmissionBuilder, ClientAddress};
pub use body::{BoxError, ResponseBody};
pub use closes::ClosesField;
pub use cors::{AllowedOrigins, FromBrowser};
#[cfg(feature = "axum")]
pub use extract::{LeaseMissing, RequestLease};
pub use fingerprint::Secrets;
pub use host::ForwardedHost;
pub use identity::Identity;
pub use key_source::KeyFrom;
pub use layer::{OncewardLayer, OncewardService};
pub use metrics::Metrics;
pub use operation::{Name, Operation};
pub use precondition::{
    EntityTag, Evaluation, PreconditionRule, Preconditions, RowCondition, TagCondition, Validators,
};
pub use problem::Problem;
pub use reconcile::{Reconcile, Reconciled, UnknownRequest};
pub use response_action::UndelimitedBody;
pub use response_future::ResponseFuture;
pub use route::{KeyRule, OnStoreFailure, Route, RouteBuilder};
pub use same_request::{OnSameRequest, SameRequest};
pub use scope::{CallerScope, FormerCallers, OnAnonymous, ScopeFrom};
pub use shedding::Shedding;
pub use transact::ResponseLease;

/// The crates whose types are in signatures here, in the versions that fit.
pub use {bytes, http};

/// The example of the page about webhooks, which must compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/webhooks.md")]
mod webhooks_page {}

/// The example of the user's page, which must compile.
#[cfg(all(doctest, feature = "admin"))]
#[doc = include_str!("../../../docs/receipts-api.md")]
mod receipts_page {}
