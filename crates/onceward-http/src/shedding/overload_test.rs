//! An overload in simulated time: for twenty seconds ten times as much arrives as the service can do. Its capacity is that
//! of its own workers, so nothing here depends on the speed of a machine.
//!
//! The decisions are the real ones: [`Work`] with its limit, and [`DrainRate`]. Only the clients and the service are
//! simulated, in ticks of a millisecond. The test also draws docs/overload.svg; `ONCEWARD_BLESS=1` writes it again.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates and limits are far below the precision of a float, and never negative"
)]

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use http::StatusCode;

use super::limit::{Begun, Load};
use super::overload_plot_test as plot;
use super::{Shedding, Try, Work};
use crate::drain_rate::DrainRate;

pub(super) const SECONDS: usize = 60;
pub(super) const STORM: std::ops::Range<usize> = 10..30;
const TICKS_PER_SECOND: usize = 1_000;
const WORKERS: usize = 20;
/// On average; each takes from half to one and a half of it.
const WORK_TICKS: usize = 100;
const CAPACITY_PER_SECOND: usize = WORKERS * TICKS_PER_SECOND / WORK_TICKS;
/// Work that arrives per second, in the storm and otherwise.
const STORM_PER_SECOND: usize = 10 * CAPACITY_PER_SECOND;
const CALM_PER_SECOND: usize = CAPACITY_PER_SECOND * 4 / 5;
/// A client waits this long for an answer. The service does the work in any case.
const PATIENCE_TICKS: usize = 1_000;
/// A refused client comes again, when it was told to, until this try.
const TRIES_MAX: u32 = 4;
const LATENCY: Duration = Duration::from_millis(300);

/// What happened, second by second.
pub(super) struct Overload {
    /// Requests that came, retries included.
    pub(super) arrived: Vec<u32>,
    /// Answered while the client still waited.
    pub(super) answered: Vec<u32>,
    /// The limit at the end of the second.
    pub(super) limit: Vec<u32>,
    /// How long admitted work took until its answer, in milliseconds, by the second in which it ended.
    latencies: Vec<Vec<usize>>,
}

impl Overload {
    /// The answers per second in these seconds, as a part of the capacity.
    fn goodput(&self, seconds: std::ops::Range<usize>) -> f64 {
        let count = seconds.len() * CAPACITY_PER_SECOND;
        f64::from(self.answered[seconds].iter().sum::<u32>()) / count as f64
    }

    /// The latency in milliseconds that 99 of 100 admitted requests stay below.
    fn p99(&self, seconds: std::ops::Range<usize>) -> usize {
        let mut all: Vec<usize> = self.latencies[seconds].iter().flatten().copied().collect();
        all.sort_unstable();
        all.get(all.len() * 99 / 100).copied().unwrap_or(0)
    }
}

/// A request in the service.
struct Running {
    arrived: usize,
    begun: Option<Begun>,
    done_at: usize,
}

/// A small linear congruential generator: the same run every time.
struct Dice(u64);

impl Dice {
    /// From 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / (1u64 << 24) as f64
    }
}

fn time(tick: usize) -> Duration {
    Duration::from_millis(tick as u64)
}

