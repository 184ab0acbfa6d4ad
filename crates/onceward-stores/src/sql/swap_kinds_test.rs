//! Tests of splitting a batch by kind of swap.

use onceward::State;

use super::*;

fn swap(scope: &str, key: &str, seen: Seen, writes: bool) -> Swap {
    let record = Record::new(State::Held, bytes::Bytes::new());
    Swap { id: Id::new(scope, "operation", key).unwrap(), seen, new: writes.then_some(record) }
}

#[test]
fn each_kind_is_in_the_order_of_the_primary_key() {
    let seen = Seen::Version(Version(5));
    // The engine sorts by the length of the scope first; a table does not.
    let batch = [
        swap("b", "1", Seen::Absent, true),
        swap("b", "2", seen, true),
        swap("aa", "1", Seen::Absent, true),
        swap("aa", "2", seen, true),
        swap("c", "1", Seen::Absent, false),
        swap("c", "2", seen, false),
    ];
    let kinds = SwapKinds::new(&batch, 0..batch.len(), Version(0));
    let expected =
        SwapKinds { create: vec![2, 0], replace: vec![3, 1], check: vec![4], free: vec![5], delete: vec![] };
    assert_eq!(kinds, expected);
}

#[test]
fn only_a_removal_of_something_old_leaves_nothing_behind() {
    let now = 1_800_000_000_000_000;
    let old = now - u64::try_from(FREE_GRACE.as_micros()).unwrap();
    let batch = [
        swap("s", "1", Seen::Version(Version(old - 1)), false),
        swap("s", "2", Seen::Version(Version(old)), false),
        swap("s", "3", Seen::Version(Version(u64::MAX)), false),
    ];
    let kinds = SwapKinds::new(&batch, 0..3, Version(now));
    // A version that cannot be matches nothing, so it does not matter how it is removed.
    assert_eq!((kinds.delete, kinds.free), (vec![0, 2], vec![1]));
}
