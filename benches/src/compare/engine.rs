//! Measures the cost of the engine itself: one caller, the memory store, no waiting.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use onceward::{Ask, Fingerprint, Id, Lease, Onceward, Outcome, Policy, Stopped};
use onceward_stores::MemoryStore;

use crate::load::{runtime, touch_memory};
use crate::process::Missing;
use crate::report::{Findings, Goal, Row, Unit};
use crate::scale::Scale;
use crate::turns::Turns;

/// The work itself: an answer of 120 bytes, which has to be made with or without an engine.
#[expect(clippy::unused_async, reason = "work is async, also where it has nothing to wait for")]
pub async fn work() -> Result<Outcome, Stopped> {
    Ok(Outcome::succeeded(black_box(vec![b'x'; 120])))
}

/// The same, as the engine calls it.
pub async fn under_lease(_: Lease) -> Result<Outcome, Stopped> {
    work().await
}

/// Measures nanoseconds of a first run and of a replay.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let (runtime, calls) = (runtime(), scale.calls);
    touch_memory();
    // One engine for all rounds, and one round ahead: what is measured is the steady state, not the
    // growth of tables.
    let onceward = runtime.block_on(async { engine() });
    let [first, replay, bare] = Turns::new(scale.rounds, Unit::Nanoseconds).after_warm_up().take([
        ("first run", &mut |round| {
            let call = async |at| drop(black_box(onceward.run(ask(round, at), under_lease).await.unwrap()));
            runtime.block_on(nanos(calls, call)).into()
        }),
        ("replay", &mut |round| {
            let call = async |_| drop(black_box(onceward.run(ask(round, 0), under_lease).await.unwrap()));
            runtime.block_on(nanos(calls, call)).into()
        }),
        ("bare closure", &mut |_| {
            runtime.block_on(nanos(calls, async |_| drop(black_box(work().await)))).into()
        }),
    ]);
    let rows = vec![
        Row::excess("first run over the bare closure", Unit::Nanoseconds, &first, &bare)
            .goal(Goal::Below(1_500.0)),
        Row::alone("replay", Unit::Nanoseconds, &replay).goal(Goal::Below(1_000.0)),
    ];
    Ok(Findings { rows, ..Findings::default() })
}

/// An engine over the memory store.
pub fn engine() -> Onceward {
    Onceward::builder(Arc::new(MemoryStore::new())).accept_volatile().build().unwrap()
}

/// A cheap ask for a numbered intent.
pub fn ask(round: usize, at: usize) -> Ask {
    thread_local! {
        static POLICY: Arc<Policy> = Arc::new(Policy::http());
    }
    let mut key = [b'0'; 16];
    let (mut rest, mut place) = (round * 10_000_000 + at, 15);
    while rest > 0 {
        key[place] = b'0' + u8::try_from(rest % 10).unwrap();
        (rest, place) = (rest / 10, place.saturating_sub(1));
    }
    let id = Id::new("tenant", "POST /charges", std::str::from_utf8(&key).unwrap()).unwrap();
    Ask::new(id, Fingerprint::new(1, [7; 32]), POLICY.with(Arc::clone))
}

/// Nanoseconds of one call, averaged over `calls` calls in a row.
async fn nanos(calls: usize, call: impl AsyncFn(usize)) -> f64 {
    let start = Instant::now();
    for at in 0..calls {
        call(at).await;
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}
