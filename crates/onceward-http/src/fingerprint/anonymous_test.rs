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
        "b3",
        "X-Amzn-Trace-Id",
        "sentry-trace",
        "X-Cloud-Trace-Context",
        "Sec-Fetch-Mode",
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
        "From",
        // Parts of words, and words that stand beside others.
        "X-Web3-Token",
        "X-Zip",
        "X-Makespan-Owner",
        "X-Retryable-Account",
        "X-Trace-User",
        "X-Request-Id-Owner",
        "X-Retry-Token",
        "Accepted-By",
        "Contents-Owner",
        "Sec-Token-Binding",
        // What an authenticating proxy says of the caller.
        "X-Forwarded-User",
        "X-Forwarded-Email",
        "X-Forwarded-Groups",
        "X-Forwarded-Preferred-Username",
        "X-Forwarded-Access-Token",
        "X-Forwarded-Client-Cert",
    ] {
        assert!(!nobody(name), "{name}");
    }
}

/// The index leaves out no pattern that fits, and adds none.
#[test]
fn the_index_finds_what_the_whole_list_has() {
    let by_whole_list = |name: &str| FIELDS_THAT_NAME_NO_CALLER.iter().any(|pattern| fits(pattern, name));
    let words = FIELDS_THAT_NAME_NO_CALLER
        .iter()
        .map(|pattern| pattern.trim_start_matches("*-").trim_end_matches("-*"));
    for word in words {
        for name in [
            word.to_owned(),
            format!("x-{word}"),
            format!("{word}-x"),
            format!("x{word}"),
            format!("{word}x"),
        ] {
            assert_eq!(nobody(&name), by_whole_list(&name), "{name}");
        }
    }
}
