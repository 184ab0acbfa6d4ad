use onceward::ErrorKind;

use super::*;

#[test]
fn a_cursor_comes_back_as_it_was_and_only_for_its_kind() {
    let place = Place { due_us: -7, scope: b"s".into(), key: b"k k".into(), operation: b"o#step".into() };
    assert_eq!(place.id().unwrap().operation(), "o#step");
    for order in [Order::Due, Order::Id, Order::State, Order::Never] {
        let cursor = place.cursor(order);
        assert_eq!(Place::behind(&cursor, order).unwrap(), place);
        assert!(Place::is_of(&cursor, order));
    }
    let refused = Place::behind(&place.cursor(Order::Due), Order::Id).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[test]
fn other_bytes_are_no_cursor() {
    let whole = Place { due_us: 1, scope: b"scope".into(), key: b"key".into(), operation: b"o".into() };
    let whole = whole.cursor(Order::Due).0;
    // The operation is the rest, so it is the one part that may be cut.
    for length in 0..whole.len() - 1 {
        assert!(Place::behind(&Cursor(whole.slice(..length)), Order::Due).is_err(), "{length} bytes");
    }
}

#[test]
fn a_row_of_others_is_a_place_without_an_id() {
    let place = Place { due_us: 0, scope: vec![0xff], key: b"k".into(), operation: b"o".into() };
    assert_eq!(Place::behind(&place.cursor(Order::Id), Order::Id).unwrap(), place);
    assert_eq!(place.id(), None);
    assert_eq!(Place::default().id(), None);
}
