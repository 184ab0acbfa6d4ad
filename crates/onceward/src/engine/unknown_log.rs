//! The lines of the log about unknown outcomes. An operator finds the receipt by them, so they name all of it, with
//! the key as a hash.

use crate::id::Id;
use crate::policy::{OnUnknown, Policy};
use crate::receipt::{Status, UnknownReason};
use crate::transition::Ending;

/// A run has ended. Says nothing unless its outcome is unknown and waits to be settled.
pub(crate) fn ended(id: &Id, ending: &Ending, policy: &Policy) {
    if let Ending::Unknown(reason, note) = ending
        && policy.on_unknown() == OnUnknown::Hold
    {
        unknown(id, *reason, note);
    }
}

/// A lease has ended. Says nothing unless the outcome is unknown now.
pub(crate) fn lapsed(id: &Id, status: &Status) {
    if let Status::Unknown(unknown_now) = status {
        unknown(id, unknown_now.reason, status.note());
    }
}

fn unknown(id: &Id, reason: UnknownReason, note: &str) {
    let (scope, operation, key) = (id.scope(), id.operation(), key_hash(id.key()));
    let reason = reason.name();
    tracing::warn!(
        scope,
        operation,
        %key,
        reason,
        note,
        "an outcome is unknown: it may or may not have taken effect, and is not run again until it is settled"
    );
}

/// Nobody settled an unknown outcome in time.
pub(crate) fn given_up(id: &Id, status: &Status) {
    let (scope, operation, key) = (id.scope(), id.operation(), key_hash(id.key()));
    tracing::warn!(scope, operation, %key, note = status.note(), "an unknown outcome that nobody settled is dead now");
}

/// A key as it may stand in a log: enough to find the same one again, not enough to use it.
fn key_hash(key: &str) -> String {
    blake3::hash(key.as_bytes()).to_hex()[..12].to_owned()
}
