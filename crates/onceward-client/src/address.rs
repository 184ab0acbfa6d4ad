//! The journal by address. Behind the feature `journal`: the only place in this crate that opens
//! stores, and it names none.

use std::sync::Arc;

use super::client::Builder;

impl Builder {
    /// Keeps a journal at this address, as [`onceward_stores::open`] has it: `embedded:./outgoing` is
    /// a folder of this machine, for one process at a time.
    pub fn journal(self, address: impl Into<String>) -> Self {
        let address: Arc<str> = address.into().into();
        self.journal_with(Arc::new(move || {
            let address = address.clone();
            Box::pin(async move { onceward_stores::open(&address).await })
        }))
    }
}
