//! Golden bytes of a row, and what damage to them gives.

use super::*;

fn example() -> (Id, Row) {
    let id = Id::new("t", "POST /a", "k").unwrap();
    (id, Row { version: 0x0102, state: State::Done, due_us: 7, bytes: Bytes::from_static(b"xyz") })
}

fn encoded(id: &Id, row: &Row) -> Vec<u8> {
    let mut bytes = Vec::new();
    row.encode(id, &mut bytes);
    bytes
}

#[test]
fn a_row_has_these_bytes() {
    let (id, row) = example();
    let golden =
        [1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0x60, 0x66, 0x44, 0x2c, b'x', b'y', b'z'];
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
fn a_lease_from_before_the_opening_is_over_even_when_the_clock_is_set_back() {
    let opened = Opened { at_us: 100, version_max: 50 };
    let lease = |version| Row { version, state: State::Held, due_us: 1_000, bytes: Bytes::new() };
    assert!(lease(50).found(100, opened).due.is_over());
    assert!(lease(50).found(3, opened).due.is_over());
    assert!(!lease(51).found(100, opened).due.is_over());
}
