//! Which canonicaliser a body gets, line by line.

use http::HeaderValue;

use super::*;

fn media(headers: &HeaderMap) -> Media<'_> {
    Media::of(headers, RequestFields::of(headers))
}

#[test]
fn formats_by_media_type() {
    for (line, expected) in [
        ("application/json", Format::Json),
        ("Application/JSON ; charset=utf-8", Format::Json),
        ("application/json;", Format::Json),
        ("application/merge-patch+json", Format::Json),
        ("application/vnd.api+JSON; profile=\"a;b\"", Format::Json),
        ("application/jsonp", Format::Other),
        ("+jso", Format::Other),
        ("application/json, text/plain+json", Format::Other),
        ("application/x-www-form-urlencoded; charset=utf-8", Format::Form),
        ("text/plain", Format::Other),
        ("", Format::Other),
        ("multipart/form-data; boundary=abc", Format::Multipart(b"abc")),
        ("Multipart/Form-Data;BOUNDARY=\"a b\"", Format::Multipart(b"a b")),
        ("multipart/form-data; charset=\"x;\\\"boundary=no\"; boundary=yes ; z=1", Format::Multipart(b"yes")),
        ("multipart/form-data", Format::Other),
        ("multipart/form-data; boundary=", Format::Other),
        ("multipart/form-data; boundary=a; boundary=a", Format::Other),
        ("multipart/form-data; boundary=\"a", Format::Other),
        ("multipart/form-data; boundary=\"a\"b", Format::Other),
        ("multipart/form-data; boundary=\"a \"", Format::Other),
        ("multipart/form-data; boundary=a\"b", Format::Other),
        ("multipart/form-data; boundary =a", Format::Other),
        ("multipart/mixed; boundary=a", Format::Other),
    ] {
        assert_eq!(media(&headers(&[("content-type", line)])).format(), expected, "{line}");
    }
    let long = "a".repeat(BOUNDARY_BYTES_MAX);
    let line =
        |boundary: &str| headers(&[("content-type", &format!("multipart/form-data; boundary={boundary}"))]);
    assert_eq!(media(&line(&long)).format(), Format::Multipart(long.as_bytes()));
    assert_eq!(media(&line(&(long + "a"))).format(), Format::Other);
}

#[test]
fn a_coded_body_or_a_contradiction_has_no_format() {
    let json = ("content-type", "application/json");
    for (lines, expected) in [
        (&[json, ("content-encoding", "gzip")][..], Format::Other),
        (&[json, ("content-encoding", "Identity")], Format::Json),
        (&[json, ("content-encoding", "")], Format::Json),
        (&[json, ("content-encoding", "identity"), ("content-encoding", "gzip")], Format::Other),
        (&[json, json], Format::Other),
        (&[json, ("content-type", "text/plain")], Format::Other),
        (&[("content-type", "text/plain"), ("content-type", "a/b+json")], Format::Other),
        (&[], Format::Other),
    ] {
        assert_eq!(media(&headers(lines)).format(), expected, "{lines:?}");
    }
}

fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
    let lines = lines
        .iter()
        .map(|(name, line)| (HeaderName::from_static(name), HeaderValue::from_str(line).unwrap()));
    let mut headers = HeaderMap::new();
    lines.for_each(|(name, line)| {
        headers.append(name, line);
    });
    headers
}
