//! The start position of the next sweep, and of the next poll of a worker.
//!
//! While a long transaction keeps the server from vacuuming, a sweep would read all dead rows of earlier sweeps
//! each time. So each sweep starts where the one before ended, and asks for the few records that were left in
//! place by their ids:
//!
//! ```text
//!   due ─────x──x─────x───┬──────────────────┬────▶
//!            left in place│ read by the      │ now
//!            (by their id)│ next sweep       │
//!                         from: the clock at the last sweep, less a grace period
//! ```
//!
//! This hides no record that is due: the records before `from` were found by the last sweep, and their ids are
//! kept. Only a record that becomes visible later than [`FREE_GRACE`] after it was written could be missed, so
//! now and then a sweep starts from the beginning.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use onceward::Id;

use crate::sql::FREE_GRACE;
use crate::sql::row::micros;

/// One sweep in this many starts from the beginning.
const FULL_SWEEP_EVERY: u64 = 64;
/// Ids that are kept. If a sweep finds more, the next one starts at the first that is not kept.
const KEPT_MAX: usize = 1_000;

/// The start of the next sweep of this process, and of the next polls of its workers for waiting and held records:
/// polls are more frequent than sweeps, and would read the same dead entries.
#[derive(Debug, Default)]
pub(super) struct SweepPositions {
    sweeps: SweepPosition,
    waiting: SweepPosition,
    held: SweepPosition,
}

impl SweepPositions {
    /// The start of a scan for due records in one state, or in any. Other scans are rare, and start from the beginning.
    pub(super) fn of(&self, state: Option<onceward::State>) -> Option<&SweepPosition> {
        match state {
            None => Some(&self.sweeps),
            Some(onceward::State::Waiting) => Some(&self.waiting),
            Some(onceward::State::Held) => Some(&self.held),
            Some(_) => None,
        }
    }
}

/// The start of the next scan for due records.
#[derive(Debug, Default)]
pub(super) struct SweepPosition(Mutex<SweepState>);

#[derive(Debug)]
struct SweepState {
    sweeps: u64,
    /// The server's clock at the last scan; times are in microseconds since 1970.
    clock_us: i64,
    start: SweepStart,
    /// Free rows before this time are already removed.
    free_from_us: i64,
    /// What the current sweep has found so far.
    pass: SweepPass,
}

/// Where to start: at a time, plus some ids from before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SweepStart {
    pub(super) from_us: i64,
    pub(super) kept: Vec<Id>,
}

/// What a page comes after.
#[derive(Clone, Copy, Debug)]
pub(super) enum PageStart<'a> {
    /// Nothing: it is the first page of the sweep that began when the server's clock said this.
    Beginning(i64),
    /// The last record of the page before.
    Cursor(&'a Bytes),
}

/// How far free rows were removed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purged {
    /// All that were due.
    All,
    /// Those that were due up to this time; there may be more after it.
    UpTo(i64),
}

/// A sweep, page by page.
#[derive(Debug)]
struct SweepPass {
    began_us: i64,
    found: Vec<(i64, Id)>,
    /// When the first record whose id is not kept fell due.
    beyond_us: Option<i64>,
    /// Where the next page must start to belong to this sweep.
    next: ExpectedPage,
}

#[derive(Debug, PartialEq, Eq)]
enum ExpectedPage {
    Beginning,
    After(Bytes),
    Nothing,
}

/// The start of the first sweep.
pub(super) const BEGINNING: SweepStart = SweepStart { from_us: i64::MIN, kept: Vec::new() };

impl Default for SweepState {
    fn default() -> Self {
        let pass =
            SweepPass { began_us: i64::MIN, found: Vec::new(), beyond_us: None, next: ExpectedPage::Nothing };
        Self { sweeps: 0, clock_us: i64::MIN, start: BEGINNING, free_from_us: i64::MIN, pass }
    }
}

impl SweepPosition {
    /// Begins a sweep. Returns the time from which free rows are to be removed.
    pub(super) fn begin(&self) -> i64 {
        let mut state = self.state();
        if state.sweeps.is_multiple_of(FULL_SWEEP_EVERY) {
            (state.start, state.free_from_us) = (BEGINNING, i64::MIN);
        }
        state.sweeps += 1;
        state.free_from_us
    }

    /// The free rows up to some time were removed, and this is what the server's clock says.
    pub(super) fn purged(&self, clock_us: i64, purged: Purged) {
        let mut state = self.state();
        if clock_us < state.clock_us {
            // Its clock was set back, or another server has taken over: what falls due now may be before the start.
            (state.start, state.free_from_us) = (BEGINNING, i64::MIN);
        } else {
            state.free_from_us = match purged {
                Purged::All => clock_us.saturating_sub(micros(FREE_GRACE)),
                Purged::UpTo(due_us) => due_us,
            };
        }
        state.clock_us = clock_us;
        state.pass = SweepPass {
            began_us: clock_us,
            found: Vec::new(),
            beyond_us: None,
            next: ExpectedPage::Beginning,
        };
    }

    /// Where to start.
    pub(super) fn start(&self) -> SweepStart {
        self.state().start.clone()
    }

    /// A page has been read: these records with their due times, and the cursor for the next page.
    pub(super) fn page(&self, behind: PageStart<'_>, found: Vec<(i64, Id)>, next: Option<&Bytes>) {
        let mut guard = self.state();
        let SweepState { pass, start, .. } = &mut *guard;
        let goes_on = match (behind, &pass.next) {
            (PageStart::Beginning(clock_us), ExpectedPage::Beginning) => clock_us == pass.began_us,
            (PageStart::Cursor(cursor), ExpectedPage::After(expected)) => cursor == expected,
            _ => false,
        };
        if !goes_on {
            return; // a page of some other scan, which may have skipped records
        }
        // Up to here, everything that is due has been found.
        let looked_to_us = match next {
            Some(_) => found.last().map_or(i64::MIN, |(due_us, _)| *due_us),
            None => i64::MAX,
        };
        for (due_us, id) in found {
            if pass.found.len() < KEPT_MAX {
                pass.found.push((due_us, id));
            } else {
                pass.beyond_us.get_or_insert(due_us);
            }
        }
        let from_us = pass.began_us.saturating_sub(micros(FREE_GRACE)).min(looked_to_us);
        let from_us = from_us.min(pass.beyond_us.unwrap_or(i64::MAX));
        if from_us > start.from_us {
            let before = pass.found.iter().filter(|(due_us, _)| *due_us < from_us);
            *start = SweepStart { from_us, kept: before.map(|(_, id)| id.clone()).collect() };
        }
        pass.next = next.map_or(ExpectedPage::Nothing, |cursor| ExpectedPage::After(cursor.clone()));
    }

    fn state(&self) -> std::sync::MutexGuard<'_, SweepState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "sweep_test.rs"]
mod tests;
