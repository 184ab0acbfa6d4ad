#![doc = include_str!("../README.md")]

// The decisions are pure functions that take the time and a random number as arguments. Only `retry_loop.rs` waits
// and sends.
//
// | file | purpose |
// |---|---|
// | `key_status.rs` | what an answer says about the key: recorded, in progress, unknown |
// | `retry_decision.rs` | what the result of one try means: final, again, wait, unknown |
// | `retry_state.rs` | the state of one call between tries: tries used, deadline, expiry of the key |
// | `retry_config.rs` | the limits of a call |
// | `backoff.rs`, `retry_after.rs`, `random.rs` | how long to pause, with jitter |
// | `budget.rs`, `breaker.rs`, `hosts.rs` | how many retries and tries a host is sent |
// | `retry_loop.rs` | sends, waits and retries until a call ends |
// | `client.rs`, `client_builder.rs`, `request.rs`, `prepared_request.rs`, `exchange.rs`, `url_cache.rs` | the client over reqwest |
// | `edit.rs` | edits with `If-Match`, and a merge hook for conflicts |
// | `layer.rs`, `reply_body.rs` | the same for any tower service |
// | `journal.rs`, `stored_request.rs` | one receipt per intent, and the encoding of the request in it |
// | `journaled.rs`, `resume.rs` | sends one intent of the journal; resumes all open intents |
// | `credentials.rs` | the header fields that never enter a journal |
// | `list.rs` | lists the intents of a journal |
// | `settle.rs` | records what became of an intent whose outcome is unknown |
// | `journal_address.rs` | a journal by address, behind the feature `journal` |
// | `tls.rs` | `https`, behind the feature `rustls` |
// | `report.rs`, `counts.rs` | the report of one call, and counters |

mod backoff;
mod breaker;
mod budget;
mod client;
mod client_builder;
mod counts;
mod credentials;
mod edit;
mod error;
mod exchange;
#[cfg(test)]
mod fuzz_test;
mod hosts;
mod journal;
#[cfg(feature = "journal")]
mod journal_address;
mod journaled;
mod key_status;
mod layer;
mod list;
mod prepared_request;
mod random;
mod reply_body;
mod report;
mod request;
mod resume;
mod retry_after;
mod retry_config;
mod retry_decision;
mod retry_loop;
mod retry_state;
mod server_reply;
mod settle;
mod stored_request;
#[cfg(feature = "rustls")]
mod tls;
mod url_cache;

pub use backoff::JitteredBackoff;
pub use breaker::{BreakerConfig, WhenOpen};
pub use budget::BudgetConfig;
pub use client::Client;
pub use client_builder::ClientBuilder;
pub use counts::Counts;
pub use credentials::is_credential;
pub use edit::{Edit, EditConflict, Edited};
pub use error::{Error, ErrorKind, Result};
pub use layer::{RetryLayer, RetryLayerBuilder, RetryService};
pub use list::{Intent, IntentRequest, IntentState, ListWhich};
pub use reply_body::ReplyBody;
pub use report::{CallReport, FAILURES_MAX, FailedTry, FailureCause, ReplySource, ServerRecord};
pub use request::Request;
pub use resume::Resumed;
pub use retry_config::RetryConfig;
pub use server_reply::Reply;
pub use settle::SettleIntent;

/// The types in this crate's signatures that come from other crates.
pub use onceward_http::EntityTag;
pub use {bytes, http, reqwest};

use retry_decision::Guard;

/// The pure decisions, for simulations of many clients. Not part of the stable API.
#[doc(hidden)]
pub mod decisions {
    pub use super::breaker::{Breaker, BreakerDecision};
    pub use super::budget::Budget;
    pub use super::key_status::KeyStatus;
    pub use super::random::Chance;
    pub use super::retry_decision::{Decision, Guard, Sent, TryResult, decide};
    pub use super::retry_state::{Next, RetryState, StopReason};
}

use onceward_http::headers::ONCEWARD_TRY as TRY_NUMBER;

/// The examples of the user's page, which must compile.
#[cfg(all(doctest, feature = "journal"))]
#[doc = include_str!("../../../docs/client.md")]
mod client_page {}
