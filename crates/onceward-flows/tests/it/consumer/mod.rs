//! Consumers: every message has one effect, in the order of its key, whatever fails.

mod arrivals;
mod batches;
mod dead_letters;
mod handling;
mod log;
mod mixed_up;
mod poison;
mod poison_process;
mod sharing;
mod versions;

use std::sync::Arc;
use std::time::Duration;

use onceward::{Backoff, Onceward};
use onceward_flows::{
    Consumer, ConsumerDatabase, ConsumerOptions, Failure, Message, Outbox, OutboxSource, Received, Source,
};
use onceward_stores::sql::Options;
use onceward_stores::sql::postgres::{PostgresStore, PostgresTransactions, PostgresTx};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::Database;

/// A stock service: its database, and its consumer of orders.
pub(crate) struct Stock {
    pub(crate) database: Database,
    pub(crate) parts: ConsumerDatabase<PostgresTransactions>,
    pub(crate) outbox: Outbox,
}

impl Stock {
    pub(crate) async fn fresh() -> Option<Self> {
        let database = Database::fresh().await?;
        database.sql("CREATE TABLE effects (number bigserial, key text, payload text, id text)");
        let parts = consumer_database(&database.url(), &database.tables).await.unwrap();
        Some(Self { database, parts, outbox: Outbox::new() })
    }

    /// A consumer of the outbox in the same database.
    pub(crate) fn consumer(&self) -> Consumer<PostgresTransactions> {
        self.consumer_of(OutboxSource::new(self.database.tables.clone(), &self.outbox, 4))
    }

    pub(crate) fn consumer_of(&self, source: impl Source + 'static) -> Consumer<PostgresTransactions> {
        Consumer::new("stock", source, self.parts.clone()).with_options(options())
    }

    pub(crate) async fn commit(&self, messages: impl IntoIterator<Item = Message>) {
        let mut client = self.database.client().await;
        let mut tx = client.transaction().await.unwrap();
        let wake = self.outbox.add_all(&mut tx, messages).await.unwrap();
        tx.commit().await.unwrap();
        wake.fire();
    }

    /// The payloads of a key, in the order of their effects.
    pub(crate) fn effects(&self, key: &str) -> String {
        self.database.sql(&format!(
            "SELECT coalesce(string_agg(payload, ' ' ORDER BY number), '') FROM effects WHERE key = '{key}'"
        ))
    }

    pub(crate) async fn until_effects(&self, key: &str, expected: &str) {
        while self.effects(key) != expected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn until(&self, sql: &str, expected: &str) {
        while self.database.sql(sql) != expected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

pub(crate) async fn consumer_database(
    url: &str,
    tables: &onceward_flows::postgres::FlowTables,
) -> onceward::Result<ConsumerDatabase<PostgresTransactions>> {
    let store = PostgresStore::open(url, Options::default()).await?;
    Ok(ConsumerDatabase::new(
        Onceward::new(Arc::new(store))?,
        PostgresTransactions::open(url, 8)?,
        tables.clone(),
    ))
}

pub(crate) fn options() -> ConsumerOptions {
    let mut options = ConsumerOptions::default();
    options.backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(50));
    // Longer than a busy machine stops a process, so that no lease ends unless a test wants it.
    options.lease = Duration::from_secs(10);
    options.retry_poll = Duration::from_millis(50);
    options.tries_max = 3;
    options
}

/// For tests that wait for the lease of a process that is gone.
pub(crate) fn short_lease() -> ConsumerOptions {
    let mut options = options();
    options.lease = Duration::from_millis(900);
    options
}

/// The effect: a row, without any protection against a second one.
pub(crate) async fn note(received: &Received, tx: &PostgresTx) -> Result<(), Failure> {
    let message = &received.message;
    let payload = String::from_utf8_lossy(message.payload()).into_owned();
    let note = "INSERT INTO effects (key, payload, id) VALUES ($1, $2, $3)";
    tx.execute(note, &[&message.ordering_key().unwrap_or("none"), &payload, &message.id()]).await?;
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "numbers and texts are passed alike")]
pub(crate) fn order(key: &str, text: impl ToString) -> Message {
    Message::new("orders.placed", text.to_string()).with_ordering_key(key)
}

/// A consumer in a task, until it is stopped.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    /// With a handler that notes every message.
    pub(crate) fn start(consumer: &Consumer<PostgresTransactions>) -> Self {
        Self::start_with(consumer, async |received: Received, tx: PostgresTx| note(&received, &tx).await)
    }

    pub(crate) fn start_with<H, W>(consumer: &Consumer<PostgresTransactions>, handler: H) -> Self
    where
        H: Fn(Received, PostgresTx) -> W + 'static,
        W: Future<Output = Result<(), Failure>> + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        let consumer = consumer.clone();
        // The effects of a consumer need not be `Send`, so neither is its future.
        let task = tokio::task::spawn_local(async move {
            consumer.handle_until(async { drop(stopped.await) }, handler).await.unwrap();
        });
        Self { stop, task }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }

    /// As if the process ended without warning.
    pub(crate) async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Runs a test with tasks that are not `Send`.
pub(crate) async fn locally(test: impl Future<Output = ()>) {
    tokio::task::LocalSet::new().run_until(test).await;
}
