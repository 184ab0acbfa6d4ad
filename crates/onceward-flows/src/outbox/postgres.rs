//! Adds messages to the outbox in PostgreSQL.
//!
//! Locks and insert are one statement. It draws the positions after the locks were granted, because they are drawn for the
//! rows of a subquery that has read the answer of every lock: a subquery with `OFFSET 0` or `ORDER BY` is executed as it
//! stands, and `WHERE` comes before the columns.

use onceward::Result;
use onceward_stores::sql::{SqlTransaction, Value};

use super::values;
use crate::lane::lane_of;
use crate::message::Message;

/// The first number of the lock keeps these locks apart from advisory locks of the user's own.
const ADD_ONE: &str = "INSERT INTO onceward_outbox (lane, id, topic, ordering_key, headers, payload)
    SELECT l.lane, $2::text, $3::text, nullif($4::text, ''), $5::text, $6::bytea
    FROM (SELECT $1::bigint::int AS lane, pg_advisory_xact_lock(1869505381, $1::bigint::int)::text AS granted OFFSET 0) AS l
    WHERE l.granted IS NOT NULL";

/// Locks the lanes of the first list one after the other; rows get their positions in the order of the second list. One
/// statement for any number of messages, because drivers prepare and keep each.
const ADD_MANY: &str = "INSERT INTO onceward_outbox (lane, id, topic, ordering_key, headers, payload)
    SELECT (m.entry ->> 0)::int, m.entry ->> 1, m.entry ->> 2, nullif(m.entry ->> 3, ''), m.entry ->> 4,
        substring($3::bytea FROM (m.entry ->> 5)::int FOR (m.entry ->> 6)::int)
    FROM (SELECT count(pg_advisory_xact_lock(1869505381, lane)::text) AS granted
        FROM unnest(string_to_array($1::text, ',')::int[]) AS lane) AS l,
        json_array_elements($2::text::json) WITH ORDINALITY AS m (entry, n)
    WHERE l.granted >= 0 ORDER BY m.n";

/// Payloads of one statement. The server takes a gigabyte; more than a little gains nothing.
const STATEMENT_BYTES_MAX: usize = 4 << 20;

pub(super) async fn add<T: SqlTransaction>(tx: &mut T, lanes: &[u32], messages: &[Message]) -> Result<()> {
    if let [message] = messages {
        return add_one(tx, message).await;
    }
    let lanes: Vec<String> = lanes.iter().map(u32::to_string).collect();
    // All locks are taken before the first row is written.
    let mut lanes = lanes.join(",");
    let mut rest = messages;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(fitting(rest));
        add_many(tx, &lanes, now).await?;
        lanes.clear();
        rest = later;
    }
    Ok(())
}

async fn add_one<T: SqlTransaction>(tx: &mut T, message: &Message) -> Result<()> {
    let headers = message.headers_json();
    tx.fetch(ADD_ONE, &values(message, &headers)).await.map(drop)
}

async fn add_many<T: SqlTransaction>(tx: &mut T, lanes: &str, messages: &[Message]) -> Result<()> {
    let mut payloads = Vec::with_capacity(messages.iter().map(|message| message.payload().len()).sum());
    let entry = |message: &Message| {
        let (first, length) = (payloads.len() + 1, message.payload().len());
        payloads.extend_from_slice(message.payload());
        let key = message.ordering_key().unwrap_or_default();
        serde_json::json!([
            lane_of(message),
            message.id(),
            message.topic(),
            key,
            message.headers_json(),
            first,
            length
        ])
    };
    let entries = serde_json::Value::Array(messages.iter().map(entry).collect()).to_string();
    let values = [Value::Text(lanes), Value::Text(&entries), Value::Bytes(&payloads)];
    tx.fetch(ADD_MANY, &values).await.map(drop)
}

/// How many of them one statement takes: one at least.
fn fitting(messages: &[Message]) -> usize {
    let mut bytes = 0;
    let fits = |message: &&Message| {
        bytes += message.payload().len();
        bytes <= STATEMENT_BYTES_MAX
    };
    messages.iter().take_while(fits).count().max(1)
}
