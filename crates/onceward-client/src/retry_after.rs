//! Parses `Retry-After` and `Idempotency-Expires` into durations.
//!
//! A date is compared with the `Date` of the same answer where there is one, so that the clocks of
//! client and server need not agree.

use std::time::{Duration, SystemTime};

use http::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};

use onceward_http::headers::IDEMPOTENCY_EXPIRES;

/// The duration of `Retry-After`, in both forms: seconds and date. `None` if it cannot be parsed; zero if the date
/// has passed.
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit is taken as the largest one; the caller clamps it.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    until(headers, RETRY_AFTER, now)
}

/// How long the server will still honour the key, counted from its answer.
pub fn expires_in(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    until(headers, IDEMPOTENCY_EXPIRES, now)
}

fn until(headers: &HeaderMap, name: HeaderName, now: SystemTime) -> Option<Duration> {
    let moment = date(headers, name)?;
    let said_at = date(headers, DATE).unwrap_or(now);
    Some(moment.duration_since(said_at).unwrap_or_default())
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?.trim()).ok()
}

#[cfg(test)]
#[path = "retry_after_test.rs"]
mod tests;
