//! Ending doubts by asking the service: did it happen?
//!
//! ```text
//! ask ─▶ unknown ─▶ 409 with Retry-After, and beside it: one question per intent
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

use crate::layer::Shared;
use crate::recorded;

/// Longest answer to one question. It is asked again when somebody asks for the intent again.
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
    /// The run that is in doubt.
    pub fence: Fence,
    /// The head of the request that found the doubt: same key, same content as the first one.
    pub request: Parts,
}

/// What was found out.
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

/// A hook, and the intents that it is looking into.
pub(crate) struct Reconciler {
    hook: Box<dyn Reconcile>,
    busy: Mutex<HashSet<Id>>,
}

impl Reconciler {
    pub(crate) fn new(hook: impl Reconcile) -> Self {
        Self { hook: Box::new(hook), busy: Mutex::default() }
    }

    fn begin(self: &Arc<Self>, id: &Id) -> Option<Looking> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        busy.insert(id.clone()).then(|| Looking { reconciler: self.clone(), id: id.clone() })
    }
}

impl fmt::Debug for Reconciler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reconciler")
    }
}

/// The only one who looks into an intent now.
struct Looking {
    reconciler: Arc<Reconciler>,
    id: Id,
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.reconciler.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// Has the doubt about an intent looked into, beside everything else, unless that is being done already.
pub(crate) fn look_into(shared: &Arc<Shared>, reconciler: &Arc<Reconciler>, id: &Id, request: &Parts) {
    let Some(looking) = reconciler.begin(id) else { return };
    shared.metrics.reconciles.one();
    let (shared_there, request) = (shared.clone(), request.clone());
    shared.onceward.spawn(Box::pin(async move {
        if let Err(error) = settle(&shared_there, &looking, request).await {
            tracing::warn!(id = ?looking.id, %error, "a doubt could not be settled");
        }
    }));
}

async fn settle(shared: &Shared, looking: &Looking, request: Parts) -> Result<()> {
    let Looking { reconciler, id } = looking;
    let Some(receipt) = shared.onceward.receipt(id).await? else { return Ok(()) };
    let Status::Unknown(unknown) = receipt.status else { return Ok(()) };
    let fence = unknown.claim.fence;
    let asking = reconciler.hook.reconcile(UnknownRequest { id: id.clone(), fence, request });
    let settlement = match tokio::time::timeout(ANSWER_MAX, asking).await {
        Ok(Reconciled::Happened(response)) => Settlement::Done(recorded::outcome(&shared.route, &response)),
        Ok(Reconciled::DidNotHappen) => Settlement::NotDone,
        Ok(Reconciled::NotYet) => return Ok(()),
        Ok(Reconciled::Failed(why)) => {
            tracing::warn!(?id, why, "what became of an intent could not be found out");
            return Ok(());
        }
        Err(_) => {
            tracing::warn!(?id, "whoever was asked what became of an intent did not answer");
            return Ok(());
        }
    };
    // By the fence that was asked about: if another word came first, that one stands.
    let settled = match shared.onceward.settle(id, fence, &settlement, &shared.route.policy).await {
        Err(error) if error.kind() == ErrorKind::Conflict => {
            tracing::info!(?id, fence = fence.0, %error, "what was found out is not believed yet");
            return Ok(());
        }
        settled => settled?,
    };
    match settled {
        Changed::Applied => tracing::info!(?id, fence = fence.0, ?settlement, "a doubt was settled"),
        Changed::NotOwner(_) => tracing::info!(?id, fence = fence.0, "a doubt had ended already"),
    }
    Ok(())
}
