//! A batch as the columns that a statement takes.

use onceward::{Id, Swap};

use crate::sql::kinds::record;
use crate::sql::row::due_us;

/// Ids as columns.
pub(super) struct Ids<'a> {
    pub(super) scopes: Vec<&'a str>,
    pub(super) operations: Vec<&'a str>,
    pub(super) keys: Vec<&'a str>,
}

impl<'a> Ids<'a> {
    pub(super) fn new(batch: &'a [Swap], of: &[usize]) -> Self {
        Self::of(&of.iter().map(|place| &batch[*place].id).collect::<Vec<_>>())
    }

    pub(super) fn of(ids: &[&'a Id]) -> Self {
        Self {
            scopes: ids.iter().map(|id| id.scope()).collect(),
            operations: ids.iter().map(|id| id.operation()).collect(),
            keys: ids.iter().map(|id| id.key()).collect(),
        }
    }
}

/// New records as columns.
pub(super) struct New<'a> {
    pub(super) states: Vec<&'static str>,
    pub(super) dues: Vec<Option<i64>>,
    pub(super) receipts: Vec<&'a [u8]>,
}

impl<'a> New<'a> {
    pub(super) fn of(batch: &'a [Swap], of: &[usize]) -> Self {
        let records = || of.iter().map(|place| record(&batch[*place]));
        Self {
            states: records().map(|record| record.state.name()).collect(),
            dues: records().map(due_us).collect(),
            receipts: records().map(|record| &record.bytes[..]).collect(),
        }
    }
}
