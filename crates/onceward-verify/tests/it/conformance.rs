//! A correct store passes the conformance suite. `broken` tests that wrong stores are caught.

use onceward_verify::broken::stores::StoreFlaw;
use onceward_verify::broken::table::{self, Flaw};
use onceward_verify::conformance;
use onceward_verify::reference::Reference;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reference_passes() {
    conformance::run(async || Ok(Reference::fresh()), Reference::announced()).await;
}

#[tokio::test]
async fn reference_passes_on_one_thread() {
    conformance::run(async || Ok(Reference::fresh()), Reference::announced()).await;
}

#[test]
fn every_flaw_of_a_store_is_hunted() {
    for flaw in StoreFlaw::ALL {
        let hunted = table::all().any(|broken| matches!(broken.flaw, Flaw::Store(of) if of == flaw));
        assert!(hunted, "{flaw:?} is not in the table");
    }
}
