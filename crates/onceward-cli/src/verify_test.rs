//! Tests of the arguments of `onceward verify`.

use std::time::Duration;

use clap::Parser;
use onceward_verify::endpoint::{Effects, KeyForm, Version};

use super::{Args, duration, field};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

#[test]
fn times_have_units() {
    for (text, ms) in [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("24h", 86_400_000)] {
        assert_eq!(duration(text), Ok(Duration::from_millis(ms)));
    }
    for text in ["", "s", "30", "30 s", "-1s", "1d", "99999999999999999999s", "18446744073709551615h"] {
        assert!(duration(text).is_err(), "{text:?} was taken");
    }
}

#[test]
fn fields_have_names_and_values() {
    assert_eq!(field("X-A: b: c"), Ok(("X-A".to_owned(), "b: c".to_owned())));
    assert!(field("X-A").is_err());
}

/// The command that a finding prints to repeat it is parsed into the same check.
#[test]
fn a_printed_command_is_parsed_into_the_same_check() {
    let line = [
        "verify",
        "--url",
        "http://app/charges",
        "--body",
        "{\"a\":1}",
        "--raw-key",
        "--http2",
        "--ca",
        "own.pem",
        "--clients",
        "7",
        "--effects-url",
        "http://app/n",
        "--effects-pointer",
        "/n",
        "--tenant-header",
        "T: a",
        "T: b",
        "--also-url",
        "http://other/charges",
        "--fail-header",
        "F: 1",
        "--slow-header",
        "S: 1",
        "--lease",
        "1500ms",
        "--retention",
        "24h",
        "--scenario",
        "crash",
        "--seed",
        "9",
    ];
    let check =
        Line::try_parse_from(line).map(|line| line.args.check()).expect("it is understood").expect("read");
    assert_eq!((check.key_form, check.version, check.clients), (KeyForm::Raw, Version::Http2, 7));
    assert_eq!(check.effects, Effects::Url { url: "http://app/n".into(), pointer: "/n".into() });
    assert_eq!(
        check.command_line("crash"),
        "onceward verify --url http://app/charges --body '{\"a\":1}' --raw-key --http2 --ca own.pem --clients 7 \
         --effects-url http://app/n --effects-pointer /n --tenant-header 'T: a' 'T: b' \
         --also-url http://other/charges --fail-header 'F: 1' --slow-header 'S: 1' --lease 1500ms \
         --retention 86400s --scenario crash --seed 9"
    );
}
