//! Which of an intent's ids its run belongs to, where it has several (while secrets are rotated, or under previous
//! terms): the one whose receipt was created first. That does not depend on which secret is in front: child keys, steps
//! and fences of a retry are those of the earlier run.

use onceward::receipt::Receipt;
use onceward::{Id, Onceward, Result};

/// The id with the oldest receipt; `None` if none of them has one.
pub(crate) async fn find<'i>(
    onceward: &Onceward,
    ids: impl IntoIterator<Item = &'i Id>,
) -> Result<Option<&'i Id>> {
    let mut oldest: Option<(u128, &Id)> = None;
    for id in ids {
        let Some(receipt) = onceward.receipt(id).await? else { continue };
        let own = (created(&receipt), id);
        if oldest.is_none_or(|oldest| own < oldest) {
            oldest = Some(own);
        }
    }
    Ok(oldest.map(|(_, id)| id))
}

/// The moment of its creation by the clock of the store, in microseconds: a version is the moment of the last write. It is
/// the same whenever it is computed.
fn created(receipt: &Receipt) -> u128 {
    let before_last_write = receipt.age.created.saturating_sub(receipt.age.updated);
    u128::from(receipt.version.0).saturating_sub(before_last_write.as_micros())
}
