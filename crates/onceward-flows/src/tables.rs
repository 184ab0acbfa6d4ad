//! The tables for messages in a database: outbox, parts, tries, dead letters, versions. One file for each engine has the
//! statements; what is here says what they have in common, and chooses.
//!
//! | | PostgreSQL | MySQL, MariaDB | SQLite |
//! |---|---|---|---|
//! | order of a lane | advisory lock, then a sequence | the row of the lane is counted up | the one writer |
//! | fence of a part | `FOR KEY SHARE` on the part | shared lock on a row apart from the lease | the one writer |
//! | takeover | `FOR UPDATE SKIP LOCKED` | the same | the one writer |

use std::time::Duration;

use onceward::{Error, ErrorKind, Result};
pub use onceward_stores::sql::Migrated;
use onceward_stores::sql::Migrations;
#[cfg(any(feature = "mysql", feature = "postgres"))]
use onceward_stores::sql::named;

use crate::dead_letters::{DeadLetter, DeadLetterFilter};
use crate::message::Message;
#[cfg(feature = "mysql")]
use crate::mysql::MySqlTables;
use crate::parts::{GainedPart, PartRow};
#[cfg(feature = "postgres")]
use crate::postgres::PostgresTables;
#[cfg(feature = "sqlite")]
use crate::sqlite::SqliteTables;
use crate::statements::Statements;

/// Counts of tries, and marks, that nothing has come to for this long are removed.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) const TRIES_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// The tables for messages in one database: outbox, parts, dead letters, versions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FlowTables {
    engine: Engine,
}

/// One for each engine of this build.
#[derive(Clone, Debug)]
enum Engine {
    #[cfg(feature = "mysql")]
    MySql(MySqlTables),
    #[cfg(feature = "postgres")]
    Postgres(PostgresTables),
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteTables),
}

/// Calls the same function of whichever engine it is. Its errors name the server.
macro_rules! of_engine {
    ($self:ident, $tables:ident => $call:expr) => {
        match $self.engine {
            #[cfg(feature = "mysql")]
            Engine::MySql(ref $tables) => $call.await.map_err(|error| named($tables.server(), error)),
            #[cfg(feature = "postgres")]
            Engine::Postgres(ref $tables) => $call.await.map_err(|error| named($tables.server(), error)),
            #[cfg(feature = "sqlite")]
            Engine::Sqlite(ref $tables) => $call.await,
        }
    };
}

/// A message of the outbox, and its place in it.
#[derive(Clone, Debug)]
pub(crate) struct OutboxRow {
    pub(crate) lane: u32,
    pub(crate) position: i64,
    pub(crate) message: Message,
}

/// The contents of an outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backlog {
    /// Committed messages that are not published yet.
    pub messages: u64,
    /// The age of the oldest one.
    pub oldest: Option<Duration>,
}

/// A message of a consumer, and the part under whose fence something is written about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) flow: &'a str,
    pub(crate) consumer: &'a str,
    pub(crate) part: u32,
    pub(crate) fence: i64,
    pub(crate) message: &'a Message,
}

/// What became of a write under a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    Yes,
    /// The part has another owner.
    FencedOff,
    /// There is no sequence to append to any more: the message can be handled.
    Clear,
    /// The sequence has as many messages as are allowed.
    Full,
    /// There is a dead letter with its id, which came at the same time.
    Taken,
}

impl FlowTables {
    /// Opens the database that an address names, with a few connections of its own, and brings the tables up to date.
    pub async fn open(url: &str) -> Result<Self> {
        Self::open_with(url, Migrations::Apply).await
    }

    /// The same, and says whether the tables may be brought up to date.
    pub async fn open_with(url: &str, migrations: Migrations) -> Result<Self> {
        let engine = match url.split_once(':').map_or("", |(scheme, _)| scheme) {
            #[cfg(feature = "mysql")]
            "mysql" => Engine::MySql(MySqlTables::open(url, migrations).await?),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => Engine::Postgres(PostgresTables::open(url, migrations).await?),
            #[cfg(feature = "sqlite")]
            "sqlite" => Engine::Sqlite(SqliteTables::open(&url["sqlite:".len()..], migrations).await?),
            scheme => return Err(unknown(scheme)),
        };
        Ok(Self { engine })
    }

    /// The same over a pool of the caller's own.
    #[cfg(feature = "postgres")]
    pub async fn from_pool(pool: deadpool_postgres::Pool) -> Result<Self> {
        let tables = Self { engine: Engine::Postgres(PostgresTables::from_pool(pool)) };
        tables.migrate().await?;
        Ok(tables)
    }

