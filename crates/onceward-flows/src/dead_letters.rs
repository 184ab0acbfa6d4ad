//! Dead letters: messages that a consumer has given up, and those that wait behind them. Nothing removes them by itself.

use std::time::Duration;

use onceward::{Error, ErrorKind, Id, Onceward, Policy, Result};

use crate::message::Message;
use crate::postgres::FlowTables;

/// What is to become of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeadLetterState {
    /// It was given up.
    Dead,
    /// It waits behind a dead one of its ordering key.
    Behind,
    /// It will be tried again.
    Retry,
}

impl DeadLetterState {
    /// The name, as it is in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Behind => "behind",
            Self::Retry => "retry",
        }
    }

    pub(crate) fn parse(name: &str) -> Result<Self> {
        let all = [Self::Dead, Self::Behind, Self::Retry];
        let damaged =
            || Error::new(ErrorKind::Damaged, "a dead letter has a state that this version does not know");
        all.into_iter().find(|state| state.name() == name).ok_or_else(damaged)
    }
}

/// A message that was given up, or that waits behind one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The message.
    pub message: Message,
    /// Its place: within an ordering key, the order in which the messages arrived.
    pub number: i64,
    /// What is to become of it.
    pub state: DeadLetterState,
    /// How often it was tried.
    pub tries: u32,
    /// Why the last try failed.
    pub error: String,
    /// How long ago it failed for the first time.
    pub first_failed: Duration,
    /// How long ago it failed for the last time.
    pub last_failed: Duration,
    pub(crate) part: u32,
}

/// Which dead letters; everything that is set must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetterFilter {
    /// Those with this message id.
    pub message_id: Option<String>,
    /// Those with this topic.
    pub topic: Option<String>,
    /// Those with this ordering key.
    pub ordering_key: Option<String>,
    /// Those whose error contains this text.
    pub error: Option<String>,
    /// Those in this state.
    pub state: Option<DeadLetterState>,
    /// Those that failed for the last time at least this long ago.
    pub older_than: Duration,
}

impl DeadLetterFilter {
    /// Only those with this topic.
    pub fn with_topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    /// Only those with this ordering key.
    pub fn with_ordering_key(mut self, key: impl Into<String>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// Only those whose error contains this text.
    pub fn with_error(mut self, error: impl Into<String>) -> Self {
        self.error = Some(error.into());
        self
    }

    /// Only those in this state.
    pub fn with_state(mut self, state: DeadLetterState) -> Self {
        self.state = Some(state);
        self
    }

    /// Only those that failed for the last time at least this long ago.
    pub fn with_older_than(mut self, age: Duration) -> Self {
        self.older_than = age;
        self
    }
}

/// The dead letters of one consumer.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    tables: FlowTables,
    onceward: Onceward,
    source: String,
    consumer: String,
}

impl DeadLetters {
    /// Those of a consumer. `onceward` has the receipts of the consumer, and `source` is the name of its source.
    pub fn new(tables: FlowTables, onceward: Onceward, source: &str, consumer: &str) -> Self {
        Self { tables, onceward, source: source.to_owned(), consumer: consumer.to_owned() }
    }

    /// A page of them, in their order, behind the number `after`; 0 is the start.
    pub async fn list(&self, filter: &DeadLetterFilter, after: i64, limit: u32) -> Result<Vec<DeadLetter>> {
        self.tables.list_dead_letters(&self.consumer, filter, after, limit.into()).await
    }

    /// Has one tried again, and after it all that wait behind it, in their order. The consumer does it. Doing this twice
    /// is the same as once. Returns whether it is there; fails if it waits behind another one.
    pub async fn retry(&self, message_id: &str) -> Result<bool> {
        self.tables.retry_dead_letter(&self.consumer, message_id).await
    }

    /// Has all that match tried again, at most `pace` in a second, and returns how many. For the time after a fix.
    pub async fn retry_all(&self, filter: &DeadLetterFilter, pace: u32) -> Result<u64> {
        let filter = filter.clone().with_state(DeadLetterState::Dead);
        let (mut after, mut count) = (0, 0);
        let pause = Duration::from_secs(1) / pace.max(1);
        loop {
            let letters = self.list(&filter, after, 100).await?;
            let Some(last) = letters.last() else { return Ok(count) };
            after = last.number;
            for letter in letters {
                count += u64::from(self.retry(letter.message.id()).await?);
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Discards one: it will not be handled, also if it is delivered again within `policy`'s retention. Those behind it
    /// stay as they are. Returns whether it was there.
    pub async fn discard(&self, message_id: &str, policy: &Policy) -> Result<bool> {
        let id = Id::new(&self.source, &self.consumer, message_id)?;
        // First the receipt: a copy that arrives in between is then refused and not handled.
        self.onceward.close(&id, policy).await?;
        self.tables.remove_dead_letter(&self.consumer, message_id).await
    }
}
