//! Tests of the format of held rows: golden bytes, and detection of damage.

use super::*;

#[test]
fn keys_and_blocks_have_these_bytes() {
    let name = BlockName { sequence: 0x0102, number: 3 };
    assert_eq!(name.to_key(), [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3]);
    assert_eq!(BlockName::from_key(&name.to_key()).unwrap(), name);
    let (one, two) = (Id::new("t", "o", "k").unwrap(), Id::new("t", "o", "l").unwrap());
    let mut block = Vec::new();
    assert_eq!(push(&mut block, 0x0203, &one, b"row"), 20);
    assert_eq!(push(&mut block, 9, &two, b""), 43);
    #[rustfmt::skip]
    let golden = [
        3, 2, 0, 0, 0, 0, 0, 0, 6, 0, 3, 0, 0, 0, 1, 0, 1, b't', b'o', b'k', b'r', b'o', b'w',
        9, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 1, 0, 1, b't', b'o', b'l',
    ];
    assert_eq!(block, golden);
    let read: Vec<_> = entries(&block).collect::<Result<_>>().unwrap();
    let entry = |version, id, at, row| Entry { version, id, at, row };
    assert_eq!(read, [entry(0x0203, one, 20, &b"row"[..]), entry(9, two, 43, &b""[..])]);
    assert_eq!(
        ended(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0]).unwrap().collect::<Vec<_>>(),
        [1, 512]
    );
}

#[test]
fn what_is_cut_is_noticed() {
    let mut block = Vec::new();
    push(&mut block, 7, &Id::new("t", "o", "k").unwrap(), b"row");
    for len in 1..block.len() {
        assert!(entries(&block[..len]).any(|entry| entry.is_err()), "cut to {len}");
    }
    for len in (0..17).filter(|len| len % 8 != 0) {
        assert!(ended(&[0; 17][..len]).is_err(), "cut to {len}");
    }
    for len in (0..14).filter(|len| *len != KEY_BYTES) {
        assert!(BlockName::from_key(&[0; 14][..len]).is_err(), "cut to {len}");
    }
}
