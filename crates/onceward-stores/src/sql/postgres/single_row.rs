//! Batches of a single swap. Most of the cost is set-up of the statement, so they have statements of their own. Only the
//! case in which the swap wins is handled here.

use onceward::{Result, Seen, Swap, Swapped};
use tokio_postgres::types::ToSql;

use super::digest::Digest;
use super::errors::CallEffect;
use super::statements;
use super::store::PostgresStore;
use crate::sql::row::{due_us, open_state};
use crate::sql::swap_kinds::{columns, record, seen_by};

impl PostgresStore {
    /// `None` if it has not won, or is a removal: the code for batches handles both.
    pub(super) async fn swap_one(&self, swap: &Swap) -> Result<Option<Swapped>> {
        match (swap.seen, &swap.new) {
            (Seen::Absent, Some(_)) => self.create_one(swap).await,
            (Seen::Version(_), Some(_)) => self.replace_one(swap).await,
            (_, None) => Ok(None),
        }
    }

    async fn create_one(&self, swap: &Swap) -> Result<Option<Swapped>> {
        let Digest { high, middle, low } = Digest::of(&swap.id);
        let ((scope, operation, key), new) = (columns(&swap.id), record(swap));
        let (state, due, bytes, clock) = (new.state.name(), due_us(new), &new.bytes[..], self.clock_us());
        let open = open_state(new.state);
        let parameters: [&(dyn ToSql + Sync); 11] =
            [&high, &middle, &low, &scope, &operation, &key, &state, &due, &bytes, &clock, &open];
        let rows = self.call(CallEffect::Writes, statements::CREATE_ONE, &parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let won = self.won(row.get(0))?;
        self.note([(&swap.id, &won, row.get(1))].into_iter());
        Ok(Some(won))
    }

    async fn replace_one(&self, swap: &Swap) -> Result<Option<Swapped>> {
        let Digest { high, middle, low } = Digest::of(&swap.id);
        let (new, seen) = (record(swap), seen_by(swap));
        let (state, due, bytes, open) =
            (new.state.name(), due_us(new), &new.bytes[..], open_state(new.state));
        let rows = match self.ctids.take_one(swap) {
            None => {
                let parameters: [&(dyn ToSql + Sync); 8] =
                    [&high, &middle, &low, &state, &due, &bytes, &seen, &open];
                self.call(CallEffect::Writes, statements::REPLACE_ONE, &parameters).await?
            }
            Some(ctid) => {
                let parameters: [&(dyn ToSql + Sync); 9] =
                    [&high, &middle, &low, &state, &due, &bytes, &seen, &open, &ctid];
                self.call(CallEffect::Writes, statements::REPLACE_ONE_AT, &parameters).await?
            }
        };
        rows.first().map(|row| self.won(row.get(0))).transpose()
    }
}
