//! Swaps and loads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use onceward::{Caps, Error, ErrorKind, Found, Fut, Id, Page, Result, Scan, Store, Swap, Swapped, Version};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, NoTls, Row, Socket};

use super::columns::{Ids, New, Numbers};
use super::connect::{parse, pool, set_up};
use super::fault::{Call, OfBatch, failed, is_worth_repeating, timed_out, unconnected};
use super::places::{Place, Places};
use super::sweep::Position;
use super::{scan, schema, statements};
use crate::sql::kinds::{Kinds, seen_by};
use crate::sql::row::{self, micros};
use crate::sql::schema::Migrated;
use crate::sql::{FREE_GRACE, Options, TRIES_MAX};

/// Receipts in PostgreSQL.
pub struct PostgresStore {
    pool: Pool,
    call_timeout: Duration,
    connections: usize,
    /// The highest version that this process has seen: the server's clock has been there. Versions go on
    /// from it even if another server, with a clock that is behind, takes the first one's place.
    clock: AtomicU64,
    /// Where the next sweep begins.
    pub(super) position: Position,
    pub(super) places: Places,
}

impl PostgresStore {
    /// Opens the database that an address names, such as `postgres://user:password@host/database`.
    pub async fn open(url: &str, options: Options) -> Result<Self> {
        Self::open_with(parse(url)?, NoTls, options).await
    }

    /// Opens a database over a connection that needs more than an address can say, such as TLS.
    pub async fn open_with<T>(config: Config, tls: T, options: Options) -> Result<Self>
    where
        T: tokio_postgres::tls::MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + Sync,
        T::TlsConnect: Send + Sync,
        <T::TlsConnect as tokio_postgres::tls::TlsConnect<Socket>>::Future: Send,
    {
        let store = Self {
            pool: pool(config, tls, &options, &set_up(options.call_timeout())),
            call_timeout: options.call_timeout(),
            connections: options.connections.max(1),
            clock: AtomicU64::new(0),
            position: Position::default(),
            places: Places::default(),
        };
        store.prepare(options).await?;
        Ok(store)
    }

    /// Brings the tables of a database up to date, and says what was done.
    pub async fn migrate(url: &str) -> Result<Migrated> {
        let options = Options { connections: 1, ..Options::default() };
        let pool = pool(parse(url)?, NoTls, &options, &set_up(options.call_timeout()));
        let mut connection = pool.get().await.map_err(unconnected)?;
        schema::prepare(&mut connection, options.migrations).await
    }

    async fn prepare(&self, options: Options) -> Result<Migrated> {
        let mut connection = self.pool.get().await.map_err(unconnected)?;
        let preparing = schema::prepare(&mut connection, options.migrations);
        let prepared = tokio::time::timeout(crate::sql::CALL_MAX, preparing).await;
        prepared.unwrap_or_else(|_| Err(timed_out(Call::Writes, crate::sql::CALL_MAX)))
    }

    /// One statement, one answer: within the time limit, and again where the server asks for that.
    pub(super) async fn call(
        &self,
        call: Call,
        statement: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        for _ in 1..TRIES_MAX {
            match self.call_once(call, statement, parameters).await? {
                Ok(rows) => return Ok(rows),
                Err(error) if is_worth_repeating(&error) => {}
                Err(error) => return Err(failed(call, error)),
            }
        }
        self.call_once(call, statement, parameters).await?.map_err(|error| failed(call, error))
    }

