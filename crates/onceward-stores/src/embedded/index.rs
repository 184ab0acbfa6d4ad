//! The index for queries of operators: unknown and dead rows, waiting rows that are never due, and steps. A claim
//! and its completion do not touch it.
//!
//! ```text
//! key = 01  state: u8  id                                          the states that no other list has
//!     = 02  length of the parent's id: u16, big endian  the parent's id  id of the step
//! ```
//!
//! Unlike the blocks of the due index its entries are exact: each is written and removed with its row.

use std::ops::Bound;

use fjall::{Keyspace, OwnedWriteBatch};
use onceward::{Cursor, Filter, Id, Page, Result, State};

use super::EmbeddedInner;
use super::group::GroupEntry;
use super::reader::{PageBuilder, cannot_read_id, id_prefix};
use super::row::{Row, state_byte};
use super::tables::cannot_read;
use crate::kit::cursor;

const BY_STATE: u8 = 1;
const BY_PARENT: u8 = 2;

/// Adds the change of one row to the index.
pub(crate) fn write(batch: &mut OwnedWriteBatch, index: &Keyspace, entry: &GroupEntry) {
    let (before, after) = (entry.before.indexed_state, entry.row.as_ref().and_then(Row::indexed_state));
    if before != after {
        if let Some(state) = before {
            batch.remove(index, state_key(state, entry.id.as_bytes()));
        }
        if let Some(state) = after {
            batch.insert(index, state_key(state, entry.id.as_bytes()), []);
        }
    }
    if entry.before.exists != entry.row.is_some()
        && let Some(parent) = entry.id.parent()
    {
        let key = [&parent_prefix(&parent), entry.id.as_bytes()].concat();
        match entry.row {
            Some(_) => batch.insert(index, key, []),
            None => batch.remove(index, key),
        }
    }
}

/// One page of the rows that are indexed under this state.
pub(crate) fn scan_state(
    shared: &EmbeddedInner,
    state: State,
    after: Option<&Cursor>,
    limit: usize,
    filter: &Filter,
) -> Result<Page> {
    let prefix = state_key(state, &id_prefix(filter));
    scan(shared, &prefix, 2, after, limit, filter)
}

/// One page of the steps of an intent.
pub(crate) fn scan_steps(
    shared: &EmbeddedInner,
    parent: &Id,
    after: Option<&Cursor>,
    limit: usize,
) -> Result<Page> {
    let prefix = parent_prefix(parent);
    scan(shared, &prefix, prefix.len(), after, limit, &Filter::default())
}

/// Walks the entries that begin with `prefix`; their ids begin at `id_at`.
fn scan(
    shared: &EmbeddedInner,
    prefix: &[u8],
    id_at: usize,
    after: Option<&Cursor>,
    limit: usize,
    filter: &Filter,
) -> Result<Page> {
    let start = match after {
        None => Bound::Included(prefix),
        // The position before all rows of a state is also before its prefix.
        Some(cursor) if cursor.0[..] < *prefix && cursor.0.starts_with(&prefix[..1]) => {
            Bound::Included(prefix)
        }
        Some(cursor) if cursor.0.starts_with(&prefix[..1]) => Bound::Excluded(&cursor.0[..]),
        Some(_) => return Err(cursor::foreign()),
    };
    let mut page = PageBuilder::new(shared, limit);
    for entry in shared.tables.index.range::<&[u8], _>((start, Bound::Unbounded)) {
        let (key, _) = entry.into_inner().map_err(cannot_read)?;
        if !key.starts_with(prefix) {
            break;
        }
        match Id::from_bytes(&key[id_at..]) {
            Ok(id) => page.add_by_id(id, filter),
            Err(error) => cannot_read_id(&error),
        }
        if page.is_full() {
            page.end_at(Cursor(bytes::Bytes::copy_from_slice(&key)));
            break;
        }
    }
    Ok(page.build())
}

/// Whether a cursor is a position in the index of states.
pub(crate) fn is_by_state(cursor: &Cursor) -> bool {
    cursor.0.starts_with(&[BY_STATE])
}

/// The position before all rows that are indexed under this state.
pub(crate) fn before_all_of(state: State) -> Cursor {
    Cursor(state_key(state, &[]).into())
}

fn state_key(state: State, id: &[u8]) -> Vec<u8> {
    [&[BY_STATE, state_byte(state)], id].concat()
}

fn parent_prefix(parent: &Id) -> Vec<u8> {
    let parent = parent.as_bytes();
    let len = u16::try_from(parent.len()).expect("ids are bounded far below");
    [&[BY_PARENT], &len.to_be_bytes()[..], parent].concat()
}
