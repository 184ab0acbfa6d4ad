//! Tests of work that ends in failure or with a retention of its own, and receipts that were claimed outside of any transaction.

use std::time::Duration;

use onceward::{
    Answer, Changed, Due, Fence, Lease, OnFailure, Outcome, Policy, Prior, Refusal, Retention, Settlement,
    State,
};

use crate::bank::{Bank, Process, Round, Then, Tx, ask, ask_under, claimed, first_of, ran, replay_of, said};

pub(super) async fn every<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    a_failure_is_the_answer(bank, one, two).await;
    a_failure_is_undone_and_forgotten(bank, one, two).await;
    a_failure_in_a_transaction_of_the_callers_own(bank, one, two).await;
    a_recorded_failure_is_final(bank, one, two).await;
    an_outcome_is_kept_for_as_long_as_it_says(one).await;
    a_run_outside_is_waited_for(bank, one, two).await;
    a_receipt_given_back_is_no_obstacle(bank, one, two).await;
    what_was_settled_as_not_done_is_begun(bank, one, two).await;
    what_waits_is_begun_with_its_input(bank, one, two).await;
    steps_are_found_by_their_intent(bank, one).await;
}

/// With all that the work wrote.
async fn a_failure_is_the_answer<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let first = one.charge_slowly(ask("failed")).await;
    assert_eq!(ran(first.end(Then::Fail).await).outcome, Outcome::failed("declined"));
    assert_eq!(ran(two.charge(ask("failed")).await).outcome, Outcome::failed("declined"));
    assert_eq!(bank.count("failed"), 1);
}

async fn a_failure_is_undone_and_forgotten<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let retry =
        || ask_under("retry", Policy::http().to_builder().with_on_failure(OnFailure::Retry).build().unwrap());
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
    one.onceward.complete(&ticket, outcome).await.unwrap();
    assert_eq!(said(second.await.unwrap()), replay_of("one", "held"));
    assert_eq!(bank.count("held"), 0);
}

/// And fences only grow.
async fn a_receipt_given_back_is_no_obstacle<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let ticket = claimed(one.onceward.claim(ask("released")).await);
    one.onceward.release(&ticket).await.unwrap();
    let next = ran(two.charge(ask("released")).await);
    assert!(!next.replayed && next.fence > ticket.fence());
    assert_eq!(bank.count("released"), 1);
}

/// The claim is given back in the same transaction: what the caller wrote beside it stands, and the key is free.
async fn a_failure_in_a_transaction_of_the_callers_own<B: Bank>(
    bank: &B,
    one: &Process<B>,
    two: &Process<B>,
) {
    bank.in_a_transaction_of_the_callers_own(one, Round::FailedAndKept).await;
    assert_eq!(two.onceward.receipt(ask("failed own").id()).await.unwrap(), None);
    assert_eq!(said(two.charge(ask("failed own")).await), first_of("two", "failed own"));
}

/// An asker whose policy has failures tried again gets it replayed all the same.
async fn a_recorded_failure_is_final<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let first = one.charge_slowly(ask("final")).await;
    assert_eq!(ran(first.end(Then::Fail).await).outcome, Outcome::failed("declined"));
    let again = ran(two
        .charge(ask_under(
            "final",
            Policy::http().to_builder().with_on_failure(OnFailure::Retry).build().unwrap(),
        ))
        .await);
    assert_eq!((again.outcome, again.replayed), (Outcome::failed("declined"), true));
    assert_eq!(bank.count("final"), 1);
}

/// What the caller is told is what is on record.
async fn an_outcome_is_kept_for_as_long_as_it_says<B: Bank>(one: &Process<B>) {
    for keep in [Retention::For(Duration::from_mins(60)), Retention::Forever] {
        let asked = ask(&format!("kept {keep:?}"));
        let work = async |_: Lease, _: Tx<B>| Ok(Outcome::succeeded("x").with_retention(keep));
        let ran = ran(one.onceward.transact(&one.transactions, asked.clone(), work).await);
        assert_eq!(ran.expires_in, keep.duration(), "{keep:?}");
        let receipt = one.onceward.receipt(asked.id()).await.unwrap().expect("it is kept");
        match (receipt.due, keep.duration()) {
            (Due::Never, None) => {}
            (Due::In(left), Some(keep)) => assert!(left <= keep + keep / 64 && left > keep / 2, "{left:?}"),
            (due, _) => panic!("{keep:?}: {due:?}"),
        }
    }
}

