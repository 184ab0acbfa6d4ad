//! The tables `onceward_dead_letters` and `onceward_sequences`.
//!
//! ```text
//! no row (clear) ──a message is given up──▶ parked ──retry──▶ draining ──the last one is handled──▶ no row (clear)
//!                                             ▲                  │
//!                                             └──one fails again─┘
//! ```
//!
//! The row of a sequence is locked by every transaction that gives up, appends or handles a message of its ordering key.
//! Arrivals are appended while there is a row; it is removed in the transaction of the last message's effect.

use std::time::Duration;

use bytes::Bytes;
use onceward::Result;
use tokio_postgres::{Row, Transaction};

use super::{Call, PostgresTables, failed};
use crate::dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterState, whose};
use crate::message::Message;
use crate::tables::{Recorded, SEQUENCE_RETRIES, Subject, waits_behind};

const FENCE: &str = "SELECT fence FROM onceward_parts WHERE flow = $1 AND part = $2 FOR KEY SHARE";
const SEQUENCE: &str =
    "SELECT state FROM onceward_sequences WHERE consumer = $1 AND ordering_key = $2 FOR UPDATE";
const PARK: &str = "INSERT INTO onceward_sequences (consumer, ordering_key, state, part)
    VALUES ($1, $2, 'parked', $3) ON CONFLICT DO NOTHING";
const PARK_AGAIN: &str = "UPDATE onceward_sequences SET state = 'parked', updated = clock_timestamp()
    WHERE consumer = $1 AND ordering_key = $2";
const COUNT: &str = "SELECT count(*) FROM onceward_dead_letters WHERE consumer = $1 AND ordering_key = $2";
const BURY: &str = "INSERT INTO onceward_dead_letters
        (consumer, message_id, part, state, topic, ordering_key, headers, payload, tries, error, first_at, last_at)
    SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
        coalesce((SELECT first_at FROM onceward_tries WHERE consumer = $1 AND message_id = $2), clock_timestamp()),
        clock_timestamp()
    ON CONFLICT (consumer, message_id) DO NOTHING";
const BURY_AGAIN: &str = "UPDATE onceward_dead_letters
    SET state = 'dead', tries = $3, error = $4, last_at = clock_timestamp()
    WHERE consumer = $1 AND message_id = $2";
const FORGET_TRIES: &str = "DELETE FROM onceward_tries WHERE consumer = $1 AND message_id = $2";
const SET_BEHIND: &str = "UPDATE onceward_dead_letters AS d SET number = DEFAULT, state = 'behind'
    WHERE consumer = $1 AND message_id = $2 AND EXISTS (SELECT 1 FROM onceward_dead_letters AS other
        WHERE other.consumer = $1 AND other.ordering_key = $3 AND other.number > d.number)";
const COLUMNS: &str = "message_id, number, part, state, topic, ordering_key, headers, payload, tries, error,
    (extract(epoch FROM clock_timestamp() - first_at) * 1000000)::bigint,
    (extract(epoch FROM clock_timestamp() - last_at) * 1000000)::bigint, consumer";

impl PostgresTables {
    /// Records a message that has arrived as given up. With `parked_max`, later messages of its key wait behind it.
    pub(crate) async fn bury(
        &self,
        subject: Subject<'_>,
        tries: u32,
        error: &str,
        parked_max: Option<usize>,
    ) -> Result<Recorded> {
        let mut client = self.connection().await?;
        let write = |error| failed(Call::Writes, error);
        let tx = client.transaction().await.map_err(write)?;
        if !is_owner(&tx, subject).await.map_err(write)? {
            return Ok(Recorded::FencedOff);
        }
        if let (Some(parked_max), Some(key)) = (parked_max, subject.message.ordering_key()) {
            let part = subject.part.cast_signed();
            tx.execute(PARK, &[&subject.consumer, &key, &part]).await.map_err(write)?;
            tx.query_opt(SEQUENCE, &[&subject.consumer, &key]).await.map_err(write)?;
            if is_full(&tx, subject.consumer, key, parked_max).await.map_err(write)? {
                return Ok(Recorded::Full);
            }
        }
        if insert(&tx, subject, "dead", tries, error).await.map_err(write)? == 0 {
            return Ok(Recorded::Taken);
        }
        tx.execute(FORGET_TRIES, &[&subject.consumer, &subject.message.id()]).await.map_err(write)?;
        tx.commit().await.map_err(write)?;
        Ok(Recorded::Yes)
    }

