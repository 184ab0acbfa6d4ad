//! Takes due records for a worker, in one transaction: lock them, let the caller choose, write, commit. Callers that
//! take at the same time pass over each other's rows (`SKIP LOCKED`) instead of all wanting the first ones.
//!
//! ```text
//! BEGIN, SELECT … FOR UPDATE SKIP LOCKED ──▶ choose ──▶ UPDATE …, COMMIT      two round trips, one commit
//! ```
//!
//! What is not written there is left to `swap.rs`: creations and removals, and replacements that found nothing at the
//! address of their row.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use deadpool_postgres::Object;
use onceward::{Choose, Error, Page, Result, Seen, State, Swap, Swapped};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::columns::{DigestColumns, RecordColumns};
use super::ctid_cache::Ctid;
use super::errors::{CallEffect, failed, timed_out};
use super::scan::{id_of, time};
use super::store::{PostgresStore, RECORD_BYTES_MAX, batch_index, found};
use super::{scan_statements, statements};
use crate::kit::SCAN_RECORDS_MAX;
use crate::sql::FREE_GRACE;
use crate::sql::batch_answers::too_large;
use crate::sql::row::{micros, open_state};
use crate::sql::swap_kinds::seen_by;

/// One take in this many begins with the earliest due time there can be.
const FULL_TAKE_EVERY: u64 = 64;
/// Where the columns of a record begin in a row of a take.
const FOUND_AT: usize = 5;

/// Where the next take begins: rows that were taken leave dead entries in the index, and while a long transaction
/// keeps the server from removing those, each take would read all of them.
#[derive(Debug, Default)]
pub(super) struct TakePosition {
    takes: AtomicU64,
    from_us: AtomicI64,
}

impl TakePosition {
    fn next_from_us(&self) -> i64 {
        let full = self.takes.fetch_add(1, Ordering::Relaxed).is_multiple_of(FULL_TAKE_EVERY);
        if full { 0 } else { self.from_us.load(Ordering::Relaxed) }
    }

    /// A take found this as the first. What falls due or becomes visible a little late is found nonetheless.
    fn found(&self, first_due_us: i64) {
        self.from_us.store(first_due_us.saturating_sub(micros(FREE_GRACE)), Ordering::Relaxed);
    }
}

/// A connection with an open transaction. Unless it was ended properly, it is closed, and the server rolls back.
struct Taking(Option<Object>);

impl Taking {
    fn client(&self) -> &Object {
        self.0.as_ref().expect("it is there until it ends")
    }

    fn end(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        drop(self.0.take().map(Object::take));
    }
}

/// What the transaction of a take has written.
struct TakeWritten {
    batch: Vec<Swap>,
    answers: Vec<Option<Swapped>>,
}

impl PostgresStore {
    pub(super) async fn take_due(
        &self,
        state: State,
        limit: usize,
        choose: Choose<'_>,
    ) -> Result<Vec<Swapped>> {
        let connection = self.connection().await?;
        let taking = Taking(Some(connection));
        let mut sent = CallEffect::Reads;
        let done =
            tokio::time::timeout(self.call_timeout(), self.take_in(taking, state, limit, choose, &mut sent));
        let Ok(written) = done.await else { return Err(timed_out(sent, self.call_timeout())) };
        let TakeWritten { batch, mut answers } = written?;
        let rest: Vec<usize> = (0..batch.len()).filter(|at| answers[*at].is_none()).collect();
        if !rest.is_empty() {
            let swaps: Vec<Swap> = rest.iter().map(|at| batch[*at].clone()).collect();
            // What the transaction has written stands, so a failure is one of these alone.
            let told = match self.swap_all(&swaps).await {
                Ok(told) => told,
                Err(error) => rest.iter().map(|_| Swapped::Failed(error.clone())).collect(),
            };
            for (at, told) in rest.iter().zip(told) {
                answers[*at] = Some(told);
            }
        }
        Ok(answers.into_iter().map(|answer| answer.expect("the rest was answered above")).collect())
    }

