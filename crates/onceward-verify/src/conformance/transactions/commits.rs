//! Checks of how a transaction ends: it commits with its completion, or not at all.

use std::time::{Duration, Instant};

use onceward::{Applied, Due, Fault, Seen, State, Swap, Transactions, Version};

use super::super::drops::drop_after;
use super::super::trial::{Answered, Checked, FAR, Wrong, ensure, held, record, same};
use super::Harness;
use super::fixture::{TransactionFixture, claim_over, completion, done, id, said};

/// How many times a commit is polled before it is dropped, at most.
const POLLS_MAX: usize = 16;
/// How coarse a store's clock may be.
const GRAIN: Duration = Duration::from_secs(1);

pub(super) async fn a_completion_that_loses_commits_nothing<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    let id = id("1");
    let (mut tx, version) = fixture.claim(&id).await?;
    fixture.write(&mut tx, "a").await?;
    fixture.swap_one(&mut tx, &claim_over(&id, Seen::Version(version))).await?;
    refused(&fixture, tx, &completion(&id, version)).await?;

    let (mut tx, version) = fixture.claim(&id).await?;
    fixture.write(&mut tx, "a").await?;
    refused(&fixture, tx, &completion(&id, Version(version.0 + 1))).await?;

    let (mut tx, _) = fixture.claim(&id).await?;
    fixture.write(&mut tx, "a").await?;
    refused(&fixture, tx, &Swap { id: id.clone(), seen: Seen::Absent, new: Some(done()) }).await?;

    let (mut tx, version) = fixture.claim(&id).await?;
    fixture.write(&mut tx, "a").await?;
    let removal = Swap { id: id.clone(), seen: Seen::Version(version), new: None };
    fixture.swap_one(&mut tx, &removal).await?;
    refused(&fixture, tx, &completion(&id, version)).await?;

    fixture.is_absent(&id, "no completion won").await?;
    fixture.count_is("a", 0).await?;

    // The same over a record that is there: it stays as it was.
    let written = record(State::Held, Some(Duration::ZERO), "lapsed");
    let first = fixture.trial.create(&id, written.clone()).await?;
    let (mut tx, _) = fixture.win(&claim_over(&id, Seen::Version(first))).await?;
    fixture.write(&mut tx, "a").await?;
    refused(&fixture, tx, &completion(&id, first)).await?;
    fixture.trial.find_as(&id, first, &written).await?;
    fixture.count_is("a", 0).await
}

/// A commit that must not happen, and must say so.
async fn refused<B: Harness>(
    fixture: &TransactionFixture<B>,
    tx: super::Tx<B>,
    completion: &Swap,
) -> Checked {
    match fixture.transactions().commit(tx, completion).await {
        Err(Fault::Failed(error)) if error.applied() == Applied::No => Ok(()),
        Err(Fault::Undone(_)) => Ok(()),
        Err(fault) => Err(Wrong(format!("a completion that lost got {}", said(&fault)))),
        Ok(()) => Err(Wrong("a completion over what was not there was committed".into())),
    }
}

/// The next to ask waits until its fate is certain, and then finds both or neither.
pub(super) async fn a_dropped_commit_is_whole_or_nothing<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    for polls in 0..POLLS_MAX {
        let name = polls.to_string();
        let id = id(&name);
        let (mut tx, version) = fixture.claim(&id).await?;
        fixture.write(&mut tx, &name).await?;
        drop_after(polls, fixture.transactions().commit(tx, &completion(&id, version))).await;
        let (tx, answer) = fixture.begin(&claim_over(&id, Seen::Absent)).await?;
        let committed = match answer {
            Answered::Won(_) => 0,
            Answered::Lost(Some(found)) => {
                same(&id, &found, found.version, &done())?;
                1
            }
            Answered::Lost(None) => return Err(Wrong(format!("{id:?}: lost to nothing"))),
        };
        fixture.rollback(tx).await;
        fixture.count_is(&name, committed).await?;
    }
    Ok(())
}