    /// Records that the retry of a dead letter has failed for good.
    pub(crate) async fn bury_again(
        &self,
        subject: Subject<'_>,
        tries: u32,
        error: &str,
        parks: bool,
    ) -> Result<Recorded> {
        let mut client = self.connection().await?;
        let write = |error| failed(Call::Writes, error);
        let tx = client.transaction().await.map_err(write)?;
        if !is_owner(&tx, subject).await.map_err(write)? {
            return Ok(Recorded::FencedOff);
        }
        let (consumer, id) = (subject.consumer, subject.message.id());
        let key = subject.message.ordering_key().filter(|_| parks).unwrap_or_default();
        tx.query_opt(SEQUENCE, &[&consumer, &key]).await.map_err(write)?;
        let there = tx.execute(BURY_AGAIN, &[&consumer, &id, &tries.cast_signed(), &error]).await;
        // If it was settled or discarded meanwhile, the next one goes on.
        if there.map_err(write)? > 0 {
            tx.execute(PARK_AGAIN, &[&consumer, &key]).await.map_err(write)?;
        }
        tx.execute(FORGET_TRIES, &[&consumer, &id]).await.map_err(write)?;
        tx.commit().await.map_err(write)?;
        Ok(Recorded::Yes)
    }

    /// Makes a dead letter the last one of its sequence, unless it is that already.
    pub(crate) async fn set_behind(&self, subject: Subject<'_>) -> Result<bool> {
        let mut client = self.connection().await?;
        let write = |error| failed(Call::Writes, error);
        let tx = client.transaction().await.map_err(write)?;
        if !is_owner(&tx, subject).await.map_err(write)? {
            return Ok(false);
        }
        let key = subject.message.ordering_key().unwrap_or_default();
        tx.query_opt(SEQUENCE, &[&subject.consumer, &key]).await.map_err(write)?;
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
            [&subject.consumer, &subject.message.id(), &key];
        let changed = tx.execute(SET_BEHIND, &values).await.map_err(write)?;
        tx.commit().await.map_err(write)?;
        Ok(changed > 0)
    }

    /// Appends a message behind the dead one of its ordering key.
    pub(crate) async fn append(&self, subject: Subject<'_>, parked_max: usize) -> Result<Recorded> {
        let mut client = self.connection().await?;
        let write = |error| failed(Call::Writes, error);
        let tx = client.transaction().await.map_err(write)?;
        if !is_owner(&tx, subject).await.map_err(write)? {
            return Ok(Recorded::FencedOff);
        }
        let key = subject.message.ordering_key().unwrap_or_default();
        if tx.query_opt(SEQUENCE, &[&subject.consumer, &key]).await.map_err(write)?.is_none() {
            return Ok(Recorded::Clear);
        }
        if is_full(&tx, subject.consumer, key, parked_max).await.map_err(write)? {
            return Ok(Recorded::Full);
        }
        if insert(&tx, subject, "behind", 0, "").await.map_err(write)? == 0 {
            return Ok(Recorded::Taken);
        }
        tx.commit().await.map_err(write)?;
        Ok(Recorded::Yes)
    }

    /// Counts a failed try of a message that is being retried, and returns how many there are.
    pub(crate) async fn count_failed_retry(
        &self,
        consumer: &str,
        message_id: &str,
        error: &str,
    ) -> Result<u32> {
        let client = self.connection().await?;
        let count =
            "UPDATE onceward_dead_letters SET tries = tries + 1, error = $3, last_at = clock_timestamp()
            WHERE consumer = $1 AND message_id = $2 RETURNING tries";
        let row = client.query_opt(count, &[&consumer, &message_id, &error]).await;
        let row = row.map_err(|error| failed(Call::Writes, error))?;
        Ok(row.map_or(0, |row| row.get::<_, i32>(0).unsigned_abs()))
    }

