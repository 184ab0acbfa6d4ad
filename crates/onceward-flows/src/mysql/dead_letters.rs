//! The tables `onceward_dead_letters` and `onceward_sequences`; see `postgres/dead_letters.rs` for their states. The row of
//! a sequence is locked by every transaction that gives up, appends or handles a message of its ordering key.

use std::time::Duration;

use onceward::Result;
use onceward_stores::mysql_async::{self, Conn, Row, prelude::Queryable};

use super::{MySqlTables, Param, list, micros, params, read, text, transaction};
use crate::dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterState, whose};
use crate::message::Message;
use crate::tables::{Recorded, SEQUENCE_RETRIES, Subject, waits_behind};

const FENCE: &str = "SELECT fence FROM onceward_fences WHERE flow = ? AND part = ? LOCK IN SHARE MODE";
const SEQUENCE: &str =
    "SELECT state FROM onceward_sequences WHERE consumer = ? AND ordering_key = ? FOR UPDATE";
const PARK: &str = "INSERT INTO onceward_sequences (consumer, ordering_key, state, part, updated)
    VALUES (?, ?, 'parked', ?, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE part = part";
const PARK_AGAIN: &str = "UPDATE onceward_sequences SET state = 'parked', updated = UTC_TIMESTAMP(6)
    WHERE consumer = ? AND ordering_key = ?";
const COUNT: &str = "SELECT COUNT(*) FROM onceward_dead_letters WHERE consumer = ? AND ordering_key = ?";
const BURY: &str = "INSERT INTO onceward_dead_letters
        (consumer, message_id, part, state, topic, ordering_key, headers, payload, tries, error, first_at, last_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, COALESCE((SELECT t.first_at FROM onceward_tries t
        WHERE t.consumer = ? AND t.message_id = ?), UTC_TIMESTAMP(6)), UTC_TIMESTAMP(6))
    ON DUPLICATE KEY UPDATE number = number";
const BURY_AGAIN: &str = "UPDATE onceward_dead_letters
    SET state = 'dead', tries = ?, error = ?, last_at = UTC_TIMESTAMP(6) WHERE consumer = ? AND message_id = ?";
const IS_LAST: &str = "SELECT 1 FROM onceward_dead_letters AS d WHERE consumer = ? AND message_id = ?
    AND number = (SELECT MAX(number) FROM onceward_dead_letters AS o WHERE o.consumer = ? AND o.ordering_key = ?)";
/// A new row, because only an insert draws a number. No message id begins with a space.
const COPY: &str = "INSERT INTO onceward_dead_letters
        (consumer, message_id, part, state, topic, ordering_key, headers, payload, tries, error, first_at, last_at)
    SELECT consumer, CONCAT(' ', number), part, 'behind', topic, ordering_key, headers, payload, tries, error, first_at,
        last_at FROM onceward_dead_letters WHERE consumer = ? AND message_id = ?";
const REMOVE: &str = "DELETE FROM onceward_dead_letters WHERE consumer = ? AND message_id = ?";
const NAME: &str = "UPDATE onceward_dead_letters SET message_id = ? WHERE number = LAST_INSERT_ID()";
const THERE: &str = "SELECT 1 FROM onceward_dead_letters WHERE consumer = ? AND message_id = ?";
const FORGET_TRIES: &str = "DELETE FROM onceward_tries WHERE consumer = ? AND message_id = ?";
const CLEAR: &str = "DELETE FROM onceward_sequences WHERE consumer = ? AND ordering_key = ? AND NOT EXISTS (
    SELECT 1 FROM onceward_dead_letters d WHERE d.consumer = ? AND d.ordering_key = ?)";
const FIND: &str =
    "SELECT COALESCE(ordering_key, '') FROM onceward_dead_letters WHERE consumer = ? AND message_id = ?";
const COLUMNS: &str = "message_id, number, part, state, topic, ordering_key, headers, payload, tries, error,
    TIMESTAMPDIFF(MICROSECOND, first_at, UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, last_at, UTC_TIMESTAMP(6)),
    consumer";

