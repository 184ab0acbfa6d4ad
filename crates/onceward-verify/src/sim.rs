//! The deterministic simulator: many callers in several processes over one faulty store, all driven by one seed.
//! The same seed gives the same history, and a separate checker reads it.
//!
//! ```text
//! seed ─▶ scenario ─▶ simulation: callers, workers, maintenance, faults   checker ─▶ violations ─▶ timeline
//!                       │ engine per process                                 ▲
//!                       ▼                                                    │
//!                     executor (virtual time)  +  store, transactions ──▶ history
//! ```

mod callers;
pub mod checker;
mod commit;
mod enqueuers;
pub mod executor;
pub mod faults;
pub mod front;
mod handle;
pub mod history;
mod maintenance;
mod mistakes;
mod resumers;
pub mod runtime;
pub mod scenario;
pub mod seeds;
mod signals;
mod simulation;
pub mod store;
pub mod timeline;
mod transaction_callers;
pub mod transactions;
pub mod variant;
mod work;
mod workers;

use std::panic::{AssertUnwindSafe, catch_unwind};

use checker::{Violation, check};
use executor::OUTSIDE;
use history::{Event, EventKind};
use simulation::Simulation;
use variant::Variant;

/// The largest number of polls of a simulation; one that needs more is in an endless loop.
const POLLS_MAX: u64 = 400_000;

/// The result of one seed.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// All that happened.
    pub history: Vec<Event>,
    /// Every broken promise.
    pub violations: Vec<Violation>,
}

/// Runs the simulation of one seed and checks its history.
pub fn play(seed: u64, variant: &Variant) -> Outcome {
    let sim = Simulation::new(seed, variant);
    sim.begin();
    let played = catch_unwind(AssertUnwindSafe(|| sim.executor.run(POLLS_MAX, || sim.is_over())));
    if !sim.is_over() {
        let detail = match played {
            Ok(()) => "nothing is left to do, or too much was done, and it is not over".to_owned(),
            Err(panic) => format!("a panic that nobody expected: {}", words(&*panic)),
        };
        sim.recorder.record(OUTSIDE, EventKind::Wedged(detail));
    }
    let history = sim.recorder.take();
    // What dropping does now is no longer part of the history.
    sim.executor.clear();
    let violations = check(&history);
    Outcome { seed, history, violations }
}

fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words")
}

impl Outcome {
    /// A hash of the whole history.
    pub fn digest(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        for event in &self.history {
            format!("{event:?}").hash(&mut hasher);
        }
        hasher.finish()
    }
}