fn simulate(shedding: Option<Shedding>) -> Overload {
    let ticks = SECONDS * TICKS_PER_SECOND;
    let zeros = || vec![0; SECONDS];
    let mut seen = Overload {
        arrived: zeros(),
        answered: zeros(),
        limit: zeros(),
        latencies: vec![Vec::new(); SECONDS],
    };
    let (mut work, drain) = (shedding.map(Work::new), DrainRate::default());
    let mut dice = Dice(1);
    // Tries that come at a tick.
    let mut agenda: Vec<Vec<u32>> = vec![Vec::new(); ticks];
    let mut queue: VecDeque<(usize, Option<Begun>)> = VecDeque::new();
    let mut workers: Vec<Option<Running>> = (0..WORKERS).map(|_| None).collect();
    let mut credit = 0;
    for tick in 0..ticks {
        let second = tick / TICKS_PER_SECOND;
        for worker in &mut workers {
            if worker.as_ref().is_some_and(|running| running.done_at <= tick) {
                let Running { arrived, begun, .. } = worker.take().expect("it was there");
                seen.latencies[second].push(tick - arrived);
                if tick - arrived <= PATIENCE_TICKS {
                    seen.answered[second] += 1;
                }
                drain.finished();
                if let (Some(work), Some(begun)) = (&mut work, begun) {
                    work.limit.answered(Load::of(StatusCode::OK).expect("it counts"), begun, time(tick));
                    work.end("caller");
                }
            }
        }
        credit += if STORM.contains(&second) { STORM_PER_SECOND } else { CALM_PER_SECOND };
        while credit >= TICKS_PER_SECOND {
            credit -= TICKS_PER_SECOND;
            agenda[tick].push(1);
        }
        for number in std::mem::take(&mut agenda[tick]) {
            seen.arrived[second] += 1;
            let which = if number > 1 { Try::Again } else { Try::First };
            if let Some(work) = &mut work {
                if work.admits("caller", which).is_err() {
                    let after = drain.retry_after(time(tick), work.in_flight, dice.next());
                    // As in the field: whole seconds, rounded up.
                    let after = after.as_secs_f64().ceil() as usize * TICKS_PER_SECOND;
                    if number < TRIES_MAX && tick + after < ticks {
                        agenda[tick + after].push(number + 1);
                    }
                    continue;
                }
                queue.push_back((tick, Some(work.begin("caller", time(tick)))));
            } else {
                queue.push_back((tick, None));
            }
        }
        for worker in &mut workers {
            if worker.is_none()
                && let Some((arrived, begun)) = queue.pop_front()
            {
                let takes = (WORK_TICKS as f64 * (0.5 + dice.next())) as usize;
                *worker = Some(Running { arrived, begun, done_at: tick + takes.max(1) });
            }
        }
        if let Some(work) = &work {
            seen.limit[second] = u32::try_from(work.limit.current()).expect("it is small");
        }
    }
    seen
}

#[test]
fn shedding_keeps_the_service_useful_at_ten_times_its_capacity() {
    let with = simulate(Some(Shedding::new(LATENCY)));
    let without = simulate(None);
    let (storm, after) = (STORM.start + 2..STORM.end, STORM.end + 5..SECONDS);
    println!("part of the capacity that is answered in time, and p99 of what was admitted");
    println!("                 with shedding        without");
    for (name, seconds) in [("before", 2..STORM.start), ("storm", storm.clone()), ("after", after.clone())] {
        println!(
            "{name:<12} {:>8.3} {:>6} ms {:>8.3} {:>6} ms",
            with.goodput(seconds.clone()),
            with.p99(seconds.clone()),
            without.goodput(seconds.clone()),
            without.p99(seconds)
        );
    }
    // In a storm all of the capacity can be used: it is the peak.
    assert!(with.goodput(storm.clone()) >= 0.9, "{}", with.goodput(storm.clone()));
    assert!(with.p99(STORM.start..SECONDS) <= 800, "{} ms", with.p99(STORM.start..SECONDS));
    assert!(with.p99(storm.clone()) <= 450, "{} ms", with.p99(storm.clone()));
    // Afterwards everything that comes is answered.
    assert!(with.goodput(after.clone()) >= 0.79, "{}", with.goodput(after.clone()));
    // The same without shedding collapses, and the end of the storm does not end it.
    assert!(without.goodput(storm) < 0.1);
    assert!(without.goodput(after) < 0.1);

    let drawn = plot::draw(&with, &without);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/overload.svg");
    if std::env::var_os("ONCEWARD_BLESS").is_some() {
        std::fs::write(&path, &drawn).expect("the plot can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == drawn, "docs/overload.svg is not what this test draws; ONCEWARD_BLESS=1 writes it again");
}
