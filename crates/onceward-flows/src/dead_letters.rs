//! Dead letters: messages that a consumer has given up, and those that wait behind them. Nothing removes them by itself.

use std::collections::HashSet;
use std::time::Duration;

use onceward::{Answer, Ask, Claimed, Error, ErrorKind, Id, Onceward, Outcome, Policy, Result};

use crate::message::Message;
use crate::tables::{FlowTables, scope};

/// The state of a dead letter.
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
    /// The name of the source of its consumer.
    pub source: String,
    /// The consumer that gave it up.
    pub consumer: String,
    /// The message.
    pub message: Message,
    /// Its place: within an ordering key, the order in which the messages arrived.
    pub number: i64,
    /// Its state.
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
    /// Those of all consumers; only for [`FlowTables::dead_letters_of_all`].
    pub(crate) of_all: bool,
}

/// The source and the consumer, from the consumer as it is in the tables. A source has no `/` in its name.
pub(crate) fn whose(scope: &str) -> (String, String) {
    let (source, consumer) = scope.split_once('/').unwrap_or(("", scope));
    (source.to_owned(), consumer.to_owned())
}

impl FlowTables {
    /// A page of the dead letters of all consumers of this database, in their order, behind the number `after`; 0 is the
    /// start. For operators: it reads the whole table, which has no order over consumers.
    pub async fn dead_letters_of_all(
        &self,
        filter: &DeadLetterFilter,
        after: i64,
        limit: u32,
    ) -> Result<Vec<DeadLetter>> {
        let filter = DeadLetterFilter { of_all: true, ..filter.clone() };
        self.list_dead_letters("", &filter, after, limit.into()).await
    }
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

/// What [`DeadLetters::retry_page`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetriedPage {
    /// Those of this page.
    pub matched: u64,
    /// Those of them that are now tried again, each with what waits behind it.
    pub retried: u64,
    /// The place behind this page; nothing there: there are no more.
    pub next: Option<i64>,
}

/// The dead letters of one consumer.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    tables: FlowTables,
    onceward: Onceward,
    source: String,
    consumer: String,
    scope: String,
}

impl DeadLetters {
    /// Those of a consumer. `onceward` has the receipts of the consumer, and `source` is the name of its source.
    pub fn new(tables: FlowTables, onceward: Onceward, source: &str, consumer: &str) -> Self {
        let scope = scope(source, consumer);
        Self { tables, onceward, source: source.to_owned(), consumer: consumer.to_owned(), scope }
    }

    /// A page of them, in their order, behind the number `after`; 0 is the start.
    pub async fn list(&self, filter: &DeadLetterFilter, after: i64, limit: u32) -> Result<Vec<DeadLetter>> {
        self.tables.list_dead_letters(&self.scope, filter, after, limit.into()).await
    }

    /// Retries one, and after it all that wait behind it, in their order. The consumer does it. Doing this twice
    /// is the same as once. Returns whether it is there; fails if it waits behind another one.
    pub async fn retry(&self, message_id: &str) -> Result<bool> {
        Ok(self.tables.retry_dead_letter(&self.scope, message_id).await?.is_some())
    }

    /// Retries all that match, at most `pace` in a second, and returns their number. For the time after a fix. Of an
    /// ordering key the first one is begun with, and the others go with it; also where the one that had failed was
    /// discarded, and those behind it have no error of their own.
    pub async fn retry_all(&self, filter: &DeadLetterFilter, pace: u32) -> Result<u64> {
        let (mut after, mut count, mut begun) = (0, 0, HashSet::new());
        loop {
            let found = self.retry_some(filter, after, 100, pace, &mut begun).await?;
            count += found.retried;
            let Some(next) = found.next else { return Ok(count) };
            after = next;
        }
    }

    /// The same with one page of those that match, behind the number `after`: for callers that cannot wait for all.
    pub async fn retry_page(
        &self,
        filter: &DeadLetterFilter,
        after: i64,
        limit: u32,
        pace: u32,
    ) -> Result<RetriedPage> {
        self.retry_some(filter, after, limit, pace, &mut HashSet::new()).await
    }

    /// `begun` are the ordering keys whose first one was begun with.
    async fn retry_some(
        &self,
        filter: &DeadLetterFilter,
        after: i64,
        limit: u32,
        pace: u32,
        begun: &mut HashSet<String>,
    ) -> Result<RetriedPage> {
        let pause = Duration::from_secs(1) / pace.max(1);
        let letters = self.list(filter, after, limit).await?;
        let mut found = RetriedPage {
            matched: letters.len() as u64,
            retried: 0,
            next: letters.last().map(|last| last.number),
        };
        for letter in &letters {
            let key = letter.message.ordering_key();
            if letter.state == DeadLetterState::Behind && key.is_some_and(|key| begun.contains(key)) {
                continue;
            }
            match self.tables.retry_dead_letter(&self.scope, letter.message.id()).await {
                // One that is to be tried already costs no time.
                Ok(Some(false)) => {
                    begun.extend(key.map(str::to_owned));
                    continue;
                }
                Ok(changed) => {
                    found.retried += u64::from(changed.is_some());
                    begun.extend(key.map(str::to_owned));
                }
                // It waits behind one that goes first, or that does not match.
                Err(error) if error.kind() == ErrorKind::Conflict => continue,
                Err(error) => return Err(error),
            }
            tokio::time::sleep(pause).await;
        }
        Ok(found)
    }

    /// Records one as handled, because its effect was brought about by other means. Copies that are delivered within
    /// `policy`'s retention are then recognised. Those behind it stay as they are. Returns whether it was there; fails if it
    /// is being handled.
    pub async fn settle_done(&self, message_id: &str, policy: &Policy) -> Result<bool> {
        let filter =
            DeadLetterFilter { message_id: Some(message_id.to_owned()), ..DeadLetterFilter::default() };
        let Some(letter) = self.list(&filter, 0, 1).await?.pop() else { return Ok(false) };
        let id = Id::new(&self.source, &self.consumer, message_id)?;
        // First the receipt, as if it had been handled; a copy that arrives in between finds it.
        match self.onceward.claim(Ask::new(id, letter.message.fingerprint(), policy.clone())).await? {
            Claimed::Granted(ticket) => {
                self.onceward.complete(&ticket, Outcome::succeeded("")).await?;
            }
            Claimed::Answered(Answer::Completed(_)) => {}
            Claimed::Answered(other) => {
                let detail = format!("it cannot be settled now: {other:?}");
                return Err(Error::new(ErrorKind::Conflict, detail));
            }
        }
        self.tables.remove_dead_letter(&self.scope, message_id).await
    }

    /// Discards one: it will not be handled, also if it is delivered again within `policy`'s retention. Those behind it
    /// stay as they are. Returns whether it was there.
    pub async fn discard(&self, message_id: &str, policy: &Policy) -> Result<bool> {
        let id = Id::new(&self.source, &self.consumer, message_id)?;
        // First the receipt: a copy that arrives in between is then refused and not handled.
        self.onceward.close(&id, policy).await?;
        self.tables.remove_dead_letter(&self.scope, message_id).await
    }
}
