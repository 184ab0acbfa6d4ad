//! Looks for the flaw of one broken variant with the conformance suite, the simulator, or both.

use std::fmt;
use std::sync::Arc;

use super::stores::{BrokenStore, StoreFlaw};
use super::table::{Broken, Flaw};
use crate::conformance;
use crate::reference::Reference;
use crate::sim::seeds::{OnFailure, run_seeds};
use crate::sim::variant::Variant;

/// The number of seeds within which a variant must be caught: as many as `./check` runs. Most do within a few dozen
/// and the rarest in some five hundred, so none passes by chance when simulations change.
pub const SEEDS_MAX: u64 = 5_000;

/// Who is expected to catch a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Catcher {
    /// The conformance suite: what is wrong shows in the store alone.
    Conformance,
    /// The simulator and its checker: the flaw shows in a history.
    Simulator,
}

impl fmt::Display for Catcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Conformance => "conformance",
            Self::Simulator => "simulator",
        })
    }
}

/// How a variant was caught.
#[derive(Clone, Debug)]
pub struct Catch {
    /// The check that failed, or the promise that was broken.
    pub by: String,
    /// The message.
    pub detail: String,
    /// How many seeds it took; `None` for the conformance suite, which has no seeds.
    pub seeds: Option<u64>,
}

/// Hunts a variant with one of its catchers. `None` means that it survived.
pub fn search(broken: &Broken, catcher: Catcher, seeds_max: u64, jobs: usize) -> Option<Catch> {
    match (catcher, broken.flaw) {
        (Catcher::Conformance, Flaw::Store(flaw)) => by_conformance(flaw),
        (Catcher::Conformance, _) => None,
        (Catcher::Simulator, flaw) => by_simulator(flaw, seeds_max, jobs),
    }
}

fn by_conformance(flaw: StoreFlaw) -> Option<Catch> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let make = async || Ok(BrokenStore::wrap(Reference::fresh(), flaw, &Arc::default()));
    let checking = conformance::first_failure(make, flaw.caps(Reference::announced()));
    let failure = runtime.expect("a runtime can be had").block_on(checking)?;
    Some(Catch { by: failure.check.to_owned(), detail: failure.wrong, seeds: None })
}

fn by_simulator(flaw: Flaw, seeds_max: u64, jobs: usize) -> Option<Catch> {
    let sum = run_seeds(0, seeds_max, jobs, OnFailure::Stop, || flaw.variant(), || {});
    let failure = sum.failure?;
    let first = failure.violations.first()?;
    Some(Catch { by: first.rule.to_owned(), detail: first.detail.clone(), seeds: Some(failure.seed + 1) })
}

impl Flaw {
    /// A fresh variant with this flaw, for one simulation.
    pub fn variant(self) -> Variant {
        let sound = Variant::sound();
        match self {
            Self::Store(flaw) => Variant { store: Some((flaw, Arc::default())), ..sound },
            Self::Runtime(runtime) => Variant { runtime, ..sound },
            Self::Rules(rules) => Variant { rules, ..sound },
            Self::Sweep(flaw) => Variant { sweeps: Some(flaw), ..sound },
            Self::Caller(caller) => Variant { caller, ..sound },
            Self::Worker(worker) => Variant { worker, ..sound },
            Self::Transactions(transactions) => Variant { transactions, ..sound },
            Self::Operator(operator) => Variant { operator, ..sound },
            Self::Front(front) => Variant { front, ..sound },
            Self::Unsynced => Variant { unsynced: true, ..sound },
            Self::ForgetsOwed => Variant { forgets_owed: true, ..sound },
        }
    }
}
