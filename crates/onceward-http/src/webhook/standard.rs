//! Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`, as base64 behind `v1,`; several signatures are separated by
//! spaces. Signatures of other versions are ignored.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderName;

use super::{BadSignature, Event, SIGNATURES_MAX, Signed, hmac};

/// The sender's id of an event: the same on every try.
pub const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
/// When this try was signed, in seconds since 1970.
pub const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
/// The signatures of this try.
pub const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

pub(super) fn key(secret: &str) -> Option<Vec<u8>> {
    STANDARD.decode(secret.strip_prefix("whsec_").unwrap_or(secret)).ok()
}

pub(super) fn sign(key: &[u8], id: &str, timestamp: &str, body: &[u8]) -> String {
    format!("v1,{}", STANDARD.encode(hmac::sign(key, &parts(id, timestamp, body))))
}

pub(super) fn verify(signed: &Signed<'_>) -> Result<Event, BadSignature> {
    let id = signed.field(&WEBHOOK_ID)?;
    let timestamp = signed.field(&WEBHOOK_TIMESTAMP)?;
    let field = signed.field(&WEBHOOK_SIGNATURE)?;
    signed.check_time(timestamp, &WEBHOOK_TIMESTAMP)?;
    let mut signatures = Vec::new();
    for (at, entry) in field.split(' ').enumerate() {
        if at >= SIGNATURES_MAX {
            return Err(BadSignature::TooMany(WEBHOOK_SIGNATURE));
        }
        let Some((version, text)) = entry.split_once(',') else {
            return Err(BadSignature::Malformed(WEBHOOK_SIGNATURE));
        };
        if version == "v1" {
            let signature = STANDARD.decode(text).map_err(|_| BadSignature::Malformed(WEBHOOK_SIGNATURE))?;
            signatures.push(signature);
        }
    }
    signed.any_matches(&parts(id, timestamp, signed.body), &signatures)?;
    Ok(Event::new(id.to_owned()))
}

fn parts<'a>(id: &'a str, timestamp: &'a str, body: &'a [u8]) -> [&'a [u8]; 5] {
    [id.as_bytes(), b".", timestamp.as_bytes(), b".", body]
}
