//! Tests of the fields that name nobody.

use super::*;

fn nobody(name: &str) -> bool {
    names_nobody(&HeaderName::try_from(name).unwrap())
}

#[test]
fn what_every_client_and_proxy_adds_names_nobody() {
    for name in [
        "Accept",
        "Accept-Language",
        "Content-Length",
        "User-Agent",
        "Sec-CH-UA",
        "Date",
        "Via",
        "X-Forwarded-For",
        "X-Real-IP",
        "CF-Connecting-IP",
        "X-Request-Id",
        "X-Correlation-ID",
        "traceparent",
        "X-B3-SpanId",
        "baggage",
        "X-Retry-Count",
        "Onceward-Try",
        "Idempotency-Key",
        "TE",
        "Upgrade",
    ] {
        assert!(nobody(name), "{name}");
    }
}

#[test]
fn a_credential_that_is_not_known_counts() {
    for name in [
        "Authorization",
        "Cookie",
        "X-Tenant",
        "X-Access-Token",
        "Proxy-Authorization",
        "X-Signature",
        "Origin",
    ] {
        assert!(!nobody(name), "{name}");
    }
}
