//! Work that ends in failure, and receipts that were claimed outside of any transaction.

use std::time::Duration;

use onceward::{OnFailure, Outcome, Policy};

use crate::bank::{Bank, Process, Then, ask, ask_under, claimed, first_of, ran, replay_of, said};

pub(super) async fn every<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    a_failure_is_the_answer(bank, one, two).await;
    a_failure_is_undone_and_forgotten(bank, one, two).await;
    a_run_outside_is_waited_for(bank, one, two).await;
    a_receipt_given_back_is_no_obstacle(bank, one, two).await;
}

/// With all that the work wrote.
async fn a_failure_is_the_answer<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let first = one.charge_slowly(ask("failed")).await;
    assert_eq!(ran(first.end(Then::Fail).await).outcome, Outcome::failed("declined"));
    assert_eq!(ran(two.charge(ask("failed")).await).outcome, Outcome::failed("declined"));
    assert_eq!(bank.count("failed"), 1);
}

async fn a_failure_is_undone_and_forgotten<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let retry = || ask_under("retry", Policy::http().on_failure(OnFailure::Retry));
    let first = one.charge_slowly(retry()).await;
    assert_eq!(ran(first.end(Then::Fail).await).outcome, Outcome::failed("declined"));
    assert_eq!(bank.count("retry"), 0);
    assert_eq!(said(two.charge(retry()).await), first_of("two", "retry"));
}

async fn a_run_outside_is_waited_for<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let ticket = claimed(one.onceward.claim(ask("held")).await);
    let second = two.charge_beside(ask("held"));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!second.is_finished());
    let outcome = Outcome::succeeded("one charged held");
    one.onceward.complete(&ticket, &Policy::http(), outcome).await.unwrap();
    assert_eq!(said(second.await.unwrap()), replay_of("one", "held"));
    assert_eq!(bank.count("held"), 0);
}

/// And fences only grow.
async fn a_receipt_given_back_is_no_obstacle<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let ticket = claimed(one.onceward.claim(ask("released")).await);
    one.onceward.release(&ticket, &Policy::http()).await.unwrap();
    let next = ran(two.charge(ask("released")).await);
    assert!(!next.replayed && next.fence > ticket.fence);
    assert_eq!(bank.count("released"), 1);
}
