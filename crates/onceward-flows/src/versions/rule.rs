//! What a consumer does with the versions of its messages: one rule for all of them, with the hook that fetches what is
//! missing.

use std::sync::Arc;

use onceward_stores::sql::SqlTransaction;

use super::{FirstVersion, OnGap, VersionAction, advance_or, advance_to};
use crate::consumer::Failure;
use crate::message::Message;

/// The version that a message carries in a header. A permanent failure if it has none, or one that is not a whole number
/// from 1 to 9223372036854775807: trying again cannot help.
pub fn version_header(message: &Message, header: &str) -> Result<u64, Failure> {
    let Some(text) = message.headers().get(header) else {
        return Err(Failure::permanent(format!("the message has no header `{header}` with its version")));
    };
    // `parse` would take a sign.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let version = text.parse::<i64>().ok().filter(|version| is_number && *version > 0);
    version.map(i64::unsigned_abs).ok_or_else(|| {
        let shown: String = text.chars().take(40).collect();
        Failure::permanent(format!(
            "the version in the header `{header}`, `{shown}`, is not a whole number from 1 to 9223372036854775807"
        ))
    })
}

/// What a consumer does with versions; see [`ConsumerOptions::versions`](crate::ConsumerOptions::versions).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VersionRule {
    /// The header with the version.
    pub header: String,
    /// Which version an entity may begin with.
    pub first: FirstVersion,
    /// What a gap does.
    pub on_gap: OnGap,
}

impl Default for VersionRule {
    fn default() -> Self {
        Self { header: "version".to_owned(), first: FirstVersion::Any, on_gap: OnGap::Wait }
    }
}

impl VersionRule {
    /// A rule for versions in the header `version`.
    pub fn new(first: FirstVersion, on_gap: OnGap) -> Self {
        Self { first, on_gap, ..Self::default() }
    }

    /// Sets the header with the version.
    pub fn with_header(mut self, header: impl Into<String>) -> Self {
        self.header = header.into();
        self
    }
}

/// The versions of one consumer, for its handler; [`Consumer::versions`](crate::Consumer::versions) gives them.
#[derive(Clone, Debug)]
pub struct Versions {
    scope: Arc<str>,
    rule: VersionRule,
}

impl Versions {
    pub(crate) fn new(scope: Arc<str>, rule: VersionRule) -> Self {
        Self { scope, rule }
    }

    /// Advances an entity to the version of a message, by the rule of the consumer. With [`OnGap::Wait`] a message whose
    /// predecessors are missing is [`Failure::early`].
    pub async fn advance<T: SqlTransaction>(
        &self,
        tx: &mut T,
        message: &Message,
        entity: &str,
    ) -> Result<VersionAction, Failure> {
        let VersionRule { header, first, on_gap } = &self.rule;
        advance_or(tx, &self.scope, entity, version_header(message, header)?, *first, *on_gap).await
    }

    /// The same with a hook for gaps, which is called with [`OnGap::Fetch`] only. It is given the version that should have
    /// come, writes the whole state of the entity through the same transaction, and returns the version of that state, which
    /// is recorded. A state that is older than the message is a transient failure. There is then nothing left to apply.
    pub async fn advance_or_fetch<T, F, W>(
        &self,
        tx: &mut T,
        message: &Message,
        entity: &str,
        fetch: F,
    ) -> Result<VersionAction, Failure>
    where
        T: SqlTransaction,
        F: FnOnce(u64) -> W,
        W: Future<Output = Result<u64, Failure>>,
    {
        let expected = match self.advance(tx, message, entity).await? {
            VersionAction::Fetch { expected } => expected,
            other => return Ok(other),
        };
        let version = version_header(message, &self.rule.header)?;
        let fetched = fetch(expected).await?;
        if fetched < version {
            return Err(Failure::transient(format!(
                "the state of `{entity}` that was fetched has version {fetched}, and the message {version}"
            )));
        }
        advance_to(tx, &self.scope, entity, fetched).await?;
        Ok(VersionAction::Skip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_is_not_a_number_is_a_permanent_failure() {
        let message = |version: &str| Message::new("t", "").with_header("version", version);
        assert_eq!(version_header(&message("7"), "version").unwrap(), 7);
        assert_eq!(
            version_header(&message("9223372036854775807"), "version").unwrap(),
            i64::MAX.unsigned_abs()
        );
        for bad in ["", "0", "-1", "+1", "1.5", "seven", "1 ", "9223372036854775808"] {
            let failure = version_header(&message(bad), "version").unwrap_err();
            assert!(failure.is_permanent(), "{bad}");
            assert!(failure.to_string().contains("is not a whole number"), "{failure}");
        }
        let failure = version_header(&message("7"), "revision").unwrap_err();
        assert!(failure.is_permanent() && failure.to_string().contains("no header `revision`"), "{failure}");
    }
}
