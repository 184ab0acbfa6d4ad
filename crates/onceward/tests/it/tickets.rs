//! Tickets: claims for callers that cannot pass a closure.

use std::sync::Arc;

use onceward::{
    Answer, Attempt, Changed, Claimed, ErrorKind, OnFailure, OnUnknown, Onceward, Outcome, Policy, Refusal,
    Ticket, Transactions,
};
use onceward_stores::{MemoryStore, MemoryTransactions};

use crate::cluster::{Cluster, Fault, ask, never, paid, secs};

fn policy() -> Policy {
    Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).with_lease(secs(10)).build().unwrap()
}

async fn claim(onceward: &onceward::Onceward, key: &str) -> Ticket {
    match onceward.claim(ask(key, &policy())).await.unwrap() {
        Claimed::Granted(ticket) => ticket,
        Claimed::Answered(answer) => panic!("{answer:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn claim_renew_complete_and_replay_also_from_another_process() {
    let cluster = Cluster::new();
    let (here, elsewhere) = (cluster.process(), cluster.process());
    let ticket = claim(&here, "k").await;
    for _ in 0..5 {
        tokio::time::sleep(secs(8)).await;
        assert_eq!(elsewhere.renew(&ticket).await.unwrap(), Changed::Applied);
    }
    let outcome = Outcome::succeeded("paid");
    assert_eq!(elsewhere.complete(&ticket, outcome.clone()).await.unwrap(), Changed::Applied);
    assert_eq!(here.complete(&ticket, outcome.clone()).await.unwrap(), Changed::Applied, "the same again");
    let other = here.complete(&ticket, Outcome::succeeded("something else")).await.unwrap();
    assert!(matches!(other, Changed::NotOwner(Some(_))), "a done outcome never changes");
    let Claimed::Answered(Answer::Completed(completed)) = here.claim(ask("k", &policy())).await.unwrap()
    else {
        panic!()
    };
    assert_eq!((completed.outcome, completed.fence), (outcome, ticket.fence()));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_not_renewed_is_taken_over_and_its_ticket_is_worth_nothing() {
    let onceward = Cluster::new().process();
    let old = claim(&onceward, "k").await;
    tokio::time::sleep(secs(11)).await;
    let new = claim(&onceward, "k").await;
    assert!(new.fence() > old.fence());
    for changed in [
        onceward.renew(&old).await.unwrap(),
        onceward.release(&old).await.unwrap(),
        onceward.mark_unknown(&old).await.unwrap(),
        onceward.complete(&old, Outcome::succeeded("late")).await.unwrap(),
    ] {
        assert!(matches!(changed, Changed::NotOwner(Some(_))), "{changed:?}");
    }
    assert_eq!(onceward.counts().fenced_off, 4);
    assert_eq!(onceward.complete(&new, Outcome::succeeded("in time")).await.unwrap(), Changed::Applied);
}

#[tokio::test(start_paused = true)]
async fn a_forged_ticket_opens_nothing() {
    let onceward = Cluster::new().process();
    let ticket = claim(&onceward, "k").await;
    let forged = {
        let other_attempt = Attempt(ticket.attempt().0 ^ 1);
        Ticket::new(ticket.id().clone(), other_attempt, ticket.fence(), policy())
    };
    let changed = onceward.complete(&forged, Outcome::succeeded("stolen")).await.unwrap();
    assert!(matches!(changed, Changed::NotOwner(Some(_))));
    assert_eq!(onceward.release(&ticket).await.unwrap(), Changed::Applied);
}

#[tokio::test(start_paused = true)]
async fn the_same_attempt_finds_its_own_claim() {
    let cluster = Cluster::new();
    let attempt = Attempt(42);
    let Claimed::Granted(first) =
        cluster.process().claim(ask("k", &policy()).with_attempt(attempt)).await.unwrap()
    else {
        panic!()
    };
    let Claimed::Granted(second) =
        cluster.process().claim(ask("k", &policy()).with_attempt(attempt)).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(first, second);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_obeys_the_policy_on_failures_and_unknown_outcomes() {
    let onceward = Cluster::new().process();
    let again = policy().to_builder().with_on_failure(OnFailure::Retry).build().unwrap();
    let ticket = claim(&onceward, "failed").await.with_policy(again.clone());
    onceward.complete(&ticket, Outcome::failed("no")).await.unwrap();
    assert!(!onceward.run(ask("failed", &again), paid).await.unwrap().into_result().unwrap().replayed);

    let hold = policy().to_builder().with_on_unknown(OnUnknown::Hold).build().unwrap();
    let ticket = claim(&onceward, "uncertain").await.with_policy(hold.clone());
    assert_eq!(onceward.mark_unknown(&ticket).await.unwrap(), Changed::Applied);
    assert_eq!(onceward.mark_unknown(&ticket).await.unwrap(), Changed::Applied, "the same again");
    assert_eq!(
        onceward.run(ask("uncertain", &hold), never).await.unwrap(),
        Answer::Refused(Refusal::OutcomeUnknown)
    );
    let changed = onceward.complete(&ticket, Outcome::succeeded("it was me")).await.unwrap();
    assert_eq!(changed, Changed::Applied, "the owner can still record its outcome");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_woken_by_a_completion_by_hand() {
    let onceward = Cluster::new().process();
    let ticket = claim(&onceward, "k").await;
    let waiter = tokio::spawn({
        let onceward = onceward.clone();
        async move { onceward.run(ask("k", &policy()), never).await }
    });
    tokio::time::sleep(secs(5)).await;
    let start = tokio::time::Instant::now();
    onceward.complete(&ticket, Outcome::succeeded("paid")).await.unwrap();
    assert!(waiter.await.unwrap().unwrap().into_result().unwrap().replayed);
    assert!(start.elapsed().as_millis() <= 2, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn lost_answers_of_a_ticket_are_resolved_by_looking() {
    for fault in [Fault::LoseReply, Fault::LoseWrite] {
        let cluster = Cluster::new();
        let onceward = cluster.process();
        let ticket = claim(&onceward, "k").await;
        cluster.store.script([fault]);
        let changed = onceward.complete(&ticket, Outcome::succeeded("paid")).await.unwrap();
        assert_eq!(changed, Changed::Applied, "{fault:?}");
        let ticket = claim(&onceward, "other").await;
        cluster.store.script([fault]);
        assert_eq!(onceward.release(&ticket).await.unwrap(), Changed::Applied, "{fault:?}");
    }
}

/// The parts of a ticket, sent elsewhere, make the same ticket again, also for a claim inside a transaction.
#[tokio::test]
async fn a_ticket_is_rebuilt_from_its_parts() {
    let rebuilt = |ticket: &Ticket| {
        Ticket::new(ticket.id().clone(), ticket.attempt(), ticket.fence(), ticket.policy().clone())
    };
    let store = MemoryStore::new();
    let onceward = Onceward::builder(Arc::new(store.clone())).accept_volatile().build().unwrap();
    let Claimed::Granted(ticket) = onceward.claim(ask("by hand", &policy())).await.unwrap() else { panic!() };
    assert_eq!(rebuilt(&ticket), ticket);
    let outcome = Outcome::succeeded("paid");
    assert_eq!(onceward.complete(&rebuilt(&ticket), outcome.clone()).await.unwrap(), Changed::Applied);

    let transactions = MemoryTransactions::new(&store);
    let mut tx = transactions.begin_bare(secs(1)).await.unwrap();
    let Claimed::Granted(ticket) = onceward.claim_in(&mut tx, &ask("inside", &policy())).await.unwrap()
    else {
        panic!()
    };
    let stranger = Ticket::new(ticket.id().clone(), Attempt(7), ticket.fence(), policy());
    let refused = onceward.complete_in(&mut tx, &stranger, &outcome).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    onceward.complete_in(&mut tx, &rebuilt(&ticket), &outcome).await.unwrap();
    tx.commit().unwrap();
    for key in ["by hand", "inside"] {
        let replay = onceward.run(ask(key, &policy()), never).await.unwrap().into_result().unwrap();
        assert_eq!((replay.outcome, replay.replayed), (outcome.clone(), true), "{key}");
    }
}
