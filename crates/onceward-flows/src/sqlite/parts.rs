//! The tables `onceward_parts` and `onceward_members`. A takeover is a write, so it waits for the end of an effect that has
//! compared the fence; every later effect sees the new one.

use std::time::Duration;

use onceward::Result;

use super::{SqliteTables, execute, micros, now, rows, value};
use crate::parts::{GainedPart, PartRow};

const BEAT: &str = "INSERT INTO onceward_members (flow, member, until) VALUES (?1, ?2, ?3)
    ON CONFLICT (flow, member) DO UPDATE SET until = excluded.until";
const RENEW: &str = "UPDATE onceward_parts SET until = ?5, position = max(position, ?6)
    WHERE flow = ?1 AND part = ?2 AND owner = ?3 AND fence = ?4";
const TAKE: &str = "UPDATE onceward_parts SET owner = ?3, fence = fence + 1, until = ?4
    WHERE flow = ?1 AND part = ?2 RETURNING fence, position";
const RELEASE: &str = "UPDATE onceward_parts SET owner = NULL, until = NULL, position = max(position, ?5)
    WHERE flow = ?1 AND part = ?2 AND owner = ?3 AND fence = ?4";

impl SqliteTables {
    /// Makes them if there are none; returns how many there are.
    pub(crate) async fn make_parts(&self, flow: &str, count: u32) -> Result<u32> {
        let flow = flow.to_owned();
        self.write(move |tx| {
            let there = "SELECT count(*) FROM onceward_parts WHERE flow = ?1";
            let there: u32 = value(tx, there, [&flow])?.unwrap_or(0);
            if there != 0 {
                return Ok(there);
            }
            for part in 0..count {
                execute(tx, "INSERT INTO onceward_parts (flow, part) VALUES (?1, ?2)", (&flow, part))?;
            }
            Ok(count)
        })
        .await
    }

    pub(crate) async fn renew_parts(
        &self,
        flow: &str,
        member: &str,
        lease: Duration,
        held: &[(u32, i64, i64)],
    ) -> Result<Vec<u32>> {
        let (flow, member, held) = (flow.to_owned(), member.to_owned(), held.to_vec());
        self.write(move |tx| {
            let now = now();
            let until = now.saturating_add(micros(lease));
            execute(tx, BEAT, (&flow, &member, until))?;
            let expire = "DELETE FROM onceward_members WHERE flow = ?1 AND until < ?2";
            execute(tx, expire, (&flow, now))?;
            let mut kept = Vec::new();
            for (part, fence, position) in held {
                if execute(tx, RENEW, (&flow, part, &member, fence, until, position))? > 0 {
                    kept.push(part);
                }
            }
            Ok(kept)
        })
        .await
    }

    pub(crate) async fn list_parts(&self, flow: &str) -> Result<(usize, Vec<PartRow>)> {
        let flow = flow.to_owned();
        self.read(move |tx| {
            let members = "SELECT count(*) FROM onceward_members WHERE flow = ?1";
            let members: i64 = value(tx, members, [&flow])?.unwrap_or(1);
            let list = "SELECT part, owner, coalesce(until < ?2, 1) FROM onceward_parts WHERE flow = ?1 ORDER BY part";
            let parts = rows(tx, list, (&flow, now()), |row| {
                Ok(PartRow { part: row.get(0)?, owner: row.get(1)?, is_lapsed: row.get(2)? })
            })?;
            Ok((usize::try_from(members).unwrap_or(1), parts))
        })
        .await
    }

    pub(crate) async fn take_parts(
        &self,
        flow: &str,
        member: &str,
        lease: Duration,
        parts: &[u32],
    ) -> Result<Vec<GainedPart>> {
        let (flow, member, parts) = (flow.to_owned(), member.to_owned(), parts.to_vec());
        self.write(move |tx| {
            let now = now();
            let mut gained = Vec::new();
            for part in parts {
                let free = "SELECT owner IS NOT NULL FROM onceward_parts
                    WHERE flow = ?1 AND part = ?2 AND (owner IS NULL OR until < ?3)";
                let Some(was_lapsed) = value(tx, free, (&flow, part, now))? else { continue };
                let until = now.saturating_add(micros(lease));
                let taken =
                    rows(tx, TAKE, (&flow, part, &member, until), |row| Ok((row.get(0)?, row.get(1)?)))?;
                for (fence, position) in taken {
                    gained.push(GainedPart { part, fence, position, was_lapsed });
                }
            }
            Ok(gained)
        })
        .await
    }

    pub(crate) async fn release_parts(
        &self,
        flow: &str,
        member: &str,
        held: &[(u32, i64, i64)],
    ) -> Result<()> {
        let (flow, member, held) = (flow.to_owned(), member.to_owned(), held.to_vec());
        self.write(move |tx| {
            for (part, fence, position) in held {
                execute(tx, RELEASE, (&flow, part, &member, fence, position))?;
            }
            Ok(())
        })
        .await
    }

    pub(crate) async fn use_outbox(
        &self,
        flow: &str,
        member: &str,
        lease: Duration,
        reader: &str,
    ) -> Result<Option<String>> {
        let (flow, member, reader) = (flow.to_owned(), member.to_owned(), reader.to_owned());
        self.write(move |tx| {
            let there = "SELECT reader, flow FROM onceward_outbox_reader";
            let there = rows(tx, there, [], |row| Ok((row.get(0)?, row.get(1)?)))?.pop();
            let there: Option<(String, String)> = there;
            if let Some((found, of_flow)) = there.filter(|(found, of)| *found != reader || *of != flow) {
                let lives = "SELECT 1 FROM onceward_members WHERE flow = ?1 AND until >= ?2 LIMIT 1";
                if value::<i64>(tx, lives, (&of_flow, now()))?.is_some() {
                    return Ok(Some(found));
                }
            }
            let enter = "INSERT INTO onceward_outbox_reader (id, reader, flow) VALUES (1, ?1, ?2)
                ON CONFLICT (id) DO UPDATE SET reader = excluded.reader, flow = excluded.flow";
            execute(tx, enter, (&reader, &flow))?;
            execute(tx, BEAT, (&flow, &member, now().saturating_add(micros(lease))))?;
            Ok(None)
        })
        .await
    }

    pub(crate) async fn remove_member(&self, flow: &str, member: &str) -> Result<()> {
        let values = (flow.to_owned(), member.to_owned());
        let remove = "DELETE FROM onceward_members WHERE flow = ?1 AND member = ?2";
        self.write(move |tx| execute(tx, remove, values).map(drop)).await
    }
}
