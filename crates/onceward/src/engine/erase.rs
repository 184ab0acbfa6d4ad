//! Erases receipts: removes what was said, one receipt with its steps, or all that match.

use std::pin::Pin;

use super::group_commit::Urgency;
use super::inner::Inner;
use super::sealed::{open, open_any};
use super::ticket::Changed;
use crate::error::{Error, Result};
use crate::id::Id;
use crate::receipt::Receipt;
use crate::store::{Cursor, Filter, Scan, ScanTarget, Seen, Swapped};
use crate::transition::{self, Erase, Erasure};

/// Steps read at once.
const STEPS_PAGE: usize = 256;

/// The result of erasing one page of matching receipts.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ErasedPage {
    /// The intents that say nothing any more, with their steps.
    pub erased: Vec<Id>,
    /// Those that were left as they are, and why: they are running, wait to be run, or cannot be read.
    pub refused: Vec<(Id, Error)>,
    /// Where to continue; `None` at the end.
    pub next: Option<Cursor>,
}

/// Erases one receipt and those of its steps.
pub(crate) async fn erase(inner: &Inner, id: &Id, how: &Erase) -> Result<Changed> {
    let Some(found) = inner.load(id).await? else { return Ok(Changed::NotOwner(None)) };
    // Refused before its steps are touched.
    let erasure = transition::erase(&found, how)?;
    // The steps go first: a run that begins when a key is free must not find them, nor lose its own to this.
    erase_steps(inner, id, how).await?;
    let changed = apply(inner, id, &found, erasure).await;
    forget(inner, id).await;
    changed
}

/// Erases one page of the receipts that match. A step goes with its intent; by itself only if that is gone.
pub(crate) async fn erase_matching(
    inner: &Inner,
    filter: &Filter,
    how: &Erase,
    after: Option<Cursor>,
    limit: usize,
) -> Result<ErasedPage> {
    let scan = Scan::new(ScanTarget::Matching(filter.clone()), limit.max(1)).with_after(after);
    let page = inner.scan(&scan).await?;
    let mut erased = ErasedPage { next: page.next, refused: page.unreadable, ..ErasedPage::default() };
    for (id, _) in page.found {
        if let Some(parent) = id.parent()
            && inner.load(&parent).await?.is_some()
        {
            continue;
        }
        match erase(inner, &id, how).await {
            Ok(Changed::Applied) => erased.erased.push(id),
            // Gone meanwhile.
            Ok(Changed::NotOwner(None)) => {}
            Ok(Changed::NotOwner(Some(_))) => erased.refused.push((id, changed_meanwhile())),
            Err(error) if error.kind() == crate::ErrorKind::Unavailable => return Err(error),
            Err(error) => erased.refused.push((id, error)),
        }
    }
    Ok(erased)
}

pub(super) fn erase_steps<'a>(
    inner: &'a Inner,
    parent: &'a Id,
    how: &'a Erase,
) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>> {
    Box::pin(async move {
        let mut after = None;
        loop {
            let scan = Scan::new(ScanTarget::StepsOf(parent.clone()), STEPS_PAGE).with_after(after);
            let page = inner.scan(&scan).await?;
            if let Some((_, error)) = page.unreadable.into_iter().next() {
                return Err(error);
            }
            for (id, found) in page.found {
                let found = open(&found)?;
                let erasure = transition::erase_step(&found, how)?;
                erase_steps(inner, &id, how).await?;
                if let Changed::NotOwner(Some(_)) = apply(inner, &id, &found, erasure).await? {
                    return Err(changed_meanwhile());
                }
                forget(inner, &id).await;
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    })
}

/// Removes what this process and the front keep of a receipt. What others read before is gone everywhere when it is as old
/// as such a copy may get.
async fn forget(inner: &Inner, id: &Id) {
    inner.cache.forget(id);
    if let Some(front) = inner.front.as_ref().filter(|_| !id.is_step()) {
        front.remove(inner, id).await;
    }
}

async fn apply(inner: &Inner, id: &Id, found: &Receipt, erasure: Erasure) -> Result<Changed> {
    let write = match &erasure {
        Erasure::Write(write) => Some(write),
        Erasure::Remove => None,
        Erasure::Nothing => return Ok(Changed::Applied),
    };
    match inner.swap(id, Seen::Version(found.version), write, Urgency::Required).await.result? {
        Swapped::Won(_) => {
            inner.counters.erased.one();
            inner.poller.look_now();
            Ok(Changed::Applied)
        }
        Swapped::Lost(now) => Ok(Changed::NotOwner(open_any(now.as_ref())?)),
        Swapped::Failed(error) => Err(error),
    }
}

fn changed_meanwhile() -> Error {
    Error::new(crate::ErrorKind::Conflict, "it changed meanwhile; erase it again")
}
