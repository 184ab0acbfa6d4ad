//! The lines of the log about unknown outcomes and their settlements. An operator finds the receipt by them, so they name all of it, with
//! the key as a hash.

use crate::id::Id;
use crate::policy::{OnUnknown, Policy};
use crate::receipt::{Fence, Receipt, Status, UnknownReason};
use crate::transition::Finish;

/// A run has ended. Says nothing unless its outcome is unknown and waits to be settled.
pub(crate) fn ended(id: &Id, ending: &Finish, policy: &Policy) {
    if let Finish::Unknown(reason, note) = ending
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
    let (scope, operation, key) = (id.scope(), id.operation(), id.key_hash());
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

/// An unknown outcome was not settled in time.
pub(crate) fn given_up(id: &Id, status: &Status) {
    let (scope, operation, key) = (id.scope(), id.operation(), id.key_hash());
    tracing::warn!(scope, operation, %key, note = status.note(), "an unknown outcome that was not settled is dead now");
}

/// An outcome contradicts what somebody has settled about its run.
pub(crate) fn settled_otherwise(id: &Id, fence: Fence, found: &Receipt) {
    let (scope, operation, key, fence) = (id.scope(), id.operation(), id.key_hash(), fence.0);
    match &found.status {
        Status::Done(_) => tracing::error!(
            scope,
            operation,
            %key,
            fence,
            "a run was settled with another outcome than it had; the settlement is kept"
        ),
        Status::Held(_) => tracing::error!(
            scope,
            operation,
            %key,
            fence,
            "a run was settled as not done although it was; another run has begun, and its effect may happen twice"
        ),
        _ => tracing::error!(
            scope,
            operation,
            %key,
            fence,
            "a run was settled as not done although it was; its outcome is recorded, so that it is not run again"
        ),
    }
}

/// A previous owner reports an end that changes nothing.
pub(crate) fn too_late(id: &Id, fence: Fence) {
    let (scope, operation, key, fence) = (id.scope(), id.operation(), id.key_hash(), fence.0);
    tracing::warn!(scope, operation, %key, fence, "a previous owner came too late");
}
