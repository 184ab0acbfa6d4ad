//! Measures how the embedded store's cost grows with the number of receipts in it. One store grows through all
//! sizes; at the end it takes turns with fresh ones of the smallest size.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onceward::{Ask, Fingerprint, Onceward, Outcome, Policy, Record, Seen, State, Store, Swap, Swapped};
use onceward_stores::embedded::{EmbeddedStore, Options};

use super::embedded::{BODY_BYTES, claims, id};
use crate::load::runtime;
use crate::process::{Missing, folder_bytes, resident_megabytes};
use crate::report::{Findings, Goal, Growth, Row, Side, Unit, many};
use crate::scale::Scale;
use crate::turns::{Turns, progress};

/// Short, because what a round claims is kept: the store must not grow much while it is measured.
pub const ROUND_MAX: Duration = Duration::from_secs(1);
const BATCH: u64 = 4_096;
/// Filled ids live in rounds from here on, apart from the measured ones.
const FILL_ROUND: u64 = 1 << 20;
/// What the process may take at ten million receipts.
const MEMORY_MB_MAX: f64 = 600.0;
/// A size below which memory is that of caches still filling.
const MEMORY_FROM: u64 = 10_000_000;

/// Measures throughput, latency, memory and disk at each size.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let folder = folder.path().join(name);
        runtime.block_on(async { Arc::new(EmbeddedStore::open(&folder, Options::default()).await.unwrap()) })
    };
    let length = scale.round.min(ROUND_MAX);
    let measure = |store: Arc<dyn Store>, round: u64| {
        let onceward = Onceward::new(store).unwrap();
        runtime.block_on(async { claims(&onceward, round, tokio::time::sleep(length)).await })
    };
    let store = open("growing");
    let mut grown = Grown::new("memory of the whole process");
    let (mut have, mut rates) = (0, Vec::new());
    for (at, &size) in scale.sizes.iter().enumerate() {
        progress(&format!("filling up to {} receipts", many(size)));
        runtime.block_on(fill(&store, have, size));
        have = size;
        let bytes = folder_bytes(&folder.path().join("growing"));
        let first_round = (at * (scale.rounds + 1)) as u64;
        let turns = Turns::new(scale.rounds, Unit::PerSecond).after_warm_up();
        let [rate] =
            turns.take([("claims", &mut |round| measure(store.clone(), first_round + round as u64))]);
        let memory = resident_megabytes(std::process::id()).unwrap();
        grown.add(size, &rate, Some(memory), bytes as f64 / size as f64);
        rates.push(rate);
    }

    let (small, large) = (scale.sizes[0], have);
    let mut fresh = 0;
    let first_round = (scale.sizes.len() * (scale.rounds + 1)) as u64;
    let [large_rate, small_rate] = Turns::new(scale.rounds, Unit::PerSecond).take([
        ("large", &mut |round| measure(store.clone(), first_round + round as u64)),
        ("small", &mut |_| {
            fresh += 1;
            let name = format!("small-{fresh}");
            let store = open(&name);
            runtime.block_on(fill(&store, 0, small));
            let turn = measure(store, 0);
            let _ = std::fs::remove_dir_all(folder.path().join(name));
            turn
        }),
    ]);
    let mut rows = vec![cost(&large_rate, &small_rate, large, small)];
    if scale.sizes.len() > 2 {
        let [.., middle, large] = &rates[..] else { unreachable!("there are three") };
        let before = scale.sizes[scale.sizes.len() - 2];
        let what = format!("claims at {} receipts / at {}", many(have), many(before));
        rows.push(Row::ratio(what, Unit::PerSecond, large, middle).goal(Goal::AtLeast(0.7)));
    }
    rows.extend(grown.rows(large));
    if large >= MEMORY_FROM {
        let memory = rows.iter_mut().find(|row| row.unit == Unit::Megabytes).expect("it is measured");
        memory.goal = Some(Goal::Below(MEMORY_MB_MAX));
    }
    Ok(Findings { rows, growths: grown.curves("embedded") })
}

/// What was measured at each size; the PostgreSQL store grows the same way.
pub struct Grown {
    memory_of: &'static str,
    rate: Vec<(f64, f64)>,
    middle: Vec<(f64, f64)>,
    slow: Vec<(f64, f64)>,
    memory: Vec<(f64, f64)>,
    disk: Vec<(f64, f64)>,
}

impl Grown {
    /// Nothing yet; `memory_of` says whose memory is measured.
    pub fn new(memory_of: &'static str) -> Self {
        let (rate, middle, slow, memory, disk) = <_>::default();
        Self { memory_of, rate, middle, slow, memory, disk }
    }

