//! Tests of the group record: golden bytes, and detection of damage.

use super::*;

const EXAMPLE: GroupRecord = GroupRecord {
    nonce: [0xaa; NONCE_BYTES],
    sequence: 1,
    version_max: 0x0203,
    floors_us: [4, 5],
    held_from: 6,
    engine_number: 7,
};

#[test]
fn a_record_has_these_bytes() {
    let mut golden = [0; RECORD_BYTES];
    golden[..16].fill(0xaa);
    (golden[16], golden[24], golden[25]) = (1, 3, 2);
    (golden[32], golden[40], golden[48], golden[56]) = (4, 5, 6, 7);
    golden[64..].copy_from_slice(&[0xe5, 0xd6, 0xc7, 0x74]);
    assert_eq!(EXAMPLE.encode(), golden);
    assert_eq!(GroupRecord::decode(&golden), Some(EXAMPLE));
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let good = EXAMPLE.encode();
    for bit in 0..good.len() * 8 {
        let mut bad = good;
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(GroupRecord::decode(&bad), None, "bit {bit}");
    }
    for len in 0..good.len() {
        assert_eq!(GroupRecord::decode(&good[..len]), None, "cut to {len}");
    }
}

#[test]
fn the_engines_number_must_be_near() {
    assert!(EXAMPLE.fits_engine_number(7));
    assert!(EXAMPLE.fits_engine_number(1000));
    assert!(!EXAMPLE.fits_engine_number(6));
    assert!(!EXAMPLE.fits_engine_number(7 + (1 << 21)));
}
