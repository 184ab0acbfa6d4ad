//! Eight bytes at a time or one by one: the same place is found.

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

proptest! {
    #[test]
    fn agrees_for_any_bytes(bytes in vec(prop_oneof![any::<u8>(), 0x1e_u8..0x24, 0x5a_u8..0x5e], 0..64)) {
        prop_assert_eq!(plain_bytes(&bytes), one_by_one(&bytes));
    }
}
