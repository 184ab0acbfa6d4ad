//! Stored responses: golden bytes, and that a replay is the same response.

use proptest::prelude::*;

use super::*;

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers
            .append(HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

#[test]
fn golden_bytes() {
    let fields = headers(&[("content-type", "text/plain"), ("x-a", "1"), ("x-a", "2")]);
    let bytes = encode(StatusCode::CREATED, &fields, b"paid", &Omitted::default());
    let golden = b"\x01\xc9\x00\x03\x00\x0c\x00content-type\x0a\x00\x00\x00text/plain\
        \x03\x00x-a\x01\x00\x00\x001\x03\x00x-a\x01\x00\x00\x002paid";
    assert_eq!(bytes, &golden[..]);
    let read = decode(&bytes).unwrap();
    assert_eq!(
        (read.status(), read.headers(), &read.body()[..]),
        (StatusCode::CREATED, &fields, &b"paid"[..])
    );
}

#[test]
fn fields_of_one_connection_or_moment_are_not_stored() {
    let fields = headers(&[
        ("connection", "close, X-Hop"),
        ("x-hop", "1"),
        ("keep-alive", "timeout=5"),
        ("transfer-encoding", "chunked"),
        ("date", "Sun, 15 Nov 2026 00:00:00 GMT"),
        ("set-cookie", "session=1"),
        ("www-authenticate", "Basic"),
        ("x-mine", "not this"),
        ("location", "/charges/1"),
    ]);
    let omitted = Omitted::default().with_field(HeaderName::from_static("x-mine"));
    let bytes = encode(StatusCode::OK, &fields, b"", &omitted);
    let read = decode(&bytes).unwrap();
    assert_eq!(read.headers(), &headers(&[("location", "/charges/1")]));
}

#[test]
fn every_truncation_of_the_head_is_noticed() {
    let bytes = encode(StatusCode::OK, &headers(&[("a", "b")]), b"", &Omitted::default());
    for len in 0..bytes.len() {
        assert!(decode(&bytes.slice(..len)).is_none(), "{len}");
    }
}

proptest! {
    #[test]
    fn a_response_comes_back_as_it_was(
        status in 100..600u16,
        fields in prop::collection::vec(("x-[a-z]{1,8}", "[ -~]{0,20}"), 0..8),
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let status = StatusCode::from_u16(status).unwrap();
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.trim())).collect();
        let fields = headers(&fields);
        let read = decode(&encode(status, &fields, &body, &Omitted::default())).unwrap();
        prop_assert_eq!(read.status(), status);
        prop_assert_eq!(read.headers(), &fields);
        prop_assert_eq!(&read.body()[..], &body[..]);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&Bytes::from(bytes));
    }
}
