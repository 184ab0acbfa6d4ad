//! Which forms are one.

use proptest::prelude::*;

use super::*;

#[test]
fn respelled_forms() {
    same("a=1&b=2", "b=2&a=1");
    same("a=x+y", "a=x%20y");
    same("a", "a=");
    same("a=1&&b=2&", "a=1&b=2");
    same("%61=%31", "a=1");
    same("a=1&b=0&a=2", "b=0&a=1&a=2");
    same("a=%C3%A9", "a=é");
    same("a=b=c", "a=b%3Dc");
    same("", "&");
}

#[test]
fn different_forms() {
    differ("a=1&a=2", "a=2&a=1");
    differ("a=1", "a=2");
    differ("a=1&b=2", "a=2&b=1");
    differ("a=1&b=2", "a=1%26b=2");
    differ("a=1", "a=1&a=1");
    differ("a=x+y", "a=x%2By");
    differ("ab=", "a=b");
    differ("=a", "a=");
    differ("a=1;b=2", "a=1&b=2");
}

#[test]
fn invalid_escapes_count_by_bytes() {
    for body in ["a=%", "a=%4", "a=%zz", "%=1", "a=1&b=%2", "%+1=1"] {
        assert_eq!(write(body.as_bytes()), Err(ByBytes), "{body}");
    }
}

proptest! {
    #[test]
    fn two_forms_are_one_if_their_lists_are(a in pairs(), b in pairs(), by_name: bool) {
        let mut respelled = a.clone();
        if by_name {
            respelled.sort_by(|x, y| x.0.cmp(&y.0));
        }
        prop_assert_eq!(write(&plain(&a)), write(&escaped(&respelled)));
        let lists = |pairs: &[(String, String)]| {
            let mut sorted = pairs.to_vec();
            sorted.sort_by(|x, y| x.0.cmp(&y.0));
            sorted
        };
        prop_assert_eq!(lists(&a) == lists(&b), write(&plain(&a)) == write(&plain(&b)));
    }

    #[test]
    fn any_bytes_are_read_without_harm(body: Vec<u8>) {
        prop_assert_eq!(write(&body), write(&body));
    }
}

fn pairs() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec(("[ab]{1,2}", "[ab12]{0,2}"), 0..5)
}

fn plain(pairs: &[(String, String)]) -> Vec<u8> {
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&").into_bytes()
}

fn escaped(pairs: &[(String, String)]) -> Vec<u8> {
    let escape = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat();
    let pairs = pairs.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value)));
    pairs.collect::<Vec<_>>().join("&").into_bytes()
}

fn write(body: &[u8]) -> Result<Vec<u8>, ByBytes> {
    let mut out = Vec::new();
    canonical(body, &mut out).map(|()| out)
}

fn same(a: &str, b: &str) {
    assert_eq!(write(a.as_bytes()).unwrap(), write(b.as_bytes()).unwrap(), "{a} and {b}");
}

fn differ(a: &str, b: &str) {
    assert_ne!(write(a.as_bytes()).unwrap(), write(b.as_bytes()).unwrap(), "{a} and {b}");
}
