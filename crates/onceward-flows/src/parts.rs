//! Parts of a flow, shared between processes by lease and fence: groups of lanes between relays, partitions between
//! consumers.
//!
//! Every process renews what it has at a third of the lease, takes its share of what is free, and releases what is more
//! than its share. A process works on a part only while its lease is valid by its own clock, counted from before the
//! renewal was sent. What it did before it was stopped for longer than that is fenced off: by the broker or by the
//! consumer's transaction, which compares the fence.

use std::collections::HashMap;
use std::time::Duration;

use onceward::Result;
use tokio::time::Instant;

use crate::message::random_id;
use crate::tables::FlowTables;

/// Shortest lease of a part. Below it, renewals would race the latency of the database.
pub const PART_LEASE_MIN: Duration = Duration::from_millis(200);

/// The parts of one flow, as one process sees them.
#[derive(Debug)]
pub(crate) struct Parts {
    tables: FlowTables,
    flow: String,
    member: String,
    count: u32,
    lease: Duration,
    held: HashMap<u32, HeldPart>,
    next_tick: Instant,
    /// This process stops: it renews what it has, and takes nothing more.
    is_leaving: bool,
}

/// A part that this process works on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldPart {
    pub(crate) fence: i64,
    valid_until: Instant,
}

/// A part that this process has just taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GainedPart {
    pub(crate) part: u32,
    pub(crate) fence: i64,
    pub(crate) position: i64,
    /// Its former owner did not release it: it ended without warning.
    pub(crate) was_lapsed: bool,
}

/// What a tick has changed.
#[derive(Debug, Default)]
pub(crate) struct PartChanges {
    pub(crate) gained: Vec<GainedPart>,
    pub(crate) lost: Vec<u32>,
    /// More than the share of this process: to be released as soon as nothing of it is in flight.
    pub(crate) surplus: Vec<u32>,
}

/// A part as it is in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartRow {
    pub(crate) part: u32,
    pub(crate) owner: Option<String>,
    pub(crate) is_lapsed: bool,
}

impl Parts {
    /// Opens a flow with `count` parts. Fails if it was used with another number: messages of a part without an owner
    /// would never be handled.
    pub(crate) async fn open(tables: FlowTables, flow: String, count: u32, lease: Duration) -> Result<Self> {
        tables.make_parts(&flow, count).await?;
        let (member, held) = (random_id(), HashMap::new());
        let lease = lease.max(PART_LEASE_MIN);
        Ok(Self { tables, flow, member, count, lease, held, next_tick: Instant::now(), is_leaving: false })
    }

    /// When the next [`tick`](Self::tick) is due.
    pub(crate) fn next_tick(&self) -> Instant {
        self.next_tick
    }

    /// Renews what is held, takes what is free, and says what has changed. `position` is how far each part is handled.
    /// After an error the leases continue until they end by the clock of this process.
    pub(crate) async fn tick(&mut self, position: impl Fn(u32) -> i64) -> Result<PartChanges> {
        let sent_at = Instant::now();
        self.next_tick = sent_at + self.lease / 3;
        let mut changes = PartChanges::default();
        let ticked =
            tokio::time::timeout(self.lease / 3, self.try_tick(sent_at, position, &mut changes)).await;
        let result = ticked.unwrap_or_else(|_| {
            let detail = "the leases of this process were not renewed in time; trying again";
            Err(onceward::Error::new(onceward::ErrorKind::Unavailable, detail))
        });
        // Also after an error: what has ended by our own clock is over.
        let now = Instant::now();
        let ended: Vec<u32> =
            self.held.iter().filter(|(_, held)| held.valid_until <= now).map(|(part, _)| *part).collect();
        for part in ended {
            self.held.remove(&part);
            changes.lost.push(part);
        }
        match result {
            Err(error) if changes.lost.is_empty() && changes.gained.is_empty() => Err(error),
            Err(error) => {
                tracing::warn!(flow = self.flow, %error, "parts of a flow could not be renewed");
                Ok(changes)
            }
            Ok(()) => Ok(changes),
        }
    }

