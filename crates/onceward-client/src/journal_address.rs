//! Opens a journal by its address (feature `journal`). Only this file opens stores, and it names none.

use std::sync::Arc;

use super::client_builder::ClientBuilder;

impl ClientBuilder {
    /// Keeps a journal at this address, in the form of [`onceward_stores::open`]: `embedded:./outgoing` is a local
    /// folder, for one process at a time.
    pub fn with_journal(self, address: impl Into<String>) -> Self {
        let address: Arc<str> = address.into().into();
        self.with_journal_opener(Arc::new(move || {
            let address = address.clone();
            Box::pin(async move { onceward_stores::open(&address).await })
        }))
    }
}
