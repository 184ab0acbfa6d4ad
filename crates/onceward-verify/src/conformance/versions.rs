//! Checks that the version of an id only grows: it is the fencing token for external resources.

use onceward::{Seen, Version};

use super::trial::{Answered, Checked, Trial, ensure, held, id};

pub(super) async fn grow_with_every_write(trial: Trial) -> Checked {
    let id = id(1);
    let mut version = trial.create(&id, held("0")).await?;
    ensure!(version > Version(0), "the first version is 0");
    for step in 1..200 {
        let next = trial.put(&id, Seen::Version(version), held(step.to_string())).await?;
        ensure!(next > version, "step {step}: {next:?} is not above {version:?}");
        version = next;
    }
    Ok(())
}

pub(super) async fn grow_across_removal(trial: Trial) -> Checked {
    let id = id(1);
    let mut highest = Version(0);
    for round in 0..200 {
        let version = trial.create(&id, held("x")).await?;
        ensure!(version > highest, "round {round}: re-created with {version:?}, had {highest:?} before");
        highest = version;
        trial.remove(&id, version).await?;
    }
    Ok(())
}

/// A store that takes versions from its clock alone is overtaken by a burst of writes that is faster
/// than the clock ticks, and then starts again below what it gave out.
pub(super) async fn grow_across_bursts_and_removal(trial: Trial) -> Checked {
    let id = id(1);
    let mut highest = Version(0);
    for round in 0..10 {
        let mut version = trial.create(&id, held("x")).await?;
        ensure!(version > highest, "round {round}: re-created with {version:?}, had {highest:?} before");
        for _ in 0..50 {
            version = trial.put(&id, Seen::Version(version), held("y")).await?;
        }
        highest = version;
        trial.remove(&id, version).await?;
    }
    Ok(())
}

/// What a slow former owner remembers must not fit the record of a later one.
pub(super) async fn old_version_loses_to_a_new_record(trial: Trial) -> Checked {
    let id = id(1);
    let mut old = Vec::new();
    for _ in 0..20 {
        let version = trial.create(&id, held("x")).await?;
        for former in &old {
            let answer = trial.swap_one(&id, Seen::Version(*former), Some(held("late"))).await?;
            ensure!(
                matches!(&answer, Answered::Lost(Some(found)) if found.version == version),
                "{former:?} of an earlier record got {answer:?}, {version:?} is there"
            );
        }
        trial.remove(&id, version).await?;
        old.push(version);
    }
    Ok(())
}
