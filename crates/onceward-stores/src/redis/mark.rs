//! The key that marks a prefix as ours, and says into how many buckets it is divided.

use onceward::{Error, ErrorKind, Result};
use redis::{Value, cmd};

use super::keys::BUCKETS_MAX;
use super::servers::Servers;

/// How the mark of this layout begins; the number of buckets follows.
const FORMAT: &str = "onceward receipts 2, buckets: ";
/// How the marks of all layouts begin.
const ANY_FORMAT: &str = "onceward receipts ";
/// The mark of the layout from before the first release.
const UNRELEASED: &str = "onceward receipts 1";

/// Marks the prefix as ours, or refuses it if it belongs to something else. Returns the number of its buckets, which is
/// that of the process which marked it first.
pub(super) async fn mark(servers: &Servers, key: &str) -> Result<usize> {
    let ours = format!("{FORMAT}{}", servers.buckets_of_new());
    servers.ask(0, cmd("SET").arg(key).arg(ours).arg("NX")).await?;
    let Value::BulkString(mark) = servers.ask(0, cmd("GET").arg(key)).await? else {
        return Err(refused(servers, key, ""));
    };
    let mark = String::from_utf8_lossy(&mark);
    buckets(&mark).ok_or_else(|| refused(servers, key, &mark))
}

fn buckets(mark: &str) -> Option<usize> {
    let buckets = mark.strip_prefix(FORMAT)?.parse().ok()?;
    (1..=BUCKETS_MAX).contains(&buckets).then_some(buckets)
}

fn refused(servers: &Servers, key: &str, mark: &str) -> Error {
    let why = if mark == UNRELEASED {
        "the receipts under this prefix were made before the first release; remove them, or use another prefix (`?prefix=…`)"
            .to_owned()
    } else if mark.starts_with(ANY_FORMAT) {
        "a newer onceward keeps receipts under this prefix; use a newer one".to_owned()
    } else {
        format!(
            "the key `{key}` was not made by onceward; use another prefix (`?prefix=…`) or another database"
        )
    };
    Error::new(ErrorKind::Foreign, format!("{}: {why}", servers.name(0)))
}

#[cfg(test)]
#[path = "mark_test.rs"]
mod tests;
