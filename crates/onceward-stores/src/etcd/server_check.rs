//! What a server is and says, when the store is opened: its version, its alarms, its quota, whether its history is
//! compacted, and whether its clock agrees with those of the others.

use std::time::Duration;

use futures_util::future::join_all;
use onceward::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use super::address::Address;
use super::api::{Alarms, Status};
use super::client::{Answered, Client};
use super::errors::CallEffect;
use crate::kit::dated_clock::too_far_apart;

/// The oldest version whose gateway is as we use it.
const VERSION_MIN: (u32, u32) = (3, 4);
/// How long a server may take to tell its time. Short: it may be down, and then another is asked for everything.
const CLOCKS_MAX: Duration = Duration::from_secs(3);
/// A history of this many writes has been compacted somewhere, if it is compacted at all.
const HISTORY_REVISIONS: u64 = 10_000;

/// Refuses a server that cannot keep receipts, and says in the log what its operator must look after.
pub(super) async fn check(client: &Client) -> Result<()> {
    let status: Status = client.call("/v3/maintenance/status", &json!({}), CallEffect::Reads).await?;
    let server = client.http.name();
    fit(&server, &status.version)?;
    // The rest is advice: a user that may not ask is let in all the same.
    if let Ok(Alarms { alarms }) =
        client.call("/v3/maintenance/alarm", &json!({ "action": "GET" }), CallEffect::Reads).await
    {
        for alarm in alarms {
            tracing::error!(
                "{server} has the alarm {}; with NOSPACE it takes no writes until it is compacted, defragmented and disarmed",
                alarm.alarm
            );
        }
    }
    let metrics = client.text("/metrics").await.unwrap_or_default();
    let (bytes, quota) = (status.db_bytes, quota(&metrics));
    match quota {
        Some(quota) => {
            tracing::info!(
                "{server}: version {}, {bytes} bytes of a quota of {quota} are used",
                status.version
            );
            if bytes > quota / 4 * 3 {
                tracing::warn!(
                    "{server} has used {bytes} bytes of its quota of {quota}; at the quota it takes no writes (--quota-backend-bytes)"
                );
            }
        }
        None => tracing::info!(
            "{server}: version {}, {bytes} bytes are used; it does not say its quota (2 GiB unless --quota-backend-bytes)",
            status.version
        ),
    }
    if status.header.revision > HISTORY_REVISIONS && is_never_compacted(client).await {
        tracing::warn!(
            "{server} keeps every version of every key since it began ({} of them); set --auto-compaction-retention, or it fills its quota and takes no writes",
            status.header.revision
        );
    }
    Ok(())
}

/// Refuses servers whose clocks certainly differ by more than is allowed for: a process that asks one of them would end the
/// leases of one that asks another too early. A server that does not answer now is not compared.
pub(super) async fn check_clocks(address: &Address, call_timeout: Duration) -> Result<()> {
    if address.hosts.len() < 2 {
        return Ok(());
    }
    let asked = address.hosts.iter().map(|host| async move {
        let alone = Address { hosts: vec![host.clone()], ..address.clone() };
        let server = Client::new(&alone, call_timeout.min(CLOCKS_MAX)).ok()?;
        server.text("/version").await?;
        Some((server.http.name(), server.clock.last()?))
    });
    let told: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
    for (at, (one, bounds)) in told.iter().enumerate() {
        for (other, others) in &told[..at] {
            if let Some(apart) = too_far_apart(*bounds, *others) {
                let detail = format!(
                    "the clocks of {one} and {other} differ by at least {:.1} s; synchronise them (NTP): leases go by them",
                    apart.as_secs_f64()
                );
                return Err(Error::new(ErrorKind::Unfit, detail));
            }
        }
    }
    Ok(())
}

/// Whether the first revision can still be read.
async fn is_never_compacted(client: &Client) -> bool {
    let first = json!({ "key": "AA==", "revision": "1", "count_only": true });
    let asked: Result<Answered<Value>> = client.ask("/v3/kv/range", &first, CallEffect::Reads).await;
    // Refused: it has been compacted, or this user may not ask.
    matches!(asked, Ok(Answered::Yes(_)))
}

/// Whether a server of this version can keep receipts.
fn fit(server: &str, version: &str) -> Result<()> {
    let mut numbers = version.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let mut next = || numbers.next().unwrap_or(0);
    let (major, minor, patch) = (next(), next(), next());
    if (major, minor) < VERSION_MIN {
        let detail = format!("{server} is version {version}, at least 3.4 is needed; use a newer server");
        return Err(Error::new(ErrorKind::Invalid, detail));
    }
    if (major, minor) == (3, 5) && patch < 3 {
        let detail = format!(
            "{server} is version {version}, which can lose acknowledged writes when it is killed (etcd's own warning about 3.5.0 to 3.5.2); use 3.5.3 or later"
        );
        return Err(Error::new(ErrorKind::Unfit, detail));
    }
    Ok(())
}

/// The quota in what a server publishes of itself, in bytes.
fn quota(metrics: &str) -> Option<u64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix("etcd_server_quota_backend_bytes "))?;
    let bytes: f64 = line.trim().parse().ok()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size, for people")]
    (bytes > 0.0).then_some(bytes as u64)
}

#[cfg(test)]
#[path = "server_check_test.rs"]
mod tests;
