//! Tests of rewriting header fields.

use http::header::{CONNECTION, CONTENT_LENGTH, FORWARDED, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{ClientConnection, add_forwarded, remove_hop_by_hop, remove_protocol_fields, requested_upgrade};

fn fields(lines: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    headers
}

#[test]
fn hop_by_hop_fields_are_removed() {
    let mut headers = fields(&[
        ("connection", "close, X-Mine"),
        ("connection", "x-other"),
        ("x-mine", "1"),
        ("x-other", "2"),
        ("x-kept", "3"),
        ("keep-alive", "timeout=5"),
        ("transfer-encoding", "chunked"),
        ("te", "trailers"),
        ("upgrade", "websocket"),
        ("proxy-authorization", "Basic x"),
    ]);
    remove_hop_by_hop(&mut headers);
    assert_eq!(headers, fields(&[("x-kept", "3")]));
}

#[test]
fn a_sender_cannot_have_the_key_or_the_length_removed() {
    let lines = [("content-length", "3"), ("host", "a"), ("idempotency-key", "k"), ("authorization", "b")];
    let mut headers = fields(&lines);
    headers
        .insert(CONNECTION, HeaderValue::from_static("content-length, host, idempotency-key, authorization"));
    remove_hop_by_hop(&mut headers);
    assert_eq!(headers, fields(&lines));
    assert!(headers.contains_key(CONTENT_LENGTH) && !headers.contains_key(TRANSFER_ENCODING));
}

#[test]
fn an_upgrade_needs_the_connection_field() {
    assert_eq!(requested_upgrade(&fields(&[("upgrade", "websocket")])), None);
    assert_eq!(requested_upgrade(&fields(&[("connection", "Upgrade")])), None);
    let asked =
        requested_upgrade(&fields(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]));
    assert_eq!(asked, Some(HeaderValue::from_static("websocket")));
    assert_eq!(UPGRADE, "upgrade");
}

#[test]
fn only_websocket_is_passed() {
    for protocol in ["h2c", "TLS/1.0", "websocket, h2c", "echo"] {
        let asked = requested_upgrade(&fields(&[("connection", "Upgrade"), ("upgrade", protocol)]));
        assert_eq!(asked, None, "{protocol}");
    }
    assert!(requested_upgrade(&fields(&[("connection", "Upgrade"), ("upgrade", "WebSocket")])).is_some());
}

#[test]
fn a_service_cannot_say_what_only_the_gateway_knows() {
    let mut headers = fields(&[
        ("idempotent-replayed", "true"),
        ("idempotency-expires", "Thu, 01 Jan 2099 00:00:00 GMT"),
        ("onceward-unguarded", "x"),
        ("onceward-status", "200"),
        ("x-kept", "1"),
    ]);
    remove_protocol_fields(&mut headers);
    assert_eq!(headers, fields(&[("x-kept", "1")]));
}

fn forwarded(lines: &[(&str, &str)], client: &str) -> HeaderMap {
    let mut headers = fields(lines);
    let client = client.parse().unwrap();
    add_forwarded(&mut headers, ClientConnection { client, scheme: "http", trusted: true });
    headers
}

#[test]
fn forwarded_fields_name_the_client() {
    let headers = forwarded(&[("host", "shop.example:8080")], "192.0.2.7");
    assert_eq!(headers["x-forwarded-for"], "192.0.2.7");
    assert_eq!(headers["x-forwarded-proto"], "http");
    assert_eq!(headers["x-forwarded-host"], "shop.example:8080");
    assert_eq!(headers[FORWARDED], "for=192.0.2.7;host=\"shop.example:8080\";proto=http");
    assert_eq!(headers[HOST], "shop.example:8080");
    let headers = forwarded(&[], "2001:db8::1");
    assert_eq!(headers[FORWARDED], "for=\"[2001:db8::1]\";proto=http");
}

#[test]
fn earlier_hops_are_kept() {
    let lines = [
        ("host", "a"),
        ("x-forwarded-for", "198.51.100.1"),
        ("x-forwarded-for", "198.51.100.2"),
        ("x-forwarded-proto", "https"),
        ("forwarded", "for=198.51.100.1"),
    ];
    let kept = forwarded(&lines, "192.0.2.7");
    assert_eq!(kept["x-forwarded-for"], "198.51.100.1, 198.51.100.2, 192.0.2.7");
    assert_eq!(kept.get_all("x-forwarded-for").iter().count(), 1);
    assert_eq!(kept["x-forwarded-proto"], "https");
    assert_eq!(kept[FORWARDED], "for=198.51.100.1, for=192.0.2.7;host=\"a\";proto=http");
}

#[test]
fn a_client_cannot_set_the_fence() {
    let headers = forwarded(&[("onceward-fence", "9"), ("onceward-attempt", "x")], "192.0.2.7");
    assert!(!headers.contains_key("onceward-fence") && !headers.contains_key("onceward-attempt"));
}
