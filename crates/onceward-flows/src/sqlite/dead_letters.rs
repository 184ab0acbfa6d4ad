//! The tables `onceward_dead_letters` and `onceward_sequences`; see `postgres/dead_letters.rs` for their states. The
//! transactions here are the only writers while they run.

use std::time::Duration;

use onceward::Result;
use onceward_stores::rusqlite::types::Value;
use onceward_stores::rusqlite::{Row, Transaction, params_from_iter};

use super::{SqliteTables, execute, micros, now, rows, value};
use crate::dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterState, whose};
use crate::message::Message;
use crate::tables::{Recorded, SEQUENCE_RETRIES, Subject, waits_behind};

const PARK: &str = "INSERT INTO onceward_sequences (consumer, ordering_key, state, part, updated)
    VALUES (?1, ?2, 'parked', ?3, ?4) ON CONFLICT DO NOTHING";
const PARK_AGAIN: &str = "UPDATE onceward_sequences SET state = 'parked', updated = ?3
    WHERE consumer = ?1 AND ordering_key = ?2";
const COUNT: &str = "SELECT count(*) FROM onceward_dead_letters WHERE consumer = ?1 AND ordering_key = ?2";
const THERE: &str = "SELECT 1 FROM onceward_dead_letters WHERE consumer = ?1 AND message_id = ?2";
const BURY: &str = "INSERT INTO onceward_dead_letters
        (consumer, message_id, part, state, topic, ordering_key, headers, payload, tries, error, first_at, last_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,
        coalesce((SELECT first_at FROM onceward_tries WHERE consumer = ?1 AND message_id = ?2), ?11), ?11)";
const BURY_AGAIN: &str =
    "UPDATE onceward_dead_letters SET state = 'dead', tries = ?3, error = ?4, last_at = ?5
    WHERE consumer = ?1 AND message_id = ?2";
/// A number that no other has had.
const SET_BEHIND: &str = "UPDATE onceward_dead_letters SET state = 'behind', number = 1 + max(
        (SELECT max(number) FROM onceward_dead_letters),
        (SELECT seq FROM sqlite_sequence WHERE name = 'onceward_dead_letters'))
    WHERE consumer = ?1 AND message_id = ?2 AND number < (
        SELECT max(number) FROM onceward_dead_letters WHERE consumer = ?1 AND ordering_key = ?3)";
const FORGET_TRIES: &str = "DELETE FROM onceward_tries WHERE consumer = ?1 AND message_id = ?2";
const SEQUENCE: &str = "SELECT state FROM onceward_sequences WHERE consumer = ?1 AND ordering_key = ?2";
const CLEAR: &str =
    "DELETE FROM onceward_sequences WHERE consumer = ?1 AND ordering_key = ?2 AND NOT EXISTS (
    SELECT 1 FROM onceward_dead_letters WHERE consumer = ?1 AND ordering_key = ?2)";
const COLUMNS: &str =
    "message_id, number, part, state, topic, ordering_key, headers, payload, tries, error, first_at, last_at,
    consumer";

/// A subject without borrows, for the thread that writes.
struct Owned {
    flow: String,
    consumer: String,
    part: u32,
    fence: i64,
    message: Message,
}

impl From<Subject<'_>> for Owned {
    fn from(subject: Subject<'_>) -> Self {
        let Subject { flow, consumer, part, fence, message } = subject;
        Self { flow: flow.into(), consumer: consumer.into(), part, fence, message: message.clone() }
    }
}

impl Owned {
    fn is_owner(&self, tx: &Transaction<'_>) -> Result<bool> {
        let fence = "SELECT fence FROM onceward_parts WHERE flow = ?1 AND part = ?2";
        Ok(value(tx, fence, (&self.flow, self.part))? == Some(self.fence))
    }

    fn of_message(&self) -> (&str, &str) {
        (&self.consumer, self.message.id())
    }

    /// Whether its sequence has as many messages as are allowed.
    fn is_full(&self, tx: &Transaction<'_>, key: &str, parked_max: usize) -> Result<bool> {
        let count: i64 = value(tx, COUNT, (&self.consumer, key))?.unwrap_or(0);
        Ok(usize::try_from(count).unwrap_or(usize::MAX) >= parked_max)
    }

    fn insert(&self, tx: &Transaction<'_>, state: &str, tries: u32, error: &str) -> Result<()> {
        let message = &self.message;
        let values = (
            &self.consumer,
            message.id(),
            self.part,
            state,
            message.topic(),
            message.ordering_key(),
            message.headers_json(),
            &message.payload()[..],
            tries,
            error,
            now(),
        );
        execute(tx, BURY, values).map(drop)
    }
}

