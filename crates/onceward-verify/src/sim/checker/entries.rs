//! The entries of the facts of a history: moments, calls, and records from one write to the next.

use std::sync::Arc;

use bytes::Bytes;
use onceward::receipt::{Claim, Held, Status};
use onceward::{Fence, Id, Policy, Receipt};

use crate::sim::executor::Process;
use crate::sim::history::{Call, CallMethod, CallResult, End, Tx};

/// A moment: the number of an event, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    /// The number of the event. It alone tells what came first.
    pub(super) event: usize,
    /// The store's time.
    pub(super) at_us: u64,
}

/// After everything.
pub(super) const NEVER: Moment = Moment { event: usize::MAX, at_us: u64::MAX };

/// All about one call.
#[derive(Clone, Debug)]
pub(super) struct CallFacts {
    pub(super) call: Call,
    pub(super) process: Process,
    pub(super) id: Id,
    pub(super) fingerprint: u8,
    pub(super) policy: Arc<Policy>,
    pub(super) way: CallMethod,
    /// Whether it brought an input along.
    pub(super) input: bool,
    pub(super) asked: Moment,
    /// What it was told, in order; by hand it is told twice.
    pub(super) told: Vec<(Moment, CallResult)>,
    /// The first begin of its work.
    pub(super) began: Option<(Moment, Fence)>,
    /// All of them: in a transaction that was undone, the work is done again.
    pub(super) begins: Vec<Begin>,
    pub(super) effect: Option<Moment>,
    pub(super) ended: Option<(Moment, End)>,
    /// When nobody waited for it any more.
    pub(super) over: Moment,
}

/// One begin of the work of a call.
#[derive(Clone, Debug)]
pub(super) struct Begin {
    pub(super) at: Moment,
    pub(super) fence: Fence,
    /// What the work was told is to be done.
    pub(super) input: Option<Bytes>,
}

/// A record that a transaction wrote, and nobody else saw.
#[derive(Clone, Debug)]
pub(super) struct Staged {
    pub(super) tx: Tx,
    pub(super) at: Moment,
    pub(super) id: Id,
    pub(super) held: Option<Held>,
    /// Of a claim, or of a receipt that was written as done.
    pub(super) fence: Option<Fence>,
}

/// A record, from one write to the next.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) receipt: Receipt,
    pub(super) from: Moment,
    /// When the next write (or a restart) took its place.
    pub(super) to: Moment,
    /// When it falls due.
    pub(super) due_us: u64,
    pub(super) by: Process,
    /// When its write left for the store.
    pub(super) sent_us: u64,
}

impl Span {
    /// The claim that it speaks of.
    pub(super) fn claim(&self) -> Option<&Claim> {
        self.receipt.status.claim()
    }

    /// Whether it was there and not due at some moment from `asked` on.
    pub(super) fn kept_since(&self, asked: Moment) -> bool {
        self.due_us > asked.at_us
    }

    /// Whether it was there and due at some moment until `told`.
    pub(super) fn due_until(&self, told: Moment) -> bool {
        self.due_us <= told.at_us.min(self.to.at_us)
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.receipt.status, Status::Held(_))
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.receipt.status, Status::Waiting(_))
    }
}
