//! Tests of behaviour that the memory store and the embedded store share. The conformance suite is complete; these
//! tests cover what this crate's own code is most likely to get wrong.

use std::sync::Arc;
use std::time::Duration;

use onceward::{
    Age, Applied, Ask, Clock, Due, Enqueued, ErrorKind, Filter, Fingerprint, Id, Limits, Onceward, Policy,
    Scan, ScanTarget, Seen, State, Store, Swap, TextMatch, Version,
};
use onceward_stores::MemoryStore;

use crate::support::*;

/// Runs a check on each store, with a clock that only the check moves.
fn on_each_store(check: impl Fn(&dyn Store, &HandClock)) {
    let clock = HandClock::at(NOON_US);
    check(&MemoryStore::new_with_clock(Arc::clone(&clock) as Arc<dyn Clock>), &clock);
    #[cfg(feature = "embedded")]
    {
        let folder = tempfile::tempdir().unwrap();
        let clock = HandClock::at(NOON_US);
        check(&open_at(folder.path(), &clock), &clock);
    }
}

#[test]
fn a_swap_wins_only_against_what_it_has_seen() {
    on_each_store(|store, _| {
        let held = hold(store, 1, 30);
        let found = lost(store, put(id(1), Seen::Absent, State::Held, Some(30))).unwrap();
        assert_eq!((found.version, found.state), (held, State::Held));
        assert_eq!(found.due, Due::In(Duration::from_secs(30)));
        assert_eq!(&found.bytes[..], b"receipt");
        let other = Version(held.0 + 1);
        assert_eq!(lost(store, put(id(1), Seen::Version(other), State::Done, None)).unwrap().version, held);
        let done = done(store, 1, held, 60);
        assert!(done > held);
        assert_eq!(load(store, 1).unwrap().version, done);
        assert_eq!(lost(store, put(id(1), Seen::Version(held), State::Done, None)).unwrap().version, done);
        assert_eq!(lost(store, put(id(2), Seen::Version(held), State::Done, None)), None);
    });
}

#[test]
fn versions_never_go_back_not_after_removal_and_not_with_the_clock() {
    on_each_store(|store, clock| {
        let mut last = Version(0);
        for round in 0..20_u64 {
            clock.set(NOON_US - round * 1_000_000_000);
            let held = hold(store, 1, 30);
            assert!(held > last, "round {round}");
            let done = done(store, 1, held, 30);
            assert!(done > held);
            last = remove(store, 1, done);
            assert!(last > done);
            assert_eq!(load(store, 1), None);
        }
    });
}

#[test]
fn versions_follow_the_clock() {
    on_each_store(|store, clock| {
        clock.set(NOON_US + 5);
        assert_eq!(hold(store, 1, 30), Version(NOON_US + 5));
    });
}

#[test]
fn one_batch_mixes_winners_and_losers_in_its_own_order() {
    on_each_store(|store, _| {
        hold(store, 3, 30);
        let batch: Vec<Swap> = (1..=5).map(|key| put(id(key), Seen::Absent, State::Held, Some(30))).collect();
        let swapped = block_on(store.swap(&batch)).unwrap();
        let won: Vec<bool> =
            swapped.iter().map(|swapped| matches!(swapped, onceward::Swapped::Won(_))).collect();
        assert_eq!(won, [true, true, false, true, true]);
        let found = block_on(store.load(&[id(5), id(9), id(1)])).unwrap();
        let there: Vec<bool> = found.into_iter().map(|found| found.unwrap().is_some()).collect();
        assert_eq!(there, [true, false, true]);
    });
}

#[test]
fn what_is_due_comes_earliest_first_and_only_when_due() {
    on_each_store(|store, clock| {
        for key in 1..=9 {
            let held = hold(store, key, 1000);
            // 9 falls due first, 1 last; every third one never.
            let keep = (key % 3 != 0).then(|| 100 - key);
            won(store, put(id(key), Seen::Version(held), State::Done, keep));
        }
        hold(store, "lease", 97);
        assert_eq!(scan_keys(store, &DUE, 2), [""; 0]);
        clock.advance(Duration::from_secs(97));
        for limit in [1, 2, 3, 100] {
            assert_eq!(scan_keys(store, &DUE, limit), ["8", "7", "5", "4", "lease"], "limit {limit}");
        }
        clock.advance(Duration::from_secs(1000));
        assert_eq!(scan_keys(store, &DUE, 3), ["8", "7", "5", "4", "lease", "2", "1"]);
    });
}

