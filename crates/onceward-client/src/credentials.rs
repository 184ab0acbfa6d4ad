//! The header fields that never enter a journal: credentials, by name.
//!
//! A journal is a file that outlives its process. Credentials are therefore fields of the client, which every try
//! carries. The journal stores only the names of those that were sent, so that a resumption without them is refused:
//! to the server it would be another caller, and the request could run a second time.

use http::{HeaderMap, HeaderName};

/// Names that are credentials as they are.
const NAMES: [&str; 8] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "cookie2",
    "dpop",
    "signature",
    "signature-input",
    "x-csrf",
];

/// A name that contains one of these, with or without hyphens, is a credential: `X-Api-Key`, `X-Amz-Security-Token`.
const PARTS: [&str; 12] = [
    "apikey",
    "accesskey",
    "privatekey",
    "secret",
    "token",
    "password",
    "passwd",
    "passphrase",
    "credential",
    "session",
    "assertion",
    "clientcert",
];

/// A name with one of these as a word is a credential: `X-Auth`, `X-Otp`; but not `X-Author`.
const WORDS: [&str; 6] = ["auth", "authentication", "jwt", "otp", "pin", "sig"];

/// Returns whether a header field is a credential by its name: `Authorization`, `Proxy-Authorization`, `Cookie`,
/// `DPoP`, HTTP message signatures, API and access keys, and names with `token`, `secret`, `password`, `credential`,
/// `session` and the like in them. A journal never stores such a field; [`ClientBuilder::with_credential_name`] adds
/// further names.
///
/// ```
/// use onceward_client::{http::HeaderName, is_credential};
///
/// assert!(is_credential(&HeaderName::from_static("x-api-key")));
/// assert!(!is_credential(&HeaderName::from_static("x-tenant")));
/// ```
///
/// [`ClientBuilder::with_credential_name`]: super::ClientBuilder::with_credential_name
pub fn is_credential(name: &HeaderName) -> bool {
    // `HeaderName` is lower case.
    let name = name.as_str();
    let joined: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    NAMES.contains(&name)
        || PARTS.iter().any(|part| joined.contains(part))
        || name.split(['-', '_', '.']).any(|word| WORDS.contains(&word))
}

/// The credentials of one client.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    /// Names that its application has added.
    added: Vec<HeaderName>,
    /// The names of the credentials that the client itself sends, sorted.
    sent: Vec<HeaderName>,
}

impl Credentials {
    /// The credentials among the fields that a client sends with every try.
    pub(crate) fn new(added: Vec<HeaderName>, headers: &HeaderMap) -> Self {
        let mut credentials = Self { added, sent: Vec::new() };
        let mut sent: Vec<HeaderName> = headers
            .iter()
            .filter(|(name, value)| credentials.covers(name) || value.is_sensitive())
            .map(|(name, _)| name.clone())
            .collect();
        sent.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        sent.dedup();
        credentials.sent = sent;
        credentials
    }

    /// Whether a field of this name must not be stored.
    pub(crate) fn covers(&self, name: &HeaderName) -> bool {
        self.added.contains(name) || is_credential(name)
    }

    /// The names of the credentials that the client sends.
    pub(crate) fn sent(&self) -> &[HeaderName] {
        &self.sent
    }
}

#[cfg(test)]
#[path = "credentials_test.rs"]
mod tests;