impl SqliteTables {
    pub(crate) async fn bury(
        &self,
        subject: Subject<'_>,
        tries: u32,
        error: &str,
        parked_max: Option<usize>,
    ) -> Result<Recorded> {
        let (subject, error) = (Owned::from(subject), error.to_owned());
        self.write(move |tx| {
            if !subject.is_owner(tx)? {
                return Ok(Recorded::FencedOff);
            }
            if value::<i64>(tx, THERE, subject.of_message())?.is_some() {
                return Ok(Recorded::Taken);
            }
            if let (Some(parked_max), Some(key)) = (parked_max, subject.message.ordering_key()) {
                if subject.is_full(tx, key, parked_max)? {
                    return Ok(Recorded::Full);
                }
                execute(tx, PARK, (&subject.consumer, key, subject.part, now()))?;
            }
            subject.insert(tx, "dead", tries, &error)?;
            execute(tx, FORGET_TRIES, subject.of_message())?;
            Ok(Recorded::Yes)
        })
        .await
    }

    pub(crate) async fn bury_again(
        &self,
        subject: Subject<'_>,
        tries: u32,
        error: &str,
        parks: bool,
    ) -> Result<Recorded> {
        let (subject, error) = (Owned::from(subject), error.to_owned());
        self.write(move |tx| {
            if !subject.is_owner(tx)? {
                return Ok(Recorded::FencedOff);
            }
            let (consumer, id) = subject.of_message();
            let there = execute(tx, BURY_AGAIN, (consumer, id, tries, &error, now()))?;
            // If it was settled or discarded meanwhile, the next one goes on.
            if let (true, true, Some(key)) = (there > 0, parks, subject.message.ordering_key()) {
                execute(tx, PARK_AGAIN, (consumer, key, now()))?;
            }
            execute(tx, FORGET_TRIES, (consumer, id))?;
            Ok(Recorded::Yes)
        })
        .await
    }

    pub(crate) async fn set_behind(&self, subject: Subject<'_>) -> Result<bool> {
        let subject = Owned::from(subject);
        self.write(move |tx| {
            let key = subject.message.ordering_key().unwrap_or_default();
            let (consumer, id) = subject.of_message();
            Ok(subject.is_owner(tx)? && execute(tx, SET_BEHIND, (consumer, id, key))? > 0)
        })
        .await
    }

    pub(crate) async fn append(&self, subject: Subject<'_>, parked_max: usize) -> Result<Recorded> {
        let subject = Owned::from(subject);
        self.write(move |tx| {
            if !subject.is_owner(tx)? {
                return Ok(Recorded::FencedOff);
            }
            let key = subject.message.ordering_key().unwrap_or_default();
            if value::<String>(tx, SEQUENCE, (&subject.consumer, key))?.is_none() {
                return Ok(Recorded::Clear);
            }
            if value::<i64>(tx, THERE, subject.of_message())?.is_some() {
                return Ok(Recorded::Taken);
            }
            if subject.is_full(tx, key, parked_max)? {
                return Ok(Recorded::Full);
            }
            subject.insert(tx, "behind", 0, "")?;
            Ok(Recorded::Yes)
        })
        .await
    }

    pub(crate) async fn count_failed_retry(
        &self,
        consumer: &str,
        message_id: &str,
        error: &str,
    ) -> Result<u32> {
        let values = (consumer.to_owned(), message_id.to_owned(), error.to_owned(), now());
        let count = "UPDATE onceward_dead_letters SET tries = tries + 1, error = ?3, last_at = ?4
            WHERE consumer = ?1 AND message_id = ?2 RETURNING tries";
        self.write(move |tx| Ok(value(tx, count, values)?.unwrap_or(0))).await
    }

