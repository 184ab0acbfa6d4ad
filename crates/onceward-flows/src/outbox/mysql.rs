//! Adds messages to the outbox in MySQL and MariaDB.
//!
//! There is no lock that ends with the transaction and is no row. So each lane has a row with its last position: counting
//! it up locks it until the transaction ends, and draws the positions.

use std::collections::HashMap;
use std::fmt::Write as _;

use onceward::Result;
use onceward_stores::sql::{SqlTransaction, Value};

use crate::lane::lane_of;
use crate::message::Message;

/// Rows of one statement: as few different statements as possible, because drivers prepare and keep each of them.
const ROWS: [usize; 3] = [64, 8, 1];
/// Payloads of one statement: with headers and the rest, less than the smallest `max_allowed_packet` of these servers.
const STATEMENT_BYTES_MAX: usize = 2 << 20;

pub(super) async fn add<T: SqlTransaction>(tx: &mut T, lanes: &[u32], messages: &[Message]) -> Result<()> {
    // How many messages of its lane come after each one.
    let mut left: HashMap<u32, i64> = HashMap::new();
    for message in messages {
        *left.entry(lane_of(message)).or_default() += 1;
    }
    // In ascending order, as the lanes are given.
    let mut rest = lanes;
    while let Some(rows) = ROWS.into_iter().find(|rows| *rows <= rest.len()) {
        let (now, later) = rest.split_at(rows);
        count_up(tx, now, &left).await?;
        rest = later;
    }
    let mut rest = messages;
    let fits = |rest: &[Message], rows: usize| {
        rows == 1
            || rest[..rows].iter().map(|message| message.payload().len()).sum::<usize>()
                <= STATEMENT_BYTES_MAX
    };
    while let Some(rows) = ROWS.into_iter().find(|rows| *rows <= rest.len() && fits(rest, *rows)) {
        let (now, later) = rest.split_at(rows);
        insert(tx, now, &mut left).await?;
        rest = later;
    }
    Ok(())
}

async fn count_up<T: SqlTransaction>(tx: &mut T, lanes: &[u32], counts: &HashMap<u32, i64>) -> Result<()> {
    let lane = |lane: &u32| Value::Int(Some(i64::from(*lane)));
    let mut values: Vec<Value<'_>> =
        lanes.iter().flat_map(|at| [lane(at), Value::Int(counts.get(at).copied())]).collect();
    values.extend(lanes.iter().map(lane));
    let (whens, places) = (" WHEN ? THEN ?".repeat(lanes.len()), vec!["?"; lanes.len()].join(", "));
    let statement = format!(
        "UPDATE onceward_lanes FORCE INDEX (PRIMARY) SET n = n + CASE lane{whens} END WHERE lane IN ({places})"
    );
    tx.fetch(&statement, &values).await.map(drop)
}

async fn insert<T: SqlTransaction>(
    tx: &mut T,
    messages: &[Message],
    left: &mut HashMap<u32, i64>,
) -> Result<()> {
    let headers: Vec<String> = messages.iter().map(Message::headers_json).collect();
    let mut values = Vec::new();
    for (message, headers) in messages.iter().zip(&headers) {
        let lane = lane_of(message);
        let left = left.get_mut(&lane).expect("it was counted");
        *left -= 1;
        let lane = Value::Int(Some(i64::from(lane)));
        values.extend([
            lane,
            Value::Int(Some(*left)),
            lane,
            Value::Text(message.id()),
            Value::Text(message.topic()),
            // No text is no ordering key: an ordering key is not empty.
            Value::Text(message.ordering_key().unwrap_or_default()),
            Value::Text(headers),
            Value::Bytes(message.payload()),
        ]);
    }
    tx.fetch(&statement(messages.len()), &values).await.map(drop)
}

/// The transaction sees what it has counted up itself, whatever its isolation.
fn statement(rows: usize) -> String {
    let mut statement =
        "INSERT INTO onceward_outbox (lane, position, id, topic, ordering_key, headers, payload, created) VALUES "
            .to_owned();
    for row in 0..rows {
        let comma = if row == 0 { "" } else { ", " };
        let _ = write!(
            statement,
            "{comma}(?, (SELECT l.n - ? FROM onceward_lanes l WHERE l.lane = ?), ?, ?, NULLIF(?, ''), ?, ?, UTC_TIMESTAMP(6))"
        );
    }
    statement
}
