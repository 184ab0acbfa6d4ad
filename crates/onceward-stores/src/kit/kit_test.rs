//! Tests of the arithmetic that all stores share.

use onceward::{Cursor, ErrorKind, Version};

use super::*;

#[test]
fn due_times_saturate() {
    assert_eq!(due_us(5, None), None);
    assert_eq!(due_us(5, Some(Duration::from_micros(2))), Some(7));
    assert_eq!(due_us(5, Some(Duration::MAX)), Some(u64::MAX));
}

#[test]
fn a_record_is_as_seen_or_not() {
    assert!(is_as_seen(Seen::Absent, None));
    assert!(!is_as_seen(Seen::Absent, Some(1)));
    assert!(is_as_seen(Seen::Version(Version(1)), Some(1)));
    assert!(!is_as_seen(Seen::Version(Version(1)), Some(2)));
    assert!(!is_as_seen(Seen::Version(Version(1)), None));
}

#[test]
fn versions_grow_also_when_the_clock_is_set_back() {
    assert_eq!(next_version(7, 100), 100);
    assert_eq!(next_version(100, 100), 101);
    assert_eq!(next_version(100, 3), 101);
}

#[test]
fn a_cursor_comes_back_as_it_was_and_no_other_is_taken() {
    let packed = cursor::pack(&[1, u64::MAX]);
    assert_eq!(cursor::unpack(&packed).unwrap(), [1, u64::MAX]);
    assert_eq!(cursor::unpack::<1>(&packed).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(cursor::unpack::<3>(&packed).unwrap_err().kind(), ErrorKind::Invalid);
    let odd = Cursor(vec![0; 17].into());
    assert_eq!(cursor::unpack::<2>(&odd).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_filter_with_all_parts_names_one_id() {
    let filter = Filter::default()
        .with_scope("s".to_owned())
        .with_operation(TextMatch::Is("o#step".into()))
        .with_key("k".to_owned());
    let id = only_id(&filter).unwrap().unwrap();
    assert!(filter.matches(&id, onceward::State::Done));
    assert!(only_id(&filter.clone().with_key(None)).is_none());
    assert!(only_id(&filter.clone().with_operation(TextMatch::StartsWith("o".into()))).is_none());
    assert!(only_id(&filter.with_key("\n".to_owned())).unwrap().is_err());
}
