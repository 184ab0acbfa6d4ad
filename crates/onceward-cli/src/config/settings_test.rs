//! Tests of reading the configuration file.

use http::Method;

use super::Settings;
use crate::config::check::table;

/// The error for an invalid file.
fn refused(text: &str) -> String {
    Settings::parse(text).expect_err(text)
}

#[test]
fn an_error_names_its_line_and_its_field() {
    for (text, line, says) in [
        ("upstrem = \"http://127.0.0.1:1\"", "line 1", "upstrem"),
        ("\n[defaults]\nlease = \"30\"", "line 3", "30s"),
        ("[defaults]\nlease = \"1ms\"", "line 2", "lease of 1ms"),
        ("[defaults]\nwait_at_most = \"2h\"", "line 2", "wait of at most"),
        ("[[route]]\npath = \"charges\"", "line 2", "slash"),
        ("[[route]]\npath = \"/a\"\nkey = \"needed\"", "line 3", "required"),
        ("[[route]]\npath = \"/a\"\n\n[[route]]\npath = \"/b\"\ncolour = 1", "line 6", "colour"),
        ("[[route]]\npath = \"/a\"\nmethods = [\"post\"]", "line 3", "capitals"),
        ("[[route]]\npath = \"/a\"\nscope = \"cookie\"", "line 1", "jwt:CLAIM"),
        ("[[route]]\npath = \"/a\"\noutcomes = { 7xx = \"retry\" }", "line 3", "7xx"),
        ("[[route]]\npath = \"/a\"\noutcomes = { 5xx = \"again\" }", "line 3", "replay"),
        ("[[route]]\npath = \"/a\"\npreset = \"square\"", "line 3", "ledger"),
        ("[[route]]\npath = \"/a\"\nproblem_status = { teapot = 418 }", "line 3", "in-progress"),
        ("[[route]]\npath = \"/a\"\nproblem_status = { in-progress = 200 }", "line 3", "400"),
        ("[[route]]\npath = \"/a\"\nfingerprint = { members_except = [\"a\"] }", "line 3", ""),
        ("listen = \"localhost\"", "line 1", "listen"),
        ("[[route]]\npath = \"/a\"\n[[route]]\nkey = \"required\"", "line 3", "path"),
        ("[[route]]\npath = \"/a\"\n[[route]]\npath = \"/b\"\nkey_pattern = \"(\"", "line 3", "key_pattern"),
        ("[[route]]\npath = \"/a\"\non_unknown = \"reconcile\"", "line 1", "reconcile_url"),
        // A limit of zero would refuse everything.
        ("in_flight_max = 0", "line 1", "nonzero"),
        ("answering_max = 0", "line 1", "nonzero"),
        ("threads = 0", "line 1", "nonzero"),
        ("[[route]]\npath = \"/a\"\nshedding = { latency = \"0s\" }", "line 1", "longer than zero"),
        (
            "[[route]]\npath = \"/a\"\nshedding = { latency = \"1s\", in_flight_min = 0 }",
            "line 1",
            "at least 1",
        ),
    ] {
        let error = refused(text);
        assert!(error.contains(line), "{text}\n{error}");
        assert!(error.contains(says), "{text}\n{error}");
    }
}

#[test]
fn a_route_overrides_the_defaults_and_these_override_the_preset() {
    let (_, routes) = Settings::parse(
        r#"
        [defaults]
        preset = "ledger"
        lease = "10s"

        [[route]]
        path = "/charges"
        key = "required"
        lease = "5s"

        [[route]]
        path = "/hooks/*"
        preset = "queue"
        "#,
    )
    .unwrap();
    let shown = table(&routes);
    let blocks: Vec<&str> = shown.split("\n\n").collect();
    assert_eq!(blocks.len(), 3, "{shown}");
    let holds = |block: &str, wanted: &str| assert!(block.contains(wanted), "{wanted} in\n{block}");
    holds(blocks[0], "1. any method /charges");
    holds(blocks[0], "lease                5s");
    holds(blocks[0], "key                  required");
    holds(blocks[0], "2xx replay forever");
    holds(blocks[1], "2xx replay 7d");
    holds(blocks[1], "lease                10s");
    holds(blocks[2], "Otherwise");
    holds(blocks[2], "key                  optional");
    holds(blocks[2], "lease                10s");
}

#[test]
fn the_first_route_that_matches_is_used() {
    let (_, routes) = Settings::parse(
        r#"
        [[route]]
        path = "/charges"
        methods = ["PUT"]

        [[route]]
        path = "/*"
        "#,
    )
    .unwrap();
    let first = |method: &Method| routes.list.iter().position(|route| route.is_for(method, "/charges"));
    assert_eq!(first(&Method::PUT), Some(0));
    assert_eq!(first(&Method::POST), Some(1));
}

#[test]
fn flags_override_the_file() {
    let (file, _) = Settings::parse("upstream = \"http://a\"\nlisten = \"127.0.0.1:1\"").unwrap();
    let flags = Settings { upstream: Some("http://b".into()), ..Settings::default() };
    let settings = flags.over(file.clone());
    assert_eq!(settings.upstream.as_deref(), Some("http://b"));
    assert_eq!(settings.listen, file.listen);
    assert_eq!(settings.changed(&file), ["upstream"]);
}
