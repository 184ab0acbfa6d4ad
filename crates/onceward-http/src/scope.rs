//! Who asks. The scope keeps one tenant from ever being served another's answer.

use http::HeaderName;
use http::header::AUTHORIZATION;
use http::request::Parts;

/// Where the scope of a request comes from.
///
/// Choose something that stays the same between two tries of one intent: a token that is refreshed in
/// between would make the retry a stranger, and its effect a second one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ScopeFrom {
    /// A keyed hash of the `Authorization` field; `anonymous` without one.
    #[default]
    Authorization,
    /// A keyed hash of this field; `anonymous` without it. The field must come from a proxy that
    /// clients cannot get around.
    Header(HeaderName),
    /// Everybody shares one scope. For services with one caller.
    Shared,
}

impl ScopeFrom {
    /// The scope of a request. Credentials are hashed, never stored.
    pub(crate) fn read(&self, parts: &Parts, secret: &[u8; 32]) -> String {
        let name = match self {
            Self::Authorization => &AUTHORIZATION,
            Self::Header(name) => name,
            Self::Shared => return "shared".into(),
        };
        let mut values = parts.headers.get_all(name).iter().peekable();
        if values.peek().is_none() {
            return "anonymous".into();
        }
        let mut hasher = blake3::Hasher::new_keyed(secret);
        hasher.update(name.as_str().as_bytes());
        for value in values {
            hasher.update(&(value.len() as u64).to_le_bytes());
            hasher.update(value.as_bytes());
        }
        let hash = hasher.finalize().to_hex();
        hash[..32].to_owned()
    }
}
