//! The simulator, simulated: the same seed gives the same history, and the real engine keeps its promises.

use onceward_verify::sim::fleet::{OnFailure, sail};
use onceward_verify::sim::play;
use onceward_verify::sim::timeline::timeline;
use onceward_verify::sim::variant::Variant;

#[test]
fn same_seed_gives_same_history() {
    for seed in 0..300 {
        let (one, other) = (play(seed, &Variant::sound()), play(seed, &Variant::sound()));
        assert_eq!(one.digest(), other.digest(), "seed {seed} gave two histories");
    }
}

#[test]
fn sound_engine_keeps_every_promise() {
    let sum = sail(0, 3000, 2, OnFailure::Stop, Variant::sound, || {});
    if let Some(failure) = sum.failure {
        panic!("seed {}\n{}", failure.seed, timeline(&failure.history, &failure.violations));
    }
    assert!(sum.runs > sum.seeds, "the worlds are too quiet: {} runs in {} seeds", sum.runs, sum.seeds);
    assert!(sum.faults.values().all(|count| *count > 0), "some faults never happen: {:?}", sum.faults);
}
