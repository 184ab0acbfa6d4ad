//! How a transaction ends: with its completion, or not at all.

use std::time::{Duration, Instant};

use onceward::{Applied, Due, Fault, Seen, State, Swap, Transactions, Version};

use super::super::drops::drop_after;
use super::super::trial::{Answered, Checked, FAR, Wrong, ensure, held, record, same};
use super::Harness;
use super::stage::{Stage, claim_over, completion, done, id, said};

/// How many times a commit is polled before it is dropped, at most.
const POLLS_MAX: usize = 16;
/// How coarse a store's clock may be.
const GRAIN: Duration = Duration::from_secs(1);

pub(super) async fn a_completion_that_loses_commits_nothing<B: Harness>(stage: Stage<B>) -> Checked {
    let id = id("1");
    let (mut tx, version) = stage.claim(&id).await?;
    stage.write(&mut tx, "a").await?;
    stage.swap_one(&mut tx, &claim_over(&id, Seen::Version(version))).await?;
    refused(&stage, tx, &completion(&id, version)).await?;

    let (mut tx, version) = stage.claim(&id).await?;
    stage.write(&mut tx, "a").await?;
    refused(&stage, tx, &completion(&id, Version(version.0 + 1))).await?;

    let (mut tx, _) = stage.claim(&id).await?;
    stage.write(&mut tx, "a").await?;
    refused(&stage, tx, &Swap { id: id.clone(), seen: Seen::Absent, new: Some(done()) }).await?;

    let (mut tx, version) = stage.claim(&id).await?;
    stage.write(&mut tx, "a").await?;
    let removal = Swap { id: id.clone(), seen: Seen::Version(version), new: None };
    stage.swap_one(&mut tx, &removal).await?;
    refused(&stage, tx, &completion(&id, version)).await?;

    stage.is_absent(&id, "no completion won").await?;
    stage.count_is("a", 0).await?;

    // The same over a record that is there: it stays as it was.
    let written = record(State::Held, Some(Duration::ZERO), "lapsed");
    let first = stage.trial.create(&id, written.clone()).await?;
    let (mut tx, _) = stage.win(&claim_over(&id, Seen::Version(first))).await?;
    stage.write(&mut tx, "a").await?;
    refused(&stage, tx, &completion(&id, first)).await?;
    stage.trial.find_as(&id, first, &written).await?;
    stage.count_is("a", 0).await
}

/// A commit that must not happen, and must say so.
async fn refused<B: Harness>(stage: &Stage<B>, tx: super::Tx<B>, completion: &Swap) -> Checked {
    match stage.transactions().commit(tx, completion).await {
        Err(Fault::Failed(error)) if error.applied() == Applied::No => Ok(()),
        Err(Fault::Undone(_)) => Ok(()),
        Err(fault) => Err(Wrong(format!("a completion that lost got {}", said(&fault)))),
        Ok(()) => Err(Wrong("a completion over what was not there was committed".into())),
    }
}

/// The next to ask waits until its fate is certain, and then finds both or neither.
pub(super) async fn a_dropped_commit_is_whole_or_nothing<B: Harness>(stage: Stage<B>) -> Checked {
    for polls in 0..POLLS_MAX {
        let name = polls.to_string();
        let id = id(&name);
        let (mut tx, version) = stage.claim(&id).await?;
        stage.write(&mut tx, &name).await?;
        drop_after(polls, stage.transactions().commit(tx, &completion(&id, version))).await;
        let (tx, answer) = stage.begin(&claim_over(&id, Seen::Absent)).await?;
        let committed = match answer {
            Answered::Won(_) => 0,
            Answered::Lost(Some(found)) => {
                same(&id, &found, found.version, &done())?;
                1
            }
            Answered::Lost(None) => return Err(Wrong(format!("{id:?}: lost to nothing"))),
        };
        stage.rollback(tx).await;
        stage.count_is(&name, committed).await?;
    }
    Ok(())
}

pub(super) async fn a_completion_is_due_when_it_says<B: Harness>(stage: Stage<B>) -> Checked {
    for (number, due_in) in [Some(FAR), Some(FAR * 100), None].into_iter().enumerate() {
        let id = id(&number.to_string());
        let start = Instant::now();
        let (tx, version) = stage.claim(&id).await?;
        let new = Some(record(State::Done, due_in, "completion"));
        stage.commit(tx, &Swap { id: id.clone(), seen: Seen::Version(version), new }).await?;
        let found = stage.trial.find(&id).await?;
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

pub(super) async fn a_completion_may_remove<B: Harness>(stage: Stage<B>) -> Checked {
    let id = id("1");
    let first = stage.trial.create(&id, held("first")).await?;
    let (mut tx, version) = stage.win(&claim_over(&id, Seen::Version(first))).await?;
    stage.write(&mut tx, "a").await?;
    stage.commit(tx, &Swap { id: id.clone(), seen: Seen::Version(version), new: None }).await?;
    stage.is_absent(&id, "removed").await?;
    stage.count_is("a", 1).await?;
    let again = stage.trial.create(&id, held("again")).await?;
    ensure!(again > version, "re-created with {again:?}, had {version:?} before");
    Ok(())
}

/// Also where transactions and the store's own writes take turns, and across removals.
pub(super) async fn versions_grow_across_transactions<B: Harness>(stage: Stage<B>) -> Checked {
    let id = id("1");
    let mut highest = Version(0);
    for round in 0..20 {
        let (tx, version) = stage.claim(&id).await?;
        ensure!(version > highest, "round {round}: claimed as {version:?}, had {highest:?} before");
        stage.commit(tx, &completion(&id, version)).await?;
        let completed = stage.trial.find(&id).await?.version;
        ensure!(completed > version, "round {round}: completed as {completed:?} over {version:?}");
        highest = stage.trial.put(&id, Seen::Version(completed), done()).await?;
        stage.trial.remove(&id, highest).await?;
    }
    Ok(())
}

/// The work is given one handle, and the engine keeps another.
pub(super) async fn a_handle_that_is_dropped_undoes_nothing<B: Harness>(stage: Stage<B>) -> Checked {
    let id = id("1");
    let (tx, version) = stage.claim(&id).await?;
    let mut other = tx.clone();
    stage.write(&mut other, "a").await?;
    drop(other);
    drop(tx.clone());
    stage.commit(tx, &completion(&id, version)).await?;
    stage.trial.find(&id).await?;
    stage.count_is("a", 1).await
}

pub(super) async fn a_handle_is_of_no_use_after_the_commit<B: Harness>(stage: Stage<B>) -> Checked {
    for (number, commits) in [true, false].into_iter().enumerate() {
        let (id, late) = (id(&number.to_string()), id("late"));
        let (tx, version) = stage.claim(&id).await?;
        let mut other = tx.clone();
        if commits {
            stage.commit(tx, &completion(&id, version)).await?;
        } else {
            stage.rollback(tx).await;
        }
        let answer = onceward::Join::swap(&mut other, &[claim_over(&late, Seen::Absent)]).await;
        ensure!(answer.is_err(), "a handle on a transaction that is over got {answer:?}");
        drop(other);
        stage.is_absent(&late, "its transaction was over").await?;
        ensure!(stage.trial.look(&id).await?.is_some() == commits, "{id:?} changed after its end");
    }
    Ok(())
}
