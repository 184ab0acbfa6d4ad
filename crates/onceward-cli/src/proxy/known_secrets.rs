//! Check values of secrets, kept in the store. A gateway with another secret would know every intent by another id and
//! run everything again, so one whose secrets are all unknown to its store does not start.
//!
//! ```text
//! scope `onceward`, operation `gateway secret`
//!   key `first`          done: the check value of the first secret; two gateways that start at once agree on it
//!   key <check value>    done: a secret that was listed beside a known one
//! ```
//!
//! That one is known says nothing about when it was in use: see [`secrets_in_use`](super::secrets_in_use).

use onceward::{Filter, Id, Onceward, Retention, Scan, ScanTarget};
use onceward_http::fingerprint::{SECRET_BYTES, Secrets};

use super::own_records::{self, RESERVED_SCOPE};
use super::secret::VARIABLE;

const OPERATION: &str = "gateway secret";
const FIRST: &str = "first";

/// Whether a secret that the store does not know may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSecret {
    Refused,
    /// By the flag `--accept-new-secret`.
    Accepted,
}

/// Refuses secrets of which the store knows none, and makes all of them known.
pub async fn check(onceward: &Onceward, secrets: &Secrets, new: NewSecret) -> Result<(), String> {
    // Receipts without a check value: they were written with a secret that nobody can tell.
    if new == NewSecret::Refused && !is_recorded(onceward, FIRST).await? && has_receipts(onceward).await? {
        return Err(format!(
            "secret: the store has receipts and does not know with which secret they were written. If it is not that in \
             {VARIABLE}, no retry finds its receipt and everything runs again. If you are sure that it is, start once \
             with --accept-new-secret"
        ));
    }
    let first = record(onceward, FIRST, &check_value(secrets.current())).await?;
    let mut unknown = Vec::new();
    for value in secrets.all().map(check_value) {
        if value != first && !is_recorded(onceward, &value).await? {
            unknown.push(value);
        }
    }
    if unknown.len() == secrets.all().count() && new == NewSecret::Refused {
        return Err(format!(
            "secret: the store was written with another secret, so no retry would find its receipt and everything \
             would run again. Set {VARIABLE} to the secret of the other gateways (or restore the file `secret` in the \
             store's folder). To change the secret, list both in {VARIABLE}, with a comma between them. To give the \
             receipts in the store up on purpose, start once with --accept-new-secret"
        ));
    }
    for value in unknown {
        tracing::warn!(check_value = value, "a secret is new to the store");
        record(onceward, &value, "").await?;
    }
    Ok(())
}

/// Returns whether the store has receipts of requests: those of the gateway itself do not count.
pub async fn has_receipts(onceward: &Onceward) -> Result<bool, String> {
    let mut after = None;
    loop {
        let scan = Scan::new(ScanTarget::Matching(Filter::default()), 100).with_after(after);
        let page = onceward.list(&scan).await.map_err(|error| format!("store: {error}"))?;
        if !page.unreadable.is_empty() || page.found.iter().any(|(id, _)| id.scope() != RESERVED_SCOPE) {
            return Ok(true);
        }
        after = page.next;
        if after.is_none() {
            return Ok(false);
        }
    }
}

/// What tells one secret from another and gives neither away.
pub fn check_value(secret: &[u8; SECRET_BYTES]) -> String {
    blake3::keyed_hash(secret, b"onceward: check value of a gateway secret").to_hex()[..32].to_owned()
}

fn id(key: &str) -> Id {
    own_records::id(OPERATION, key)
}

async fn is_recorded(onceward: &Onceward, value: &str) -> Result<bool, String> {
    onceward.receipt(&id(value)).await.map(|found| found.is_some()).map_err(|error| format!("store: {error}"))
}

/// Records a text under a key, once and forever. Returns what is recorded there.
async fn record(onceward: &Onceward, key: &str, text: &str) -> Result<String, String> {
    own_records::record(onceward, id(key), text, Retention::Forever).await
}

#[cfg(test)]
#[path = "known_secrets_test.rs"]
mod tests;
