//! Tests of reopening a folder: what must stay the same, and what must not.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onceward::{Due, ErrorKind, ScanTarget, Seen, State, Store, Swap, Swapped, Version};

use crate::support::*;

#[test]
fn everything_answered_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::at(NOON_US);
    let mut versions = Vec::new();
    for round in 0..3_u64 {
        let store = open_at(folder.path(), &clock);
        for key in 0..100_u64 {
            if let Some(version) = versions.get(usize::try_from(key).unwrap()) {
                let found = load(&store, key).unwrap();
                assert_eq!((found.version, found.state), (*version, State::Done), "round {round}");
                assert_eq!(found.due, Due::In(Duration::from_mins(1)));
            } else {
                let held = hold(&store, key, 30);
                versions.push(done(&store, key, held, 60));
            }
        }
    }
}

#[test]
fn what_is_held_for_others_keeps_its_lease() {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::at(NOON_US);
    let held = hold_for_others(&open_at(folder.path(), &clock), "ticket", 3600);
    clock.set(NOON_US + 3_599_000_000);
    let store = open_at(folder.path(), &clock);
    let run = hold(&store, "run", 3600);
    assert_eq!(load(&store, "ticket").unwrap().due, Due::In(Duration::from_secs(1)));
    assert!(scan_keys(&store, &DUE, 10).is_empty());
    drop(store);
    // The run of the process before is over with the opening, the ticket with its lease.
    let store = open_at(folder.path(), &clock);
    assert_eq!(scan_keys(&store, &ScanTarget::Due(Some(State::Held)), 10), ["run"]);
    let found = load(&store, "run").unwrap();
    assert_eq!((found.version, found.due), (run, Due::Over(Duration::ZERO)));
    assert_eq!(load(&store, "ticket").unwrap().due, Due::In(Duration::from_secs(1)));
    clock.set(NOON_US + 3_600_000_000);
    let found = load(&store, "ticket").unwrap();
    assert_eq!((found.version, found.due), (held, Due::Over(Duration::ZERO)));
    // The run since the opening, the ticket since its lease ended.
    assert_eq!(scan_keys(&store, &DUE, 10), ["run", "ticket"]);
    assert_eq!(load(&store, "run").unwrap().due, Due::Over(Duration::from_secs(1)));
}

#[test]
fn every_state_is_found_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::at(NOON_US);
    let parent = id("parent");
    {
        let store = open_at(folder.path(), &clock);
        for state in State::ALL {
            for (key, due_in_s) in [("never", None), ("soon", Some(10)), ("later", Some(1000))] {
                won(&store, put(id(format!("{state}-{key}")), Seen::Absent, state, due_in_s));
            }
        }
        won(&store, put(parent.step("step").unwrap(), Seen::Absent, State::Done, Some(1000)));
        // Gone from its index before the restart.
        let dead = won(&store, put(id("settled"), Seen::Absent, State::Dead, None));
        done(&store, "settled", dead, 1000);
    }
    clock.advance(Duration::from_secs(10));
    for _ in 0..2 {
        let store = open_at(folder.path(), &clock);
        for state in [State::Waiting, State::Held, State::Unknown, State::Dead] {
            let mut keys = scan_keys(&store, &in_state(state), 2);
            keys.sort();
            assert_eq!(keys, ["later", "never", "soon"].map(|key| format!("{state}-{key}")));
            if state != State::Held {
                let due = scan_keys(&store, &ScanTarget::Due(Some(state)), 2);
                assert_eq!(due, [format!("{state}-soon")]);
            }
        }
        assert_eq!(scan_keys(&store, &ScanTarget::StepsOf(parent.clone()), 2), ["parent"]);
        let age = load(&store, "waiting-soon").unwrap().age;
        // Versions stand for times, and run ahead of a clock that stands still.
        assert!(age.created > Duration::from_secs(9) && age.created <= Duration::from_secs(10), "{age:?}");
    }
}

#[test]
fn leases_of_the_process_before_are_over_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::at(NOON_US);
    let (short, long, endless) = {
        let store = open_at(folder.path(), &clock);
        let endless = won(&store, put(id("endless"), Seen::Absent, State::Held, None));
        let short = hold(&store, "short", 10);
        let finished = hold(&store, "finished", 10);
        done(&store, "finished", finished, 3600);
        (short, hold(&store, "long", 3600), endless)
    };
    // Neither waiting nor a clock that was set back changes that.
    for set_back_s in [0, 5, 100_000] {
        clock.set(NOON_US - set_back_s * 1_000_000);
        let store = open_at(folder.path(), &clock);
        for (key, version) in [("short", short), ("long", long), ("endless", endless)] {
            let found = load(&store, key).unwrap();
            assert_eq!((found.version, found.due), (version, Due::Over(Duration::ZERO)), "{key}");
            let found = lost(&store, put(id(key), Seen::Absent, State::Held, Some(1))).unwrap();
            assert!(found.due.is_over());
        }
        for limit in [1, 10] {
            let mut keys = scan_keys(&store, &DUE, limit);
            keys.sort();
            assert_eq!(keys, ["endless", "long", "short"], "set back by {set_back_s}, limit {limit}");
        }
    }
    let store = open_at(folder.path(), &clock);
    let retaken = won(&store, put(id("long"), Seen::Version(long), State::Held, Some(20)));
    assert!(retaken > long);
    assert_eq!(load(&store, "long").unwrap().due, Due::In(Duration::from_secs(20)));
    let mut keys = scan_keys(&store, &DUE, 10);
    keys.sort();
    assert_eq!(keys, ["endless", "short"], "a lease taken by this process counts by its end");
    done(&store, "short", short, 3600);
    assert_eq!(scan_keys(&store, &DUE, 10), ["endless"]);
}

