//! Measures messages in PostgreSQL: a relay next to a hand-written one, what a message adds to a transaction, what the
//! receipt of a consumer costs, how soon a message is published, and all that beside a transaction that stays open.
//!
//! A relay is measured by how long it takes to empty an outbox that was filled before; consumers are measured the same way.
//! The publisher counts: nobody looks at the table while the relay works, because that costs time, and most beside a
//! transaction that keeps dead rows.

mod by_hand;
mod consumers;
pub mod dead_rows;
pub mod latency;
pub mod nats;
mod running;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use onceward_flows::{FlowTables, Outbox, Outgoing, PublishFuture, Publisher, Relay};
use tokio::sync::Notify;

use self::by_hand::Connections;
use self::running::RunningRelay;
use super::postgres;
use crate::load::{callers, runtime};
use crate::process::Missing;
use crate::report::{Findings, Goal, Row, Side, Unit};
use crate::scale::Scale;
use crate::servers::Postgres;
use crate::turns::Turns;

const KEYS: usize = 1_000;
const PAYLOAD: &str = "{\"order\":81,\"account\":\"acct_81\",\"amount\":1200}";
/// Callers of the service that adds messages.
const CALLERS: usize = 16;

/// Measures relay, consumer and business transactions.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let server = postgres::start()?;
    let (runtime, url) = (runtime(), server.database("bench"));
    server.sql("bench", by_hand::TABLES);
    server.sql("bench", consumers::TABLE_BY_HAND);
    let tables = runtime.block_on(FlowTables::open(&url)).unwrap();
    let count = scale.calls * 2;
    let turns = || Turns::new(scale.rounds, Unit::PerSecond);

    let [relay, hand] = turns().after_warm_up().take([
        ("relay", &mut |_| {
            fill(&server, count);
            runtime.block_on(drain(&tables, Nowhere::default(), count)).into()
        }),
        ("by hand", &mut |_| {
            by_hand::fill(&server, count);
            runtime.block_on(by_hand::drain(&url, count)).into()
        }),
    ]);
    let business = |connections, statements, with_message| {
        let length = scale.round;
        runtime.block_on(by_hand::business(&url, connections, CALLERS, statements, with_message, length))
    };
    let pairs = |connections| {
        turns().after_warm_up().take([
            ("insert and message", &mut |_| business(connections, 1, true)),
            ("insert", &mut |_| business(connections, 1, false)),
            ("four statements and message", &mut |_| business(connections, 4, true)),
            ("four statements", &mut |_| business(connections, 4, false)),
        ])
    };
    let [one, one_without, four, four_without] = pairs(Connections::Pool);
    let [one_bare, one_bare_without, four_bare, four_bare_without] = pairs(Connections::Bare);
    let [one_kept, one_kept_without, four_kept, four_kept_without] = pairs(Connections::BareWithStatements);
    server.sql("bench", "TRUNCATE onceward_outbox");
    let consumed = consumers::run(&runtime, &server, &url, &tables, scale);

    // What was published before stays in the table as dead rows, if a transaction is open.
    let fourth = |count| {
        let mut relay = RunningRelay::start(&runtime, &tables, &url);
        for _ in 0..3 {
            relay.empty(count);
        }
        let rate = relay.empty(count);
        relay.stop();
        rate
    };
    let [beside, without] = turns().take([
        ("beside an open transaction", &mut |_| {
            let open = runtime.block_on(by_hand::connect(&url));
            let snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM business";
            runtime.block_on(open.batch_execute(snapshot)).unwrap();
            let rate = fourth(count);
            runtime.block_on(open.batch_execute("COMMIT")).unwrap();
            rate.into()
        }),
        ("without", &mut |_| {
            server.sql("bench", "VACUUM ANALYZE onceward_outbox");
            fourth(count).into()
        }),
    ]);
    let ratio = |what: &str, ours: &Side, other: &Side, least| {
        Row::ratio(what, Unit::PerSecond, ours, other).goal(Goal::AtLeast(least))
    };
    let mut rows = vec![
        ratio(
            "relay to nowhere, 1,000 ordering keys / by hand, SKIP LOCKED, batches of 100",
            &relay,
            &hand,
            2.0,
        ),
        ratio("one insert and one message / one insert, 16 callers", &one, &one_without, 0.7),
        ratio("four statements and one message / four statements, 16 callers", &four, &four_without, 0.85),
        ratio("the same, one insert, bare driver", &one_bare, &one_bare_without, 0.7),
        ratio("the same, four statements, bare driver", &four_bare, &four_bare_without, 0.85),
        ratio("the same, one insert, bare driver, its statements kept", &one_kept, &one_kept_without, 0.7),
        ratio(
            "the same, four statements, bare driver, its statements kept",
            &four_kept,
            &four_kept_without,
            0.85,
        ),
        ratio("relay beside a transaction that stays open / without", &beside, &without, 0.8),
    ];
    rows.extend(consumed);
    Ok(Findings { rows, ..Findings::default() })
}

