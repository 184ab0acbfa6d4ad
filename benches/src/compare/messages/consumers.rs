//! Consumers of a log in memory: effect and receipt in one transaction, next to the same effect without any dedup; one by
//! one, and in batches on both sides.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use onceward_flows::{
    Consumer, ConsumerDatabase, ConsumerOptions, Delivery, FlowTables, HandledMessage, Message, Reader,
    Received, Source, SourceFuture,
};
use onceward_stores::sql::postgres::{PostgresTransactions, PostgresTx};
use tokio::runtime::Runtime;

use super::{PAYLOAD, postgres};
use crate::report::{Goal, Row, Unit};
use crate::scale::Scale;
use crate::servers::Postgres;
use crate::turns::Turns;

const CONCURRENCY: usize = 16;
const EFFECT: &str = "INSERT INTO business (account, amount) VALUES ($1, 12)";

/// Messages of one transaction, where there are several.
const BATCH: usize = 32;
/// The effects of a batch as one statement.
const EFFECTS: &str =
    "INSERT INTO business (account, amount) SELECT account, 12 FROM unnest($1::text[]) AS a (account)";

/// How a side writes the effects of the messages of one transaction.
#[derive(Clone, Copy)]
enum Effects {
    /// Each transaction is one message.
    One,
    /// A statement for each of a batch.
    Each,
    /// One statement for a batch.
    Together,
}

impl Effects {
    fn statement(self) -> &'static str {
        match self {
            Self::One | Self::Each => EFFECT,
            Self::Together => EFFECTS,
        }
    }

    /// Messages of one transaction.
    fn messages(self) -> usize {
        match self {
            Self::One => 1,
            Self::Each | Self::Together => BATCH,
        }
    }

    async fn write(
        self,
        client: &tokio_postgres::Client,
        statement: &tokio_postgres::Statement,
        count: usize,
    ) -> Result<(), tokio_postgres::Error> {
        match self {
            Self::One | Self::Each => {
                for _ in 0..count {
                    client.execute(statement, &[&"a"]).await?;
                }
            }
            Self::Together => drop(client.execute(statement, &[&vec!["a"; count]]).await?),
        }
        Ok(())
    }
}

pub(super) fn run(
    runtime: &Runtime,
    server: &Postgres,
    url: &str,
    tables: &FlowTables,
    scale: &Scale,
) -> Vec<Row> {
    let transactions = PostgresTransactions::open(url, CONCURRENCY).unwrap();
    let database =
        ConsumerDatabase::new(runtime.block_on(postgres::open(url)), transactions.clone(), tables.clone());
    let pair = |effects: Effects, count: usize, name: &str| {
        Turns::new(scale.rounds, Unit::PerSecond).after_warm_up().take([
            (&*format!("consumer, {name}"), &mut |round| {
                let rate = runtime.block_on(consume(&database, &format!("{name}{round}"), count, effects));
                server.sql("bench", "TRUNCATE onceward_receipts");
                rate.into()
            }),
            ("without dedup", &mut |_| runtime.block_on(bare(url, count, effects)).into()),
        ])
    };
    let [ours, bare] = pair(Effects::One, scale.calls / 4, "one");
    let [each, each_bare] = pair(Effects::Each, scale.calls, "each");
    let [together, together_bare] = pair(Effects::Together, scale.calls, "together");
    let row = |what: &str, ours, bare| Row::ratio(what, Unit::PerSecond, ours, bare);
    vec![
        row("consumer, effect and receipt, 16 at once / the same effect without dedup", &ours, &bare)
            .goal(Goal::AtLeast(0.6)),
        row(
            "consumer in batches of 32, 16 at once / the same effects without dedup, in batches of 32",
            &each,
            &each_bare,
        )
        .goal(Goal::AtLeast(0.75)),
        row("the same, where a batch is one statement on both sides", &together, &together_bare),
    ]
}

/// Messages per second until all are handled.
async fn consume(
    database: &ConsumerDatabase<PostgresTransactions>,
    name: &str,
    count: usize,
    effects: Effects,
) -> f64 {
    let source = Log { name: name.to_owned(), count };
    let options = ConsumerOptions::default()
        .with_concurrency(CONCURRENCY)
        .with_batch_max(effects.messages())
        .with_partition_messages_max(2 * CONCURRENCY * effects.messages().max(8));
    let consumer = Consumer::new("bench", source, database.clone()).with_options(options);
    let (start, done) = (Instant::now(), Arc::new(tokio::sync::Notify::new()));
    let total = Arc::new(AtomicUsize::new(0));
    let (counts, finished) = (total.clone(), done.clone());
    let handler = move |batch: Vec<Received>, tx: PostgresTx| {
        let (counts, finished) = (counts.clone(), finished.clone());
        async move {
            let statement = tx.prepare_cached(effects.statement()).await?;
            effects.write(&tx, &statement, batch.len()).await?;
            if counts.fetch_add(batch.len(), Ordering::Relaxed) + batch.len() == count {
                finished.notify_one();
            }
            Ok(())
        }
    };
    consumer.handle_batches_until(done.notified(), handler).await.unwrap();
    assert_eq!(consumer.counts().handled, count as u64, "each was handled once");
    count as f64 / start.elapsed().as_secs_f64()
}

/// The same effects in as many transactions, by as many connections.
async fn bare(url: &str, count: usize, effects: Effects) -> f64 {
    let mut clients = Vec::new();
    for _ in 0..CONCURRENCY {
        clients.push(super::by_hand::connect(url).await);
    }
    let (start, next) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for client in clients {
        let next = next.clone();
        tasks.spawn(async move {
            let statement = client.prepare(effects.statement()).await.unwrap();
            loop {
                let first = next.fetch_add(effects.messages(), Ordering::Relaxed);
                if first >= count {
                    return;
                }
                client.batch_execute("BEGIN").await.unwrap();
                effects.write(&client, &statement, effects.messages().min(count - first)).await.unwrap();
                client.batch_execute("COMMIT").await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    count as f64 / start.elapsed().as_secs_f64()
}

/// A log with this number of messages in one partition.
struct Log {
    name: String,
    count: usize,
}

impl Source for Log {
    fn name(&self) -> &str {
        &self.name
    }

    fn partitions(&self) -> u32 {
        1
    }

    fn check(&self, _: Option<Duration>) -> SourceFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn open(&self, _: u32, after: i64) -> SourceFuture<'_, Box<dyn Reader>> {
        let reader = LogReader { next: after + 1, last: i64::try_from(self.count).unwrap() };
        Box::pin(std::future::ready(Ok(Box::new(reader) as Box<dyn Reader>)))
    }

    fn handled<'a>(&'a self, _: &'a [HandledMessage]) -> SourceFuture<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

struct LogReader {
    next: i64,
    last: i64,
}

impl Reader for LogReader {
    fn next(&mut self) -> SourceFuture<'_, Delivery> {
        Box::pin(async {
            if self.next > self.last {
                std::future::pending::<()>().await;
            }
            let message =
                Message::new("orders.placed", PAYLOAD).with_ordering_key(format!("k{}", self.next % 1_000));
            self.next += 1;
            Ok(Delivery::new(message, self.next - 1))
        })
    }
}
