//! A relay to NATS JetStream, next to bare publishes of the same messages by the same client, with an acknowledgement
//! each and as many at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use async_nats::HeaderMap;
use async_nats::jetstream::{self, stream};
use futures_util::future::join_all;
use onceward_flows::{FlowTables, NatsPublisher, RelayOptions};
use tokio::task::JoinSet;

use super::{KEYS, PAYLOAD, drain, fill};
use crate::compare::postgres;
use crate::load::runtime;
use crate::process::{Missing, program};
use crate::report::{Findings, Goal, Row, Unit};
use crate::scale::Scale;
use crate::servers::Nats;
use crate::turns::Turns;

const PARTITIONS: u32 = 16;
/// What the relay is to reach, where the broker can do that at all.
const GOAL: f64 = 15_000.0;
/// If the broker itself cannot: this share of its limit.
const SHARE: f64 = 0.9;

/// Measures a relay to NATS, and NATS by itself.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    program("nats-server", "none; `./check` puts one into target/servers")?;
    let server = postgres::start()?;
    let broker = Nats::start().ok_or_else(|| Missing("nats-server did not start".into()))?;
    let (runtime, url) = (runtime(), server.database("bench"));
    let tables = runtime.block_on(FlowTables::open(&url)).unwrap();
    let count = scale.calls * 2;
    let context = runtime.block_on(connect(&broker.url()));
    let [relay, bare] = Turns::new(scale.rounds, Unit::PerSecond).after_warm_up().take([
        ("relay", &mut |round| {
            runtime.block_on(make(&context, &format!("relay{round}")));
            let publisher =
                NatsPublisher::new(context.clone(), &format!("relay{round}"), PARTITIONS).unwrap();
            fill(&server, count);
            runtime.block_on(drain(&tables, publisher, count)).into()
        }),
        ("bare", &mut |round| {
            runtime.block_on(async {
                make(&context, &format!("bare{round}")).await;
                bare(&context, &format!("bare{round}"), count).await.into()
            })
        }),
    ]);
    let goal = GOAL.min(SHARE * bare.median());
    let what =
        "relay to NATS JetStream, 1,000 ordering keys; 15,000/s, or 0.9 of what the broker itself can do";
    let ratio = "the same / bare publishes with acknowledgements, as many at a time";
    let rows = vec![
        Row::alone(what, Unit::PerSecond, &relay).goal(Goal::AtLeast(goal)),
        Row::ratio(ratio, Unit::PerSecond, &relay, &bare),
    ];
    Ok(Findings { rows, ..Findings::default() })
}

async fn connect(url: &str) -> jetstream::Context {
    jetstream::new(async_nats::connect(url).await.unwrap())
}

async fn make(context: &jetstream::Context, name: &str) {
    let subjects = vec![format!("{name}.>")];
    let config = stream::Config { name: name.to_owned(), subjects, ..stream::Config::default() };
    context.create_stream(config).await.unwrap();
}

/// The same messages with the same headers, in as many batches at a time as the relay has, each as large.
async fn bare(context: &jetstream::Context, prefix: &str, count: usize) -> f64 {
    let RelayOptions { batch_messages_max, batches_in_flight_max, .. } = RelayOptions::default();
    let next = Arc::new(AtomicUsize::new(0));
    let (start, mut tasks) = (Instant::now(), JoinSet::new());
    for _ in 0..batches_in_flight_max {
        let (context, next, prefix) = (context.clone(), next.clone(), prefix.to_owned());
        tasks.spawn(async move {
            loop {
                let first = next.fetch_add(batch_messages_max, Ordering::Relaxed);
                if first >= count {
                    return;
                }
                let batch = (first..count.min(first + batch_messages_max)).map(async |n| {
                    let mut headers = HeaderMap::new();
                    headers.insert(async_nats::header::NATS_MESSAGE_ID, format!("{prefix}-{n:036}"));
                    headers.insert("Onceward-Position", n.to_string());
                    headers.insert("Onceward-Ordering-Key", format!("k{}", n % KEYS));
                    let subject = format!("{prefix}.{}.orders.placed", n % PARTITIONS as usize);
                    let sent = context.publish_with_headers(subject, headers, PAYLOAD.into()).await;
                    sent.unwrap().await.unwrap();
                });
                join_all(batch).await;
            }
        });
    }
    tasks.join_all().await;
    count as f64 / start.elapsed().as_secs_f64()
}