#[test]
fn a_renewed_lease_is_due_at_its_new_end() {
    on_each_store(|store, clock| {
        let held = hold(store, 1, 10);
        clock.advance(Duration::from_secs(9));
        let renewed = won(store, put(id(1), Seen::Version(held), State::Held, Some(10)));
        clock.advance(Duration::from_secs(5));
        assert_eq!(scan_keys(store, &DUE, 10), [""; 0]);
        assert_eq!(load(store, 1).unwrap().due, Due::In(Duration::from_secs(5)));
        clock.advance(Duration::from_secs(5));
        assert_eq!(scan_keys(store, &DUE, 10), ["1"]);
        assert_eq!(load(store, 1).unwrap().due, Due::Over(Duration::ZERO));
        done(store, 1, renewed, 1);
        assert_eq!(scan_keys(store, &DUE, 10), [""; 0]);
    });
}

#[test]
fn matching_finds_each_record_once_in_bounded_pages() {
    on_each_store(|store, _| {
        for key in 0..50 {
            let held = hold(store, key, 30);
            if key % 2 == 0 {
                done(store, key, held, 30);
            }
        }
        let other = onceward::Id::new("other", "POST /charges", "1").unwrap();
        won(store, put(other, Seen::Absent, State::Held, None));
        let matching = |scope: Option<&str>, operation: Option<&str>, state| {
            let operation = operation.map(|operation| TextMatch::Is(operation.to_owned()));
            ScanTarget::Matching(
                Filter::default()
                    .with_scope(scope.map(str::to_owned))
                    .with_operation(operation)
                    .with_state(state),
            )
        };
        let count = |of: ScanTarget, limit| {
            let mut keys = scan_keys(store, &of, limit);
            let all = keys.len();
            keys.sort();
            keys.dedup();
            (all, keys.len())
        };
        for limit in [1, 7, 1000] {
            assert_eq!(count(matching(Some("tenant"), None, None), limit), (50, 50));
            assert_eq!(
                count(matching(Some("tenant"), Some("POST /charges"), Some(State::Done)), limit),
                (25, 25)
            );
            assert_eq!(count(matching(None, Some("POST /charges"), None), limit).0, 51);
            assert_eq!(count(matching(Some("other"), None, Some(State::Held)), limit), (1, 1));
            assert_eq!(count(matching(Some("nobody"), None, None), limit), (0, 0));
        }
    });
}

#[test]
fn far_due_times_and_strange_cursors_do_no_harm() {
    on_each_store(|store, clock| {
        let far = record(State::Done, None, "far").with_due_in(Some(Duration::MAX));
        won(store, Swap { id: id(1), seen: Seen::Absent, new: Some(far) });
        assert!(matches!(load(store, 1).unwrap().due, Due::In(_)));
        clock.set(NOON_US * 2);
        assert_eq!(scan_keys(store, &DUE, 1), [""; 0]);
        let states = State::ALL.map(Some);
        for state in states.into_iter().chain([None]) {
            let cursor = onceward::Cursor(bytes::Bytes::from_static(b"x"));
            let scan = Scan::new(ScanTarget::Due(state), 1).with_after(Some(cursor));
            assert_eq!(block_on(store.scan(&scan)).unwrap_err().kind(), ErrorKind::Invalid);
        }
    });
}

#[test]
fn a_clock_that_jumps_over_years_and_bounds_does_no_harm() {
    const YEAR_US: u64 = 365 * 24 * 3600 * 1_000_000;
    on_each_store(|store, clock| {
        let mut last = Version(0);
        let jumps = [NOON_US + 30 * YEAR_US, 0, u64::MAX, NOON_US, 1, u64::MAX - 1, u64::MAX, NOON_US];
        for (key, now_us) in jumps.into_iter().enumerate() {
            clock.set(now_us);
            let held = hold(store, key, 30);
            assert!(held > last, "at {now_us}");
            assert!(matches!(load(store, key).unwrap().due, Due::In(_)), "at {now_us}");
            last = done(store, key, held, 60);
            assert!(last > held, "at {now_us}");
            assert!(lost(store, put(id(key), Seen::Absent, State::Held, None)).is_some());
            scan_keys(store, &DUE, 3);
        }
        // All are still there, and each is due by the clock as it is now.
        clock.set(u64::MAX);
        for key in 0..jumps.len() {
            assert_eq!(load(store, key).unwrap().state, State::Done);
        }
        clock.set(NOON_US + YEAR_US);
        assert_eq!(scan_keys(store, &DUE, 3), ["1", "4", "3", "7"]);
    });
}

