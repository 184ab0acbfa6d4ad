//! What a relay does with the table `onceward_outbox`: reads behind the last position of each lane, removes what was
//! published. It never walks over dead rows: in a lane it begins where it stopped.

use std::time::Duration;

use bytes::Bytes;
use onceward::Result;

use super::{Call, PostgresTables, failed};
use crate::message::Message;
use crate::tables::{Backlog, OutboxRow};

const READ: &str = "SELECT o.lane, o.position, o.id, o.topic, o.ordering_key, o.headers, o.payload
    FROM unnest($1::int[], $2::bigint[]) AS l(lane, after)
    CROSS JOIN LATERAL (
        SELECT * FROM onceward_outbox AS o WHERE o.lane = l.lane AND o.position > l.after
        ORDER BY o.position LIMIT $3) AS o
    LIMIT $4";
const REMOVE: &str = "DELETE FROM onceward_outbox AS o
    USING unnest($1::int[], $2::bigint[]) AS p(lane, position) WHERE o.lane = p.lane AND o.position = p.position";

impl PostgresTables {
    /// Removes what was published, then reads what is behind the given positions: in one round trip, in this order.
    pub(crate) async fn remove_and_read(
        &self,
        published: &[(u32, i64)],
        after: &[(u32, i64)],
        per_lane: usize,
        limit: usize,
    ) -> Result<Vec<OutboxRow>> {
        let client = self.connection().await?;
        let write = |error| failed(Call::Writes, error);
        let read = client.prepare_cached(READ).await.map_err(write)?;
        let remove = client.prepare_cached(REMOVE).await.map_err(write)?;
        let (lanes, positions) = columns(published);
        let removing = async {
            if published.is_empty() { Ok(0) } else { client.execute(&remove, &[&lanes, &positions]).await }
        };
        let (lanes, positions) = columns(after);
        let (per_lane, limit) = (int(per_lane), int(limit));
        let reading = async {
            if after.is_empty() {
                return Ok(Vec::new());
            }
            client.query(&read, &[&lanes, &positions, &per_lane, &limit]).await
        };
        // Polled together, they are sent together; the server runs them in the order of the first poll.
        let (removed, rows) = tokio::join!(biased; removing, reading);
        removed.map_err(write)?;
        rows.map_err(write)?.iter().map(row).collect()
    }

    /// How much is waiting to be published. Counts all of it: for people and for gauges, not for every request.
    pub(crate) async fn backlog(&self) -> Result<Backlog> {
        let client = self.connection().await?;
        let backlog =
            "SELECT count(*), (extract(epoch FROM clock_timestamp() - min(created)) * 1000000)::bigint
            FROM onceward_outbox";
        let row = client.query_one(backlog, &[]).await.map_err(|error| failed(Call::Reads, error))?;
        let oldest = row.get::<_, Option<i64>>(1).map(|us| Duration::from_micros(us.max(0).unsigned_abs()));
        Ok(Backlog { messages: row.get::<_, i64>(0).unsigned_abs(), oldest })
    }

    /// Whether every committed message is published.
    pub(crate) async fn is_drained(&self) -> Result<bool> {
        let client = self.connection().await?;
        let row = client.query_one("SELECT NOT EXISTS (SELECT 1 FROM onceward_outbox)", &[]).await;
        Ok(row.map_err(|error| failed(Call::Reads, error))?.get(0))
    }
}

fn row(row: &tokio_postgres::Row) -> Result<OutboxRow> {
    let payload = Bytes::copy_from_slice(row.get(6));
    let message = Message::from_stored(row.get(2), row.get(3), row.get(4), row.get(5), payload)?;
    Ok(OutboxRow { lane: row.get::<_, i32>(0).unsigned_abs(), position: row.get(1), message })
}

fn columns(places: &[(u32, i64)]) -> (Vec<i32>, Vec<i64>) {
    places.iter().map(|(lane, position)| (lane.cast_signed(), *position)).unzip()
}

fn int(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
