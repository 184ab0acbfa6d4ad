use super::*;

const RULES: PathRules = PathRules {
    normalise: true,
    case: Spelling::Exact,
    trailing_slash: Spelling::Exact,
    parameters: PathParameters::Exact,
};

#[track_caller]
fn check(rules: PathRules, path: &str, forwarded: &str, compared: &str) {
    let expected = RuledPath { forwarded: forwarded.into(), compared: compared.into() };
    assert_eq!(rules.apply(path), Ok(expected), "{path}");
}

#[test]
fn escapes_that_mean_nothing_are_decoded() {
    for (path, decoded) in [
        ("/charges", "/charges"),
        ("/", "/"),
        ("/charges/", "/charges/"),
        ("/%63harges", "/charges"),
        ("/a%7eb%2D", "/a~b-"),
        ("/caf%c3%a9", "/caf%C3%A9"),
        ("/a%20b;c=%3b", "/a%20b;c=%3B"),
        ("/.well-known/x", "/.well-known/x"),
        ("/...", "/..."),
    ] {
        check(RULES, path, decoded, decoded);
    }
}

#[test]
fn ambiguous_paths_are_refused() {
    for path in [
        "/x/../charges",
        "/x/%2e%2E/charges",
        "/./charges",
        "/charges/..",
        "/..;/admin",
        "//charges",
        "/a//b",
        "/a%2Fb",
        "/a%5cb",
        "/a\\b",
        "/a%00",
        "/a%0d",
        "/a%",
        "/a%4",
        "/a%zz",
        "/a%+1",
    ] {
        assert!(RULES.apply(path).is_err(), "{path}");
        check(PathRules { normalise: false, ..RULES }, path, path, path);
    }
}

#[test]
fn the_service_may_ignore_capitals_and_a_last_slash() {
    let case = PathRules { case: Spelling::Ignore, ..RULES };
    check(case, "/Charges/A", "/Charges/A", "/charges/a");
    let slash = PathRules { trailing_slash: Spelling::Ignore, ..RULES };
    check(slash, "/charges/", "/charges/", "/charges");
    check(slash, "/", "/", "/");
}

#[test]
fn parameters_are_refused_unless_the_settings_say_what_they_mean() {
    let refuse = PathRules { parameters: PathParameters::Refuse, ..RULES };
    for path in ["/charges;a", "/charges;", "/a;b=1/c", "/;/charges"] {
        assert!(refuse.apply(path).is_err(), "{path}");
    }
    check(refuse, "/a%3Bb", "/a%3Bb", "/a%3Bb");
    let as_it_is = PathRules { normalise: false, ..refuse };
    check(as_it_is, "/charges;a", "/charges;a", "/charges;a");
    check(RULES, "/charges;a", "/charges;a", "/charges;a");
    let ignore = PathRules { parameters: PathParameters::Ignore, ..RULES };
    check(ignore, "/charges;a=1/x;b", "/charges;a=1/x;b", "/charges/x");
    let slash = PathRules { trailing_slash: Spelling::Ignore, ..ignore };
    check(slash, "/charges/;a", "/charges/;a", "/charges");
    // Without its parameters it is an empty segment.
    assert!(ignore.apply("/a/;x/b").is_err());
}

#[test]
fn parameters_do_not_hide_a_route() {
    assert_eq!(without_parameters("/charges;a=1/x;b"), "/charges/x");
    assert_eq!(without_parameters("/charges"), "/charges");
}

#[test]
fn a_method_is_not_spelled_otherwise() {
    let check = |name: &str| RULES.check_method(&Method::from_bytes(name.as_bytes()).unwrap());
    assert!(check("POST").is_ok() && check("PURGE").is_ok() && check("purge").is_ok());
    assert!(check("post").is_err() && check("Patch").is_err());
}
