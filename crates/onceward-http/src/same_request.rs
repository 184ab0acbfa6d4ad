//! Finds clients that make a new key for every try: the same request of the same caller under another key, within a
//! window. And, counted only, the same request under another scope: credentials that were refreshed between two tries.
//!
//! ```text
//! one short-lived record per request     scope · "onceward/same-request" · digest of the request
//!   its fingerprint                      that of the key: `KeyReused` is the finding
//!   its body                             the key, to see whether the first one was freed meanwhile
//!   its retention                        the window
//!
//! where the key that a record names was freed meanwhile, the next key leaves one behind it:
//!   digest ─▶ "key-1", freed ─▶ digest(digest, "key-1") ─▶ "key-2"
//! ```
//!
//! This is a check of clients, not a guarantee: what it cannot find out within a second it lets pass.

use std::sync::Arc;
use std::time::Duration;

use onceward::receipt::Status;
use onceward::{
    Answer, Ask, Completed, Error, ErrorKind, Fingerprint, Id, OnDuplicate, OnUnknown, Onceward, Outcome,
    Policy, Refusal, Result, Retention,
};
use tokio::time::timeout;

use crate::fingerprint::Caller;
use crate::layer::LayerState;
use crate::problem::Problem;

const OPERATION: &str = "onceward/same-request";
/// No caller has this scope: theirs are hashes, or `anonymous` or `shared`.
const ACROSS_SCOPES: &str = "onceward";
/// A record is written at once, or its writer has died.
const LEASE: Duration = Duration::from_secs(5);
/// For one look, with all its rounds: a request that runs may wait for it.
const WAIT: Duration = Duration::from_secs(1);
/// The number of freed keys that are followed. A request with more of them in its window is not looked at further.
const FREED_MAX: usize = 32;
const WINDOW_MAX: Duration = Duration::from_hours(24);

/// The treatment of the same request under another key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnSameRequest {
    /// It runs, and is counted.
    #[default]
    Count,
    /// It is refused with `same-request-other-key`, unless the first one has freed its key.
    Refuse,
}

impl OnSameRequest {
    /// The name, as it is in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Refuse => "refuse",
        }
    }
}

/// The window in which the same request under another key is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SameRequest {
    window: Duration,
    on_found: OnSameRequest,
}

impl SameRequest {
    /// Counts the same request under another key within this window.
    pub fn within(window: Duration) -> Self {
        Self { window, on_found: OnSameRequest::Count }
    }

    /// Sets what becomes of it.
    pub fn with_on_found(mut self, on_found: OnSameRequest) -> Self {
        self.on_found = on_found;
        self
    }

    /// The window.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// The consequence.
    pub fn on_found(&self) -> OnSameRequest {
        self.on_found
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.window < Duration::from_secs(1) || self.window > WINDOW_MAX {
            let detail = format!(
                "a window of {:?} for the same request is not from 1 second to 24 hours",
                self.window
            );
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        Ok(())
    }
}

/// One request that is about to run.
#[derive(Clone)]
pub(crate) struct AboutToRun {
    pub(crate) id: Id,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) caller: Caller,
}

/// Looks for the same request under another key and another scope, and leaves a record for the next one. Waits for it only
/// where it can refuse.
pub(crate) async fn find_other_key(
    shared: &Arc<LayerState>,
    rule: SameRequest,
    request: AboutToRun,
) -> std::result::Result<(), Problem> {
    match rule.on_found {
        OnSameRequest::Count => {
            let shared_there = shared.clone();
            shared.onceward.spawn(Box::pin(async move {
                let _ = other_key(&shared_there, rule, &request).await;
                other_scope(&shared_there, rule, &request).await;
            }));
            Ok(())
        }
        OnSameRequest::Refuse => {
            let found = other_key(shared, rule, &request).await;
            let shared_there = shared.clone();
            shared.onceward.spawn(Box::pin(async move {
                other_scope(&shared_there, rule, &request).await;
            }));
            if found { Err(Problem::SameRequestOtherKey) } else { Ok(()) }
        }
    }
}

/// Whether the same request of this caller is known under another key that was not freed.
async fn other_key(shared: &LayerState, rule: SameRequest, request: &AboutToRun) -> bool {
    let look = is_known_under_another_key(&shared.onceward, rule.window, request);
    if !timeout(WAIT, look).await.unwrap_or(false) {
        return false;
    }
    shared.metrics.same_request_other_key.one();
    let id = &request.id;
    let key = id.key_hash();
    let (scope, operation) = (id.scope(), id.operation());
    tracing::info!(scope, operation, key, "the same request came under another key within the window");
    true
}

