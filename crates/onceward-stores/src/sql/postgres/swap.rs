//! A batch of swaps: each kind is one statement, and what they answer is put together.

use onceward::{Error, ErrorKind, Id, Result, Seen, State, Swap, Swapped, Version};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::columns::{Ids, New, Numbers};
use super::ctid_cache::Ctid;
use super::fault::Call;
use super::statements;
use super::store::{FOUND_AT, PostgresStore, RECORD_BYTES_MAX, found, no_such_swap, place};
use crate::sql::answers::{Answers, too_large};
use crate::sql::kinds::{Kinds, record, seen_by};
use crate::sql::row::{self, micros};
use crate::sql::{FREE_GRACE, TRIES_MAX};

impl PostgresStore {
    pub(super) async fn swap_all(&self, batch: &[Swap]) -> Result<Vec<Swapped>> {
        if let [swap] = batch
            && too_large(swap, RECORD_BYTES_MAX).is_none()
            && let Some(won) = self.swap_one(swap).await?
        {
            return Ok(vec![won]);
        }
        let mut answers = Answers::new(batch, RECORD_BYTES_MAX);
        for round in 0..TRIES_MAX {
            let locked = if round == 0 { Locked::PassOver } else { Locked::WaitFor };
            let kinds = Kinds::new(batch, answers.open(), self.clock());
            let (created, replaced, freed, deleted, checked) = tokio::join!(
                self.create(batch, &kinds.create),
                self.replace(batch, &kinds.replace, locked),
                self.remove(batch, &kinds.free, Leave::Version),
                self.remove(batch, &kinds.delete, Leave::Nothing),
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

    /// Tells those who neither won nor found anything what is there now. A creation that lost to a record
    /// which is gone again stays open.
    async fn look_again(&self, batch: &[Swap], answers: &mut Answers) {
        let open = answers.open();
        if open.is_empty() {
            return;
        }
        let loaded = self.load_all(&ids(batch, &open)).await;
        let told = loaded.map(|loaded| {
            let told =
                open.iter().zip(loaded).filter_map(|(place, found)| match (batch[*place].seen, found) {
                    (Seen::Absent, Ok(None)) => None,
                    (Seen::Version(seen), Ok(Some(found))) if found.version == seen => None,
                    (_, Ok(None)) => Some((*place, Swapped::Lost(None))),
                    (_, Ok(Some(found))) => Some((*place, Swapped::Lost(Some(found)))),
                    (_, Err(error)) => Some((*place, Swapped::Failed(error))),
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
        let (ids, new) = (Ids::of(&ids(batch, of)), New::of(batch, of));
        let rows = self
            .call(
                Call::Writes,
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
            let places: Vec<Ctid> = rows[0].get("places");
            let won = answers.iter().zip(places);
            self.note(won.map(|((at, won), place)| (&batch[*at].id, won, place)));
            return Ok(answers);
        }
        // The winners come in the order of the batch, so one walk finds them all.
        let mut places = of.iter().enumerate();
        let mut answers = Vec::with_capacity(of.len());
        let mut lost = Vec::new();
        for row in rows {
            if let Some(number) = row.get::<_, Option<i64>>(0) {
                lost.push((place(of, number)?, row::lost(found(&row, FOUND_AT))));
                continue;
            }
            let won: (i64, i64, i64) = (row.get(1), row.get(2), row.get(3));
            let place = places.find(|(at, _)| ids.numbers.at(*at) == won);
            let (_, place) = place.ok_or_else(no_such_swap)?;
            let won = self.won(row.get(4))?;
            let places = row.get::<_, Vec<Ctid>>("places").into_iter();
            self.note(places.map(|at| (&batch[*place].id, &won, at)));
            answers.push((*place, won));
        }
        // A record that was there when the statement began may have gone before the claim came: it won.
        lost.extend(answers);
        Ok(lost)
    }

    async fn replace(&self, batch: &[Swap], of: &[usize], locked: Locked) -> Result<Vec<(usize, Swapped)>> {
        if of.is_empty() {
            return Ok(Vec::new());
        }
        let places = self.ctids.take(batch, of);
        let (Numbers { highs, middles, lows }, new) = (Numbers::of(&ids(batch, of)), New::of(batch, of));
        let seen: Vec<i64> = of.iter().map(|place| seen_by(&batch[*place])).collect();
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
        // commit; when theirs is done, so is that one most likely.
        let has_claims = of.iter().any(|place| record(&batch[*place]).state == State::Held);
        let statement = match &places {
            None if locked == Locked::PassOver && of.len() > 1 && has_claims => statements::REPLACE_UNLOCKED,
            None => statements::REPLACE,
            Some(places) => {
                parameters.push(places);
                statements::REPLACE_AT
            }
        };
        let rows = self.call(Call::Writes, statement, &parameters).await?;
        self.numbered(of, &rows)
    }

    async fn remove(&self, batch: &[Swap], of: &[usize], leave: Leave) -> Result<Vec<(usize, Swapped)>> {
        if of.is_empty() {
            return Ok(Vec::new());
        }
        self.ctids.take(batch, of);
        let Numbers { highs, middles, lows } = Numbers::of(&ids(batch, of));
        let seen: Vec<i64> = of.iter().map(|place| seen_by(&batch[*place])).collect();
        let (clock, grace) = (self.clock_us(), micros(FREE_GRACE));
        let parameters: [&(dyn ToSql + Sync); 6] = [&highs, &middles, &lows, &seen, &clock, &grace];
        let rows = match leave {
            Leave::Version => self.call(Call::Writes, statements::FREE, &parameters).await?,
            Leave::Nothing => self.call(Call::Writes, statements::DELETE, &parameters[..4]).await?,
        };
        self.numbered(of, &rows)
    }

    /// Swaps of nothing for nothing.
    async fn check(&self, batch: &[Swap], of: &[usize]) -> Result<Vec<(usize, Swapped)>> {
        let found = self.load_all(&ids(batch, of)).await?;
        let answers = of.iter().zip(found).map(|(place, found)| match found {
            Ok(None) => (*place, Swapped::Won(Version(self.clock().0.max(1)))),
            Ok(found) => (*place, Swapped::Lost(found)),
            Err(error) => (*place, Swapped::Failed(error)),
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
                Ok((place(of, row.get(0))?, swapped))
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
        Ok(Some(of.iter().map(|place| (*place, won.clone())).collect()))
    }
}

/// What a replacement does about rows that another transaction is changing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Locked {
    PassOver,
    WaitFor,
}

/// What a removal leaves in its place.
#[derive(Clone, Copy)]
enum Leave {
    Version,
    Nothing,
}

fn ids<'a>(batch: &'a [Swap], of: &[usize]) -> Vec<&'a Id> {
    of.iter().map(|place| &batch[*place].id).collect()
}
