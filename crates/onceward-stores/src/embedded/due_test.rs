//! The floor between a scan and the groups that are written meanwhile.

use super::*;

fn at(due_us: u64) -> Place {
    Place::first_indexed(due_us)
}

#[test]
fn a_scan_lifts_the_floor_and_a_group_lowers_it() {
    let floor = Floor::new(3);
    assert_eq!(floor.begin(), at(3));
    floor.lift(at(10), std::iter::empty());
    assert_eq!(floor.with(u64::MAX), 10);
    assert_eq!(floor.with(7), 7);
    assert_eq!(floor.with(u64::MAX), 10, "not before the group is visible");
    floor.lower(7);
    assert_eq!(floor.with(u64::MAX), 7);
}

#[test]
fn a_scan_does_not_lift_the_floor_above_a_row_it_could_not_see() {
    let floor = Floor::new(0);
    floor.begin();
    floor.lower(5);
    floor.lower(50);
    floor.lift(at(10), std::iter::empty());
    assert_eq!(floor.with(u64::MAX), 5);
    // The next scan sees both.
    floor.begin();
    floor.lift(at(10), std::iter::empty());
    assert_eq!(floor.with(u64::MAX), 10);
}

#[test]
fn dead_blocks_are_handed_out_once() {
    let floor = Floor::new(0);
    let dead = [block_key(1, 1), block_key(1, 2), block_key(1, 1)];
    floor.lift(at(2), dead.into_iter());
    assert_eq!(floor.take_dead(), [block_key(1, 1), block_key(1, 2)]);
    assert!(floor.take_dead().is_empty());
}

#[test]
fn a_cursor_comes_back_as_it_was() {
    for place in [at(7), Place { due_us: 1, source: LEASE, number: 2, entry: 0 }, Place { entry: 9, ..at(3) }]
    {
        assert_eq!(Place::from_cursor(&place.to_cursor()).unwrap(), place);
    }
    assert!(Place::from_cursor(&Cursor(vec![2; 25].into())).is_err());
    assert!(Place::from_cursor(&Cursor(vec![1; 24].into())).is_err());
}
