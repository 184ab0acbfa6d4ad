//! Checks of due times: stamped by the store's clock at each write, handed back as what remains of them.

use std::time::{Duration, Instant};

use onceward::{Due, Found, ScanTarget, Seen, State};

use super::trial::{Checked, DEADLINE, FAR, Trial, ensure, held, id, record};

/// So soon that a check can wait for it, so late that it is not yet over when first looked at; where a
/// slow store is late all the same, the check still holds.
const SOON: Duration = Duration::from_millis(30);
const CENTURY: Duration = Duration::from_hours(100 * 365 * 24);
/// How coarse a store's clock may be.
const GRAIN: Duration = Duration::from_secs(1);

pub(super) async fn counts_down(trial: Trial) -> Checked {
    let id = id(1);
    let start = Instant::now();
    trial.create(&id, record(State::Held, Some(FAR), "x")).await?;
    let first = remaining(&trial.find(&id).await?, FAR, start)?;
    loop {
        let next = remaining(&trial.find(&id).await?, FAR, start)?;
        ensure!(next <= first, "what remains grew from {first:?} to {next:?}");
        if next < first {
            return Ok(());
        }
        ensure!(start.elapsed() < DEADLINE, "what remains is still {first:?} after {:?}", start.elapsed());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(super) async fn never_is_never(trial: Trial) -> Checked {
    let id = id(1);
    trial.create(&id, record(State::Unknown, None, "x")).await?;
    let due = trial.find(&id).await?.due;
    ensure!(due == Due::Never, "a record that is never due is {due:?}");
    Ok(())
}

pub(super) async fn zero_is_over_at_once(trial: Trial) -> Checked {
    let id = id(1);
    let version = trial.create(&id, record(State::Held, Some(Duration::ZERO), "x")).await?;
    let due = trial.find(&id).await?.due;
    ensure!(due.is_over(), "a record due at once is {due:?} afterwards");
    let found = trial.lose(&id, Seen::Absent, Some(held("y"))).await?;
    ensure!(
        found.as_ref().is_some_and(|found| found.version == version && found.due.is_over()),
        "a loser learned {found:?} of a record that is over"
    );
    Ok(())
}

/// Absurd durations are cut down to something far away, never wrapped around into the past.
pub(super) async fn far_future_is_kept(trial: Trial) -> Checked {
    for (number, far) in
        [CENTURY, CENTURY * 10, Duration::from_secs(u64::from(u32::MAX) * 1000), Duration::MAX]
            .into_iter()
            .enumerate()
    {
        let id = id(number);
        let start = Instant::now();
        trial.create(&id, record(State::Done, Some(far), "x")).await?;
        let found = trial.find(&id).await?;
        let kept = match found.due {
            Due::Never => far > CENTURY,
            Due::In(left) => left + start.elapsed() + GRAIN >= CENTURY && left <= far,
            Due::Over(_) => false,
        };
        ensure!(kept, "due in {far:?} became {:?}", found.due);
    }
    Ok(())
}

pub(super) async fn falls_over_and_counts_up(trial: Trial) -> Checked {
    let id = id(1);
    let start = Instant::now();
    trial.create(&id, record(State::Held, Some(SOON), "x")).await?;
    let first = trial.until_over(&id).await?;
    ensure!(first <= start.elapsed() + GRAIN, "over for {first:?}, written {:?} ago", start.elapsed());
    let waited = start.elapsed() + GRAIN;
    ensure!(waited >= SOON, "over after {waited:?}, due only in {SOON:?}");
    loop {
        let next = trial.until_over(&id).await?;
        ensure!(next >= first, "the time since it was due fell from {first:?} to {next:?}");
        if next > first {
            return Ok(());
        }
        ensure!(start.elapsed() < DEADLINE, "over for {first:?} and never longer");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// This is what a renewal is.
pub(super) async fn is_stamped_by_every_write(trial: Trial) -> Checked {
    let id = id(1);
    let mut version = trial.create(&id, record(State::Held, Some(Duration::ZERO), "x")).await?;
    for due_in in [FAR, FAR * 48, FAR * 2] {
        let start = Instant::now();
        version = trial.put(&id, Seen::Version(version), record(State::Held, Some(due_in), "x")).await?;
        remaining(&trial.find(&id).await?, due_in, start)?;
    }
    version = trial.put(&id, Seen::Version(version), record(State::Held, None, "x")).await?;
    let due = trial.find(&id).await?.due;
    ensure!(due == Due::Never, "written as never due, found {due:?}");
    version = trial.put(&id, Seen::Version(version), record(State::Held, Some(SOON), "x")).await?;
    trial.until_over(&id).await?;
    let start = Instant::now();
    trial.put(&id, Seen::Version(version), record(State::Held, Some(FAR), "x")).await?;
    remaining(&trial.find(&id).await?, FAR, start)?;
    Ok(())
}

pub(super) async fn loser_learns_what_remains(trial: Trial) -> Checked {
    let (near, never) = (id(1), id(2));
    let start = Instant::now();
    trial.create(&near, held("x")).await?;
    trial.create(&never, record(State::Unknown, None, "x")).await?;
    let found = trial.lose(&near, Seen::Absent, Some(held("y"))).await?;
    ensure!(found.is_some(), "the loser learned nothing");
    remaining(&found.expect("looked at above"), FAR, start)?;
    let found = trial.lose(&never, Seen::Absent, Some(held("y"))).await?;
    let due = found.map(|found| found.due);
    ensure!(due == Some(Due::Never), "the loser was told that a record never due is {due:?}");
    Ok(())
}

/// Falling due is for others to act on: the store itself removes and changes nothing.
pub(super) async fn over_changes_nothing_else(trial: Trial) -> Checked {
    for (number, state) in State::ALL.into_iter().enumerate() {
        let (id, written) = (id(number), record(state, Some(SOON), "kept"));
        let version = trial.create(&id, written.clone()).await?;
        trial.until_over(&id).await?;
        trial.find_as(&id, version, &written).await?;
        trial.lose(&id, Seen::Absent, Some(held("new"))).await?;
        trial.put(&id, Seen::Version(version), held("new")).await?;
    }
    Ok(())
}

/// As long as its writer lives, such a record is due when any other would be. (What happens after its end is
/// for tests that can end a process; see [`Promises::shared`](onceward::Promises::shared).)
pub(super) async fn with_its_writer_is_not_earlier_while_that_lives(trial: Trial) -> Checked {
    let (lease, never) = (id(1), id(2));
    let with_writer = |due_in| record(State::Held, due_in, "x").with_ends_with_writer(true);
    trial.create(&never, with_writer(None)).await?;
    let mut start = Instant::now();
    let mut version = trial.create(&lease, with_writer(Some(FAR))).await?;
    for bit in [true, false, true] {
        remaining(&trial.find(&lease).await?, FAR, start)?;
        let due = trial.find(&never).await?.due;
        ensure!(due == Due::Never, "a record that is never due is {due:?}");
        let found = trial.pages(ScanTarget::Due(None), 10, 5).await?;
        ensure!(found.is_empty(), "their writer lives, and due are {found:?}");
        start = Instant::now();
        let renewed = with_writer(Some(FAR)).with_ends_with_writer(bit);
        version = trial.put(&lease, Seen::Version(version), renewed).await?;
    }
    let renewed = with_writer(Some(SOON));
    version = trial.put(&lease, Seen::Version(version), renewed.clone()).await?;
    trial.until_over(&lease).await?;
    trial.find_as(&lease, version, &renewed).await?;
    Ok(())
}

/// What remains must be what was asked for, less the time that has passed, give or take a clock's grain.
fn remaining(found: &Found, due_in: Duration, written: Instant) -> Checked<Duration> {
    let passed = written.elapsed();
    let Due::In(left) = found.due else {
        return Err(super::trial::Wrong(format!("due in {due_in:?}, found {:?}", found.due)));
    };
    ensure!(left <= due_in + GRAIN, "due in {due_in:?}, but {left:?} remain");
    ensure!(left + passed + GRAIN >= due_in, "due in {due_in:?}, after {passed:?} only {left:?} remain");
    Ok(left)
}
