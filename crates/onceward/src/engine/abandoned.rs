//! What was begun and left: receipts whose lease ended without a word from their owner.

use std::time::Duration;

use super::inner::Inner;
use crate::codec;
use crate::error::Result;
use crate::fingerprint::Fingerprint;
use crate::id::Id;
use crate::policy::OnUnknown;
use crate::receipt::{Fence, Held, Receipt, Status};
use crate::store::{Cursor, Due, Scan, ScanOf};

/// An intent whose owner fell silent.
#[derive(Clone, Debug)]
pub struct Abandoned {
    /// Which intent.
    pub id: Id,
    /// How long ago its lease ended.
    pub ago: Duration,
    /// What its owner agreed to: only under [`OnUnknown::Retry`] may it be gone on with. Under
    /// [`OnUnknown::Hold`] somebody has to settle it.
    pub on_unknown: OnUnknown,
    /// Which run it was.
    pub fence: Fence,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) receipt: Receipt,
}

impl Abandoned {
    /// What a receipt says of an owner that fell silent; `None` if it says no such thing.
    pub(crate) fn new(id: Id, receipt: Receipt) -> Option<Self> {
        match (receipt.due, &receipt.status) {
            (Due::Over(ago), &Status::Held(Held { claim, on_unknown })) => Some(Self {
                id,
                ago,
                on_unknown,
                fence: claim.fence,
                fingerprint: claim.fingerprint,
                receipt,
            }),
            _ => None,
        }
    }
}

/// One page of what was left behind.
#[derive(Clone, Debug, Default)]
pub struct AbandonedPage {
    /// The intents, the one that was left first coming first. Steps of others are among them; their
    /// operations have a `#`.
    pub found: Vec<Abandoned>,
    /// Receipts on this page that cannot be read.
    pub unreadable: usize,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}

pub(crate) async fn abandoned(inner: &Inner, after: Option<Cursor>, limit: usize) -> Result<AbandonedPage> {
    let scan = Scan { of: ScanOf::Due, after, limit: limit.max(1) };
    let page = inner.store.scan(&scan).await.inspect_err(|_| inner.counters.store_errors.one())?;
    let mut abandoned = AbandonedPage { next: page.next, ..AbandonedPage::default() };
    for (id, found) in page.found {
        match codec::decode(&found) {
            Ok(receipt) => abandoned.found.extend(Abandoned::new(id, receipt)),
            Err(error) => {
                abandoned.unreadable += 1;
                tracing::error!(?id, %error, "a receipt that is due cannot be read");
            }
        }
    }
    Ok(abandoned)
}
