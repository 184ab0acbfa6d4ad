//! The tables `onceward_parts` and `onceward_members`.
//!
//! An effect's transaction locks its part with `FOR KEY SHARE` and compares the fence. A renewal changes no key column,
//! so neither waits for the other. A takeover locks with `FOR UPDATE`, which does conflict: it finds the part locked while
//! an effect of the previous owner is about to commit, and every effect that begins later sees the new fence.

use std::time::Duration;

use onceward::Result;

use super::{Call, PostgresTables, failed};
use crate::parts::{GainedPart, PartRow};

const MAKE: &str = "INSERT INTO onceward_parts (flow, part)
    SELECT $1, generate_series(0, $2::int - 1) ON CONFLICT DO NOTHING";
const BEAT: &str = "INSERT INTO onceward_members (flow, member, until)
    VALUES ($1, $2, clock_timestamp() + $3::bigint * interval '1 microsecond')
    ON CONFLICT (flow, member) DO UPDATE SET until = excluded.until";
const EXPIRE: &str = "DELETE FROM onceward_members WHERE flow = $1 AND until < clock_timestamp()";
const RENEW: &str = "UPDATE onceward_parts AS p
    SET until = clock_timestamp() + $6::bigint * interval '1 microsecond', position = greatest(p.position, u.position)
    FROM unnest($3::int[], $4::bigint[], $5::bigint[]) AS u(part, fence, position)
    WHERE p.flow = $1 AND p.part = u.part AND p.owner = $2 AND p.fence = u.fence RETURNING p.part";
const LIST: &str = "SELECT part, owner, coalesce(until < clock_timestamp(), true) FROM onceward_parts
    WHERE flow = $1 ORDER BY part";
const TAKE: &str = "WITH free AS (
        SELECT part, owner IS NOT NULL AS was_lapsed FROM onceward_parts
        WHERE flow = $1 AND part = ANY($3::int[]) AND (owner IS NULL OR until < clock_timestamp())
        ORDER BY part FOR UPDATE SKIP LOCKED)
    UPDATE onceward_parts AS p
    SET owner = $2, fence = p.fence + 1, until = clock_timestamp() + $4::bigint * interval '1 microsecond'
    FROM free WHERE p.flow = $1 AND p.part = free.part
    RETURNING p.part, p.fence, p.position, free.was_lapsed";
const RELEASE: &str = "UPDATE onceward_parts AS p
    SET owner = NULL, until = NULL, position = greatest(p.position, u.position)
    FROM unnest($3::int[], $4::bigint[], $5::bigint[]) AS u(part, fence, position)
    WHERE p.flow = $1 AND p.part = u.part AND p.owner = $2 AND p.fence = u.fence";

impl PostgresTables {
    /// Makes them if there are none; returns how many there are.
    pub(crate) async fn make_parts(&self, flow: &str, count: u32) -> Result<u32> {
        let client = self.connection().await?;
        let there = "SELECT coalesce(max(part) + 1, 0)::bigint FROM onceward_parts WHERE flow = $1";
        let there = client.query_one(there, &[&flow]).await.map_err(|error| failed(Call::Reads, error))?;
        let there = u32::try_from(there.get::<_, i64>(0)).unwrap_or(u32::MAX);
        if there != 0 && there != count {
            return Ok(there);
        }
        let parts = i32::try_from(count).expect("a few parts");
        client.execute(MAKE, &[&flow, &parts]).await.map_err(|error| failed(Call::Writes, error))?;
        Ok(count)
    }

    /// Says that the process is alive, renews its parts, and returns those that are still its own.
    pub(crate) async fn renew_parts(
        &self,
        flow: &str,
        member: &str,
        lease: Duration,
        held: &[(u32, i64, i64)],
    ) -> Result<Vec<u32>> {
        let client = self.connection().await?;
        let write = |error| failed(Call::Writes, error);
        let lease = micros(lease);
        client.execute(BEAT, &[&flow, &member, &lease]).await.map_err(write)?;
        client.execute(EXPIRE, &[&flow]).await.map_err(write)?;
        if held.is_empty() {
            return Ok(Vec::new());
        }
        let (parts, fences, positions) = columns(held);
        let renew = client.prepare_cached(RENEW).await.map_err(write)?;
        let rows = client
            .query(&renew, &[&flow, &member, &parts, &fences, &positions, &lease])
            .await
            .map_err(write)?;
        Ok(rows.iter().map(|row| row.get::<_, i32>(0).unsigned_abs()).collect())
    }

