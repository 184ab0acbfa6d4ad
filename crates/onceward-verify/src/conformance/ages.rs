//! Checks of ages: how long ago a record was written, first and last, by the store's clock.

use std::time::{Duration, Instant};

use onceward::{Age, Id, ScanTarget, Seen, State};

use super::trial::{Checked, DEADLINE, FAR, Trial, Wrong, ensure, everything, held, id, id_of, record};

/// So old that one moment of the store's clock can be told from another.
const OLD: Duration = Duration::from_millis(50);
/// Two readings of one moment may differ by this much.
const SAME: Duration = Duration::from_millis(10);
/// How coarse a store's clock may be.
const GRAIN: Duration = Duration::from_secs(1);

pub(super) async fn begin_at_zero_and_grow(trial: Trial) -> Checked {
    let id = id(1);
    let start = Instant::now();
    trial.create(&id, held("x")).await?;
    let first = age(&trial, &id).await?;
    let passed = start.elapsed() + GRAIN;
    ensure!(first.created <= passed && first.updated <= passed, "{first:?} old, written {passed:?} ago");
    let later = until_old(&trial, &id).await?;
    ensure!(later.updated > first.updated, "{first:?} old, later {later:?}");
    let passed = start.elapsed() + GRAIN;
    ensure!(later.created <= passed, "{later:?} old, written {passed:?} ago");
    Ok(())
}

pub(super) async fn survive_updates(trial: Trial) -> Checked {
    let id = id(1);
    let mut version = trial.create(&id, held("first")).await?;
    for state in [State::Held, State::Done, State::Gone] {
        let before = until_old(&trial, &id).await?;
        version = trial.put(&id, Seen::Version(version), record(state, Some(FAR), "next")).await?;
        let after = age(&trial, &id).await?;
        ensure!(after.created >= before.created, "created {:?} ago, after a write {after:?}", before.created);
        ensure!(after.updated < after.created, "just written, and {after:?} old");
    }
    Ok(())
}

pub(super) async fn begin_again_after_removal(trial: Trial) -> Checked {
    let id = id(1);
    let version = trial.create(&id, held("first")).await?;
    until_old(&trial, &id).await?;
    trial.remove(&id, version).await?;
    trial.create(&id, held("second")).await?;
    let age = age(&trial, &id).await?;
    ensure!(
        age.created.abs_diff(age.updated) < SAME,
        "written once since it was absent, and created and updated differ: {age:?}"
    );
    Ok(())
}

pub(super) async fn do_not_begin_again_when_a_swap_loses(trial: Trial) -> Checked {
    let id = id(1);
    trial.create(&id, held("first")).await?;
    let before = until_old(&trial, &id).await?;
    let learned = trial.lose(&id, Seen::Absent, Some(held("second"))).await?;
    let learned = learned.map(|found| found.age).unwrap_or_default();
    between("a loser", before, learned, age(&trial, &id).await?)
}

/// Whichever way a record is read.
pub(super) async fn are_the_same_in_scans(trial: Trial) -> Checked {
    let parent = id_of("scope", "operation", "key");
    let id = parent.step("step")?;
    let version = trial.create(&id, record(State::Waiting, Some(Duration::ZERO), "x")).await?;
    until_old(&trial, &id).await?;
    trial.put(&id, Seen::Version(version), record(State::Waiting, Some(Duration::ZERO), "y")).await?;
    until_old(&trial, &id).await?;
    for of in [
        everything(),
        ScanTarget::Due(None),
        ScanTarget::Due(Some(State::Waiting)),
        ScanTarget::StepsOf(parent.clone()),
    ] {
        let what = format!("{of:?}");
        let before = age(&trial, &id).await?;
        let found = trial.pages(of, 10, 5).await?;
        let after = age(&trial, &id).await?;
        match found.as_slice() {
            [(_, found)] => between(&what, before, found.age, after)?,
            found => ensure!(false, "{what}: one record was written, found {found:?}"),
        }
    }
    Ok(())
}

async fn age(trial: &Trial, id: &Id) -> Checked<Age> {
    Ok(trial.find(id).await?.age)
}

/// Waits, by looking, until both ages are worth comparing.
async fn until_old(trial: &Trial, id: &Id) -> Checked<Age> {
    let start = Instant::now();
    loop {
        let age = age(trial, id).await?;
        if age.created >= OLD && age.updated >= OLD {
            return Ok(age);
        }
        ensure!(start.elapsed() < DEADLINE, "{id:?}: still {age:?} old after {:?}", start.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn between(what: &str, before: Age, found: Age, after: Age) -> Checked {
    let within = |before: Duration, found, after: Duration| before <= found + SAME && found <= after + SAME;
    let fits = within(before.created, found.created, after.created)
        && within(before.updated, found.updated, after.updated);
    fits.then_some(())
        .ok_or_else(|| Wrong(format!("{what}: {found:?} old, loaded as {before:?} and {after:?}")))
}
