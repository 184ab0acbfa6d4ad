//! Tests of the stored form of a request, with golden bytes.

use proptest::prelude::*;

use super::*;

const MINUTE_US: u64 = 60_000_000;

/// Encoded requests, as seeds for other tests.
pub(crate) fn examples() -> [Vec<u8>; 1] {
    [stored().encode().unwrap().to_vec()]
}

fn stored() -> StoredRequest {
    let mut headers = HeaderMap::new();
    headers.append("content-type", HeaderValue::from_static("application/json"));
    headers.append("x-twice", HeaderValue::from_static("a"));
    headers.append("x-twice", HeaderValue::from_bytes(b"\xff b").unwrap());
    let request = PreparedRequest {
        method: Method::POST,
        url: Url::parse("https://pay.example/charges?a=1").unwrap(),
        headers,
        body: Bytes::from_static(b"{\"amount\":12}"),
        key: Some(Key::parse("k-1").unwrap()),
    };
    StoredRequest {
        put_us: 60 * MINUTE_US,
        honoured_until_us: 70 * MINUTE_US,
        request: Arc::new(request),
        credentials: vec![HeaderName::from_static("authorization"), HeaderName::from_static("x-api-key")],
    }
}

/// These bytes must not change: a journal outlives the version that wrote it.
#[test]
fn the_golden_bytes_are_read_and_written() {
    let golden = concat!(
        "0200a493d600000000",
        "00ea56fa00000000",
        "036b2d31",
        "04504f5354",
        "1f00000068747470733a2f2f7061792e6578616d706c652f636861726765733f613d31",
        "0300",
        "0c00636f6e74656e742d74797065100000006170706c69636174696f6e2f6a736f6e",
        "0700782d74776963650100000061",
        "0700782d747769636503000000ff2062",
        "02",
        "0d00617574686f72697a6174696f6e",
        "0900782d6170692d6b6579",
        "7b22616d6f756e74223a31327d",
    );
    let bytes = stored().encode().unwrap();
    let golden: Vec<u8> =
        (0..golden.len()).step_by(2).map(|at| u8::from_str_radix(&golden[at..at + 2], 16).unwrap()).collect();
    assert_eq!(bytes, golden);
    assert_eq!(StoredRequest::decode(&bytes), Some(stored()));
}

#[test]
fn a_key_is_honoured_until_its_time_and_not_a_moment_longer() {
    let left = |minutes| stored().honoured_for(minutes * MINUTE_US).map(|left| left.as_secs() / 60);
    assert_eq!(left(60), Some(10));
    assert_eq!(left(65), Some(5));
    assert_eq!(left(70), None);
    assert_eq!(left(1_000_000), None);
}

#[test]
fn a_clock_that_went_back_makes_no_key_last_longer() {
    let left = |minutes| stored().honoured_for(minutes * MINUTE_US).map(|left| left.as_secs() / 60);
    assert_eq!(left(59), Some(10), "a little, and it is as on the first day");
    assert_eq!(left(58), None, "too far to be trusted");
    assert_eq!(left(0), None);
}

proptest! {
    #[test]
    fn any_bytes_are_a_request_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = StoredRequest::decode(&Bytes::from(bytes));
    }

    #[test]
    fn a_cut_or_bent_request_never_panics(at in 0_usize..170, bend in any::<u8>(), cut in any::<bool>()) {
        let mut bytes = stored().encode().unwrap().to_vec();
        let at = at % bytes.len();
        if cut { bytes.truncate(at) } else { bytes[at] ^= bend }
        let _ = StoredRequest::decode(&Bytes::from(bytes));
    }
}
