//! Closing an intent that must not be run, and forgetting one that did not happen.

use onceward::{Changed, ErrorKind, Lease, OnUnknown, Outcome, Policy, Receipt, Settlement, State, Stopped};

use crate::cluster::{Cluster, ask, ask_for, id, paid, secs};

fn under(on_unknown: OnUnknown) -> Policy {
    Policy::http()
        .to_builder()
        .with_lease(secs(10))
        .with_on_unknown(on_unknown)
        .with_tries_max(2)
        .build()
        .unwrap()
}

async fn stops(_: Lease) -> Result<Outcome, Stopped> {
    Err(Stopped::unknown("the wire broke"))
}

/// The caller who undoes an intent leaves out its compensation if it can be closed: so nothing is closed that may have happened.
#[tokio::test(start_paused = true)]
async fn what_may_have_taken_effect_is_not_closed_before_it_is_settled() {
    let cluster = Cluster::new();
    let (onceward, policy) = (cluster.process(), under(OnUnknown::Retry));
    let transactions = cluster.store.transactions();
    onceward.run(ask("k", &policy).with_input("x"), stops).await.unwrap_err();
    for state in [State::Waiting, State::Dead] {
        let found = onceward.receipt(&id("k")).await.unwrap().unwrap();
        assert_eq!(found.status.state(), state);
        let mut tx = transactions.open();
        for closed in [
            onceward.close(&id("k"), &policy).await,
            onceward.close_found(&id("k"), Some(&found), &policy).await,
            onceward.close_in(&mut tx, &id("k"), &policy).await,
        ] {
            assert_eq!(closed.unwrap_err().kind(), ErrorKind::Conflict, "{state}");
        }
        assert_eq!(
            onceward.receipt(&id("k")).await.unwrap().map(|now: Receipt| now.version),
            Some(found.version)
        );
        if state == State::Waiting {
            onceward.run(ask("k", &policy).with_input("x"), stops).await.unwrap_err();
        }
    }
    let fence = onceward.receipt(&id("k")).await.unwrap().unwrap().status.fence();
    onceward.settle(&id("k"), fence, &Settlement::NotDone, &policy).await.unwrap();
    assert_eq!(onceward.close(&id("k"), &policy).await.unwrap(), Changed::Applied, "settled as not done");
}

/// A person who discards a dead intent takes it upon themselves.
#[tokio::test(start_paused = true)]
async fn the_dead_are_discarded_whatever_they_have_done() {
    let (onceward, policy) = (Cluster::new().process(), under(OnUnknown::Retry));
    for _ in 0..2 {
        onceward.run(ask("k", &policy).with_input("x"), stops).await.unwrap_err();
    }
    assert_eq!(onceward.discard_dead(&id("k"), &policy).await.unwrap(), Changed::Applied);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_forgotten_only_as_it_was_found_and_with_its_steps() {
    let (onceward, policy) = (Cluster::new().process(), under(OnUnknown::Hold));
    let steps = async |lease: Lease| {
        lease.step("one", paid).await?;
        Err(Stopped::unknown("the wire broke"))
    };
    onceward.run(ask_for("k", "one", &policy), steps).await.unwrap_err();
    let found = onceward.receipt(&id("k")).await.unwrap().unwrap();
    let fence = found.status.fence();
    onceward.settle(&id("k"), fence, &Settlement::NotDone, &policy).await.unwrap();
    // Read as unknown, and settled since.
    assert!(matches!(onceward.forget_unknown(&id("k"), &found).await.unwrap(), Changed::NotOwner(Some(_))));
    assert_eq!(
        onceward.steps(&id("k"), None, 10).await.unwrap().found.len(),
        1,
        "its next run needs the step"
    );
    let settled = onceward.receipt(&id("k")).await.unwrap().unwrap();
    assert_eq!(onceward.forget_unknown(&id("k"), &settled).await.unwrap_err().kind(), ErrorKind::Conflict);

    onceward.run(ask_for("k", "one", &policy), stops).await.unwrap_err();
    let found = onceward.receipt(&id("k")).await.unwrap().unwrap();
    assert_eq!(onceward.forget_unknown(&id("k"), &found).await.unwrap(), Changed::Applied);
    assert!(onceward.steps(&id("k"), None, 10).await.unwrap().found.is_empty());
    let other =
        onceward.run(ask_for("k", "another body", &policy), paid).await.unwrap().into_result().unwrap();
    assert!(!other.replayed, "the name is free");
}
