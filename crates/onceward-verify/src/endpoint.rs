//! The black-box verifier: proves, from outside, that an HTTP endpoint is safe to retry, or shows how it is
//! not. It checks any service in any language by what it answers and by how many effects there were.
//!
//! ```text
//!  Check ──▶ Setup ──▶ baseline ──▶ scenario ─┐ one after the other
//!  (asked)   (parsed)               │  ▲      └─▶ Finding ──▶ Report ──▶ text │ JSON │ JUnit │ HTML
//!                                   ▼  │
//!                                  ScenarioContext: keys, requests, chance, trace
//!                                   │  ▲
//!                             volley│  │oracle
//!                                   ▼  │
//!                               the endpoint
//! ```
//!
//! A scenario is one file in `scenario/`: its promise, what it needs, its plan, and how it comes to its
//! verdict. It knows nothing of sockets; `volley` knows nothing of verdicts. Nothing here knows Onceward's
//! own server code.

mod baseline;
mod check;
mod command_line;
mod compare;
mod error;
mod fault;
mod fresh;
mod http1;
mod http2;
mod http_date;
mod message;
mod oracle;
mod pattern;
mod place;
pub mod report;
mod run;
mod said;
mod scenario;
mod scenario_context;
mod secrets;
mod server;
mod setup;
mod single_effect;
mod sql_client;
#[cfg_attr(not(feature = "tls"), path = "endpoint/no_tls.rs")]
mod tls;
mod trace;
mod volley;
mod webhook;
mod wire;

pub(crate) use command_line::quote;
pub(crate) use fault::{Cause, attribute};
#[cfg(feature = "zoo")]
pub(crate) use http_date::unix_s as http_date_unix_s;
pub(crate) use http_date::written as http_date_written;
pub(crate) use said::Said;
pub(crate) use scenario::Stop;
pub(crate) use secrets::{conceal_command, conceal_command_in};

pub use check::{Check, Effects, KeyNotation};
pub use error::{Error, ErrorKind, Result};
pub use fault::FaultKind;
pub use pattern::Pattern;
pub use run::{Planned, Progress};
pub use scenario::{Scenario, all as scenarios};
pub use volley::HttpVersion;
pub use webhook::{Scheme, Webhook};
