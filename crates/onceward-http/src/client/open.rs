//! A request that is down in the journal, open until its answer is recorded, and how it gets there.

use std::sync::Arc;

use bytes::Bytes;
use onceward::receipt::{Claim, Done, Status};
use onceward::{
    Attempt, Fence, Fingerprint, Found, Id, Outcome, Record, Result, Seen, State, Swap, Swapped, Version,
    codec,
};

use super::prepared::Prepared;
use super::riding::Seat;
use super::stored::Stored;

/// A request that is down in the journal.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// The id of its receipt.
    pub(crate) id: Id,
    pub(crate) version: Version,
    pub(crate) claim: Claim,
    pub(crate) stored: Stored,
}

/// A request that is to be put down: it rides with the claim of its intent, or follows it.
pub(crate) struct Putting {
    pub(crate) swap: Swap,
    pub(crate) claim: Claim,
    pub(crate) stored: Stored,
    pub(crate) seat: Seat,
    /// Where it has come to lie although its claim was refused.
    pub(crate) lies: Option<(Id, Version)>,
}

/// What became of putting a request down.
pub(crate) enum Put {
    /// It is there now, for the first time.
    New(Open),
    /// One was there: a call that gave up or died had left it. That one is sent, once it is
    /// [taken up](super::journal::Journal::take_up).
    Found(Open),
    /// Another request was there.
    Other,
    /// None is there, and there is none to put: somebody else has finished it.
    Gone,
}

impl Open {
    /// What was asked.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.claim.fingerprint
    }

    /// What a receipt under [`REQUESTS`](super::journal::REQUESTS) says.
    pub(crate) fn decode(id: Id, found: &Found) -> Result<Self> {
        let receipt = codec::decode(found)?;
        if let Status::Done(done) = receipt.status
            && let Some(stored) = Stored::decode(done.outcome.body())
        {
            return Ok(Self { id, version: receipt.version, claim: done.claim, stored });
        }
        let detail = format!("the journal's request of {:?} cannot be read", id.key());
        Err(onceward::Error::new(onceward::ErrorKind::Damaged, detail))
    }

    pub(crate) fn request(&self) -> Arc<Prepared> {
        self.stored.request.clone()
    }
}

impl Putting {
    /// What it means that this is in its place now.
    pub(crate) fn swapped(&self, swapped: Swapped) -> Result<Put> {
        let id = self.swap.id.clone();
        match swapped {
            Swapped::Won(version) => {
                Ok(Put::New(Open { id, version, claim: self.claim, stored: self.stored.clone() }))
            }
            Swapped::Lost(found) => self.found(found.as_ref()),
        }
    }

    /// What it means to find this in its place.
    pub(crate) fn found(&self, found: Option<&Found>) -> Result<Put> {
        let Some(found) = found else {
            let detail = "the request was taken away while it was put down; send it again";
            return Err(onceward::Error::new(onceward::ErrorKind::Conflict, detail));
        };
        let open = Open::decode(self.swap.id.clone(), found)?;
        let same = open.fingerprint() == self.claim.fingerprint;
        Ok(if same { Put::Found(open) } else { Put::Other })
    }
}

/// The claim under which a request is put down. Its fence is the record's own version.
pub(crate) fn claim(fingerprint: Fingerprint, attempt: Attempt) -> Claim {
    Claim { fingerprint, attempt, fence: Fence(0) }
}

/// A swap that puts a request where there is none.
pub(crate) fn swap(id: Id, claim: Claim, bytes: Bytes) -> Swap {
    Swap { id, seen: Seen::Absent, new: Some(record(claim, bytes)) }
}

/// A record that never falls due: an open request is not forgotten.
pub(crate) fn record(claim: Claim, bytes: Bytes) -> Record {
    let done = Done { claim, outcome: Outcome::succeeded(bytes), tombstone: None };
    Record { state: State::Done, due_in: None, bytes: codec::encode(&Status::Done(done)) }
}
