//! Whose request it is, with all defaults: no caller gets another caller's answer, and no retry becomes a stranger.

use super::stage::{Gateway, Home, Service};
use crate::process::Answer;

fn stage(config: &str) -> (Home, Service, Gateway) {
    let (home, service) = (Home::new(), Service::charging());
    home.write_config(config);
    let gateway = home.start(&service.url());
    (home, service, gateway)
}

fn keyed(gateway: &Gateway, path: &str, more: &[(&str, &str)]) -> Answer {
    let mut fields = vec![("Idempotency-Key", "order-81")];
    fields.extend_from_slice(more);
    gateway.post(path, &fields, "{}")
}

fn is_replay(answer: &Answer) -> bool {
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.field("idempotent-replayed") == Some("true")
}

/// The sentence of a refusal.
#[track_caller]
fn refused(answer: &Answer, problem: &str) -> String {
    let status = if problem == "key-reused" { 422 } else { 400 };
    assert_eq!(answer.problem(), (status, problem.into()));
    answer.json()["detail"].as_str().unwrap().to_owned()
}

#[test]
fn two_api_keys_with_the_same_key_and_body_never_share_an_answer() {
    let (_home, service, gateway) = stage("");
    for field in ["X-Api-Key", "Api-Key"] {
        for caller in ["alice", "bob"] {
            let send = || keyed(&gateway, "/api-keys", &[(field, caller)]);
            assert!(!is_replay(&send()), "{field}: {caller}");
            assert!(is_replay(&send()), "{field}: {caller}");
        }
    }
    assert_eq!(service.effects(), 4);
}

/// The owner of a session cannot be named by default: a cookie changes from request to request.
#[test]
fn two_cookie_sessions_never_share_an_answer() {
    let (_home, service, gateway) = stage(
        "[[route]]\npath = \"/named\"\nscope = \"cookie:session\"\n\
         [[route]]\npath = \"/shared\"\nanonymous = \"share\"\n",
    );
    for caller in ["session=alice", "session=bob"] {
        let detail = refused(&keyed(&gateway, "/checkout", &[("Cookie", caller)]), "scope-missing");
        assert!(detail.contains("`scope`") && detail.contains("cookie"), "{detail}");
        let named = || keyed(&gateway, "/named", &[("Cookie", &format!("theme=dark; {caller}"))]);
        assert!(!is_replay(&named()));
        assert!(is_replay(&named()));
    }
    assert_eq!(service.effects(), 2);
    // Where it is said that they share, a session that differs is refused and not answered.
    assert!(!is_replay(&keyed(&gateway, "/shared", &[("Cookie", "session=alice")])));
    refused(&keyed(&gateway, "/shared", &[("Cookie", "session=bob")]), "key-reused");
    refused(&keyed(&gateway, "/named", &[]), "scope-missing");
    assert_eq!(service.effects(), 3);
}

/// A signature differs from try to try: each try would be another caller's, and would run.
#[test]
fn signed_credentials_are_refused_with_a_sentence_and_run_nothing() {
    let (_home, service, gateway) = stage("[[route]]\npath = \"/accounts\"\nscope = \"header:X-Account\"\n");
    for credential in [
        "AWS4-HMAC-SHA256 Credential=AKID/20260101/eu/s3/aws4_request, SignedHeaders=host, Signature=1",
        "Digest username=\"a\", nonce=\"1\"",
        "Hawk id=\"a\", mac=\"1\"",
        "OAuth oauth_nonce=\"1\"",
    ] {
        let detail = refused(&keyed(&gateway, "/charges", &[("Authorization", credential)]), "scope-missing");
        assert!(detail.contains("`scope`"), "{detail}");
        assert!(!detail.contains("AKID"), "{detail}");
    }
    assert_eq!(service.effects(), 0);
    for signature in ["Hawk id=\"a\", mac=\"1\"", "Hawk id=\"a\", mac=\"2\""] {
        keyed(&gateway, "/accounts", &[("Authorization", signature), ("X-Account", "7")]);
    }
    assert_eq!(service.effects(), 1, "with the setting that the sentence names, the retry is recognised");
}

