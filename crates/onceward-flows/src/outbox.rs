//! The transactional outbox: messages are written in the transaction that they tell about, so that they exist if and
//! only if it commits.
//!
//! # Why the order within an ordering key is the commit order
//!
//! A number that is drawn at the insert is no order of commits: of two open transactions the one with the higher number
//! may commit first, be read, and be published before the other one exists for any reader. So a transaction that adds
//! messages first locks their lanes, then draws the numbers, and keeps the locks until it ends.
//!
//! 1. *Numbers grow in lock order.* A number is drawn after the lock was granted.
//! 2. *A lock is released after its transaction has become visible.*
//! 3. So of two transactions in one lane the second one draws higher numbers, and a reader that sees a row of the second
//!    one sees all rows of the first one. Nothing can appear below a number that a reader has seen in that lane. A reader
//!    may go on behind the last number that it has seen, lane by lane.
//!
//! **PostgreSQL.** The lock is an advisory one that ends with the transaction; the number comes from a sequence without a
//! cache per session, for rows that depend on the answer of the lock (`outbox/postgres.rs`). A transaction ends in this order: the commit
//! record is made durable (and confirmed by synchronous standbys), the transaction leaves the list of running ones (from
//! then on every new snapshot sees it), its locks are released. (`CommitTransaction` in `xact.c`.) `PREPARE TRANSACTION`
//! keeps locks and rows alike.
//!
//! **MySQL and MariaDB.** Each lane has a row with its last number. Counting it up locks the row and draws the number at
//! once; an `UPDATE` reads what was committed last, also under REPEATABLE READ, and the transaction sees its own change when
//! it inserts. `InnoDB` ends a transaction in memory in this order: it leaves the list that read views are made of, then its
//! locks are released (`trx_t::commit_in_memory` in MariaDB, `trx_release_impl_and_expl_locks` in MySQL). Readers use READ
//! COMMITTED, so each of their statements has a view of its own. They must be connected to the server that is written to: a
//! replica, or another node of a cluster, applies commits on its own terms.
//!
//! **SQLite.** A file has one writer, from its first write to the end of its commit, which makes it visible. Numbers are
//! drawn inside, and `AUTOINCREMENT` gives none twice.
//!
//! A savepoint that is rolled back takes the rows with it. The lock may go, too (PostgreSQL; `InnoDB` if the transaction had
//! done nothing before), or stay to the end: both are sound, because there are no rows left that it protected.
//!
//! All lanes of one call are locked in ascending order, so calls cannot deadlock with each other. Two calls in one
//! transaction can; the database then undoes one of the transactions, and it is worth repeating.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod signal;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::future::Future;
use std::sync::{Arc, Mutex};

use onceward::{Answer, Ask, Error, ErrorKind, Lease, Onceward, Outcome, Result, Stopped, Transactions};
use onceward_stores::sql::SqlTransaction;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use onceward_stores::sql::Value;

use crate::lane::lane_of;
use crate::message::Message;
use crate::statements::not_in_this_build;
pub(crate) use signal::AddedLanes;
use signal::Signal;

/// Most messages of one call.
pub const MESSAGES_MAX: usize = 1_000;

/// An outbox: the table `onceward_outbox` of the database that the transaction is in. Cheap to clone; clones share the
/// signal that wakes the relays of this process.
#[derive(Clone, Debug)]
pub struct Outbox {
    signal: Signal,
}

/// Wakes the relays of this process. Fire it after the commit; without it they find the messages at their next poll.
#[derive(Debug)]
#[must_use = "call `fire` after the commit, or the relay waits for its next poll"]
pub struct Wake {
    signal: Signal,
    lanes: Vec<u32>,
}

impl Wake {
    /// Wakes the relays.
    pub fn fire(self) {
        self.signal.added(&self.lanes);
    }
}

impl Default for Outbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Outbox {
    /// An outbox. The same one must be given to the relay of this process, if there is one.
    pub fn new() -> Self {
        Self { signal: Signal::default() }
    }

