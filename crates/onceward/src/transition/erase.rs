//! What an erasure makes of a receipt: it removes what was said (body, input, note) and keeps that it was done.

use bytes::Bytes;

use super::{Write, lapse};
use crate::error::{Error, ErrorKind, Result};
use crate::outcome::Outcome;
use crate::policy::OnUnknown;
use crate::receipt::{Dead, Done, End, Held, Receipt, Status, Unknown, Waiting};
use crate::store::Due;

/// How a receipt is erased.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Erase {
    reopen: bool,
    note: fn(&Outcome) -> Bytes,
}

impl Default for Erase {
    fn default() -> Self {
        Self { reopen: false, note: |_| Bytes::from_static(b"erased") }
    }
}

impl Erase {
    /// Removes what was said, and keeps that it was done: no retry runs, and none gets the answer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes the whole receipt and the receipts of its steps. The key is then free: **the same intent may run
    /// again**. Only for receipts that are done.
    pub fn with_reopen(mut self, reopen: bool) -> Self {
        self.reopen = reopen;
        self
    }

    /// Sets what is kept of an outcome instead of its body, such as its status: a retry gets it with
    /// [`Refusal::ResponseNotStored`](crate::Refusal::ResponseNotStored). The word `erased` by default.
    pub fn with_note(mut self, note: fn(&Outcome) -> Bytes) -> Self {
        self.note = note;
        self
    }

    /// Returns whether the key is free afterwards.
    pub fn is_reopening(&self) -> bool {
        self.reopen
    }
}

/// The write that erases a receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Erasure {
    /// It becomes this.
    Write(Write),
    /// It goes.
    Remove,
    /// It says nothing that could be removed.
    Nothing,
}

/// Returns the write that erases a receipt. Refused for what is running or waits to be run, and with `reopen` for
/// everything that is not done.
pub fn erase(found: &Receipt, erase: &Erase) -> Result<Erasure> {
    match &found.status {
        Status::Done(_) | Status::Gone(_) if erase.reopen => Ok(Erasure::Remove),
        Status::Done(done) => Ok(match done {
            Done { claim, end: End::Outcome(outcome), tombstone, .. } => {
                let end = End::Outcome(outcome.without_body((erase.note)(outcome)));
                let done = Done { claim: *claim, end, tombstone: *tombstone, job: None };
                Erasure::Write(Write::new(Status::Done(done), remaining(found.due)))
            }
            Done { end: End::Closed(_), .. } => Erasure::Nothing,
        }),
        Status::Gone(_) => Ok(Erasure::Nothing),
        Status::Unknown(_) | Status::Dead(_) if erase.reopen => {
            Err(refused("only what is done can be reopened; settle it as not done, and the next retry runs"))
        }
        Status::Unknown(unknown) if unknown.note.is_empty() && unknown.job.is_none() => Ok(Erasure::Nothing),
        Status::Unknown(unknown) => Ok(Erasure::Write(forgetful(unknown))),
        Status::Dead(Dead { note, job: None, .. }) if note.is_empty() => Ok(Erasure::Nothing),
        Status::Dead(dead) => {
            let dead = Dead { note: String::new(), job: None, ..dead.clone() };
            Ok(Erasure::Write(Write::new(Status::Dead(dead), None)))
        }
        // Nobody has asked since the lease ended, so the receipt does not say unknown yet.
        Status::Held(Held { on_unknown: OnUnknown::Hold, .. }) if found.due.is_over() && !erase.reopen => {
            match lapse(found).map(|lapsed| lapsed.status) {
                Some(Status::Unknown(unknown)) => Ok(Erasure::Write(forgetful(&unknown))),
                _ => unreachable!("a lapsed claim is unknown"),
            }
        }
        Status::Held(Held { job: None, .. }) if found.due.is_over() && !erase.reopen => Ok(Erasure::Nothing),
        Status::Held(_) => Err(refused("it is running; erase it when it is done")),
        Status::Waiting(Waiting { job: None, .. }) if !erase.reopen => Ok(Erasure::Nothing),
        Status::Waiting(_) => Err(refused("it waits to be run; cancel it first")),
    }
}

/// Returns the write that erases a step of an erased intent. The steps of a reopened intent go with it,
/// or the next run would find them and leave their effects out.
pub fn erase_step(found: &Receipt, how: &Erase) -> Result<Erasure> {
    let runs = matches!(found.status, Status::Held(_)) && !found.due.is_over();
    if how.reopen && !runs { Ok(Erasure::Remove) } else { erase(found, &Erase { reopen: false, ..*how }) }
}

fn forgetful(unknown: &Unknown) -> Write {
    let unknown = Unknown { note: String::new(), job: None, ..unknown.clone() };
    Write::new(Status::Unknown(unknown), None)
}

fn remaining(due: Due) -> Option<std::time::Duration> {
    match due {
        Due::Never => None,
        Due::In(remaining) => Some(remaining),
        Due::Over(_) => Some(std::time::Duration::ZERO),
    }
}

fn refused(why: &'static str) -> Error {
    Error::new(ErrorKind::Conflict, why)
}

#[cfg(test)]
#[path = "erase_test.rs"]
mod tests;