/// Follows the records of this request, and leaves one behind the last that names a freed key.
async fn is_known_under_another_key(onceward: &Onceward, window: Duration, request: &AboutToRun) -> bool {
    let AboutToRun { id, fingerprint, .. } = request;
    let mut at = *fingerprint.digest();
    // The key that the record in front names, which was freed.
    let mut freed: Option<String> = None;
    let mut has_record = false;
    for _ in 0..FREED_MAX {
        let Some(record) = record_id(id.scope(), &at) else { return false };
        let named = if has_record {
            named_by(onceward, &record).await
        } else {
            match leave(onceward, window, &record, id.key()).await {
                Left::Now => {
                    // The freed key may have come back meanwhile: it claims before it looks, so one of the two sees the other.
                    return match freed {
                        Some(freed) => !is_free(onceward, id, &freed).await,
                        None => false,
                    };
                }
                Left::Before => Named::Key(id.key().to_owned()),
                Left::ByAnother(named) => named,
                Left::NotKnown => return false,
            }
        };
        let key = match named {
            Named::Key(key) => key,
            // Its window is over, or its writer has died.
            Named::Nothing | Named::Abandoned(_) => return false,
            Named::BeingWritten => return true,
        };
        if key == id.key() {
            // Ours was freed and comes again: another key may have come in between.
            has_record = true;
        } else if !is_free(onceward, id, &key).await {
            return true;
        }
        at = record_behind(&at, &key);
        freed = Some(key);
    }
    false
}

/// Counts the same request under another scope. A caller without a name may be any caller.
async fn other_scope(shared: &LayerState, rule: SameRequest, request: &AboutToRun) {
    let AboutToRun { id, fingerprint, caller } = request;
    if *caller != Caller::Named {
        return;
    }
    let Some(record) = record_id(ACROSS_SCOPES, fingerprint.digest()) else { return };
    let left = timeout(WAIT, leave(&shared.onceward, rule.window, &record, id.scope())).await;
    if let Ok(Left::ByAnother(Named::Key(_) | Named::BeingWritten)) = left {
        shared.metrics.same_request_other_scope.one();
    }
}

/// The place of the record behind one that names this key. Records are never replaced: of two requests that find the same
/// freed key, one leaves the record behind it, and the other finds it.
fn record_behind(at: &[u8; 32], key: &str) -> [u8; 32] {
    *blake3::keyed_hash(at, key.as_bytes()).as_bytes()
}

fn record_id(scope: &str, at: &[u8; 32]) -> Option<Id> {
    Id::new(scope, OPERATION, &blake3::Hash::from_bytes(*at).to_hex()).ok()
}

/// Whose record it is.
enum Left {
    /// This request, now.
    Now,
    /// One that says the same, before.
    Before,
    /// Another one, and what it says.
    ByAnother(Named),
    /// It could not be found out in time.
    NotKnown,
}

/// Leaves the record, unless there is one. One whose writer has died is taken over: it would be in the way of the next
/// ones for days, and say nothing.
async fn leave(onceward: &Onceward, window: Duration, record: &Id, says: &str) -> Left {
    let policy = Policy::http()
        .to_builder()
        .with_lease(LEASE)
        .with_on_duplicate(OnDuplicate::Wait(WAIT))
        .with_on_unknown(OnUnknown::Retry)
        .with_retention(Retention::For(window))
        .build();
    let Ok(policy) = policy else { return Left::NotKnown };
    let mut ask = Ask::new(record.clone(), Fingerprint::of(says.as_bytes()), policy);
    // The second round is for a record that is taken over.
    for _ in 0..2 {
        let outcome = Outcome::succeeded(says.to_owned());
        match onceward.run(ask.clone(), async |_| Ok(outcome)).await {
            Ok(Answer::Completed(Completed { replayed: false, .. })) => return Left::Now,
            // The key of a writer that died may have come again first: what was to be taken over is then its record.
            Ok(Answer::Completed(Completed { outcome, .. })) => {
                return match text(&outcome) {
                    Some(key) if key != says => Left::ByAnother(Named::Key(key.to_owned())),
                    _ => Left::Before,
                };
            }
            Ok(Answer::Refused(Refusal::KeyReused)) => match named_by(onceward, record).await {
                // Described by its fingerprint too, this ask may take over its lease.
                Named::Abandoned(fingerprint) => ask = ask.with_older_fingerprints([fingerprint]),
                named => return Left::ByAnother(named),
            },
            Ok(_) | Err(_) => return Left::NotKnown,
        }
    }
    Left::NotKnown
}

/// What a record says.
enum Named {
    Key(String),
    Nothing,
    BeingWritten,
    /// Its writer has died before it said anything. This is the fingerprint of its claim.
    Abandoned(Fingerprint),
}

async fn named_by(onceward: &Onceward, record: &Id) -> Named {
    let Ok(Some(receipt)) = onceward.receipt(record).await else { return Named::Nothing };
    let over = receipt.due.is_over();
    match &receipt.status {
        Status::Held(held) if over => Named::Abandoned(held.claim.fingerprint),
        Status::Held(_) => Named::BeingWritten,
        _ if over => Named::Nothing,
        status => {
            let key = status.outcome().and_then(text);
            key.map_or(Named::Nothing, |key| Named::Key(key.to_owned()))
        }
    }
}

fn text(outcome: &Outcome) -> Option<&str> {
    std::str::from_utf8(outcome.body()).ok()
}

/// Whether a key of this caller stands for nothing: it had no effect, and its outcome is not unknown.
async fn is_free(onceward: &Onceward, id: &Id, key: &str) -> bool {
    let Ok(id) = Id::new(id.scope(), id.operation(), key) else { return false };
    matches!(onceward.receipt(&id).await, Ok(None))
}
