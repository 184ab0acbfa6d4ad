//! The first caller's transaction has ended, and the duplicate's may have, too.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::{
    Answer, Applied, Ask, Changed, Due, ErrorKind, Fingerprint, Lease, OnDuplicate, OnUnknown, Outcome,
    Policy, Refusal, Retention, Stopped, Verdict,
};

use crate::bank::{Bank, Process, Then, Tx, ask, ask_under, claimed, first_of, ran, replay_of, said};

pub(super) async fn every<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    ended_by_its_own_work(bank, one, two).await;
    known_and_ended_by_its_own_work(bank, one, two).await;
    taken_over_and_ended_by_its_own_work(bank, one, two).await;
    committed_by_its_own_work(bank, one, two).await;
    kept_for_less_than_a_lease(one).await;
    one_rollback_after_the_other(bank, one, two).await;
    something_else_under_the_same_key(bank, one, two).await;
    a_slow_owner_and_its_successor(bank, one, two).await;
}

/// The work has rolled its own transaction back, and somebody else has run since: the completion must not
/// touch what is there now.
async fn ended_by_its_own_work<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let second = Mutex::new(None);
    let work = async |_: Lease, tx: Tx<B>| {
        B::charge(&tx, "ended").await?;
        B::say(&tx, "ROLLBACK").await;
        let answer = two.charge(ask("ended")).await;
        second.lock().unwrap().replace(answer);
        Ok(Outcome::succeeded("one"))
    };
    let error = one.onceward.transact(&one.transactions, ask("ended"), work).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Conflict, Applied::No), "{error}");
    assert!(error.to_string().contains("has ended the transaction"), "{error}");
    let second = second.lock().unwrap().take().expect("it was asked");
    assert_eq!(said(second), first_of("two", "ended"));
    assert_eq!(said(one.charge(ask("ended")).await), replay_of("two", "ended"));
    assert_eq!(bank.count("ended"), 1);
    // Without a duplicate, nothing is left behind.
    let work = async |_: Lease, tx: Tx<B>| {
        B::charge(&tx, "ended alone").await?;
        B::say(&tx, "ROLLBACK").await;
        Ok(Outcome::succeeded("one"))
    };
    let error = one.onceward.transact(&one.transactions, ask("ended alone"), work).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Conflict, Applied::No), "{error}");
    assert_eq!(bank.count("ended alone"), 0);
    assert_eq!(said(two.charge(ask("ended alone")).await), first_of("two", "ended alone"));
    assert_eq!(bank.count("ended alone"), 1);
}

/// The same where the outcome was known beforehand, and its receipt was rolled back with the rest.
async fn known_and_ended_by_its_own_work<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    for (key, duplicate_comes) in [("known, ended", true), ("known, ended alone", false)] {
        let second = Mutex::new(None);
        let work = async |_: Lease, tx: Tx<B>| {
            B::charge(&tx, key).await?;
            B::say(&tx, "ROLLBACK").await;
            if duplicate_comes {
                let answer = two.knowing().charge(ask(key)).await;
                second.lock().unwrap().replace(answer);
            }
            Ok(())
        };
        let outcome = Outcome::succeeded("one");
        let ended = one.onceward.transact_with_outcome(&one.transactions, ask(key), outcome, work).await;
        let error = ended.unwrap_err();
        assert_eq!((error.kind(), error.applied()), (ErrorKind::Conflict, Applied::No), "{error}");
        assert!(error.to_string().contains("has ended the transaction"), "{error}");
        assert_eq!(bank.count(key), usize::from(duplicate_comes), "{key}");
        let second = second.lock().unwrap().take();
        match second {
            Some(second) => assert_eq!(said(second), first_of("two", key)),
            None => assert_eq!(said(two.charge(ask(key)).await), first_of("two", key)),
        }
        assert_eq!(said(one.charge(ask(key)).await), replay_of("two", key));
        assert_eq!(bank.count(key), 1);
    }
}

/// The same where the claim took over from somebody else: it was rolled back to what it had taken over, and the next
/// one takes over the very same. Their fences still differ, and the second one's is the higher.
async fn taken_over_and_ended_by_its_own_work<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let key = "taken over and ended";
    let policy = Policy::http()
        .to_builder()
        .with_on_unknown(OnUnknown::Retry)
        .with_lease(Duration::from_millis(100))
        .build()
        .unwrap();
    let dead = Process::new(bank, "dead").await;
    claimed(dead.onceward.claim(ask_under(key, policy.clone())).await);
    let seen = Mutex::new(None);
    let work = async |lease: Lease, tx: Tx<B>| {
        B::charge(&tx, key).await?;
        B::say(&tx, "ROLLBACK").await;
        let answer = two.charge(ask_under(key, policy.clone())).await;
        seen.lock().unwrap().replace((lease.fence(), answer));
        Ok(Outcome::succeeded("one"))
    };
    let asked = ask_under(key, policy.clone());
    let error = one.onceward.transact(&one.transactions, asked, work).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Conflict, Applied::No), "{error}");
    let (fence, second) = seen.lock().unwrap().take().expect("it was asked");
    let second = ran(second);
    assert!(second.fence > fence, "{:?} after {fence:?}", second.fence);
    assert_eq!(said(one.charge(ask(key)).await), replay_of("two", key));
    assert_eq!(bank.count(key), 1);
}

