//! Compares replays of another process's runs through a volatile front with those through PostgreSQL, and first runs
//! with and without a front; counts the trips that many copies of one running request cost each of three processes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use onceward::{Ask, Fingerprint, Id, Lease, Onceward, Outcome, Policy};
use onceward_stores::open_with_metrics;

use super::postgres::{claims, start};
use crate::latency::Latency;
use crate::load::runtime;
use crate::process::Missing;
use crate::report::{Findings, Goal, Row, Side, Unit, many};
use crate::scale::Scale;
use crate::servers::Redis;
use crate::turns::{Turn, Turns};

const CALLERS: usize = 64;
const ANSWER: &str = "{\"id\":81,\"status\":\"charged\"}";
/// Entries end after a minute: this many are written and replayed well before.
const REPLAYS_MAX: usize = 5_000;

/// Engines with caches and connections of their own, as processes have them.
const PROCESSES: usize = 3;
/// Long enough for every copy to have asked.
const WORK: Duration = Duration::from_secs(1);

/// Times replays one after the other, counts their trips to the database, and measures first runs of many callers.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let server = start()?;
    let redis = Redis::start_with(&["--maxmemory", "256mb", "--maxmemory-policy", "allkeys-lru"]);
    let redis = redis.ok_or_else(|| Missing("Redis is not installed (package redis-server)".to_owned()))?;
    let (runtime, plain) = (runtime(), server.database("bench"));
    let fronted = format!("{plain}?front=redis://127.0.0.1:{}/0", redis.port());
    let (writer, without) = runtime.block_on(async { (open(&fronted).await, open(&plain).await) });
    let replays = scale.calls.min(REPLAYS_MAX);
    let mut trips = Vec::new();
    let [through, past] = Turns::new(scale.rounds, Unit::Microseconds).take([
        ("front", &mut |_| {
            let (turn, made) = runtime.block_on(replay(&writer, &fronted, replays));
            trips.push(made);
            turn
        }),
        ("PostgreSQL", &mut |_| runtime.block_on(replay(&writer, &plain, replays)).0),
    ]);
    let [with, without] = Turns::new(scale.rounds, Unit::PerSecond).after_warm_up().take([
        ("with", &mut |_| runtime.block_on(claims(&writer, CALLERS, scale.round))),
        ("without", &mut |_| runtime.block_on(claims(&without, CALLERS, scale.round))),
    ]);
    let copies = scale.copies / PROCESSES as u64;
    let mut made = Vec::new();
    let [answered] = Turns::new(scale.rounds, Unit::Milliseconds).take([("p99", &mut |round| {
        let (turn, trips) = runtime.block_on(storm(&fronted, round, copies));
        made.push(trips);
        turn
    })]);
    let in_all = many(copies * PROCESSES as u64);
    let rows = vec![
        Row::ratio(
            "replay from another process, p50, front / PostgreSQL",
            Unit::Microseconds,
            &through,
            &past,
        )
        .goal(Goal::AtMost(0.5)),
        Row::alone("trips to PostgreSQL of these replays", Unit::Trips, &Side::new("trips", trips))
            .goal(Goal::AtMost(0.0)),
        Row::ratio("first run, 64 callers, with a front / without", Unit::PerSecond, &with, &without)
            .goal(Goal::AtLeast(0.9)),
        Row::alone(
            format!("{in_all} copies over {PROCESSES} engines, trips to PostgreSQL, most of one engine"),
            Unit::Trips,
            &Side::new("trips", made),
        )
        .goal(Goal::AtMost(2.0)),
        Row::alone(
            "from the end of the work to the answer, p99 of these copies",
            Unit::Milliseconds,
            &answered,
        ),
    ];
    Ok(Findings { rows, ..Findings::default() })
}

async fn open(url: &str) -> Onceward {
    let opened = open_with_metrics(url).await.unwrap();
    let builder = Onceward::builder(opened.store);
    match opened.front {
        Some(front) => builder.with_front(front),
        None => builder,
    }
    .build()
    .unwrap()
}

