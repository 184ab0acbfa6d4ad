//! What a relay does with the table `onceward_outbox`. It asks for the lanes that have messages first, with one step in the
//! index for each: an empty outbox is one step, however many lanes there are.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use onceward::Result;
use onceward_stores::rusqlite::Row;

use super::{SqliteTables, execute, now, rows, value};
use crate::message::Message;
use crate::tables::{Backlog, OutboxRow};

const LANES: &str = "WITH RECURSIVE lanes (lane) AS (
        SELECT min(lane) FROM onceward_outbox
        UNION ALL
        SELECT (SELECT min(o.lane) FROM onceward_outbox AS o WHERE o.lane > lanes.lane) FROM lanes
        WHERE lane IS NOT NULL)
    SELECT lane FROM lanes WHERE lane IS NOT NULL";
const READ: &str = "SELECT position, id, topic, ordering_key, headers, payload FROM onceward_outbox
    WHERE lane = ?1 AND position > ?2 ORDER BY position LIMIT ?3";

impl SqliteTables {
    pub(crate) async fn remove_and_read(
        &self,
        published: &[(u32, i64)],
        after: &[(u32, i64)],
        per_lane: usize,
        limit: usize,
    ) -> Result<Vec<OutboxRow>> {
        if !published.is_empty() {
            let published = published.to_vec();
            self.write(move |tx| {
                for (_, position) in published {
                    execute(tx, "DELETE FROM onceward_outbox WHERE position = ?1", [position])?;
                }
                Ok(())
            })
            .await?;
        }
        if after.is_empty() {
            return Ok(Vec::new());
        }
        let after = after.to_vec();
        self.read(move |tx| {
            let mut found = Vec::new();
            let filled: HashSet<u32> = rows(tx, LANES, [], |row| row.get(0))?.into_iter().collect();
            for (lane, after) in after.into_iter().filter(|(lane, _)| filled.contains(lane)) {
                if found.len() >= limit {
                    break;
                }
                let most = per_lane.min(limit - found.len());
                let columns =
                    rows(tx, READ, (lane, after, i64::try_from(most).unwrap_or(i64::MAX)), columns)?;
                for (position, [id, topic, headers], key, payload) in columns {
                    let message = Message::from_stored(id, topic, key, &headers, payload)?;
                    found.push(OutboxRow { lane, position, message });
                }
            }
            Ok(found)
        })
        .await
    }

    pub(crate) async fn backlog(&self) -> Result<Backlog> {
        self.read(|tx| {
            let all = rows(tx, "SELECT count(*), min(created) FROM onceward_outbox", [], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?))
            })?;
            let (messages, oldest) = all.into_iter().next().unwrap_or_default();
            let age = |at: i64| Duration::from_micros((now() - at).max(0).unsigned_abs());
            Ok(Backlog { messages: messages.unsigned_abs(), oldest: oldest.map(age) })
        })
        .await
    }

    pub(crate) async fn is_drained(&self) -> Result<bool> {
        self.read(|tx| Ok(value::<i64>(tx, "SELECT 1 FROM onceward_outbox LIMIT 1", [])?.is_none())).await
    }
}

type Columns = (i64, [String; 3], Option<String>, Bytes);

fn columns(row: &Row<'_>) -> onceward_stores::rusqlite::Result<Columns> {
    let texts = [row.get(1)?, row.get(2)?, row.get(4)?];
    Ok((row.get(0)?, texts, row.get(3)?, row.get::<_, Vec<u8>>(5)?.into()))
}
