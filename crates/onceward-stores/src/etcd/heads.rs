//! What this process knows of records: what a swap needs besides the version that it replaces.
//!
//! A record of one version never changes, so what is known of it is true as long as that version is there, and the swap
//! compares the version. A record that is not known is read first.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use onceward::{Id, Version};

use super::record::Head;

/// The number of heads that are kept. Most claims are completed within moments; those that never are must not pile up.
const HEADS_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct Heads(Mutex<HashMap<Id, (Version, Head)>>);

impl Heads {
    pub(super) fn note(&self, id: &Id, version: Version, head: Head) {
        let mut heads = self.lock();
        if heads.len() >= HEADS_MAX {
            heads.clear();
        }
        heads.insert(id.clone(), (version, head));
    }

    pub(super) fn find(&self, id: &Id, version: Version) -> Option<Head> {
        self.lock().get(id).filter(|(known, _)| *known == version).map(|(_, head)| *head)
    }

    pub(super) fn forget(&self, id: &Id) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Id, (Version, Head)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
