//! What both stores of this process do alike. The conformance suite has the whole list; here is what
//! this crate's own code is most likely to get wrong.

use std::sync::Arc;
use std::time::Duration;

use onceward::{Clock, Due, ScanOf, Seen, State, Store, Swap, Version};
use onceward_stores::MemoryStore;

use crate::support::*;

/// Runs a check on each store, with a clock that only the check moves.
fn on_each_store(check: impl Fn(&dyn Store, &HandClock)) {
    let clock = HandClock::at(NOON_US);
    check(&MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>), &clock);
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
        assert!(found[0].is_some() && found[1].is_none() && found[2].is_some());
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
        assert_eq!(scan_keys(store, &ScanOf::Due, 2), [""; 0]);
        clock.advance(Duration::from_secs(97));
        for limit in [1, 2, 3, 100] {
            assert_eq!(scan_keys(store, &ScanOf::Due, limit), ["8", "7", "5", "4", "lease"], "limit {limit}");
        }
        clock.advance(Duration::from_secs(1000));
        assert_eq!(scan_keys(store, &ScanOf::Due, 3), ["8", "7", "5", "4", "lease", "2", "1"]);
    });
}

#[test]
fn a_renewed_lease_is_due_at_its_new_end() {
    on_each_store(|store, clock| {
        let held = hold(store, 1, 10);
        clock.advance(Duration::from_secs(9));
        let renewed = won(store, put(id(1), Seen::Version(held), State::Held, Some(10)));
        clock.advance(Duration::from_secs(5));
        assert_eq!(scan_keys(store, &ScanOf::Due, 10), [""; 0]);
        assert_eq!(load(store, 1).unwrap().due, Due::In(Duration::from_secs(5)));
        clock.advance(Duration::from_secs(5));
        assert_eq!(scan_keys(store, &ScanOf::Due, 10), ["1"]);
        assert_eq!(load(store, 1).unwrap().due, Due::Over(Duration::ZERO));
        done(store, 1, renewed, 1);
        assert_eq!(scan_keys(store, &ScanOf::Due, 10), [""; 0]);
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
        let matching = |scope: Option<&str>, operation: Option<&str>, state| ScanOf::Matching {
            scope: scope.map(str::to_owned),
            operation: operation.map(str::to_owned),
            state,
        };
        let count = |of: ScanOf, limit| {
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
        let far =
            onceward::Record { state: State::Done, due_in: Some(Duration::MAX), bytes: bytes::Bytes::new() };
        won(store, Swap { id: id(1), seen: Seen::Absent, new: Some(far) });
        assert!(matches!(load(store, 1).unwrap().due, Due::In(_)));
        clock.set(NOON_US * 2);
        assert_eq!(scan_keys(store, &ScanOf::Due, 1), [""; 0]);
        let cursor = onceward::Cursor(bytes::Bytes::from_static(b"x"));
        let scan = onceward::Scan { of: ScanOf::Due, after: Some(cursor), limit: 1 };
        assert!(block_on(store.scan(&scan)).is_err());
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
            scan_keys(store, &ScanOf::Due, 3);
        }
        // All are still there, and each is due by the clock as it is now.
        clock.set(u64::MAX);
        for key in 0..jumps.len() {
            assert_eq!(load(store, key).unwrap().state, State::Done);
        }
        clock.set(NOON_US + YEAR_US);
        assert_eq!(scan_keys(store, &ScanOf::Due, 3), ["1", "4", "3", "7"]);
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
        for of in [ScanOf::Due, ScanOf::Matching { scope: None, operation: None, state: None }] {
            let first = page(store, of.clone(), None, usize::MAX);
            assert!(first.found.len() <= 10_000 && first.next.is_some(), "{of:?}");
            assert_eq!(scan_keys(store, &of, usize::MAX).len() as u64, ROWS, "{of:?}");
        }
    });
}
