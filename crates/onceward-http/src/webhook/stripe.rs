//! Stripe: `Stripe-Signature: t=TIME,v1=HEX,v1=HEX`, HMAC-SHA256 over `t.body` with the whole secret, `whsec_` included.
//! Signatures of other versions are ignored. The event's id is in its body.

use http::HeaderName;

use super::github::decode_hex;
use super::{BadSignature, Event, SIGNATURES_MAX, Signed};
use crate::fingerprint::Pointer;
use crate::key::KeyShape;
use crate::key_source::KeyFrom;

const SIGNATURE: HeaderName = HeaderName::from_static("stripe-signature");

pub(super) fn verify(signed: &Signed<'_>) -> Result<Event, BadSignature> {
    let malformed = || BadSignature::Malformed(SIGNATURE);
    let (mut time, mut signatures) = (None, Vec::new());
    for (at, entry) in signed.field(&SIGNATURE)?.split(',').enumerate() {
        if at > SIGNATURES_MAX {
            return Err(BadSignature::TooMany(SIGNATURE));
        }
        match entry.trim().split_once('=').ok_or_else(malformed)? {
            ("t", text) if time.is_none() => time = Some(text),
            ("t", _) => return Err(malformed()),
            ("v1", text) => signatures.push(decode_hex(text).ok_or_else(malformed)?),
            _ => {}
        }
    }
    let time = time.ok_or_else(malformed)?;
    signed.check_time(time, &SIGNATURE)?;
    signed.any_matches(&[time.as_bytes(), b".", signed.body], &signatures)?;
    let pointer = Pointer::parse("/id").expect("it is a pointer");
    match KeyFrom::read_body(&pointer, &KeyShape::default(), signed.body) {
        Ok(Some(id)) => Ok(Event::new(id)),
        _ => Err(BadSignature::NoId),
    }
}