    /// The statements for transactions of the user in this database.
    pub(crate) fn statements(&self) -> &'static Statements {
        match self.engine {
            #[cfg(feature = "mysql")]
            Engine::MySql(_) => &crate::mysql::STATEMENTS,
            #[cfg(feature = "postgres")]
            Engine::Postgres(_) => &crate::postgres::STATEMENTS,
            #[cfg(feature = "sqlite")]
            Engine::Sqlite(_) => &crate::sqlite::STATEMENTS,
        }
    }

    /// Brings the tables up to date. Takes the right to create tables; without anything to do, it only reads.
    pub async fn migrate(&self) -> Result<Migrated> {
        of_engine!(self, tables => tables.prepare(Migrations::Apply))
    }

    /// How much is waiting to be published. Counts all of it: for people and for gauges, not for every request.
    pub async fn backlog(&self) -> Result<Backlog> {
        of_engine!(self, tables => tables.backlog())
    }

    /// Removes what was published, then reads what is behind the given positions, in this order.
    pub(crate) async fn remove_and_read(
        &self,
        published: &[(u32, i64)],
        after: &[(u32, i64)],
        per_lane: usize,
        limit: usize,
    ) -> Result<Vec<OutboxRow>> {
        of_engine!(self, tables => tables.remove_and_read(published, after, per_lane, limit))
    }

    /// Whether every committed message is published.
    pub(crate) async fn is_drained(&self) -> Result<bool> {
        of_engine!(self, tables => tables.is_drained())
    }

    /// Makes the parts of a flow. Fails if it has another number of them already.
    pub(crate) async fn make_parts(&self, flow: &str, count: u32) -> Result<()> {
        let there = of_engine!(self, tables => tables.make_parts(flow, count))?;
        if there == count {
            return Ok(());
        }
        let detail = format!(
            "`{flow}` was divided into {there} parts and is now opened with {count}; use {there}, or stop all of its \
             processes, let everything be handled, and delete its rows in onceward_parts"
        );
        Err(Error::new(ErrorKind::Invalid, detail))
    }

    /// Says that the process is alive, renews its parts (with their fences and positions), and returns those that are
    /// still its own.
    pub(crate) async fn renew_parts(
        &self,
        flow: &str,
        member: &str,
        lease: Duration,
        held: &[(u32, i64, i64)],
    ) -> Result<Vec<u32>> {
        of_engine!(self, tables => tables.renew_parts(flow, member, lease, held))
    }

    /// The number of processes, and all parts.
    pub(crate) async fn list_parts(&self, flow: &str) -> Result<(usize, Vec<PartRow>)> {
        of_engine!(self, tables => tables.list_parts(flow))
    }

    /// Takes those parts that are free and that no effect of a previous owner has locked.
    pub(crate) async fn take_parts(
        &self,
        flow: &str,
        member: &str,
        lease: Duration,
        parts: &[u32],
    ) -> Result<Vec<GainedPart>> {
        of_engine!(self, tables => tables.take_parts(flow, member, lease, parts))
    }

    /// Gives parts back, with how far they are handled.
    pub(crate) async fn release_parts(
        &self,
        flow: &str,
        member: &str,
        held: &[(u32, i64, i64)],
    ) -> Result<()> {
        if held.is_empty() {
            return Ok(());
        }
        of_engine!(self, tables => tables.release_parts(flow, member, held))
    }

    /// Enters the member, and its flow as the reader of the outbox. Returns the reader that is there, if it is another one
    /// and one of its members lives.
    pub(crate) async fn use_outbox(
        &self,
        flow: &str,
        member: &str,
        lease: Duration,
        reader: &str,
    ) -> Result<Option<String>> {
        of_engine!(self, tables => tables.use_outbox(flow, member, lease, reader))
    }

    pub(crate) async fn remove_member(&self, flow: &str, member: &str) -> Result<()> {
        of_engine!(self, tables => tables.remove_member(flow, member))
    }

    /// Counts a try that has failed, and returns how many there are.
    pub(crate) async fn count_failed_try(
        &self,
        consumer: &str,
        message_id: &str,
        error: &str,
    ) -> Result<u32> {
        of_engine!(self, tables => tables.count_failed_try(consumer, message_id, error))
    }

    /// Marks that a try begins, and returns how many have begun since one has ended.
    pub(crate) async fn mark_started(&self, consumer: &str, message_id: &str) -> Result<u32> {
        of_engine!(self, tables => tables.mark_started(consumer, message_id))
    }

    /// Removes the versions of entities that were not advanced for this long, and returns how many. Nothing does this by
    /// itself: an entity that is forgotten begins again from nothing, so it must be longer than the time in which an old message can come
    /// again, and than any entity rests.
    pub async fn sweep_versions(&self, unchanged_for: Duration) -> Result<u64> {
        of_engine!(self, tables => tables.sweep_versions(unchanged_for))
    }

    /// Removes counts and marks that nothing has come to for a month: their messages are gone from the source.
    pub(crate) async fn sweep_tries(&self) -> Result<u64> {
        of_engine!(self, tables => tables.sweep_tries())
    }

    /// Takes a mark back: the try has ended, and its process has not.
    pub(crate) async fn unmark_started(&self, consumer: &str, message_id: &str) -> Result<()> {
        of_engine!(self, tables => tables.unmark_started(consumer, message_id))
    }

    /// Records a message that has arrived as given up, after `tries` tries. With `parked_max`, later messages of its key
    /// wait behind it; if there is a sequence already, it is appended and changes nothing of its state.
    pub(crate) async fn bury(
        &self,
        subject: Subject<'_>,
        tries: u32,
        error: &str,
        parked_max: Option<usize>,
    ) -> Result<Recorded> {
        of_engine!(self, tables => tables.bury(subject, tries, error, parked_max))
    }

    /// Records that the retry of a dead letter has failed for good. With `parks`, its sequence is parked again.
    pub(crate) async fn bury_again(
        &self,
        subject: Subject<'_>,
        tries: u32,
        error: &str,
        parks: bool,
    ) -> Result<Recorded> {
        of_engine!(self, tables => tables.bury_again(subject, tries, error, parks))
    }

    /// Makes a dead letter the last one of its sequence. Returns whether it was not that before.
    pub(crate) async fn set_behind(&self, subject: Subject<'_>) -> Result<bool> {
        of_engine!(self, tables => tables.set_behind(subject))
    }

    /// Appends a message behind the dead one of its ordering key.
    pub(crate) async fn append(&self, subject: Subject<'_>, parked_max: usize) -> Result<Recorded> {
        of_engine!(self, tables => tables.append(subject, parked_max))
    }

    /// Counts a failed try of a message that is being retried, and returns how many there are.
    pub(crate) async fn count_failed_retry(
        &self,
        consumer: &str,
        message_id: &str,
        error: &str,
    ) -> Result<u32> {
        of_engine!(self, tables => tables.count_failed_retry(consumer, message_id, error))
    }

    /// Messages that are to be retried by the owner of these parts, in their order. The flag: it is retried alone, without
    /// a sequence.
    pub(crate) async fn to_retry(
        &self,
        consumer: &str,
        parts: &[u32],
        limit: i64,
    ) -> Result<Vec<(DeadLetter, bool)>> {
        of_engine!(self, tables => tables.to_retry(consumer, parts, limit))
    }

    /// Removes a dead letter, and the sequence with its last message.
    pub(crate) async fn remove_dead_letter(&self, consumer: &str, message_id: &str) -> Result<bool> {
        of_engine!(self, tables => tables.remove_dead_letter(consumer, message_id))
    }

    /// Has a dead letter tried again, with all that wait behind it. Nothing there: there is no such one; else whether that
    /// has changed anything.
    pub(crate) async fn retry_dead_letter(&self, consumer: &str, message_id: &str) -> Result<Option<bool>> {
        of_engine!(self, tables => tables.retry_dead_letter(consumer, message_id))
    }

    pub(crate) async fn list_dead_letters(
        &self,
        consumer: &str,
        filter: &DeadLetterFilter,
        after: i64,
        limit: i64,
    ) -> Result<Vec<DeadLetter>> {
        of_engine!(self, tables => tables.list_dead_letters(consumer, filter, after, limit))
    }
}

