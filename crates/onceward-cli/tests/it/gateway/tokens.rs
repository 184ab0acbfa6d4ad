//! Scopes from a claim of a token, with every kind of key that tokens are signed with.

use std::path::Path;

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::json;

use super::certificates::make_keys;
use super::stage::{Gateway, Home, Service};

pub const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// A time in the far future: the expiry of tokens is checked.
const LATER: u64 = 4_000_000_000;

fn read(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).unwrap()
}

/// A token of a caller; `id` changes when it is refreshed.
fn token(caller: &str, id: u32, algorithm: Algorithm, key: &EncodingKey) -> String {
    let claims = json!({"iss": "test", "sub": caller, "exp": LATER, "jti": id});
    format!("Bearer {}", encode(&Header::new(algorithm), &claims, key).unwrap())
}

/// A token of a caller that is signed with the shared secret.
pub fn bearer(caller: &str) -> String {
    token(caller, 1, Algorithm::HS256, &EncodingKey::from_secret(SECRET.as_bytes()))
}

/// A charge with a fixed key, by the owner of this token.
fn charge(gateway: &Gateway, token: &str) -> (u16, String) {
    let answer = gateway.post("/charges", &[("Idempotency-Key", "k"), ("Authorization", token)], "{}");
    (answer.status, answer.body)
}

/// Callers are distinguished by tokens signed with `own`, refreshed or not; other tokens are refused.
fn check_callers(key_file: &str, home: &Home, algorithm: Algorithm, own: &EncodingKey, strangers: &[String]) {
    let service = Service::charging();
    home.write_config("[defaults]\nscope = \"jwt:sub\"");
    let key_file = home.folder.path().join(key_file).display().to_string();
    let gateway = home.start_with(&service.url(), &["--jwt-key", &key_file]);
    for (caller, id, answer) in
        [("anna", 1, "{\"charge\":1}"), ("bert", 2, "{\"charge\":2}"), ("anna", 3, "{\"charge\":1}")]
    {
        let token = token(caller, id, algorithm, own);
        assert_eq!(charge(&gateway, &token), (201, answer.to_owned()), "{algorithm:?}: {caller}");
    }
    for stranger in strangers.iter().map(String::as_str).chain(["Bearer nonsense", ""]) {
        let (status, body) = charge(&gateway, stranger);
        assert!(
            status == 400 && body.contains("scope-missing"),
            "{algorithm:?}: {stranger}: {status} {body}"
        );
    }
    assert_eq!(service.effects(), 2, "{algorithm:?}");
}

#[test]
fn with_a_shared_secret() {
    let home = Home::new();
    std::fs::write(home.folder.path().join("secret"), SECRET).unwrap();
    let own = EncodingKey::from_secret(SECRET.as_bytes());
    let other = EncodingKey::from_secret(b"another secret of 32 characters!");
    let stranger = token("anna", 9, Algorithm::HS256, &other);
    check_callers("secret", &home, Algorithm::HS256, &own, &[stranger]);
}

/// With a public key: tokens of another key pair are refused, and one that uses the public key as a secret.
fn with_a_public_key(kind: &str, algorithm: Algorithm, read_key: impl Fn(&[u8]) -> EncodingKey) {
    let home = Home::new();
    let folder = home.folder.path();
    for name in ["own", "other"] {
        make_keys(folder, name, kind);
    }
    let (own, other) = (read_key(&read(folder, "own.key")), read_key(&read(folder, "other.key")));
    let confused = EncodingKey::from_secret(&read(folder, "own.pem"));
    let strangers = [token("anna", 8, algorithm, &other), token("anna", 9, Algorithm::HS256, &confused)];
    check_callers("own.pem", &home, algorithm, &own, &strangers);
}

#[test]
fn with_an_rsa_key() {
    let kind = "-algorithm RSA -pkeyopt rsa_keygen_bits:2048";
    with_a_public_key(kind, Algorithm::RS256, |pem| EncodingKey::from_rsa_pem(pem).unwrap());
}

#[test]
fn with_an_elliptic_curve_key() {
    let kind = "-algorithm EC -pkeyopt ec_paramgen_curve:P-256";
    with_a_public_key(kind, Algorithm::ES256, |pem| EncodingKey::from_ec_pem(pem).unwrap());
}

#[test]
fn with_an_edwards_curve_key() {
    with_a_public_key("-algorithm ED25519", Algorithm::EdDSA, |pem| EncodingKey::from_ed_pem(pem).unwrap());
}
