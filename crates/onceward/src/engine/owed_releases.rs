//! Releases claims of this process whose work never began, and retries until each is released. Until then, an ask in
//! this process treats such a claim as free.
//!
//! A claim whose answer was lost may still arrive after we have looked and found nothing, so it is looked for
//! during two leases after that.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::batched_load::load_batched;
use super::front::wake_watchers;
use super::group_commit::{SwapReply, Swapping, Urgency};
use super::inner::Inner;
use super::sealed::open_any;
use super::sync::Mutex;
use crate::error::{Applied, Result};
use crate::id::Id;
use crate::policy::Policy;
use crate::receipt::{Attempt, Claim, Fence, Receipt, Status};
use crate::runtime::Runtime;
use crate::store::{Seen, Swapped};
use crate::transition::{self, Finish};

/// The claims that must be released, by id.
pub(crate) struct OwedReleases {
    targets: Mutex<Targets>,
    releases_max: usize,
}

#[derive(Default)]
struct Targets {
    by_id: HashMap<Id, Vec<ReleaseTarget>>,
    /// How many there are, over all ids.
    count: usize,
}

/// Which claims of an id must be released: those of this attempt, except one under which work began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReleaseTarget {
    pub(crate) attempt: Attempt,
    pub(crate) began: Option<Fence>,
}

impl ReleaseTarget {
    fn is(self, claim: &Claim) -> bool {
        claim.attempt == self.attempt && Some(claim.fence) != self.began
    }
}

impl OwedReleases {
    pub(crate) fn new(releases_max: usize) -> Self {
        Self { targets: Mutex::new(Targets::default()), releases_max }
    }

    /// Whether a receipt is of a claim that must be released.
    pub(crate) fn has(&self, id: &Id, receipt: &Receipt) -> bool {
        let (Status::Held(_) | Status::Unknown(_)) = receipt.status else { return false };
        let Some(claim) = receipt.status.claim() else { return false };
        let Targets { by_id, .. } = &*self.targets.lock();
        !by_id.is_empty()
            && by_id.get(id).is_some_and(|targets| targets.iter().any(|target| target.is(claim)))
    }

    /// Adds one, unless there are too many.
    fn add(&self, id: &Id, target: ReleaseTarget) -> bool {
        let Targets { by_id, count } = &mut *self.targets.lock();
        if *count >= self.releases_max {
            return false;
        }
        *count += 1;
        by_id.entry(id.clone()).or_default().push(target);
        true
    }

    fn remove(&self, id: &Id, target: ReleaseTarget) {
        let Targets { by_id, count } = &mut *self.targets.lock();
        if let Some(all) = by_id.get_mut(id) {
            // One of them, if there are several: each is removed by the task that releases it.
            if let Some(at) = all.iter().position(|other| *other == target) {
                all.swap_remove(at);
                *count -= 1;
            }
            if all.is_empty() {
                by_id.remove(id);
            }
        }
    }
}

/// Claims of one id that must be released.
pub(crate) struct OwedRelease {
    pub(crate) id: Id,
    pub(crate) target: ReleaseTarget,
    pub(crate) policy: Arc<Policy>,
}

/// Shortest and longest pause between two tries.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Releases a claim whose ask has ended: one that is still being written, or one that may be in the store
/// because its answer was lost. It counts as free from this call on.
pub(crate) fn release_in_background(
    inner: &Arc<Inner>,
    release: OwedRelease,
    claim: Option<Swapping>,
    claim_may_exist: bool,
) {
    if !inner.owed_releases.add(&release.id, release.target) {
        tracing::warn!(id = ?release.id, "too many claims must be released already; the lease of this one will expire");
        return;
    }
    // The engine is kept until the claim is answered and was released once: a caller that drops the last handle
    // leaves no claim in the store that others would wait for.
    let (strong, runtime) = (inner.clone(), inner.runtime.clone());
    inner.runtime.spawn(Box::pin(async move {
        let weak = Arc::downgrade(&strong);
        let before = if claim_may_exist { ClaimExists::MayArrive } else { ClaimExists::No };
        let exists = match claim {
            Some(claim) => before.max(claim_exists(&claim.await)),
            None => before,
        };
        if exists == ClaimExists::No {
            drop(strong);
        } else {
            release_until_gone(strong, &*runtime, &release, exists).await;
        }
        if let Some(inner) = weak.upgrade() {
            inner.owed_releases.remove(&release.id, release.target);
        }
    }));
}

