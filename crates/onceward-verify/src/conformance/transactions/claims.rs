//! Checks of how a transaction begins: with a claim that no other transaction sees or can take.

use std::time::{Duration, Instant};

use onceward::{Fault, Seen, State, Swapped, Version};

use super::super::drops::drop_after;
use super::super::trial::{
    Answered, Checked, DEADLINE, FAR, Wrong, creation, ensure, everything, held, record, same,
};
use super::Harness;
use super::fixture::{SHORT, SLACK, TransactionFixture, claim_of, claim_over, completion, done, id, said};

/// How many times a future is polled before it is dropped, at most.
const POLLS_MAX: usize = 12;
/// More transactions at the same time than any pool that is checked should allow.
const OPEN_MAX: usize = 64;

pub(super) async fn the_store_says_that_it_joins<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let promises = fixture.trial.store.caps().promises;
    ensure!(promises.transactions, "the store does not promise that it joins transactions: {promises:?}");
    Ok(())
}

pub(super) async fn a_claim_is_seen_only_after_the_commit<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    let id = id("1");
    let (mut tx, version) = fixture.claim(&id).await?;
    fixture.write(&mut tx, "a").await?;
    fixture.is_absent(&id, "not committed").await?;
    fixture.count_is("a", 0).await?;
    let found = fixture.trial.pages(everything(), 10, 5).await?;
    ensure!(found.is_empty(), "not committed, and a scan finds {found:?}");
    fixture.commit(tx, &completion(&id, version)).await?;
    let found = fixture.trial.find(&id).await?;
    ensure!(found.version > version, "completed as {:?} over {version:?}", found.version);
    same(&id, &found, found.version, &done())?;
    fixture.count_is("a", 1).await
}

pub(super) async fn a_rollback_leaves_nothing<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let id = id("1");
    for _ in 0..3 {
        let (mut tx, _) = fixture.claim(&id).await?;
        fixture.write(&mut tx, "a").await?;
        fixture.rollback(tx).await;
        fixture.is_absent(&id, "rolled back").await?;
        fixture.count_is("a", 0).await?;
    }
    // The store is as if nothing had been.
    fixture.trial.create(&id, held("x")).await?;
    Ok(())
}

pub(super) async fn a_drop_leaves_nothing<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let id = id("1");
    // More often than a pool has connections: one that is not given back is missed.
    for _ in 0..20 {
        let (mut tx, _) = fixture.claim(&id).await?;
        fixture.write(&mut tx, "a").await?;
        drop(tx);
        fixture.is_absent(&id, "dropped").await?;
    }
    let (mut tx, version) = fixture.claim(&id).await?;
    fixture.write(&mut tx, "a").await?;
    fixture.commit(tx, &completion(&id, version)).await?;
    fixture.count_is("a", 1).await
}

pub(super) async fn a_dropped_begin_leaves_nothing<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    for polls in 0..POLLS_MAX * 2 {
        let id = id(&polls.to_string());
        drop_after(polls, fixture.begin_within(&claim_of(&id), DEADLINE)).await;
        fixture.is_absent(&id, "dropped while it began").await?;
        let (tx, version) = fixture.claim(&id).await?;
        fixture.commit(tx, &completion(&id, version)).await?;
    }
    Ok(())
}

pub(super) async fn a_claim_may_replace_a_version<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let (id, old) = (id("1"), record(State::Held, Some(Duration::ZERO), "lapsed"));
    let first = fixture.trial.create(&id, old.clone()).await?;
    let (mut tx, version) = fixture.win(&claim_over(&id, Seen::Version(first))).await?;
    ensure!(version > first, "took over {first:?} as {version:?}");
    fixture.write(&mut tx, "a").await?;
    fixture.trial.find_as(&id, first, &old).await?;
    fixture.rollback(tx).await;
    fixture.trial.find_as(&id, first, &old).await?;

    let (mut tx, version) = fixture.win(&claim_over(&id, Seen::Version(first))).await?;
    fixture.write(&mut tx, "a").await?;
    fixture.commit(tx, &completion(&id, version)).await?;
    let found = fixture.trial.find(&id).await?;
    same(&id, &found, found.version, &done())?;
    ensure!(found.age.created >= found.age.updated, "created after it was updated: {:?}", found.age);
    fixture.count_is("a", 1).await
}

/// And the transaction is of use all the same: the engine continues in it.
pub(super) async fn a_losing_claim_learns_what_is_there<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    let (there, absent) = (id("1"), id("2"));
    let written = record(State::Waiting, Some(FAR), "there");
    let version = fixture.trial.create(&there, written.clone()).await?;
    for seen in [Seen::Absent, Seen::Version(Version(version.0 + 1)), Seen::Version(Version(1))] {
        let (mut tx, answer) = fixture.begin(&claim_over(&there, seen)).await?;
        match answer {
            Answered::Lost(Some(found)) => same(&there, &found, version, &written)?,
            answer => ensure!(false, "{version:?} is there, a claim over {seen:?} got {answer:?}"),
        }
        let answer = fixture.swap_one(&mut tx, &claim_over(&there, Seen::Version(version))).await?;
        ensure!(matches!(answer, Answered::Won(_)), "{version:?} is there, a claim over it got {answer:?}");
        fixture.rollback(tx).await;
        fixture.trial.find_as(&there, version, &written).await?;
    }
    let (mut tx, answer) = fixture.begin(&claim_over(&absent, Seen::Version(version))).await?;
    ensure!(
        matches!(answer, Answered::Lost(None)),
        "nothing is there, a claim over a version got {answer:?}"
    );
    match fixture.swap_one(&mut tx, &claim_of(&absent)).await? {
        Answered::Won(version) => fixture.commit(tx, &completion(&absent, version)).await?,
        Answered::Lost(found) => ensure!(false, "nothing is there, a claim lost to {found:?}"),
    }
    let found = fixture.trial.find(&absent).await?;
    same(&absent, &found, found.version, &done())
}