    /// Messages that are to be retried by the owner of these parts, in their order. The flag: it is retried alone, without
    /// a sequence.
    pub(crate) async fn to_retry(
        &self,
        consumer: &str,
        parts: &[u32],
        limit: i64,
    ) -> Result<Vec<(DeadLetter, bool)>> {
        let client = self.connection().await?;
        let parts: Vec<i32> = parts.iter().map(|part| part.cast_signed()).collect();
        // Of each sequence the first ones, in turns: a long one must not hold up the others.
        let select = format!(
            "SELECT {COLUMNS}, alone FROM (
                SELECT d.*, false AS alone, row_number() OVER (PARTITION BY ordering_key ORDER BY number) AS turn
                FROM onceward_dead_letters AS d WHERE consumer = $1 AND ordering_key IN (
                    SELECT ordering_key FROM onceward_sequences
                    WHERE consumer = $1 AND part = ANY($2) AND state = 'draining')
                UNION ALL
                SELECT d.*, true, 1 FROM onceward_dead_letters AS d
                WHERE consumer = $1 AND part = ANY($2) AND state = 'retry' AND NOT EXISTS (
                    SELECT 1 FROM onceward_sequences AS s
                    WHERE s.consumer = $1 AND s.ordering_key = d.ordering_key)) AS d
             WHERE turn <= {SEQUENCE_RETRIES} ORDER BY turn, number LIMIT $3"
        );
        let rows = client.query(&select, &[&consumer, &parts, &limit]).await;
        let rows = rows.map_err(|error| failed(Call::Reads, error))?;
        rows.iter().map(|row| Ok((letter(row)?, row.get(13)))).collect()
    }

    /// Removes a dead letter, and the sequence with its last message.
    pub(crate) async fn remove_dead_letter(&self, consumer: &str, message_id: &str) -> Result<bool> {
        let mut client = self.connection().await?;
        let write = |error| failed(Call::Writes, error);
        let tx = client.transaction().await.map_err(write)?;
        let Some(found) = find(&tx, consumer, message_id).await? else { return Ok(false) };
        let key = found.message.ordering_key().unwrap_or_default();
        tx.query_opt(SEQUENCE, &[&consumer, &key]).await.map_err(write)?;
        let remove = "DELETE FROM onceward_dead_letters WHERE consumer = $1 AND message_id = $2";
        let removed = tx.execute(remove, &[&consumer, &message_id]).await.map_err(write)?;
        tx.execute(CLEAR, &[&consumer, &key]).await.map_err(write)?;
        tx.commit().await.map_err(write)?;
        Ok(removed > 0)
    }

    /// Has a dead letter tried again, with all that wait behind it.
    pub(crate) async fn retry_dead_letter(&self, consumer: &str, message_id: &str) -> Result<Option<bool>> {
        let mut client = self.connection().await?;
        let write = |error| failed(Call::Writes, error);
        let tx = client.transaction().await.map_err(write)?;
        let Some(found) = find(&tx, consumer, message_id).await? else { return Ok(None) };
        let key = found.message.ordering_key().unwrap_or_default();
        let sequence = tx.query_opt(SEQUENCE, &[&consumer, &key]).await.map_err(write)?;
        let mut changed = 0;
        if sequence.is_some() {
            let first =
                "SELECT message_id FROM onceward_dead_letters WHERE consumer = $1 AND ordering_key = $2
                ORDER BY number LIMIT 1";
            let first = tx.query_opt(first, &[&consumer, &key]).await.map_err(write)?;
            if let Some(first) = first.map(|row| row.get::<_, String>(0)).filter(|first| first != message_id)
            {
                return Err(waits_behind(&first));
            }
            let drain = "UPDATE onceward_sequences SET state = 'draining', updated = clock_timestamp()
                WHERE consumer = $1 AND ordering_key = $2 AND state <> 'draining'";
            changed += tx.execute(drain, &[&consumer, &key]).await.map_err(write)?;
            if changed > 0 {
                // Also of those that were early and are now behind others.
                let untried = "UPDATE onceward_dead_letters SET tries = 0
                    WHERE consumer = $1 AND ordering_key = $2 AND tries > 0 AND state <> 'retry'";
                tx.execute(untried, &[&consumer, &key]).await.map_err(write)?;
            }
        }
        let retry = "UPDATE onceward_dead_letters SET state = 'retry', tries = 0
            WHERE consumer = $1 AND message_id = $2 AND state <> 'retry'";
        changed += tx.execute(retry, &[&consumer, &message_id]).await.map_err(write)?;
        tx.commit().await.map_err(write)?;
        Ok(Some(changed > 0))
    }

    pub(crate) async fn list_dead_letters(
        &self,
        consumer: &str,
        filter: &DeadLetterFilter,
        after: i64,
        limit: i64,
    ) -> Result<Vec<DeadLetter>> {
        let client = self.connection().await?;
        let whose = if filter.of_all { "$1::text IS NOT NULL" } else { "consumer = $1" };
        let select = format!(
            "SELECT {COLUMNS} FROM onceward_dead_letters WHERE {whose} AND number > $2
                AND ($3::text IS NULL OR message_id = $3) AND ($4::text IS NULL OR topic = $4)
                AND ($5::text IS NULL OR ordering_key = $5) AND ($6::text IS NULL OR position($6 IN error) > 0)
                AND ($7::text IS NULL OR state = $7)
                AND last_at <= clock_timestamp() - $8::bigint * interval '1 microsecond'
             ORDER BY number LIMIT $9"
        );
        let older = i64::try_from(filter.older_than.as_micros()).unwrap_or(i64::MAX);
        let state = filter.state.map(DeadLetterState::name);
        let rows = client
            .query(
                &select,
                &[
                    &consumer,
                    &after,
                    &filter.message_id,
                    &filter.topic,
                    &filter.ordering_key,
                    &filter.error,
                    &state,
                    &older,
                    &limit,
                ],
            )
            .await;
        rows.map_err(|error| failed(Call::Reads, error))?.iter().map(letter).collect()
    }
}