    /// Adds what was measured at one size.
    pub fn add(&mut self, size: u64, rate: &Side, memory_mb: Option<f64>, bytes_each: f64) {
        let size = size as f64;
        let latency = rate.latency.as_ref().expect("calls are timed");
        self.rate.push((size, rate.median()));
        self.middle.push((size, latency.at(0.5) / 1e3));
        self.slow.push((size, latency.at(0.99) / 1e3));
        self.memory.extend(memory_mb.map(|memory| (size, memory)));
        self.disk.push((size, bytes_each));
    }

    /// Memory and disk at the largest size.
    pub fn rows(&self, size: u64) -> Vec<Row> {
        let size = many(size);
        let last = |points: &[(f64, f64)]| Some(Side::new("at that size", vec![points.last()?.1]));
        let row = |what, unit, side: Side| Row::alone(format!("{what} at {size} receipts"), unit, &side);
        let memory = last(&self.memory).map(|memory| row(self.memory_of, Unit::Megabytes, memory));
        let disk = last(&self.disk).map(|disk| row("disk per receipt", Unit::Bytes, disk));
        memory.into_iter().chain(disk).collect()
    }

    /// The curves over all sizes.
    pub fn curves(self, store: &str) -> Vec<Growth> {
        let plot = |what: &str, unit, curves: Vec<(&str, Vec<(f64, f64)>)>| Growth {
            what: format!("{store}: {what}"),
            over: "receipts",
            unit,
            curves: curves.into_iter().map(|(name, points)| (name.to_owned(), points)).collect(),
        };
        let latency = vec![("p99", self.slow), ("p50", self.middle)];
        let mut plots = vec![
            plot("claim + complete, 512 callers", Unit::PerSecond, vec![("claims", self.rate)]),
            plot("latency, 512 callers", Unit::Milliseconds, latency),
            plot("disk per receipt", Unit::Bytes, vec![("disk", self.disk)]),
        ];
        if !self.memory.is_empty() {
            plots.push(plot(self.memory_of, Unit::Megabytes, vec![("memory", self.memory)]));
        }
        plots
    }
}

/// What one claim costs in a large store, next to a small one.
pub fn cost(large_rate: &Side, small_rate: &Side, large: u64, small: u64) -> Row {
    let (large, small) = (many(large), many(small));
    let cost = |rate: &Side, size: &str| {
        let name = format!("{size} receipts");
        Side { name, ..rate.map(|per_second| 1e6 / per_second) }
    };
    let what = format!("claim + complete at {large} receipts / at {small}, cost");
    Row::ratio(what, Unit::Microseconds, &cost(large_rate, &large), &cost(small_rate, &small))
        .goal(Goal::AtMost(1.5))
}

/// Puts receipts that are kept for a day into the store, synced like all others.
async fn fill(store: &Arc<EmbeddedStore>, from: u64, to: u64) {
    let sample = sample(store.clone(), FILL_ROUND + 1, from).await;
    put_done(&**store, &sample, FILL_ROUND, from..to, Duration::from_hours(24)).await;
}

/// The stored bytes of a receipt that the engine has made.
pub async fn sample(store: Arc<dyn Store>, round: u64, number: u64) -> Bytes {
    let onceward = Onceward::new(store.clone()).unwrap();
    let id = id(round, number);
    let ask = Ask::new(id.clone(), Fingerprint::new(1, [7; 32]), Arc::new(Policy::http()));
    onceward.run(ask, async |_| Ok(Outcome::succeeded(vec![b'x'; BODY_BYTES]))).await.unwrap();
    store.load(&[id]).await.unwrap().remove(0).unwrap().expect("it was just made").bytes
}

/// Puts done receipts with the ids of this round straight into a store.
pub async fn put_done(store: &dyn Store, bytes: &Bytes, round: u64, numbers: Range<u64>, due_in: Duration) {
    for first in numbers.clone().step_by(usize::try_from(BATCH).unwrap()) {
        let mut batch: Vec<_> = (first..(first + BATCH).min(numbers.end))
            .map(|number| {
                let record = Record::new(State::Done, bytes.clone()).with_due_in(Some(due_in));
                Swap { id: id(round, number), seen: Seen::Absent, new: Some(record) }
            })
            .collect();
        batch.sort_by(|a, b| a.id.cmp(&b.id));
        let answers = store.swap(&batch).await.unwrap();
        assert!(answers.iter().all(|answer| matches!(answer, Swapped::Won(_))));
    }
}