    /// Adds messages to a transaction: they exist when it commits. Make this its last statement, because other
    /// transactions that add messages of the same lanes wait until it ends. After an error, roll back.
    ///
    /// Works with every transaction that receipts can join; see `onceward_stores::sql::SqlTransaction`.
    pub async fn add_all<T: SqlTransaction>(
        &self,
        tx: &mut T,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<Wake> {
        let messages: Vec<Message> = messages.into_iter().collect();
        if messages.len() > MESSAGES_MAX {
            let detail =
                format!("{} messages in one call; at most {MESSAGES_MAX} are allowed", messages.len());
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        for message in &messages {
            message.check()?;
        }
        let mut lanes: Vec<u32> = messages.iter().map(lane_of).collect();
        lanes.sort_unstable();
        lanes.dedup();
        if !messages.is_empty() {
            add(tx, &lanes, &messages).await?;
        }
        Ok(Wake { signal: self.signal.clone(), lanes })
    }

    /// Like [`Onceward::transact`], with a place for messages: those that the work adds are written as the last statement
    /// of its transaction, and the relays of this process are woken after the commit. A duplicate adds nothing.
    pub async fn transact<T, F, W>(
        &self,
        onceward: &Onceward,
        transactions: &T,
        ask: Ask,
        mut work: F,
    ) -> Result<Answer>
    where
        T: Transactions,
        T::Tx: SqlTransaction,
        F: FnMut(Lease, T::Tx, Messages) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        // Of the last execution: after a deadlock there is another one.
        let wake = Mutex::new(None);
        let wake = &wake;
        let answer = onceward
            .transact(transactions, ask, |lease, tx| {
                let messages = Messages::default();
                // The work begins when it is polled, as it would without us.
                let working = work(lease, tx.clone(), messages.clone());
                let mut tx = tx;
                async move {
                    let outcome = working.await?;
                    // The relays are woken after the commit, which is not here.
                    let added = self.add_all(&mut tx, messages.take()).await?;
                    *wake.lock().expect("no panic inside") = Some(added);
                    Ok(outcome)
                }
            })
            .await?;
        if let Answer::Completed(completed) = &answer
            && !completed.replayed
            && let Some(wake) = wake.lock().expect("no panic inside").take()
        {
            wake.fire();
        }
        Ok(answer)
    }

    /// Wakes the relays of this process, as [`Wake::fire`] does: after the commit of messages whose [`Wake`] could not be
    /// carried out of the place where they were added, for example of an effect of a state machine.
    pub fn wake_relays(&self) {
        self.signal.added_somewhere();
    }

    /// Hears of each [`Wake`] that is fired.
    pub(crate) fn listen(&self) -> AddedLanes {
        self.signal.listen()
    }
}

/// The messages that the work of [`Outbox::transact`] adds, in their order.
#[derive(Clone, Debug, Default)]
pub struct Messages(Arc<Mutex<Vec<Message>>>);

impl Messages {
    /// Adds a message.
    pub fn add(&self, message: Message) {
        self.0.lock().expect("no panic inside").push(message);
    }

    fn take(&self) -> Vec<Message> {
        std::mem::take(&mut self.0.lock().expect("no panic inside"))
    }
}

/// The values of a row, in the order of its columns: lane, id, topic, ordering key, headers, payload.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn values<'a>(message: &'a Message, headers: &'a str) -> [Value<'a>; 6] {
    [
        Value::Int(Some(i64::from(lane_of(message)))),
        Value::Text(message.id()),
        Value::Text(message.topic()),
        // No text is no ordering key: an ordering key is not empty.
        Value::Text(message.ordering_key().unwrap_or_default()),
        Value::Text(headers),
        Value::Bytes(message.payload()),
    ]
}

async fn add<T: SqlTransaction>(tx: &mut T, lanes: &[u32], messages: &[Message]) -> Result<()> {
    match tx.dialect() {
        #[cfg(feature = "mysql")]
        onceward_stores::sql::Dialect::MySql => mysql::add(tx, lanes, messages).await,
        #[cfg(feature = "postgres")]
        onceward_stores::sql::Dialect::Postgres => postgres::add(tx, lanes, messages).await,
        #[cfg(feature = "sqlite")]
        onceward_stores::sql::Dialect::Sqlite => sqlite::add(tx, messages).await,
        #[allow(unreachable_patterns, reason = "a build may have all dialects")]
        other => {
            let _ = (lanes, messages);
            Err(not_in_this_build(other))
        }
    }
}
