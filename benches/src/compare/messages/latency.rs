//! How soon a message is published, at a tenth of what the relay can do: from when its commit is sent to the publisher, with the
//! relay in the process that adds it, and with the relay in another one.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use onceward_flows::{FlowTables, Message, Outbox, Relay};
use tokio::task::JoinSet;

use super::{Counted, KEYS, Nowhere, by_hand, drain, fill, micros};
use crate::compare::postgres;
use crate::latency::Latency;
use crate::load::runtime;
use crate::process::{Missing, sibling};
use crate::report::{Findings, Goal, Row, Side, Unit, figure};
use crate::scale::Scale;
use crate::turns::{Turn, Turns, progress};

/// Connections that add messages.
const WRITERS: usize = 16;
/// Transactions a second that add them, of all connections together. At a higher rate each adds several.
const TRANSACTIONS_PER_SECOND: f64 = 500.0;

/// Measures the p99 in one process, and across two.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let probe = sibling("probe")?;
    let server = postgres::start()?;
    let (runtime, url) = (runtime(), server.database("bench"));
    let tables = runtime.block_on(FlowTables::open(&url)).unwrap();
    let count = scale.calls * 2;
    let [most] = Turns::new(scale.rounds, Unit::PerSecond).after_warm_up().take([("relay", &mut |_| {
        fill(&server, count);
        runtime.block_on(drain(&tables, Nowhere::default(), count)).into()
    })]);
    let rate = most.median() / 10.0;
    progress(&format!("a tenth: {}", figure(rate, Unit::PerSecond)));

    let same = side("same process", scale, || {
        runtime.block_on(async {
            let outbox = Outbox::new();
            let adding = add(&url, &outbox, rate, scale.round);
            Box::pin(ages(&tables, &outbox, adding)).await
        })
    });
    let other = side("another process", scale, || {
        let mut adder = Command::new(&probe);
        adder.args(["messages", &url, &rate.to_string(), &scale.round.as_millis().to_string()]);
        adder.stdout(Stdio::piped());
        runtime.block_on(async {
            let adding = tokio::task::spawn_blocking(move || {
                let output = adder.output().unwrap();
                assert!(output.status.success(), "the process that adds messages failed");
                String::from_utf8_lossy(&output.stdout).lines().map(Committed::parse).collect()
            });
            // Nothing wakes this relay: the outbox of the other process is not this one.
            ages(&tables, &Outbox::new(), async { adding.await.unwrap() }).await
        })
    });
    let row = |what: &str, side, below| {
        let what = format!("commit to publish, p99, {what}, a tenth of the relay's most");
        Row::alone(what, Unit::Milliseconds, side).goal(Goal::Below(below))
    };
    let rows = vec![row("same process", &same, 10.0), row("another process", &other, 50.0)];
    Ok(Findings { rows, ..Findings::default() })
}

fn side(name: &str, scale: &Scale, mut ages: impl FnMut() -> Vec<f32>) -> Side {
    let [side] = Turns::new(scale.rounds, Unit::Milliseconds).after_warm_up().take([(name, &mut |_| {
        let latency = Latency::from_samples(ages()).expect("messages were published");
        Turn::with_latency(latency.at(0.99) / 1_000.0, Some(latency))
    })]);
    side
}

/// Runs a relay while messages are added, and returns how old each was when it was published.
async fn ages(
    tables: &FlowTables,
    outbox: &Outbox,
    adding: impl Future<Output = Vec<Committed>>,
) -> Vec<f32> {
    let nowhere = Nowhere::default();
    let publisher = Counted::new(nowhere.clone());
    let relay = Relay::new(tables.clone(), outbox, publisher.clone());
    let until_published = async {
        let committed = adding.await;
        publisher.until(committed.iter().map(|transaction| transaction.count).sum()).await;
        committed
    };
    let committed = Mutex::new(Vec::new());
    let until_published = async { *committed.lock().unwrap() = until_published.await };
    relay.run_until(until_published).await.unwrap();
    let mut begun = HashMap::new();
    for Committed { first, count, at } in committed.into_inner().unwrap() {
        begun.extend((first..first + count as u64).map(|number| (number, at)));
    }
    let arrivals = std::mem::take(&mut *nowhere.published.lock().unwrap());
    #[expect(clippy::cast_possible_truncation, reason = "ages are small")]
    let age = |(number, at): (u64, u64)| at.saturating_sub(begun[&number]) as f64 as f32;
    arrivals.into_iter().map(age).collect()
}

/// The other process: adds messages, and says which and when.
pub async fn add_and_say(url: &str, rate: f64, length: Duration) {
    for Committed { first, count, at } in add(url, &Outbox::new(), rate, length).await {
        println!("{first} {count} {at}");
    }
}

/// A transaction: the number of its first message, how many it has, and when its commit was sent, in microseconds.
struct Committed {
    first: u64,
    count: usize,
    at: u64,
}

impl Committed {
    fn parse(line: &str) -> Self {
        let mut numbers = line.split(' ').map(|number| number.parse::<u64>().unwrap());
        let mut next = || numbers.next().unwrap();
        let (first, count, at) = (next(), next(), next());
        Self { first, count: usize::try_from(count).unwrap(), at }
    }
}

/// Adds messages at this rate, and returns when which were committed: the commit is a part of a message's age.
async fn add(url: &str, outbox: &Outbox, rate: f64, length: Duration) -> Vec<Committed> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few")]
    let together = (rate / TRANSACTIONS_PER_SECOND).ceil().max(1.0) as usize;
    let pause = Duration::from_secs_f64(together as f64 * WRITERS as f64 / rate);
    let mut writers = JoinSet::new();
    let start = tokio::time::Instant::now();
    for writer in 0..WRITERS {
        let (mut client, outbox) = (by_hand::connect(url).await, outbox.clone());
        writers.spawn(async move {
            let mut next = tokio::time::Instant::now() + pause.mul_f64(writer as f64 / WRITERS as f64);
            let (mut added, mut committed) = (0, Vec::new());
            while start.elapsed() < length || added == 0 {
                tokio::time::sleep_until(next).await;
                next += pause;
                let mut tx = client.transaction().await.unwrap();
                let first = ((writer as u64) << 32) + added as u64;
                let message = |n: usize| {
                    let key = format!("k{}", ((added + n) * WRITERS + writer) % KEYS);
                    Message::new("orders.placed", (first + n as u64).to_string()).with_ordering_key(key)
                };
                let messages: Vec<Message> = (0..together).map(message).collect();
                let wake = outbox.add_all(&mut tx, messages).await.unwrap();
                committed.push(Committed { first, count: together, at: micros() });
                tx.commit().await.unwrap();
                wake.fire();
                added += together;
            }
            committed
        });
    }
    let began = Instant::now();
    let committed: Vec<Committed> = writers.join_all().await.into_iter().flatten().collect();
    let added: usize = committed.iter().map(|transaction| transaction.count).sum();
    // If the machine cannot add as fast, that is said: the figure is then one of a lower rate.
    let reached = added as f64 / began.elapsed().as_secs_f64();
    if reached < 0.9 * rate {
        progress(&format!("only {} were added", figure(reached, Unit::PerSecond)));
    }
    committed
}