/// Runs fresh keys in one process, and replays each once in another one that has seen none of them. Returns the trips of
/// the replays, too.
async fn replay(writer: &Onceward, url: &str, count: usize) -> (Turn, f64) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let first = NEXT.fetch_add(count as u64, Ordering::Relaxed);
    let policy = Arc::new(Policy::http());
    let reader = open(url).await;
    use_front(&reader, &policy).await;
    let asks: Vec<Ask> =
        (0..count as u64).map(|number| ask(&format!("replay-{}", first + number), &policy)).collect();
    for asks in asks.chunks(CALLERS) {
        let mut runs = tokio::task::JoinSet::new();
        for ask in asks {
            let (writer, ask) = (writer.clone(), ask.clone());
            runs.spawn(async move {
                let work = async |_: Lease| Ok(Outcome::succeeded(ANSWER));
                assert!(!writer.run(ask, work).await.unwrap().into_result().unwrap().replayed);
            });
        }
        runs.join_all().await;
    }
    // Entries are written behind the callers' backs.
    tokio::time::sleep(Duration::from_millis(50)).await;
    use_front(&reader, &policy).await;
    let trips = || (reader.counts().store_batches + reader.counts().store_loads) as f64;
    let before = trips();
    let mut samples = Vec::with_capacity(count);
    for ask in asks {
        let begin = Instant::now();
        let never = async |_: Lease| panic!("it has run");
        let replayed = reader.run(ask, never).await.unwrap().into_result().unwrap().replayed;
        samples.push(begin.elapsed().as_secs_f32() * 1e6);
        assert!(replayed);
    }
    let made = trips() - before;
    let latency = Latency::from_samples(samples).expect("there are replays");
    (Turn::with_latency(latency.at(0.5), Some(latency)), made)
}

/// Sends copies of one request to three processes, one of which runs it. Returns the most trips
/// that a process made, too.
async fn storm(url: &str, round: usize, copies: u64) -> (Turn, f64) {
    let policy = Arc::new(Policy::http());
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        let process = open(url).await;
        use_front(&process, &policy).await;
        processes.push(process);
    }
    let trips = |process: &Onceward| process.counts().store_batches + process.counts().store_loads;
    let before: Vec<u64> = processes.iter().map(trips).collect();
    let ended = Arc::new(OnceLock::new());
    let mut asks = tokio::task::JoinSet::new();
    for _ in 0..copies {
        for process in &processes {
            let (process, policy, ended) = (process.clone(), policy.clone(), ended.clone());
            asks.spawn(async move {
                let work = async |_: Lease| {
                    tokio::time::sleep(WORK).await;
                    ended.set(Instant::now()).expect("it runs once");
                    Ok(Outcome::succeeded(ANSWER))
                };
                let answer = process.run(ask(&format!("storm-{round}"), &policy), work).await;
                (answer.unwrap().into_result().unwrap().replayed, Instant::now())
            });
        }
    }
    let answers = asks.join_all().await;
    let replayed = answers.iter().filter(|(replayed, _)| *replayed).count();
    assert_eq!(replayed, answers.len() - 1, "it ran more than once");
    let ended = *ended.get().expect("it has run");
    let samples = answers.iter().map(|(_, at)| at.duration_since(ended).as_secs_f32() * 1e6).collect();
    let latency = Latency::from_samples(samples).expect("there are copies");
    let made = processes.iter().zip(before).map(|(process, before)| trips(process) - before).max();
    (Turn::with_latency(latency.at(0.99) / 1e3, Some(latency)), made.unwrap_or_default() as f64)
}

/// Has the identity of the store read, where there is a front.
async fn use_front(reader: &Onceward, policy: &Arc<Policy>) {
    for number in 0..1_000 {
        let before = reader.counts();
        reader.answer_without_running(&ask(&format!("nothing-{number}"), policy)).await.unwrap();
        let after = reader.counts();
        // Without a front both stay what they are.
        if after.front_misses > before.front_misses || after.front_bypasses == before.front_bypasses {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the front is not used: {:?}", reader.counts());
}

fn ask(key: &str, policy: &Arc<Policy>) -> Ask {
    let id = Id::new("tenant", "POST /charges", key).unwrap();
    Ask::new(id, Fingerprint::new(1, [7; 32]), policy.clone())
}