pub(super) async fn a_completion_is_due_when_it_says<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    for (number, due_in) in [Some(FAR), Some(FAR * 100), None].into_iter().enumerate() {
        let id = id(&number.to_string());
        let start = Instant::now();
        let (tx, version) = fixture.claim(&id).await?;
        let new = Some(record(State::Done, due_in, "completion"));
        fixture.commit(tx, &Swap { id: id.clone(), seen: Seen::Version(version), new }).await?;
        let found = fixture.trial.find(&id).await?;
        let fits = match (due_in, found.due) {
            (Some(due_in), Due::In(left)) => {
                // It may be later by a 64th and a minute.
                let latest = due_in + due_in / 64 + Duration::from_secs(60) + GRAIN;
                left <= latest && left + start.elapsed() + GRAIN >= due_in
            }
            (None, due) => due == Due::Never,
            _ => false,
        };
        ensure!(fits, "due in {due_in:?}, found {:?}", found.due);
        let passed = start.elapsed() + GRAIN;
        ensure!(found.age.created <= passed, "{:?} old, written {passed:?} ago", found.age);
    }
    Ok(())
}

pub(super) async fn a_completion_may_remove<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let id = id("1");
    let first = fixture.trial.create(&id, held("first")).await?;
    let (mut tx, version) = fixture.win(&claim_over(&id, Seen::Version(first))).await?;
    fixture.write(&mut tx, "a").await?;
    fixture.commit(tx, &Swap { id: id.clone(), seen: Seen::Version(version), new: None }).await?;
    fixture.is_absent(&id, "removed").await?;
    fixture.count_is("a", 1).await?;
    let again = fixture.trial.create(&id, held("again")).await?;
    ensure!(again > version, "re-created with {again:?}, had {version:?} before");
    Ok(())
}

/// Also where transactions and the store's own writes take turns, and across removals.
pub(super) async fn versions_grow_across_transactions<B: Harness>(fixture: TransactionFixture<B>) -> Checked {
    let id = id("1");
    let mut highest = Version(0);
    for round in 0..20 {
        let (tx, version) = fixture.claim(&id).await?;
        ensure!(version > highest, "round {round}: claimed as {version:?}, had {highest:?} before");
        fixture.commit(tx, &completion(&id, version)).await?;
        let completed = fixture.trial.find(&id).await?.version;
        ensure!(completed > version, "round {round}: completed as {completed:?} over {version:?}");
        highest = fixture.trial.put(&id, Seen::Version(completed), done()).await?;
        fixture.trial.remove(&id, highest).await?;
    }
    Ok(())
}

/// The work is given one handle, and the engine keeps another.
pub(super) async fn a_handle_that_is_dropped_undoes_nothing<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    let id = id("1");
    let (tx, version) = fixture.claim(&id).await?;
    let mut other = tx.clone();
    fixture.write(&mut other, "a").await?;
    drop(other);
    drop(tx.clone());
    fixture.commit(tx, &completion(&id, version)).await?;
    fixture.trial.find(&id).await?;
    fixture.count_is("a", 1).await
}

pub(super) async fn a_handle_is_of_no_use_after_the_commit<B: Harness>(
    fixture: TransactionFixture<B>,
) -> Checked {
    for (number, commits) in [true, false].into_iter().enumerate() {
        let (id, late) = (id(&number.to_string()), id("late"));
        let (tx, version) = fixture.claim(&id).await?;
        let mut other = tx.clone();
        if commits {
            fixture.commit(tx, &completion(&id, version)).await?;
        } else {
            fixture.rollback(tx).await;
        }
        let answer = onceward::Join::swap(&mut other, &[claim_over(&late, Seen::Absent)]).await;
        ensure!(answer.is_err(), "a handle on a transaction that is over got {answer:?}");
        drop(other);
        fixture.is_absent(&late, "its transaction was over").await?;
        ensure!(fixture.trial.load_one(&id).await?.is_some() == commits, "{id:?} changed after its end");
    }
    Ok(())
}