    /// The number of processes, and all parts.
    pub(crate) async fn list_parts(&self, flow: &str) -> Result<(usize, Vec<PartRow>)> {
        let client = self.connection().await?;
        let read = |error| failed(Call::Reads, error);
        let members = "SELECT count(*) FROM onceward_members WHERE flow = $1";
        let members: i64 = client.query_one(members, &[&flow]).await.map_err(read)?.get(0);
        let rows = client.query(LIST, &[&flow]).await.map_err(read)?;
        let row = |row: &tokio_postgres::Row| PartRow {
            part: row.get::<_, i32>(0).unsigned_abs(),
            owner: row.get(1),
            is_lapsed: row.get(2),
        };
        Ok((usize::try_from(members).unwrap_or(1), rows.iter().map(row).collect()))
    }

    /// Takes those parts that are free and that no effect of a previous owner has locked.
    pub(crate) async fn take_parts(
        &self,
        flow: &str,
        member: &str,
        lease: Duration,
        parts: &[u32],
    ) -> Result<Vec<GainedPart>> {
        let client = self.connection().await?;
        let parts: Vec<i32> = parts.iter().map(|part| part.cast_signed()).collect();
        let rows = client.query(TAKE, &[&flow, &member, &parts, &micros(lease)]).await;
        let rows = rows.map_err(|error| failed(Call::Writes, error))?;
        let gained = |row: &tokio_postgres::Row| GainedPart {
            part: row.get::<_, i32>(0).unsigned_abs(),
            fence: row.get(1),
            position: row.get(2),
            was_lapsed: row.get(3),
        };
        Ok(rows.iter().map(gained).collect())
    }

    pub(crate) async fn release_parts(
        &self,
        flow: &str,
        member: &str,
        held: &[(u32, i64, i64)],
    ) -> Result<()> {
        let client = self.connection().await?;
        let (parts, fences, positions) = columns(held);
        let released = client.execute(RELEASE, &[&flow, &member, &parts, &fences, &positions]).await;
        released.map(drop).map_err(|error| failed(Call::Writes, error))
    }

    pub(crate) async fn use_outbox(
        &self,
        flow: &str,
        member: &str,
        lease: Duration,
        reader: &str,
    ) -> Result<Option<String>> {
        let mut client = self.connection().await?;
        let write = |error| failed(Call::Writes, error);
        let tx = client.transaction().await.map_err(write)?;
        let enter = "INSERT INTO onceward_outbox_reader VALUES (1, $1, $2) ON CONFLICT DO NOTHING";
        tx.execute(enter, &[&reader, &flow]).await.map_err(write)?;
        let there = "SELECT reader, flow FROM onceward_outbox_reader FOR UPDATE";
        let there = tx.query_one(there, &[]).await.map_err(write)?;
        let (found, of_flow): (String, String) = (there.get(0), there.get(1));
        if found != reader || of_flow != flow {
            let lives =
                "SELECT 1 FROM onceward_members WHERE flow = $1 AND until >= clock_timestamp() LIMIT 1";
            if tx.query_opt(lives, &[&of_flow]).await.map_err(write)?.is_some() {
                return Ok(Some(found));
            }
            let replace = "UPDATE onceward_outbox_reader SET reader = $1, flow = $2";
            tx.execute(replace, &[&reader, &flow]).await.map_err(write)?;
        }
        tx.execute(BEAT, &[&flow, &member, &micros(lease)]).await.map_err(write)?;
        tx.commit().await.map_err(write)?;
        Ok(None)
    }

    pub(crate) async fn remove_member(&self, flow: &str, member: &str) -> Result<()> {
        let client = self.connection().await?;
        let remove = "DELETE FROM onceward_members WHERE flow = $1 AND member = $2";
        client.execute(remove, &[&flow, &member]).await.map(drop).map_err(|error| failed(Call::Writes, error))
    }
}

fn columns(held: &[(u32, i64, i64)]) -> (Vec<i32>, Vec<i64>, Vec<i64>) {
    let parts = held.iter().map(|(part, ..)| part.cast_signed()).collect();
    let fences = held.iter().map(|(_, fence, _)| *fence).collect();
    (parts, fences, held.iter().map(|(.., position)| *position).collect())
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
