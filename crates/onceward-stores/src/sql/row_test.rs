//! Tests of converting rows to records.

use super::*;

fn columns(version: i64, state: &str, remaining_us: Option<i64>) -> Columns<'_> {
    let receipt = Bytes::from_static(&[1]);
    Columns { version, state, remaining_us, created_us: 9, updated_us: -1, receipt }
}

#[test]
fn a_row_becomes_a_record() {
    for state in State::ALL {
        let row = found(columns(7, state.name(), None)).unwrap();
        assert_eq!(
            (row.version, row.state, row.due, &row.bytes[..]),
            (Version(7), state, Due::Never, &[1][..])
        );
        // A clock that was set back makes nothing younger than new.
        assert_eq!(row.age, Age::new(Duration::from_micros(9), Duration::ZERO));
    }
    let due = |remaining| found(columns(7, "held", Some(remaining))).unwrap().due;
    assert_eq!(due(5), Due::In(Duration::from_micros(5)));
    assert_eq!(due(0), Due::Over(Duration::ZERO));
    assert_eq!(due(-5), Due::Over(Duration::from_micros(5)));
}

#[test]
fn a_row_of_something_else_is_said_to_be_damaged() {
    for (version, state) in [(0, "held"), (-1, "done"), (7, "free"), (7, "HELD"), (7, "")] {
        let row = || found(columns(version, state, None));
        assert_eq!(row().unwrap_err().kind(), ErrorKind::Damaged);
        assert!(matches!(lost(row()), Swapped::Failed(_)));
    }
    assert!(matches!(lost(found(columns(7, "held", None))), Swapped::Lost(Some(_))));
}

#[test]
fn what_no_database_can_count_is_cut_down() {
    let record = |due_in| Record::new(State::Done, Bytes::new()).with_due_in(due_in);
    assert_eq!(due_us(&record(Some(Duration::MAX))), Some(micros(DUE_MAX)));
    assert_eq!(due_us(&record(None)), None);
    assert_eq!(seen(Version(u64::MAX)), -1);
    assert_eq!(seen(Version(i64::MAX.unsigned_abs())), i64::MAX);
}

/// The numbers are in tables: never to be edited.
#[test]
fn open_states_have_numbers_of_their_own() {
    let numbers = State::ALL.map(open_state);
    assert_eq!(numbers, [1, 2, 5, 3, 4, 5]);
}

#[test]
fn a_row_matches_by_its_words() {
    let id = Id::new("s", "o", "k").unwrap();
    let of = |state| Filter::default().with_state(state).with_scope("s".to_owned());
    assert!(matches(&of(None), &id, b"paused"), "it cannot be read, and is there");
    assert!(matches(&of(Some(State::Held)), &id, b"held"));
    assert!(!matches(&of(Some(State::Held)), &id, b"paused"));
    assert!(!matches(&of(None).with_key("other".to_owned()), &id, b"held"));
}
