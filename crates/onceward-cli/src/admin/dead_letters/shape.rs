//! What the receipts API says of dead letters and is asked about them. `onceward dead` prints the same values.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use onceward_flows::{DeadLetter, DeadLetterFilter, DeadLetterState};
use onceward_http::admin::extend::{ApiResult, Problem};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The source of consumers for which no other was given.
pub const SOURCE: &str = "outbox";

/// Which dead letters, and how many.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct DeadLettersAsked {
    /// The name of the consumer; those of all consumers if absent.
    pub consumer: Option<String>,
    /// The name of its source; `outbox` if absent. Only with `consumer`.
    pub source: Option<String>,
    /// Only those with this topic.
    pub topic: Option<String>,
    /// Only those with this ordering key.
    pub ordering_key: Option<String>,
    /// Only those whose error contains this text.
    pub error: Option<String>,
    /// Only those in this state: `dead`, `behind` or `retry`.
    pub state: Option<String>,
    /// Only those that failed for the last time at least this long ago.
    pub older_than_ms: Option<u64>,
    /// With headers and payload, as an export needs them.
    pub contents: Option<bool>,
    /// At most this many in one answer; 100 if absent, 1000 at most, 50 with contents.
    pub limit: Option<u32>,
    /// The `next` of an earlier page of the same list.
    pub after: Option<i64>,
}

impl DeadLettersAsked {
    pub fn filter(&self) -> ApiResult<DeadLetterFilter> {
        let mut filter = DeadLetterFilter::default();
        filter.topic.clone_from(&self.topic);
        filter.ordering_key.clone_from(&self.ordering_key);
        filter.error.clone_from(&self.error);
        filter.older_than = Duration::from_millis(self.older_than_ms.unwrap_or(0));
        filter.state = self.state.as_deref().map(state).transpose()?;
        Ok(filter)
    }
}

fn state(name: &str) -> ApiResult<DeadLetterState> {
    let all = [DeadLetterState::Dead, DeadLetterState::Behind, DeadLetterState::Retry];
    let unknown = || Problem::Invalid("`state` is `dead`, `behind` or `retry`".into());
    all.into_iter().find(|state| state.name() == name).ok_or_else(unknown)
}

/// Which dead letter.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct DeadLetterAsked {
    /// The name of the consumer.
    pub consumer: String,
    /// The name of its source; `outbox` if absent.
    pub source: Option<String>,
    /// The id of the message.
    pub message: String,
}

/// What is to become of one dead letter.
#[derive(Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeDeadLetterAsked {
    /// The name of the consumer.
    pub consumer: String,
    /// The name of its source; `outbox` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The id of the message. For a retry either this or `ordering_key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// A retry of everything with this ordering key, in its order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
    /// Who asks; recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why; recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What is to become of all dead letters that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DeadLetterChange {
    /// They are tried again, each with all that wait behind it.
    Retry,
    /// They are recorded as handled: their effects were brought about by other means.
    Settle,
    /// They will not be handled.
    Discard,
}

/// What is to become of all dead letters that match.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeDeadLettersAsked {
    /// What is done with them.
    pub change: DeadLetterChange,
    /// The name of the consumer.
    pub consumer: String,
    /// The name of its source; `outbox` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Only those with this topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Only those with this ordering key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
    /// Only those whose error contains this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Only those that failed for the last time at least this long ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than_ms: Option<u64>,
    /// All of the consumer, without a filter.
    #[serde(default)]
    pub all: bool,
    /// Retries in a second; 50 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<u32>,
    /// Only count them.
    #[serde(default)]
    pub dry_run: bool,
    /// Look at no more than this many for this answer; 100 if absent, and at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The `next` of the last answer, to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<i64>,
    /// Who asks; recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why; recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl ChangeDeadLettersAsked {
    /// Fails if nothing says which: that must be said, too.
    pub fn filter(&self) -> ApiResult<DeadLetterFilter> {
        let mut filter = DeadLetterFilter::default();
        filter.topic.clone_from(&self.topic);
        filter.ordering_key.clone_from(&self.ordering_key);
        filter.error.clone_from(&self.error);
        filter.older_than = Duration::from_millis(self.older_than_ms.unwrap_or(0));
        if filter == DeadLetterFilter::default() && !self.all {
            let which = "give `topic`, `ordering_key`, `error` or `older_than_ms`, or say `all: true`";
            return Err(Problem::Invalid(which.into()));
        }
        Ok(filter)
    }
}

/// What came of a change of all that match.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct DeadLettersChanged {
    /// Those of this page that match.
    pub matched: u64,
    /// Those of them that were changed. A retry of one takes along what waits behind it, which is not counted.
    pub changed: u64,
    /// Give it as `after` to go on; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

/// One page of dead letters.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct DeadLettersShown {
    /// In the order in which they came.
    pub dead_letters: Vec<DeadLetterShown>,
    /// Give it as `after` to go on; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<i64>,
}

/// A message that a consumer has given up, or that waits behind one.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct DeadLetterShown {
    /// The name of the source of its consumer.
    #[serde(default)]
    pub source: String,
    /// The consumer that gave it up.
    #[serde(default)]
    pub consumer: String,
    /// The id of the message.
    pub message: String,
    /// `dead`, `behind` (it waits behind a dead one of its ordering key) or `retry` (it will be tried again).
    pub state: String,
    /// Its topic.
    pub topic: String,
    /// Its ordering key.
    pub ordering_key: Option<String>,
    /// Its headers; absent in a list without contents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// Its payload, if it is text; absent in a list without contents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// Its payload in hexadecimal digits, if it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_hex: Option<String>,
    /// How often it was tried.
    pub tries: u32,
    /// Why the last try failed.
    pub error: String,
    /// When it failed for the first time.
    pub first_failed_seconds_ago: u64,
    /// When it failed for the last time.
    pub last_failed_seconds_ago: u64,
}

impl DeadLetterShown {
    /// Without headers and payload.
    pub fn in_list(letter: &DeadLetter) -> Self {
        let message = &letter.message;
        Self {
            source: letter.source.clone(),
            consumer: letter.consumer.clone(),
            message: message.id().to_owned(),
            state: letter.state.name().to_owned(),
            topic: message.topic().to_owned(),
            ordering_key: message.ordering_key().map(str::to_owned),
            headers: None,
            payload: None,
            payload_hex: None,
            tries: letter.tries,
            error: letter.error.clone(),
            first_failed_seconds_ago: letter.first_failed.as_secs(),
            last_failed_seconds_ago: letter.last_failed.as_secs(),
        }
    }

    /// With everything.
    pub fn new(letter: &DeadLetter) -> Self {
        let message = &letter.message;
        let payload = std::str::from_utf8(message.payload()).ok().map(str::to_owned);
        let payload_hex = payload.is_none().then(|| hexadecimal(message.payload()));
        Self { headers: Some(message.headers().clone()), payload, payload_hex, ..Self::in_list(letter) }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
