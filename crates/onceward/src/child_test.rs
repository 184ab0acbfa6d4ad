//! Derived keys: golden values, because a downstream service remembers them for us.

use std::collections::HashSet;

use super::*;

#[test]
fn golden_values() {
    let id = Id::new("tenant-7", "POST /charges", "order-81").unwrap();
    assert_eq!(child_key(&id, "email").unwrap().to_string(), "0c011129-85be-8b85-a924-1333c9d9eb5e");
    assert_eq!(child_key(&id, "provider").unwrap().to_string(), "6430468a-3e85-818d-9a7f-f3093382a520");
    let step = id.step("email").unwrap();
    assert_eq!(child_key(&step, "provider").unwrap().to_string(), "a00ee45c-4230-8712-9026-88939f8a8bd3");
}

#[test]
fn nothing_shares_a_key() {
    let mut seen = HashSet::new();
    for scope in ["a", "ab"] {
        for operation in ["a", "ab"] {
            for key in ["a", "ba", "b"] {
                let id = Id::new(scope, operation, key).unwrap();
                for label in ["a", "b", "ab"] {
                    assert!(seen.insert(child_key(&id, label).unwrap()), "{id:?} {label}");
                    assert!(seen.insert(child_key(&id.step(label).unwrap(), label).unwrap()));
                }
            }
        }
    }
}

#[test]
fn it_looks_like_a_uuid_of_version_8() {
    let key = child_key(&Id::new("s", "o", "k").unwrap(), "x").unwrap().to_string();
    let groups: Vec<_> = key.split('-').map(str::len).collect();
    assert_eq!(groups, [8, 4, 4, 4, 12]);
    assert_eq!(&key[14..15], "8");
    assert!("89ab".contains(&key[19..20]));
}
