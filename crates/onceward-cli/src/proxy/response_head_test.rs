use super::*;

/// What is parsed, and what is left of the bytes.
fn check(text: &str) -> (ResponseHead, String) {
    let mut input = BytesMut::from(text);
    let head = parse(&mut input);
    (head, String::from_utf8(input.to_vec()).unwrap())
}

fn plain(text: &str) -> (PlainHead, String) {
    match check(text) {
        (ResponseHead::Plain(head), rest) => (head, rest),
        (other, _) => panic!("{text:?} is {other:?}"),
    }
}

#[test]
fn a_head_with_a_length_is_taken_off() {
    let (head, rest) = plain("HTTP/1.1 201 Created\r\nContent-Length: 2\r\nX-A: 1\r\nx-a: 2\r\n\r\n{}");
    assert_eq!(head.response.status(), 201);
    let values: Vec<_> = head.response.headers().get_all("x-a").iter().collect();
    assert_eq!(values, ["1", "2"]);
    assert_eq!((head.body_bytes, head.keeps_connection, rest.as_str()), (2, true, "{}"));
}

#[test]
fn interim_responses_are_passed_over() {
    let (head, rest) = plain(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    );
    assert_eq!((head.response.status().as_u16(), head.response.headers().len(), rest.len()), (200, 1, 0));
}

#[test]
fn a_connection_that_may_hold_more_is_not_kept() {
    assert!(
        !plain("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: x, CLOSE\r\n\r\n").0.keeps_connection
    );
    for status in ["204 No Content", "304 Not Modified"] {
        let (head, _) = plain(&format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\n"));
        assert_eq!((head.body_bytes, head.keeps_connection), (0, false), "{status}");
    }
}

#[test]
fn what_is_not_plain_is_left_whole() {
    for text in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nuntil the end",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\na",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\na",
        "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\na",
        "ICY 200 OK\r\n\r\n",
    ] {
        let (head, rest) = check(text);
        assert!(matches!(head, ResponseHead::Unusual), "{text:?} is {head:?}");
        assert_eq!(rest, text);
    }
}

#[test]
fn every_beginning_of_a_head_is_partial() {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nX-Long: value\r\n\r\n";
    for end in 0..text.len() {
        let (head, rest) = check(&text[..end]);
        assert!(matches!(head, ResponseHead::Partial), "{end}: {head:?}");
        assert_eq!(rest.len(), end);
    }
    assert!(matches!(check(text).0, ResponseHead::Plain(_)));
}
