//! What a server can promise, asked at every connection: its configuration may have changed, or it may be another one.

use std::fmt;

use onceward::{Error, ErrorKind, Result};
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd};

use super::errors;

/// The first version with all that the scripts use.
const VERSION_MIN: (u32, u32) = (6, 2);

/// Whether a server keeps what it acknowledged when it crashes, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// It syncs every write to its disk before it acknowledges.
    Always,
    /// It writes no log of its changes.
    NoLog,
    /// It writes a log, and syncs it now and then.
    Syncs(String),
    /// It syncs every write, except while it rewrites its log.
    NotDuringRewrites,
    /// It does not say.
    NotSaid,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("a crash loses nothing that was acknowledged"),
            Self::NoLog => f.write_str("a crash loses the receipts since the last snapshot (appendonly is not yes)"),
            Self::Syncs(policy) => write!(f, "a crash loses the last receipts (appendfsync is {policy}, not always)"),
            Self::NotDuringRewrites => {
                f.write_str("a crash while the log is rewritten loses receipts (no-appendfsync-on-rewrite is yes)")
            }
            Self::NotSaid => f.write_str(
                "a crash may lose receipts (the server does not say whether it syncs them: CONFIG GET is not allowed)",
            ),
        }
    }
}

/// How a server was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Standalone,
    Cluster,
    Sentinel,
}

/// What a server said about itself.
#[derive(Clone, Debug)]
pub(super) struct ServerState {
    pub(super) mode: Mode,
    pub(super) durability: Durability,
}

/// Asks a server about itself, and refuses one that cannot keep receipts.
pub(super) async fn check(server: &str, connection: &mut MultiplexedConnection) -> Result<ServerState> {
    let info: String = cmd("INFO")
        .query_async(connection)
        .await
        .map_err(|error| errors::failed(server, errors::CallEffect::Reads, error))?;
    let mode = match field(&info, "redis_mode") {
        Some("cluster") => Mode::Cluster,
        Some("sentinel") => return Ok(ServerState { mode: Mode::Sentinel, durability: Durability::NotSaid }),
        _ => Mode::Standalone,
    };
    fit(server, &info)?;
    let config: RedisResult<Vec<String>> =
        cmd("CONFIG").arg("GET").arg("*append*").query_async(connection).await;
    let durability = config.map_or(Durability::NotSaid, |config| durability(&config));
    Ok(ServerState { mode, durability })
}

/// Whether a server can keep receipts at all.
fn fit(server: &str, info: &str) -> Result<()> {
    let refused = |kind, why: String| Err(Error::new(kind, format!("{server} {why}")));
    let version = field(info, "redis_version").unwrap_or_default();
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if number < VERSION_MIN {
        let (major, minor) = VERSION_MIN;
        return refused(
            ErrorKind::Invalid,
            format!("is version {version}, at least {major}.{minor} is needed; use a newer server"),
        );
    }
    if field(info, "role") == Some("slave") {
        return refused(
            ErrorKind::Unavailable,
            "is a replica and only reads; the address must lead to the primary".to_owned(),
        );
    }
    match field(info, "maxmemory_policy") {
        Some("noeviction") => Ok(()),
        policy => refused(
            ErrorKind::Unfit,
            format!(
                "may drop receipts when its memory is full (maxmemory-policy is {}), and their intents would run again; set maxmemory-policy to noeviction, or use a server of its own",
                policy.unwrap_or("not known")
            ),
        ),
    }
}

/// A field of the answer to INFO.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// What the answer to `CONFIG GET *append*` says: names and values in turn.
fn durability(config: &[String]) -> Durability {
    let value = |name: &str| {
        let (pairs, _) = config.as_chunks::<2>();
        pairs.iter().find(|[named, _]| named == name).map(|[_, value]| value.as_str())
    };
    match (value("appendonly"), value("appendfsync"), value("no-appendfsync-on-rewrite")) {
        (None, _, _) | (_, None, _) => Durability::NotSaid,
        (Some("yes"), Some("always"), Some("no")) => Durability::Always,
        (Some("yes"), Some("always"), _) => Durability::NotDuringRewrites,
        (Some("yes"), Some(policy), _) => Durability::Syncs(policy.to_owned()),
        _ => Durability::NoLog,
    }
}

#[cfg(test)]
#[path = "server_check_test.rs"]
mod tests;
