//! The audit: a durable record of each change that an operator made, with who and why.
//!
//! A change is an intent like any other, so its record is a receipt in the same store: claimed with what was asked (its
//! input) before the change is made, and completed with what came of it. It is not a note in the receipt that is
//! changed, because that one may be removed by the change itself, by the next run, or at the end of its retention. An
//! entry that was never completed belongs to a process that died during the change.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use onceward::{
    Ask, Claimed, Cursor, Filter, Fingerprint, Id, KeepInput, OnUnknown, Outcome, Policy, Receipt, Retention,
    Scan, ScanTarget, TextMatch,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Admin;
use super::problem::Problem;

/// The scope of Onceward's own receipts. Receipts in it cannot be claimed or changed through the API.
pub(super) const RESERVED_SCOPE: &str = "onceward";
const OPERATION: &str = "audit";

/// How long changes that were made are kept on record.
const KEPT: Duration = Duration::from_hours(24 * 400);
/// How long changes that were refused are.
const REFUSED_KEPT: Duration = Duration::from_hours(24 * 30);
/// A change takes no longer than this.
const CHANGE_AT_MOST: Duration = Duration::from_mins(10);
/// The result of a change that was made.
const MADE: &str = "made";
/// Longest name and longest reason, in bytes.
const BY_BYTES_MAX: usize = 200;
const REASON_BYTES_MAX: usize = 1_000;

/// One change, as it is stored and shown.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// When it was asked for: milliseconds since 1970, by the clock of the process that made it.
    pub at_ms: u64,
    /// The change: `settle`, `retry-dead`, `discard-dead`, `cancel`, `erase`, `erase-matching`.
    pub action: String,
    /// The operator, as given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, as they said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The receipt's scope, or the only one that was to be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The receipt's operation, or the only one that was to be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The receipt's key, or the only one that was to be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The run that was examined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// How it was to be changed: `done`, `not done`, `reopen`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<String>,
    /// The result: `made`, or the problem it was refused with; absent if the process died meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

impl AuditEntry {
    /// An entry about what was asked, by whom and why. Fails if a text is too long or not plain.
    pub fn new(action: &'static str, by: Option<&str>, reason: Option<&str>) -> Result<Self, Problem> {
        let checked = |name: &str, text: Option<&str>, bytes_max: usize| match text.map(str::trim) {
            None | Some("") => Ok(None),
            Some(text) if text.len() > bytes_max => {
                Err(Problem::Invalid(format!("`{name}` has over {bytes_max} bytes")))
            }
            Some(text) if text.chars().any(char::is_control) => {
                Err(Problem::Invalid(format!("`{name}` has control characters")))
            }
            Some(text) => Ok(Some(text.to_owned())),
        };
        Ok(Self {
            at_ms: now_ms(),
            action: action.into(),
            by: checked("by", by, BY_BYTES_MAX)?,
            reason: checked("reason", reason, REASON_BYTES_MAX)?,
            ..Self::default()
        })
    }

    /// About this receipt.
    pub fn of(mut self, id: &Id) -> Self {
        self.scope = Some(id.scope().into());
        self.operation = Some(id.operation().into());
        self.key = Some(id.key().into());
        self
    }

    /// How it was to be changed.
    pub fn how(mut self, how: Option<&str>) -> Self {
        self.how = how.map(str::to_owned);
        self
    }

    /// The entry in a receipt; `None` if it is not one.
    fn read(receipt: &Receipt) -> Option<Self> {
        let mut entry: Self = serde_json::from_slice(&receipt.status.job()?.input).ok()?;
        entry.result =
            receipt.status.outcome().map(|outcome| String::from_utf8_lossy(outcome.body()).into_owned());
        Some(entry)
    }

    fn log(&self, result: &str) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let key = self.key.as_deref().map(super::hashed).unwrap_or_default();
        let (by, reason, how) = (text(&self.by), text(&self.reason), text(&self.how));
        let (action, scope, operation) = (&self.action, text(&self.scope), text(&self.operation));
        if result == MADE {
            tracing::warn!(action, by, reason, scope, operation, key, how, "a receipt was changed by hand");
        } else {
            tracing::info!(action, by, scope, operation, key, how, result, "a change by hand was refused");
        }
    }
}

impl Admin {
    /// Makes a change on the record: it is written down before, and what came of it after. If it cannot be written
    /// down, it is not made.
    #[doc(hidden)]
    pub async fn audited<T>(
        &self,
        entry: AuditEntry,
        change: impl Future<Output = Result<T, Problem>>,
    ) -> Result<T, Problem> {
        let input = Bytes::from(serde_json::to_vec(&entry).expect("plain values are JSON"));
        let id = Id::new(RESERVED_SCOPE, OPERATION, &entry_key(entry.at_ms)).expect("a valid id");
        let ask = Ask::new(id, Fingerprint::of(&input), policy()).with_input(input);
        let Claimed::Granted(ticket) = self.onceward.claim(ask).await? else {
            return Err(Problem::Invalid("two changes have the same name in the audit; ask again".into()));
        };
        let changed = change.await;
        let result = match &changed {
            Ok(_) => MADE,
            Err(problem) => problem.name(),
        };
        let outcome = match &changed {
            Ok(_) => Outcome::succeeded(result),
            Err(_) => Outcome::failed(result),
        };
        if let Err(error) = self.onceward.complete(&ticket, outcome).await {
            tracing::error!(%error, result, "the result of a change by hand could not be recorded");
        }
        entry.log(result);
        changed
    }

    /// One page of the audit, and where to continue.
    pub(super) async fn audit_page(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<AuditEntry>, Option<Cursor>), Problem> {
        let filter = Filter::default()
            .with_scope(RESERVED_SCOPE.to_owned())
            .with_operation(TextMatch::Is(OPERATION.into()));
        let scan = Scan::new(ScanTarget::Matching(filter), limit).with_after(after);
        let page = self.onceward.list(&scan).await?;
        Ok((page.found.iter().filter_map(|(_, receipt)| AuditEntry::read(receipt)).collect(), page.next))
    }
}

fn policy() -> Arc<Policy> {
    let policy = Policy::http()
        .to_builder()
        .with_lease(CHANGE_AT_MOST)
        // One that was never completed is not an unknown outcome that an operator would have to settle.
        .with_on_unknown(OnUnknown::Retry)
        .with_keep_input(KeepInput::WithReceipt)
        .with_retention_succeeded(Retention::For(KEPT))
        .with_retention_failed(Retention::For(REFUSED_KEPT));
    Arc::new(policy.build().expect("a valid policy"))
}

/// Entries are named by their time, so that a store that sorts by key has them in order.
fn entry_key(at_ms: u64) -> String {
    let mut bytes = [0; 8];
    // Without a random source two changes of one millisecond have one name, and the second is refused.
    let _ = getrandom::fill(&mut bytes);
    format!("{at_ms:013}-{:016x}", u64::from_le_bytes(bytes))
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
