//! What an error of Redis or of the connection means: its kind, what to do, and whether the write may have happened.

use onceward::{Error, ErrorKind};
use redis::{ErrorKind as CauseKind, RedisError, Value};

/// Whether a call could have changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEffect {
    Reads,
    Writes,
}

/// A call failed on `server`. What the server refused was not done, unless it refused a part of a running script;
/// without its answer that is unknown.
pub(super) fn failed(server: &str, call: CallEffect, error: RedisError) -> Error {
    let text = text(&error);
    match explain(&text) {
        Some((kind, advice)) => {
            let fault = Error::new(kind, format!("{server}: {advice}")).caused_by(error);
            let in_script = text.contains("user_script");
            if call == CallEffect::Writes && in_script { fault.maybe_applied() } else { fault }
        }
        None => {
            let fault = if error.is_timeout() {
                Error::new(ErrorKind::Unavailable, format!("{server} did not answer in time"))
            } else {
                Error::new(ErrorKind::Unavailable, format!("the connection to {server} failed"))
                    .caused_by(error)
            };
            if call == CallEffect::Writes { fault.maybe_applied() } else { fault }
        }
    }
}

/// There is no connection to `server`; nothing was sent.
pub(super) fn unconnected(server: &str, error: RedisError) -> Error {
    if let Some((kind, advice)) = explain(&text(&error)) {
        return Error::new(kind, format!("{server}: {advice}")).caused_by(error);
    }
    if error.kind() == CauseKind::AuthenticationFailed {
        let detail =
            format!("{server} does not let this user in; correct the user or the password in the address");
        return Error::new(ErrorKind::Invalid, detail).caused_by(error);
    }
    let detail = if error.is_timeout() {
        format!("no connection to {server} in time; is it reachable?")
    } else if error.to_string().contains("certificate") {
        format!("cannot connect to {server}")
    } else {
        format!("cannot reach {server}")
    };
    Error::new(ErrorKind::Unavailable, detail).caused_by(error)
}

/// What the server said, with its code in front; empty if it said nothing.
fn text(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), detail) => format!("{code} {}", detail.unwrap_or_default()),
        (None, _) => String::new(),
    }
}

/// The error for one id whose part of a script failed with this message of the server. Nothing of it was written.
pub(super) fn failed_in_script(server: &str, message: &str) -> Option<Error> {
    let (kind, advice) = explain(message)?;
    Some(Error::new(kind, format!("{server}: {advice}: {message}")))
}

/// Whether a part of a script failed because its server only reads: it was the primary a moment ago.
pub(super) fn has_read_only(answer: &Value) -> bool {
    let Value::Array(parts) = answer else { return false };
    parts.iter().any(|part| match part {
        Value::Array(part) => matches!(&part[..], [Value::BulkString(mark), Value::BulkString(message)]
            if mark == b"!" && message.starts_with(b"READONLY")),
        _ => false,
    })
}

/// The meaning of an error that the server answered, and advice for the operator. `None` if it answered nothing.
fn explain(message: &str) -> Option<(ErrorKind, &'static str)> {
    let code = message.split(' ').next().unwrap_or_default();
    Some(match code {
        "" => return None,
        "OOM" => (ErrorKind::Full, "the server has no memory left (maxmemory); raise it, or remove keys"),
        "MISCONF" => (ErrorKind::Full, "the server cannot write to its disk; free some space, see its log"),
        "READONLY" => (
            ErrorKind::Unavailable,
            "this server is a replica and only reads; the address must lead to the primary",
        ),
        "NOREPLICAS" => {
            (ErrorKind::Unavailable, "the server has fewer replicas than min-replicas-to-write asks for")
        }
        "NOAUTH" | "WRONGPASS" => (
            ErrorKind::Invalid,
            "the server does not let this user in; correct the user or the password in the address",
        ),
        "NOPERM" => (
            ErrorKind::Invalid,
            "this user lacks a right; it needs EVALSHA, SCRIPT LOAD, INFO, PUBLISH and SUBSCRIBE, and all keys and channels under the prefix",
        ),
        "MOVED" | "ASK" | "CROSSSLOT" | "TRYAGAIN" => {
            (ErrorKind::Unavailable, "the cluster is being changed; try again")
        }
        "CLUSTERDOWN" | "MASTERDOWN" => {
            (ErrorKind::Unavailable, "the cluster cannot serve this key at the moment; see CLUSTER INFO")
        }
        "LOADING" => (ErrorKind::Unavailable, "the server is still loading its data; try again"),
        "BUSY" => (ErrorKind::Unavailable, "the server is busy with a script that does not end"),
        "NOSCRIPT" => (ErrorKind::Unavailable, "the server has forgotten our scripts; try again"),
        "WRONGTYPE" => (
            ErrorKind::Foreign,
            "a key under our prefix has a value of another type; remove it if nothing needs it, or use another prefix (`?prefix=…`)",
        ),
        "ERR" if message.contains("non local key") => {
            (ErrorKind::Unavailable, "the cluster is being changed; try again")
        }
        "ERR" if message.contains("DB index") => (
            ErrorKind::Invalid,
            "there is no database of this number; correct the end of the address, as in redis://host/0",
        ),
        "ERR" if message.contains("max number of clients") => {
            (ErrorKind::Unavailable, "the server has no connection left; raise maxclients")
        }
        _ => (ErrorKind::Unavailable, "the server refused a command"),
    })
}

#[cfg(test)]
#[path = "errors_test.rs"]
mod tests;
