//! Eight bytes at a time or one by one: the same place is found, and the same text is read.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn one_by_one(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte < 0x20 || *byte == b'"' || *byte == b'\\')
}

#[test]
fn every_byte_at_every_place_of_a_word() {
    for byte in 0..=u8::MAX {
        for at in 0..20 {
            for filler in [b' ', b'~', 0x80, 0xff, b'!', b'#', b'[', b']'] {
                let mut bytes = vec![filler; 20];
                bytes[at] = byte;
                assert_eq!(plain_bytes(&bytes), one_by_one(&bytes), "{byte:#x} at {at} among {filler:#x}");
            }
        }
    }
}

/// Short texts are read otherwise than long ones, and an escape can be anywhere in them.
#[test]
fn texts_of_every_length_with_an_escape_at_every_place() {
    for len in 0..40 {
        for behind in [&b""[..], b",", br#":"and what follows""#] {
            let plain = vec![b'x'; len];
            let body = [&plain[..], b"\"", behind].concat();
            let mut out = b"before".to_vec();
            assert_eq!(read(&body, 0, &mut out), Ok(len + 1));
            assert_eq!(out, [b"before", &plain[..], &[STOP]].concat());
            for at in 0..=len {
                let body = [&plain[..at], br"\n", &plain[at..], b"\"", behind].concat();
                let mut out = Vec::new();
                assert_eq!(read(&body, 0, &mut out), Ok(len + 3));
                assert_eq!(out, [&plain[..at], b"\n", &plain[at..], &[STOP]].concat());
                let body = [&plain[..at], b"\n", &plain[at..], b"\"", behind].concat();
                assert_eq!(read(&body, 0, &mut Vec::new()), Err(ByBytes), "a control character");
                assert_eq!(read(&plain[..at], 0, &mut Vec::new()), Err(ByBytes), "without an end");
            }
        }
    }
}

proptest! {
    #[test]
    fn agrees_for_any_bytes(bytes in vec(prop_oneof![any::<u8>(), 0x1e_u8..0x24, 0x5a_u8..0x5e], 0..64)) {
        prop_assert_eq!(plain_bytes(&bytes), one_by_one(&bytes));
    }
}
