//! A right store passes; each wrong one is caught by the check that is about its fault.

use std::sync::Arc;

use onceward_verify::broken::stores::{BrokenStore, StoreFlaw};
use onceward_verify::conformance;
use onceward_verify::reference::Reference;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reference_passes() {
    conformance::run(async || Ok(Reference::fresh()), Reference::CAPS).await;
}

#[tokio::test]
async fn reference_passes_on_one_thread() {
    conformance::run(async || Ok(Reference::fresh()), Reference::CAPS).await;
}

/// Which of them only faults can bring to light: those are the simulator's to catch.
const NEEDS_FAULTS: [StoreFlaw; 1] = [StoreFlaw::LostReplyIsNotApplied];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_stores_are_caught() {
    for flaw in StoreFlaw::ALL.into_iter().filter(|flaw| !NEEDS_FAULTS.contains(flaw)) {
        let make = async || Ok(BrokenStore::wrap(Reference::fresh(), flaw, &Arc::default()));
        let failure = conformance::first_failure(make, Reference::CAPS).await;
        assert!(failure.is_some(), "{flaw:?} passes every check");
    }
}
