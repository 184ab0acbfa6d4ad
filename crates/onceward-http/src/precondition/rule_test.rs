//! Which requests need a precondition, and which fields are one.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::PreconditionRule;

#[test]
fn a_required_precondition_is_one_that_protects_an_update() {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let (fine, required, malformed) = (None, Some("precondition-required"), Some("precondition-malformed"));
    for (fields, expected) in [
        (&[][..], required),
        (&[("if-match", "\"a\"")], fine),
        (&[("if-match", "\"a\", W/\"b\"")], fine),
        (&[("if-match", "*")], fine),
        (&[("if-none-match", "*")], fine),
        (&[("if-unmodified-since", date)], fine),
        (&[("if-unmodified-since", "Sunday, 06-Nov-94 08:49:37 GMT")], fine),
        (&[("if-unmodified-since", "Sun Nov  6 08:49:37 1994")], fine),
        // A date that cannot be read does not count, and one that only reads would use protects nothing.
        (&[("if-unmodified-since", "yesterday")], required),
        (&[("if-unmodified-since", date), ("if-unmodified-since", date)], required),
        (&[("if-modified-since", date)], required),
        (&[("if-match", "a")], malformed),
        (&[("if-match", "")], malformed),
        (&[("if-match", "\"a\" \"b\"")], malformed),
        (&[("if-match", "\"a\""), ("if-none-match", "oops")], malformed),
        (&[("etag", "\"a\"")], required),
    ] {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        for method in [Method::PUT, Method::PATCH, Method::DELETE] {
            let checked = PreconditionRule::Required.check(&method, &headers);
            assert_eq!(checked.err().map(|problem| problem.name()), expected, "{method} {fields:?}");
            assert_eq!(PreconditionRule::Optional.check(&method, &headers), Ok(()), "{method} {fields:?}");
        }
        for method in [Method::GET, Method::HEAD, Method::POST, Method::OPTIONS] {
            assert_eq!(PreconditionRule::Required.check(&method, &headers), Ok(()), "{method} {fields:?}");
        }
    }
}

/// Services that honour the field do something else than the method says.
#[test]
fn a_method_that_is_overridden_with_an_update_needs_a_precondition_too() {
    let required = Some("precondition-required");
    for (lines, expected) in [
        (&["DELETE"][..], required),
        (&["PUT"], required),
        (&[" patch "], required),
        (&["GET", "Delete"], required),
        (&["POST, DELETE"], required),
        (&["GET"], None),
        (&["DELETED"], None),
        (&[""], None),
    ] {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x-http-method-override", HeaderValue::from_static(line));
        }
        for method in [Method::POST, Method::GET] {
            let checked = PreconditionRule::Required.check(&method, &headers);
            assert_eq!(checked.err().map(|problem| problem.name()), expected, "{method} {lines:?}");
            assert_eq!(PreconditionRule::Optional.check(&method, &headers), Ok(()), "{method} {lines:?}");
        }
        // It takes nothing from what the method itself needs.
        let put = PreconditionRule::Required.check(&Method::PUT, &headers);
        assert_eq!(put.err().map(|problem| problem.name()), required, "{lines:?}");
        headers.insert("if-match", HeaderValue::from_static("\"a\""));
        assert_eq!(PreconditionRule::Required.check(&Method::POST, &headers), Ok(()), "{lines:?}");
    }
}

#[test]
fn thousands_of_tags_are_malformed_and_not_read_for_long() {
    let mut headers = HeaderMap::new();
    headers.insert("if-match", HeaderValue::try_from("\"a\",".repeat(5_000)).unwrap());
    let refused = PreconditionRule::Required.check(&Method::PUT, &headers).unwrap_err();
    assert_eq!(refused.name(), "precondition-malformed");
}
