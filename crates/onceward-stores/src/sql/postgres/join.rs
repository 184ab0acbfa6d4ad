//! Swaps inside a transaction, from a pool of this crate or of the caller.

use std::collections::HashMap;

use onceward::{Error, ErrorKind, Id, Result, Seen, Swap, Swapped};
use tokio_postgres::types::{ToSql, Type};

use super::columns::{IdColumns, RecordColumns};
use super::digest::Digest;
use super::errors::{CallEffect, failed};
use super::statements;
use super::tx::PostgresTx;
use crate::sql::join::{Cell, Cells, Dialect, SqlTransaction, Value};
use crate::sql::row::{self, due_us, micros, open_state};
use crate::sql::swap_kinds::{columns, record, seen_by};
use crate::sql::{FREE_GRACE, TRIES_MAX};

/// A transaction of the caller has seen no version that the server has given out.
pub(super) const NO_CLOCK: Value<'static> = Value::Int(Some(0));

/// Swaps one record inside a transaction.
pub(crate) async fn swap_in<T: SqlTransaction>(tx: &mut T, swap: &Swap) -> Result<Swapped> {
    let id = id_values(&swap.id);
    for _ in 0..TRIES_MAX {
        let won = match (swap.seen, &swap.new) {
            (Seen::Absent, None) => None,
            (Seen::Absent, Some(_)) => {
                let mut values = id.to_vec();
                values.extend(written(swap));
                values.extend([NO_CLOCK, open_value(swap)]);
                tx.fetch(statements::CREATE_ONE_ANYWHERE, &values).await?
            }
            (Seen::Version(_), Some(_)) => {
                let mut values = id[..NUMBERS].to_vec();
                values.extend(written(swap));
                values.extend([Value::Int(Some(seen_by(swap))), open_value(swap)]);
                tx.fetch(statements::REPLACE_ONE, &values).await?
            }
            (Seen::Version(_), None) => {
                let (seen, grace) = (Value::Int(Some(seen_by(swap))), Value::Int(Some(micros(FREE_GRACE))));
                tx.fetch(statements::FREE_ONE, &[id[0], id[1], id[2], seen, grace]).await?
            }
        };
        if let Some(row) = won {
            return Ok(Swapped::Won(row::version(Cells(row).int(0).unwrap_or_default())?));
        }
        // A statement of its own sees what was committed while the first one waited.
        match (swap.seen, tx.fetch(statements::LOAD_ONE, &id).await?) {
            (Seen::Absent, None) if swap.new.is_none() => return Ok(Swapped::Won(onceward::Version(1))),
            (Seen::Absent, None) => {}
            (_, None) => return Ok(Swapped::Lost(None)),
            (_, Some(row)) => return Ok(row::lost(Cells(row).found())),
        }
    }
    Err(Error::new(
        ErrorKind::Conflict,
        "a record kept coming and going under a claim; roll back and try again",
    ))
}

/// Creates several records of different ids with one statement. Those that did not win are swapped one by one, which
/// also finds what is in their way.
pub(super) async fn create_in(tx: &mut PostgresTx, batch: &[Swap], ids: &[&Id]) -> Result<Vec<Swapped>> {
    let all: Vec<usize> = (0..batch.len()).collect();
    let (ids, new) = (IdColumns::of(ids), RecordColumns::of(batch, &all));
    let connection = tx.connection();
    let prepared = connection.prepare_cached(statements::CREATE).await;
    let prepared = prepared.map_err(|error| failed(CallEffect::Reads, error))?;
    let rows = connection
        .query(
            &prepared,
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
                // A transaction of the caller has seen no version that the server has given out.
                &0_i64,
                &new.open_states,
            ],
        )
        .await
        .map_err(|error| failed(CallEffect::Reads, error))?;
    let mut won = HashMap::new();
    for row in &rows {
        let (number, high): (Option<i64>, Option<i64>) = (row.get(0), row.get(1));
        match (number, high) {
            // One row says that all have won.
            (None, None) => {
                let version = row::version(row.get(4))?;
                return Ok(vec![Swapped::Won(version); batch.len()]);
            }
            (None, Some(high)) => drop(won.insert((high, row.get(2), row.get(3)), row::version(row.get(4))?)),
            (Some(_), _) => {}
        }
    }
    let mut answers = Vec::with_capacity(batch.len());
    for (at, swap) in batch.iter().enumerate() {
        answers.push(match won.get(&ids.numbers.at(at)) {
            Some(version) => Swapped::Won(*version),
            None => swap_in(tx, swap).await?,
        });
    }
    Ok(answers)
}

/// How many of an id's values are its numbers.
const NUMBERS: usize = 3;

