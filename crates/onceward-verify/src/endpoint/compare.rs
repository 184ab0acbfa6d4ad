//! Compares a replay with the first answer.

use std::collections::BTreeMap;

use super::message::Answer;
use super::secrets::is_credential;

/// Fields that may differ between a run and its replay: they belong to the connection, to the moment or to
/// the one exchange. The framing is left out because the bodies themselves are compared.
const VOLATILE: &[&str] = &[
    "age",
    "alt-svc",
    "cf-ray",
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-authenticate",
    "retry-after",
    "server-timing",
    "set-cookie",
    "strict-transport-security",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
    "via",
    "www-authenticate",
    "x-correlation-id",
    "x-envoy-upstream-service-time",
    "x-request-id",
    "x-response-time",
    "x-runtime",
    "x-trace-id",
];

/// How a replay differs from the first answer.
#[derive(Debug)]
pub(super) struct Differences {
    /// In words.
    pub(super) text: String,
    /// What is not kept, without the values: the same for every answer that lacks it.
    pub(super) cause: String,
    /// Whether it is the answer to something else, and not the same one kept badly.
    pub(super) is_another: bool,
}

/// How a replay differs from the first answer, if it does.
pub(super) fn differences(first: &Answer, again: &Answer, volatile: &[String]) -> Option<Differences> {
    let (mut found, mut causes, mut is_another) = (Vec::new(), Vec::new(), false);
    if first.status != again.status {
        found.push(format!("status {} became {}", first.status, again.status));
        let [low, high] = [first.status.min(again.status), first.status.max(again.status)];
        // Of two successes that came together nobody knows which is the replay: the pair is the cause.
        causes.push(if first.is_success() && again.is_success() {
            format!("status {low} or {high}")
        } else {
            format!("status {}", again.status)
        });
    }
    let (one, other) = (stable(first, volatile), stable(again, volatile));
    for (name, values) in &one {
        match other.get(name) {
            None => {
                found.push(format!("field `{name}` was lost"));
                causes.push(format!("`{name}` lost"));
            }
            Some(others) if others != values => {
                let (values, others) = (values.join(", "), others.join(", "));
                found.push(if is_credential(name) {
                    format!("field `{name}` changed")
                } else {
                    format!("field `{name}` changed from `{values}` to `{others}`")
                });
                causes.push(format!("`{name}` changed"));
            }
            Some(_) => {}
        }
    }
    if first.body != again.body {
        let (text, is_same_value) = body_difference(first, again);
        found.push(text);
        causes.push(format!("body, {is_same_value}"));
        is_another = !is_same_value;
    }
    (!found.is_empty()).then(|| Differences { text: found.join("; "), cause: causes.join(", "), is_another })
}

/// Fields that only the replay has, other than those that say that it is one.
pub(super) fn additions(first: &Answer, again: &Answer, volatile: &[String]) -> Vec<String> {
    let one = stable(first, volatile);
    stable(again, volatile).into_keys().filter(|name| !one.contains_key(name)).map(str::to_owned).collect()
}

fn stable<'a>(answer: &'a Answer, volatile: &[String]) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut fields: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in &answer.fields {
        let is_listed = VOLATILE.contains(&name.as_str())
            || name.starts_with("ratelimit")
            || name.starts_with("x-ratelimit");
        let is_given = volatile.iter().any(|other| other.eq_ignore_ascii_case(name));
        // `Idempotent-Replayed`, `Idempotency-Expires` and their many relatives.
        let is_marker = name.contains("idempoten");
        if !is_listed && !is_given && !is_marker {
            fields.entry(name).or_default().push(value);
        }
    }
    fields
}

/// In words, and whether the bodies are the same JSON.
fn body_difference(first: &Answer, again: &Answer) -> (String, bool) {
    let json = |answer: &Answer| serde_json::from_slice::<serde_json::Value>(&answer.body).ok();
    match (json(first), json(again)) {
        (Some(one), Some(other)) if one == other => {
            ("the body is the same JSON in other bytes, which breaks signatures and digests".to_owned(), true)
        }
        _ => (format!("the body changed from `{}` to `{}`", first.excerpt(), again.excerpt()), false),
    }
}

#[cfg(test)]
#[path = "compare_test.rs"]
mod tests;
