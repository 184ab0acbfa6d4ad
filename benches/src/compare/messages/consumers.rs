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

/// What a careful service writes by hand: an index more than the key is what removing old rows takes.
pub(super) const TABLE_BY_HAND: &str = "
    CREATE TABLE handled_messages (
        consumer text, message_id text, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (consumer, message_id)
    );
    CREATE INDEX ON handled_messages (at);";
const HANDLED: &str = "INSERT INTO handled_messages (consumer, message_id)
    SELECT 'consumer', id FROM unnest($1::text[]) AS m (id) ON CONFLICT DO NOTHING";

/// Whether the other side knows which messages it has handled.
#[derive(Clone, Copy, PartialEq)]
enum Dedup {
    None,
    ByHand,
}

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
    let sides = |effects: Effects, count: usize, name: &str| {
        Turns::new(scale.rounds, Unit::PerSecond).after_warm_up().take([
            (&*format!("consumer, {name}"), &mut |round| {
                // As the tasks of the other side: what is awaited outside of a task is woken in another thread each time.
                let consuming = consume(database.clone(), format!("{name}{round}"), count, effects);
                let rate = runtime.block_on(runtime.spawn(consuming)).unwrap();
                server.sql("bench", "TRUNCATE onceward_receipts");
                rate.into()
            }),
            ("without dedup", &mut |_| runtime.block_on(bare(url, count, effects, Dedup::None)).into()),
            ("dedup by hand", &mut |_| {
                let rate = runtime.block_on(bare(url, count, effects, Dedup::ByHand));
                server.sql("bench", "TRUNCATE handled_messages");
                rate.into()
            }),
        ])
    };
    let [ours, bare, by_hand] = sides(Effects::One, scale.calls / 4, "one");
    let [each, each_bare, each_by_hand] = sides(Effects::Each, scale.calls, "each");
    let [together, together_bare, together_by_hand] = sides(Effects::Together, scale.calls, "together");
    let row = |what: &str, ours, bare| Row::ratio(what, Unit::PerSecond, ours, bare);
    vec![
        row("consumer, effect and receipt, 16 at once / the same effect without dedup", &ours, &bare)
            .goal(Goal::AtLeast(0.6)),
        row("the same consumer / the same effect with a table of handled messages by hand", &ours, &by_hand),
        row(
            "consumer in batches of 32, 16 at once / the same effects without dedup, in batches of 32",
            &each,
            &each_bare,
        )
        .goal(Goal::AtLeast(0.75)),
        row("the same consumer / with a table of handled messages by hand", &each, &each_by_hand),
        row("the same, where a batch is one statement on both sides", &together, &together_bare),
        row("the same consumer / with a table of handled messages by hand", &together, &together_by_hand),
    ]
}

/// Messages per second until all are handled.
async fn consume(
    database: ConsumerDatabase<PostgresTransactions>,
    name: String,
    count: usize,
    effects: Effects,
) -> f64 {
    let source = Log { name, count };
    let options = ConsumerOptions::default()
        .with_concurrency(CONCURRENCY)
        .with_batch_max(effects.messages())
        .with_partition_messages_max(2 * CONCURRENCY * effects.messages().max(8));
    let consumer = Consumer::new("bench", source, database).with_options(options);
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
async fn bare(url: &str, count: usize, effects: Effects, dedup: Dedup) -> f64 {
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
            let handled = client.prepare(HANDLED).await.unwrap();
            loop {
                let first = next.fetch_add(effects.messages(), Ordering::Relaxed);
                if first >= count {
                    return;
                }
                let messages = effects.messages().min(count - first);
                client.batch_execute("BEGIN").await.unwrap();
                if dedup == Dedup::ByHand {
                    let ids: Vec<String> =
                        (first..first + messages).map(|number| format!("orders:{number}")).collect();
                    let written = client.execute(&handled, &[&ids]).await.unwrap();
                    assert_eq!(written, messages as u64, "every message comes once");
                }
                effects.write(&client, &statement, messages).await.unwrap();
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
