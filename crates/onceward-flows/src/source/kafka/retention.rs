//! Whether a topic keeps its messages as a consumer needs it. Pure.

use std::time::Duration;

use onceward::{Error, ErrorKind, Result};
use rdkafka::types::RDKafkaErrorCode;

/// The settings of a topic, as the brokers say them.
#[derive(Clone, Debug, Default)]
pub(super) struct TopicSettings {
    pub(super) cleanup_policy: Option<String>,
    pub(super) retention_ms: Option<String>,
    pub(super) retention_bytes: Option<String>,
}

/// Refuses a topic that does not fit a consumer that remembers for `retention`. Returns what to warn of.
pub(super) fn check(
    topic: &str,
    settings: &TopicSettings,
    retention: Option<Duration>,
) -> Result<Vec<&'static str>> {
    let unfit = |detail: String| Err(Error::new(ErrorKind::Unfit, detail));
    let policy = settings.cleanup_policy.as_deref();
    if policy.is_some_and(|policy| policies(policy).any(|policy| policy == "compact")) {
        return unfit(format!(
            "the topic `{topic}` is compacted: of each ordering key Kafka keeps the last message and removes the others, \
             also unread ones; set its cleanup.policy to `delete`"
        ));
    }
    let mut warnings = Vec::new();
    let age_ms = settings.retention_ms.as_deref().and_then(|age| age.parse::<i64>().ok());
    let (Some(policy), Some(age_ms)) = (policy, age_ms) else {
        warnings.push(
            "Kafka does not say how long the topic keeps its messages: it must not be compacted, and its retention.ms must \
             be at most what the consumer remembers",
        );
        return Ok(warnings);
    };
    let is_kept_forever = age_ms < 0 || !policies(policy).any(|policy| policy == "delete");
    let age = Duration::from_millis(age_ms.unsigned_abs());
    match retention {
        Some(_) if is_kept_forever => warnings.push(
            "the topic keeps messages forever, the consumer does not remember them that long: do not reset its position to \
             messages that are older than its retention",
        ),
        Some(retention) if age > retention => {
            return unfit(format!(
                "the topic `{topic}` keeps messages for {age:?}, the consumer remembers them for {retention:?}: a replay \
                 could run an effect twice; shorten its retention.ms, or lengthen the retention of the consumer"
            ));
        }
        _ => {}
    }
    let bytes = settings.retention_bytes.as_deref().and_then(|bytes| bytes.parse::<i64>().ok());
    if bytes.is_some_and(|bytes| bytes >= 0) {
        warnings.push(
            "the topic drops its oldest messages when there are too many (retention.bytes), also unread ones",
        );
    }
    Ok(warnings)
}

fn policies(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

/// Whether the brokers may answer the same question later; otherwise they have said that they do not.
pub(super) fn is_no_answer(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::OperationTimedOut
            | RDKafkaErrorCode::RequestTimedOut
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEEK: Duration = Duration::from_hours(7 * 24);
    const WEEK_MS: &str = "604800000";

    fn settings(policy: &str, age: &str, bytes: &str) -> TopicSettings {
        let set = |value: &str| Some(value.to_owned()).filter(|value| value != "-");
        TopicSettings { cleanup_policy: set(policy), retention_ms: set(age), retention_bytes: set(bytes) }
    }

    #[test]
    fn topics_that_drop_unread_messages_or_keep_them_for_too_long_are_refused() {
        let refused = [
            ("compact", WEEK_MS, "compacted"),
            ("compact,delete", WEEK_MS, "compacted"),
            ("delete, compact", "-", "compacted"),
            ("delete", "604800001", "a replay"),
        ];
        for (policy, age, text) in refused {
            let error = check("t", &settings(policy, age, "-1"), Some(WEEK)).unwrap_err();
            assert!(
                error.kind() == ErrorKind::Unfit && error.to_string().contains(text),
                "{policy}: {error}"
            );
        }
        check("t", &settings("compact", WEEK_MS, "-1"), None).unwrap_err();
    }

    #[test]
    fn what_is_not_known_or_has_no_end_is_a_warning() {
        let rows = [
            ("delete", WEEK_MS, "-1", Some(WEEK), None),
            ("delete", "604800001", "-1", None, None),
            ("delete", "-1", "-1", Some(WEEK), Some("forever")),
            ("delete", "-1", "-1", None, None),
            ("", WEEK_MS, "-1", Some(WEEK), Some("forever")),
            ("-", WEEK_MS, "-1", Some(WEEK), Some("does not say")),
            ("delete", "-", "-1", Some(WEEK), Some("does not say")),
            ("delete", "a week", "-1", Some(WEEK), Some("does not say")),
            ("-", "-", "-", None, Some("does not say")),
            ("delete", WEEK_MS, "1000", Some(WEEK), Some("retention.bytes")),
        ];
        for (policy, age, bytes, retention, expected) in rows {
            let found = check("t", &settings(policy, age, bytes), retention).unwrap();
            let is_expected = match expected {
                Some(text) => found.len() == 1 && found[0].contains(text),
                None => found.is_empty(),
            };
            assert!(is_expected, "`{policy}` `{age}` `{bytes}`: {found:?}");
        }
    }

    #[test]
    fn a_call_that_is_not_supported_is_an_answer() {
        assert!(!is_no_answer(RDKafkaErrorCode::UnsupportedFeature));
        assert!(!is_no_answer(RDKafkaErrorCode::TopicAuthorizationFailed));
        assert!(is_no_answer(RDKafkaErrorCode::OperationTimedOut));
    }
}
