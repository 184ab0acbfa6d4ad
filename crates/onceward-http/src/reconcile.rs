//! Reconciles unknown outcomes: asks the service whether the effect happened, and settles the receipt.
//!
//! ```text
//! ask ─▶ unknown ─▶ 409 with Retry-After, and in the background one question per intent
//!                      Happened ─▶ settled as done ─▶ the next try gets the replay
//!                      DidNotHappen ─▶ settled as not done ─▶ the next try runs
//!                        (not before what was sent can no longer take effect: Policy::late_effect_max)
//!                      NotYet, Failed ─▶ nothing changes; the next try asks again
//! ```

use std::collections::HashSet;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use onceward::receipt::Status;
use onceward::{Changed, ErrorKind, Fence, Id, Result, Settlement};

use crate::layer::LayerState;
use crate::oldest_receipt;
use crate::response_outcome;

/// The timeout of one question. It is repeated when the next request for the intent arrives.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Finds out what became of an intent whose outcome is unknown, usually by asking the service.
pub trait Reconcile: Send + Sync + 'static {
    /// Asked once at a time for each intent. It may be dropped at any time and asked again.
    fn reconcile(&self, unknown: UnknownRequest) -> Pin<Box<dyn Future<Output = Reconciled> + Send + '_>>;
}

/// An intent whose outcome is unknown, and the request that asked for it again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnknownRequest {
    /// Which intent.
    pub id: Id,
    /// The id that the run's child keys are derived from. It is another one only while secrets are rotated, when an
    /// intent has several.
    pub child_keys_of: Id,
    /// The run whose outcome is unknown.
    pub fence: Fence,
    /// The head of the request that found the outcome unknown: same key, same content as the first one.
    pub request: Parts,
}

/// The result of a reconciliation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reconciled {
    /// It happened, and this is its answer from now on.
    Happened(Response<Bytes>),
    /// It did not happen, and no longer can: the next try runs. Only for a service that will not act on a
    /// delayed copy of the first request, or that refuses its fence.
    DidNotHappen,
    /// It may still happen.
    NotYet,
    /// It could not be found out, and why.
    Failed(String),
}

/// A hook, and the intents that it is reconciling.
pub(crate) struct Reconciler {
    hook: Box<dyn Reconcile>,
    busy: Mutex<HashSet<Id>>,
}

impl Reconciler {
    pub(crate) fn new(hook: impl Reconcile) -> Self {
        Self { hook: Box::new(hook), busy: Mutex::default() }
    }

    fn begin(self: &Arc<Self>, id: &Id) -> Option<ReconcileGuard> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.insert(id.clone()).then(|| ReconcileGuard { reconciler: self.clone(), id: id.clone() })
    }
}

impl fmt::Debug for Reconciler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reconciler")
    }
}

/// Keeps a second question about the same intent from being asked at the same time.
struct ReconcileGuard {
    reconciler: Arc<Reconciler>,
    id: Id,
}

impl Drop for ReconcileGuard {
    fn drop(&mut self) {
        self.reconciler.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// Starts to reconcile an intent in a task of its own, unless that is in progress already.
///
/// `ids` are all ids of the intent.
pub(crate) fn start(
    shared: &Arc<LayerState>,
    reconciler: &Arc<Reconciler>,
    id: &Id,
    ids: &Arc<[Id]>,
    request: &Parts,
) {
    let Some(guard) = reconciler.begin(id) else { return };
    shared.metrics.reconciles.one();
    let (shared_there, ids, request) = (shared.clone(), ids.clone(), request.clone());
    shared.onceward.spawn(Box::pin(async move {
        if let Err(error) = settle(&shared_there, &guard, &ids, request).await {
            tracing::warn!(id = ?guard.id, %error, "an unknown outcome could not be settled");
        }
    }));
}

async fn settle(shared: &LayerState, guard: &ReconcileGuard, ids: &[Id], request: Parts) -> Result<()> {
    let ReconcileGuard { reconciler, id } = guard;
    let Some(receipt) = shared.onceward.receipt(id).await? else { return Ok(()) };
    let Status::Unknown(unknown) = receipt.status else { return Ok(()) };
    let fence = unknown.claim.fence;
    let child_keys_of = match ids {
        [_] => id,
        ids => oldest_receipt::find(&shared.onceward, ids).await?.unwrap_or(id),
    };
    let child_keys_of = child_keys_of.clone();
    let asking = reconciler.hook.reconcile(UnknownRequest { id: id.clone(), child_keys_of, fence, request });
    let settlement = match tokio::time::timeout(ANSWER_MAX, asking).await {
        Ok(Reconciled::Happened(response)) => {
            Settlement::Done(response_outcome::outcome(&shared.route, &response))
        }
        Ok(Reconciled::DidNotHappen) => Settlement::NotDone,
        Ok(Reconciled::NotYet) => return Ok(()),
        Ok(Reconciled::Failed(why)) => {
            tracing::warn!(?id, why, "an unknown outcome could not be reconciled");
            return Ok(());
        }
        Err(_) => {
            tracing::warn!(?id, "the hook that reconciles an unknown outcome timed out");
            return Ok(());
        }
    };
    // With the fence that was asked about: if the receipt was settled meanwhile, nothing changes.
    let settled = match shared.onceward.settle(id, fence, &settlement, &shared.route.policy).await {
        Err(error) if error.kind() == ErrorKind::Conflict => {
            tracing::info!(?id, fence = fence.0, %error, "it is too early to settle an unknown outcome as not done");
            return Ok(());
        }
        settled => settled?,
    };
    match settled {
        Changed::Applied => {
            tracing::info!(?id, fence = fence.0, ?settlement, "an unknown outcome was settled");
        }
        Changed::NotOwner(_) => {
            tracing::info!(?id, fence = fence.0, "an unknown outcome had been settled already");
        }
    }
    Ok(())
}
