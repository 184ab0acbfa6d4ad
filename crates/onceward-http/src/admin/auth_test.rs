//! Tests of who may use the receipts API.

use axum::body::Body;

use super::*;

fn request(fields: &[(&str, &str)]) -> Request {
    let mut request = Request::builder().uri("/v1/receipts");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap()
}

fn page(fields: &[(&str, &str)]) -> bool {
    AdminAuth(AuthRule::LoopbackListener).check_origin(&request(fields)).is_ok()
}

#[test]
fn a_listener_that_others_can_reach_needs_a_token() {
    for address in ["127.0.0.1:8081", "127.9.9.9:1", "[::1]:8081", "[::ffff:127.0.0.1]:8081"] {
        assert!(AdminAuth::loopback_listener(address.parse().unwrap()).is_ok(), "{address}");
    }
    for address in ["0.0.0.0:8081", "10.0.0.1:8081", "[::]:8081", "[::ffff:10.0.0.1]:8081"] {
        let address = address.parse().unwrap();
        let Err(error) = AdminAuth::loopback_listener(address) else { panic!("{address} is open to all") };
        assert!(error.to_string().contains("set an admin token"), "{error}");
    }
    assert!(AdminAuth::token("short").unwrap_err().to_string().contains("at least 16"));
}

#[test]
fn only_the_token_opens() {
    let auth = AdminAuth::token("sixteen letters!").unwrap();
    let opens = |fields: &[(&str, &str)]| auth.check_token(Role::Operator, &request(fields)).is_ok();
    assert!(opens(&[("authorization", "Bearer sixteen letters!")]));
    assert!(opens(&[("authorization", "bearer sixteen letters!")]));
    assert!(!opens(&[]));
    assert!(!opens(&[("authorization", "Bearer ")]));
    assert!(!opens(&[("authorization", "Bearer sixteen letters")]));
    assert!(!opens(&[("authorization", "Basic sixteen letters!")]));
    assert!(!opens(&[("authorization", "Bearer x"), ("authorization", "Bearer sixteen letters!")]));
}

#[test]
fn a_program_on_this_machine_comes_in() {
    for host in ["localhost:8081", "LOCALHOST", "127.0.0.1:8081", "127.1.2.3", "[::1]:8081"] {
        assert!(page(&[("host", host)]), "{host}");
    }
    assert!(page(&[("host", "localhost:8081"), ("origin", "http://localhost:8081")]), "its own page");
    assert!(page(&[("host", "localhost:8081"), ("sec-fetch-site", "none")]), "typed by a person");
}

#[test]
fn a_foreign_page_does_not() {
    for host in ["evil.example:8081", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""] {
        assert!(!page(&[("host", host)]), "{host:?}");
    }
    assert!(!page(&[]), "no host at all");
    assert!(!page(&[("host", "localhost:8081"), ("host", "localhost:8081")]), "two hosts");
    assert!(!page(&[("host", "a@localhost:8081")]), "a user in the host");
    for origin in ["http://evil.example", "null", "http://localhost:3000", "https://localhost:8081", ""] {
        assert!(!page(&[("host", "localhost:8081"), ("origin", origin)]), "{origin:?}");
    }
    let twice = [("host", "localhost:1"), ("origin", "http://localhost:1"), ("origin", "null")];
    assert!(!page(&twice));
    for site in ["cross-site", "same-site", "anything"] {
        assert!(!page(&[("host", "localhost:8081"), ("sec-fetch-site", site)]), "{site}");
    }
}

#[test]
fn a_peer_must_be_known_to_be_on_this_machine() {
    let admits = |peer: Option<&str>, fields: &[(&str, &str)]| {
        let mut request = request(fields);
        if let Some(peer) = peer {
            request.extensions_mut().insert(ConnectInfo(peer.parse::<SocketAddr>().unwrap()));
        }
        AdminAuth::loopback_peers().check_origin(&request).is_ok()
    };
    let host = ("host", "localhost:8080");
    assert!(admits(Some("127.0.0.1:50000"), &[host]));
    assert!(admits(Some("[::1]:50000"), &[host]));
    assert!(admits(Some("[::ffff:127.0.0.1]:50000"), &[host]));
    assert!(!admits(None, &[host]), "the peer address is not known");
    assert!(!admits(Some("10.0.0.1:50000"), &[host]), "another machine");
    for forwarded in
        [("x-forwarded-for", "10.0.0.1"), ("forwarded", "for=10.0.0.1"), ("x-real-ip", "10.0.0.1")]
    {
        assert!(!admits(Some("127.0.0.1:50000"), &[host, forwarded]), "{forwarded:?}");
    }
    assert!(!admits(Some("127.0.0.1:50000"), &[("host", "evil.example")]), "a page");
}
