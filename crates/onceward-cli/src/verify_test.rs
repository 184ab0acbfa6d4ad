//! Tests of the arguments of `onceward verify`.

use std::time::Duration;

use clap::Parser;
use onceward_verify::endpoint::{Effects, HttpVersion, KeyNotation};

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
        "--tenant-header",
        "Cookie: a=1",
        "Cookie: a=2",
        "--not-now",
        "/code=BUSY",
        "--held",
        "/code=ASK",
        "--key-pointer",
        "/id",
        "--fresh-header",
        "X-At: {unix_ms}",
        "--start-cmd",
        "exec app",
        "--start-url",
        "http://127.0.0.1:3000/",
        "--ready-cmd",
        "login",
        "--also-url",
        "http://other/charges",
        "--fail-header",
        "F: 1",
        "--fail-header",
        "F: 2",
        "--fail-after-effect-header",
        "L: {status}",
        "--fail-after-effect-header",
        "M: 1",
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
    let check = Line::try_parse_from(line)
        .map(|line| line.args.check(&line.args.urls[0]))
        .expect("it is understood")
        .expect("read");
    assert_eq!((check.key_notation, check.version, check.clients), (KeyNotation::Raw, HttpVersion::Http2, 7));
    assert_eq!(check.effects, Effects::Url { url: "http://app/n".into(), pointer: "/n".into() });
    assert_eq!(
        check.command_line("crash"),
        "onceward verify --url http://app/charges --body '{\"a\":1}' \
         --fresh-header 'X-At: {unix_ms}' --key-pointer /id --raw-key --http2 --ca own.pem --clients 7 \
         --effects-url http://app/n --effects-pointer /n --tenant-header 'T: a' 'T: b' \
         --tenant-header \"Cookie: $COOKIE_A\" \"Cookie: $COOKIE_B\" --also-url http://other/charges \
         --start-cmd 'exec app' --start-url http://127.0.0.1:3000/ --ready-cmd login \
         --fail-header 'F: 1' --fail-header 'F: 2' \
         --fail-after-effect-header 'L: {status}' --fail-after-effect-header 'M: 1' --slow-header 'S: 1' --lease 1500ms \
         --retention 86400s --not-now /code=BUSY --held /code=ASK --scenario crash --seed 9"
    );
}

#[test]
fn bodies_need_not_be_text() {
    let file = std::env::temp_dir().join(format!("onceward-verify-body-{}", std::process::id()));
    std::fs::write(&file, [0xff, 0x00, 0x80]).unwrap();
    let body = format!("@{}", file.display());
    let line = Line::try_parse_from(["verify", "--url", "http://app/charges", "--body", &body]);
    let check =
        line.map(|line| line.args.check(&line.args.urls[0])).expect("it is understood").expect("read");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(&check.body[..], [0xff, 0x00, 0x80]);
    assert!(check.command_line("crash").contains("--body @BODY"), "{}", check.command_line("crash"));
}

/// A file of a test of its own, removed with it.
struct Written(std::path::PathBuf);

impl Written {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("onceward-verify-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const DESCRIPTION: &str = "
openapi: 3.1.0
servers: [{url: 'http://127.0.0.1:3000/v1'}]
paths:
  /charges:
    post:
      parameters:
        - {name: X-Request-Key, in: header, required: true}
        - &Version {name: X-Version, in: header, required: true, example: 2}
      requestBody:
        content:
          application/json:
            schema: {required: [amount], properties: {amount: {type: integer, minimum: 5}}}
  /refunds:
    post:
      parameters: [*Version]
";

#[test]
fn described_operations_become_checks_of_their_own() {
    let file = Written::new("openapi.yaml", DESCRIPTION);
    let path = file.0.display().to_string();
    let line = ["verify", "--discover", &path, "--key-header", "x-request-key", "--url", "http://app:81/v2"];
    let args = Line::try_parse_from(line).map(|line| line.args).expect("it is understood");
    let (checks, keyless) = args.discovered(&file.0).unwrap();
    assert_eq!(keyless, ["POST /refunds"]);
    let [(name, check)] = &checks[..] else { panic!("{checks:?}") };
    assert_eq!((name.as_str(), check.url.as_str()), ("POST /charges", "http://app:81/v2/charges"));
    assert_eq!((check.key_header.as_str(), &check.body[..]), ("X-Request-Key", &br#"{"amount":5}"#[..]));
    assert_eq!(check.headers, [("X-Version".to_owned(), "2".to_owned())]);
    let line = ["verify", "--discover", &path, "--key-header", "x-request-key"];
    let args = Line::try_parse_from(line).map(|line| line.args).expect("it is understood");
    assert_eq!(args.discovered(&file.0).unwrap().0[0].1.url, "http://127.0.0.1:3000/v1/charges");
    let broken = Written::new("broken.yaml", "paths: [");
    assert!(args.discovered(&broken.0).is_err());
}

const OTHER_PLACES: &str = "
openapi: 3.1.0
servers: [{url: 'http://127.0.0.1:3000'}]
paths:
  /query:
    post:
      parameters: [{name: request_id, in: query, required: true}]
  /body:
    post:
      requestBody:
        content:
          application/json:
            schema: {properties: {idempotency_key: {type: string}, amount: {type: integer, example: 7}}}
  /header:
    post:
      parameters: [{name: Idempotency-Key, in: header}]
";

/// A key in the query or in the body becomes what --key-parameter and --key-pointer say, for its operation alone.
#[test]
fn a_described_key_may_be_in_the_query_or_in_the_body() {
    let file = Written::new("places.yaml", OTHER_PLACES);
    let line = ["verify", "--discover", &file.0.display().to_string(), "--key-parameter", "request_id"];
    let args = Line::try_parse_from(line).map(|line| line.args).expect("it is understood");
    let (checks, keyless) = args.discovered(&file.0).unwrap();
    assert!(keyless.is_empty(), "{keyless:?}");
    let mut places: Vec<(&str, Option<&str>, Option<&str>)> = checks
        .iter()
        .map(|(name, check)| (name.as_str(), check.key_parameter.as_deref(), check.key_pointer.as_deref()))
        .collect();
    places.sort_unstable();
    assert_eq!(
        places,
        [
            ("POST /body", None, Some("/idempotency_key")),
            ("POST /header", None, None),
            ("POST /query", Some("request_id"), None),
        ]
    );
    for (name, check) in checks {
        assert!(check.plan().is_ok(), "{name}: {:?}", check.plan());
    }
}

/// The kind of an event is what its scheme usually has.
#[test]
fn shopify_has_topics_of_its_own() {
    let webhook = |more: &[&str]| {
        // Any variable will do for the secret.
        let hook = ["--webhook-url", "http://app/hooks", "--webhook-secret-env", "PATH"];
        let line = [&["verify", "--url", "http://app/charges"][..], &hook, more].concat();
        let args = Line::try_parse_from(line).map(|line| line.args).expect("it is understood");
        args.check(&args.urls[0]).expect("read").webhook.expect("there is one")
    };
    let shopify = ["--webhook-scheme", "shopify"];
    assert_eq!(webhook(&shopify).event_name, "orders/create");
    assert_eq!(webhook(&["--webhook-scheme", "github"]).event_name, "push");
    assert_eq!(
        webhook(&[&shopify[..], &["--webhook-event", "orders/paid"]].concat()).event_name,
        "orders/paid"
    );
}
