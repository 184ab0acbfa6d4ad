//! The limits of a gateway from its settings, with their defaults.

use std::time::Duration;

use onceward_http::Admission;

use super::path_rules::PathRules;
use super::serve::ConnectionLimits;
use crate::config::{Period, Settings};
use crate::listener::{ConnectionTimeouts, SlotLimits};

const IN_FLIGHT_MAX: usize = 10_000;
const CONNECTIONS_MAX: usize = 10_000;
const BODY_BYTES_MAX: usize = 256 << 20;
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than the 60 seconds after which common load balancers give up an idle connection: the side that sends
/// requests should be the one that closes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
const BODY_GRACE: Duration = Duration::from_secs(10);
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

pub fn admission(settings: &Settings) -> Admission {
    let body_bytes_max = settings.body_bytes_max.map_or(BODY_BYTES_MAX, |size| size.0);
    let per_address_max = settings.body_bytes_per_address_max.map_or(body_bytes_max / 2, |size| size.0);
    let admission = Admission::new()
        .with_running_max(settings.in_flight_max.unwrap_or(IN_FLIGHT_MAX))
        .with_body_bytes_max(body_bytes_max)
        .with_body_bytes_per_address_max(per_address_max);
    match settings.in_flight_per_scope_max {
        Some(intents) => admission.with_running_per_scope_max(intents),
        None => admission,
    }
}

pub fn path_rules(settings: &Settings) -> PathRules {
    PathRules {
        normalise: settings.normalise.unwrap_or(true),
        case: settings.path_case.unwrap_or_default(),
        trailing_slash: settings.trailing_slash.unwrap_or_default(),
    }
}

pub fn connection_limits(settings: &Settings) -> ConnectionLimits {
    ConnectionLimits {
        timeouts: ConnectionTimeouts {
            head: period(settings.head_timeout, HEAD_TIMEOUT),
            idle: period(settings.idle_timeout, IDLE_TIMEOUT),
            write: period(settings.write_timeout, WRITE_TIMEOUT),
        },
        body_grace: period(settings.body_grace, BODY_GRACE),
        drain_timeout: period(settings.drain_timeout, DRAIN_TIMEOUT),
    }
}

pub fn slot_limits(settings: &Settings, timeouts: ConnectionTimeouts) -> SlotLimits {
    let connections_max = settings.connections_max.unwrap_or(CONNECTIONS_MAX);
    SlotLimits {
        connections_max,
        // Half, because several clients may share an address.
        per_address_max: settings.connections_per_address_max.unwrap_or(connections_max.div_ceil(2)),
        exempt: settings.trusted_proxies.clone().unwrap_or_default(),
        timeouts,
    }
}

/// The time that was set, or the default.
pub fn period(given: Option<Period>, default: Duration) -> Duration {
    given.map_or(default, |period| period.0)
}
