//! The request fields that name no caller. A caller without a credential that we know may have one that we do not know,
//! so in the scope `anonymous` every field counts that is not of this list: a credential that differs is refused, never
//! answered with another caller's result.

use std::sync::LazyLock;

use http::HeaderName;

/// The list as it is published. A name is words with `-` between them. A star in front stands for any words or none, and
/// so does one at the end: `*-ip` is `X-Real-IP` and not `X-Zip`.
///
/// Every entry is as narrow as what it is meant for. A field that is not listed and differs costs a refusal that names the
/// setting; one that is listed and names a caller would cost that caller its answer.
#[rustfmt::skip]
pub const FIELDS_THAT_NAME_NO_CALLER: &[&str] = &[
    "accept-*", "content-*", "sec-fetch-*", "sec-ch-*", "sec-gpc", "sec-purpose", "onceward-*", "user-agent", "date", "expect",
    "priority", "cache-control", "pragma", "referer", "via", "forwarded", "host", "connection", "keep-alive",
    "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings", "idempotency-key",
    "x-http-method-override",
    // What proxies add. `X-Forwarded-User` and the like name a caller.
    "x-forwarded-for", "x-forwarded-by", "x-forwarded-host", "x-forwarded-port", "x-forwarded-prefix", "x-forwarded-proto",
    "x-forwarded-scheme", "x-forwarded-server", "x-forwarded-ssl", "*-ip",
    // What tells tries and traces apart.
    "*-request-id", "*-requestid", "*-correlation-id", "*-correlationid", "*-trace", "*-trace-id", "*-traceid",
    "*-trace-context", "traceparent", "tracestate", "*-span-id", "*-spanid", "b3", "x-b3-*", "baggage", "*-attempt",
    "*-attempts", "*-attempt-count", "*-attempt-number", "*-retry", "*-retries", "*-retry-count", "*-retry-attempt",
    "*-retry-number",
];

/// Whether a field is of the list.
pub(crate) fn names_nobody(name: &HeaderName) -> bool {
    let name = name.as_str();
    // What almost every request has, first.
    matches!(name, "host" | "user-agent" | "accept" | "content-length" | "content-type" | "idempotency-key")
        || PATTERNS.that_may_fit(name).any(|pattern| fits(pattern, name))
}

static PATTERNS: LazyLock<PatternIndex> = LazyLock::new(|| PatternIndex::new(FIELDS_THAT_NAME_NO_CALLER));

/// The patterns by the end that has no star: of the whole list, few begin or end like a name.
struct PatternIndex {
    by_first: [Vec<&'static str>; LETTERS],
    by_last: [Vec<&'static str>; LETTERS],
}

/// Places of an index: names that are not ASCII share one.
const LETTERS: usize = 128;

impl PatternIndex {
    fn new(patterns: &[&'static str]) -> Self {
        let mut index =
            Self { by_first: [const { Vec::new() }; LETTERS], by_last: [const { Vec::new() }; LETTERS] };
        for pattern in patterns {
            let [first, last] = ends(pattern);
            if pattern.starts_with('*') {
                index.by_last[last].push(*pattern);
            } else {
                index.by_first[first].push(*pattern);
            }
        }
        index
    }

    fn that_may_fit(&self, name: &str) -> impl Iterator<Item = &'static str> {
        let [first, last] = ends(name);
        self.by_first[first].iter().chain(&self.by_last[last]).copied()
    }
}

/// The places of the first and of the last byte of a text.
fn ends(text: &str) -> [usize; 2] {
    let place = |byte: Option<&u8>| byte.map_or(0, |byte| usize::from(*byte)).min(LETTERS - 1);
    [place(text.as_bytes().first()), place(text.as_bytes().last())]
}

fn fits(pattern: &str, name: &str) -> bool {
    if let Some(words) = pattern.strip_prefix("*-") {
        return name.strip_suffix(words).is_some_and(|before| before.is_empty() || before.ends_with('-'));
    }
    if let Some(words) = pattern.strip_suffix("-*") {
        return name.strip_prefix(words).is_some_and(|behind| behind.is_empty() || behind.starts_with('-'));
    }
    name == pattern
}

#[cfg(test)]
#[path = "anonymous_test.rs"]
mod test;
