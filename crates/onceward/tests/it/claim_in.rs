//! Claims inside a transaction that the caller holds.

use onceward::{
    Answer, Attempt, Claimed, ErrorKind, Fence, Lease, OnFailure, OnUnknown, Outcome, Policy, Refusal, State,
    Stopped, Ticket,
};

use crate::cluster::{Cluster, Fault, ask, id, never, run_ready_tasks, secs};

fn under(on_unknown: OnUnknown) -> Policy {
    Policy::http().to_builder().with_lease(secs(10)).with_on_unknown(on_unknown).build().unwrap()
}

fn granted(claimed: Claimed) -> Ticket {
    match claimed {
        Claimed::Granted(ticket) => ticket,
        Claimed::Answered(answer) => panic!("not granted: {answer:?}"),
    }
}

/// A claim of this process whose work never began counts as free in a transaction too.
#[tokio::test(start_paused = true)]
async fn a_claim_that_must_be_released_is_free_inside_a_transaction() {
    let cluster = Cluster::new();
    let (onceward, policy) = (cluster.process(), under(OnUnknown::Hold));
    // Its claim is in the store, and its answer is lost, as is that of the look that follows.
    cluster.store.script([Fault::LoseReply, Fault::Refuse, Fault::Refuse, Fault::Refuse]);
    cluster.store.fail_loads(3);
    onceward.run(ask("k", &policy), never).await.unwrap_err();
    run_ready_tasks().await;
    cluster.store.heal();
    assert_eq!(onceward.receipt(&id("k")).await.unwrap().unwrap().status.state(), State::Held);
    let mut tx = cluster.store.transactions().open();
    let ticket = granted(onceward.claim_in(&mut tx, &ask("k", &policy)).await.unwrap());
    onceward.complete_in(&mut tx, &ticket, &Outcome::succeeded("inside")).await.unwrap();
    tx.commit().unwrap();
    assert_eq!(onceward.receipt(&id("k")).await.unwrap().unwrap().status.state(), State::Done);
}

#[tokio::test(start_paused = true)]
async fn a_lapsed_run_is_written_down_as_unknown_by_the_transaction_that_finds_it() {
    let cluster = Cluster::new();
    let (onceward, policy) = (cluster.process(), under(OnUnknown::Hold));
    granted(onceward.claim(ask("k", &policy)).await.unwrap());
    tokio::time::sleep(secs(11)).await;
    for (commits, state) in [(false, State::Held), (true, State::Unknown)] {
        let mut tx = cluster.store.transactions().open();
        let claimed = onceward.claim_in(&mut tx, &ask("k", &policy)).await.unwrap();
        assert_eq!(claimed, Claimed::Answered(Answer::Refused(Refusal::OutcomeUnknown)));
        if commits {
            tx.commit().unwrap();
        }
        assert_eq!(onceward.receipt(&id("k")).await.unwrap().unwrap().status.state(), state);
    }
    assert_eq!(onceward.counts().takeovers, 0);
}

/// The same attempt may claim again; that is no takeover, and the later ticket is the one that counts.
#[tokio::test(start_paused = true)]
async fn a_claim_of_the_same_attempt_is_claimed_again() {
    let cluster = Cluster::new();
    let (onceward, policy) = (cluster.process(), under(OnUnknown::Hold));
    let named = || ask("k", &policy).with_attempt(Attempt(7));
    let outside = granted(onceward.claim(named()).await.unwrap());
    let mut tx = cluster.store.transactions().open();
    let first = granted(onceward.claim_in(&mut tx, &named()).await.unwrap());
    let second = granted(onceward.claim_in(&mut tx, &named()).await.unwrap());
    assert!(outside.fence() < first.fence() && first.fence() < second.fence());
    tx.commit().unwrap();
    let fence = |receipt: Option<onceward::Receipt>| receipt.map_or(Fence(0), |found| found.status.fence());
    assert_eq!(fence(onceward.receipt(&id("k")).await.unwrap()), second.fence());
    assert_eq!(onceward.counts().takeovers, 0);
    for (ticket, applies) in [(outside, false), (first, false), (second, true)] {
        let changed = onceward.complete(&ticket, Outcome::succeeded("done")).await.unwrap();
        assert_eq!(changed == onceward::Changed::Applied, applies, "{ticket:?}");
    }
}

