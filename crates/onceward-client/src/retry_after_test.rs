//! Tests of parsing `Retry-After` and `Idempotency-Expires`.

use http::HeaderValue;

use super::*;

const NOW: SystemTime = SystemTime::UNIX_EPOCH;

fn read(fields: &[(HeaderName, &str)]) -> Option<Duration> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    retry_after(&headers, NOW)
}

#[test]
fn both_forms_are_read() {
    assert_eq!(read(&[]), None);
    assert_eq!(read(&[(RETRY_AFTER, "0")]), Some(Duration::ZERO));
    assert_eq!(read(&[(RETRY_AFTER, " 120 ")]), Some(Duration::from_secs(120)));
    let date = "Thu, 01 Jan 1970 00:01:30 GMT";
    assert_eq!(read(&[(RETRY_AFTER, date)]), Some(Duration::from_secs(90)), "by our clock");
    let said = (DATE, "Thu, 01 Jan 1970 00:01:20 GMT");
    assert_eq!(read(&[(RETRY_AFTER, date), said]), Some(Duration::from_secs(10)), "by the server's clock");
}

#[test]
fn absurd_values_are_bounded_or_nothing() {
    assert_eq!(read(&[(RETRY_AFTER, "99999999999999999999999999")]), Some(Duration::from_secs(u64::MAX)));
    for nonsense in ["", "soon", "-1", "1.5", "1e9", "+5", "0x10", "Thu, 99 Foo 1970"] {
        assert_eq!(read(&[(RETRY_AFTER, nonsense)]), None, "{nonsense:?}");
    }
    let past = [(RETRY_AFTER, "Thu, 01 Jan 1970 00:00:00 GMT"), (DATE, "Thu, 01 Jan 2026 00:00:00 GMT")];
    assert_eq!(read(&past), Some(Duration::ZERO), "a moment that has passed is now");
}

#[test]
fn an_expiry_is_counted_from_the_answer() {
    let mut headers = HeaderMap::new();
    headers.insert(IDEMPOTENCY_EXPIRES, HeaderValue::from_static("Fri, 02 Jan 2026 00:00:00 GMT"));
    headers.insert(DATE, HeaderValue::from_static("Thu, 01 Jan 2026 00:00:00 GMT"));
    assert_eq!(expires_in(&headers, NOW), Some(Duration::from_hours(24)));
}
