//! The presets: routes by name, for configuration files.

use std::time::Duration;

use http::Method;
use onceward::{Backoff, Error, ErrorKind, Policy, Result};

use crate::action::{Action, StatusClass};
use crate::key::KeyForm;
use crate::route::{KeyRule, Route};
use crate::scope::ScopeFrom;

/// The largest event: with its head it fits into the input of a receipt.
const EVENT_BYTES_MAX: usize = 768 << 10;

impl Route {
    /// The names of the presets.
    pub const PRESETS: [&'static str; 6] = ["ietf", "stripe", "ledger", "transactional", "queue", "webhook"];

    /// A route by the name of its preset:
    ///
    /// | name | promise |
    /// |---|---|
    /// | `ietf` | the default: POST and PATCH need a key, answers are kept for 24 hours, an unknown outcome is held |
    /// | `stripe` | POST may have a key, taken as it is; every response after execution began is replayed for 24 hours, 408 and 502 to 504 included |
    /// | `ledger` | like `ietf`, kept forever |
    /// | `transactional` | like `ietf`, for services that roll back: 500 and other 5xx free the key, except 502, 503, 504 and 520 to 599 |
    /// | `queue` | for deliveries: 2xx is kept for 7 days, all else frees the key for the next delivery, a duplicate is refused |
    /// | `webhook` | for events: like `queue`, on all methods that write; callers share one scope, because [signatures](crate::webhook) say who sends |
    pub fn preset(name: &str) -> Result<Self> {
        Ok(match name {
            "ietf" => Self::default(),
            "stripe" => Self::builder()
                .with_key(KeyRule::Optional)
                .with_key_form(KeyForm::Raw)
                .with_methods([Method::POST])
                .with_on_answer_lost(Action::Replay)
                .build()?,
            "ledger" => Self::builder().with_policy(Policy::ledger()).build()?,
            "transactional" => Self::builder().with_on_server_error(Action::Retry).build()?,
            "queue" => Self::builder()
                .with_policy(Policy::queue())
                .with_on_class(StatusClass::Redirection, Action::Retry)
                .with_on_class(StatusClass::ClientError, Action::Retry)
                .with_on_class(StatusClass::ServerError, Action::Retry)
                .with_on_answer_lost(Action::Retry)
                .build()?,
            "webhook" => {
                let backoff = Backoff::new(Duration::from_secs(1), Duration::from_hours(1));
                let policy = Policy::queue().to_builder().with_tries_max(25).with_backoff(backoff).build()?;
                Self::preset("queue")?
                    .to_builder()
                    .with_policy(policy)
                    // A request that the layer does not look at is not verified.
                    .with_methods([Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
                    .with_scope(ScopeFrom::Shared)
                    .with_request_bytes_max(EVENT_BYTES_MAX)
                    .build()?
            }
            _ => {
                let known = Self::PRESETS.join(", ");
                let detail = format!("there is no preset {name:?}; there are {known}");
                return Err(Error::new(ErrorKind::Invalid, detail));
            }
        })
    }
}
