//! HMAC-SHA256, made and compared in constant time.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The length of a signature.
pub(super) const SIGNATURE_BYTES: usize = 32;

fn mac(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac
}

/// The signature of these parts in a row.
pub(super) fn sign(key: &[u8], parts: &[&[u8]]) -> [u8; SIGNATURE_BYTES] {
    mac(key, parts).finalize().into_bytes().into()
}

/// Whether one of the signatures is right. Each of them is compared in constant time.
pub(super) fn any_is_right(key: &[u8], parts: &[&[u8]], signatures: &[Vec<u8>]) -> bool {
    let mac = mac(key, parts);
    let mut right = false;
    for signature in signatures {
        right |= mac.clone().verify_slice(signature).is_ok();
    }
    right
}
