//! Whole requests: what counts, golden values, rotation, and that nothing panics.

use std::fmt::Write;

use http::{HeaderName, HeaderValue, Request};
use proptest::prelude::*;

use super::*;

const SECRET: [u8; SECRET_BYTES] = [7; SECRET_BYTES];
const JSON: &str = "content-type: application/json";
const FORM: &str = "content-type: application/x-www-form-urlencoded";

/// Made by version 1. These lines may grow in number; none may ever change.
#[rustfmt::skip]
const GOLDEN: &[(&str, &str, &[&str], &str, &str)] = &[
    ("POST", "/", &[], "", "a24df44cafa642db11e1fd3124f6ffc6ac7fdbd90af87c4d04b1bf09cedf135f"),
    ("POST", "/charges", &[JSON], r#"{"currency":"eur","amount":1200,"to":{"name":"Zo\u00eb","id":7},"tags":["a",null,true,false,-0.5e-3]}"#, "59d52581e45fbe9bc72dd84ff778ec25efb3d1468f6fabed087c3bcd2769349b"),
    ("PATCH", "/charges/7?expand=all&x=%7e+{}", &[JSON], "[1e400, 0, \"\\ud800\"]", "ca0fcc6cefd06555a1375009c7cbfedde5e49042105b350a8f723237151660b2"),
    ("POST", "/charges", &[JSON], r#"{"a":1,"a":2}"#, "1784b9830c4cc40e35fe388d60ca23a72b521aea86bffe35ff445f54841b4a94"),
    ("POST", "/charges", &[FORM], "b=x+y&a=1&a=2", "2f5f5595d35e32db5469adf06595d0639891e5f53692bd95b42435912a16f81b"),
    ("POST", "/files", &["content-type: multipart/form-data; boundary=q"], "--q\r\nContent-Type: a/b\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\nbytes\r\n--q--\r\n", "b30d6185ec18383be71f185988ef39d957ade8a39a2b7d5cbb7d5c4282db4159"),
    ("POST", "/files", &["content-type: text/plain; charset=utf-8", "content-encoding: gzip"], "bytes", "9b5f5beb40cb7efd8f545b6c7d4ec7db88b20629a8d3dcdd94afae239fdd2153"),
];

/// The same with rules: one member, one parameter and one field.
#[rustfmt::skip]
const GOLDEN_WITH_RULES: &[(&str, &str, &[&str], &str, &str)] = &[
    ("POST", "/a?v=1&t=2", &[JSON, "x-version: 3"], r#"{"sent_at":1,"a":{"b":[1,2],"c":3}}"#, "5619dcf0c0e106b155a9bb31d218cf2d64524ea0f9c982d9da116f61e9f7c162"),
    ("POST", "/a", &[JSON], r#"{"a":5}"#, "43cb3218dc2902590c8886c2c93022380b39dffb3d8f4ac897c2a7026f40ba10"),
    ("POST", "/a", &[FORM], "a=5", "de307faddadc05e79d0062bebdd1b2d714f0ecef9f3bd578b4606e5aa81dc0f8"),
];

#[test]
fn golden_fingerprints_stay() {
    stays(&Rules::default(), GOLDEN);
    let rules = Rules::default()
        .with_members(Pick::Only(vec![Pointer::parse("/a/b/1").unwrap()]))
        .with_parameters(Pick::Except(vec!["t".to_owned()]))
        .with_headers([HeaderName::from_static("x-version")]);
    stays(&rules, GOLDEN_WITH_RULES);
}

fn stays(rules: &Rules, table: &[(&str, &str, &[&str], &str, &str)]) {
    let mut found = String::new();
    for (method, target, fields, body, golden) in table {
        let print = of(rules, method, target, fields, body.as_bytes());
        assert_eq!(print.version(), 1);
        let hex = print.digest().iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").unwrap();
            hex
        });
        if hex != *golden {
            writeln!(found, "{method} {target} {fields:?} {body}\n    is now {hex}").unwrap();
        }
    }
    assert!(found.is_empty(), "\n{found}");
}

#[test]
fn one_request() {
    same(("POST", "/a", &[JSON], r#"{"a":2,"b":1}"#), ("POST", "/a", &[JSON], r#"{ "b":1.0, "a":20e-1 }"#));
    same(
        ("POST", "/a", &[JSON], "[1]"),
        ("POST", "/a", &["content-type: Application/JSON; charset=UTF-8"], "[ 1 ]"),
    );
    same(("POST", "/a", &[JSON], "1"), ("POST", "/a?", &[JSON, "x-other: 1"], "1"));
    same(("POST", "/a", &[JSON], "1"), ("POST", "/a", &[JSON, "content-encoding: identity"], "1"));
    same(("POST", "/a", &[FORM], "a=1&b=2"), ("POST", "/a", &[FORM], "b=2&a=1"));
    same(
        ("POST", "/a", &["content-type: multipart/form-data; boundary=x"], "--x--"),
        ("POST", "/a", &["content-type: multipart/form-data; boundary=y"], "--y--\r\n"),
    );
    same(("POST", "/a?x=%7e", &[], ""), ("POST", "/a?x=~", &[], ""));
}

#[test]
fn different_requests() {
    let base = ("POST", "/a", &[JSON][..], "1");
    for other in [
        ("PATCH", "/a", &[JSON][..], "1"),
        ("POST", "/b", &[JSON], "1"),
        ("POST", "/a/", &[JSON], "1"),
        ("POST", "/%61", &[JSON], "1"),
        ("POST", "/a?x", &[JSON], "1"),
        ("POST", "/a", &[], "1"),
        ("POST", "/a", &["content-type: text/plain"], "1"),
        ("POST", "/a", &["content-type: application/merge-patch+json"], "1"),
        ("POST", "/a", &[JSON, JSON], "1"),
        ("POST", "/a", &[JSON, "content-encoding: gzip"], "1"),
        ("POST", "/a", &[JSON], ""),
        ("POST", "/a", &[JSON], "2"),
    ] {
        differ(base, other);
    }
    // Not JSON, so by bytes: white space counts.
    differ(("POST", "/a", &[JSON], "01"), ("POST", "/a", &[JSON], "01 "));
    differ(("POST", "/a", &[JSON], r#"{"a":1,"a":2}"#), ("POST", "/a", &[JSON], r#"{"a":2}"#));
    differ(
        ("POST", "/a", &["content-type: text/plain"], "[1]"),
        ("POST", "/a", &["content-type: text/plain"], "[1 ]"),
    );
    differ(("POST", "/a?b", &[], "c"), ("POST", "/a", &[], "bc"));
    // Without an answer to which coding it is, two codings are two requests.
    differ(("POST", "/a", &["content-encoding: gzip"], "x"), ("POST", "/a", &["content-encoding: br"], "x"));
}

#[test]
fn what_counts_by_bytes_is_never_what_counts_by_value() {
    // The canonical bytes of a document, sent as a body that is not JSON.
    let value = canonical_of(&[JSON], br#"{"a":[1,"x"]}"#);
    let at = value.iter().rposition(|byte| *byte == 8).unwrap();
    let forged = canonical_of(&[JSON], &value[at..]);
    assert_eq!((value[at - 1], &forged[at..]), (1, &value[at..]));
    assert_ne!(value, forged);
}

#[test]
fn named_fields_count() {
    let rules = Rules::default().with_headers([
        HeaderName::from_static("x-b"),
        HeaderName::from_static("x-a"),
        HeaderName::from_static("x-b"),
    ]);
    assert_eq!(rules.headers(), ["x-a", "x-b"]);
    let of = |fields: &[&str]| of(&rules, "POST", "/", fields, b"");
    assert_eq!(of(&["x-a: 1", "x-b: 2", "x-c: 3"]), of(&["X-B: 2", "x-a: 1"]));
    for other in [
        &["x-a: 1"][..],
        &["x-a: 1", "x-b: 1"],
        &["x-a: 2", "x-b: 1"],
        &["x-a: 1", "x-a: 2"],
        &["x-b: 1", "x-b: 2"],
        &[],
    ] {
        assert_ne!(of(other), of(&["x-a: 1", "x-b: 2"]), "{other:?}");
    }
    assert_ne!(of(&["x-a: 1", "x-a: 2"]), of(&["x-a: 2", "x-a: 1"]));
    assert_ne!(of(&["x-a: "]), of(&[]));
    // A line that looks like the next field's name.
    assert_ne!(of(&["x-a: 1", "x-a: x-b"]), of(&["x-a: 1", "x-b: x-b"]));
}

#[test]
fn rules_reach_query_and_body() {
    let rules = Rules::default()
        .with_members(Pick::Except(vec![Pointer::parse("/sent_at").unwrap()]))
        .with_parameters(Pick::Only(vec!["v".to_owned()]));
    let of = |target: &str, body: &str| of(&rules, "POST", target, &[JSON], body.as_bytes());
    assert_eq!(of("/a?v=1&t=2", r#"{"sent_at":1,"a":1}"#), of("/a?t=3&v=1", r#"{"a":1,"sent_at":2}"#));
    assert_ne!(of("/a?v=1", "{}"), of("/a?v=2", "{}"));
    // By bytes, as a whole: a repeated name leaves nothing to take out.
    assert_ne!(of("/a", r#"{"a":1,"a":1,"sent_at":1}"#), of("/a", r#"{"a":1,"a":1,"sent_at":2}"#));
}

#[test]
fn secrets_rotate() {
    let request = request("POST", "/a", &[JSON]);
    let head = Head::from(&request);
    let rules = Rules::default();
    let [old, new] = [[1; SECRET_BYTES], [2; SECRET_BYTES]];
    let before = fingerprints(&rules, &Secrets::new(old), &head, b"{}");
    assert_eq!(before, Fingerprints { current: fingerprint(&rules, &old, &head, b"{}"), older: vec![] });
    let after = fingerprints(&rules, &Secrets::new(new).with_older([old, new, old]), &head, b"{}");
    assert_eq!(after.current, fingerprint(&rules, &new, &head, b"{}"));
    assert_eq!(after.older, [before.current]);
    assert_ne!(after.current, before.current);
    assert_eq!(format!("{:?}", Secrets::new(new).with_older([old])), "Secrets(1 current, 1 older)");
}

#[test]
fn a_stored_fingerprint_is_compared_by_its_own_version() {
    let request = request("POST", "/a", &[]);
    let head = Head::from(&request);
    let of = |version| fingerprint_of_version(version, &Rules::default(), &SECRET, &head, b"x");
    assert_eq!(of(VERSION), Some(fingerprint(&Rules::default(), &SECRET, &head, b"x")));
    assert_eq!(of(1).map(|print| print.version()), Some(1));
    assert_eq!(of(0), None);
    assert_eq!(of(VERSION + 1), None);
    let mut versions: Vec<_> = SCHEMES.iter().map(|scheme| scheme.version).collect();
    versions.dedup();
    assert!(versions.is_sorted_by(|newer, older| newer > older) && versions.len() == SCHEMES.len());
}

proptest! {
    #[test]
    fn any_body_of_any_type_has_one_fingerprint(body: Vec<u8>, media in 0..5_usize) {
        let media = [JSON, FORM, "content-type: multipart/form-data; boundary=a", "content-type: a/b", "x: y"][media];
        let of = |body: &[u8]| of(&Rules::default(), "POST", "/", &[media], body);
        prop_assert_eq!(of(&body), of(&body.clone()));
    }

    #[test]
    fn moving_a_byte_between_parts_changes_the_fingerprint(text in "[a-c]{3,6}", at in 1..3_usize, to in 1..3_usize) {
        let of = |at: usize| {
            let (query, body) = text.split_at(at);
            of(&Rules::default(), "POST", &format!("/?{query}"), &[], body.as_bytes())
        };
        prop_assert_eq!(of(at) == of(to), at == to);
    }
}

type Sent<'a> = (&'a str, &'a str, &'a [&'a str], &'a str);

fn same(a: Sent<'_>, b: Sent<'_>) {
    let of = |(method, target, fields, body): Sent<'_>| {
        of(&Rules::default(), method, target, fields, body.as_bytes())
    };
    assert_eq!(of(a), of(b), "{a:?} and {b:?}");
}

fn differ(a: Sent<'_>, b: Sent<'_>) {
    let of = |(method, target, fields, body): Sent<'_>| {
        of(&Rules::default(), method, target, fields, body.as_bytes())
    };
    assert_ne!(of(a), of(b), "{a:?} and {b:?}");
}

fn of(rules: &Rules, method: &str, target: &str, fields: &[&str], body: &[u8]) -> Fingerprint {
    fingerprint(rules, &SECRET, &Head::from(&request(method, target, fields)), body)
}

fn canonical_of(fields: &[&str], body: &[u8]) -> Vec<u8> {
    let request = request("POST", "/a", fields);
    let canonical = v1::canonical(&Rules::default(), &Head::from(&request), body);
    [&canonical.written, canonical.bytes].concat()
}

fn request(method: &str, target: &str, fields: &[&str]) -> http::request::Parts {
    let mut request = Request::builder().method(method).uri(target);
    for field in fields {
        let (name, value) = field.split_once(": ").unwrap();
        request = request.header(name, HeaderValue::from_str(value).unwrap());
    }
    request.body(()).unwrap().into_parts().0
}
