//! Ids: bounds, forms, and that no two different ids share one byte form.

use proptest::prelude::*;

use super::*;

#[track_caller]
fn refused(scope: &str, operation: &str, key: &str, expect: &str) {
    let error = Id::new(scope, operation, key).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Invalid);
    assert!(error.to_string().contains(expect), "{error}");
}

#[test]
fn bad_parts_are_refused_with_a_reason() {
    refused("", "o", "k", "scope is empty");
    refused("s", "", "k", "operation is empty");
    refused("s", "o", "", "key is empty");
    refused(&"s".repeat(256), "o", "k", "scope is 256 bytes long; at most 255");
    refused("s", &"o".repeat(513), "k", "operation is 513 bytes long; at most 512");
    refused("s", "o", &"k".repeat(256), "key is 256 bytes long; at most 255");
    refused("s", "o", "k\n", "0x0a");
    refused("s\0", "o", "k", "0x00");
    refused("s", "o", "schlüssel", "0xc3");
    refused("s", "o", "\u{7f}", "0x7f");
    refused("s", "a#b", "k", "'#'");
}

#[test]
fn parts_at_their_bounds_are_accepted() {
    let id = Id::new(&"s".repeat(255), &"o".repeat(512), &"k".repeat(255)).unwrap();
    assert_eq!((id.scope().len(), id.operation().len(), id.key().len()), (255, 512, 255));
    assert_eq!(Id::from_bytes(id.as_bytes()).unwrap(), id);
}

#[test]
fn steps_extend_the_operation_and_stay_apart_from_operations() {
    let id = Id::new("s", "POST /charges", "k").unwrap();
    let step = id.step("email").unwrap();
    assert_eq!(step.operation(), "POST /charges#email");
    assert_eq!(step.step("render").unwrap().operation(), "POST /charges#email#render");
    assert!(id.step("a#b").is_err());
    assert!(id.step("").is_err());
    assert!(id.step(&"x".repeat(600)).is_err());
}

/// The text of an id is checked in blocks: a byte is found at every place of one.
#[test]
fn marks_and_bad_bytes_are_found_at_every_place() {
    for before in 0..200 {
        let with = |byte: char| format!("{}{byte}", "x".repeat(before));
        refused("s", &with('#'), "k", "'#'");
        refused("s", &with('\n'), "k", "0x0a");
        refused("s", "o", &with('\u{7f}'), "0x7f");
        let id = Id::new(&with('#'), "o", &with('#')).unwrap();
        assert!(!id.is_step(), "a scope and a key may have a mark");
        assert!(id.step("email").unwrap().is_step());
        assert!(Id::from_columns("s", &with('#'), "k").unwrap().is_step());
    }
}

#[test]
fn the_byte_form_is_stable() {
    let id = Id::new("ten", "op", "key-1").unwrap();
    assert_eq!(id.as_bytes(), b"\x03\x00\x02tenopkey-1");
}

#[test]
fn debug_does_not_show_the_key() {
    for key in ["8e03978e-40d5-43e8-bc93-6894a57f9324", "7391", "k"] {
        let id = Id::new("tenant", "op", key).unwrap();
        let hash = blake3::hash(key.as_bytes()).to_hex();
        assert_eq!(format!("{id:?}"), format!("tenant/op/{}", &hash[..12]));
    }
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(scope in ".*", operation in ".*", key in ".*") {
        let _ = Id::new(&scope, &operation, &key);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(id) = Id::from_bytes(&bytes) {
            prop_assert_eq!(id.as_bytes(), &bytes[..]);
        }
    }

    #[test]
    fn different_parts_have_different_bytes(
        a in ("[ab]{1,3}", "[ab]{1,3}", "[ab]{1,3}"), b in ("[ab]{1,3}", "[ab]{1,3}", "[ab]{1,3}"),
    ) {
        let one = Id::new(&a.0, &a.1, &a.2).unwrap();
        let two = Id::new(&b.0, &b.1, &b.2).unwrap();
        prop_assert_eq!(a == b, one.as_bytes() == two.as_bytes());
    }
}