/// It waits, with what is known of it, and the next ask takes it over as the first write of a transaction.
async fn what_was_settled_as_not_done_is_begun<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let ticket = claimed(one.onceward.claim(ask("settled")).await);
    assert_eq!(one.onceward.mark_unknown(&ticket).await.unwrap(), Changed::Applied);
    let refused = two.charge(ask("settled")).await.unwrap();
    assert_eq!(refused, Answer::Refused(Refusal::OutcomeUnknown));
    let settle = async |fence: Fence| {
        let settled = one.onceward.settle(ticket.id(), fence, &Settlement::NotDone, &Policy::http()).await;
        settled.unwrap()
    };
    assert_eq!(settle(ticket.fence()).await, Changed::Applied);
    let waiting = one.onceward.receipt(ticket.id()).await.unwrap().expect("it waits");
    assert_eq!(waiting.status.state(), State::Waiting);
    let work = async |lease: Lease, tx: Tx<B>| {
        assert_eq!(lease.prior(), Prior::Settled);
        assert!(lease.fence() > ticket.fence());
        B::charge(&tx, "settled").await?;
        Ok(Outcome::succeeded("two charged settled"))
    };
    let taken_over = two.onceward.transact(&two.transactions, ask("settled"), work).await;
    assert_eq!(said(taken_over), first_of("two", "settled"));
    assert_eq!(said(one.charge(ask("settled")).await), replay_of("two", "settled"));
    assert_eq!(bank.count("settled"), 1);
}

/// Who asks does not wait for a worker, or for the time at which one may begin.
async fn what_waits_is_begun_with_its_input<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let enqueued = ask("waits").with_input("12").with_delay(Duration::from_mins(60));
    one.onceward.enqueue(enqueued).await.unwrap();
    let work = async |lease: Lease, tx: Tx<B>| {
        assert_eq!(lease.input().map(|input| &input[..]), Some(&b"12"[..]));
        B::charge(&tx, "waits").await?;
        Ok(Outcome::succeeded("two charged waits"))
    };
    let taken_over = two.onceward.transact(&two.transactions, ask("waits"), work).await;
    assert_eq!(said(taken_over), first_of("two", "waits"));
    assert_eq!(said(one.charge(ask("waits")).await), replay_of("two", "waits"));
    assert_eq!(bank.count("waits"), 1);
}

async fn steps_are_found_by_their_intent<B: Bank>(bank: &B, one: &Process<B>) {
    let run = async |lease: Lease| {
        for name in ["first", "second"] {
            let step = async |_: Lease, tx: Tx<B>| {
                B::charge(&tx, name).await?;
                Ok(Outcome::succeeded(name))
            };
            lease.step_in(&one.transactions, name, step).await?.into_result()?;
        }
        // A step of a step is not one of the intent's.
        let nested = async |step: Lease| {
            step.step("inner", async |_| Ok(Outcome::succeeded("inner"))).await?.into_result()?;
            Ok(Outcome::succeeded("outer"))
        };
        lease.step("third", nested).await?.into_result()?;
        Ok(Outcome::succeeded("all"))
    };
    // Others with a name that begins alike, or the same key.
    ran(one.charge(ask("steps and more")).await);
    ran(one.onceward.run(ask("steps"), run).await);
    let id = ask("steps").id().clone();
    let mut names = Vec::new();
    let mut after = None;
    loop {
        let page = one.onceward.steps(&id, after, 2).await.unwrap();
        names.extend(page.found.into_iter().map(|(id, _)| id.operation().to_owned()));
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    names.sort();
    assert_eq!(names, ["charge#first", "charge#second", "charge#third"]);
    let inner = one.onceward.steps(&id.step("third").unwrap(), None, 10).await.unwrap().found;
    assert_eq!(inner.iter().map(|(id, _)| id.operation()).collect::<Vec<_>>(), ["charge#third#inner"]);
    assert_eq!(bank.count("first") + bank.count("second"), 2);
}
