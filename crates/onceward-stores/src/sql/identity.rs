//! The identity of a database: random bytes that a restored copy shares until they are renewed, and the key that entries
//! of a volatile front are sealed with.

use onceward::{Error, ErrorKind, Result, StoreIdentity};

/// Random bytes for the row of `onceward_identity`.
pub(super) struct FreshIdentity {
    pub(super) identity: [u8; 16],
    pub(super) seal_key: [u8; 32],
}

impl FreshIdentity {
    pub(super) fn new() -> Result<Self> {
        let mut fresh = Self { identity: [0; 16], seal_key: [0; 32] };
        for bytes in [&mut fresh.identity[..], &mut fresh.seal_key] {
            getrandom::fill(bytes)
                .map_err(|error| Error::new(ErrorKind::Unavailable, format!("no randomness: {error}")))?;
        }
        Ok(fresh)
    }
}

/// An identity from the columns of its row, and what the server says of itself.
pub(super) fn identity(random: &[u8], seal_key: &[u8], now_us: i64, server: &str) -> Result<StoreIdentity> {
    let seal_key = seal_key.try_into().ok().filter(|_| random.len() == 16);
    let seal_key = seal_key.ok_or_else(|| damaged("the row of `onceward_identity` is not as it was made"))?;
    let name = [random, server.as_bytes()].concat();
    Ok(StoreIdentity::new(name, seal_key, now_us.unsigned_abs()))
}

/// The error if the row is not there.
pub(super) fn missing() -> Error {
    damaged("`onceward_identity` has no row")
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Damaged, format!("{what}; run `onceward migrate --new-identity --store URL`"))
}
