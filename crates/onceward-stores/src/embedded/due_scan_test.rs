//! Tests of the floor when groups are written during a scan.

use super::*;

fn at(due_us: u64) -> ScanPosition {
    ScanPosition::first_of(DueList::Rest, due_us)
}

fn floor(floor_us: u64) -> Floor {
    Floor::new(DueList::Rest, floor_us)
}

#[test]
fn a_scan_lifts_the_floor_and_a_group_lowers_it() {
    let floor = floor(3);
    assert_eq!(floor.begin(), at(3));
    floor.raise(at(10), std::iter::empty());
    assert_eq!(floor.with(u64::MAX), 10);
    assert_eq!(floor.with(7), 7);
    assert_eq!(floor.with(u64::MAX), 10, "not before the group is visible");
    floor.lower(7);
    assert_eq!(floor.with(u64::MAX), 7);
}

#[test]
fn a_scan_does_not_lift_the_floor_above_a_row_it_could_not_see() {
    let floor = floor(0);
    floor.begin();
    floor.lower(5);
    floor.lower(50);
    floor.raise(at(10), std::iter::empty());
    assert_eq!(floor.with(u64::MAX), 5);
    // The next scan sees both.
    floor.begin();
    floor.raise(at(10), std::iter::empty());
    assert_eq!(floor.with(u64::MAX), 10);
}

#[test]
fn dead_blocks_are_handed_out_once() {
    let floor = floor(0);
    let block = |sequence| block_key(DueList::Rest, 1, sequence);
    floor.raise(at(2), [block(1), block(2), block(1)].into_iter());
    assert_eq!(floor.take_dead(), [block(1), block(2)]);
    assert!(floor.take_dead().is_empty());
}

#[test]
fn at_one_moment_leases_come_before_what_waits_and_that_before_the_rest() {
    let lease = ScanPosition { number: 9, ..ScanPosition::first_at(Source::Leases, 5) };
    assert_eq!(lease.next_in(DueList::Waiting), ScanPosition::first_of(DueList::Waiting, 5));
    assert_eq!(lease.next_in(DueList::Rest), at(5));
    let waiting = ScanPosition { number: 3, ..ScanPosition::first_of(DueList::Waiting, 5) };
    assert_eq!(waiting.next_in(DueList::Waiting), ScanPosition { entry: 1, ..waiting });
    assert_eq!(waiting.next_in(DueList::Rest), at(5));
    let rest = ScanPosition { number: 3, ..at(5) };
    assert_eq!(
        rest.next_in(DueList::Waiting),
        ScanPosition::first_of(DueList::Waiting, 6),
        "that moment is over there"
    );
    assert!(lease < waiting && waiting < rest && rest < ScanPosition::first_at(Source::Leases, 6));
}

#[test]
fn a_cursor_comes_back_as_it_was() {
    let lease = ScanPosition { number: 2, ..ScanPosition::first_at(Source::Leases, 1) };
    for place in
        [at(7), lease, ScanPosition::first_of(DueList::Waiting, 2), ScanPosition { entry: 9, ..at(3) }]
    {
        assert_eq!(ScanPosition::from_cursor(&place.to_cursor()).unwrap(), place);
    }
    for strange in [vec![], vec![0x12], vec![0x13; 25], vec![0x12; 24], vec![0x12; 26], vec![1, 0]] {
        assert!(ScanPosition::from_cursor(&Cursor(strange.into())).is_err());
    }
}
