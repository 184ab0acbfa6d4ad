use super::*;

fn event() -> StoredEvent {
    let mut headers = HeaderMap::new();
    headers.append("x-a", HeaderValue::from_static("1"));
    headers.append("x-a", HeaderValue::from_bytes(b"\xff\"2").unwrap());
    StoredEvent {
        method: "POST".into(),
        target: "/hooks?a=1".into(),
        key: "evt_1".into(),
        object: Some("cus_1".into()),
        arrived_us: 7,
        redrive: 2,
        headers,
        body: Bytes::from_static(b"\x00\xff{}"),
    }
}

#[test]
fn what_is_stored_is_read() {
    let stored = event().encode();
    assert_eq!(StoredEvent::decode(&stored), Some(event()));
    for length in 0..stored.len() - event().body.len() {
        assert_eq!(StoredEvent::decode(&stored.slice(..length)), None, "{length} bytes are no event");
    }
    for other in [&b""[..], b"{}", b"onceward event 1\n\xff\xff\xff\xff{}"] {
        assert_eq!(StoredEvent::decode(&Bytes::from_static(other)), None);
    }
}

/// Events that an older version has stored must be delivered by a newer one.
#[test]
fn the_bytes_of_version_1_are_read_forever() {
    let head =
        br#"{"method":"POST","target":"/h","key":"k","object":null,"arrived_us":1,"headers":[["a","b"]]}"#;
    let mut stored = b"onceward event 1\n".to_vec();
    stored.extend(u32::try_from(head.len()).unwrap().to_le_bytes());
    stored.extend(head);
    stored.extend(b"body");
    let read = StoredEvent::decode(&stored.into()).unwrap();
    assert_eq!((read.key.as_str(), read.redrive, &read.body[..]), ("k", 0, &b"body"[..]));
    assert_eq!(read.headers["a"], "b");
}
