//! Batches of swaps: one statement for each kind of swap, whose answers are then combined.

use onceward::{Error, ErrorKind, Id, Result, Seen, State, Swap, Swapped, Version};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::columns::{DigestColumns, IdColumns, RecordColumns};
use super::ctid_cache::Ctid;
use super::errors::CallEffect;
use super::statements;
use super::store::{FOUND_AT, PostgresStore, RECORD_BYTES_MAX, batch_index, found, no_such_swap};
use crate::sql::batch_answers::{BatchAnswers, too_large};
use crate::sql::row::{self, micros};
use crate::sql::swap_kinds::{SwapKinds, record, seen_by};
use crate::sql::{FREE_GRACE, TRIES_MAX};

impl PostgresStore {
    pub(super) async fn swap_all(&self, batch: &[Swap]) -> Result<Vec<Swapped>> {
        if let [swap] = batch
            && too_large(swap, RECORD_BYTES_MAX).is_none()
            && let Some(won) = self.swap_one(swap).await?
        {
            return Ok(vec![won]);
        }
        let mut answers = BatchAnswers::new(batch, RECORD_BYTES_MAX);
        for round in 0..TRIES_MAX {
            let locked = if round == 0 { OnLockedRow::PassOver } else { OnLockedRow::WaitFor };
            let kinds = SwapKinds::new(batch, answers.open(), self.clock());
            let (created, replaced, freed, deleted, checked) = tokio::join!(
                self.create(batch, &kinds.create),
                self.replace(batch, &kinds.replace, locked),
                self.remove(batch, &kinds.free, RemovalLeaves::Version),
                self.remove(batch, &kinds.delete, RemovalLeaves::Nothing),
                self.check(batch, &kinds.check),
            );
            answers.add(&kinds.create, created);
            answers.add(&kinds.replace, replaced);
            answers.add(&kinds.free, freed);
            answers.add(&kinds.delete, deleted);
            answers.add(&kinds.check, checked);
            self.look_again(batch, &mut answers).await;
            if answers.open().is_empty() {
                break;
            }
        }
        answers.add(
            &answers.open(),
            Err(Error::new(
                ErrorKind::Conflict,
                "a record kept coming and going under a swap; is something rewriting it?",
            )),
        );
        answers.result()
    }

    /// Loads the current record for swaps that neither won nor found anything. A creation that lost to a record
    /// that was removed meanwhile stays unanswered.
    async fn look_again(&self, batch: &[Swap], answers: &mut BatchAnswers) {
        let open = answers.open();
        if open.is_empty() {
            return;
        }
        let loaded = self.load_all(&ids(batch, &open)).await;
        let told = loaded.map(|loaded| {
            let told =
                open.iter().zip(loaded).filter_map(|(index, found)| match (batch[*index].seen, found) {
                    (Seen::Absent, Ok(None)) => None,
                    (Seen::Version(seen), Ok(Some(found))) if found.version == seen => None,
                    (_, Ok(None)) => Some((*index, Swapped::Lost(None))),
                    (_, Ok(Some(found))) => Some((*index, Swapped::Lost(Some(found)))),
                    (_, Err(error)) => Some((*index, Swapped::Failed(error))),
                });
            told.collect()
        });
        answers.add(&open, told);
    }

    async fn create(&self, batch: &[Swap], of: &[usize]) -> Result<Vec<(usize, Swapped)>> {
        if of.is_empty() {
            return Ok(Vec::new());
        }
        let clock = self.clock_us();
        let (ids, new) = (IdColumns::of(&ids(batch, of)), RecordColumns::of(batch, of));
        let rows = self
            .call(
                CallEffect::Writes,
                statements::CREATE,
                &[
                    &ids.numbers.highs,
                    &ids.numbers.middles,
                    &ids.numbers.lows,
                    &ids.scopes,
                    &ids.operations,
                    &ids.keys,
                    &new.states,
                    &new.dues,
                    &new.receipts,
                    &clock,
                    &new.open_states,
                ],
            )
            .await?;
        if let Some(answers) = self.all_alike(of, &rows)? {
            let ctids: Vec<Ctid> = rows[0].get("places");
            let won = answers.iter().zip(ctids);
            self.note(won.map(|((at, won), ctid)| (&batch[*at].id, won, ctid)));
            return Ok(answers);
        }
        // The winners come in the order of the batch, so one pass finds them all.
        let mut indexes = of.iter().enumerate();
        let mut answers = Vec::with_capacity(of.len());
        let mut lost = Vec::new();
        for row in rows {
            if let Some(number) = row.get::<_, Option<i64>>(0) {
                lost.push((batch_index(of, number)?, row::lost(found(&row, FOUND_AT))));
                continue;
            }
            let won: (i64, i64, i64) = (row.get(1), row.get(2), row.get(3));
            let index = indexes.find(|(at, _)| ids.numbers.at(*at) == won);
            let (_, index) = index.ok_or_else(no_such_swap)?;
            let won = self.won(row.get(4))?;
            let ctids = row.get::<_, Vec<Ctid>>("places").into_iter();
            self.note(ctids.map(|ctid| (&batch[*index].id, &won, ctid)));
            answers.push((*index, won));
        }
        // A record that was there when the statement began may have been removed before the claim: the claim won.
        lost.extend(answers);
        Ok(lost)
    }

