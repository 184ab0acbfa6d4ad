//! Checks of scans for due records, which sweeps use: earliest first, nothing else read, page by page.

use std::time::Duration;

use onceward::{Due, Id, Scan, ScanTarget, Seen, State, Swap};

use super::trial::{Checked, FAR, Trial, creation, ensure, held, id, record, sorted};

const DUE: ScanTarget = ScanTarget::Due(None);
const AT_ONCE: Option<Duration> = Some(Duration::ZERO);
/// Below this, two due times count as equal: stores may stamp the records of a batch one by one.
const GRAIN: Duration = Duration::from_millis(40);

pub(super) async fn nothing_due_is_empty(trial: Trial) -> Checked {
    ensure!(trial.pages(DUE, 10, 3).await?.is_empty(), "an empty store has something due");
    trial.create(&id(1), held("x")).await?;
    trial.create(&id(2), record(State::Unknown, None, "x")).await?;
    let found = trial.pages(DUE, 10, 3).await?;
    ensure!(found.is_empty(), "nothing is due, found {found:?}");
    Ok(())
}

pub(super) async fn earliest_comes_first(trial: Trial) -> Checked {
    // The order of the ids is neither that of the due times nor its reverse.
    let places = [3, 7, 1, 5, 0, 6, 2, 4];
    let dues = places.map(|place| Duration::from_millis(120) * place);
    let batch = dues
        .iter()
        .enumerate()
        .map(|(number, due)| creation(&id(number), record(State::Held, Some(*due), "x")));
    trial.swap(&batch.collect::<Vec<_>>()).await?;
    for number in 0..places.len() {
        trial.until_over(&id(number)).await?;
    }
    for limit in [1, 3, 100] {
        let found = trial.pages(DUE, limit, 40).await?;
        ensure!(found.len() == places.len(), "{} are due, found {}", places.len(), found.len());
        let dues: Vec<(Duration, &Id)> = found
            .iter()
            .map(|(id, _)| (dues[(0..places.len()).find(|n| self::id(*n) == *id).unwrap_or(0)], id))
            .collect();
        for pair in dues.windows(2) {
            ensure!(
                pair[0].0 <= pair[1].0 + GRAIN,
                "limit {limit}: {:?} came before {:?}, which was due earlier",
                pair[0].1,
                pair[1].1
            );
        }
    }
    Ok(())
}

pub(super) async fn only_what_is_due(trial: Trial) -> Checked {
    let batch = (0..100).map(|number| {
        let due_in = [AT_ONCE, Some(FAR), None][number % 3];
        creation(&id(number), record(State::ALL[number % State::ALL.len()], due_in, number.to_string()))
    });
    trial.swap(&batch.collect::<Vec<_>>()).await?;
    let found = trial.pages(DUE, 7, 60).await?;
    for (id, found) in &found {
        ensure!(found.due.is_over(), "{id:?} came up, its due time is {:?}", found.due);
        let loaded = trial.find(id).await?;
        ensure!(
            (loaded.version, loaded.state, &loaded.bytes) == (found.version, found.state, &found.bytes),
            "{id:?}: scanned {found:?}, loaded {loaded:?}"
        );
    }
    exactly(found.into_iter().map(|(id, _)| id), (0..100).step_by(3))
}

/// A sweep must cost what is due, not what is kept: one record is found without reading a thousand.
pub(super) async fn reads_only_what_is_due(trial: Trial) -> Checked {
    let batch = (0..1000).map(|number| creation(&id(number), held("kept")));
    trial.swap(&batch.collect::<Vec<_>>()).await?;
    trial.create(&id(5000), record(State::Done, AT_ONCE, "due")).await?;
    let found = trial.pages(DUE, 1, 5).await?;
    exactly(found.into_iter().map(|(id, _)| id), [5000])
}

pub(super) async fn cursor_goes_on(trial: Trial) -> Checked {
    let batch = (0..50).map(|number| creation(&id(number), record(State::Done, AT_ONCE, "x")));
    trial.swap(&batch.collect::<Vec<_>>()).await?;
    for limit in [1, 7, 50, 51] {
        let found = trial.pages(DUE, limit, 110).await?;
        exactly(found.into_iter().map(|(id, _)| id), 0..50)?;
    }
    Ok(())
}