/// The work has committed its own transaction, its claim with it, and goes on or dies. The claim guards the key for a
/// lease: no shorter where its outcome would be kept for a moment only, and not forever where it would be.
async fn committed_by_its_own_work<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let keep = Duration::from_millis(1);
    for policy in
        [Policy::queue().to_builder().with_retention(Retention::For(keep)).build().unwrap(), Policy::ledger()]
    {
        let key = format!("committed under {:?}", policy.retention(Verdict::Succeeded));
        let conflict = policy.to_builder().with_on_duplicate(OnDuplicate::Conflict).build().unwrap();
        let work = async |_: Lease, tx: Tx<B>| {
            B::charge(&tx, &key).await?;
            B::say(&tx, "COMMIT").await;
            tokio::time::sleep(keep * 20).await;
            let second = two.charge(ask_under(&key, conflict.clone())).await.unwrap();
            assert!(matches!(second, Answer::Refused(Refusal::InProgress { .. })), "{second:?}");
            Err(Stopped::unknown("told to stop"))
        };
        let asked = ask_under(&key, policy.clone());
        let error = one.onceward.transact(&one.transactions, asked, work).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stopped, "{error}");
        assert_eq!(bank.count(&key), 1);
        let held = two.onceward.receipt(ask(&key).id()).await.unwrap().expect("it is held");
        let lease = policy.lease();
        assert!(matches!(held.due, Due::In(left) if left <= lease), "{held:?} is held for longer");
    }
}

/// A claim that lasts longer than its outcome is to be kept does not make that last longer.
async fn kept_for_less_than_a_lease<B: Bank>(one: &Process<B>) {
    let (lease, keep) = (Duration::from_mins(60), Duration::from_mins(59));
    let policy =
        Policy::http().to_builder().with_lease(lease).with_retention(Retention::For(keep)).build().unwrap();
    ran(one.charge(ask_under("kept for less", policy)).await);
    let done = one.onceward.receipt(ask("kept for less").id()).await.unwrap().expect("it is kept");
    assert!(matches!(done.due, Due::In(left) if left <= keep + keep / 64), "{done:?} is kept for longer");
}

async fn one_rollback_after_the_other<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let three = Process::new(bank, "three").await;
    let first = one.charge_slowly(ask("rollbacks")).await;
    let second = {
        let two = two.clone();
        tokio::spawn(async move { two.charge_slowly(ask("rollbacks")).await })
    };
    assert_eq!(first.end(Then::Stop).await.unwrap_err().kind(), ErrorKind::Stopped);
    let second = second.await.unwrap();
    let third = three.charge_beside(ask("rollbacks"));
    assert_eq!(second.end(Then::Stop).await.unwrap_err().kind(), ErrorKind::Stopped);
    assert_eq!(said(third.await.unwrap()), first_of("three", "rollbacks"));
    assert_eq!(bank.count("rollbacks"), 1);
}

async fn something_else_under_the_same_key<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    for key in ["reused", "reused after a rollback"] {
        let first = one.charge_slowly(ask(key)).await;
        let other = Ask::new(ask(key).id().clone(), Fingerprint::of(b"13"), Arc::new(Policy::http()));
        let second = two.charge_beside(other);
        if key == "reused" {
            assert_eq!(said(first.end(Then::Succeed).await), first_of("one", key));
            assert_eq!(second.await.unwrap().unwrap(), Answer::Refused(Refusal::KeyReused));
        } else {
            assert_eq!(first.end(Then::Stop).await.unwrap_err().kind(), ErrorKind::Stopped);
            assert_eq!(said(second.await.unwrap()), first_of("two", key));
        }
        assert_eq!(bank.count(key), 1, "{key}");
    }
}

/// The owner's late word comes while its successor is inside a transaction: it waits for its end, and
/// counts only if nothing came of it.
async fn a_slow_owner_and_its_successor<B: Bank>(bank: &B, one: &Process<B>, two: &Process<B>) {
    let policy = Policy::http()
        .to_builder()
        .with_on_unknown(OnUnknown::Retry)
        .with_lease(Duration::from_millis(100))
        .build()
        .unwrap();
    for (key, then) in [("overtaken", Then::Succeed), ("nearly overtaken", Then::Stop)] {
        let ticket = claimed(one.onceward.claim(ask_under(key, policy.clone())).await);
        // It begins when the lease is over.
        let successor = two.charge_slowly(ask_under(key, policy.clone())).await;
        let owner = {
            let one = one.clone();
            let outcome = Outcome::succeeded(format!("one charged {key}"));
            tokio::spawn(async move { one.onceward.complete(&ticket, outcome).await.unwrap() })
        };
        let (successor, changed) = (successor.end(then).await, owner.await.unwrap());
        let (name, charges) = if then == Then::Succeed {
            assert_eq!(said(successor), first_of("two", key));
            assert!(matches!(changed, Changed::NotOwner(Some(_))), "{changed:?}");
            ("two", 1)
        } else {
            assert_eq!(successor.unwrap_err().kind(), ErrorKind::Stopped);
            assert_eq!(changed, Changed::Applied);
            ("one", 0)
        };
        assert_eq!(said(one.charge(ask(key)).await), replay_of(name, key));
        assert_eq!(said(two.charge(ask(key)).await), replay_of(name, key));
        assert_eq!(bank.count(key), charges);
    }
}
