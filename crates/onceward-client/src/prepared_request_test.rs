//! Tests of idempotency keys and of the fingerprint of a request.

use onceward::TokioRuntime;

use super::*;
use onceward_http::headers::IDEMPOTENCY_KEY;
use onceward_http::key::{KeyForm, KeyShape};

/// What a server reads of a key.
fn read_back(key: &Key) -> Option<String> {
    let mut headers = HeaderMap::new();
    headers.insert(IDEMPOTENCY_KEY, key.field_value());
    KeyShape::default().with_form(KeyForm::Strict).read(&headers).unwrap().map(Cow::into_owned)
}

#[test]
fn a_random_key_is_a_uuid_and_no_two_are_the_same() {
    let runtime = TokioRuntime::new();
    let now = SystemTime::now();
    let keys: std::collections::BTreeSet<String> =
        (0..1_000).map(|_| Key::random(&runtime, now).text().into_owned()).collect();
    assert_eq!(keys.len(), 1_000);
    for key in keys {
        let parts: Vec<usize> = key.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12], "{key}");
        assert_eq!(&key[14..15], "7", "{key}");
        assert!(matches!(&key[19..20], "8" | "9" | "a" | "b"), "{key}");
        assert_eq!(read_back(&Key::parse(&key).unwrap()), Some(key));
    }
}

#[test]
fn a_later_key_sorts_behind_an_earlier_one_whenever_it_is() {
    let runtime = TokioRuntime::new();
    let at = |ms| SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(ms);
    let key = |ms| Key::random(&runtime, at(ms)).text().into_owned();
    let keys: Vec<String> = (0..48).map(|bit| key(1 << bit)).collect();
    assert!(keys.is_sorted_by(|one, next| one < next), "{keys:?}");
    assert!(key(0x0123_4567_89ab).starts_with("01234567-89ab-7"));
    let before = SystemTime::UNIX_EPOCH - std::time::Duration::from_secs(1);
    assert!(Key::random(&runtime, before).text().starts_with("00000000-0000-7"));
}

#[test]
fn a_server_reads_back_any_key() {
    for text in ["order-7", "with \"quotes\"", "back\\slash", " ", "a, b; c", &"k".repeat(255)] {
        let key = Key::parse(text).unwrap();
        assert_eq!((read_back(&key).as_deref(), &*key.text()), (Some(text), text));
    }
    for bad in ["", "\u{fc}", "a\nb", &"k".repeat(256)] {
        assert!(Key::parse(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn the_host_counts_and_the_order_of_members_does_not() {
    let request = |url: &str, body: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        let url = Url::parse(url).unwrap();
        PreparedRequest {
            method: Method::POST,
            url,
            headers,
            body: Bytes::from_static(body.as_bytes()),
            key: None,
        }
    };
    let one = request("https://a.example/charges?x=1", r#"{"a":1,"b":2}"#).fingerprint();
    assert_eq!(one, request("https://a.example/charges?x=1", r#"{"b":2.0, "a":1}"#).fingerprint());
    for (url, body) in [
        ("https://b.example/charges?x=1", r#"{"a":1,"b":2}"#),
        ("http://a.example/charges?x=1", r#"{"a":1,"b":2}"#),
        ("https://a.example:8443/charges?x=1", r#"{"a":1,"b":2}"#),
        ("https://a.example/charges?x=2", r#"{"a":1,"b":2}"#),
        ("https://a.example/charges?x=1", r#"{"a":1,"b":3}"#),
    ] {
        assert_ne!(one, request(url, body).fingerprint(), "{url} {body}");
    }
}