pub(super) async fn the_second_waits_and_loses<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let fresh = id("1");
    let taken = id("2");
    let version = fixture.trial.create(&taken, record(State::Held, Some(Duration::ZERO), "lapsed")).await?;
    for (id, seen) in [(fresh, Seen::Absent), (taken, Seen::Version(version))] {
        let (mut tx, version) = fixture.win(&claim_over(&id, seen)).await?;
        fixture.write(&mut tx, "a").await?;
        let (second, claim) = (fixture.clone(), claim_over(&id, seen));
        let mut second = tokio::spawn(async move { second.begin(&claim).await });
        ensure!(
            tokio::time::timeout(SHORT, &mut second).await.is_err(),
            "{id:?}: the second claim was answered while the first was under way"
        );
        fixture.commit(tx, &completion(&id, version)).await?;
        let (tx, answer) = second.await.map_err(|_| Wrong("the second claim panicked".into()))??;
        fixture.rollback(tx).await;
        match answer {
            Answered::Lost(Some(found)) => same(&id, &found, found.version, &done())?,
            answer => ensure!(false, "{id:?}: the first has committed, the second got {answer:?}"),
        }
    }
    fixture.count_is("a", 2).await
}

pub(super) async fn the_second_waits_and_wins_after_a_rollback<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    let id = id("1");
    let (tx, _) = fixture.claim(&id).await?;
    let (second, claim) = (fixture.clone(), claim_of(&id));
    let second = tokio::spawn(async move { second.win(&claim).await });
    tokio::time::sleep(SHORT / 4).await;
    ensure!(!second.is_finished(), "the second claim was answered while the first was under way");
    fixture.rollback(tx).await;
    let (tx, version) = second.await.map_err(|_| Wrong("the second claim panicked".into()))??;
    fixture.commit(tx, &completion(&id, version)).await?;
    fixture.trial.find(&id).await?;
    Ok(())
}

pub(super) async fn the_second_is_busy_when_its_patience_ends<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    let id = id("1");
    let (tx, version) = fixture.claim(&id).await?;
    for _ in 0..10 {
        let start = Instant::now();
        match fixture.begin_within(&claim_of(&id), SHORT).await {
            Err(Fault::Busy) => {}
            Err(fault) => ensure!(false, "another has the id, the second got {}", said(&fault)),
            Ok((_, swapped)) => ensure!(false, "another has the id, the second got {swapped:?}"),
        }
        let waited = start.elapsed();
        ensure!(waited < SHORT + SLACK, "with a patience of {SHORT:?} it waited {waited:?}");
    }
    fixture.commit(tx, &completion(&id, version)).await?;
    let found = fixture.trial.find(&id).await?;
    same(&id, &found, found.version, &done())
}

/// Opens transactions until the pool has no connection left.
pub(super) async fn waiting_for_a_connection_is_busy_too<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    let mut open = Vec::new();
    for number in 0..OPEN_MAX {
        let start = Instant::now();
        match fixture.begin_within(&claim_of(&id(&number.to_string())), SHORT).await {
            Ok((tx, _)) => open.push(tx),
            Err(Fault::Busy) => {
                let waited = start.elapsed();
                ensure!(waited < SHORT + SLACK, "with a patience of {SHORT:?} it waited {waited:?}");
                break;
            }
            Err(fault) => ensure!(false, "{number} are under way, the next got {}", said(&fault)),
        }
    }
    ensure!(!open.is_empty(), "not even one transaction could begin");
    for tx in open {
        fixture.rollback(tx).await;
    }
    let (tx, version) = fixture.claim(&id("0")).await?;
    fixture.commit(tx, &completion(&id("0"), version)).await
}

/// A write without a transaction is no exception.
pub(super) async fn a_swap_of_the_store_waits_as_well<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let id = id("1");
    let (tx, version) = fixture.claim(&id).await?;
    let (store, batch) = (fixture.trial.store.clone(), [creation(&id, held("beside"))]);
    let mut beside = tokio::spawn(async move { store.swap(&batch).await });
    match tokio::time::timeout(SHORT, &mut beside).await {
        Err(_) => {
            fixture.commit(tx, &completion(&id, version)).await?;
            let answer = beside.await.map_err(|_| Wrong("the store panicked".into()))?;
            may_not_have_won(answer.map(|mut answers| answers.remove(0)))?;
        }
        Ok(answer) => {
            let answer = answer.map_err(|_| Wrong("the store panicked".into()))?;
            ensure!(answer.is_err(), "{id:?}: a transaction has it, a swap beside got {answer:?}");
            may_not_have_won(answer.map(|mut answers| answers.remove(0)))?;
            fixture.commit(tx, &completion(&id, version)).await?;
        }
    }
    let found = fixture.trial.lose(&id, Seen::Absent, Some(held("late"))).await?;
    match found {
        Some(found) => same(&id, &found, found.version, &done()),
        None => Err(Wrong(format!("{id:?}: lost to nothing"))),
    }
}

fn may_not_have_won(answer: onceward::Result<Swapped>) -> Checked {
    match answer {
        Ok(Swapped::Lost(Some(_)) | Swapped::Failed(_)) | Err(_) => Ok(()),
        Ok(answer) => Err(Wrong(format!("a transaction had the id, a swap beside got {answer:?}"))),
    }
}
