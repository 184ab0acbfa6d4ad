//! The first caller gets no answer to its claim or its commit.

use std::sync::atomic::{AtomicUsize, Ordering};

use onceward::{Applied, ErrorKind};

use super::staged::{Loss, Staged};
use crate::bank::{Bank, Process, ask, first_of, replay_of, said};

/// `name` is a part of every key.
pub(super) async fn every<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>, name: &str) {
    claim(bank, one, two, name).await;
    found_out_after_the_duplicate(bank, one, two, name).await;
    found_out_beside_the_duplicate(bank, one, two, name).await;
    found_out_while_still_open(bank, one, two, name).await;
}

async fn claim<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>, name: &str) {
    let key = &format!("{name} claim");
    let (staged, worked) = (Staged::new(one.transactions.clone(), Loss::Claim), AtomicUsize::new(0));
    let error = one.charge_through(&staged, ask(key), &worked).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Unavailable, Applied::No), "{error}");
    assert_eq!((worked.load(Ordering::SeqCst), bank.count(key)), (0, 0));
    assert_eq!(said(two.charge(ask(key)).await), first_of("two", key));
    assert_eq!(said(one.charge(ask(key)).await), replay_of("two", key));
    assert_eq!(bank.count(key), 1);
}

/// The duplicate comes and goes while the first one still waits for an answer that never comes.
async fn found_out_after_the_duplicate<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>, name: &str) {
    let (answer, commit) = (&*format!("{name} answer"), &*format!("{name} commit"));
    for (key, loss, first, second) in [
        (answer, Loss::Answer, first_of("one", answer), replay_of("one", answer)),
        (commit, Loss::Commit, replay_of("two", commit), first_of("two", commit)),
    ] {
        let (staged, worked) = (Staged::new(one.transactions.clone(), loss), AtomicUsize::new(0));
        let (one, two) = tokio::join!(one.charge_through(&staged, ask(key), &worked), async {
            staged.reached.notified().await;
            let answer = two.charge(ask(key)).await;
            staged.go_on.notify_one();
            answer
        });
        assert_eq!((said(one), said(two)), (first, second), "{key}");
        assert_eq!((worked.load(Ordering::SeqCst), bank.count(key)), (1, 1), "{key}");
    }
}

/// The duplicate comes whenever it may, while the first one finds out.
async fn found_out_beside_the_duplicate<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>, name: &str) {
    for (what, loss) in [("answer beside", Loss::Answer), ("commit beside", Loss::Commit)] {
        let key = &*format!("{name} {what}");
        let (staged, worked) = (Staged::new(one.transactions.clone(), loss), AtomicUsize::new(0));
        staged.go_on.notify_one();
        let (first, second) = tokio::join!(one.charge_through(&staged, ask(key), &worked), async {
            // Only when the first one has the claim.
            staged.claimed.notified().await;
            two.charge(ask(key)).await
        });
        let (first, second) = (said(first), said(second));
        assert_eq!(first.0, second.0, "two answers for {key}");
        if loss == Loss::Answer {
            assert_eq!((first, second), (first_of("one", key), replay_of("one", key)));
            assert_eq!(worked.load(Ordering::SeqCst), 1);
        }
        assert_eq!(bank.count(key), 1, "{key}");
        assert!(said(two.charge(ask(key)).await).1);
    }
}

/// The first one has asked for the fate of its commit, and the duplicate has come, before there is one.
async fn found_out_while_still_open<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>, name: &str) {
    for (what, loss) in [("late commit", Loss::LateCommit), ("late rollback", Loss::LateRollback)] {
        let key = &*format!("{name} {what}");
        let (staged, worked) = (Staged::new(one.transactions.clone(), loss), AtomicUsize::new(0));
        let (first, second) = tokio::join!(one.charge_through(&staged, ask(key), &worked), async {
            staged.reached.notified().await;
            let duplicate = two.charge_beside(ask(key));
            staged.begun_again.notified().await;
            staged.go_on.notify_one();
            duplicate.await.unwrap()
        });
        let (first, second) = (said(first), said(second));
        assert_eq!(first.0, second.0, "two answers for {key}");
        assert_eq!(bank.count(key), 1, "{key}");
        if loss == Loss::LateCommit {
            assert_eq!((first, second), (first_of("one", key), replay_of("one", key)));
            assert_eq!(worked.load(Ordering::SeqCst), 1);
        }
    }
}
