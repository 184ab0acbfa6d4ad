//! Tests of the row format: golden bytes, and detection of damage.

use super::*;

fn example() -> (Id, Row) {
    let id = Id::new("t", "POST /a", "k").unwrap();
    let row = Row {
        version: 0x0102,
        state: State::Held,
        due_us: 7,
        created: 0x0101,
        ends_with_writer: true,
        bytes: Bytes::from_static(b"xyz"),
    };
    (id, row)
}

fn encoded(id: &Id, row: &Row) -> Vec<u8> {
    let mut bytes = Vec::new();
    row.encode(id, &mut bytes);
    bytes
}

#[test]
fn a_row_has_these_bytes() {
    let (id, row) = example();
    #[rustfmt::skip]
    let golden = [
        2, 129, 2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0,
        0xba, 0xea, 0x12, 0xa3, b'x', b'y', b'z',
    ];
    assert_eq!(encoded(&id, &row), golden);
    assert_eq!(Row::decode(&id, &golden).unwrap(), row);
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let (id, row) = example();
    let good = encoded(&id, &row);
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Row::decode(&id, &bad).unwrap_err().kind(), ErrorKind::Damaged, "bit {bit}");
    }
    for len in 0..good.len() {
        assert_eq!(Row::decode(&id, &good[..len]).unwrap_err().kind(), ErrorKind::Damaged, "cut to {len}");
    }
    let other = Id::new("t", "POST /a", "l").unwrap();
    assert_eq!(Row::decode(&other, &good).unwrap_err().kind(), ErrorKind::Damaged, "another id's row");
}

#[test]
fn every_state_has_a_number_of_its_own() {
    let bytes = State::ALL.map(state_byte);
    assert_eq!(bytes, [0, 1, 2, 3, 4, 5]);
    for state in State::ALL {
        let (id, row) = example();
        let row = Row { state, ends_with_writer: false, ..row };
        assert_eq!(Row::decode(&id, &encoded(&id, &row)).unwrap(), row);
    }
}

#[test]
fn what_a_later_version_wrote_is_said_to_be_that() {
    let (id, row) = example();
    let mut later = encoded(&id, &row);
    later[0] = 3;
    let sum = checksum(&id, &later[..CHECKED_BYTES], b"xyz");
    later[CHECKED_BYTES..HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
    let error = Row::decode(&id, &later).unwrap_err();
    assert!(error.to_string().contains("layout 3"), "{error}");
}

#[test]
fn a_run_from_before_the_opening_is_over_even_when_the_clock_is_set_back() {
    let opened = OpenedAt { at_us: 100, version_max: 50 };
    let run = |version| Row { version, due_us: 1_000, ..example().1 };
    assert!(run(50).found(100, opened).due.is_over());
    assert!(run(50).found(3, opened).due.is_over());
    assert!(!run(51).found(100, opened).due.is_over(), "of this process");
}

#[test]
fn what_does_not_end_with_its_writer_keeps_its_lease() {
    let opened = OpenedAt { at_us: 100, version_max: 50 };
    let ticket = Row { version: 50, due_us: 1_000, ends_with_writer: false, ..example().1 };
    assert_eq!(ticket.found(100, opened).due, Due::In(std::time::Duration::from_micros(900)));
    assert_eq!(ticket.effective_due_us(opened), 1_000);
}

#[test]
fn only_what_is_held_ends_with_its_writer() {
    for state in State::ALL {
        let record = Record::new(state, Bytes::new()).with_ends_with_writer(true);
        assert_eq!(Row::new(&record, 1, None, 0).ends_with_writer, state == State::Held);
    }
}

#[test]
fn each_row_is_in_the_lists_that_its_scans_read() {
    let row = |state, due_us| Row { state, due_us, ..example().1 };
    for due_us in [7, NEVER_US] {
        let due = (due_us != NEVER_US).then_some(due_us);
        for state in State::ALL {
            let row = row(state, due_us);
            let expected = match state {
                State::Waiting => (due.map(|due| (DueList::Waiting, due)), due.is_none()),
                State::Held => (None, false),
                State::Unknown | State::Dead => (due.map(|due| (DueList::Rest, due)), true),
                State::Done | State::Gone => (due.map(|due| (DueList::Rest, due)), false),
            };
            assert_eq!((row.listed(), row.indexed_state() == Some(state)), expected, "{state} {due_us}");
        }
    }
}