#[test]
fn a_page_is_bounded_whatever_it_is_asked_for() {
    on_each_store(|store, clock| {
        const ROWS: u64 = 12_000;
        for start in (0..ROWS).step_by(4000) {
            let batch: Vec<Swap> = (start..start + 4000)
                .map(|key| put(id(format!("{key:08}")), Seen::Absent, State::Done, Some(1)))
                .collect();
            block_on(store.swap(&batch)).unwrap();
        }
        clock.advance(Duration::from_secs(2));
        for of in [DUE, ScanTarget::Due(Some(State::Done)), everything(), in_state(State::Done)] {
            let first = page(store, of.clone(), None, usize::MAX);
            assert!(first.found.len() <= 10_000 && first.next.is_some(), "{of:?}");
            assert_eq!(scan_keys(store, &of, usize::MAX).len() as u64, ROWS, "{of:?}");
        }
    });
}

#[test]
fn a_record_says_how_old_it_is() {
    on_each_store(|store, clock| {
        let held = hold(store, 1, 30);
        clock.advance(Duration::from_secs(3));
        let done = done(store, 1, held, 60);
        clock.advance(Duration::from_secs(4));
        let age = Age::new(Duration::from_secs(7), Duration::from_secs(4));
        assert_eq!(load(store, 1).unwrap().age, age);
        assert_eq!(lost(store, put(id(1), Seen::Absent, State::Held, None)).unwrap().age, age);
        assert_eq!(page(store, everything(), None, 10).found[0].1.age, age);
        remove(store, 1, done);
        hold(store, 1, 30);
        assert_eq!(
            load(store, 1).unwrap().age,
            Age::default(),
            "a new record, although the id is an old one"
        );
        clock.set(NOON_US - 1);
        assert_eq!(load(store, 1).unwrap().age, Age::default(), "set back");
    });
}

#[test]
fn each_state_is_found_by_itself_also_where_it_changes() {
    on_each_store(|store, clock| {
        let mut last = Vec::new();
        for (at, state) in State::ALL.into_iter().enumerate() {
            for due_in_s in [None, Some(0), Some(1000)] {
                let key = format!("{at}-{due_in_s:?}");
                last.push((key.clone(), won(store, put(id(key), Seen::Absent, state, due_in_s))));
            }
        }
        // Cycle through the states, so that every state follows every other.
        for round in 0..State::ALL.len() {
            clock.advance(Duration::from_secs(1));
            for (number, (key, version)) in last.iter_mut().enumerate() {
                let state = State::ALL[(number / 3 + round * (1 + number % 3)) % State::ALL.len()];
                let due_in_s = [None, Some(0), Some(1000)][(number + round) % 3];
                *version = won(store, put(id(&*key), Seen::Version(*version), state, due_in_s));
            }
            let all = page(store, everything(), None, 1000).found;
            assert_eq!(all.len(), last.len());
            for state in State::ALL {
                let keys = |of: &ScanTarget, limit| {
                    let mut keys = scan_keys(store, of, limit);
                    keys.sort();
                    keys
                };
                let expected = |over: bool| {
                    let found = all.iter().filter(|(_, found)| found.state == state);
                    let found = found.filter(|(_, found)| !over || found.due.is_over());
                    let mut keys: Vec<_> = found.map(|(id, _)| id.key().to_owned()).collect();
                    keys.sort();
                    keys
                };
                for limit in [1, 2, 100] {
                    assert_eq!(keys(&in_state(state), limit), expected(false), "{state}, {limit}");
                    assert_eq!(
                        keys(&ScanTarget::Due(Some(state)), limit),
                        expected(true),
                        "due, {state}, {limit}"
                    );
                }
            }
        }
    });
}

#[test]
fn the_open_states_are_found_without_reading_what_is_done() {
    on_each_store(|store, _| {
        for key in 0..300 {
            won(store, put(id(format!("done-{key}")), Seen::Absent, State::Done, Some(1000)));
        }
        for state in [State::Waiting, State::Held, State::Unknown, State::Dead] {
            for due_in_s in [None, Some(1000)] {
                let key = format!("{state}-{due_in_s:?}");
                won(store, put(id(key), Seen::Absent, state, due_in_s));
            }
            let (mut found, mut pages, mut after) = (Vec::new(), 0, None);
            loop {
                let page = page(store, in_state(state), after, 1);
                found.extend(page.found);
                pages += 1;
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found.len(), 2, "{state}");
            assert!(pages <= 6, "{state}: {pages} pages of one record each for two records");
        }
    });
}

