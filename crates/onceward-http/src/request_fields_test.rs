//! Tests of the pass over a request's names: every field is found by its own name and by no other.

use http::{HeaderName, HeaderValue};

use super::*;

const NAMED: [(&str, RequestFields); 14] = [
    ("host", RequestFields::HOST),
    ("origin", RequestFields::ORIGIN),
    ("connection", RequestFields::CONNECTION),
    ("content-encoding", RequestFields::CONTENT_ENCODING),
    ("x-http-method-override", RequestFields::METHOD_OVERRIDE),
    ("idempotency-key", RequestFields::KEY),
    ("x-request-id", RequestFields::REQUEST_ID),
    ("traceparent", RequestFields::REQUEST_ID),
    ("authorization", RequestFields::AUTHORIZATION),
    ("x-api-key", RequestFields::API_KEY),
    ("api-key", RequestFields::API_KEY),
    ("cookie", RequestFields::COOKIE),
    ("proxy-authorization", RequestFields::PROXY_AUTHORIZATION),
    ("signature-input", RequestFields::SIGNATURE_INPUT),
];

fn headers(names: &[&str]) -> HeaderMap {
    let value = HeaderValue::from_static("1");
    names.iter().map(|name| (name.parse::<HeaderName>().unwrap(), value.clone())).collect()
}

#[test]
fn each_field_is_found_alone_and_among_others() {
    for (name, field) in NAMED {
        assert_eq!(RequestFields::of(&headers(&[name])), field, "{name}");
        let among = RequestFields::of(&headers(&["accept", name, "x-other"]));
        assert_eq!(among, field, "{name}");
        for (other, another) in NAMED {
            assert_eq!(field.has(another), field == another, "{name} {other}");
        }
    }
    let all: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
    let all = RequestFields::of(&headers(&all));
    assert!(NAMED.iter().all(|(_, field)| all.has(*field)));
}

#[test]
fn a_name_that_is_as_long_is_another_field() {
    for (name, field) in NAMED {
        let other = format!("{}z", &name[..name.len() - 1]);
        assert!(!RequestFields::of(&headers(&[&other])).has(field), "{other}");
        assert!(!RequestFields::of(&headers(&[&format!("{name}s")])).has(field), "{name}s");
    }
}