    async fn call_once(
        &self,
        call: Call,
        statement: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Result<Vec<Row>, tokio_postgres::Error>> {
        let connection = self.pool.get().await.map_err(unconnected)?;
        let answer = tokio::time::timeout(self.call_timeout, async {
            let prepared = connection.prepare_cached(statement).await?;
            connection.query(&prepared, parameters).await
        });
        match answer.await {
            Ok(answer) => Ok(answer),
            Err(_) => {
                // It may answer some day, to nobody: nothing more goes over this connection.
                drop(Object::take(connection));
                Err(timed_out(call, self.call_timeout))
            }
        }
    }

    fn clock(&self) -> Version {
        Version(self.clock.load(Ordering::Relaxed))
    }

    pub(super) fn clock_us(&self) -> i64 {
        i64::try_from(self.clock().0).unwrap_or(0)
    }

    async fn swap_all(&self, batch: &[Swap]) -> Result<Vec<Swapped>> {
        if let [swap] = batch
            && let Some(won) = self.swap_one(swap).await?
        {
            return Ok(vec![won]);
        }
        let mut answers: Vec<Option<Swapped>> = batch.iter().map(|_| None).collect();
        for _ in 0..TRIES_MAX {
            let open = (0..batch.len()).filter(|place| answers[*place].is_none());
            let kinds = Kinds::new(batch, open, self.clock());
            let (created, replaced, freed, deleted, checked) = tokio::join!(
                self.create(batch, &kinds.create),
                self.replace(batch, &kinds.replace),
                self.remove(batch, &kinds.free, Leave::Version),
                self.remove(batch, &kinds.delete, Leave::Nothing),
                self.check(batch, &kinds.check),
            );
            let mut fault = OfBatch::default();
            for (of, answer) in [
                (&kinds.create, created),
                (&kinds.replace, replaced),
                (&kinds.free, freed),
                (&kinds.delete, deleted),
                (&kinds.check, checked),
            ] {
                match answer {
                    Ok(found) => found.into_iter().for_each(|(place, swapped)| {
                        fault.wrote |= matches!(swapped, Swapped::Won(_));
                        answers[place] = Some(swapped);
                    }),
                    Err(error) if !of.is_empty() => fault.add(error),
                    Err(_) => {}
                }
            }
            fault.wrote |= answers.iter().any(|answer| matches!(answer, Some(Swapped::Won(_))));
            fault.result()?;
            self.look_again(batch, &mut answers).await.map_err(|error| {
                let wrote = answers.iter().any(|answer| matches!(answer, Some(Swapped::Won(_))));
                if wrote { error.maybe_applied() } else { error }
            })?;
            if answers.iter().all(Option::is_some) {
                break;
            }
        }
        let answers: Option<Vec<Swapped>> = answers.into_iter().collect();
        answers.ok_or_else(|| {
            Error::new(
                ErrorKind::Conflict,
                "a record kept coming and going under a swap; is something rewriting it?",
            )
            .maybe_applied()
        })
    }

    /// Tells those who neither won nor found anything what is there now. A creation that lost to a record
    /// which is gone again stays open.
    async fn look_again(&self, batch: &[Swap], answers: &mut [Option<Swapped>]) -> Result<()> {
        let open: Vec<usize> = (0..batch.len()).filter(|place| answers[*place].is_none()).collect();
        if open.is_empty() {
            return Ok(());
        }
        let found = self.load_all(&ids(batch, &open)).await?;
        for (place, found) in open.into_iter().zip(found) {
            answers[place] = match (batch[place].seen, found) {
                (onceward::Seen::Absent, None) => None,
                (onceward::Seen::Version(seen), Some(found)) if found.version == seen => None,
                (_, found) => Some(Swapped::Lost(found)),
            };
        }
        Ok(())
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
                ],
            )
            .await?;
        if let Some(answers) = self.all_alike(of, &rows)? {
            let places: Vec<Place> = rows[0].get("places");
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
                lost.push((place(of, number)?, Swapped::Lost(Some(found(&row)?))));
                continue;
            }
            let won: (i64, i64, i64) = (row.get(1), row.get(2), row.get(3));
            let place = places.find(|(at, _)| ids.numbers.at(*at) == won);
            let (_, place) = place.ok_or_else(|| row::damaged("an answer is about no swap of the batch"))?;
            let won = self.won(row.get(4))?;
            let places = row.get::<_, Vec<Place>>("places").into_iter();
            self.note(places.map(|at| (&batch[*place].id, &won, at)));
            answers.push((*place, won));
        }
        // A record that was there when the statement began may have gone before the claim came: it won.
        lost.extend(answers);
        Ok(lost)
    }

    async fn replace(&self, batch: &[Swap], of: &[usize]) -> Result<Vec<(usize, Swapped)>> {
        if of.is_empty() {
            return Ok(Vec::new());
        }
        let places = self.places.take(batch, of);
        let (Numbers { highs, middles, lows }, new) = (Numbers::of(&ids(batch, of)), New::of(batch, of));
        let seen: Vec<i64> = of.iter().map(|place| seen_by(&batch[*place])).collect();
        let clock = self.clock_us();
        let mut parameters: Vec<&(dyn ToSql + Sync)> =
            vec![&highs, &middles, &lows, &new.states, &new.dues, &new.receipts, &clock, &seen];
        let statement = match &places {
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
        self.places.take(batch, of);
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
            None => (*place, Swapped::Won(Version(self.clock().0.max(1)))),
            found => (*place, Swapped::Lost(found)),
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
                    None => Swapped::Lost(Some(found(row)?)),
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

    /// Remembers where the rows of claims are that have won.
    pub(super) fn note<'a>(&self, claims: impl Iterator<Item = (&'a Id, &'a Swapped, Place)>) {
        self.places.note(claims.filter_map(|(id, swapped, place)| match swapped {
            Swapped::Won(version) => Some((id, *version, place)),
            Swapped::Lost(_) => None,
        }));
    }

    pub(super) fn won(&self, version: i64) -> Result<Swapped> {
        let version = row::version(version)?;
        self.clock.fetch_max(version.0, Ordering::Relaxed);
        Ok(Swapped::Won(version))
    }

    async fn load_all(&self, ids: &[&Id]) -> Result<Vec<Option<Found>>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids = Ids::of(ids);
        let Numbers { highs, middles, lows } = &ids.numbers;
        let parameters: [&(dyn ToSql + Sync); 6] =
            [highs, middles, lows, &ids.scopes, &ids.operations, &ids.keys];
        let rows = self.call(Call::Reads, statements::LOAD, &parameters).await?;
        let mut all: Vec<Option<Found>> = ids.keys.iter().map(|_| None).collect();
        let places: Vec<usize> = (0..all.len()).collect();
        for row in &rows {
            all[place(&places, row.get(0))?] = Some(found(row)?);
        }
        Ok(all)
    }
}

