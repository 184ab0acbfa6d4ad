//! Steps of a previous life of an intent: those that were recorded before its retention ended. A new run must not find
//! them.
//!
//! They are removed before an expired receipt is claimed or enqueued again, and by the sweep before it removes their
//! intent. One whose own retention ends later stays until then; if the key was used again meanwhile, the step no longer
//! counts from that moment on.

use super::inner::Inner;
use super::sealed::seal;
use crate::error::Result;
use crate::id::Id;
use crate::join::Join;
use crate::receipt::{Receipt, Status};
use crate::store::{Scan, ScanTarget, Seen, Swap, Swapped};
use crate::transition;

/// Steps that are looked at together when they are removed.
const STEPS_SLICE: usize = 256;

/// Whether this is a step that was recorded and is past its own retention. Such a step counts only for the life of the intent
/// that it was recorded in.
pub(crate) fn is_due_step(id: &Id, found: &Receipt) -> bool {
    found.due.is_over() && id.is_step() && matches!(found.status, Status::Done(_))
}

/// Whether a step was recorded before the receipt of its intent came to be: then it is of an earlier intent with the same
/// key, and a sweep has removed that one.
pub(crate) async fn is_of_previous_life(inner: &Inner, step: &Id, found: &Receipt) -> Result<bool> {
    let Some(parent) = step.parent() else { return Ok(false) };
    // Both in one call, so that their ages are of one moment.
    let mut loaded = inner.load_all(&[parent, step.clone()]).await?.into_iter();
    let (Some(parent), Some(now)) =
        (loaded.next().transpose()?.flatten(), loaded.next().transpose()?.flatten())
    else {
        // In a transaction the intent may be there although it cannot be seen from here.
        return Ok(false);
    };
    // (What a process's own clock says may be ahead or behind: if it is not certain, the step counts.)
    let is_older = now.age.updated > parent.age.created + inner.clock_margin;
    Ok(now.version == found.version && is_older)
}

/// Removes the recorded steps of an intent whose retention has ended, before it is claimed again: the next run must
/// not find the steps of this one. A step without an outcome stays: what is known of it still counts.
pub(crate) async fn forget_steps(inner: &Inner, of: &Id, found: &Receipt) -> Result<()> {
    let mut steps = FormerSteps::new(of);
    while let Some(removals) = steps.next(inner, found).await? {
        for removal in inner.group_commit.swap_all(removals) {
            // One that was removed or replaced meanwhile is not of the former run any more.
            if let Swapped::Failed(error) = removal.await.result? {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// The same through a transaction that the caller holds: the steps go when it commits.
pub(crate) async fn forget_steps_in<J: Join + ?Sized>(
    inner: &Inner,
    tx: &mut J,
    of: &Id,
    found: &Receipt,
) -> Result<()> {
    let mut steps = FormerSteps::new(of);
    while let Some(removals) = steps.next(inner, found).await? {
        for removed in tx.swap(&removals).await? {
            if let Swapped::Failed(error) = removed {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// The recorded steps of an intent whose retention has ended, and theirs, slice by slice.
struct FormerSteps {
    parents: Vec<Id>,
    scan: Option<Scan>,
}

impl FormerSteps {
    fn new(of: &Id) -> Self {
        Self { parents: vec![of.clone()], scan: None }
    }

    /// The removals of the next slice; `None` at the end.
    async fn next(&mut self, inner: &Inner, found: &Receipt) -> Result<Option<Vec<Swap>>> {
        let scan = match (self.scan.take(), self.parents.pop()) {
            (Some(scan), parent) => {
                self.parents.extend(parent);
                scan
            }
            (None, Some(parent)) => Scan::new(ScanTarget::StepsOf(parent), STEPS_SLICE),
            (None, None) => return Ok(None),
        };
        let page = inner.scan(&scan).await?;
        let former = page.found.into_iter().filter(|(_, step)| transition::is_of_former_run(step, found));
        let removals = former.map(|(id, step)| {
            self.parents.push(id.clone());
            seal(&id, Seen::Version(step.version), None)
        });
        let mut removals: Vec<Swap> = removals.collect();
        // A page has the order of the store's index; a batch is sorted by id.
        removals.sort_by(|a, b| a.id.cmp(&b.id));
        self.scan = page.next.map(|next| Scan { after: Some(next), ..scan });
        Ok(Some(removals))
    }
}
