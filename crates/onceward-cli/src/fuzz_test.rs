//! Hostile bytes for the configuration file and for tokens.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use onceward_fuzz::Fuzz;

use crate::config::Settings;
use crate::proxy::JwtVerifier;

#[test]
fn fuzz_config() {
    let seeds = [
        "upstream = \"http://127.0.0.1:3000\"\n[defaults]\nkey = \"required\"\n[[route]]\npath = \"/charges/{id}\"\nscope = \"header:X-Tenant\"\n",
        "listen = \":8080\"\nsweep_every = \"60s\"\n[[route]]\npath = \"/a/*\"\nretention = \"24h\"\npreset = \"stripe\"\n",
    ];
    let words: &[&[u8]] = &[
        b"[[route]]\n",
        b"[defaults]\n",
        b"path = \"",
        b"\"\n",
        b"= ",
        b"{",
        b"}",
        b"*",
        b"99999999999999999999d",
        b"jwt:",
        b"header:",
        b"on_unknown = \"reconcile\"\n",
        b"reconcile_url = \"/x/{key}\"\n",
        b"4xx",
        b"\x00",
    ];
    Fuzz::new("config").with_seeds(seeds).with_words(words).run(|input| {
        let text = String::from_utf8_lossy(input);
        match Settings::parse(&text) {
            Ok((_, routes)) => format!("{} routes", routes.list.len().min(3)),
            // The end of a message says what is wrong; its beginning says where.
            Err(error) => error.chars().rev().take(24).collect(),
        }
    });
}

#[test]
fn fuzz_token() {
    let secret = "0123456789abcdef0123456789abcdef";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), secret).unwrap();
    let verifier = JwtVerifier::new(file.path()).unwrap();
    let claims = serde_json::json!({"iss": "a", "sub": "tenant-7", "exp": 4_000_000_000_u64});
    let token = encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(secret.as_bytes()))
        .unwrap();
    let genuine = format!("Bearer {token}");
    let words: &[&[u8]] = &[b".", b"Bearer ", b"eyJhbGciOiJub25lIn0", b"=", b"-", b"_", b" "];
    let name = |line: &[u8]| {
        let mut headers = HeaderMap::new();
        headers.append(AUTHORIZATION, HeaderValue::from_bytes(line).ok()?);
        verifier.claim(&headers, "sub")
    };
    assert!(name(genuine.as_bytes()).is_some());
    Fuzz::new("token").with_seeds([genuine.as_bytes()]).with_words(words).run(|input| {
        let named = name(input);
        if named.is_some() {
            // Only another spelling of the scheme and the spaces around it are the same token.
            let text = String::from_utf8_lossy(input);
            assert!(text.trim_end().ends_with(&token), "a changed token was accepted: {text}");
        }
        named.is_some()
    });
}
