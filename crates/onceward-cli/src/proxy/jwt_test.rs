//! Tests of verifying tokens.

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderValue};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::JwtVerifier;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// A time in the far future: the expiry of tokens is checked.
const LATER: u64 = 4_000_000_000;

fn verifier(key: &str) -> Result<JwtVerifier, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    std::fs::write(&path, key).unwrap();
    JwtVerifier::new(&path)
}

fn token(claims: &Value, algorithm: Algorithm, secret: &str) -> String {
    encode(&Header::new(algorithm), claims, &EncodingKey::from_secret(secret.as_bytes())).unwrap()
}

fn headers(lines: &[String]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(AUTHORIZATION, HeaderValue::from_str(line).unwrap());
    }
    headers
}

/// The caller of this token, by its claim `sub`.
fn who(token: &str) -> Option<String> {
    verifier(SECRET).unwrap().claim(&headers(&[format!("Bearer {token}")]), "sub")
}

#[test]
fn a_token_that_is_refreshed_names_the_same_caller() {
    let first = json!({"iss": "a", "sub": "tenant-7", "exp": LATER, "jti": "1"});
    let refreshed = json!({"iss": "a", "sub": "tenant-7", "exp": LATER + 60, "jti": "2"});
    let (first, refreshed) =
        (who(&token(&first, Algorithm::HS256, SECRET)), who(&token(&refreshed, Algorithm::HS256, SECRET)));
    assert!(first.is_some());
    assert_eq!(first, refreshed);
}

#[test]
fn other_issuers_and_other_kinds_of_names_are_other_callers() {
    let named = |claims: Value| who(&token(&claims, Algorithm::HS256, SECRET)).unwrap();
    let mut callers = vec![
        named(json!({"iss": "a", "sub": "7", "exp": LATER})),
        named(json!({"iss": "b", "sub": "7", "exp": LATER})),
        named(json!({"iss": "a", "sub": 7, "exp": LATER})),
        named(json!({"sub": "7", "exp": LATER})),
    ];
    callers.sort();
    callers.dedup();
    assert_eq!(callers.len(), 4);
}

#[test]
fn an_invalid_token_names_no_caller() {
    let good = json!({"sub": "tenant-7", "exp": LATER});
    for (token, why) in [
        (token(&good, Algorithm::HS256, "another secret of 32 characters!"), "another key"),
        (token(&good, Algorithm::HS384, SECRET), "another algorithm"),
        (token(&json!({"sub": "tenant-7", "exp": 1_000}), Algorithm::HS256, SECRET), "expired"),
        (token(&json!({"sub": "tenant-7"}), Algorithm::HS256, SECRET), "no expiry"),
        (token(&json!({"sub": "x", "exp": LATER, "nbf": LATER - 1}), Algorithm::HS256, SECRET), "not yet"),
        (token(&json!({"exp": LATER}), Algorithm::HS256, SECRET), "no such claim"),
        (token(&json!({"sub": null, "exp": LATER}), Algorithm::HS256, SECRET), "an empty claim"),
        // {"alg":"none"} and {"sub":"tenant-7","exp":4000000000}
        ("eyJhbGciOiJub25lIn0.eyJzdWIiOiJ0ZW5hbnQtNyIsImV4cCI6NDAwMDAwMDAwMH0.".into(), "unsigned"),
        ("nonsense".into(), "no token"),
    ] {
        assert_eq!(who(&token), None, "{why}");
    }
    let good = token(&good, Algorithm::HS256, SECRET);
    let verifier = verifier(SECRET).unwrap();
    let twice = headers(&[format!("Bearer {good}"), format!("Bearer {good}")]);
    assert_eq!(verifier.claim(&twice, "sub"), None, "two fields");
    assert_eq!(verifier.claim(&headers(&[format!("Basic {good}")]), "sub"), None, "another scheme");
    assert_eq!(verifier.claim(&HeaderMap::new(), "sub"), None);
}

#[test]
fn an_invalid_key_is_refused() {
    assert!(verifier("short").is_err_and(|error| error.contains("32 bytes")));
    let broken = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
    assert!(verifier(broken).is_err_and(|error| error.contains("neither")));
}
