//! Adds messages to the outbox in PostgreSQL.

use std::fmt::Write as _;

use onceward::Result;
use onceward_stores::sql::{SqlTransaction, Value};

use crate::lane::lane_of;
use crate::message::Message;

/// Locks lanes until the transaction ends, one after the other in the order of the list. The first number keeps these
/// locks apart from advisory locks of the user's own.
const LOCK: &str = "SELECT count(pg_advisory_xact_lock(1869505381, lane)::text)
    FROM unnest(string_to_array($1, ',')::int[]) AS lane";

/// Rows of one insert: as few different statements as possible, because drivers prepare and keep each of them.
const ROWS: [usize; 3] = [64, 8, 1];

pub(super) async fn add<T: SqlTransaction>(tx: &mut T, lanes: &[u32], messages: &[Message]) -> Result<()> {
    let lanes: Vec<String> = lanes.iter().map(u32::to_string).collect();
    // A statement of its own: numbers must be drawn after the locks were granted.
    tx.fetch(LOCK, &[Value::Text(&lanes.join(","))]).await?;
    let mut rest = messages;
    while let Some(rows) = ROWS.into_iter().find(|rows| *rows <= rest.len()) {
        let (now, later) = rest.split_at(rows);
        insert(tx, now).await?;
        rest = later;
    }
    Ok(())
}

async fn insert<T: SqlTransaction>(tx: &mut T, messages: &[Message]) -> Result<()> {
    let headers: Vec<String> = messages.iter().map(Message::headers_json).collect();
    let mut values = Vec::with_capacity(messages.len() * COLUMNS);
    for (message, headers) in messages.iter().zip(&headers) {
        values.extend([
            Value::Int(Some(i64::from(lane_of(message)))),
            Value::Text(message.id()),
            Value::Text(message.topic()),
            // No text is no ordering key: an ordering key is not empty.
            Value::Text(message.ordering_key().unwrap_or_default()),
            Value::Text(headers),
            Value::Bytes(message.payload()),
        ]);
    }
    tx.fetch(&statement(messages.len()), &values).await?;
    Ok(())
}

const COLUMNS: usize = 6;

/// The rows get their positions in the order of the list.
fn statement(rows: usize) -> String {
    let mut statement =
        "INSERT INTO onceward_outbox (lane, id, topic, ordering_key, headers, payload) VALUES ".to_owned();
    for row in 0..rows {
        let comma = if row == 0 { "" } else { ", " };
        let [lane, id, topic, key, headers, payload] = [1, 2, 3, 4, 5, 6].map(|at| row * COLUMNS + at);
        let _ = write!(
            statement,
            "{comma}(${lane}::bigint, ${id}::text, ${topic}::text, nullif(${key}::text, ''), ${headers}::text, ${payload}::bytea)"
        );
    }
    statement
}
