//! GitHub: `X-Hub-Signature-256: sha256=HEX`, HMAC-SHA256 over the body. Neither the id nor the time is signed.

use http::HeaderName;

use super::{BadSignature, Event, Signed};

const SIGNATURE: HeaderName = HeaderName::from_static("x-hub-signature-256");
const DELIVERY: HeaderName = HeaderName::from_static("x-github-delivery");
const EVENT: HeaderName = HeaderName::from_static("x-github-event");
const HOOK: HeaderName = HeaderName::from_static("x-github-hook-id");

pub(super) fn verify(signed: &Signed<'_>) -> Result<Event, BadSignature> {
    let hex = signed.field(&SIGNATURE)?.strip_prefix("sha256=").and_then(decode_hex);
    let signature = hex.ok_or(BadSignature::Malformed(SIGNATURE))?;
    signed.any_matches(&[signed.body], &[signature])?;
    let (delivery, event) = (signed.field(&DELIVERY)?, signed.field(&EVENT)?);
    // Old servers do not send it.
    let hook = match signed.field(&HOOK) {
        Err(BadSignature::Missing(_)) => "",
        hook => hook?,
    };
    Ok(Event::new(delivery.to_owned()).with_content(event.to_owned(), hook.to_owned()))
}

/// Bytes from hexadecimal digits, of the length of a signature.
pub(super) fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if text.len() != 2 * super::hmac::SIGNATURE_BYTES {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    text.chunks_exact(2).map(|pair| u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()).collect()
}
