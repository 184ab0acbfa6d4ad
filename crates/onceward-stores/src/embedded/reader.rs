//! The threads that read: one for loads, one for scans, so that a long scan does not delay loads.
//!
//! They read fjall's durable state directly; the writer is not involved.

use std::ops::Bound;
use std::sync::mpsc;

use bytes::Bytes;
use onceward::{Cursor, Error, Filter, Id, Loaded, Page, Result, Scan, ScanTarget, State, TextMatch};
use tokio::sync::oneshot;

use super::row::Row;
use super::tables::cannot_read;
use super::{EmbeddedInner, due_scan, index};
use crate::kit;

/// A page ends once the receipts it has read have this many bytes, which bounds memory.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// One query and where to send the answer.
pub(crate) struct ReadRequest<Q, A> {
    pub(crate) query: Q,
    pub(crate) reply: oneshot::Sender<Result<A>>,
}

pub(crate) type LoadRequest = ReadRequest<Vec<Id>, Vec<Loaded>>;
pub(crate) type ScanRequest = ReadRequest<Scan, Page>;

/// Answers requests until all senders are dropped.
pub(crate) fn run<Q, A>(requests: &mpsc::Receiver<ReadRequest<Q, A>>, answer: impl Fn(&Q) -> Result<A>) {
    while let Ok(request) = requests.recv() {
        // The caller no longer waits: skip the work.
        if !request.reply.is_closed() {
            let _ = request.reply.send(answer(&request.query));
        }
    }
}

pub(crate) fn load(shared: &EmbeddedInner, ids: &[Id]) -> Vec<Loaded> {
    let load_one = |id: &Id| {
        let row = shared.row(id)?;
        // Checked after the read: a group that failed meanwhile is recorded by now.
        shared.refuse_unknown(id)?;
        Ok(row.map(|row| row.found(shared.now_us(), shared.opened())))
    };
    ids.iter().map(load_one).collect()
}

pub(crate) fn scan(shared: &EmbeddedInner, query: &Scan) -> Result<Page> {
    let (after, limit) = (query.after.as_ref(), kit::scan_limit(query));
    match &query.target {
        ScanTarget::Due(state) => {
            let filter = Filter::default().with_state(*state);
            due_scan::scan(shared, &due_scan::DueQuery::due(&filter), after, limit)
        }
        ScanTarget::StepsOf(parent) => index::scan_steps(shared, parent, after, limit),
        ScanTarget::Matching(filter) => match (kit::only_id(filter), filter.state) {
            (Some(id), _) => {
                let mut page = PageBuilder::new(shared, limit);
                // Parts that make no id match nothing.
                if let Ok(id) = id {
                    page.add_by_id(id, filter);
                }
                Ok(page.build())
            }
            (None, Some(State::Held)) => {
                due_scan::scan(shared, &due_scan::DueQuery::held(filter), after, limit)
            }
            (None, Some(State::Waiting)) => scan_waiting(shared, after, limit, filter),
            (None, Some(state @ (State::Unknown | State::Dead))) => {
                index::scan_state(shared, state, after, limit, filter)
            }
            (None, None | Some(State::Done | State::Gone)) => scan_rows(shared, after, limit, filter),
        },
    }
}

/// First the rows with a due time, then those that are never due.
fn scan_waiting(
    shared: &EmbeddedInner,
    after: Option<&Cursor>,
    limit: usize,
    filter: &Filter,
) -> Result<Page> {
    if after.is_some_and(index::is_by_state) {
        return index::scan_state(shared, State::Waiting, after, limit, filter);
    }
    let mut page = due_scan::scan(shared, &due_scan::DueQuery::waiting(filter), after, limit)?;
    page.next.get_or_insert_with(|| index::before_all_of(State::Waiting));
    Ok(page)
}