/// Whether a claim is in the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ClaimExists {
    No,
    /// It was: if it is not found any more, it was released or taken over.
    Yes,
    /// Its answer was lost: it may be in the store, or still arrive.
    MayArrive,
}

fn claim_exists(reply: &SwapReply) -> ClaimExists {
    match &reply.result {
        Ok(Swapped::Won(_)) => ClaimExists::Yes,
        Ok(Swapped::Lost(_)) => ClaimExists::No,
        Ok(Swapped::Failed(error)) | Err(error) => match error.applied() {
            Applied::Maybe => ClaimExists::MayArrive,
            Applied::No => ClaimExists::No,
        },
    }
}

/// Tries until the claim is certainly not in the store, or the engine is dropped. Between tries it does not keep the
/// engine alive.
async fn release_until_gone(
    inner: Arc<Inner>,
    runtime: &dyn Runtime,
    release: &OwedRelease,
    exists: ClaimExists,
) {
    let (weak, mut first) = (Arc::downgrade(&inner), Some(inner));
    let lease = release.policy.lease();
    // A write that was lost on the way may arrive late, but not long after its caller has timed out.
    let looked_for_until = runtime.now() + lease * 2;
    let mut pause = PAUSE_MIN;
    let is_certain = exists != ClaimExists::MayArrive;
    loop {
        let Some(inner) = first.take().or_else(|| weak.upgrade()) else { return };
        // What a look finds was so when it was sent; its answer may be late.
        let looked_at = runtime.now();
        let pause_max = match release_once(&inner, release).await {
            Ok(Released::Yes | Released::NotFound) if is_certain || looked_at >= looked_for_until => return,
            // Nobody waits for the next look: an ask in this process meanwhile finds the claim free. (The answers to
            // two claims of one attempt may have been lost, so the one that is released is not always the last.)
            Ok(Released::Yes | Released::NotFound) => (lease / 4).max(PAUSE_MAX),
            Ok(Released::Changed) => PAUSE_MIN,
            Err(error) => {
                if pause == PAUSE_MIN {
                    tracing::warn!(id = ?release.id, %error, "a claim could not be released, retrying");
                }
                PAUSE_MAX
            }
        };
        drop(inner);
        runtime.sleep(pause).await;
        pause = (pause * 2).min(pause_max);
    }
}

enum Released {
    Yes,
    NotFound,
    /// It was there, and changed while it was released.
    Changed,
}

async fn release_once(inner: &Arc<Inner>, release: &OwedRelease) -> Result<Released> {
    let found = open_any(load_batched(inner, &release.id).await?.as_ref())?;
    let Some(receipt) = found.filter(|receipt| is_the_claim(receipt, release)) else {
        return Ok(Released::NotFound);
    };
    let run = transition::run_of(&receipt.status).expect("held and unknown receipts have a run");
    // A try that never began does not count.
    let write = transition::end(&release.id, &run, &Finish::Suspend(Duration::ZERO), &release.policy);
    let seen = Seen::Version(receipt.version);
    match inner.swap(&release.id, seen, write.as_ref(), Urgency::Required).await.result? {
        Swapped::Won(_) => {
            inner.counters.releases.one();
            wake_watchers(inner, &release.id);
            Ok(Released::Yes)
        }
        Swapped::Lost(_) => Ok(Released::Changed),
        Swapped::Failed(error) => Err(error),
    }
}

fn is_the_claim(receipt: &Receipt, release: &OwedRelease) -> bool {
    matches!(receipt.status, Status::Held(_) | Status::Unknown(_))
        && receipt.status.claim().is_some_and(|claim| release.target.is(claim))
}

#[cfg(test)]
#[path = "owed_releases_test.rs"]
mod tests;