    async fn try_tick(
        &mut self,
        sent_at: Instant,
        position: impl Fn(u32) -> i64,
        changes: &mut PartChanges,
    ) -> Result<()> {
        let held: Vec<(u32, i64, i64)> =
            self.held.iter().map(|(part, held)| (*part, held.fence, position(*part))).collect();
        let kept = self.tables.renew_parts(&self.flow, &self.member, self.lease, &held).await?;
        let valid_until = sent_at + self.lease;
        for (part, ..) in held {
            if kept.contains(&part) {
                self.held.get_mut(&part).expect("it was just listed").valid_until = valid_until;
            } else {
                self.held.remove(&part);
                changes.lost.push(part);
            }
        }
        if self.is_leaving {
            return Ok(());
        }
        let (members, rows) = self.tables.list_parts(&self.flow).await?;
        let plan = plan(&self.member, members, &rows);
        changes.surplus = plan.release;
        if !plan.take.is_empty() {
            let gained = self.tables.take_parts(&self.flow, &self.member, self.lease, &plan.take).await?;
            for gained in gained {
                self.held.insert(gained.part, HeldPart { fence: gained.fence, valid_until });
                changes.lost.retain(|lost| *lost != gained.part);
                changes.gained.push(gained);
            }
        }
        Ok(())
    }

    /// Says that the members of this flow read the outbox. Fails if others do, who would take messages away from them.
    pub(crate) async fn use_outbox(&self, reader: &str) -> Result<()> {
        match self.tables.use_outbox(&self.flow, &self.member, self.lease, reader).await? {
            None => Ok(()),
            Some(other) => Err(onceward::Error::new(
                onceward::ErrorKind::Conflict,
                format!(
                    "{other} reads this outbox, so {reader} must not: each message goes to one of them; stop all of the \
                     others first (one that ended without warning counts until its lease ends)"
                ),
            )),
        }
    }

    /// From now on only renews: for what is in flight while this process stops.
    pub(crate) fn take_no_more(&mut self) {
        self.is_leaving = true;
    }

    /// The part, if this process may work on it now.
    pub(crate) fn held(&self, part: u32, now: Instant) -> Option<HeldPart> {
        self.held.get(&part).filter(|held| now < held.valid_until).copied()
    }

    /// Releases parts of which nothing is in flight.
    pub(crate) async fn release(&mut self, parts: &[u32], position: impl Fn(u32) -> i64) -> Result<()> {
        let released: Vec<(u32, i64, i64)> = parts
            .iter()
            .filter_map(|part| self.held.remove(part).map(|held| (*part, held.fence, position(*part))))
            .collect();
        self.tables.release_parts(&self.flow, &self.member, &released).await
    }

    /// Releases everything: this process stops. Nothing may be in flight.
    pub(crate) async fn leave(&mut self, position: impl Fn(u32) -> i64) -> Result<()> {
        let all: Vec<u32> = (0..self.count).collect();
        self.release(&all, position).await?;
        self.tables.remove_member(&self.flow, &self.member).await
    }
}

/// What a process takes and releases.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    take: Vec<u32>,
    release: Vec<u32>,
}

/// Every process has its share, rounded up: it takes what is free up to that, and releases what is beyond. Without
/// a leader, because two that want the same part are told apart by the database.
fn plan(me: &str, members: usize, rows: &[PartRow]) -> Plan {
    let share = rows.len().div_ceil(members.max(1));
    let is_mine = |row: &&PartRow| row.owner.as_deref() == Some(me) && !row.is_lapsed;
    let mine: Vec<u32> = rows.iter().filter(is_mine).map(|row| row.part).collect();
    let free = rows.iter().filter(|row| row.owner.is_none() || row.is_lapsed).map(|row| row.part);
    let take = free.take(share.saturating_sub(mine.len())).collect();
    let release = mine.iter().skip(share).copied().collect();
    Plan { take, release }
}

#[cfg(test)]
#[path = "parts_test.rs"]
mod tests;
