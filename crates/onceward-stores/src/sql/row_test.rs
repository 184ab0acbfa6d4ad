use super::*;

#[test]
fn a_row_becomes_a_record() {
    for state in State::ALL {
        let row = found(7, state.name(), None, vec![1]).unwrap();
        assert_eq!(
            (row.version, row.state, row.due, &row.bytes[..]),
            (Version(7), state, Due::Never, &[1][..])
        );
    }
    let due = |remaining| found(7, "held", Some(remaining), Vec::new()).unwrap().due;
    assert_eq!(due(5), Due::In(Duration::from_micros(5)));
    assert_eq!(due(0), Due::Over(Duration::ZERO));
    assert_eq!(due(-5), Due::Over(Duration::from_micros(5)));
}

#[test]
fn a_row_of_something_else_is_said_to_be_damaged() {
    for (version, state) in [(0, "held"), (-1, "done"), (7, "free"), (7, "HELD"), (7, "")] {
        assert_eq!(found(version, state, None, Vec::new()).unwrap_err().kind(), ErrorKind::Damaged);
    }
}

#[test]
fn what_no_database_can_count_is_cut_down() {
    let record = |due_in| Record { state: State::Done, due_in, bytes: Bytes::new() };
    assert_eq!(due_us(&record(Some(Duration::MAX))), Some(micros(DUE_MAX)));
    assert_eq!(due_us(&record(None)), None);
    assert_eq!(seen(Version(u64::MAX)), -1);
    assert_eq!(seen(Version(i64::MAX.unsigned_abs())), i64::MAX);
}
