//! Claims of this process whose work never began: they are to be given back, and that is insisted on. Until it
//! has happened, an ask here sees such a claim as free.
//!
//! A claim whose answer was lost may still arrive after we have looked and found nothing, so it is looked for
//! during two leases after that.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::group::{SwapReply, Swapping, Urgency};
use super::inner::Inner;
use super::sync::Mutex;
use crate::error::{Applied, Result};
use crate::id::Id;
use crate::policy::Policy;
use crate::receipt::{Attempt, Claim, Fence, Receipt, Status};
use crate::runtime::Runtime;
use crate::store::{Seen, Swapped};
use crate::transition::{self, Ending};

/// The claims that are owed back, by id.
pub(crate) struct Owed {
    by_id: Mutex<HashMap<Id, Vec<OwedClaim>>>,
    releases_max: usize,
}

/// Which claims of an id are owed back: those of this attempt, except one under which work began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwedClaim {
    pub(crate) attempt: Attempt,
    pub(crate) began: Option<Fence>,
}

impl OwedClaim {
    fn is(self, claim: &Claim) -> bool {
        claim.attempt == self.attempt && Some(claim.fence) != self.began
    }
}

impl Owed {
    pub(crate) fn new(releases_max: usize) -> Self {
        Self { by_id: Mutex::new(HashMap::new()), releases_max }
    }

    /// Whether a receipt speaks of a claim that is being given back.
    pub(crate) fn has(&self, id: &Id, receipt: &Receipt) -> bool {
        let (Status::Held(_) | Status::Unknown(_)) = receipt.status else { return false };
        let Some(claim) = receipt.status.claim() else { return false };
        let by_id = self.by_id.lock();
        !by_id.is_empty() && by_id.get(id).is_some_and(|owed| owed.iter().any(|owed| owed.is(claim)))
    }

    /// Remembers one, if there is room.
    fn add(&self, id: &Id, owed: OwedClaim) -> bool {
        let mut by_id = self.by_id.lock();
        if by_id.len() >= self.releases_max {
            return false;
        }
        by_id.entry(id.clone()).or_default().push(owed);
        true
    }

    fn remove(&self, id: &Id, owed: OwedClaim) {
        let mut by_id = self.by_id.lock();
        if let Some(all) = by_id.get_mut(id) {
            all.retain(|other| *other != owed);
            if all.is_empty() {
                by_id.remove(id);
            }
        }
    }
}

/// One claim that is owed back.
pub(crate) struct Debt {
    pub(crate) id: Id,
    pub(crate) owed: OwedClaim,
    pub(crate) policy: Arc<Policy>,
}

/// Shortest and longest pause between two tries.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Gives a claim back that an asker has left behind: one that is still being written, or one that may stand
/// because its answer was lost. Remembered from this call on, not from the first poll.
pub(crate) fn give_back(inner: &Arc<Inner>, debt: Debt, claim: Option<Swapping>, may_stand: bool) {
    if !inner.owed.add(&debt.id, debt.owed) {
        tracing::warn!(id = ?debt.id, "too many claims are owed back to the store; the lease of this one ends by itself");
        return;
    }
    // The engine is kept until the claim is answered and was given back once: a caller that goes away with the last
    // handle leaves no claim behind that others would wait for.
    let (strong, world) = (inner.clone(), inner.world.clone());
    inner.world.spawn(Box::pin(async move {
        let weak = Arc::downgrade(&strong);
        let before = if may_stand { Stands::MayArrive } else { Stands::No };
        let stands = match claim {
            Some(claim) => before.max(stands(&claim.await)),
            None => before,
        };
        if stands == Stands::No {
            drop(strong);
        } else {
            repay(strong, &*world, &debt, stands).await;
        }
        if let Some(inner) = weak.upgrade() {
            inner.owed.remove(&debt.id, debt.owed);
        }
    }));
}

/// Whether a claim stands in the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stands {
    No,
    /// It did: where it is not found any more, somebody has it.
    Yes,
    /// Its answer was lost: it may stand, or still arrive.
    MayArrive,
}

fn stands(reply: &SwapReply) -> Stands {
    match &reply.result {
        Ok(Swapped::Won(_)) => Stands::Yes,
        Ok(Swapped::Lost(_)) => Stands::No,
        Ok(Swapped::Failed(error)) | Err(error) => match error.applied() {
            Applied::Maybe => Stands::MayArrive,
            Applied::No => Stands::No,
        },
    }
}

/// Until the claim certainly does not stand, or the engine is gone. Between tries it does not keep the engine
/// alive.
async fn repay(inner: Arc<Inner>, world: &dyn Runtime, debt: &Debt, stands: Stands) {
    let (weak, mut first) = (Arc::downgrade(&inner), Some(inner));
    let lease = debt.policy.lease();
    // A write that was lost on the way may arrive late, but not long after everybody has given it up.
    let looked_for_until = world.now() + lease * 2;
    let mut pause = PAUSE_MIN;
    let is_certain = stands != Stands::MayArrive;
    loop {
        let Some(inner) = first.take().or_else(|| weak.upgrade()) else { return };
        // What a look finds was so when it was sent; its answer may be late.
        let looked_at = world.now();
        let pause_max = match give_back_once(&inner, debt).await {
            Ok(Given::Back | Given::NotThere) if is_certain || looked_at >= looked_for_until => return,
            // Nobody waits for the next look: who asks here meanwhile finds the claim free. (The answers to two
            // claims of one attempt may have been lost, so one that is given back is not always the last.)
            Ok(Given::Back | Given::NotThere) => (lease / 4).max(PAUSE_MAX),
            Ok(Given::Moved) => PAUSE_MIN,
            Err(error) => {
                if pause == PAUSE_MIN {
                    tracing::warn!(id = ?debt.id, %error, "a claim could not be given back, trying on");
                }
                PAUSE_MAX
            }
        };
        drop(inner);
        world.sleep(pause).await;
        pause = (pause * 2).min(pause_max);
    }
}

enum Given {
    Back,
    NotThere,
    /// It was there, and changed while it was given back.
    Moved,
}

async fn give_back_once(inner: &Inner, debt: &Debt) -> Result<Given> {
    let Some(receipt) = inner.load(&debt.id).await?.filter(|receipt| is_the_claim(receipt, debt)) else {
        return Ok(Given::NotThere);
    };
    let run = transition::run_of(&receipt.status).expect("held and unknown receipts have a run");
    // A try that never began does not count.
    let write = transition::end(&debt.id, &run, &Ending::Suspend(Duration::ZERO), &debt.policy);
    let seen = Seen::Version(receipt.version);
    match inner.swap(&debt.id, seen, write.as_ref(), Urgency::Must).await.result? {
        Swapped::Won(_) => {
            inner.counters.releases.one();
            inner.poller.look_now();
            Ok(Given::Back)
        }
        Swapped::Lost(_) => Ok(Given::Moved),
        Swapped::Failed(error) => Err(error),
    }
}

fn is_the_claim(receipt: &Receipt, debt: &Debt) -> bool {
    matches!(receipt.status, Status::Held(_) | Status::Unknown(_))
        && receipt.status.claim().is_some_and(|claim| debt.owed.is(claim))
}