/// As a sweep does it: read a page, remove what it names, go on behind it.
pub(super) async fn sweep_beside_removal(trial: Trial) -> Checked {
    let batch = (0..60).map(|number| creation(&id(number), record(State::Done, AT_ONCE, "x")));
    trial.swap(&batch.collect::<Vec<_>>()).await?;
    let mut query = Scan::new(DUE, 7);
    let mut seen = Vec::new();
    for _ in 0..70 {
        let page = trial.page(&query).await?;
        let removals = page.found.iter().map(|(id, found)| Swap {
            id: id.clone(),
            seen: Seen::Version(found.version),
            new: None,
        });
        trial.swap(&sorted(removals.collect())).await?;
        seen.extend(page.found.into_iter().map(|(id, _)| id));
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    exactly(seen, 0..60)?;
    let left = trial.pages(DUE, 7, 70).await?;
    ensure!(left.is_empty(), "everything was removed, the next sweep found {left:?}");
    Ok(())
}

/// The index of due times must follow every write.
pub(super) async fn removed_and_renewed_do_not_show(trial: Trial) -> Checked {
    let mut versions = Vec::new();
    for number in 0..12 {
        versions.push(trial.create(&id(number), record(State::Held, AT_ONCE, "old")).await?);
    }
    for (number, version) in versions.into_iter().enumerate() {
        let (id, seen) = (id(number), Seen::Version(version));
        match number % 4 {
            0 => trial.remove(&id, version).await?,
            1 => drop(trial.put(&id, seen, held("renewed")).await?),
            2 => drop(trial.put(&id, seen, record(State::Done, None, "kept")).await?),
            _ => drop(trial.put(&id, seen, record(State::Done, AT_ONCE, "new")).await?),
        }
    }
    let found = trial.pages(DUE, 3, 40).await?;
    for (id, found) in &found {
        ensure!(matches!(found.due, Due::Over(_)), "{id:?} is not due any more: {found:?}");
        ensure!(&found.bytes[..] == b"new", "{id:?} came up as it was before: {found:?}");
    }
    exactly(found.into_iter().map(|(id, _)| id), (3..12).step_by(4))
}

/// Each state by itself: what is due in another one does not show, and what is not due does not either.
pub(super) async fn by_state(trial: Trial) -> Checked {
    let states = State::ALL.len();
    let batch = (0..10 * states).map(|number| {
        let due_in = if (number / states).is_multiple_of(2) { AT_ONCE } else { Some(FAR) };
        creation(&id(number), record(State::ALL[number % states], due_in, "x"))
    });
    trial.swap(&batch.collect::<Vec<_>>()).await?;
    for (at, state) in State::ALL.into_iter().enumerate() {
        for limit in [1, 3, 100] {
            let found = trial.pages(ScanTarget::Due(Some(state)), limit, 80).await?;
            for (id, found) in &found {
                ensure!(found.state == state, "{id:?} is {}, asked for was what is {state}", found.state);
                ensure!(found.due.is_over(), "{id:?} came up, its due time is {:?}", found.due);
            }
            exactly(found.into_iter().map(|(id, _)| id), (at..10 * states).step_by(2 * states))?;
        }
    }
    let all = (0..10 * states).filter(|number| (number / states).is_multiple_of(2));
    exactly(trial.pages(DUE, 7, 80).await?.into_iter().map(|(id, _)| id), all)
}

/// Earliest first, also where only one state is asked for.
pub(super) async fn by_state_earliest_comes_first(trial: Trial) -> Checked {
    let places = [2, 0, 3, 1];
    let step = Duration::from_millis(100);
    let batch = places.iter().enumerate().flat_map(|(number, place)| {
        let due_in = Some(step * *place);
        let waiting = creation(&id(number), record(State::Waiting, due_in, "x"));
        [waiting, creation(&id(number + 100), record(State::Held, due_in, "x"))]
    });
    trial.swap(&sorted(batch.collect())).await?;
    for number in 0..places.len() {
        trial.until_over(&id(number)).await?;
        trial.until_over(&id(number + 100)).await?;
    }
    for (state, from) in [(State::Waiting, 0), (State::Held, 100)] {
        let found = trial.pages(ScanTarget::Due(Some(state)), 1, 20).await?;
        let found: Vec<Id> = found.into_iter().map(|(id, _)| id).collect();
        let expected = [1, 3, 0, 2].map(|number| id(number + from));
        ensure!(found == expected, "due in the order {expected:?}, found {found:?}");
    }
    Ok(())
}

/// A worker looks at what waits: it must not have to read everything that is due to be swept.
pub(super) async fn by_state_reads_only_that_state(trial: Trial) -> Checked {
    let batch = (0..1000).map(|number| creation(&id(number), record(State::Done, AT_ONCE, "done")));
    trial.swap(&batch.collect::<Vec<_>>()).await?;
    for (number, state) in [(5000, State::Waiting), (6000, State::Held)] {
        trial.create(&id(number), record(state, AT_ONCE, "due")).await?;
        let found = trial.pages(ScanTarget::Due(Some(state)), 1, 5).await?;
        exactly(found.into_iter().map(|(id, _)| id), [number])?;
    }
    Ok(())
}

/// The index of due times is about the state that a record has now.
pub(super) async fn by_state_follows_every_write(trial: Trial) -> Checked {
    let id = id(1);
    let mut version = trial.create(&id, record(State::Waiting, AT_ONCE, "x")).await?;
    for now in [State::Held, State::Done, State::Waiting, State::Gone, State::Held, State::Dead] {
        version = trial.put(&id, Seen::Version(version), record(now, AT_ONCE, "x")).await?;
        for state in State::ALL {
            let found = trial.pages(ScanTarget::Due(Some(state)), 5, 5).await?;
            exactly(found.into_iter().map(|(id, _)| id), (state == now).then_some(1))?;
        }
    }
    Ok(())
}

/// These records, each once, in whatever order.
fn exactly(found: impl IntoIterator<Item = Id>, expected: impl IntoIterator<Item = usize>) -> Checked {
    let mut found: Vec<Id> = found.into_iter().collect();
    found.sort();
    let expected: Vec<Id> = expected.into_iter().map(id).collect();
    ensure!(
        found == expected,
        "{} records were expected once each, found were {}: {found:?}",
        expected.len(),
        found.len()
    );
    Ok(())
}