/// Confirms everything at once, and notes when messages came whose payload is a number.
#[derive(Clone, Default)]
struct Nowhere {
    published: Arc<std::sync::Mutex<Vec<(u64, u64)>>>,
}

impl Publisher for Nowhere {
    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> PublishFuture<'a> {
        let now = micros();
        for outgoing in batch {
            let payload = std::str::from_utf8(outgoing.message().payload()).unwrap_or_default();
            if let Ok(number) = payload.parse::<u64>() {
                self.published.lock().unwrap().push((number, now));
            }
        }
        Box::pin(std::future::ready(batch.iter().map(|_| Ok(())).collect()))
    }
}

/// Counts what a publisher has confirmed.
#[derive(Clone)]
struct Counted<P> {
    publisher: P,
    count: Arc<AtomicUsize>,
    grown: Arc<Notify>,
}

impl<P> Counted<P> {
    fn new(publisher: P) -> Self {
        Self { publisher, count: Arc::default(), grown: Arc::default() }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits until this number is confirmed.
    async fn until(&self, count: usize) {
        while self.count() < count {
            // A wake-up that comes in between is kept.
            self.grown.notified().await;
        }
    }
}

impl<P: Publisher> Publisher for Counted<P> {
    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> PublishFuture<'a> {
        Box::pin(async {
            let results = self.publisher.publish(batch).await;
            self.count.fetch_add(results.iter().filter(|result| result.is_ok()).count(), Ordering::Relaxed);
            self.grown.notify_one();
            results
        })
    }

    fn target(&self) -> String {
        self.publisher.target()
    }
}

fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Fills the outbox as `add_all` does, with the lanes that it would choose spread alike.
fn fill(server: &Postgres, count: usize) {
    server.sql("bench", &insertion(count));
    server.sql("bench", "ANALYZE onceward_outbox");
}

fn insertion(count: usize) -> String {
    format!(
        "INSERT INTO onceward_outbox (lane, id, topic, ordering_key, headers, payload)
         SELECT (n % {KEYS}) % 1024, gen_random_uuid(), 'orders.placed', 'k' || n % {KEYS}, '{{}}', convert_to('{PAYLOAD}', 'UTF8')
         FROM generate_series(1, {count}) AS n"
    )
}

/// Messages per second until all are published, and removed from the outbox.
async fn drain(tables: &FlowTables, publisher: impl Publisher + Clone + 'static, count: usize) -> f64 {
    let publisher = Counted::new(publisher);
    let relay = Relay::new(tables.clone(), &Outbox::new(), publisher.clone());
    let start = Instant::now();
    relay.run_until(publisher.until(count)).await.unwrap();
    let rate = count as f64 / start.elapsed().as_secs_f64();
    relay.drained().await.unwrap();
    assert_eq!(publisher.count(), count, "each was published once");
    rate
}