/// A takeover counts when it is committed: not when its transaction is rolled back, and once however often it is begun.
#[tokio::test(start_paused = true)]
async fn a_claim_in_a_transaction_counts_with_its_commit() {
    let cluster = Cluster::new();
    let (onceward, policy) = (cluster.process(), under(OnUnknown::Retry));
    let transactions = cluster.store.transactions();
    let counts = || (onceward.counts().claims, onceward.counts().takeovers, onceward.counts().completions);
    granted(onceward.claim(ask("k", &policy)).await.unwrap());
    tokio::time::sleep(secs(11)).await;
    assert_eq!(counts(), (1, 0, 0));
    // By hand: the first transaction is dropped.
    drop(granted(onceward.claim_in(&mut transactions.open(), &ask("k", &policy)).await.unwrap()));
    assert_eq!(counts(), (1, 0, 0));
    let mut tx = transactions.open();
    let ticket = granted(onceward.claim_in(&mut tx, &ask("k", &policy)).await.unwrap());
    onceward.complete_in(&mut tx, &ticket, &Outcome::succeeded("done")).await.unwrap();
    tx.commit().unwrap();
    assert_eq!(counts(), (2, 1, 1));

    // By the engine: the first try stops, and is rolled back.
    granted(onceward.claim(ask("other", &policy)).await.unwrap());
    tokio::time::sleep(secs(11)).await;
    for stops in [true, false] {
        let work = async |_, _| {
            if stops { Err(Stopped::before_effect("declined")) } else { Ok(Outcome::succeeded("done")) }
        };
        let answer = onceward.transact(&transactions, ask("other", &policy), work).await;
        assert_eq!(answer.is_err(), stops);
        assert_eq!(counts(), if stops { (3, 1, 1) } else { (4, 2, 2) });
    }
}

/// Under a policy that has failures tried again, a failure frees the key in a transaction too.
#[tokio::test(start_paused = true)]
async fn a_failure_that_may_be_tried_again_is_released_by_the_transaction() {
    let cluster = Cluster::new();
    let onceward = cluster.process();
    let policy = under(OnUnknown::Hold).to_builder().with_on_failure(OnFailure::Retry).build().unwrap();
    for input in [None, Some("12")] {
        let asked = || match input {
            None => ask("k", &policy),
            Some(input) => ask("with input", &policy).with_input(input),
        };
        for (outcome, state) in [
            (Outcome::failed("declined"), input.map(|_| State::Waiting)),
            (Outcome::succeeded("paid"), Some(State::Done)),
        ] {
            let mut tx = cluster.store.transactions().open();
            let ticket = granted(onceward.claim_in(&mut tx, &asked()).await.unwrap());
            onceward.complete_in(&mut tx, &ticket, &outcome).await.unwrap();
            tx.commit().unwrap();
            let receipt = onceward.receipt(asked().id()).await.unwrap();
            assert_eq!(receipt.as_ref().map(|found| found.status.state()), state, "{input:?}");
            let note = receipt.map(|found| found.status.note().to_owned()).unwrap_or_default();
            assert_eq!(state == Some(State::Waiting), note.contains("retries failures"), "{note}");
        }
    }
    let counts = onceward.counts();
    assert_eq!((counts.claims, counts.completions, counts.releases), (4, 2, 2));
}

/// A transaction that is rolled back claims nothing and so releases nothing: claims less releases is what is kept.
#[tokio::test(start_paused = true)]
async fn what_is_rolled_back_is_no_release() {
    let cluster = Cluster::new();
    let (onceward, transactions) = (cluster.process(), cluster.store.transactions());
    let policy = under(OnUnknown::Retry).to_builder().with_on_failure(OnFailure::Retry).build().unwrap();
    let counts = || (onceward.counts().claims, onceward.counts().completions, onceward.counts().releases);
    let stops = async |_, _| Err(Stopped::before_effect("declined"));
    onceward.transact(&transactions, ask("k", &policy), stops).await.unwrap_err();
    assert_eq!(counts(), (0, 0, 0));
    let fails = async |_, _| Ok(Outcome::failed("declined"));
    onceward.transact(&transactions, ask("k", &policy), fails).await.unwrap();
    assert_eq!(counts(), (0, 0, 0));
    assert!(onceward.receipt(&id("k")).await.unwrap().is_none());
    let pays = async |_, _| Ok(Outcome::succeeded("paid"));
    onceward.transact(&transactions, ask("k", &policy), pays).await.unwrap();
    assert_eq!(counts(), (1, 1, 0));
}