/// Most letters of one sequence that are taken up at a time: a long one leaves turns to others.
pub(crate) const SEQUENCE_RETRIES: i64 = 16;

/// The consumer in the tables: with its source, because two sources may have consumers of the same name.
pub(crate) fn scope(source: &str, consumer: &str) -> String {
    format!("{source}/{consumer}")
}

/// The error if a letter that is not the first of its sequence is to be tried again.
pub(crate) fn waits_behind(first: &str) -> Error {
    Error::new(ErrorKind::Conflict, format!("it waits behind `{first}`; retry or discard that one first"))
}

/// Decides which migrations a database needs. `from` is the last one that it has had, 0 if there are no tables, and
/// nothing if there are tables that are not ours.
pub(crate) fn check_migrations(from: Option<u32>, known: usize, migrations: Migrations) -> Result<Migrated> {
    let known = u32::try_from(known).expect("there are few migrations");
    match from {
        None => Err(Error::new(
            ErrorKind::Foreign,
            "there is a table `onceward_outbox` that was not made by onceward; rename it, or use another database or schema",
        )),
        Some(from) if from > known => Err(Error::new(
            ErrorKind::Foreign,
            format!(
                "the tables for messages are at version {from}, this onceward knows up to {known}; use a newer one"
            ),
        )),
        Some(from) if from < known && migrations == Migrations::Require => Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "the tables for messages are at version {from}, {known} is needed; run `onceward migrate --messages --store URL` first"
            ),
        )),
        Some(from) => Ok(Migrated::new(from, known)),
    }
}

fn unknown(scheme: &str) -> Error {
    let features =
        [("postgres", "postgres"), ("postgresql", "postgres"), ("mysql", "mysql"), ("sqlite", "sqlite")];
    let detail = match features.iter().find(|(name, _)| *name == scheme) {
        Some((_, feature)) => {
            format!("this build has no messages in {scheme}; that is the feature `{feature}`")
        }
        None => {
            "messages are kept in a database; its address begins with postgres:, mysql: or sqlite:".to_owned()
        }
    };
    Error::new(ErrorKind::Invalid, detail)
}