    pub(crate) async fn to_retry(
        &self,
        consumer: &str,
        parts: &[u32],
        limit: i64,
    ) -> Result<Vec<(DeadLetter, bool)>> {
        let (consumer, parts) =
            (consumer.to_owned(), serde_json::to_string(parts).expect("numbers are JSON"));
        self.read(move |tx| {
            // Of each sequence the first ones, in turns: a long one must not hold up the others.
            let select = format!(
                "SELECT {COLUMNS}, alone FROM (
                    SELECT *, 0 AS alone, row_number() OVER (PARTITION BY ordering_key ORDER BY number) AS turn
                    FROM onceward_dead_letters WHERE consumer = ?1 AND ordering_key IN (
                        SELECT ordering_key FROM onceward_sequences WHERE consumer = ?1 AND state = 'draining'
                            AND part IN (SELECT value FROM json_each(?2)))
                    UNION ALL
                    SELECT *, 1, 1 FROM onceward_dead_letters AS d
                    WHERE consumer = ?1 AND part IN (SELECT value FROM json_each(?2)) AND state = 'retry'
                        AND NOT EXISTS (SELECT 1 FROM onceward_sequences AS s
                            WHERE s.consumer = ?1 AND s.ordering_key = d.ordering_key))
                 WHERE turn <= {SEQUENCE_RETRIES} ORDER BY turn, number LIMIT ?3"
            );
            let found = rows(tx, &select, (&consumer, &parts, limit), |row| Ok((columns(row)?, row.get(13)?)))?;
            found.into_iter().map(|(columns, alone)| Ok((columns.letter()?, alone))).collect()
        })
        .await
    }

    pub(crate) async fn remove_dead_letter(&self, consumer: &str, message_id: &str) -> Result<bool> {
        let of_message = (consumer.to_owned(), message_id.to_owned());
        self.write(move |tx| {
            let remove = "DELETE FROM onceward_dead_letters WHERE consumer = ?1 AND message_id = ?2
                RETURNING coalesce(ordering_key, '')";
            let Some(key) = value::<String>(tx, remove, (&of_message.0, &of_message.1))? else {
                return Ok(false);
            };
            execute(tx, CLEAR, (&of_message.0, key))?;
            Ok(true)
        })
        .await
    }

    pub(crate) async fn retry_dead_letter(&self, consumer: &str, message_id: &str) -> Result<Option<bool>> {
        let (consumer, id) = (consumer.to_owned(), message_id.to_owned());
        self.write(move |tx| {
            let find = "SELECT coalesce(ordering_key, '') FROM onceward_dead_letters
                WHERE consumer = ?1 AND message_id = ?2";
            let Some(key) = value::<String>(tx, find, (&consumer, &id))? else { return Ok(None) };
            let mut changed = 0;
            if value::<String>(tx, SEQUENCE, (&consumer, &key))?.is_some() {
                let first =
                    "SELECT message_id FROM onceward_dead_letters WHERE consumer = ?1 AND ordering_key = ?2
                    ORDER BY number LIMIT 1";
                let first: Option<String> = value(tx, first, (&consumer, &key))?;
                if let Some(first) = first.filter(|first| *first != id) {
                    return Err(waits_behind(&first));
                }
                let drain = "UPDATE onceward_sequences SET state = 'draining', updated = ?3
                    WHERE consumer = ?1 AND ordering_key = ?2 AND state <> 'draining'";
                changed += execute(tx, drain, (&consumer, &key, now()))?;
                if changed > 0 {
                    // Also of those that were early and are now behind others.
                    let untried = "UPDATE onceward_dead_letters SET tries = 0
                        WHERE consumer = ?1 AND ordering_key = ?2 AND tries > 0 AND state <> 'retry'";
                    execute(tx, untried, (&consumer, &key))?;
                }
            }
            let retry = "UPDATE onceward_dead_letters SET state = 'retry', tries = 0
                WHERE consumer = ?1 AND message_id = ?2 AND state <> 'retry'";
            changed += execute(tx, retry, (&consumer, &id))?;
            Ok(Some(changed > 0))
        })
        .await
    }

    pub(crate) async fn list_dead_letters(
        &self,
        consumer: &str,
        filter: &DeadLetterFilter,
        after: i64,
        limit: i64,
    ) -> Result<Vec<DeadLetter>> {
        let text = |text: &Option<String>| text.clone().map_or(Value::Null, Value::Text);
        let values = [
            Value::Text(consumer.to_owned()),
            Value::Integer(after),
            text(&filter.message_id),
            text(&filter.topic),
            text(&filter.ordering_key),
            text(&filter.error),
            text(&filter.state.map(|state| state.name().to_owned())),
            Value::Integer(now().saturating_sub(micros(filter.older_than))),
            Value::Integer(limit),
        ];
        let whose = if filter.of_all { "?1 IS NOT NULL" } else { "consumer = ?1" };
        self.read(move |tx| {
            let select = format!(
                "SELECT {COLUMNS} FROM onceward_dead_letters WHERE {whose} AND number > ?2
                    AND (?3 IS NULL OR message_id = ?3) AND (?4 IS NULL OR topic = ?4)
                    AND (?5 IS NULL OR ordering_key = ?5) AND (?6 IS NULL OR instr(error, ?6) > 0)
                    AND (?7 IS NULL OR state = ?7) AND last_at <= ?8
                 ORDER BY number LIMIT ?9"
            );
            let found = rows(tx, &select, params_from_iter(values), columns)?;
            found.into_iter().map(Columns::letter).collect()
        })
        .await
    }
}

/// A row as it is stored.
struct Columns {
    texts: [String; 6],
    ordering_key: Option<String>,
    payload: Vec<u8>,
    numbers: [i64; 3],
    times: [i64; 2],
}

fn columns(row: &Row<'_>) -> onceward_stores::rusqlite::Result<Columns> {
    Ok(Columns {
        texts: [row.get(0)?, row.get(3)?, row.get(4)?, row.get(6)?, row.get(9)?, row.get(12)?],
        ordering_key: row.get(5)?,
        payload: row.get(7)?,
        numbers: [row.get(1)?, row.get(2)?, row.get(8)?],
        times: [row.get(10)?, row.get(11)?],
    })
}

impl Columns {
    fn letter(self) -> Result<DeadLetter> {
        let ([id, state, topic, headers, error, scope], [number, part, tries]) = (self.texts, self.numbers);
        let (source, consumer) = whose(&scope);
        let small = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
        let [first_failed, last_failed] =
            self.times.map(|at| Duration::from_micros((now() - at).max(0).unsigned_abs()));
        Ok(DeadLetter {
            source,
            consumer,
            message: Message::from_stored(id, topic, self.ordering_key, &headers, self.payload.into())?,
            number,
            part: small(part),
            state: DeadLetterState::parse(&state)?,
            tries: small(tries),
            error,
            first_failed,
            last_failed,
        })
    }
}
