//! Finds unfinished intents: those whose run ended without an outcome, and those that wait for a worker.

use std::time::Duration;

use onceward::receipt::{Held, Status, Waiting};
use onceward::{Cursor, Due, Fence, Id, OnUnknown, Onceward, Receipt, Scan, ScanTarget, State};

/// Records read in one page.
const PAGE_RECORDS: usize = 256;

/// An intent that no process is running.
pub struct Unfinished {
    pub id: Id,
    /// The fence of the last run.
    pub fence: Fence,
    /// How long ago its lease ended, or its next try became due.
    pub ago: Duration,
    pub kind: UnfinishedKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnfinishedKind {
    /// Its lease ended without an outcome, and it may be run again.
    Begun,
    /// It waits for a worker, with its input.
    Waiting,
    /// Its lease ended without an outcome, and it must not be run again until it is settled.
    Unknown,
}

impl UnfinishedKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Begun => "left",
            Self::Waiting => "waiting",
            Self::Unknown => "unknown",
        }
    }
}

/// All unfinished intents. Steps are left out: they continue with their intents.
pub async fn all(onceward: &Onceward, operation: Option<&str>) -> Result<Vec<Unfinished>, String> {
    let mut all = Vec::new();
    for state in [State::Held, State::Waiting] {
        let mut after: Option<Cursor> = None;
        loop {
            let scan = Scan::new(ScanTarget::Due(Some(state)), PAGE_RECORDS).with_after(after);
            let page = onceward.list(&scan).await.map_err(|error| error.to_string())?;
            let unreadable = page.unreadable.len();
            for (id, receipt) in page.found {
                if id.is_step() || operation.is_some_and(|operation| id.operation() != operation) {
                    continue;
                }
                all.extend(left(id, &receipt));
            }
            if unreadable > 0 {
                eprintln!("onceward: {unreadable} receipts cannot be read, and are skipped");
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(all)
}

fn left(id: Id, receipt: &Receipt) -> Option<Unfinished> {
    let Due::Over(ago) = receipt.due else { return None };
    let fence = receipt.status.fence();
    let kind = match &receipt.status {
        Status::Held(Held { on_unknown: OnUnknown::Retry, .. }) => UnfinishedKind::Begun,
        Status::Held(_) => UnfinishedKind::Unknown,
        Status::Waiting(Waiting { job: Some(_), .. }) => UnfinishedKind::Waiting,
        // Without a stored input, only the caller's retry can continue it.
        _ => return None,
    };
    Some(Unfinished { id, fence, ago, kind })
}
