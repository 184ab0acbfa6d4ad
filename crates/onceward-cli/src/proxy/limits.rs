//! The limits of a gateway from its settings, with their defaults.

use std::num::NonZeroUsize;
use std::time::Duration;

use onceward_http::Admission;

use super::file_descriptors;
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

/// Fails if no body could ever be read.
pub fn admission(settings: &Settings) -> Result<Admission, String> {
    let body_bytes_max = settings.body_bytes_max.map_or(BODY_BYTES_MAX, |size| size.0);
    let sizes = [settings.body_bytes_max, settings.body_bytes_per_address_max];
    if sizes.into_iter().flatten().any(|size| size.0 == 0) {
        return Err(
            "body_bytes_max: a limit of zero would refuse every request; leave it out for the default".into(),
        );
    }
    let running_max = settings.in_flight_max.map_or(IN_FLIGHT_MAX, NonZeroUsize::get);
    // Half, because several clients may share an address.
    let running_per_address_max =
        settings.in_flight_per_address_max.map_or(running_max.div_ceil(2), NonZeroUsize::get);
    let per_address_max = settings.body_bytes_per_address_max.map_or(body_bytes_max / 2, |size| size.0);
    let mut admission = Admission::builder()
        .with_running_max(running_max)
        .with_running_per_address_max(running_per_address_max)
        .with_body_bytes_max(body_bytes_max)
        .with_body_bytes_per_address_max(per_address_max);
    if let Some(intents) = settings.in_flight_per_scope_max {
        admission = admission.with_running_per_scope_max(intents.get());
    }
    if let Some(rate) = settings.new_keys_per_address_max {
        admission = admission.with_new_keys_per_address_max(rate.count, rate.within);
    }
    if let Some(rate) = settings.new_keys_per_scope_max {
        admission = admission.with_new_keys_per_scope_max(rate.count, rate.within);
    }
    if let Some(requests) = settings.answering_max {
        admission = admission.with_answering_max(requests.get());
    }
    admission.build().map_err(|error| error.to_string())
}

pub fn path_rules(settings: &Settings) -> PathRules {
    PathRules {
        normalise: settings.normalise.unwrap_or(true),
        case: settings.path_case.unwrap_or_default(),
        trailing_slash: settings.trailing_slash.unwrap_or_default(),
        parameters: settings.path_parameters.unwrap_or_default(),
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

/// Raises the limit on file descriptors of the process, and lowers that on connections to what it is enough for.
pub fn slot_limits(settings: &Settings, timeouts: ConnectionTimeouts) -> SlotLimits {
    let asked = settings.connections_max.map_or(CONNECTIONS_MAX, NonZeroUsize::get);
    let descriptors = file_descriptors::raise();
    let connections_max = file_descriptors::connections(asked, descriptors);
    if connections_max < asked {
        tracing::warn!(
            asked,
            connections_max,
            descriptors,
            "connections_max is lowered to what the limit on file descriptors is enough for; raise that limit \
             (`LimitNOFILE` in systemd, `ulimit -n`) to more than twice connections_max"
        );
    }
    SlotLimits {
        connections_max,
        // Half, because several clients may share an address.
        per_address_max: settings
            .connections_per_address_max
            .map_or(connections_max.div_ceil(2), NonZeroUsize::get),
        exempt: settings.trusted_proxies.clone().unwrap_or_default(),
        timeouts,
    }
}

/// The time that was set, or the default.
pub fn period(given: Option<Period>, default: Duration) -> Duration {
    given.map_or(default, |period| period.0)
}
