//! One try of one message: its transaction, and what is recorded if it fails.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use onceward::{Answer, Error, ErrorKind, Id, Lease, Outcome, Refusal, Result, State, Stopped};
use onceward_stores::sql::{Cell, SqlTransaction, SqlTransactions, Value};

use super::admission::AdmittingTransactions;
use super::failure::{AfterFailure, after_failure};
use super::{Consumer, ConsumerDatabase, Failure, OnDead, Received};
use crate::dead_letters::DeadLetterFilter;
use crate::lane::lane_of;
use crate::message::Message;
use crate::statements::{Statements, statements, text};
use crate::tables::{Recorded, Subject};

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
    /// The previous owner of the partition ended without warning, perhaps because of this message: mark it first.
    pub(super) is_suspect: bool,
    /// It was tried in this process, which is still there.
    pub(super) was_begun: bool,
    /// Tries that have failed.
    pub(super) tries: u32,
}

impl Item {
    /// Whether it may be tried in one transaction with others: nothing is known of it but that it has arrived.
    pub(super) fn fits_in_batch(&self) -> bool {
        let is_arrival = matches!(self.origin, Origin::Source { .. });
        is_arrival && self.fault.is_none() && !self.is_suspect && !self.was_begun && self.tries == 0
    }

    /// Whether its try is marked before it begins.
    pub(super) fn marks(&self) -> bool {
        self.is_suspect && !self.was_begun && self.fault.is_none()
    }
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
    /// The same, and later messages of its ordering key go ahead.
    Early {
        tries: u32,
        error: String,
    },
    /// A dead letter that is early is now the last one of its sequence.
    SetBehind,
    /// The partition has another owner.
    FencedOff,
    /// It was in a batch and is to be tried by itself, at once.
    Alone,
}

/// Why the work inside a transaction has stopped.
enum Stop {
    FencedOff,
    AlreadyRecorded,
    SequenceIsThere,
    NotItsTurn,
    Failed(Failure),
}

/// One try of one message by one consumer.
pub(super) struct Effect<'a, T, H> {
    pub(super) consumer: &'a Consumer<T>,
    pub(super) flow: &'a str,
    pub(super) handler: &'a H,
    pub(super) item: &'a Item,
}

