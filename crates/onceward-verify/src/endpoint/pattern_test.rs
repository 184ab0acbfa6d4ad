use super::Pattern;

#[test]
fn a_pattern_is_a_status_or_a_place_in_json() {
    let fits = |pattern: &str, status, body: &str| {
        let parsed: Pattern = pattern.parse().unwrap();
        assert_eq!(parsed.to_string(), pattern, "it is written as it was read");
        parsed.fits(status, body.as_bytes())
    };
    assert!(fits("202", 202, "") && !fits("202", 200, ""));
    let graphql = r#"{"errors":[{"extensions":{"code":"BUSY"},"n":3}]}"#;
    assert!(fits("/errors", 200, graphql) && !fits("/errors", 200, r#"{"errors":[]}"#));
    assert!(!fits("/errors", 200, r#"{"errors":null}"#) && !fits("/errors", 200, "no JSON"));
    assert!(fits("/errors/0/extensions/code=BUSY", 200, graphql));
    assert!(!fits("/errors/0/extensions/code=GONE", 200, graphql) && fits("/errors/0/n=3", 200, graphql));
}

#[test]
fn what_is_neither_is_refused() {
    for text in ["", "99", "600", "errors", "2xx"] {
        assert!(text.parse::<Pattern>().is_err(), "{text:?} was taken");
    }
}