impl Store for PostgresStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> Fut<'a, Vec<Swapped>> {
        Box::pin(self.swap_all(batch))
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> Fut<'a, Vec<Option<Found>>> {
        Box::pin(async move { self.load_all(&ids.iter().collect::<Vec<_>>()).await })
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> Fut<'a, Page> {
        Box::pin(scan::scan(self, query))
    }

    fn caps(&self) -> Caps {
        Caps {
            name: "postgres",
            durable: true,
            atomic: true,
            shared: true,
            transactions: true,
            // While one waits for the disk the other computes. With more of them each carries less, and
            // what a statement and a commit cost by themselves is shared by fewer. A batch of claims and
            // completions takes two connections; the rest are for looks and scans.
            batches_in_flight: (self.connections / 2).clamp(1, 2),
            gathers: false,
        }
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("connections", &self.connections).finish_non_exhaustive()
    }
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

/// The place in the batch of the swap with this number in the statement.
fn place(of: &[usize], number: i64) -> Result<usize> {
    let place = usize::try_from(number - 1).ok().and_then(|at| of.get(at).copied());
    place.ok_or_else(|| row::damaged("an answer is about no swap of the batch"))
}

fn found(row: &Row) -> Result<Found> {
    row::found(row.get(5), row.get(6), row.get(7), row.get(8))
}