#[test]
fn steps_are_listed_below_their_intent_and_nowhere_else() {
    on_each_store(|store, _| {
        let keys = ["a", "ab", "abc"];
        for key in keys {
            let parent = id(key);
            hold(store, key, 30);
            for step in ["one", "bc", "two"] {
                let step = parent.step(step).unwrap();
                won(store, put(step.clone(), Seen::Absent, State::Done, Some(30)));
                won(store, put(step.step("inner").unwrap(), Seen::Absent, State::Done, Some(30)));
            }
        }
        let steps = |parent: &Id, limit| {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let page = page(store, ScanTarget::StepsOf(parent.clone()), after, limit);
                found.extend(page.found.into_iter().map(|(id, _)| id.operation().to_owned()));
                after = page.next;
                if after.is_none() {
                    found.sort();
                    return found;
                }
            }
        };
        for key in keys {
            for limit in [1, 2, 100] {
                let expected = ["bc", "one", "two"].map(|step| format!("POST /charges#{step}"));
                assert_eq!(steps(&id(key), limit), expected, "{key}");
                let inner = id(key).step("one").unwrap();
                assert_eq!(steps(&inner, limit), ["POST /charges#one#inner"], "{key}");
            }
        }
        // Removed and made again, it is there once.
        let step = id("a").step("one").unwrap();
        let version = page(store, ScanTarget::StepsOf(id("a")), None, 10)
            .found
            .into_iter()
            .find_map(|(id, found)| (id == step).then_some(found.version))
            .unwrap();
        won(store, Swap { id: step.clone(), seen: Seen::Version(version), new: None });
        assert_eq!(steps(&id("a"), 10).len(), 2);
        won(store, put(step, Seen::Absent, State::Waiting, None));
        assert_eq!(steps(&id("a"), 10).len(), 3);
        assert_eq!(steps(&id("nobody"), 10), [""; 0]);
    });
}

#[test]
fn a_filter_with_every_part_finds_its_one_record() {
    on_each_store(|store, _| {
        hold(store, "here", 30);
        let filter = |key: &str, state| {
            ScanTarget::Matching(
                Filter::default()
                    .with_scope("tenant".to_owned())
                    .with_operation(TextMatch::Is("POST /charges".into()))
                    .with_key(key.to_owned())
                    .with_state(state),
            )
        };
        assert_eq!(scan_keys(store, &filter("here", None), 1), ["here"]);
        assert_eq!(scan_keys(store, &filter("here", Some(State::Held)), 1), ["here"]);
        assert_eq!(scan_keys(store, &filter("here", Some(State::Done)), 1), [""; 0]);
        assert_eq!(scan_keys(store, &filter("there", None), 1), [""; 0]);
        assert_eq!(scan_keys(store, &filter("no\nkey", None), 1), [""; 0]);
    });
}

#[test]
fn inputs_are_kept_up_to_their_bound_and_refused_beyond_it() {
    let bound = Limits::default().input_bytes_max;
    let check = |store: Arc<dyn Store>| {
        let onceward = Onceward::builder(Arc::clone(&store)).accept_volatile().build().unwrap();
        let enqueue = |key: &str, input: Vec<u8>| {
            let ask = Ask::new(id(key), Fingerprint::of(&input), Policy::http()).with_input(input);
            block_on(onceward.enqueue(ask))
        };
        for (key, bytes) in [("none", 0), ("some", 1000), ("bound", bound)] {
            let input: Vec<u8> = (0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect();
            assert_eq!(enqueue(key, input.clone()).unwrap(), Enqueued::Accepted);
            let receipt = block_on(onceward.receipt(&id(key))).unwrap().unwrap();
            assert_eq!(receipt.status.state(), State::Waiting);
            assert_eq!(&receipt.status.job().unwrap().input[..], input, "{key}");
        }
        let error = enqueue("beyond", vec![0; bound + 1]).unwrap_err();
        assert_eq!((error.kind(), error.applied()), (ErrorKind::Invalid, Applied::No), "{error}");
        assert!(error.to_string().contains("input_bytes_max"), "{error}");
        assert!(load(&*store, "beyond").is_none());
        let mut waiting = scan_keys(&*store, &in_state(State::Waiting), 1);
        waiting.sort();
        assert_eq!(waiting, ["bound", "none", "some"]);
    };
    check(Arc::new(MemoryStore::new()));
    #[cfg(feature = "embedded")]
    {
        let folder = tempfile::tempdir().unwrap();
        check(Arc::new(open(folder.path())));
    }
}

#[test]
fn every_write_is_signalled_to_watchers() {
    on_each_store(|store, _| {
        let mut watch = store.watch().unwrap();
        let held = hold(store, 1, 30);
        assert_eq!(block_on(watch.changed()), Some(id(1)));
        lost(store, put(id(1), Seen::Absent, State::Held, None));
        done(store, 1, held, 30);
        hold(store, 2, 30);
        assert_eq!(block_on(watch.changed()), Some(id(1)));
        assert_eq!(block_on(watch.changed()), Some(id(2)), "the lost one changed nothing");
    });
}
