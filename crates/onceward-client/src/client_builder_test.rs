//! Tests of the checks in `build`: every setting that cannot work is refused, and the message names it.

use std::time::Duration;

use onceward::Retention;

use super::super::{BreakerConfig, Client, ErrorKind, JitteredBackoff, RetryConfig};
use super::*;

#[track_caller]
fn refused(builder: ClientBuilder, says: &str) {
    let error = builder.build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn the_defaults_are_valid() {
    Client::builder().build().unwrap();
}

#[test]
fn limits_that_cannot_work_are_refused() {
    let limits = RetryConfig::default;
    for (config, says) in [
        (limits().with_tries_max(0), "no try"),
        (limits().with_try_at_most(Duration::ZERO), "one try"),
        (limits().with_call_at_most(Duration::ZERO), "call_at_most"),
        (
            limits().with_backoff(JitteredBackoff::new(Duration::from_secs(2), Duration::from_secs(1))),
            "backoff",
        ),
        (limits().with_honoured_for(Duration::ZERO), "honoured"),
        (limits().with_breaker(BreakerConfig::default().with_failures_percent(0)), "breaker"),
        (limits().with_breaker(BreakerConfig::default().with_probes(0)), "breaker"),
        (limits().with_breaker(BreakerConfig::default().with_open_for(Duration::from_secs(61))), "breaker"),
    ] {
        refused(Client::builder().with_retry_config(config), says);
    }
}

#[test]
fn names_fields_and_retentions_that_cannot_be_used_are_refused() {
    let key = HeaderValue::from_static("k");
    refused(Client::builder().with_header(HeaderName::from_static("idempotency-key"), key), "Request::key");
    refused(Client::builder().with_journal_name(""), "name");
    refused(Client::builder().with_retention(Retention::For(Duration::ZERO)), "kept");
}
