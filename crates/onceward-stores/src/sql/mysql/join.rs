//! Swaps inside a transaction that the caller holds.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Row, Transaction};
use onceward::{Error, ErrorKind, Result, Seen, Swap, Swapped};

use super::errors::{CallEffect, failed};
use super::statements;
use crate::sql::FREE_GRACE;
use crate::sql::join::{Cell, Cells, Dialect, SqlTransaction, Value};
use crate::sql::row::{self, due_us, micros};
use crate::sql::swap_kinds::{columns, record, seen_by};

/// Swaps one record inside a transaction.
pub(crate) async fn swap_in<T: SqlTransaction>(tx: &mut T, swap: &Swap) -> Result<Swapped> {
    let mark = mark()?;
    let mark = Value::Bytes(&mark);
    let (scope, operation, key) = columns(&swap.id);
    let id = [Value::Text(scope), Value::Text(operation), Value::Text(key)];
    match (swap.seen, &swap.new) {
        (Seen::Absent, None) => {}
        (Seen::Absent, Some(_)) => {
            let new = record(swap);
            let (state, due) = (Value::Text(new.state.name()), Value::Int(due_us(new)));
            let values = [id[0], id[1], id[2], state, due, Value::Bytes(&new.bytes), mark];
            tx.fetch(statements::CREATE_ONE, &values).await?;
        }
        (Seen::Version(_), new) => {
            let (state, due, bytes) = match new {
                Some(new) => (new.state.name(), due_us(new), &new.bytes[..]),
                None => ("free", Some(micros(FREE_GRACE)), &[][..]),
            };
            let seen = Value::Int(Some(seen_by(swap)));
            let values =
                [Value::Text(state), Value::Int(due), Value::Bytes(bytes), mark, id[0], id[1], id[2], seen];
            tx.fetch(statements::REPLACE_ONE, &values).await?;
        }
    }
    let Some(cells) = tx.fetch(statements::LOAD_ONE, &[mark, id[0], id[1], id[2]]).await?.map(Cells) else {
        return Ok(match (swap.seen, &swap.new) {
            (Seen::Absent, None) => Swapped::Won(onceward::Version(1)),
            _ => Swapped::Lost(None),
        });
    };
    if cells.int(6) == Some(1) {
        return Ok(Swapped::Won(row::version(cells.int(0).unwrap_or_default())?));
    }
    let free = match cells.0.get(1) {
        Some(Cell::Text(state)) => state == "free",
        Some(Cell::Bytes(state)) => state == b"free",
        _ => false,
    };
    match (free, swap.seen, &swap.new) {
        (true, Seen::Absent, None) => Ok(Swapped::Won(onceward::Version(1))),
        (true, ..) => Ok(Swapped::Lost(None)),
        (false, ..) => Ok(row::lost(cells.found())),
    }
}

/// A random, unique mark.
pub(super) fn mark() -> Result<[u8; 16]> {
    let mut mark = [0; 16];
    getrandom::fill(&mut mark)
        .map_err(|error| Error::new(ErrorKind::Unavailable, format!("no randomness: {error}")))?;
    Ok(mark)
}

impl SqlTransaction for Conn {
    fn dialect(&self) -> Dialect {
        Dialect::MySql
    }

    async fn fetch<'a>(
        &'a mut self,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> Result<Option<Vec<Cell>>> {
        let row = self.exec_first(statement, parameters(values)).await;
        Ok(row.map_err(|error| failed(CallEffect::Reads, error))?.map(cells))
    }
}

impl SqlTransaction for Transaction<'_> {
    fn dialect(&self) -> Dialect {
        Dialect::MySql
    }

    async fn fetch<'a>(
        &'a mut self,
        statement: &'a str,
        values: &'a [Value<'a>],
    ) -> Result<Option<Vec<Cell>>> {
        let row = self.exec_first(statement, parameters(values)).await;
        Ok(row.map_err(|error| failed(CallEffect::Reads, error))?.map(cells))
    }
}

fn parameters(values: &[Value<'_>]) -> Params {
    let value = |value: &Value<'_>| match *value {
        Value::Text(text) => text.into(),
        Value::Int(number) => number.into(),
        Value::Bytes(bytes) => bytes.into(),
    };
    if values.is_empty() { Params::Empty } else { Params::Positional(values.iter().map(value).collect()) }
}

fn cells(row: Row) -> Vec<Cell> {
    let cell = |value| match value {
        mysql_async::Value::Int(number) => Cell::Int(number),
        mysql_async::Value::UInt(number) => i64::try_from(number).map_or(Cell::Null, Cell::Int),
        mysql_async::Value::Bytes(bytes) => Cell::Bytes(bytes),
        _ => Cell::Null,
    };
    row.unwrap().into_iter().map(cell).collect()
}
