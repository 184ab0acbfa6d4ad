//! Which queries are one.

use proptest::prelude::*;

use super::*;

#[test]
fn respelled_queries() {
    same("a=%7e", "a=~");
    same("a=%2f", "a=%2F");
    same("%61=b", "a=b");
    same("a={}", "a=%7B%7d");
    same("a=é", "a=%C3%a9");
    same("a=%", "a=%");
}

#[test]
fn different_queries() {
    differ("a=1&b=2", "b=2&a=1");
    differ("a=1", "a=2");
    differ("a", "a=");
    differ("a=1", "a=1&");
    differ("a=1+1", "a=1%2B1");
    differ("a=1+1", "a=1%201");
    differ("a=/", "a=%2F");
    differ("a=1&b=2", "a=1%26b=2");
    differ("a=%", "a=%25");
    differ("a=%zz", "a=%25zz");
    differ("a=%2541", "a=%41");
    differ("a=%%32F", "a=%2F");
    differ("A=1", "a=1");
}

#[test]
fn parameters_that_count() {
    let names = || vec!["t".to_owned(), "a b".to_owned()];
    let check = |parameters: Pick<String>, a: &str, b: &str, alike: bool| {
        assert_eq!(write(a, &parameters) == write(b, &parameters), alike, "{parameters:?}: {a} and {b}");
    };
    check(Pick::Except(names()), "x=1&t=2&y=3", "x=1&y=3", true);
    check(Pick::Except(names()), "t=1&a+b=2&a%20b&%74=5", "", true);
    check(Pick::Except(names()), "x=1&t=2", "x=2&t=2", false);
    check(Pick::Except(names()), "tt=1", "tt=2", false);
    check(Pick::Only(names()), "x=1&t=2&y=3&a+b=4", "t=2&a+b=4", true);
    check(Pick::Only(names()), "t=1", "t=2", false);
    check(Pick::Only(names()), "x=1", "", true);
    check(Pick::Only(vec![]), "x=1", "", true);
}

proptest! {
    #[test]
    fn two_queries_are_one_if_they_mean_the_same(queries in prop::collection::vec("[%2246Ff/é{]{0,6}", 2..30)) {
        for a in &queries {
            for b in &queries {
                let alike = write(a, &Pick::All) == write(b, &Pick::All);
                prop_assert_eq!(meaning(a) == meaning(b), alike, "{} and {}", a, b);
            }
        }
    }
}

/// Character by character: whether it acts as itself, or is data because it is escaped.
fn meaning(query: &str) -> Vec<(&'static str, u8)> {
    let mut meaning = Vec::new();
    let mut at = 0;
    while let Some(&byte) = query.as_bytes().get(at) {
        at += 1;
        let escaped =
            query.get(at..at + 2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        meaning.push(match (byte, escaped) {
            (b'%', Some(digits)) => {
                at += 2;
                let byte = u8::from_str_radix(digits, 16).unwrap();
                (if byte.is_ascii_alphanumeric() { "plain" } else { "data" }, byte)
            }
            (b'%', None) => ("stray", byte),
            (b'{' | 0x80.., _) => ("data", byte),
            _ => ("plain", byte),
        });
    }
    meaning
}

fn write(query: &str, parameters: &Pick<String>) -> Vec<u8> {
    let mut out = Vec::new();
    canonical(query, parameters, &mut out);
    out
}

fn same(a: &str, b: &str) {
    assert_eq!(write(a, &Pick::All), write(b, &Pick::All), "{a} and {b}");
}

fn differ(a: &str, b: &str) {
    assert_ne!(write(a, &Pick::All), write(b, &Pick::All), "{a} and {b}");
}
