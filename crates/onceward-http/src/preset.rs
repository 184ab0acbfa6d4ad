//! The presets: routes by name, for configuration files.

use http::Method;
use onceward::{Error, ErrorKind, Policy, Result};

use crate::action::{Action, StatusClass};
use crate::key::KeyForm;
use crate::route::{KeyRule, Route};

impl Route {
    /// The names of the presets.
    pub const PRESETS: [&'static str; 4] = ["ietf", "stripe", "queue", "ledger"];

    /// A route by the name of its preset:
    ///
    /// | name | promise |
    /// |---|---|
    /// | `ietf` | the default: POST and PATCH need a key, final answers are kept for 24 hours, server errors free it, an unknown outcome is held |
    /// | `stripe` | POST may have a key, taken as it is; every response of a run is replayed for 24 hours, server errors included |
    /// | `queue` | for deliveries: successes are kept for 7 days, any failure or unknown outcome frees the key for the next delivery, a duplicate is refused |
    /// | `ledger` | like `ietf`, kept forever |
    pub fn preset(name: &str) -> Result<Self> {
        Ok(match name {
            "ietf" => Self::default(),
            "stripe" => Self::builder()
                .with_key(KeyRule::Optional)
                .with_key_form(KeyForm::Raw)
                .with_methods([Method::POST])
                .with_on_class(StatusClass::ServerError, Action::Replay)
                .build()?,
            "queue" => Self::builder().with_policy(Policy::queue()).build()?,
            "ledger" => Self::builder().with_policy(Policy::ledger()).build()?,
            _ => {
                let known = Self::PRESETS.join(", ");
                let detail = format!("there is no preset {name:?}; there are {known}");
                return Err(Error::new(ErrorKind::Invalid, detail));
            }
        })
    }
}