/// Removes a sequence without messages.
const CLEAR: &str =
    "DELETE FROM onceward_sequences WHERE consumer = $1 AND ordering_key = $2 AND NOT EXISTS (
    SELECT 1 FROM onceward_dead_letters WHERE consumer = $1 AND ordering_key = $2)";

async fn is_owner(tx: &Transaction<'_>, subject: Subject<'_>) -> Result<bool, tokio_postgres::Error> {
    let row = tx.query_opt(FENCE, &[&subject.flow, &subject.part.cast_signed()]).await?;
    Ok(row.is_some_and(|row| row.get::<_, i64>(0) == subject.fence))
}

async fn insert(
    tx: &Transaction<'_>,
    subject: Subject<'_>,
    state: &str,
    tries: u32,
    error: &str,
) -> Result<u64, tokio_postgres::Error> {
    let message = subject.message;
    let (key, headers) = (message.ordering_key(), message.headers_json());
    tx.execute(
        BURY,
        &[
            &subject.consumer,
            &message.id(),
            &subject.part.cast_signed(),
            &state,
            &message.topic(),
            &key,
            &headers,
            &&message.payload()[..],
            &tries.cast_signed(),
            &error,
        ],
    )
    .await
}

async fn is_full(
    tx: &Transaction<'_>,
    consumer: &str,
    key: &str,
    parked_max: usize,
) -> Result<bool, tokio_postgres::Error> {
    let count: i64 = tx.query_one(COUNT, &[&consumer, &key]).await?.get(0);
    Ok(usize::try_from(count).unwrap_or(usize::MAX) >= parked_max)
}

async fn find(tx: &Transaction<'_>, consumer: &str, message_id: &str) -> Result<Option<DeadLetter>> {
    let select =
        format!("SELECT {COLUMNS} FROM onceward_dead_letters WHERE consumer = $1 AND message_id = $2");
    let row =
        tx.query_opt(&select, &[&consumer, &message_id]).await.map_err(|error| failed(Call::Reads, error))?;
    row.as_ref().map(letter).transpose()
}

fn letter(row: &Row) -> Result<DeadLetter> {
    let age = |at: usize| Duration::from_micros(row.get::<_, i64>(at).max(0).unsigned_abs());
    let payload = Bytes::copy_from_slice(row.get(7));
    let (source, consumer) = whose(row.get(12));
    Ok(DeadLetter {
        source,
        consumer,
        message: Message::from_stored(row.get(0), row.get(4), row.get(5), row.get(6), payload)?,
        number: row.get(1),
        part: row.get::<_, i32>(2).unsigned_abs(),
        state: DeadLetterState::parse(row.get(3))?,
        tries: row.get::<_, i32>(8).unsigned_abs(),
        error: row.get(9),
        first_failed: age(10),
        last_failed: age(11),
    })
}