    async fn take_in(
        &self,
        taking: Taking,
        state: State,
        limit: usize,
        choose: Choose<'_>,
        sent: &mut CallEffect,
    ) -> Result<TakeWritten> {
        let (number, name) = (open_state(state), state.name());
        let (limit, from) = (limit.clamp(1, SCAN_RECORDS_MAX), time(self.take_position.next_from_us()));
        let limit = i64::try_from(limit).expect("clamped above");
        let client = taking.client();
        let taken = client
            .prepare_cached(scan_statements::TAKE)
            .await
            .map_err(|error| failed(CallEffect::Reads, error))?;
        let parameters: [&(dyn ToSql + Sync); 4] = [&limit, &number, &name, &from];
        let (begun, rows) = tokio::join!(client.batch_execute("BEGIN"), client.query(&taken, &parameters));
        begun.map_err(|error| failed(CallEffect::Reads, error))?;
        let rows = rows.map_err(|error| failed(CallEffect::Reads, error))?;
        if let Some(first) = rows.first() {
            self.take_position.found(first.get("due_at_us"));
        }
        let ctids: Vec<Ctid> = rows.iter().map(|row| row.get("place")).collect();
        let (page, places) = page(&rows, &ctids);
        self.ctids.note(places.into_iter());
        let batch = choose(page);
        let of: Vec<usize> = (0..batch.len()).filter(|at| is_replacement(&batch[*at])).collect();
        // With the address of each row no index is read.
        let (known, ctids) = self.ctids.take_known(&batch, &of);
        let mut answers: Vec<Option<Swapped>> = vec![None; batch.len()];
        if known.is_empty() {
            client.batch_execute("COMMIT").await.map_err(|error| failed(CallEffect::Reads, error))?;
            taking.end();
            return Ok(TakeWritten { batch, answers });
        }
        let ids: Vec<_> = known.iter().map(|at| &batch[*at].id).collect();
        let (DigestColumns { highs, middles, lows }, new) =
            (DigestColumns::of(&ids), RecordColumns::of(&batch, &known));
        let seen: Vec<i64> = known.iter().map(|at| seen_by(&batch[*at])).collect();
        let clock = self.clock_us();
        let parameters: [&(dyn ToSql + Sync); 10] = [
            &highs,
            &middles,
            &lows,
            &new.states,
            &new.dues,
            &new.receipts,
            &clock,
            &seen,
            &new.open_states,
            &ctids,
        ];
        let written = client.prepare_cached(statements::WRITE_TAKEN).await;
        let written = written.map_err(|error| failed(CallEffect::Reads, error))?;
        *sent = CallEffect::Writes;
        let (rows, committed) =
            tokio::join!(client.query(&written, &parameters), client.batch_execute("COMMIT"));
        // After a refusal what followed was a rollback.
        let rows = rows.map_err(|error| failed(CallEffect::Writes, error))?;
        committed.map_err(|error| failed(CallEffect::Writes, error))?;
        for row in &rows {
            let at = batch_index(&known, row.get(0))?;
            let won = self.won(row.get(1))?;
            if batch[at].new.as_ref().is_some_and(|new| new.state == State::Held) {
                self.note([(&batch[at].id, &won, row.get(2))].into_iter());
            }
            answers[at] = Some(won);
        }
        taking.end();
        Ok(TakeWritten { batch, answers })
    }
}

/// Whether a swap can be written beside what was taken.
fn is_replacement(swap: &Swap) -> bool {
    matches!((swap.seen, &swap.new), (Seen::Version(_), Some(_)))
        && too_large(swap, RECORD_BYTES_MAX).is_none()
}

/// The records of a take, and the address of each.
fn page<'a>(rows: &'a [Row], ctids: &'a [Ctid]) -> (Page, Vec<(onceward::Id, onceward::Version, Ctid)>) {
    let (mut readable, mut unreadable, mut places): (Vec<_>, Vec<(_, Error)>, Vec<_>) = Default::default();
    for (row, ctid) in rows.iter().zip(ctids) {
        let Some(id) = id_of(row) else { continue };
        match found(row, FOUND_AT) {
            Ok(found) => {
                places.push((id.clone(), found.version, *ctid));
                readable.push((id, found));
            }
            Err(error) => unreadable.push((id, error)),
        }
    }
    (Page::new(readable, None).with_unreadable(unreadable), places)
}
