//! Adds messages to the outbox in SQLite. The insert takes the write lock of the file, if the transaction does not have it
//! yet, and keeps it to its end: there is one writer at a time, so positions are in the order of the commits.

use onceward::Result;
use onceward_stores::sql::SqlTransaction;

use super::values;
use crate::message::Message;

const INSERT: &str = "INSERT INTO onceward_outbox (lane, id, topic, ordering_key, headers, payload, created)
    VALUES (?1, ?2, ?3, nullif(?4, ''), ?5, ?6, CAST(unixepoch('subsec') * 1000000 AS INTEGER))";

pub(super) async fn add<T: SqlTransaction>(tx: &mut T, messages: &[Message]) -> Result<()> {
    for message in messages {
        let headers = message.headers_json();
        tx.fetch(INSERT, &values(message, &headers)).await?;
    }
    Ok(())
}
