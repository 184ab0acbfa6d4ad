//! What the engine itself costs: one caller, the memory store, no waiting anywhere.

#![expect(clippy::cast_precision_loss, reason = "a benchmark prints a few digits")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use onceward::{Ask, Fingerprint, Id, Lease, Onceward, Outcome, Policy, Stopped};
use onceward_stores::MemoryStore;

use crate::table::{Table, median};

const ROUNDS: usize = 7;

/// The work itself: an answer of 120 bytes, which has to be made with or without an engine.
#[expect(clippy::unused_async, reason = "work is async, also where it has nothing to wait for")]
pub async fn work() -> Result<Outcome, Stopped> {
    Ok(Outcome::succeeded(black_box(vec![b'x'; 120])))
}

pub async fn under_lease(_: Lease) -> Result<Outcome, Stopped> {
    work().await
}

pub fn run(calls: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let table = Table::start("engine over the memory store, one caller");
    runtime.block_on(async {
        let (mut bare, mut first, mut replay) = (Vec::new(), Vec::new(), Vec::new());
        // One engine for all rounds, and one round ahead: what is measured is the steady state, not
        // the growth of tables.
        let onceward = engine();
        for round in 0..=ROUNDS {
            let mut at = 0;
            let first_nanos = nanos(calls, async || {
                at += 1;
                black_box(onceward.run(ask(round, at), under_lease).await.unwrap());
            });
            let first_nanos = first_nanos.await;
            let replay_nanos = nanos(calls, async || {
                drop(black_box(onceward.run(ask(round, calls), under_lease).await.unwrap()));
            });
            let replay_nanos = replay_nanos.await;
            let bare_nanos = nanos(calls, async || drop(black_box(work().await))).await;
            if round > 0 {
                first.push(first_nanos);
                replay.push(replay_nanos);
                bare.push(bare_nanos);
            }
        }
        let (bare, first, replay) = (median(bare), median(first), median(replay));
        let over = first - bare;
        table.row("bare closure", &format!("{bare:.0} ns"), "", None);
        table.row(
            "first run over the bare closure",
            &format!("{over:.0} ns"),
            "< 1500 ns",
            Some(over < 1_500.0),
        );
        table.row("replay", &format!("{replay:.0} ns"), "< 1000 ns", Some(replay < 1_000.0));
    });
}

pub fn engine() -> Onceward {
    Onceward::builder(Arc::new(MemoryStore::new())).accept_volatile().build().unwrap()
}

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

async fn nanos(calls: usize, mut call: impl AsyncFnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        call().await;
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}