    async fn replace(
        &self,
        batch: &[Swap],
        of: &[usize],
        locked: OnLockedRow,
    ) -> Result<Vec<(usize, Swapped)>> {
        if of.is_empty() {
            return Ok(Vec::new());
        }
        let ctids = self.ctids.take(batch, of);
        let (DigestColumns { highs, middles, lows }, new) =
            (DigestColumns::of(&ids(batch, of)), RecordColumns::of(batch, of));
        let seen: Vec<i64> = of.iter().map(|index| seen_by(&batch[*index])).collect();
        let clock = self.clock_us();
        let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![
            &highs,
            &middles,
            &lows,
            &new.states,
            &new.dues,
            &new.receipts,
            &clock,
            &seen,
            &new.open_states,
        ];
        // Claims of one receipt by several workers meet here. The others of the batch need not wait for the winner's
        // commit; by the time theirs is done, that one probably is too.
        let has_claims = of.iter().any(|index| record(&batch[*index]).state == State::Held);
        let statement = match &ctids {
            None if locked == OnLockedRow::PassOver && of.len() > 1 && has_claims => {
                statements::REPLACE_UNLOCKED
            }
            None => statements::REPLACE,
            Some(ctids) => {
                parameters.push(ctids);
                statements::REPLACE_AT
            }
        };
        let rows = self.call(CallEffect::Writes, statement, &parameters).await?;
        self.numbered(of, &rows)
    }

    async fn remove(
        &self,
        batch: &[Swap],
        of: &[usize],
        leave: RemovalLeaves,
    ) -> Result<Vec<(usize, Swapped)>> {
        if of.is_empty() {
            return Ok(Vec::new());
        }
        self.ctids.take(batch, of);
        let DigestColumns { highs, middles, lows } = DigestColumns::of(&ids(batch, of));
        let seen: Vec<i64> = of.iter().map(|index| seen_by(&batch[*index])).collect();
        let (clock, grace) = (self.clock_us(), micros(FREE_GRACE));
        let parameters: [&(dyn ToSql + Sync); 6] = [&highs, &middles, &lows, &seen, &clock, &grace];
        let rows = match leave {
            RemovalLeaves::Version => self.call(CallEffect::Writes, statements::FREE, &parameters).await?,
            RemovalLeaves::Nothing => {
                self.call(CallEffect::Writes, statements::DELETE, &parameters[..4]).await?
            }
        };
        self.numbered(of, &rows)
    }

    /// Swaps of nothing for nothing.
    async fn check(&self, batch: &[Swap], of: &[usize]) -> Result<Vec<(usize, Swapped)>> {
        let found = self.load_all(&ids(batch, of)).await?;
        let answers = of.iter().zip(found).map(|(index, found)| match found {
            Ok(None) => (*index, Swapped::Won(Version(self.clock().0.max(1)))),
            Ok(found) => (*index, Swapped::Lost(found)),
            Err(error) => (*index, Swapped::Failed(error)),
        });
        Ok(answers.collect())
    }

    /// The answers of a statement that numbers its rows.
    fn numbered(&self, of: &[usize], rows: &[Row]) -> Result<Vec<(usize, Swapped)>> {
        if let Some(answers) = self.all_alike(of, rows)? {
            return Ok(answers);
        }
        rows.iter()
            .map(|row| {
                let swapped = match row.get::<_, Option<i64>>(4) {
                    Some(version) => self.won(version)?,
                    None => row::lost(found(row, FOUND_AT)),
                };
                Ok((batch_index(of, row.get(0))?, swapped))
            })
            .collect()
    }

    /// The answers where one row says that all have won.
    fn all_alike(&self, of: &[usize], rows: &[Row]) -> Result<Option<Vec<(usize, Swapped)>>> {
        let [row] = rows else { return Ok(None) };
        let (number, high): (Option<i64>, Option<i64>) = (row.get(0), row.get(1));
        if number.is_some() || high.is_some() {
            return Ok(None);
        }
        let won = self.won(row.get(4))?;
        Ok(Some(of.iter().map(|index| (*index, won.clone())).collect()))
    }
}

/// What a replacement does about rows that another transaction is changing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnLockedRow {
    PassOver,
    WaitFor,
}

/// What a removal leaves behind.
#[derive(Clone, Copy)]
enum RemovalLeaves {
    Version,
    Nothing,
}

fn ids<'a>(batch: &'a [Swap], of: &[usize]) -> Vec<&'a Id> {
    of.iter().map(|index| &batch[*index].id).collect()
}
