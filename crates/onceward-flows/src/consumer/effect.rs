//! One try of one message: its transaction, and what is recorded if it fails.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::Mutex;

use futures_util::FutureExt;
use onceward::{
    Answer, Ask, Error, ErrorKind, Fingerprint, Id, Lease, Outcome, Refusal, Result, State, Stopped,
    Transactions,
};
use onceward_stores::sql::{Cell, SqlTransaction, Value};

use super::failure::{AfterFailure, after_failure};
use super::{Consumer, ConsumerDatabase, Failure, OnDead, Received};
use crate::message::Message;
use crate::postgres::dead_letters::{Recorded, Subject};

/// Deaths of its process after which a message is given up. The first one leaves no mark.
const DEATHS_MAX: u32 = 5;
/// Longest error that is kept, in bytes.
const ERROR_BYTES_MAX: usize = 2_000;

/// A message to be tried.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) part: u32,
    pub(super) fence: i64,
    pub(super) message: Arc<Message>,
    pub(super) origin: Origin,
    /// Why it cannot be handled as it came.
    pub(super) fault: Option<String>,
    /// The former owner of the partition ended without warning, perhaps because of this message: mark it first.
    pub(super) is_suspect: bool,
    /// It was tried in this process, which is still there.
    pub(super) was_begun: bool,
    /// Tries that have failed.
    pub(super) tries: u32,
}

/// Where a message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// From the source, at this position.
    Source { position: i64 },
    /// From the dead letters.
    DeadLetter { number: i64, is_alone: bool },
}

/// What became of a try.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Handled,
    /// It was handled or recorded before, or there is nothing to be done.
    Duplicate,
    Dead,
    Parked,
    /// After a pause; `tries` have failed.
    TryAgain {
        tries: u32,
        error: String,
    },
    /// The partition has another owner.
    FencedOff,
}

/// Why the work inside a transaction has stopped.
enum Stop {
    FencedOff,
    AlreadyRecorded,
    SequenceIsThere,
    NotItsTurn,
    Failed(Failure),
}

const ADMIT: &str = "SELECT p.fence, coalesce(s.state, ''), (d.message_id IS NOT NULL)::int
    FROM onceward_parts AS p
    LEFT JOIN onceward_sequences AS s ON s.consumer = $3 AND s.ordering_key = $4
    LEFT JOIN onceward_dead_letters AS d ON d.consumer = $3 AND d.message_id = $5
    WHERE p.flow = $1 AND p.part = $2::bigint FOR KEY SHARE OF p";
const LOCK_SEQUENCE: &str =
    "SELECT state FROM onceward_sequences WHERE consumer = $1 AND ordering_key = $2 FOR UPDATE";
const FIRST: &str = "SELECT min(number) FROM onceward_dead_letters WHERE consumer = $1 AND ordering_key = $2";
const LOCK_ALONE: &str = "SELECT number FROM onceward_dead_letters
    WHERE consumer = $1 AND message_id = $2 AND state = 'retry' FOR UPDATE";
const REMOVE: &str = "DELETE FROM onceward_dead_letters WHERE consumer = $1 AND message_id = $2";
const CLEAR: &str =
    "DELETE FROM onceward_sequences WHERE consumer = $1 AND ordering_key = $2 AND NOT EXISTS (
    SELECT 1 FROM onceward_dead_letters WHERE consumer = $1 AND ordering_key = $2)";
const FORGET_TRIES: &str = "DELETE FROM onceward_tries WHERE consumer = $1 AND message_id = $2";

/// One try of one message by one consumer.
pub(super) struct Effect<'a, T, H> {
    pub(super) consumer: &'a Consumer<T>,
    pub(super) flow: &'a str,
    pub(super) handler: &'a H,
    pub(super) item: &'a Item,
}