impl<T, H, W> Effect<'_, T, H>
where
    T: SqlTransactions,
    H: Fn(Vec<Received>, T::Tx) -> W,
    W: Future<Output = Result<(), Failure>>,
{
    /// Tries the message. An error of the database is no fault of the message, and charges no try.
    pub(super) async fn run(&self) -> End {
        let is_marked = AtomicBool::new(false);
        let end = match self.try_run(&is_marked).await {
            Ok(end) => end,
            Err(error) => End::TryAgain { tries: self.item.tries, error: error.to_string() },
        };
        // This process is still there, so the message has not ended it. (With an effect, the mark is gone.)
        if is_marked.into_inner()
            && end != End::Handled
            && let Err(error) =
                self.database().tables.unmark_started(&self.consumer.scope, self.item.message.id()).await
        {
            tracing::warn!(%error, "the mark of a message was not taken back");
        }
        end
    }

    async fn try_run(&self, is_marked: &AtomicBool) -> Result<End> {
        let id = self.consumer.id_of(&self.item.message)?;
        if let Some(fault) = &self.item.fault {
            return self.bury(self.item.tries, fault).await;
        }
        if self.item.marks() {
            // What is done needs no mark.
            let receipt = self.database().onceward.receipt(&id).await?;
            if receipt.is_some_and(|receipt| receipt.status.state() == State::Done) {
                return Ok(End::Duplicate);
            }
            let started =
                self.database().tables.mark_started(&self.consumer.scope, self.item.message.id()).await?;
            is_marked.store(true, Ordering::Relaxed);
            if started >= DEATHS_MAX {
                return self.bury(started, &format!("it ended its process {started} times")).await;
            }
        }
        let stop = Mutex::new(None);
        let ask = self.consumer.ask(id, &self.item.message);
        let ConsumerDatabase { onceward, transactions, tables, .. } = self.database();
        let values = [
            Value::Text(self.flow),
            Value::Int(Some(self.item.part.into())),
            Value::Text(&self.consumer.scope),
            Value::Text(self.item.message.ordering_key().unwrap_or_default()),
            Value::Text(self.item.message.id()),
        ];
        let transactions = AdmittingTransactions::new(transactions, &tables.statements().admit, &values);
        let work = async |_: Lease, tx: T::Tx| match self.work(tx, transactions.take_admitted()).await {
            Ok(()) => Ok(()),
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
        // Every message has the same outcome, so its receipt need not be claimed before and completed after.
        let answer = onceward.transact_with_outcome(&transactions, ask, Outcome::succeeded(""), work).await;
        let stop = stop.into_inner().expect("no panic inside");
        match (answer, stop) {
            (Ok(answer), _) => self.answered(answer).await,
            (Err(error), Some(stop)) if error.kind() == ErrorKind::Stopped => self.stopped(stop).await,
            (Err(error), _) => Err(error),
        }
    }

    /// Inside the transaction: is it ours to handle, and is it its turn? Then the handler.
    async fn work(&self, tx: T::Tx, admitted: Option<Vec<Cell>>) -> Result<(), Interrupted> {
        let (consumer, message) = (&*self.consumer.scope, &*self.item.message);
        let key = message.ordering_key().unwrap_or_default();
        let (of_key, of_message) =
            ([Value::Text(consumer), Value::Text(key)], [Value::Text(consumer), Value::Text(message.id())]);
        let mut ours = tx.clone();
        let Statements { lock_sequence, first, lock_alone, remove, clear, forget_tries, .. } =
            statements(tx.dialect())?;
        let (sequence, is_recorded, counted) = match admitted.as_deref() {
            Some([Cell::Int(fence), sequence, Cell::Int(recorded), Cell::Int(counted)])
                if *fence == self.item.fence =>
            {
                (text(sequence).unwrap_or("damaged"), *recorded != 0, u32::try_from(*counted).ok())
            }
            _ => return Err(Stop::FencedOff.into()),
        };
        match self.item.origin {
            Origin::Source { .. } if is_recorded => return Err(Stop::AlreadyRecorded.into()),
            Origin::Source { .. } if !sequence.is_empty() => return Err(Stop::SequenceIsThere.into()),
            Origin::Source { .. } => {}
            Origin::DeadLetter { is_alone: true, .. } => {
                if lock_alone.fetch(&mut ours, &of_message).await?.is_none() {
                    return Err(Stop::NotItsTurn.into());
                }
            }
            Origin::DeadLetter { number, is_alone: false } => {
                let state = lock_sequence.fetch(&mut ours, &of_key).await?;
                let is_draining =
                    matches!(state.as_deref(), Some([state]) if text(state) == Some("draining"));
                let first = if is_draining { first.fetch(&mut ours, &of_key).await? } else { None };
                if first.as_deref() != Some(&[Cell::Int(number)]) {
                    return Err(Stop::NotItsTurn.into());
                }
            }
        }
        let tries = self.item.tries.max(counted.unwrap_or(0));
        let received = Received { message: self.item.message.clone(), tries };
        match AssertUnwindSafe((self.handler)(vec![received], tx)).catch_unwind().await {
            Ok(handled) => handled.map_err(Stop::Failed)?,
            Err(_) => return Err(Stop::Failed(Failure::panicked()).into()),
        }
        if let Origin::DeadLetter { .. } = self.item.origin {
            remove.fetch(&mut ours, &of_message).await?;
            clear.fetch(&mut ours, &of_key).await?;
        }
        if counted.is_some() {
            forget_tries.fetch(&mut ours, &of_message).await?;
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
            Answer::Refused(Refusal::KeyReused) => match self.item.origin {
                Origin::Source { position } => self.bury_under_place(position, "was handled before").await,
                Origin::DeadLetter { .. } => {
                    let error = "another message with the same id and other content was handled before";
                    self.bury(self.item.tries, error).await
                }
            },
            Answer::Refused(Refusal::OutcomeUnknown) => {
                self.bury(self.item.tries, "the outcome of its receipt is unknown; settle it").await
            }
            // It is done, discarded or past its retention.
            Answer::Completed(_) | Answer::Refused(_) => {
                if let Origin::DeadLetter { .. } = self.item.origin {
                    self.database()
                        .tables
                        .remove_dead_letter(&self.consumer.scope, self.item.message.id())
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
            Stop::NotItsTurn => Ok(End::Duplicate),
            Stop::AlreadyRecorded => match (self.recorded().await?, self.item.origin) {
                (Some(false), Origin::Source { position }) => {
                    self.bury_under_place(position, "is a dead letter").await
                }
                (Some(_), _) => Ok(End::Duplicate),
                (None, _) => Err(Error::new(ErrorKind::Conflict, "its dead letter has just gone")),
            },
            Stop::SequenceIsThere => {
                match tables
                    .append(self.subject(&self.item.message), self.consumer.options.parked_max)
                    .await?
                {
                    Recorded::Yes => Ok(End::Parked),
                    Recorded::FencedOff => Ok(End::FencedOff),
                    Recorded::Clear => {
                        Err(Error::new(ErrorKind::Conflict, "its sequence has just become clear"))
                    }
                    Recorded::Full => Err(self.blocked()),
                    Recorded::Taken => Err(taken()),
                }
            }
            Stop::Failed(failure) => self.failed(&failure).await,
        }
    }

    async fn failed(&self, failure: &Failure) -> Result<End> {
        let (tables, options) = (&self.database().tables, &self.consumer.options);
        let error = shortened(&failure.to_string());
        let (consumer, id) = (&*self.consumer.scope, self.item.message.id());
        let tries = match self.item.origin {
            Origin::Source { .. } => tables.count_failed_try(consumer, id, &error).await?,
            Origin::DeadLetter { .. } => tables.count_failed_retry(consumer, id, &error).await?,
        };
        match after_failure(failure.is_permanent(), tries, options.tries_max, options.on_dead) {
            AfterFailure::TryAgain if failure.is_early() => self.early(tries, error).await,
            AfterFailure::TryAgain => Ok(End::TryAgain { tries, error }),
            AfterFailure::Bury => self.bury(tries, &error).await,
        }
    }

    /// What it needs can only be behind it. In a sequence of dead letters nothing can go ahead of the first one, so there
    /// it becomes the last one.
    async fn early(&self, tries: u32, error: String) -> Result<End> {
        if let Origin::DeadLetter { is_alone: false, .. } = self.item.origin {
            let tables = &self.database().tables;
            if tables.set_behind(self.subject(&self.item.message)).await? {
                return Ok(End::SetBehind);
            }
            return Ok(End::TryAgain { tries, error });
        }
        Ok(End::Early { tries, error })
    }

    async fn bury(&self, tries: u32, error: &str) -> Result<End> {
        match self.item.origin {
            Origin::Source { position } => match self.recorded().await? {
                None => self.bury_arrival(&self.item.message, tries, error).await,
                Some(true) => Ok(End::Duplicate),
                Some(false) => self.bury_under_place(position, "is a dead letter").await,
            },
            Origin::DeadLetter { is_alone, .. } => {
                let tables = &self.database().tables;
                let subject = self.subject(&self.item.message);
                match tables.bury_again(subject, tries, &shortened(error), !is_alone).await? {
                    Recorded::FencedOff => Ok(End::FencedOff),
                    _ => Ok(End::Dead),
                }
            }
        }
    }

    /// A message whose id belongs to one with another content: it is kept under its place in the source.
    async fn bury_under_place(&self, position: i64, what: &str) -> Result<End> {
        let (part, message) = (self.item.part, &*self.item.message);
        let place = format!("conflict:{part}:{}:{position}", lane_of(message));
        let id = Id::new(self.consumer.source.name(), &self.consumer.name, &place)?;
        // It comes again after it was retried.
        let receipt = self.database().onceward.receipt(&id).await?;
        if receipt.is_some_and(|receipt| receipt.status.state() == State::Done) {
            return Ok(End::Duplicate);
        }
        let error = format!(
            "another message with the same id, `{}`, and other content {what}; a retry handles this one as `{place}`",
            message.id()
        );
        match self.bury_arrival(&message.clone().with_id(place), self.item.tries, &error).await {
            // It has come before.
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(End::Duplicate),
            ended => ended,
        }
    }

    async fn bury_arrival(&self, message: &Message, tries: u32, error: &str) -> Result<End> {
        let options = &self.consumer.options;
        let parked_max = (options.on_dead != OnDead::Skip).then_some(options.parked_max);
        let subject = self.subject(message);
        match self.database().tables.bury(subject, tries, &shortened(error), parked_max).await? {
            Recorded::FencedOff => Ok(End::FencedOff),
            Recorded::Full => Err(self.blocked()),
            Recorded::Taken => Err(taken()),
            Recorded::Yes | Recorded::Clear => Ok(End::Dead),
        }
    }

    /// Whether there is a dead letter with the id of the message: with the same content, or another.
    async fn recorded(&self) -> Result<Option<bool>> {
        let message_id = Some(self.item.message.id().to_owned());
        let filter = DeadLetterFilter { message_id, ..DeadLetterFilter::default() };
        let found =
            self.database().tables.list_dead_letters(&self.consumer.scope, &filter, 0, 1).await?.pop();
        Ok(found.map(|found| found.message.fingerprint() == self.item.message.fingerprint()))
    }

    fn blocked(&self) -> Error {
        self.consumer.counters.blocked.fetch_add(1, Ordering::Relaxed);
        Error::new(
            ErrorKind::Full,
            "too many messages wait behind a dead letter; the partition waits until it is retried or discarded",
        )
    }

    fn subject<'s>(&'s self, message: &'s Message) -> Subject<'s> {
        let Item { part, fence, .. } = self.item;
        Subject { flow: self.flow, consumer: &self.consumer.scope, part: *part, fence: *fence, message }
    }

    fn database(&self) -> &ConsumerDatabase<T> {
        &self.consumer.database
    }
}

fn taken() -> Error {
    Error::new(ErrorKind::Conflict, "a dead letter with its id has just come")
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
pub(super) struct Cause(pub(super) Arc<dyn std::error::Error + Send + Sync>);

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
