//! The tables `onceward_parts`, `onceward_fences` and `onceward_members`.
//!
//! An effect's transaction locks the fence of its part in shared mode, and compares it. A renewal writes to the part and not
//! to the fence, so neither waits for the other. A takeover locks the fence for itself: it skips a part while an effect of
//! the previous owner is about to commit, and every effect that begins later sees the new fence.

use std::collections::HashMap;
use std::time::Duration;

use onceward::Result;
use onceward_stores::mysql_async::{self, prelude::Queryable};

use super::{MySqlTables, Param, list, micros, params, read, transaction, written};
use crate::parts::{GainedPart, PartRow};

const BEAT: &str = "INSERT INTO onceward_members (flow, member, until)
    VALUES (?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ON DUPLICATE KEY UPDATE until = VALUES(until)";
const EXPIRE: &str = "DELETE FROM onceward_members WHERE flow = ? AND until < UTC_TIMESTAMP(6)";
/// `[[part, fence, position], …]`
macro_rules! held {
    () => {
        "JSON_TABLE(?, '$[*]' COLUMNS (part INT PATH '$[0]', fence BIGINT PATH '$[1]', position BIGINT PATH '$[2]')) AS h
    STRAIGHT_JOIN onceward_parts p ON p.flow = ? AND p.part = h.part AND p.owner = ? AND p.fence = h.fence"
    };
}
const RENEW: &str = concat!(
    "UPDATE ",
    held!(),
    " SET p.until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, p.position = GREATEST(p.position, h.position)"
);
const KEPT: &str = concat!("SELECT p.part FROM ", held!());
const RELEASE: &str = concat!(
    "UPDATE ",
    held!(),
    " SET p.owner = NULL, p.until = NULL, p.position = GREATEST(p.position, h.position)"
);

impl MySqlTables {
    /// Makes them if there are none; returns how many there are.
    pub(crate) async fn make_parts(&self, flow: &str, count: u32) -> Result<u32> {
        let there = "SELECT COUNT(*) FROM onceward_fences WHERE flow = ?";
        transaction!(self, conn => {
            let there: u32 = conn.exec_first(there, params([Param::Text(flow)])).await?.unwrap_or(0);
            if there == 0 {
                for table in ["onceward_parts", "onceward_fences"] {
                    for part in 0..count {
                        let make = format!("INSERT IGNORE INTO {table} (flow, part) VALUES (?, ?)");
                        conn.exec_drop(make, params([Param::Text(flow), Param::Int(part.into())])).await?;
                    }
                }
            }
            if there == 0 { count } else { there }
        })
    }

    pub(crate) async fn renew_parts(
        &self,
        flow: &str,
        member: &str,
        lease: Duration,
        held: &[(u32, i64, i64)],
    ) -> Result<Vec<u32>> {
        let (of_flow, of_member, lease) = (Param::Text(flow), Param::Text(member), Param::Int(micros(lease)));
        let mut conn = self.connection().await?;
        conn.exec_drop(BEAT, params([of_flow, of_member, lease])).await.map_err(written)?;
        conn.exec_drop(EXPIRE, params([of_flow])).await.map_err(written)?;
        let mut kept = Vec::new();
        if !held.is_empty() {
            let held = serde_json::to_string(held).expect("numbers are JSON");
            let held = Param::Text(&held);
            conn.exec_drop(RENEW, params([held, of_flow, of_member, lease])).await.map_err(written)?;
            // What was renewed a moment ago nobody can have taken.
            kept = conn.exec(KEPT, params([held, of_flow, of_member])).await.map_err(written)?;
        }
        conn.reset_connection(false);
        Ok(kept)
    }

    pub(crate) async fn list_parts(&self, flow: &str) -> Result<(usize, Vec<PartRow>)> {
        let mut conn = self.connection().await?;
        let members = "SELECT COUNT(*) FROM onceward_members WHERE flow = ?";
        let members: Option<usize> =
            conn.exec_first(members, params([Param::Text(flow)])).await.map_err(read)?;
        let list = "SELECT part, owner, COALESCE(until < UTC_TIMESTAMP(6), 1) FROM onceward_parts
            WHERE flow = ? ORDER BY part";
        let rows: Vec<(u32, Option<String>, bool)> =
            conn.exec(list, params([Param::Text(flow)])).await.map_err(read)?;
        conn.reset_connection(false);
        let row = |(part, owner, is_lapsed)| PartRow { part, owner, is_lapsed };
        Ok((members.unwrap_or(1), rows.into_iter().map(row).collect()))
    }

    pub(crate) async fn take_parts(
        &self,
        flow: &str,
        member: &str,
        lease: Duration,
        parts: &[u32],
    ) -> Result<Vec<GainedPart>> {
        let (of_flow, of_member, lease) = (Param::Text(flow), Param::Text(member), Param::Int(micros(lease)));
        let lock = format!(
            "SELECT part, fence FROM onceward_fences WHERE flow = ? AND part IN ({})
            ORDER BY part FOR UPDATE SKIP LOCKED",
            list(parts)
        );
        transaction!(self, conn => {
            let fences: Vec<(u32, i64)> = conn.exec(&lock, params([of_flow])).await?;
            let fences: HashMap<u32, i64> = fences.into_iter().collect();
            let free = format!(
                "SELECT part, position, owner IS NOT NULL FROM onceward_parts WHERE flow = ? AND part IN ({})
                AND (owner IS NULL OR until < UTC_TIMESTAMP(6)) ORDER BY part FOR UPDATE",
                list(fences.keys())
            );
            let free: Vec<(u32, i64, bool)> = conn.exec(free, params([of_flow])).await?;
            if !free.is_empty() {
                let taken = list(free.iter().map(|(part, ..)| part));
                let raise = format!("UPDATE onceward_fences SET fence = fence + 1 WHERE flow = ? AND part IN ({taken})");
                conn.exec_drop(raise, params([of_flow])).await?;
                let take = format!(
                    "UPDATE onceward_parts p JOIN onceward_fences f ON f.flow = p.flow AND f.part = p.part
                    SET p.owner = ?, p.fence = f.fence, p.until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
                    WHERE p.flow = ? AND p.part IN ({taken})"
                );
                conn.exec_drop(take, params([of_member, lease, of_flow])).await?;
            }
            let gained = |(part, position, was_lapsed)| GainedPart {
                part, fence: fences[&part] + 1, position, was_lapsed,
            };
            free.into_iter().map(gained).collect()
        })
    }

    pub(crate) async fn release_parts(
        &self,
        flow: &str,
        member: &str,
        held: &[(u32, i64, i64)],
    ) -> Result<()> {
        let held = serde_json::to_string(held).expect("numbers are JSON");
        let values = params([Param::Text(&held), Param::Text(flow), Param::Text(member)]);
        self.connection().await?.exec_drop(RELEASE, values).await.map_err(written)
    }

    pub(crate) async fn use_outbox(
        &self,
        flow: &str,
        member: &str,
        lease: Duration,
        reader: &str,
    ) -> Result<Option<String>> {
        let (of_flow, of_reader) = (Param::Text(flow), Param::Text(reader));
        let beat = [of_flow, Param::Text(member), Param::Int(micros(lease))];
        let enter = "INSERT INTO onceward_outbox_reader VALUES (1, ?, ?) ON DUPLICATE KEY UPDATE id = id";
        let there = "SELECT reader, flow FROM onceward_outbox_reader FOR UPDATE";
        let lives = "SELECT 1 FROM onceward_members WHERE flow = ? AND until >= UTC_TIMESTAMP(6) LIMIT 1";
        let replace = "UPDATE onceward_outbox_reader SET reader = ?, flow = ?";
        transaction!(self, conn => {
            conn.exec_drop(enter, params([of_reader, of_flow])).await?;
            let found: Option<(String, String)> = conn.query_first(there).await?;
            let (found, found_flow) = found.unwrap_or_default();
            let is_other = found != reader || found_flow != flow;
            let of_found = params([Param::Text(&found_flow)]);
            if is_other && conn.exec_first::<u8, _, _>(lives, of_found).await?.is_some() {
                Some(found)
            } else {
                if is_other {
                    conn.exec_drop(replace, params([of_reader, of_flow])).await?;
                }
                conn.exec_drop(BEAT, params(beat)).await?;
                None
            }
        })
    }

    pub(crate) async fn remove_member(&self, flow: &str, member: &str) -> Result<()> {
        let remove = "DELETE FROM onceward_members WHERE flow = ? AND member = ?";
        let values = params([Param::Text(flow), Param::Text(member)]);
        self.connection().await?.exec_drop(remove, values).await.map_err(written)
    }
}
