//! Begins a new journal when a folder with a long one is opened.
//!
//! A start reads every journal, and fjall itself seals one only past 64 MB: a process that is killed again and again would
//! read more with every start. fjall continues the journal with the highest number and takes those before it for sealed
//! ones: it writes their rows to tables at once, in the background, and then removes them. So an empty journal with
//! the next number, made before fjall opens its database, is all that is needed.
//!
//! ```text
//! 0.jnl  9 MiB of groups ──▶ 0.jnl  sealed; removed when the tables hold all of it
//!                            1.jnl  empty; the next group goes there
//! ```
//!
//! Nothing acknowledged depends on the order of these steps. A crash before fjall opens leaves an empty journal, which is
//! continued by the next start; one while the rows are written leaves both journals, as fjall does when it seals one itself.
//! The name of the new journal is durable before any group is in it.

use std::path::Path;

use onceward::Result;

use super::errors;
use super::folder::{private, sync_folder};
use super::journal::JournalContents;

/// A longer journal is sealed. Reading this much takes some tens of milliseconds, and a table of this size is no small one.
const SEALED_FROM_BYTES: u64 = 8 << 20;

/// Makes an empty journal after the newest one in the folder of the database, if that is long. Call it after torn groups
/// were cut and before fjall opens the database.
pub(crate) fn begin(database: &Path, walked: &JournalContents) -> Result<()> {
    let Some(newest) = walked.newest.filter(|newest| newest.bytes > SEALED_FROM_BYTES) else {
        return Ok(());
    };
    let path = database.join(format!("{}.jnl", newest.number + 1));
    if let Err(error) = private().create_new(true).write(true).open(&path) {
        // Only the next start is slower.
        tracing::warn!(path = %path.display(), %error, "cannot begin a new journal; the long one is continued");
        return Ok(());
    }
    // Groups in a journal whose name is lost in a power cut would be lost with it.
    sync_folder(database).map_err(|error| errors::io(format!("cannot sync {}", database.display()), error))
}

#[cfg(test)]
#[path = "next_journal_test.rs"]
mod tests;