impl MySqlTables {
    pub(crate) async fn bury(
        &self,
        subject: Subject<'_>,
        tries: u32,
        error: &str,
        parked_max: Option<usize>,
    ) -> Result<Recorded> {
        let consumer = Param::Text(subject.consumer);
        let of_message = [consumer, Param::Text(subject.message.id())];
        let parks = parked_max.zip(subject.message.ordering_key());
        transaction!(self, conn => {
            if is_owner(conn, subject).await? {
                let mut is_full = false;
                if let Some((parked_max, key)) = parks {
                    let part = Param::Int(subject.part.into());
                    conn.exec_drop(PARK, params([consumer, Param::Text(key), part])).await?;
                    let of_key = [consumer, Param::Text(key)];
                    conn.exec_first::<Vec<u8>, _, _>(SEQUENCE, params(of_key)).await?;
                    is_full = count(conn, of_key).await? >= parked_max;
                }
                if is_full {
                    Recorded::Full
                } else if conn.exec_first::<u8, _, _>(THERE, params(of_message)).await?.is_some() {
                    Recorded::Taken
                } else {
                    insert(conn, subject, "dead", tries, error).await?;
                    conn.exec_drop(FORGET_TRIES, params(of_message)).await?;
                    Recorded::Yes
                }
            } else {
                Recorded::FencedOff
            }
        })
    }

    pub(crate) async fn bury_again(
        &self,
        subject: Subject<'_>,
        tries: u32,
        error: &str,
        parks: bool,
    ) -> Result<Recorded> {
        let key = subject.message.ordering_key().filter(|_| parks).unwrap_or_default();
        let of_key = [Param::Text(subject.consumer), Param::Text(key)];
        let of_message = [of_key[0], Param::Text(subject.message.id())];
        let values = [Param::Int(tries.into()), Param::Text(error), of_message[0], of_message[1]];
        transaction!(self, conn => {
            if is_owner(conn, subject).await? {
                conn.exec_first::<Vec<u8>, _, _>(SEQUENCE, params(of_key)).await?;
                // If it was settled or discarded meanwhile, the next one goes on.
                if conn.exec_first::<u8, _, _>(THERE, params(of_message)).await?.is_some() {
                    conn.exec_drop(BURY_AGAIN, params(values)).await?;
                    conn.exec_drop(PARK_AGAIN, params(of_key)).await?;
                }
                conn.exec_drop(FORGET_TRIES, params(of_message)).await?;
                Recorded::Yes
            } else {
                Recorded::FencedOff
            }
        })
    }

    pub(crate) async fn set_behind(&self, subject: Subject<'_>) -> Result<bool> {
        let consumer = Param::Text(subject.consumer);
        let of_key = [consumer, Param::Text(subject.message.ordering_key().unwrap_or_default())];
        let of_message = [consumer, Param::Text(subject.message.id())];
        let is_last = [of_message[0], of_message[1], of_key[0], of_key[1]];
        transaction!(self, conn => {
            if is_owner(conn, subject).await? {
                conn.exec_first::<Vec<u8>, _, _>(SEQUENCE, params(of_key)).await?;
                let is_there = conn.exec_first::<u8, _, _>(THERE, params(of_message)).await?.is_some();
                let stays = conn.exec_first::<u8, _, _>(IS_LAST, params(is_last)).await?.is_some();
                if is_there && !stays {
                    conn.exec_drop(COPY, params(of_message)).await?;
                    conn.exec_drop(REMOVE, params(of_message)).await?;
                    conn.exec_drop(NAME, params([of_message[1]])).await?;
                }
                is_there && !stays
            } else {
                false
            }
        })
    }

    pub(crate) async fn append(&self, subject: Subject<'_>, parked_max: usize) -> Result<Recorded> {
        let consumer = Param::Text(subject.consumer);
        let of_key = [consumer, Param::Text(subject.message.ordering_key().unwrap_or_default())];
        let of_message = [consumer, Param::Text(subject.message.id())];
        transaction!(self, conn => {
            if !is_owner(conn, subject).await? {
                Recorded::FencedOff
            } else if conn.exec_first::<Vec<u8>, _, _>(SEQUENCE, params(of_key)).await?.is_none() {
                Recorded::Clear
            } else if conn.exec_first::<u8, _, _>(THERE, params(of_message)).await?.is_some() {
                Recorded::Taken
            } else if count(conn, of_key).await? >= parked_max {
                Recorded::Full
            } else {
                insert(conn, subject, "behind", 0, "").await?;
                Recorded::Yes
            }
        })
    }

