//! Converts a batch of swaps to the column arrays that a statement takes.

use onceward::{Id, Swap};

use super::digest::{Digest, of_text};
use crate::sql::row::{due_us, open_state};
use crate::sql::swap_kinds::record;

/// Ids as columns: their numbers, and their texts.
pub(super) struct IdColumns<'a> {
    pub(super) numbers: DigestColumns,
    pub(super) scopes: Vec<&'a str>,
    pub(super) operations: Vec<&'a str>,
    pub(super) keys: Vec<&'a str>,
}

impl<'a> IdColumns<'a> {
    pub(super) fn of(ids: &[&'a Id]) -> Self {
        Self {
            numbers: DigestColumns::of(ids),
            scopes: ids.iter().map(|id| id.scope()).collect(),
            operations: ids.iter().map(|id| id.operation()).collect(),
            keys: ids.iter().map(|id| id.key()).collect(),
        }
    }
}

/// The numbers of ids as columns.
#[derive(Default)]
pub(super) struct DigestColumns {
    pub(super) highs: Vec<i64>,
    pub(super) middles: Vec<i64>,
    pub(super) lows: Vec<i64>,
}

impl DigestColumns {
    pub(super) fn of(ids: &[&Id]) -> Self {
        let mut numbers = Self::default();
        let mut last = ("", 0);
        for id in ids {
            // In sorted batches the ids of a scope are adjacent.
            if last.0 != id.scope() {
                last = (id.scope(), of_text(id.scope()));
            }
            let Digest { high, middle, low } = Digest::within(last.1, id);
            numbers.highs.push(high);
            numbers.middles.push(middle);
            numbers.lows.push(low);
        }
        numbers
    }

    pub(super) fn at(&self, index: usize) -> (i64, i64, i64) {
        (self.highs[index], self.middles[index], self.lows[index])
    }
}

/// New records as columns.
pub(super) struct RecordColumns<'a> {
    pub(super) states: Vec<&'static str>,
    pub(super) dues: Vec<Option<i64>>,
    pub(super) receipts: Vec<&'a [u8]>,
    pub(super) open_states: Vec<i64>,
}

impl<'a> RecordColumns<'a> {
    pub(super) fn of(batch: &'a [Swap], of: &[usize]) -> Self {
        let records = || of.iter().map(|index| record(&batch[*index]));
        Self {
            states: records().map(|record| record.state.name()).collect(),
            dues: records().map(due_us).collect(),
            receipts: records().map(|record| &record.bytes[..]).collect(),
            open_states: records().map(|record| open_state(record.state)).collect(),
        }
    }
}