/// The parameters for an id: its numbers, and its texts.
pub(super) fn id_values(id: &Id) -> [Value<'_>; 6] {
    let (scope, operation, key) = columns(id);
    let [high, middle, low] = number_values(id);
    [high, middle, low, Value::Text(scope), Value::Text(operation), Value::Text(key)]
}

/// Its numbers alone.
pub(super) fn number_values(id: &Id) -> [Value<'static>; NUMBERS] {
    let Digest { high, middle, low } = Digest::of(id);
    [high, middle, low].map(|number| Value::Int(Some(number)))
}

/// The number of its state.
pub(super) fn open_value(swap: &Swap) -> Value<'static> {
    Value::Int(Some(open_state(record(swap).state)))
}

/// The parameters for the new record.
fn written(swap: &Swap) -> [Value<'_>; 3] {
    let new = record(swap);
    [Value::Text(new.state.name()), Value::Int(due_us(new)), Value::Bytes(&new.bytes)]
}

impl SqlTransaction for tokio_postgres::Transaction<'_> {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn fetch<'a>(
        &'a mut self,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> Result<Option<Vec<Cell>>> {
        fetch_unprepared(self, statement, values).await
    }
}

impl SqlTransaction for deadpool_postgres::Transaction<'_> {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn fetch<'a>(
        &'a mut self,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> Result<Option<Vec<Cell>>> {
        let prepared =
            self.prepare_cached(statement).await.map_err(|error| failed(CallEffect::Reads, error))?;
        fetch(&**self, &prepared, values).await
    }
}

/// Inside a transaction nothing has happened until its commit, so no failure here has an unknown outcome.
pub(super) async fn fetch<C: tokio_postgres::GenericClient + Sync, S>(
    client: &C,
    statement: &S,
    values: &[Value<'_>],
) -> Result<Option<Vec<Cell>>>
where
    S: ?Sized + tokio_postgres::ToStatement + Sync + Send,
{
    let values: Vec<Parameter<'_>> = values.iter().map(|value| Parameter(*value)).collect();
    let parameters: Vec<&(dyn ToSql + Sync)> =
        values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
    let row =
        client.query_opt(statement, &parameters).await.map_err(|error| failed(CallEffect::Reads, error))?;
    Ok(row.map(|row| cells(&row)))
}

/// The same in one round trip: a transaction of the bare driver has no place for a prepared statement (except beside it, see
/// `statement_cache.rs`), and to prepare one for each call is a round trip more. As `fetch`, it takes no type but those of [`Parameter`].
pub(super) async fn fetch_unprepared(
    tx: &tokio_postgres::Transaction<'_>,
    statement: &str,
    values: &[Value<'_>],
) -> Result<Option<Vec<Cell>>> {
    let values: Vec<Parameter<'_>> = values.iter().map(|value| Parameter(*value)).collect();
    let parameters: Vec<(&(dyn ToSql + Sync), Type)> =
        values.iter().map(|value| (value as &(dyn ToSql + Sync), value.kind())).collect();
    let rows =
        tx.query_typed(statement, &parameters).await.map_err(|error| failed(CallEffect::Reads, error))?;
    Ok(rows.first().map(cells))
}

pub(super) fn cells(row: &tokio_postgres::Row) -> Vec<Cell> {
    let cell = |at: usize| {
        let cell = match *row.columns()[at].type_() {
            Type::INT8 => row.get::<_, Option<i64>>(at).map(Cell::Int),
            Type::INT4 => row.get::<_, Option<i32>>(at).map(|number| Cell::Int(number.into())),
            Type::BYTEA => row.get::<_, Option<Vec<u8>>>(at).map(Cell::Bytes),
            Type::TEXT | Type::VARCHAR => row.get::<_, Option<String>>(at).map(Cell::Text),
            _ => None,
        };
        cell.unwrap_or(Cell::Null)
    };
    (0..row.len()).map(cell).collect()
}

/// A value as the driver takes it.
#[derive(Debug)]
pub(super) struct Parameter<'a>(pub(super) Value<'a>);

impl Parameter<'_> {
    /// The type as which it is sent.
    fn kind(&self) -> Type {
        match self.0 {
            Value::Text(_) => Type::TEXT,
            Value::Int(_) => Type::INT8,
            Value::Bytes(_) => Type::BYTEA,
        }
    }
}

impl ToSql for Parameter<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut bytes::BytesMut,
    ) -> Result<tokio_postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self.0 {
            Value::Text(text) => text.to_sql(kind, out),
            Value::Int(number) => number.to_sql(kind, out),
            Value::Bytes(bytes) => bytes.to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::TEXT, Type::VARCHAR, Type::INT8, Type::BYTEA].contains(kind)
    }

    tokio_postgres::types::to_sql_checked!();
}