#[test]
fn versions_do_not_go_back_when_the_clock_does_across_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::at(NOON_US);
    let mut last = Version(0);
    for round in 0..4_u64 {
        clock.set(NOON_US - round * 3_600_000_000);
        let store = open_at(folder.path(), &clock);
        let held = hold(&store, 1, 30);
        assert!(held > last, "round {round}");
        let gone = remove(&store, 1, held);
        assert!(gone > held);
        last = gone;
    }
}

#[test]
fn held_ids_are_due_after_every_restart() {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::at(NOON_US);
    let mut dice = Dice::new(7);
    let mut held: Vec<(u64, Version)> = Vec::new();
    let mut next = 0;
    for _ in 0..5 {
        let store = open_at(folder.path(), &clock);
        let mut due = scan_keys(&store, &DUE, 4);
        due.sort();
        let mut expected: Vec<String> = held.iter().map(|(key, _)| key.to_string()).collect();
        expected.sort();
        assert_eq!(due, expected, "all and only the held ones lost their owner");
        for _ in 0..200 {
            if held.len() > 5 && dice.below(2) == 0 {
                let at = usize::try_from(dice.below(held.len() as u64)).unwrap();
                let (key, version) = held.swap_remove(at);
                if dice.below(3) == 0 {
                    remove(&store, key, version);
                } else {
                    done(&store, key, version, 3600);
                }
            } else {
                held.push((next, hold(&store, next, 3600)));
                next += 1;
            }
        }
    }
}

#[test]
fn batches_that_wait_together_see_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    // Many claims of the same ids at once, from many tasks: each id has exactly one winner, and
    // every loser is shown the winner's version.
    let batch: Vec<Swap> = (10..20).map(|key| put(id(key), Seen::Absent, State::Held, Some(30))).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let store = std::sync::Arc::new(store);
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let (store, batch) = (std::sync::Arc::clone(&store), batch.clone());
            runtime.spawn(async move { store.swap(&batch).await.unwrap() })
        })
        .collect();
    let answers: Vec<Vec<Swapped>> = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).collect();
    for at in 0..batch.len() {
        let mut won = Vec::new();
        let mut seen = Vec::new();
        for answer in &answers {
            match &answer[at] {
                Swapped::Won(version) => won.push(*version),
                Swapped::Lost(found) => seen.push(found.as_ref().unwrap().version),
                Swapped::Failed(error) => panic!("{error}"),
            }
        }
        assert_eq!(won.len(), 1);
        assert!(seen.iter().all(|version| *version == won[0]));
    }
}

#[test]
fn a_dropped_future_leaves_the_store_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        for key in 0..50 {
            let batch = [put(id(key), Seen::Absent, State::Held, Some(30))];
            let mut swap = store.swap(&batch);
            // Polled once, so that it was sent, then dropped.
            let polled =
                std::future::poll_fn(|context| std::task::Poll::Ready(swap.as_mut().poll(context))).await;
            drop(polled);
        }
    });
    drop(store);
    let store = open(folder.path());
    for key in 0..50 {
        assert_eq!(load(&store, key).unwrap().state, State::Held, "what was asked was done all the same");
    }
}

#[test]
fn a_batch_out_of_order_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for keys in [[2, 1], [1, 1]] {
        let batch = keys.map(|key| put(id(key), Seen::Absent, State::Held, None));
        assert_eq!(block_on(store.swap(&batch)).unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(load(&store, 1), None);
}

/// A process that is being started has a copy of every open file until it runs its program: it must not count as
/// one that has the folder.
#[test]
fn a_closed_folder_is_free_whatever_is_being_started_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    Command::new("true").status().unwrap();
                }
            });
        }
        let opened: Vec<_> = (0..100).map(|_| try_open(folder.path()).map(drop)).collect();
        over.store(true, Ordering::Relaxed);
        assert!(opened.iter().all(Result::is_ok), "{:?}", opened.iter().find(|opened| opened.is_err()));
    });
}
