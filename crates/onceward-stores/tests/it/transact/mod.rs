//! Receipts in the caller's own transaction: key and business write commit together or not at all,
//! whatever interferes at which point. The same tests on every engine and through every driver.

mod duplicates;
mod endings;
mod first_statement;
mod phases;
mod undone;

use std::sync::Arc;

use onceward::{ErrorKind, Onceward, Swap, Swapped};

use crate::bank::{Bank, Process, Round, ask, on_every_engine, replay_of, said};

on_every_engine!(every_scenario);

async fn every_scenario<B: Bank>(bank: &B) {
    let (one, two) = (Process::new(bank, "one").await, Process::new(bank, "two").await);
    duplicates::every(bank, &one, &two).await;
    endings::every(bank, &one, &two).await;
    first_statement::every(bank, &one).await;
    phases::die_one_after_the_other(bank, &one, &two).await;
    in_transactions_of_the_callers_own(bank, &one).await;
}

async fn in_transactions_of_the_callers_own<B: Bank>(bank: &B, process: &Process<B>) {
    for round in Round::ALL {
        bank.in_a_transaction_of_the_callers_own(process, round).await;
    }
    assert_eq!(bank.count("own"), 1);
    assert_eq!(said(process.charge(ask("own")).await), replay_of("one", "own"));
}

/// A transaction that must not be touched.
struct Nothing;

impl onceward::Join for Nothing {
    fn swap<'a>(&'a mut self, _: &'a [Swap]) -> onceward::StoreFuture<'a, Vec<Swapped>> {
        unreachable!("the store is asked first")
    }
}

#[cfg(feature = "embedded")]
#[tokio::test]
async fn a_store_that_cannot_join_says_so() {
    use onceward_stores::embedded::{EmbeddedStore, Options};

    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path(), Options::default()).await.unwrap();
    let onceward = Onceward::new(Arc::new(store)).unwrap();
    let error = onceward.claim_in(&mut Nothing, &ask("x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unfit, "{error}");
}