impl<T, H, W> Effect<'_, T, H>
where
    T: Transactions,
    T::Tx: SqlTransaction,
    H: Fn(Received, T::Tx) -> W,
    W: Future<Output = Result<(), Failure>>,
{
    /// Tries the message. An error of the database is no fault of the message, and charges no try.
    pub(super) async fn run(&self) -> End {
        match self.try_run().await {
            Ok(end) => end,
            Err(error) => End::TryAgain { tries: self.item.tries, error: error.to_string() },
        }
    }

    async fn try_run(&self) -> Result<End> {
        let id = Id::new(self.consumer.source.name(), &self.consumer.name, self.item.message.id())?;
        if let Some(fault) = &self.item.fault {
            return self.bury(0, fault).await;
        }
        if self.item.is_suspect && !self.item.was_begun {
            // What is done needs no mark.
            let receipt = self.database().onceward.receipt(&id).await?;
            if receipt.is_some_and(|receipt| receipt.status.state() == State::Done) {
                return Ok(End::Duplicate);
            }
            let started =
                self.database().tables.mark_started(&self.consumer.name, self.item.message.id()).await?;
            if started >= DEATHS_MAX {
                return self.bury(started, &format!("it ended its process {started} times")).await;
            }
        }
        let stop = Mutex::new(None);
        let mut content = self.item.message.topic().as_bytes().to_vec();
        content.push(0);
        content.extend_from_slice(self.item.message.payload());
        let ask = Ask::new(id, Fingerprint::of(&content), self.consumer.options.policy.clone());
        let work = async |_: Lease, tx: T::Tx| match self.work(tx).await {
            Ok(()) => Ok(Outcome::succeeded("")),
            Err(Interrupted::Database(error)) => Err(Stopped::from(error)),
            Err(Interrupted::Stop(why)) => {
                let stopped = match &why {
                    // The error itself, so that a deadlock is recognised and repeated.
                    Stop::Failed(failure) => Stopped::before_effect(Cause(failure.error().clone())),
                    _ => Stopped::unknown("the message is not handled now"),
                };
                *stop.lock().expect("no panic inside") = Some(why);
                Err(stopped)
            }
        };
        let answer = self.database().onceward.transact(&self.database().transactions, ask, work).await;
        let stop = stop.into_inner().expect("no panic inside");
        match (answer, stop) {
            (Ok(answer), _) => self.answered(answer).await,
            (Err(error), Some(stop)) if error.kind() == ErrorKind::Stopped => self.stopped(stop).await,
            (Err(error), _) => Err(error),
        }
    }

    /// Inside the transaction: is it ours to handle, and is it its turn? Then the handler.
    async fn work(&self, tx: T::Tx) -> Result<(), Interrupted> {
        let (consumer, message) = (&*self.consumer.name, &*self.item.message);
        let key = message.ordering_key().unwrap_or_default();
        let (of_key, of_message) =
            ([Value::Text(consumer), Value::Text(key)], [Value::Text(consumer), Value::Text(message.id())]);
        let mut ours = tx.clone();
        let values = [
            Value::Text(self.flow),
            Value::Int(Some(self.item.part.into())),
            Value::Text(consumer),
            Value::Text(key),
            Value::Text(message.id()),
        ];
        let admitted = ours.fetch(ADMIT, &values).await?;
        let (sequence, is_recorded) = match admitted.as_deref() {
            Some([Cell::Int(fence), Cell::Text(sequence), Cell::Int(recorded)])
                if *fence == self.item.fence =>
            {
                (sequence.as_str(), *recorded != 0)
            }
            _ => return Err(Stop::FencedOff.into()),
        };
        match self.item.origin {
            Origin::Source { .. } if is_recorded => return Err(Stop::AlreadyRecorded.into()),
            Origin::Source { .. } if !sequence.is_empty() => return Err(Stop::SequenceIsThere.into()),
            Origin::Source { .. } => {}
            Origin::DeadLetter { is_alone: true, .. } => {
                if ours.fetch(LOCK_ALONE, &of_message).await?.is_none() {
                    return Err(Stop::NotItsTurn.into());
                }
            }
            Origin::DeadLetter { number, is_alone: false } => {
                let state = ours.fetch(LOCK_SEQUENCE, &of_key).await?;
                let is_draining =
                    matches!(state.as_deref(), Some([Cell::Text(state)]) if state == "draining");
                let first = if is_draining { ours.fetch(FIRST, &of_key).await? } else { None };
                if first.as_deref() != Some(&[Cell::Int(number)]) {
                    return Err(Stop::NotItsTurn.into());
                }
            }
        }
        let received = Received { message: self.item.message.clone(), tries: self.item.tries };
        match AssertUnwindSafe((self.handler)(received, tx)).catch_unwind().await {
            Ok(handled) => handled.map_err(Stop::Failed)?,
            Err(_) => return Err(Stop::Failed(Failure::transient("the handler panicked")).into()),
        }
        if let Origin::DeadLetter { .. } = self.item.origin {
            ours.fetch(REMOVE, &of_message).await?;
            ours.fetch(CLEAR, &of_key).await?;
        }
        if self.item.tries > 0 || self.item.is_suspect {
            ours.fetch(FORGET_TRIES, &of_message).await?;
        }
        Ok(())
    }

    async fn answered(&self, answer: Answer) -> Result<End> {
        match answer {
            Answer::Completed(completed) if !completed.replayed => Ok(End::Handled),
            Answer::Refused(Refusal::InProgress { .. }) => {
                let error = "another process is handling it".to_owned();
                Ok(End::TryAgain { tries: self.item.tries, error })
            }
            Answer::Refused(Refusal::KeyReused) => {
                self.bury(
                    self.item.tries,
                    "another message with the same id and other content was handled before",
                )
                .await
            }
            Answer::Refused(Refusal::OutcomeUnknown) => {
                self.bury(self.item.tries, "the outcome of its receipt is unknown; settle it").await
            }
            // It is done, discarded or past its retention.
            Answer::Completed(_) | Answer::Refused(_) => {
                if let Origin::DeadLetter { .. } = self.item.origin {
                    self.database()
                        .tables
                        .remove_dead_letter(&self.consumer.name, self.item.message.id())
                        .await?;
                }
                Ok(End::Duplicate)
            }
        }
    }

    /// The transaction was rolled back.
    async fn stopped(&self, stop: Stop) -> Result<End> {
        let tables = &self.database().tables;
        match stop {
            Stop::FencedOff => Ok(End::FencedOff),
            Stop::AlreadyRecorded | Stop::NotItsTurn => Ok(End::Duplicate),
            Stop::SequenceIsThere => {
                match tables.append(self.subject(), self.consumer.options.parked_max).await? {
                    Recorded::Yes => Ok(End::Parked),
                    Recorded::FencedOff => Ok(End::FencedOff),
                    Recorded::Clear => {
                        Err(Error::new(ErrorKind::Conflict, "its sequence has just become clear"))
                    }
                    Recorded::Full => Err(Error::new(
                        ErrorKind::Full,
                        "too many messages wait behind a dead letter; the partition waits until it is retried or discarded",
                    )),
                }
            }
            Stop::Failed(failure) => self.failed(&failure).await,
        }
    }

    async fn failed(&self, failure: &Failure) -> Result<End> {
        let (tables, options) = (&self.database().tables, &self.consumer.options);
        let error = shortened(&failure.to_string());
        let (consumer, id) = (&*self.consumer.name, self.item.message.id());
        let tries = match self.item.origin {
            Origin::Source { .. } => tables.count_failed_try(consumer, id, &error).await?,
            Origin::DeadLetter { .. } => tables.count_failed_retry(consumer, id, &error).await?,
        };
        match after_failure(failure.is_permanent(), tries, options.tries_max, options.on_dead) {
            AfterFailure::TryAgain => Ok(End::TryAgain { tries, error }),
            AfterFailure::Bury => self.bury(tries, &error).await,
        }
    }

    async fn bury(&self, tries: u32, error: &str) -> Result<End> {
        let parks = match self.item.origin {
            Origin::Source { .. } => self.consumer.options.on_dead != OnDead::Skip,
            Origin::DeadLetter { is_alone, .. } => !is_alone,
        };
        Ok(match self.database().tables.bury(self.subject(), tries, &shortened(error), parks).await? {
            Recorded::FencedOff => End::FencedOff,
            _ => End::Dead,
        })
    }

    fn subject(&self) -> Subject<'_> {
        let Item { part, fence, message, .. } = self.item;
        Subject { flow: self.flow, consumer: &self.consumer.name, part: *part, fence: *fence, message }
    }

    fn database(&self) -> &ConsumerDatabase<T> {
        &self.consumer.database
    }
}

/// What interrupted the work inside a transaction.
enum Interrupted {
    Database(Error),
    Stop(Stop),
}

impl From<Error> for Interrupted {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl From<Stop> for Interrupted {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// The error of a handler, as the cause of an error.
#[derive(Debug)]
struct Cause(Arc<dyn std::error::Error + Send + Sync>);

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Cause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

/// PostgreSQL takes no zero byte in a text.
fn shortened(error: &str) -> String {
    let end = (0..=error.len().min(ERROR_BYTES_MAX)).rev().find(|end| error.is_char_boundary(*end));
    error[..end.unwrap_or(0)].replace('\0', "\u{fffd}")
}
