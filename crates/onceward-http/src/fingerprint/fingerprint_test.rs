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
    ("POST", "/", &[], "", "d5c0d5d4dad494acf92c372f3811e02e98ad9e2aa3126bffff3aaad78787d1b5"),
    ("POST", "/charges", &[JSON], r#"{"currency":"eur","amount":1200,"to":{"name":"Zo\u00eb","id":7},"tags":["a",null,true,false,-0.5e-3]}"#, "dff29b8696e86ce6b25d1571b26a81b3daa1530f70becd74e13b50ebae4d64f3"),
    ("PATCH", "/charges/7?expand=all&x=%7e+{}", &[JSON], "[1e400, 0, \"\\ud800\"]", "dd30309a6e72e186d91eda48c843968c62079a2cd9ee278a2bfe2083807ded5e"),
    ("POST", "/charges", &[JSON], r#"{"a":1,"a":2}"#, "2bc7058b2508acd28f3666c21132bad9a7a4ee77913d200c235efe33132406b1"),
    ("POST", "/charges", &[FORM], "b=x+y&a=1&a=2", "58f6bf60cb8b88e812c23fe93e762065ddbdc2deeb5049a4d53a8ad489576fe3"),
    ("POST", "/files", &["content-type: multipart/form-data; boundary=q"], "--q\r\nContent-Type: a/b\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\nbytes\r\n--q--\r\n", "e1ab8be34d4d277b5e5fa99ce717b1994dcaf6bb6a5e4114ac1086e78146e24c"),
    ("POST", "/files", &["content-type: text/plain; charset=utf-8", "content-encoding: gzip"], "bytes", "809a369e2e23ad58fba0bb7d51aacd798259cea06ef543286daabd2b98855ebf"),
    ("POST", "/charges", &["host: Api.Example:443", "x-http-method-override: DELETE", "x-other: 1"], "", "a3f5c3f33c76a338b4e95f52b5d195e51d533d21d12bd01dc1c38fd47787cdca"),
];

/// The same with rules: one member, one parameter and one field.
#[rustfmt::skip]
const GOLDEN_WITH_RULES: &[(&str, &str, &[&str], &str, &str)] = &[
    ("POST", "/a?v=1&t=2", &[JSON, "x-version: 3"], r#"{"sent_at":1,"a":{"b":[1,2],"c":3}}"#, "e2c83f3ff43375217e3d444772936515196e7b0820ee113cb83433b5c0b0f220"),
    ("POST", "/a", &[JSON], r#"{"a":5}"#, "e1fdf37093b8adb5a45023d4993ace00633a8ebf3660b9d08eb9e775a383286f"),
    ("POST", "/a", &[FORM], "a=5", "cb1843b29cbf57ddfef64801a9bf1d82a846c921ae53e61999b8128196819a62"),
];

/// The same of a caller that is not known.
#[rustfmt::skip]
const GOLDEN_ANONYMOUS: &[(&str, &str, &[&str], &str, &str)] = &[
    ("POST", "/charges", &["host: a", "x-tenant: b", "cookie: c=d", "x-request-id: 7", "x-tenant: e"], "", "4a01e130d18e726558e407c8c78d4b342d01d7665758fcf901c8279409887429"),
];

#[test]
fn golden_fingerprints_stay() {
    stays(&Rules::default(), GOLDEN);
    let anonymous = |method: &str, target: &str, fields: &[&str], body: &str| {
        let request = request(method, target, fields);
        let head = Head::from(&request).with_caller(Caller::Anonymous);
        fingerprint(&Rules::default(), &SECRET, &head, body.as_bytes())
    };
    compare(anonymous, GOLDEN_ANONYMOUS);
    let rules = Rules::default()
        .with_members(Pick::Only(vec![Pointer::parse("/a/b/1").unwrap()]))
        .with_parameters(Pick::Except(vec!["t".to_owned()]))
        .with_headers([HeaderName::from_static("x-version")]);
    stays(&rules, GOLDEN_WITH_RULES);
}

fn stays(rules: &Rules, table: &[(&str, &str, &[&str], &str, &str)]) {
    compare(|method, target, fields, body| of(rules, method, target, fields, body.as_bytes()), table);
}

fn compare(
    print_of: impl Fn(&str, &str, &[&str], &str) -> Fingerprint,
    table: &[(&str, &str, &[&str], &str, &str)],
) {
    let mut found = String::new();
    for (method, target, fields, body, golden) in table {
        let print = print_of(method, target, fields, body);
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
fn hosts_and_overridden_methods_are_different_requests() {
    let base = ("POST", "/a", &["host: one.example"][..], "1");
    for same in [
        ("POST", "/a", &["host: ONE.example:80"][..], "1"),
        ("POST", "/a", &["host: one.example."], "1"),
        ("POST", "http://one.example:443/a", &["host: other"], "1"),
    ] {
        self::same(base, same);
    }
    for other in [
        ("POST", "/a", &["host: two.example"][..], "1"),
        ("POST", "/a", &["host: one.example:8080"], "1"),
        ("POST", "http://two.example/a", &["host: one.example"], "1"),
        ("POST", "/a", &[], "1"),
        ("POST", "/a", &["host: one.example", "x-http-method-override: DELETE"], "1"),
    ] {
        differ(base, other);
    }
    let rules = Rules::default().with_host(false);
    assert_eq!(of(&rules, "POST", "/", &["host: a"], b""), of(&rules, "POST", "/", &["host: b"], b""));
}

/// A credential that nobody knows to be one may be in any field.
#[test]
fn every_field_of_an_unknown_caller_counts_unless_it_names_nobody() {
    let rules = Rules::default()
        .with_headers([HeaderName::from_static("x-version")])
        .with_ignored_headers([HeaderName::from_static("cf-ray")]);
    let of = |fields: &[&str]| {
        let request = request("POST", "/", fields);
        fingerprint(&rules, &SECRET, &Head::from(&request).with_caller(Caller::Anonymous), b"")
    };
    let base = of(&["x-tenant: a", "x-version: 1", "accept: */*"]);
    assert_eq!(of(&["x-version: 1", "user-agent: b", "x-tenant: a", "cf-ray: 9", "X-Request-ID: 8"]), base);
    for other in [
        &["x-tenant: b", "x-version: 1"][..],
        &["x-version: 1"],
        &["x-tenant: a", "x-version: 2"],
        &["x-tenant: a", "x-version: 1", "authorization: c"],
        &["x-tenant: a", "x-version: 1", "x-tenant: a"],
    ] {
        assert_ne!(of(other), base, "{other:?}");
    }
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