/// All rows, in the order of the ids' bytes: those that are held and those that are not.
fn scan_rows(shared: &EmbeddedInner, after: Option<&Cursor>, limit: usize, filter: &Filter) -> Result<Page> {
    let prefix = id_prefix(filter);
    let start = after.map_or(Bound::Included(&prefix[..]), |cursor| Bound::Excluded(&cursor.0[..]));
    // Before the table, as in `EmbeddedInner::row`. No more than a page has are needed.
    let mut held = shared.lease_ends.ids(start, &prefix, limit).into_iter().peekable();
    let mut settled = shared
        .tables
        .receipts
        .range::<&[u8], _>((start, Bound::Unbounded))
        .map(|entry| entry.into_inner().map_err(cannot_read))
        .take_while(|entry| entry.as_ref().map_or(true, |(key, _)| key.starts_with(&prefix)))
        .peekable();
    let mut page = PageBuilder::new(shared, limit);
    loop {
        let next = match settled.peek() {
            Some(Ok((key, _))) => Some(key.clone()),
            Some(Err(error)) => return Err(error.clone()),
            None => None,
        };
        let id = held.next_if(|id| next.as_ref().is_none_or(|key| id.as_bytes() <= &key[..]));
        let key = if let Some(id) = id {
            let key = Bytes::copy_from_slice(id.as_bytes());
            // What it was before the claim, or what it became meanwhile.
            settled.next_if(|_| next.is_some_and(|next| next[..] == key[..]));
            page.add_by_id(id, filter);
            key
        } else if let Some(entry) = settled.next() {
            let (key, value) = entry?;
            match Id::from_bytes(&key) {
                Ok(id) => {
                    let row = Row::decode(&id, &value).map(Some);
                    page.take(id, row, filter, false);
                }
                Err(error) => cannot_read_id(&error),
            }
            Bytes::copy_from_slice(&key)
        } else {
            break;
        };
        if page.is_full() {
            page.end_at(Cursor(key));
            break;
        }
    }
    Ok(page.build())
}

/// What the ids that match begin with; see `Id` for their bytes.
pub(crate) fn id_prefix(filter: &Filter) -> Vec<u8> {
    let length = |text: &str| u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes();
    match (&filter.scope, &filter.operation) {
        (Some(scope), Some(TextMatch::Is(operation))) => {
            [&length(scope)[1..], &length(operation), scope.as_bytes(), operation.as_bytes()].concat()
        }
        (Some(scope), _) => length(scope)[1..].to_vec(),
        _ => Vec::new(),
    }
}

/// A key that is not the bytes of an id has no id to report it under.
pub(crate) fn cannot_read_id(error: &Error) {
    tracing::error!(%error, "the id of a stored receipt is damaged; restore the folder from a copy");
}

/// A page that is being filled, within its bounds.
pub(crate) struct PageBuilder<'a> {
    shared: &'a EmbeddedInner,
    now_us: u64,
    limit: usize,
    looked_at: usize,
    bytes: usize,
    page: Page,
}

impl<'a> PageBuilder<'a> {
    pub(crate) fn new(shared: &'a EmbeddedInner, limit: usize) -> Self {
        Self { shared, now_us: shared.now_us(), limit, looked_at: 0, bytes: 0, page: Page::default() }
    }

    /// Reads the row of this id and adds it if it matches.
    pub(crate) fn add_by_id(&mut self, id: Id, filter: &Filter) {
        let row = self.shared.row(&id);
        self.take(id, row, filter, false);
    }

    /// Adds a row that was read, or the error of one that cannot be read, if it matches.
    pub(crate) fn take(&mut self, id: Id, row: Result<Option<Row>>, filter: &Filter, only_over: bool) {
        self.looked_at += 1;
        match row {
            Ok(None) => {}
            Ok(Some(row)) => {
                self.bytes += row.bytes.len();
                let found = row.found(self.now_us, self.shared.opened());
                if filter.matches(&id, row.state) && (found.due.is_over() || !only_over) {
                    self.page.found.push((id, found));
                }
            }
            Err(error) => {
                // Its state is unknown.
                let any_state = filter.clone().with_state(None);
                let is_new = self.page.unreadable.iter().all(|(other, _)| *other != id);
                if is_new && any_state.matches(&id, State::Done) {
                    self.page.unreadable.push((id, error));
                }
            }
        }
    }

    /// Counts a stale row that was read.
    pub(crate) fn pass_stale(&mut self, row: Option<&Row>) {
        self.looked_at += 1;
        self.bytes += row.map_or(0, |row| row.bytes.len());
    }

    pub(crate) fn is_full(&self) -> bool {
        self.looked_at >= self.limit || self.bytes >= PAGE_BYTES_MAX
    }

    pub(crate) fn end_at(&mut self, next: Cursor) {
        self.page.next = Some(next);
    }

    pub(crate) fn build(self) -> Page {
        self.page
    }
}
