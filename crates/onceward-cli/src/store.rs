//! The store of a running process that hands out claims to others.

use std::sync::Arc;

use onceward::{Result, Store};
use onceward_stores::EmbeddedStore;
use onceward_stores::embedded::{Options, Owners};

/// Opens the store that an address names. Who claims through the receipts API may go on while we restart, so
/// leases last as long as they said.
pub async fn open(url: &str) -> Result<Arc<dyn Store>> {
    match url.strip_prefix("embedded:") {
        Some(folder) if !folder.is_empty() => {
            let options = Options { owners: Owners::Outlive, ..Options::default() };
            Ok(Arc::new(EmbeddedStore::open(folder, options).await?))
        }
        _ => onceward_stores::open(url).await,
    }
}