/// Virtual hosts may be tenants.
#[test]
fn the_same_key_under_another_host_is_refused_or_another_intent() {
    let (_home, service, gateway) = stage(
        "[[route]]\npath = \"/tenants\"\nscope = [\"auto\", \"host\"]\n\
         [[route]]\npath = \"/balanced\"\nfingerprint = { host = false }\n",
    );
    let by =
        |path: &str, host: &str| keyed(&gateway, path, &[("Host", host), ("Authorization", "Bearer one")]);
    assert!(!is_replay(&by("/charges", "tenant1.example")));
    assert!(is_replay(&by("/charges", "TENANT1.example:80")), "the same host, spelt otherwise");
    refused(&by("/charges", "tenant2.example"), "key-reused");
    assert!(!is_replay(&by("/tenants", "tenant1.example")));
    assert!(!is_replay(&by("/tenants", "tenant2.example")));
    assert!(is_replay(&by("/tenants", "tenant2.example")));
    assert!(!is_replay(&by("/balanced", "node1.internal")));
    assert!(is_replay(&by("/balanced", "node2.internal")));
    assert_eq!(service.effects(), 4);
}

#[test]
fn an_overridden_method_is_another_request() {
    let (_home, service, gateway) = stage("");
    let by = |more: &[(&str, &str)]| keyed(&gateway, "/charges", more);
    assert!(!is_replay(&by(&[])));
    refused(&by(&[("X-HTTP-Method-Override", "DELETE")]), "key-reused");
    assert_eq!(service.effects(), 1);
}

/// A credential that nobody knows to be one.
#[test]
fn an_unknown_field_that_differs_is_refused_and_the_refusal_names_the_setting() {
    let (_home, service, gateway) = stage(
        "[[route]]\npath = \"/edge\"\nfingerprint = { ignore_headers = [\"CF-Ray\"] }\n\
         [[route]]\npath = \"/strict\"\nanonymous = \"refuse\"\n",
    );
    assert!(!is_replay(&keyed(&gateway, "/charges", &[("X-Session-Token", "alice"), ("User-Agent", "a")])));
    let detail = refused(&keyed(&gateway, "/charges", &[("X-Session-Token", "bob")]), "key-reused");
    assert!(detail.contains("fingerprint.ignore_headers"), "{detail}");
    // What names nobody may differ.
    let again =
        [("X-Session-Token", "alice"), ("User-Agent", "b"), ("X-Request-Id", "7"), ("X-Real-IP", "1.2.3.4")];
    assert!(is_replay(&keyed(&gateway, "/charges", &again)));
    assert!(!is_replay(&keyed(&gateway, "/edge", &[("CF-Ray", "1")])));
    assert!(is_replay(&keyed(&gateway, "/edge", &[("CF-Ray", "2")])));
    refused(&keyed(&gateway, "/strict", &[]), "scope-missing");
    assert_eq!(service.effects(), 2);
}

/// Where the scope is a field and the field is absent, two tokens must not share.
#[test]
fn a_configured_field_that_is_absent_is_refused() {
    let (_home, service, gateway) = stage(
        "[[route]]\npath = \"/refused\"\nscope = \"header:X-Tenant\"\n\
         [[route]]\npath = \"/shared\"\nscope = \"header:X-Tenant\"\nanonymous = \"share\"\n",
    );
    for token in ["Bearer alice", "Bearer bob"] {
        let detail = refused(&keyed(&gateway, "/refused", &[("Authorization", token)]), "scope-missing");
        assert!(detail.contains("x-tenant"), "{detail}");
    }
    assert!(!is_replay(&keyed(&gateway, "/shared", &[("Authorization", "Bearer alice")])));
    refused(&keyed(&gateway, "/shared", &[("Authorization", "Bearer bob")]), "key-reused");
    assert_eq!(service.effects(), 1);
}

/// The next hop removes what `Connection` lists, so the service would not see what the gateway counted.
#[test]
fn a_connection_that_lists_a_field_that_counts_is_refused() {
    let (_home, service, gateway) = stage(
        "[[route]]\npath = \"/tenants\"\nscope = \"header:X-Tenant\"\n\
         [[route]]\npath = \"/sessions\"\nscope = \"cookie:session\"\n",
    );
    let send = |path: &str, connection: &str| {
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close, {connection}\r\nIdempotency-Key: k\r\nX-Tenant: t\r\n\
             Cookie: session=alice\r\nX-Hop: 1\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n"
        );
        gateway.raw(request.as_bytes())
    };
    for listed in ["X-Tenant", "content-encoding", "Idempotency-Key"] {
        let answer = send("/tenants", listed);
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("scope-missing"), "{listed}: {answer}");
    }
    let answer = send("/sessions", "Cookie");
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("scope-missing"), "{answer}");
    assert_eq!(service.effects(), 0);
    assert!(send("/tenants", "X-Hop").starts_with("HTTP/1.1 201"));
}
