//! What there is to finish: intents whose run ended without an outcome, and intents that wait for a worker.

use std::time::Duration;

use onceward::receipt::{Held, Status, Waiting};
use onceward::{Cursor, Due, Fence, Found, Id, OnUnknown, Onceward, Scan, ScanTarget, State, codec};

/// Records looked at in one slice.
const SLICE_RECORDS: usize = 256;

/// An intent that no process is running.
pub struct Unfinished {
    pub id: Id,
    /// The last run.
    pub fence: Fence,
    /// Since when: its lease has ended, or its next try was due.
    pub ago: Duration,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its lease ended without an outcome, and it may be run again.
    Begun,
    /// It waits with its input for a worker.
    Waiting,
    /// Its lease ended without an outcome, and it must not be run again until somebody settles it.
    InDoubt,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Begun => "left",
            Self::Waiting => "waiting",
            Self::InDoubt => "in doubt",
        }
    }
}

/// All of them, without their steps: those continue with their intents.
pub async fn all(onceward: &Onceward, operation: Option<&str>) -> Result<Vec<Unfinished>, String> {
    let mut all = Vec::new();
    for state in [State::Held, State::Waiting] {
        let mut after: Option<Cursor> = None;
        loop {
            let scan = Scan::new(ScanTarget::Due(Some(state)), SLICE_RECORDS).with_after(after);
            let page = onceward.list(&scan).await.map_err(|error| error.to_string())?;
            let mut unreadable = page.unreadable.len();
            for (id, found) in page.found {
                if id.is_step() || operation.is_some_and(|operation| id.operation() != operation) {
                    continue;
                }
                match left(id, &found) {
                    Ok(left) => all.extend(left),
                    Err(_) => unreadable += 1,
                }
            }
            if unreadable > 0 {
                eprintln!("onceward: {unreadable} receipts cannot be read, and are passed over");
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(all)
}

fn left(id: Id, found: &Found) -> onceward::Result<Option<Unfinished>> {
    let Due::Over(ago) = found.due else { return Ok(None) };
    let receipt = codec::decode(found)?;
    let fence = receipt.status.fence();
    let kind = match receipt.status {
        Status::Held(Held { on_unknown: OnUnknown::Retry, .. }) => Kind::Begun,
        Status::Held(_) => Kind::InDoubt,
        Status::Waiting(Waiting { job: Some(_), .. }) => Kind::Waiting,
        // Of what carries no input, only those who ask know what to do.
        _ => return Ok(None),
    };
    Ok(Some(Unfinished { id, fence, ago, kind }))
}
