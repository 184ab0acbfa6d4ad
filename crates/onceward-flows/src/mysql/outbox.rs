//! What a relay does with the table `onceward_outbox`. The rows of the lanes say which have something new, so only those
//! are read, each from behind its last position: rows that are marked as deleted are not walked over.

use std::time::Duration;

use onceward::Result;
use onceward_stores::mysql_async::prelude::Queryable;

use super::{MySqlTables, TRIES_MAX, is_undone, read, text, written};
use crate::message::Message;
use crate::tables::{Backlog, OutboxRow};

/// Lanes of one statement.
const LANES_MAX: usize = 128;
/// `[[lane, after], …]`
const NEW: &str = "SELECT a.lane, a.after FROM
    JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$[0]', after BIGINT PATH '$[1]')) AS a
    STRAIGHT_JOIN onceward_lanes l ON l.lane = a.lane WHERE l.n > a.after";

type Columns = (u32, i64, Vec<u8>, Vec<u8>, Option<Vec<u8>>, Vec<u8>, Vec<u8>);

impl MySqlTables {
    pub(crate) async fn remove_and_read(
        &self,
        published: &[(u32, i64)],
        after: &[(u32, i64)],
        per_lane: usize,
        limit: usize,
    ) -> Result<Vec<OutboxRow>> {
        let mut conn = self.connection().await?;
        for places in published.chunks(500) {
            // A range for each; neither server finds rows by a list of pairs without reading the table.
            let places: Vec<String> = places
                .iter()
                .map(|(lane, position)| format!("(lane = {lane} AND position = {position})"))
                .collect();
            let remove = format!("DELETE FROM onceward_outbox WHERE {}", places.join(" OR "));
            let mut tries = 1;
            // Undone in favour of a transaction that adds messages: it is worth repeating.
            while let Err(error) = conn.query_drop(&remove).await {
                if !is_undone(&error) || tries >= TRIES_MAX {
                    return Err(written(error));
                }
                tries += 1;
            }
        }
        let mut found = Vec::new();
        if !after.is_empty() {
            let asked = serde_json::to_string(after).expect("numbers are JSON");
            let new: Vec<(u32, i64)> = conn.exec(NEW, (asked,)).await.map_err(read)?;
            for lanes in new.chunks(LANES_MAX) {
                let most = limit.saturating_sub(found.len());
                if most == 0 {
                    break;
                }
                // The limit of each lane, and no other: what is read of a lane must be its beginning.
                let each = most.div_ceil(lanes.len()).clamp(1, per_lane.max(1));
                let of_lane = |(lane, after): &(u32, i64)| {
                    format!(
                        "(SELECT lane, position, id, topic, ordering_key, headers, payload FROM onceward_outbox
                        WHERE lane = {lane} AND position > {after} ORDER BY position LIMIT {each})"
                    )
                };
                let all: Vec<String> = lanes.iter().map(of_lane).collect();
                let select = all.join(" UNION ALL ");
                let rows: Vec<Columns> = conn.query(select).await.map_err(read)?;
                for (lane, position, id, topic, key, headers, payload) in rows {
                    let key = key.map(text);
                    let message =
                        Message::from_stored(text(id), text(topic), key, &text(headers), payload.into())?;
                    found.push(OutboxRow { lane, position, message });
                }
            }
        }
        conn.reset_connection(false);
        // The order of a lane must not depend on the server's plan.
        found.sort_by_key(|row| (row.lane, row.position));
        Ok(found)
    }

    pub(crate) async fn backlog(&self) -> Result<Backlog> {
        let mut conn = self.connection().await?;
        let backlog = "SELECT COUNT(*), TIMESTAMPDIFF(MICROSECOND, MIN(created), UTC_TIMESTAMP(6)) FROM onceward_outbox";
        let row: Option<(u64, Option<i64>)> = conn.query_first(backlog).await.map_err(read)?;
        let (messages, oldest) = row.unwrap_or_default();
        Ok(Backlog { messages, oldest: oldest.map(|us| Duration::from_micros(us.max(0).unsigned_abs())) })
    }

    pub(crate) async fn is_drained(&self) -> Result<bool> {
        let mut conn = self.connection().await?;
        let one: Option<u8> =
            conn.query_first("SELECT 1 FROM onceward_outbox LIMIT 1").await.map_err(read)?;
        Ok(one.is_none())
    }
}
