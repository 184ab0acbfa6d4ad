//! Tests of text cursors: round trips, and refusal of foreign ones.

use onceward::ErrorKind;

use super::*;

#[test]
fn a_cursor_comes_back_as_it_was_and_only_for_its_kind() {
    let position =
        TextPosition { due_us: -7, scope: b"s".into(), key: b"k k".into(), operation: b"o#step".into() };
    assert_eq!(position.id().unwrap().operation(), "o#step");
    for order in [ScanOrder::Due, ScanOrder::Id, ScanOrder::State, ScanOrder::Never] {
        let cursor = position.cursor(order);
        assert_eq!(TextPosition::from_cursor(&cursor, order).unwrap(), position);
        assert!(TextPosition::is_of(&cursor, order));
    }
    let refused = TextPosition::from_cursor(&position.cursor(ScanOrder::Due), ScanOrder::Id).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[test]
fn other_bytes_are_no_cursor() {
    let whole =
        TextPosition { due_us: 1, scope: b"scope".into(), key: b"key".into(), operation: b"o".into() };
    let whole = whole.cursor(ScanOrder::Due).0;
    // The operation is the rest, so it is the one part that may be cut.
    for length in 0..whole.len() - 1 {
        assert!(
            TextPosition::from_cursor(&Cursor(whole.slice(..length)), ScanOrder::Due).is_err(),
            "{length} bytes"
        );
    }
}

#[test]
fn a_foreign_row_is_a_position_without_an_id() {
    let position = TextPosition { due_us: 0, scope: vec![0xff], key: b"k".into(), operation: b"o".into() };
    assert_eq!(TextPosition::from_cursor(&position.cursor(ScanOrder::Id), ScanOrder::Id).unwrap(), position);
    assert_eq!(position.id(), None);
    assert_eq!(TextPosition::default().id(), None);
}

#[test]
fn fuzz_text_cursor() {
    let position = TextPosition {
        due_us: 7,
        scope: b"acme".to_vec(),
        key: b"k".to_vec(),
        operation: b"POST /charges".to_vec(),
    };
    let seeds = [ScanOrder::Due, ScanOrder::Never].map(|order| position.cursor(order).0.to_vec());
    onceward_fuzz::Fuzz::new("text_cursor").with_seeds(seeds).run(|input| {
        let cursor = Cursor(input.to_vec().into());
        let Ok(read) = TextPosition::from_cursor(&cursor, ScanOrder::Due) else { return 0 };
        assert_eq!(TextPosition::from_cursor(&read.cursor(ScanOrder::Due), ScanOrder::Due).unwrap(), read);
        1 + usize::from(read.id().is_some())
    });
}