/// Several intents at a time, without a claim of their own before: what has a receipt is left alone.
#[tokio::test(start_paused = true)]
async fn outcomes_are_recorded_together_where_there_is_no_receipt() {
    let cluster = Cluster::new();
    let (onceward, policy) = (cluster.process(), under(OnUnknown::Hold));
    granted(onceward.claim(ask("held", &policy)).await.unwrap());
    let done = Outcome::succeeded("together");
    for commits in [false, true] {
        let mut tx = cluster.store.transactions().open();
        let asks = ["a", "held", "b"].map(|key| ask(key, &policy));
        assert_eq!(onceward.record_in(&mut tx, &asks, &done).await.unwrap(), [true, false, true]);
        if commits {
            tx.commit().unwrap();
        }
        let states = async |key| onceward.receipt(&id(key)).await.unwrap().map(|found| found.status.state());
        let expected = commits.then_some(State::Done);
        assert_eq!((states("a").await, states("b").await), (expected, expected));
        assert_eq!(states("held").await, Some(State::Held));
    }
    // They are receipts like any other: with a fence that grows, and an answer for every copy.
    let replayed = onceward.run(ask("a", &policy), never).await.unwrap().into_result().unwrap();
    assert!(replayed.replayed && replayed.outcome == done && replayed.fence > Fence(0));
    let mut tx = cluster.store.transactions().open();
    assert_eq!(onceward.record_in(&mut tx, &[ask("a", &policy)], &done).await.unwrap(), [false]);
    assert!(onceward.record_in(&mut tx, &[], &done).await.unwrap().is_empty());
    // What cannot be kept is refused before anything is written.
    let retried = policy.to_builder().with_on_failure(OnFailure::Retry).build().unwrap();
    onceward.record_in(&mut tx, &[ask("c", &retried)], &Outcome::failed("declined")).await.unwrap_err();
    onceward.record_in(&mut tx, &[ask("c", &policy).with_input("12")], &done).await.unwrap_err();
    assert!(onceward.receipt(&id("c")).await.unwrap().is_none());
}

/// A transaction wants its batch sorted by id, without an id twice; the caller need not know.
#[tokio::test(start_paused = true)]
async fn outcomes_are_recorded_in_any_order_and_no_intent_twice() {
    let cluster = Cluster::new();
    let (onceward, policy) = (cluster.process(), under(OnUnknown::Hold));
    granted(onceward.claim(ask("b", &policy)).await.unwrap());
    let done = Outcome::succeeded("together");
    let mut tx = cluster.store.transactions().open();
    let asks = ["d", "b", "c", "a"].map(|key| ask(key, &policy));
    assert_eq!(onceward.record_in(&mut tx, &asks, &done).await.unwrap(), [true, false, true, true]);
    let twice = ["x", "y", "x"].map(|key| ask(key, &policy));
    let refused = onceward.record_in(&mut tx, &twice, &done).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    tx.commit().unwrap();
    for (key, there) in [("a", true), ("c", true), ("d", true), ("x", false), ("y", false)] {
        assert_eq!(onceward.receipt(&id(key)).await.unwrap().is_some(), there, "{key}");
    }
}

/// The store lists steps in the order in which they were recorded, which need not be that of their ids.
#[tokio::test(start_paused = true)]
async fn the_steps_of_an_expired_intent_go_whatever_their_order_is() {
    let cluster = Cluster::new();
    let (onceward, policy) = (cluster.process(), under(OnUnknown::Hold));
    let policy = policy.to_builder().with_retention(onceward::Retention::For(secs(60))).build().unwrap();
    let steps = ["second", "first", "third"];
    let work = async |lease: Lease| {
        for name in steps {
            lease.step(name, async |_| Ok(Outcome::succeeded("recorded"))).await?;
        }
        Ok(Outcome::succeeded("done"))
    };
    onceward.run(ask("k", &policy), work).await.unwrap();
    tokio::time::sleep(secs(61)).await;
    let mut tx = cluster.store.transactions().open();
    let ticket = granted(onceward.claim_in(&mut tx, &ask("k", &policy)).await.unwrap());
    onceward.complete_in(&mut tx, &ticket, &Outcome::succeeded("again")).await.unwrap();
    tx.commit().unwrap();
    for name in steps {
        assert!(onceward.receipt(&id("k").step(name).unwrap()).await.unwrap().is_none(), "{name}");
    }
}
