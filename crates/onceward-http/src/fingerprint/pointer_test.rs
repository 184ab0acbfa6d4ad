//! Pointers as RFC 6901 writes them. What they select is tested with the documents, in `json_test.rs`.

use super::*;

#[test]
fn the_examples_of_the_standard() {
    for (text, steps) in [
        ("", &[][..]),
        ("/foo", &["foo"]),
        ("/foo/0", &["foo", "0"]),
        ("/", &[""]),
        ("/a~1b", &["a/b"]),
        ("/m~0n", &["m~n"]),
        ("/~01", &["~1"]),
        ("/ ", &[" "]),
        ("/k\"l", &["k\"l"]),
        ("//", &["", ""]),
    ] {
        let pointer: Pointer = text.parse().unwrap();
        assert_eq!(pointer.steps, steps, "{text}");
        assert_eq!(pointer.to_string(), text);
    }
}

#[test]
fn an_invalid_pointer_is_explained() {
    for (text, why) in [("a", "slash"), ("#/a", "slash"), ("/~", "`~0`"), ("/a~2", "`~0`"), ("/~~0", "`~0`")]
    {
        let error = Pointer::parse(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(why), "{error}");
    }
    let long = "/a".repeat(POINTER_STEPS_MAX);
    assert!(Pointer::parse(&long).is_ok());
    assert!(Pointer::parse(&(long + "/a")).is_err());
}

#[test]
fn a_step_is_an_index_only_in_its_plain_form() {
    for (step, expected) in [
        ("0", Some(0)),
        ("10", Some(10)),
        ("01", None),
        ("00", None),
        ("-", None),
        ("-1", None),
        ("+1", None),
        ("", None),
        ("1e1", None),
        ("99999999999999999999999", None),
    ] {
        assert_eq!(index(step), expected, "{step}");
    }
}
