//! Checks of single swaps: one is applied if and only if the record is what the writer saw.

use onceward::{Caps, ClockSource, Found, Id, LEASE_MAX, Record, Seen, State, Version};

use super::trial::{Answered, Checked, FAR, Trial, ensure, held, id, record, same};

/// What the engine needs in a record beside a body or an input.
const RECORD_OVERHEAD_BYTES: usize = 1024;

pub(super) async fn caps_are_as_announced(trial: Trial) -> Checked {
    let caps = trial.store.caps();
    ensure!(caps == trial.caps, "caps are {caps:?}, announced were {:?}", trial.caps);
    ensure!(!caps.name.is_empty(), "the name is empty");
    Ok(())
}

/// Wrong hints cost speed and nothing else, so they need only be usable. Promises are what the engine builds
/// on.
pub(super) async fn caps_are_usable(trial: Trial) -> Checked {
    let Caps { promises, hints, .. } = trial.store.caps();
    ensure!(hints.batches_in_flight > 0, "no batch may ever be in flight");
    ensure!(
        promises.record_bytes_max > RECORD_OVERHEAD_BYTES,
        "records of up to {} bytes leave no space for an outcome: a record needs {RECORD_OVERHEAD_BYTES} bytes besides it",
        promises.record_bytes_max
    );
    if let ClockSource::Process { margin } = promises.clock {
        ensure!(margin < LEASE_MAX, "clocks that may differ by {margin:?} leave no lease to rely on");
    }
    Ok(())
}

pub(super) async fn absent_is_created_once(trial: Trial) -> Checked {
    let id = id(1);
    let first = held("first");
    let version = trial.create(&id, first.clone()).await?;
    trial.find_as(&id, version, &first).await?;
    let found = trial.lose(&id, Seen::Absent, Some(held("second"))).await?;
    learned(&id, found, version, &first)?;
    trial.find_as(&id, version, &first).await?;
    Ok(())
}

pub(super) async fn version_is_replaced_once(trial: Trial) -> Checked {
    let id = id(1);
    let first = trial.create(&id, held("first")).await?;
    let second = record(State::Done, Some(FAR), "second");
    let version = trial.put(&id, Seen::Version(first), second.clone()).await?;
    trial.find_as(&id, version, &second).await?;
    let found = trial.lose(&id, Seen::Version(first), Some(held("third"))).await?;
    learned(&id, found, version, &second)?;
    trial.find_as(&id, version, &second).await?;
    Ok(())
}

pub(super) async fn absent_record_has_no_version(trial: Trial) -> Checked {
    let id = id(1);
    let found = trial.lose(&id, Seen::Version(Version(1)), Some(held("x"))).await?;
    ensure!(found.is_none(), "a loser learned {found:?} of a record that never was");
    let found = trial.lose(&id, Seen::Version(Version(1)), None).await?;
    ensure!(found.is_none(), "a removal learned {found:?} of a record that never was");
    ensure!(trial.load_one(&id).await?.is_none(), "losing swaps left a record behind");
    Ok(())
}

/// The ends of the range are where a driver's signed numbers go wrong.
pub(super) async fn strange_versions_lose(trial: Trial) -> Checked {
    let id = id(1);
    let written = held("first");
    let version = trial.create(&id, written.clone()).await?;
    let near = [version.0 - 1, version.0 + 1];
    for strange in [0, 1, i64::MAX.unsigned_abs(), 1 << 63, u64::MAX].into_iter().chain(near) {
        for new in [Some(held("second")), None] {
            let found = trial.lose(&id, Seen::Version(Version(strange)), new).await?;
            learned(&id, found, version, &written)?;
        }
    }
    Ok(())
}

pub(super) async fn removal_needs_the_version(trial: Trial) -> Checked {
    let id = id(1);
    let first = trial.create(&id, held("first")).await?;
    let written = held("second");
    let second = trial.put(&id, Seen::Version(first), written.clone()).await?;
    let found = trial.lose(&id, Seen::Version(first), None).await?;
    learned(&id, found, second, &written)?;
    let found = trial.lose(&id, Seen::Absent, None).await?;
    learned(&id, found, second, &written)?;
    trial.remove(&id, second).await?;
    ensure!(trial.load_one(&id).await?.is_none(), "a removed record is still there");
    let found = trial.lose(&id, Seen::Version(second), None).await?;
    ensure!(found.is_none(), "the second removal learned {found:?}");
    trial.create(&id, held("again")).await?;
    Ok(())
}

/// Nothing where nothing is: a look that writes nothing, and fails where something is.
pub(super) async fn nothing_for_nothing_is_a_look(trial: Trial) -> Checked {
    let id = id(1);
    let answer = trial.swap_one(&id, Seen::Absent, None).await?;
    ensure!(matches!(answer, Answered::Won(_)), "nothing for nothing got {answer:?}");
    ensure!(trial.load_one(&id).await?.is_none(), "nothing for nothing left a record behind");
    let written = held("x");
    let version = trial.create(&id, written.clone()).await?;
    let found = trial.lose(&id, Seen::Absent, None).await?;
    learned(&id, found, version, &written)?;
    trial.find_as(&id, version, &written).await?;
    Ok(())
}

/// A swap that lost must not even touch the due time.
pub(super) async fn losing_changes_nothing(trial: Trial) -> Checked {
    let id = id(1);
    let written = record(State::Done, None, "kept");
    let version = trial.create(&id, written.clone()).await?;
    trial.lose(&id, Seen::Absent, Some(held("other"))).await?;
    trial.lose(&id, Seen::Version(Version(version.0 + 1)), Some(held("other"))).await?;
    let found = trial.find_as(&id, version, &written).await?;
    ensure!(found.due == onceward::Due::Never, "a losing swap changed the due time to {:?}", found.due);
    Ok(())
}

pub(super) async fn every_state_is_kept(trial: Trial) -> Checked {
    for (number, state) in State::ALL.into_iter().enumerate() {
        let id = id(number);
        let first = record(state, Some(FAR), state.name());
        let mut version = trial.create(&id, first.clone()).await?;
        trial.find_as(&id, version, &first).await?;
        for next in State::ALL {
            let written = record(next, Some(FAR), next.name());
            version = trial.put(&id, Seen::Version(version), written.clone()).await?;
            trial.find_as(&id, version, &written).await?;
        }
    }
    Ok(())
}

/// The loser learns exactly what is there.
fn learned(id: &Id, found: Option<Found>, version: Version, record: &Record) -> Checked {
    ensure!(found.is_some(), "{id:?}: the loser was told that nothing is there");
    same(id, &found.expect("looked at above"), version, record)
}
