//! Tests of the due index of the embedded store: sweeping stays cheap, and no due row is ever missed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::{Due, Seen, State, Store, Swap, Swapped};

use crate::support::*;

fn batch(keys: std::ops::Range<u64>, due_in: impl Fn(u64) -> Duration) -> Vec<Swap> {
    keys.map(|key| Swap {
        id: id(format!("{key:08}")),
        seen: Seen::Absent,
        new: Some(record(State::Done, None, "").with_due_in(Some(due_in(key)))),
    })
    .collect()
}

fn remove_all(store: &dyn Store, found: &[(onceward::Id, onceward::Found)]) {
    let mut swaps: Vec<Swap> = found
        .iter()
        .map(|(id, found)| Swap { id: id.clone(), seen: Seen::Version(found.version), new: None })
        .collect();
    swaps.sort_by(|one, other| one.id.cmp(&other.id));
    for swapped in block_on(store.swap(&swaps)).unwrap() {
        assert!(matches!(swapped, Swapped::Won(_)));
    }
}

#[test]
fn sweeping_does_not_slow_down_over_what_it_has_removed() {
    const ROWS: u64 = 60_000;
    const PAGE: usize = 500;
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::at(NOON_US);
    let store = open_at(folder.path(), &clock);
    for start in (0..ROWS).step_by(2000) {
        block_on(store.swap(&batch(start..start + 2000, |key| Duration::from_millis(key + 1)))).unwrap();
    }
    clock.advance(Duration::from_secs(ROWS));
    let mut times = Vec::new();
    let mut swept = 0;
    loop {
        let began = Instant::now();
        let page = page(&store, DUE, None, PAGE);
        times.push(began.elapsed());
        swept += page.found.len() as u64;
        remove_all(&store, &page.found);
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!(swept, ROWS);
    // Without the floor the last pages read sixty thousand tombstones; with it, one page. The fastest of
    // many runs tells them apart even on a busy machine.
    let (first, last) = times.split_at(times.len() / 2);
    let (early, late) = (first.iter().min().unwrap(), last.iter().min().unwrap());
    let bound = *early * 4 + Duration::from_millis(2);
    assert!(*late < bound, "early {early:?}, late {late:?}");
    // Also right after a restart.
    drop(store);
    let restarted = (0..5).map(|_| {
        let store = open_at(folder.path(), &clock);
        let began = Instant::now();
        assert_eq!(page(&store, DUE, None, PAGE).found.len(), 0);
        began.elapsed()
    });
    let restarted = restarted.min().unwrap();
    assert!(restarted < bound, "early {early:?}, after a restart {restarted:?}");
}

#[test]
fn a_row_that_falls_due_before_the_floor_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::at(NOON_US);
    let store = open_at(folder.path(), &clock);
    for round in 0..20 {
        // The scan raises the floor to now; then a row is inserted that was due before, by a clock that
        // was set back.
        assert_eq!(scan_keys(&store, &DUE, 10), [""; 0]);
        clock.set(NOON_US - 1_000_000 * (round + 1));
        let held = hold(&store, round, 1000);
        won(&store, put(id(round), Seen::Version(held), State::Done, Some(0)));
        clock.set(NOON_US + round);
        let found = page(&store, DUE, None, 10).found;
        assert_eq!(found.len(), 1, "round {round}");
        assert!(matches!(found[0].1.due, Due::Over(_)));
        remove_all(&store, &found);
    }
}

#[test]
fn no_due_row_is_missed_while_others_write_and_sweep() {
    const ROWS: u64 = 4_000;
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(folder.path()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let writing = Arc::clone(&store);
    let writer = runtime.spawn(async move {
        for start in (0..ROWS).step_by(20) {
            // Due at once or within the next moments, in no order.
            let batch = batch(start..start + 20, |key| Duration::from_micros(key * 7919 % 3000));
            writing.swap(&batch).await.unwrap();
        }
    });
    let mut swept = BTreeSet::new();
    // Ends when all were found; a row that is missed makes it run into the deadline.
    let deadline = Instant::now() + Duration::from_mins(1);
    while (swept.len() as u64) < ROWS {
        assert!(Instant::now() < deadline, "{} of {ROWS} were found", swept.len());
        let found = page(&*store, DUE, None, 100).found;
        for (id, _) in &found {
            assert!(swept.insert(id.key().to_owned()), "{id:?} came twice");
        }
        remove_all(&*store, &found);
    }
    runtime.block_on(writer).unwrap();
}