    pub(crate) async fn count_failed_retry(
        &self,
        consumer: &str,
        message_id: &str,
        error: &str,
    ) -> Result<u32> {
        let of_message = [Param::Text(consumer), Param::Text(message_id)];
        let count =
            "UPDATE onceward_dead_letters SET tries = tries + 1, error = ?, last_at = UTC_TIMESTAMP(6)
            WHERE consumer = ? AND message_id = ?";
        let tries = "SELECT tries FROM onceward_dead_letters WHERE consumer = ? AND message_id = ?";
        transaction!(self, conn => {
            conn.exec_drop(count, params([Param::Text(error), of_message[0], of_message[1]])).await?;
            conn.exec_first::<u32, _, _>(tries, params(of_message)).await?.unwrap_or(0)
        })
    }

    pub(crate) async fn to_retry(
        &self,
        consumer: &str,
        parts: &[u32],
        limit: i64,
    ) -> Result<Vec<(DeadLetter, bool)>> {
        let parts = list(parts);
        // Of each sequence the first ones, in turns: a long one must not hold up the others.
        let select = format!(
            "SELECT {COLUMNS}, alone FROM (
                SELECT d.*, 0 AS alone, ROW_NUMBER() OVER (PARTITION BY ordering_key ORDER BY number) AS turn
                FROM onceward_dead_letters d WHERE consumer = ? AND ordering_key IN (
                    SELECT s.ordering_key FROM onceward_sequences s
                    WHERE s.consumer = ? AND s.part IN ({parts}) AND s.state = 'draining')
                UNION ALL
                SELECT d.*, 1, 1 FROM onceward_dead_letters d
                WHERE consumer = ? AND part IN ({parts}) AND state = 'retry' AND NOT EXISTS (
                    SELECT 1 FROM onceward_sequences s
                    WHERE s.consumer = ? AND s.ordering_key = d.ordering_key)) d
             WHERE turn <= {SEQUENCE_RETRIES} ORDER BY turn, number LIMIT {limit}"
        );
        let mut conn = self.connection().await?;
        let rows: Vec<Row> = conn.exec(select, params([Param::Text(consumer); 4])).await.map_err(read)?;
        conn.reset_connection(false);
        rows.into_iter()
            .map(|row| {
                let alone = row.get::<i64, _>(13) == Some(1);
                Ok((letter(row)?, alone))
            })
            .collect()
    }

    pub(crate) async fn remove_dead_letter(&self, consumer: &str, message_id: &str) -> Result<bool> {
        let of_message = [Param::Text(consumer), Param::Text(message_id)];
        let remove = "DELETE FROM onceward_dead_letters WHERE consumer = ? AND message_id = ?";
        transaction!(self, conn => {
            match conn.exec_first::<String, _, _>(FIND, params(of_message)).await? {
                None => false,
                Some(key) => {
                    let of_key = [of_message[0], Param::Text(&key)];
                    conn.exec_first::<Vec<u8>, _, _>(SEQUENCE, params(of_key)).await?;
                    conn.exec_drop(remove, params(of_message)).await?;
                    let removed = conn.affected_rows() > 0;
                    conn.exec_drop(CLEAR, params([of_key[0], of_key[1], of_key[0], of_key[1]])).await?;
                    removed
                }
            }
        })
    }

    pub(crate) async fn retry_dead_letter(&self, consumer: &str, message_id: &str) -> Result<Option<bool>> {
        let of_message = [Param::Text(consumer), Param::Text(message_id)];
        let first = "SELECT message_id FROM onceward_dead_letters WHERE consumer = ? AND ordering_key = ?
            ORDER BY number LIMIT 1";
        let drain = "UPDATE onceward_sequences SET state = 'draining', updated = UTC_TIMESTAMP(6)
            WHERE consumer = ? AND ordering_key = ? AND state <> 'draining'";
        let retry = "UPDATE onceward_dead_letters SET state = 'retry', tries = 0
            WHERE consumer = ? AND message_id = ? AND state <> 'retry'";
        let untried = "UPDATE onceward_dead_letters SET tries = 0
            WHERE consumer = ? AND ordering_key = ? AND tries > 0 AND state <> 'retry'";
        let retried: Result<Result<Option<bool>>> = transaction!(self, conn => {
            let key: Option<String> = conn.exec_first(FIND, params(of_message)).await?;
            let of_key = [of_message[0], Param::Text(key.as_deref().unwrap_or_default())];
            let sequence: Option<Vec<u8>> = conn.exec_first(SEQUENCE, params(of_key)).await?;
            let first: Option<String> =
                if sequence.is_some() { conn.exec_first(first, params(of_key)).await? } else { None };
            match first.filter(|first| first != message_id) {
                Some(first) if key.is_some() => Err(waits_behind(&first)),
                _ if key.is_none() => Ok(None),
                _ => {
                    let mut changed = 0;
                    if sequence.is_some() {
                        conn.exec_drop(drain, params(of_key)).await?;
                        changed += conn.affected_rows();
                        if changed > 0 {
                            // Also of those that were early and are now behind others.
                            conn.exec_drop(untried, params(of_key)).await?;
                        }
                    }
                    conn.exec_drop(retry, params(of_message)).await?;
                    Ok(Some(changed + conn.affected_rows() > 0))
                }
            }
        });
        retried?
    }

    pub(crate) async fn list_dead_letters(
        &self,
        consumer: &str,
        filter: &DeadLetterFilter,
        after: i64,
        limit: i64,
    ) -> Result<Vec<DeadLetter>> {
        let mut select = format!("SELECT {COLUMNS} FROM onceward_dead_letters WHERE number > ?");
        let mut values = vec![Param::Int(after)];
        let state = filter.state.map(DeadLetterState::name);
        let wanted = [
            (Some(consumer).filter(|_| !filter.of_all), " AND consumer = ?"),
            (filter.message_id.as_deref(), " AND message_id = ?"),
            (filter.topic.as_deref(), " AND topic = ?"),
            (filter.ordering_key.as_deref(), " AND ordering_key = ?"),
            (filter.error.as_deref(), " AND LOCATE(?, error) > 0"),
            (state, " AND state = ?"),
        ];
        for (value, condition) in wanted {
            if let Some(value) = value {
                select.push_str(condition);
                values.push(Param::Text(value));
            }
        }
        // Older than anything that the server can count back to is older than everything.
        let older = micros(filter.older_than.min(Duration::from_secs(100 * 365 * 24 * 3600)));
        select.push_str(" AND last_at <= UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY number LIMIT ?");
        values.extend([Param::Int(older), Param::Int(limit)]);
        let mut conn = self.connection().await?;
        let rows: Vec<Row> = conn.exec(select, params(values)).await.map_err(read)?;
        conn.reset_connection(false);
        rows.into_iter().map(letter).collect()
    }
}

