//! The table `onceward_tries`: failed tries of messages, and marks of those that may end their process.

use std::time::Duration;

use onceward::Result;

use super::{Call, PostgresTables, failed};

const FAILED: &str = "INSERT INTO onceward_tries (consumer, message_id, tries, error) VALUES ($1, $2, 1, $3)
    ON CONFLICT (consumer, message_id) DO UPDATE SET tries = onceward_tries.tries + 1, error = excluded.error,
        started = 0, last_at = clock_timestamp()
    RETURNING tries";
const STARTED: &str = "INSERT INTO onceward_tries (consumer, message_id, started) VALUES ($1, $2, 1)
    ON CONFLICT (consumer, message_id) DO UPDATE SET started = onceward_tries.started + 1, last_at = clock_timestamp()
    RETURNING started";

impl PostgresTables {
    /// Counts a try that has failed, and returns how many there are.
    pub(crate) async fn count_failed_try(
        &self,
        consumer: &str,
        message_id: &str,
        error: &str,
    ) -> Result<u32> {
        let client = self.connection().await?;
        let row = client.query_one(FAILED, &[&consumer, &message_id, &error]).await;
        Ok(row.map_err(|error| failed(Call::Writes, error))?.get::<_, i32>(0).unsigned_abs())
    }

    /// Marks that a try begins, and returns how many have begun since one has ended.
    pub(crate) async fn mark_started(&self, consumer: &str, message_id: &str) -> Result<u32> {
        let client = self.connection().await?;
        let row = client.query_one(STARTED, &[&consumer, &message_id]).await;
        Ok(row.map_err(|error| failed(Call::Writes, error))?.get::<_, i32>(0).unsigned_abs())
    }

    pub(crate) async fn unmark_started(&self, consumer: &str, message_id: &str) -> Result<()> {
        let client = self.connection().await?;
        let unmark = "UPDATE onceward_tries SET started = started - 1
            WHERE consumer = $1 AND message_id = $2 AND started > 0";
        let unmarked = client.execute(unmark, &[&consumer, &message_id]).await;
        unmarked.map(drop).map_err(|error| failed(Call::Writes, error))
    }

    pub(crate) async fn sweep_versions(&self, unchanged_for: Duration) -> Result<u64> {
        let client = self.connection().await?;
        let sweep = "DELETE FROM onceward_versions
            WHERE updated < clock_timestamp() - $1::bigint * interval '1 microsecond'";
        let micros = i64::try_from(unchanged_for.as_micros()).unwrap_or(i64::MAX);
        client.execute(sweep, &[&micros]).await.map_err(|error| failed(Call::Writes, error))
    }

    /// Removes counts and marks that nothing has come to for a month: their messages are gone from the source.
    pub(crate) async fn sweep_tries(&self) -> Result<u64> {
        let client = self.connection().await?;
        let sweep = "DELETE FROM onceward_tries WHERE last_at < clock_timestamp() - interval '30 days'";
        client.execute(sweep, &[]).await.map_err(|error| failed(Call::Writes, error))
    }
}
