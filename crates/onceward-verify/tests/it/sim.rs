//! Tests of the simulator: the same seed gives the same history, and the real engine keeps its promises.

use onceward_verify::sim::play;
use onceward_verify::sim::seeds::{OnFailure, run_seeds};
use onceward_verify::sim::timeline::timeline;
use onceward_verify::sim::variant::Variant;

/// Seeds that are played twice.
const TWICE: u64 = 300;
/// Seeds that the real engine must pass here; `./check` plays thousands more.
const SEEDS: u64 = 3_000;

#[test]
fn same_seed_gives_same_history() {
    let mut digests = std::collections::BTreeSet::new();
    for seed in 0..TWICE {
        let (one, other) = (play(seed, &Variant::sound()), play(seed, &Variant::sound()));
        if one.digest() != other.digest() {
            let (one, other) = (timeline(&one.history, &[]), timeline(&other.history, &[]));
            let differs = one.lines().zip(other.lines()).find(|(one, other)| one != other);
            panic!("seed {seed} gave two histories, which first differ in {differs:#?}");
        }
        digests.insert(one.digest());
    }
    assert_eq!(digests.len() as u64, TWICE, "other seeds give other histories");
}

/// Other simulations on other threads of the same process do not affect a simulation.
#[test]
fn same_seed_gives_same_history_beside_others() {
    let alone: Vec<u64> = (0..40).map(|seed| play(seed, &Variant::sound()).digest()).collect();
    let beside = std::thread::scope(|scope| {
        let noise = scope.spawn(|| run_seeds(1_000, 40, 1, OnFailure::Count, Variant::sound, || {}));
        let beside: Vec<u64> = (0..40).rev().map(|seed| play(seed, &Variant::sound()).digest()).collect();
        noise.join().expect("the noise ends");
        beside
    });
    assert!(alone.iter().eq(beside.iter().rev()), "a simulation depends on what runs beside it");
}

#[test]
fn sound_engine_keeps_every_promise() {
    let sum = run_seeds(0, SEEDS, 2, OnFailure::Stop, Variant::sound, || {});
    if let Some(failure) = sum.failure {
        panic!("seed {}\n{}", failure.seed, timeline(&failure.history, &failure.violations));
    }
    assert!(sum.runs > sum.seeds, "the simulations do too little: {} runs in {} seeds", sum.runs, sum.seeds);
    let [enqueued, commits, dead] = [sum.enqueued, sum.commits, sum.dead];
    assert!(enqueued * 4 > sum.seeds, "too little is left to workers: {enqueued} in {} seeds", sum.seeds);
    assert!(commits * 4 > sum.seeds, "too few transactions: {commits} in {} seeds", sum.seeds);
    assert!(dead * 20 > sum.seeds, "too few dead letters: {dead} in {} seeds", sum.seeds);
    assert!(sum.faults.values().all(|count| *count > 0), "some faults never happen: {:?}", sum.faults);
}
