//! The table `onceward_tries`: failed tries of messages, and marks of those that may end their process.

use std::time::Duration;

use onceward::Result;

use super::{SqliteTables, execute, now, value};
use crate::tables::TRIES_KEPT;

const FAILED: &str = "INSERT INTO onceward_tries (consumer, message_id, tries, error, first_at, last_at)
    VALUES (?1, ?2, 1, ?3, ?4, ?4)
    ON CONFLICT (consumer, message_id) DO UPDATE SET tries = tries + 1, error = excluded.error, started = 0,
        last_at = excluded.last_at
    RETURNING tries";
const STARTED: &str = "INSERT INTO onceward_tries (consumer, message_id, started, first_at, last_at)
    VALUES (?1, ?2, 1, ?3, ?3)
    ON CONFLICT (consumer, message_id) DO UPDATE SET started = started + 1, last_at = excluded.last_at
    RETURNING started";

impl SqliteTables {
    pub(crate) async fn count_failed_try(
        &self,
        consumer: &str,
        message_id: &str,
        error: &str,
    ) -> Result<u32> {
        let values = (consumer.to_owned(), message_id.to_owned(), error.to_owned(), now());
        self.write(move |tx| Ok(value(tx, FAILED, values)?.unwrap_or(0))).await
    }

    pub(crate) async fn mark_started(&self, consumer: &str, message_id: &str) -> Result<u32> {
        let values = (consumer.to_owned(), message_id.to_owned(), now());
        self.write(move |tx| Ok(value(tx, STARTED, values)?.unwrap_or(0))).await
    }

    pub(crate) async fn unmark_started(&self, consumer: &str, message_id: &str) -> Result<()> {
        let values = (consumer.to_owned(), message_id.to_owned());
        let unmark = "UPDATE onceward_tries SET started = started - 1
            WHERE consumer = ?1 AND message_id = ?2 AND started > 0";
        self.write(move |tx| execute(tx, unmark, values).map(drop)).await
    }

    pub(crate) async fn sweep_versions(&self, unchanged_for: Duration) -> Result<u64> {
        let before = now().saturating_sub(super::micros(unchanged_for));
        let sweep = "DELETE FROM onceward_versions WHERE updated < ?1";
        self.write(move |tx| Ok(execute(tx, sweep, [before])? as u64)).await
    }

    pub(crate) async fn sweep_tries(&self) -> Result<u64> {
        let before = now() - super::micros(TRIES_KEPT);
        let sweep = "DELETE FROM onceward_tries WHERE last_at < ?1";
        self.write(move |tx| Ok(execute(tx, sweep, [before])? as u64)).await
    }
}
