//! What an error of etcd or of the connection means: its kind, what to do, and whether the write may have happened.

use onceward::{Error, ErrorKind};

use super::api::Refusal;

/// Whether a call could have changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEffect {
    Reads,
    Writes,
}

/// gRPC's code for a caller that is not logged in.
const UNAUTHENTICATED: u32 = 16;

impl Refusal {
    pub(super) fn text(&self) -> &str {
        if self.message.is_empty() { &self.error } else { &self.message }
    }

    /// Whether the login has ended, and a new one helps. Nothing was done.
    pub(super) fn is_login_over(&self) -> bool {
        self.code == UNAUTHENTICATED || self.text().contains("invalid auth token")
    }
}

/// The server refused a call.
pub(super) fn refused(server: &str, call: CallEffect, refusal: &Refusal) -> Error {
    let text = refusal.text();
    let known = |kind, advice: &str| Error::new(kind, format!("{server}: {advice}: {text}"));
    if text.contains("database space exceeded") {
        let error = known(
            ErrorKind::Full,
            "etcd has used up its quota; compact and defragment it, clear the alarm, and set --auto-compaction-retention",
        );
        // The call that passes the quota is applied before it is refused.
        return if call == CallEffect::Writes { error.maybe_applied() } else { error };
    }
    // These are checked before anything is written.
    let (kind, advice) = match text {
        _ if text.contains("request is too large") => {
            (ErrorKind::Invalid, "the receipt is larger than this server takes (--max-request-bytes)")
        }
        _ if text.contains("too many operations") => {
            (ErrorKind::Unfit, "this server takes smaller transactions than usual; set --max-txn-ops to 128")
        }
        _ if text.contains("permission denied") => (
            ErrorKind::Invalid,
            "this user lacks a right; it needs to read and write all keys under the prefix",
        ),
        _ if text.contains("authentication failed") || text.contains("user name is empty") => {
            (ErrorKind::Invalid, "the server does not let this user in; correct the login in the address")
        }
        _ if refusal.is_login_over() => (ErrorKind::Invalid, "the login is not accepted any more"),
        _ if text.contains("too many requests") || text.contains("no leader") => {
            (ErrorKind::Unavailable, "the cluster takes no writes at the moment")
        }
        // "request timed out", "leader changed" and whatever else: it may have been written, or still be.
        _ => {
            let error = known(ErrorKind::Unavailable, "the server gave up on a call");
            return if call == CallEffect::Writes { error.maybe_applied() } else { error };
        }
    };
    known(kind, advice)
}

/// An answer that is none of etcd's.
pub(super) fn strange(server: &str, call: CallEffect) -> Error {
    let detail = format!(
        "what answers at {server} does not answer as etcd's JSON gateway does; is it etcd 3.4 or later, with --enable-grpc-gateway?"
    );
    let error = Error::new(ErrorKind::Unavailable, detail);
    if call == CallEffect::Writes { error.maybe_applied() } else { error }
}
