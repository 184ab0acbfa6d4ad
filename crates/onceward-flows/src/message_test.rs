//! Every bound of a message, one line each.

use super::*;

fn check(change: impl FnOnce(Message) -> Message) -> Result<(), String> {
    change(Message::new("orders.placed", "payload")).check().map_err(|error| error.to_string())
}

#[test]
fn a_plain_message_is_fine() {
    check(|message| message).unwrap();
    check(|message| message.with_ordering_key("Müller & Söhne")).unwrap();
    check(|message| message.with_header("traceparent", "00-ä").with_id("order-81/placed")).unwrap();
    check(|message| message.with_ordering_key("k".repeat(ORDERING_KEY_BYTES_MAX))).unwrap();
}

#[test]
fn what_is_out_of_bounds_is_named() {
    let refused = |change: fn(Message) -> Message, what: &str| {
        let error = check(change).unwrap_err();
        assert!(error.contains(what), "{error}");
    };
    refused(|_| Message::new("", ""), "the topic is empty");
    refused(|_| Message::new("orders..placed", ""), "is not a topic");
    refused(|_| Message::new("orders.*", ""), "is not a topic");
    refused(|_| Message::new("a".repeat(201), ""), "at most 200 fit");
    refused(|message| message.with_id(""), "the message id is empty");
    refused(|message| message.with_id("a b"), "byte 0x20");
    refused(|message| message.with_id("i".repeat(256)), "at most 255 fit");
    refused(|message| message.with_ordering_key(""), "the ordering key is empty");
    refused(|message| message.with_ordering_key("a\nb"), "control characters");
    refused(|message| message.with_ordering_key("k".repeat(256)), "at most 255 fit");
    refused(|message| message.with_header("a b", ""), "is not a header name");
    refused(|message| message.with_header("a", "x\r\nNats-Msg-Id: 1"), "control character");
    refused(|message| message.with_header("Nats-Msg-Id", "1"), "reserved");
    refused(|message| message.with_header("ONCEWARD-Topic", "1"), "reserved");
    for name in
        ["CC", "x-death", "X-Stream-Offset", "Host", "Content-Length", "Idempotency-Key", "webhook-id"]
    {
        let error = check(|message| message.with_header(name, "1")).unwrap_err();
        assert!(error.contains("reserved"), "{error}");
    }
    refused(|message| message.with_header("a", "v".repeat(HEADERS_BYTES_MAX)), "at most 16384 fit");
    refused(
        |message| (0..65).fold(message, |message, n| message.with_header(format!("h{n}"), "")),
        "at most 64",
    );
    refused(|_| Message::new("t", vec![0; PAYLOAD_BYTES_MAX + 1]), "store the content elsewhere");
}

#[test]
fn ids_are_uuids_and_differ() {
    let (one, two) = (random_id(), random_id());
    assert_ne!(one, two);
    let parts: Vec<usize> = one.split('-').map(str::len).collect();
    assert_eq!(parts, [8, 4, 4, 4, 12]);
    assert_eq!(one.as_bytes()[14], b'4', "{one}");
    assert!(matches!(one.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{one}");
}

#[test]
fn headers_are_stored_as_json() {
    let message = Message::new("t", "").with_header("b", "\"2\"").with_header("a", "1");
    assert_eq!(message.headers_json(), r#"{"a":"1","b":"\"2\""}"#);
    let back =
        Message::from_stored(message.id.clone(), "t".into(), None, &message.headers_json(), Bytes::new());
    assert_eq!(back.unwrap(), message);
    assert!(Message::from_stored(String::new(), "t".into(), None, "[1]", Bytes::new()).is_err());
}
