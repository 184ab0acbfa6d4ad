//! The threads that read: one for loads, one for scans, so that a long scan holds up no load.
//!
//! They read fjall's durable state directly; the writer need not be asked.

use std::ops::Bound;
use std::sync::mpsc;

use onceward::{Cursor, Error, ErrorKind, Found, Id, Page, Result, Scan, ScanOf, State};
use tokio::sync::oneshot;

use super::row::Row;
use super::tables::cannot_read;
use super::{Shared, due};
use crate::SCAN_RECORDS_MAX;

/// A page ends once the receipts it looked at have this many bytes: they pass through memory.
pub(crate) const PAGE_BYTES_MAX: usize = 8 << 20;

/// One question and whom to tell.
pub(crate) struct Ask<Q, A> {
    pub(crate) question: Q,
    pub(crate) reply: oneshot::Sender<Result<A>>,
}

pub(crate) type AskLoad = Ask<Vec<Id>, Vec<Option<Found>>>;
pub(crate) type AskScan = Ask<Scan, Page>;

/// Answers until all senders are gone.
pub(crate) fn run<Q, A>(asks: &mpsc::Receiver<Ask<Q, A>>, answer: impl Fn(&Q) -> Result<A>) {
    while let Ok(ask) = asks.recv() {
        // Nobody waits for the answer any more: save the work.
        if !ask.reply.is_closed() {
            let _ = ask.reply.send(answer(&ask.question));
        }
    }
}

pub(crate) fn load(shared: &Shared, ids: &[Id]) -> Result<Vec<Option<Found>>> {
    let load_one = |id: &Id| {
        let row = shared.tables.row(id)?;
        // Asked after the read: a group that failed meanwhile has said so by now.
        shared.refuse_doubtful(id)?;
        Ok(row.map(|row| row.found(shared.now_us(), shared.opened)))
    };
    ids.iter().map(load_one).collect()
}

pub(crate) fn scan(shared: &Shared, query: &Scan) -> Result<Page> {
    let limit = query.limit.clamp(1, SCAN_RECORDS_MAX);
    match &query.of {
        ScanOf::Due => due::scan(shared, query.after.as_ref(), limit),
        ScanOf::Matching { scope, operation, state } => {
            let wanted = Wanted { scope: scope.as_deref(), operation: operation.as_deref(), state: *state };
            scan_matching(shared, query.after.as_ref(), limit, &wanted)
        }
    }
}

struct Wanted<'a> {
    scope: Option<&'a str>,
    operation: Option<&'a str>,
    state: Option<State>,
}

impl Wanted<'_> {
    fn fits(&self, id: &Id, row: &Row) -> bool {
        self.scope.is_none_or(|scope| id.scope() == scope)
            && self.operation.is_none_or(|operation| id.operation() == operation)
            && self.state.is_none_or(|state| row.state == state)
    }

    /// What all matching ids begin with; see `Id` for their bytes.
    fn prefix(&self) -> Vec<u8> {
        let length = |text: &str| u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes();
        match (self.scope, self.operation) {
            (Some(scope), Some(operation)) => {
                [&length(scope)[1..], &length(operation), scope.as_bytes(), operation.as_bytes()].concat()
            }
            (Some(scope), None) => length(scope)[1..].to_vec(),
            _ => Vec::new(),
        }
    }
}

/// In the order of the ids' bytes.
fn scan_matching(shared: &Shared, after: Option<&Cursor>, limit: usize, wanted: &Wanted<'_>) -> Result<Page> {
    let prefix = wanted.prefix();
    let start = after.map_or(Bound::Included(&prefix[..]), |cursor| Bound::Excluded(&cursor.0[..]));
    let now_us = shared.now_us();
    let mut page = Page::default();
    let mut bytes = 0;
    let rows = shared.tables.receipts.range::<&[u8], _>((start, Bound::Unbounded));
    for (seen, entry) in rows.enumerate() {
        let (key, value) = entry.into_inner().map_err(cannot_read)?;
        if !key.starts_with(&prefix) {
            return Ok(page);
        }
        let id = Id::from_bytes(&key).map_err(|error| {
            Error::new(
                ErrorKind::Damaged,
                "the id of a stored receipt is damaged; restore the folder from a copy",
            )
            .caused_by(error)
        })?;
        let row = Row::decode(&id, &value)?;
        bytes += row.bytes.len();
        if wanted.fits(&id, &row) {
            page.found.push((id, row.found(now_us, shared.opened)));
        }
        if seen + 1 == limit || bytes >= PAGE_BYTES_MAX {
            page.next = Some(Cursor(bytes::Bytes::copy_from_slice(&key)));
            return Ok(page);
        }
    }
    Ok(page)
}
