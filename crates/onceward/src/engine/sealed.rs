//! Encodes every record that the engine writes (`seal`), and decodes every record that it reads (`open`), for runs
//! and transactions alike.

use std::time::Duration;

use bytes::Bytes;

use crate::codec;
use crate::error::Result;
use crate::id::Id;
use crate::receipt::{Held, Owner, Receipt, Status};
use crate::store::{Found, Record, Seen, State, Swap};
use crate::transition::Write;

/// The change from what was seen to what is to be written; `None` removes.
pub(crate) fn seal(id: &Id, seen: Seen, write: Option<&Write>) -> Swap {
    let new = write.map(|Write { status, due_in }| Record {
        state: status.state(),
        due_in: *due_in,
        ends_with_writer: matches!(status, Status::Held(Held { owner: Owner::Run, .. })),
        bytes: codec::encode(status),
    });
    Swap { id: id.clone(), seen, new }
}

/// The change from what was seen to a claim, for as long as a lease.
pub(crate) fn seal_claim(id: &Id, seen: Seen, held: &Held, lease: Duration) -> Swap {
    let record = Record {
        state: State::Held,
        due_in: Some(lease),
        ends_with_writer: held.owner == Owner::Run,
        bytes: codec::encode_held(held),
    };
    Swap { id: id.clone(), seen, new: Some(record) }
}

/// The bytes of a receipt that is kept beside the store, as they would be in it.
pub(crate) fn seal_status(status: &Status) -> Bytes {
    codec::encode(status)
}

/// The receipt in what a store found.
pub(crate) fn open(found: &Found) -> Result<Receipt> {
    codec::decode(found)
}

/// The same where there may be nothing.
pub(crate) fn open_any(found: Option<&Found>) -> Result<Option<Receipt>> {
    found.map(open).transpose()
}
