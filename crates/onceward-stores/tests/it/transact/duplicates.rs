//! Tests of duplicates, one after the other and at the same time, in one process and in two.

use std::sync::Arc;
use std::time::Duration;

use onceward::{Answer, Applied, Ask, ErrorKind, Fingerprint, OnDuplicate, Policy, Refusal};

use crate::bank::{Bank, Process, Then, ask, ask_under, first_of, replay_of, said};

pub(super) async fn every<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    once_and_then_the_same_answer(bank, one, two).await;
    wait_for_a_commit(bank, one, two).await;
    run_after_a_rollback(bank, one, two).await;
    run_after_a_drop(bank, one, two).await;
    are_told_if_they_do_not_wait(bank, one, two).await;
    come_in_crowds(bank, one, two).await;
}

/// To the same process, and to another.
async fn once_and_then_the_same_answer<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    assert_eq!(said(one.charge(ask("plain")).await), first_of("one", "plain"));
    assert_eq!(said(one.charge(ask("plain")).await), replay_of("one", "plain"));
    assert_eq!(said(two.charge(ask("plain")).await), replay_of("one", "plain"));
    let other = Ask::new(ask("plain").id().clone(), Fingerprint::of(b"13"), Arc::new(Policy::http()));
    assert_eq!(two.charge(other).await.unwrap(), Answer::Refused(Refusal::KeyReused));
    assert_eq!(bank.count("plain"), 1);
}

async fn wait_for_a_commit<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let first = one.charge_slowly(ask("commit")).await;
    let second = two.charge_beside(ask("commit"));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!second.is_finished());
    assert_eq!(said(first.end(Then::Succeed).await), first_of("one", "commit"));
    assert_eq!(said(second.await.unwrap()), replay_of("one", "commit"));
    assert_eq!(bank.count("commit"), 1);
}

async fn run_after_a_rollback<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let first = one.charge_slowly(ask("rollback")).await;
    let second = two.charge_beside(ask("rollback"));
    let error = first.end(Then::Stop).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Stopped, Applied::No), "{error}");
    assert_eq!(said(second.await.unwrap()), first_of("two", "rollback"));
    assert_eq!(bank.count("rollback"), 1);
}

/// While it works.
async fn run_after_a_drop<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let first = one.charge_slowly(ask("drop")).await;
    let second = two.charge_beside(ask("drop"));
    first.running.abort();
    assert_eq!(said(second.await.unwrap()), first_of("two", "drop"));
    assert_eq!(said(one.charge(ask("drop")).await), replay_of("two", "drop"));
    assert_eq!(bank.count("drop"), 1);
}

async fn are_told_if_they_do_not_wait<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let conflict = || Policy::http().to_builder().with_on_duplicate(OnDuplicate::Conflict).build().unwrap();
    let first = one.charge_slowly(ask("conflict")).await;
    for process in [one, two] {
        let answer = process.charge(ask_under("conflict", conflict())).await.unwrap();
        assert!(matches!(answer, Answer::Refused(Refusal::InProgress { .. })), "{answer:?}");
    }
    assert_eq!(said(first.end(Then::Succeed).await), first_of("one", "conflict"));
    assert_eq!(bank.count("conflict"), 1);
}

/// A crowd in two processes: one charge, one answer.
async fn come_in_crowds<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    for round in 0..5 {
        let key = format!("crowd-{round}");
        let crowd: Vec<_> =
            (0..60).map(|number| if number % 2 == 0 { one } else { two }.charge_beside(ask(&key))).collect();
        let mut answers = Vec::new();
        for one in crowd {
            answers.push(said(one.await.unwrap()));
        }
        assert_eq!(answers.iter().filter(|(_, replayed)| !replayed).count(), 1);
        assert!(answers.iter().all(|(outcome, _)| *outcome == answers[0].0), "{answers:?}");
        assert_eq!(bank.count(&key), 1);
    }
}
