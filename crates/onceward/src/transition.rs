//! Computes the next status of a receipt for each event, in pure functions. Everything that
//! changes a receipt (runs, transactions, tickets, workers, settlements, sweeps) takes its next status from
//! here, and only decides how it is written.
//!
//! ```text
//!   enqueue             claim                      end: done
//! absent ──▶ WAITING ──────────▶ HELD ──────────────────────────▶ DONE ── expire ─▶ GONE ── expire ─▶ absent
//!    │          ▲                 │ ▲ renew                         ▲
//!    └─ claim ──┼────────────────▶│ └─ claim (takeover)             │ settle done, cancel, discard, close
//!               │ end: release,   │                                 │
//!               │ with a job or   ├─ end: unknown, expire ▶ UNKNOWN ┴─ settle not done ─▶ WAITING
//!               │ prior unknown   │
//!               └─────────────────┼─ end, tries used up ──▶ DEAD ── retry ─▶ WAITING
//!                                 └─ end: release, nothing to keep ──▶ absent
//! ```
//!
//! `claim.rs`: how it begins. `end.rs`: how a run ends. `settle.rs`: what operators decide. `expiry.rs`: what time does.
//! An erasure (`erase.rs`) removes what a receipt says and leaves it in its state.

mod claim;
mod end;
mod erase;
mod expiry;
mod settle;

use std::time::Duration;

pub use claim::{Enqueue, claim, enqueue, hold, start_now};
pub(crate) use end::look_at_end;
pub use end::{AfterLoss, Finish, after_loss, end, is_settled_otherwise, kept_input_bytes, run_of};
pub use erase::{Erase, Erasure, erase, erase_step};
pub use expiry::{Expiry, exhaust, expire, give_up_unknown, is_of_former_run, lapse};
pub use settle::{Settlement, close, forget_unknown, hold_unknown, retry, settle};

use crate::outcome::NOTE_BYTES_MAX;
use crate::receipt::Status;

/// The record that a transition writes in place of the one that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The new status.
    pub status: Status,
    /// When it falls due; `None` for never.
    pub due_in: Option<Duration>,
}

impl Write {
    fn new(status: Status, due_in: Option<Duration>) -> Self {
        Self { status, due_in }
    }
}

/// A note as it may be stored: one line, without control characters, cut at [`NOTE_BYTES_MAX`].
pub(crate) fn clean_note(note: &str) -> String {
    let mut clean: String =
        note.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let mut end = NOTE_BYTES_MAX.min(clean.len());
    while !clean.is_char_boundary(end) {
        end -= 1;
    }
    clean.truncate(end);
    clean
}

#[cfg(test)]
#[path = "transition_test.rs"]
mod tests;
