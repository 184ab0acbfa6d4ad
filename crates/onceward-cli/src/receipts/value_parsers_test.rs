//! Tests of the argument parsers of `onceward receipts`.

use clap::builder::TypedValueParser;

use super::{preset, state, verdict};

/// Every name that the help offers is accepted.
fn check_all<P: TypedValueParser>(parser: &P, count: usize) {
    let command = clap::Command::new("test");
    let names: Vec<_> = parser.possible_values().unwrap().collect();
    assert_eq!(names.len(), count);
    for name in names {
        assert!(parser.parse_ref(&command, None, name.get_name().as_ref()).is_ok(), "{name:?}");
    }
    assert!(parser.parse_ref(&command, None, "other".as_ref()).is_err());
}

#[test]
fn every_name_is_a_value_of_the_api() {
    check_all(&state(), onceward::State::ALL.len());
    check_all(&preset(), 3);
    check_all(&verdict(), 2);
}
