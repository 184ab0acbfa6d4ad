//! Verifies the tokens (JWT) that clients send as `Authorization: Bearer …`, and reads their claims.

use std::path::Path;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use onceward_http::admin::shape::SearchedClaims;
use serde_json::{Map, Value};

/// Verifies tokens with one key.
pub struct JwtVerifier {
    key: DecodingKey,
    validation: Validation,
}

/// How far the clocks of the issuer and of this machine may differ: a token is taken this much before and after its time.
const LEEWAY_SECONDS: u64 = 60;

impl JwtVerifier {
    /// The file is a public key (PEM: RSA, EC or Ed25519), or else a secret for HS256.
    pub fn new(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let (key, algorithms) = read_key(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        // The key decides the algorithms, never the header of a token.
        let mut validation = Validation::new(algorithms[0]);
        validation.algorithms = algorithms;
        validation.validate_nbf = true;
        validation.leeway = LEEWAY_SECONDS;
        // The service checks the audience; the gateway only needs to know the caller.
        validation.validate_aud = false;
        Ok(Self { key, validation })
    }

    /// A claim of the request's token, if the token is valid and has that claim.
    pub fn claim(&self, headers: &HeaderMap, claim: &str) -> Option<String> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (value, None) = (values.next()?, values.next()) else { return None };
        let value = value.to_str().ok()?;
        let (scheme, token) = value.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let token = decode::<Map<String, Value>>(token.trim(), &self.key, &self.validation).ok()?;
        let issuer = token.claims.get(ISSUER).cloned().unwrap_or(Value::Null);
        match token.claims.get(claim)? {
            Value::Null => None,
            value => Some(caller(issuer, value.clone())),
        }
    }
}

const ISSUER: &str = "iss";

/// The issuer is part of the caller: two issuers may use the same name for different callers.
fn caller(issuer: Value, value: Value) -> String {
    Value::Array(vec![issuer, value]).to_string()
}

/// The callers that a search by these claims can mean: a number in a token is not the text of its digits.
pub fn searched(claims: &SearchedClaims, claim: &str) -> Vec<String> {
    let issuer = claims.find(ISSUER).map_or(Value::Null, Value::from);
    let Some(text) = claims.find(claim) else { return Vec::new() };
    let other: Option<Value> = serde_json::from_str(text).ok().filter(|value: &Value| !value.is_null());
    let values = [Some(Value::from(text)), other].into_iter().flatten();
    values.map(|value| caller(issuer.clone(), value)).collect()
}

fn read_key(bytes: &[u8]) -> Result<(DecodingKey, Vec<Algorithm>), String> {
    if !bytes.starts_with(b"-----BEGIN") {
        let secret = bytes.trim_ascii();
        if secret.len() < 32 {
            return Err("a secret for HS256 needs at least 32 bytes".into());
        }
        return Ok((DecodingKey::from_secret(secret), vec![Algorithm::HS256]));
    }
    if let Ok(key) = DecodingKey::from_rsa_pem(bytes) {
        let rsa = [
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ];
        return Ok((key, rsa.into()));
    }
    if let Ok(key) = DecodingKey::from_ec_pem(bytes) {
        return Ok((key, vec![Algorithm::ES256, Algorithm::ES384]));
    }
    if let Ok(key) = DecodingKey::from_ed_pem(bytes) {
        return Ok((key, vec![Algorithm::EdDSA]));
    }
    Err("it is neither a public RSA, EC or Ed25519 key (PEM) nor a secret".into())
}

#[cfg(test)]
#[path = "jwt_test.rs"]
mod tests;
