//! The names of the HTTP header fields of the protocol.

use http::{HeaderMap, HeaderName};

/// The caller's token for one intent.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Until when a retry gets the same answer.
pub const IDEMPOTENCY_EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
/// Present, and `true`, on an answer that comes from a receipt.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Present on an answer to a guarded request that was passed on without a guard, and why.
pub const ONCEWARD_UNGUARDED: HeaderName = HeaderName::from_static("onceward-unguarded");
/// Present, and `not-yet`, on an answer whose receipt could not be written yet, because the store was away.
pub const ONCEWARD_RECORDED: HeaderName = HeaderName::from_static("onceward-recorded");
/// To the service: grows with every takeover of an intent. A service can refuse an older one with 412.
pub const ONCEWARD_FENCE: HeaderName = HeaderName::from_static("onceward-fence");
/// To the service: which try of an intent this is.
pub const ONCEWARD_ATTEMPT: HeaderName = HeaderName::from_static("onceward-attempt");
/// From the service, when it is asked what became of an intent: the status that its answer had.
pub const ONCEWARD_STATUS: HeaderName = HeaderName::from_static("onceward-status");
/// From a client, on an undo: key and operation of the request that it undoes, which is closed before the undo runs.
pub const ONCEWARD_CLOSES: HeaderName = HeaderName::from_static("onceward-closes");
/// To the service, on an undo with `Onceward-Closes`: what was found of the other request. `absent` or `waiting`: it has
/// not run, and never will; `done`: it has run; `closed`: it was closed before. Set on every undo of a route that closes.
pub const ONCEWARD_FOUND: HeaderName = HeaderName::from_static("onceward-found");
/// Whether only Onceward itself may say this of an answer. A service that does is not believed.
pub(crate) fn is_ours(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("onceward-") || name == "idempotent-replayed" || name == "idempotency-expires"
}

/// From a client: the number of this try, from 1, so that a server under load can shed retries first.
pub const ONCEWARD_TRY: HeaderName = HeaderName::from_static("onceward-try");

/// Whether an answer has this field. An answer has few: comparing their names is cheaper than hashing this one.
pub(crate) fn has(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.keys().any(|own| own == name)
}
