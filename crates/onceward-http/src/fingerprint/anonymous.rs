//! The request fields that name nobody. A caller without a credential that we know may have one that we do not know, so
//! in the scope `anonymous` every field counts that is not of this list: a credential that differs is refused, never
//! answered with another caller's result.

use http::HeaderName;

/// The list as it is published. A star stands for any text.
#[rustfmt::skip]
pub const FIELDS_OF_NOBODY: [&str; 34] = [
    "accept*", "content-*", "sec-*", "x-forwarded-*", "onceward-*", "*-ip", "*request-id*", "*correlation*", "*trace*",
    "*span*", "*b3*", "*baggage*", "*attempt*", "*retry*", "user-agent", "date", "expect", "priority", "cache-control",
    "pragma", "referer", "via", "forwarded", "host", "connection", "keep-alive", "proxy-connection", "te", "trailer",
    "transfer-encoding", "upgrade", "http2-settings", "idempotency-key", "x-http-method-override",
];

/// Whether a field is of the list.
pub(crate) fn names_nobody(name: &HeaderName) -> bool {
    let name = name.as_str();
    // What almost every request has, first.
    matches!(name, "host" | "user-agent" | "accept" | "content-length" | "content-type" | "idempotency-key")
        || FIELDS_OF_NOBODY.iter().any(|pattern| fits(pattern, name))
}

fn fits(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(inner), Some(_)) => name.contains(&inner[..inner.len() - 1]),
        (Some(end), None) => name.ends_with(end),
        (None, Some(begin)) => name.starts_with(begin),
        (None, None) => name == pattern,
    }
}

#[cfg(test)]
#[path = "anonymous_test.rs"]
mod test;
