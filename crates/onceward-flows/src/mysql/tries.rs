//! The table `onceward_tries`: failed tries of messages, and marks of those that may end their process.

use std::time::Duration;

use onceward::Result;
use onceward_stores::mysql_async::{self, prelude::Queryable};

use super::{MySqlTables, Param, micros, params, transaction, written};
use crate::tables::TRIES_KEPT;

const FAILED: &str = "INSERT INTO onceward_tries (consumer, message_id, tries, error, first_at, last_at)
    VALUES (?, ?, 1, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
    ON DUPLICATE KEY UPDATE tries = tries + 1, error = VALUES(error), started = 0, last_at = VALUES(last_at)";
const STARTED: &str = "INSERT INTO onceward_tries (consumer, message_id, started, error, first_at, last_at)
    VALUES (?, ?, 1, '', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
    ON DUPLICATE KEY UPDATE started = started + 1, last_at = VALUES(last_at)";

impl MySqlTables {
    pub(crate) async fn count_failed_try(
        &self,
        consumer: &str,
        message_id: &str,
        error: &str,
    ) -> Result<u32> {
        let of_message = [Param::Text(consumer), Param::Text(message_id)];
        let tries = "SELECT tries FROM onceward_tries WHERE consumer = ? AND message_id = ?";
        transaction!(self, conn => {
            conn.exec_drop(FAILED, params([of_message[0], of_message[1], Param::Text(error)])).await?;
            conn.exec_first::<u32, _, _>(tries, params(of_message)).await?.unwrap_or(0)
        })
    }

    pub(crate) async fn mark_started(&self, consumer: &str, message_id: &str) -> Result<u32> {
        let of_message = [Param::Text(consumer), Param::Text(message_id)];
        let started = "SELECT started FROM onceward_tries WHERE consumer = ? AND message_id = ?";
        transaction!(self, conn => {
            conn.exec_drop(STARTED, params(of_message)).await?;
            conn.exec_first::<u32, _, _>(started, params(of_message)).await?.unwrap_or(0)
        })
    }

    pub(crate) async fn unmark_started(&self, consumer: &str, message_id: &str) -> Result<()> {
        let unmark = "UPDATE onceward_tries SET started = started - 1
            WHERE consumer = ? AND message_id = ? AND started > 0";
        let of_message = params([Param::Text(consumer), Param::Text(message_id)]);
        self.connection().await?.exec_drop(unmark, of_message).await.map_err(written)
    }

    pub(crate) async fn sweep_versions(&self, unchanged_for: Duration) -> Result<u64> {
        let mut conn = self.connection().await?;
        let sweep = "DELETE FROM onceward_versions WHERE updated < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND";
        conn.exec_drop(sweep, (micros(unchanged_for),)).await.map_err(written)?;
        Ok(conn.affected_rows())
    }

    pub(crate) async fn sweep_tries(&self) -> Result<u64> {
        let mut conn = self.connection().await?;
        let sweep = "DELETE FROM onceward_tries WHERE last_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND";
        conn.exec_drop(sweep, (micros(TRIES_KEPT),)).await.map_err(written)?;
        Ok(conn.affected_rows())
    }
}
