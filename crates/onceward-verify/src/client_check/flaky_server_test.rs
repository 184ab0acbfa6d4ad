use super::{parse, unchunked};

#[test]
fn a_request_is_read_once_all_of_it_is_there() {
    let whole = b"POST /charges HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 4\r\n\r\nbody";
    for length in 0..whole.len() {
        assert!(parse(&whole[..length]).unwrap().is_none(), "{length}");
    }
    let sent = parse(whole).unwrap().unwrap();
    assert_eq!(
        (sent.method.as_str(), sent.target.as_str(), &sent.body[..]),
        ("POST", "/charges", &b"body"[..])
    );
    assert_eq!(sent.key("idempotency-key", None).as_deref(), Some("k"));
    assert!(parse(b"no HTTP at all\r\n\r\n").is_err());
}

#[test]
fn chunks_are_put_together() {
    assert_eq!(unchunked(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n").unwrap(), "abcde");
    assert_eq!(unchunked(b"3\r\nabc\r\n2\r\nd"), None);
}