async fn is_owner(conn: &mut Conn, subject: Subject<'_>) -> mysql_async::Result<bool> {
    let of_part = params([Param::Text(subject.flow), Param::Int(subject.part.into())]);
    Ok(conn.exec_first::<i64, _, _>(FENCE, of_part).await? == Some(subject.fence))
}

async fn count(conn: &mut Conn, of_key: [Param<'_>; 2]) -> mysql_async::Result<usize> {
    Ok(conn.exec_first(COUNT, params(of_key)).await?.unwrap_or(0))
}

async fn insert(
    conn: &mut Conn,
    subject: Subject<'_>,
    state: &str,
    tries: u32,
    error: &str,
) -> mysql_async::Result<()> {
    let (message, consumer) = (subject.message, Param::Text(subject.consumer));
    let (id, headers) = (Param::Text(message.id()), message.headers_json());
    let values = [
        consumer,
        id,
        Param::Int(subject.part.into()),
        Param::Text(state),
        Param::Text(message.topic()),
        Param::Maybe(message.ordering_key()),
        Param::Text(&headers),
        Param::Bytes(message.payload()),
        Param::Int(tries.into()),
        Param::Text(error),
        consumer,
        id,
    ];
    conn.exec_drop(BURY, params(values)).await
}

fn letter(mut row: Row) -> Result<DeadLetter> {
    let mut bytes = |at: usize| row.take::<Option<Vec<u8>>, _>(at).flatten();
    let (key, payload) = (bytes(5).map(text), bytes(7).unwrap_or_default());
    let [id, state, topic, headers, error, scope] =
        [0, 3, 4, 6, 9, 12].map(|at| text(bytes(at).unwrap_or_default()));
    let (source, consumer) = whose(&scope);
    let number = |at: usize| row.get::<i64, _>(at).unwrap_or_default();
    let small = |at: usize| u32::try_from(number(at)).unwrap_or(u32::MAX);
    let age = |at: usize| Duration::from_micros(number(at).max(0).unsigned_abs());
    Ok(DeadLetter {
        source,
        consumer,
        message: Message::from_stored(id, topic, key, &headers, payload.into())?,
        number: number(1),
        part: small(2),
        state: DeadLetterState::parse(&state)?,
        tries: small(8),
        error,
        first_failed: age(10),
        last_failed: age(11),
    })
}
