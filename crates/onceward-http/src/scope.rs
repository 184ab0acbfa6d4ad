//! The scope of a request: which caller it belongs to. It keeps one tenant from getting another tenant's answer.

use http::Extensions;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName};

use crate::fingerprint::SECRET_BYTES;

/// Where the scope of a request comes from.
///
/// Choose something that stays the same between two tries of one intent: with a token that is refreshed in
/// between, the retry would be another intent, and its effect would happen twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScopeFrom {
    /// A keyed hash of the `Authorization` field.
    #[default]
    Authorization,
    /// A keyed hash of this field. The field must come from a proxy that clients cannot get around.
    Header(HeaderName),
    /// A keyed hash of the [`CallerScope`] among the request's extensions: a component in front of
    /// the layer has determined the caller.
    Extension,
    /// Everybody shares one scope. For services with one caller.
    Shared,
}

/// The caller, as determined in front of the layer: a claim of a verified token, the subject of a client's
/// certificate. See [`ScopeFrom::Extension`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerScope(pub String);

/// What a request gets that does not say who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnAnonymous {
    /// The scope `anonymous`, which all of them share.
    Share,
    /// A refusal, `scope-missing`.
    Refuse,
}

impl ScopeFrom {
    /// What a request without a scope gets unless the route says otherwise. A service that needs no credentials has one
    /// tenant. If a component in front of the layer sets the scope, a missing one is an error there, and tenants must
    /// not share answers because of it.
    pub fn on_anonymous(&self) -> OnAnonymous {
        match self {
            Self::Extension => OnAnonymous::Refuse,
            Self::Authorization | Self::Header(_) | Self::Shared => OnAnonymous::Share,
        }
    }

    /// The scope of a request; `None` if it does not say who asks. Credentials are hashed, never stored.
    pub(crate) fn read(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
        secret: &[u8; SECRET_BYTES],
    ) -> Option<Scope> {
        match self {
            Self::Authorization => read_field(&AUTHORIZATION, headers, secret),
            Self::Header(name) => read_field(name, headers, secret),
            Self::Extension => {
                let CallerScope(caller) =
                    extensions.get().filter(|CallerScope(caller)| !caller.is_empty())?;
                // No header field has a name with a colon, so this cannot collide with a field.
                Some(Scope::hashed("caller:", [caller.as_bytes()], secret))
            }
            Self::Shared => Some(Scope::SHARED),
        }
    }
}

fn read_field(name: &HeaderName, headers: &HeaderMap, secret: &[u8; SECRET_BYTES]) -> Option<Scope> {
    let mut values = headers.get_all(name).iter().peekable();
    values.peek()?;
    Some(Scope::hashed(name.as_str(), values.map(http::HeaderValue::as_bytes), secret))
}

/// The text of a scope, without an allocation of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scope {
    text: [u8; Self::BYTES],
    len: usize,
}

impl Scope {
    /// Hexadecimal digits of a hash: 128 bits.
    const BYTES: usize = 32;
    /// Of all callers without credentials.
    pub(crate) const ANONYMOUS: Self = Self::named(b"anonymous");
    /// Of all callers.
    pub(crate) const SHARED: Self = Self::named(b"shared");

    const fn named(name: &[u8]) -> Self {
        let mut text = [0; Self::BYTES];
        text.split_at_mut(name.len()).0.copy_from_slice(name);
        Self { text, len: name.len() }
    }

    fn hashed<'v>(
        source: &str,
        values: impl IntoIterator<Item = &'v [u8]>,
        secret: &[u8; SECRET_BYTES],
    ) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(secret);
        hasher.update(source.as_bytes());
        for value in values {
            hasher.update(&(value.len() as u64).to_le_bytes());
            hasher.update(value);
        }
        let mut text = [0; Self::BYTES];
        text.copy_from_slice(&hasher.finalize().to_hex().as_bytes()[..Self::BYTES]);
        Self { text, len: Self::BYTES }
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[..self.len]).expect("hexadecimal digits, or a name")
    }
}
