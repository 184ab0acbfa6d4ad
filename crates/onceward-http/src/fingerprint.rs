//! The fingerprint of a request, a keyed and versioned digest of its content: the same key with another fingerprint is
//! refused, so two tries of one request must agree here and two different requests must not.
//!
//! ```text
//!  method, X-HTTP-Method-Override ─────┐
//!  host ───── lower case, no usual port┤
//!  path ───── by its bytes ────────────┤
//!  query ──── query.rs ────────────────┤
//!  header fields ── anonymous.rs ──────┼─▶ v1.rs: canonical bytes ─▶ BLAKE3 keyed ─▶ Fingerprint
//!  media type, content coding ─────────┤                              (one per secret)
//!  body ┬ JSON ──────── json.rs ───────┤
//!       ├ form ──────── form.rs ───────┤
//!       ├ multipart ─── multipart.rs ──┤
//!       └ anything else: by its bytes ─┘
//! ```
//!
//! Ambiguous cases count as *different*: a needless refusal costs a client an error, a needless match answers a new
//! request with an old result. A body that a canonicaliser cannot read unambiguously therefore counts by its bytes,
//! and a retry that repeats its bytes still matches.
//!
//! A stored fingerprint is compared by the rules of its own version: [`fingerprints`] computes the
//! request's fingerprint under every version and secret that a receipt may have been written with. A
//! version is frozen once it is released: a change of meaning is a new file beside `v1.rs`, a new row
//! in `SCHEMES`, and new canonicalisers beside the old ones where theirs changed.
//!
//! Nothing here knows keys, scopes, receipts or where secrets come from.

mod anonymous;
mod form;
mod json;
mod media;
mod multipart;
mod pointer;
mod query;
mod rules;
mod secrets;
mod v1;
mod write;

use http::request::Parts;
use http::{HeaderMap, Method, Uri};
use onceward::Fingerprint;

use crate::host::{self, ForwardedHost};
use crate::request_fields::RequestFields;

pub(crate) use anonymous::names_nobody;
pub(crate) use pointer::index as array_index;

pub use anonymous::FIELDS_THAT_NAME_NO_CALLER;
pub use pointer::{POINTER_STEPS_MAX, Pointer};
pub use rules::{Pick, Rules};
pub use secrets::{SECRET_BYTES, Secrets};

/// The version under which new fingerprints are made.
pub const VERSION: u8 = SCHEMES[0].version;

/// Every version that a stored fingerprint may have, newest first.
const SCHEMES: [Scheme; 1] = [Scheme { version: v1::VERSION, canonical: v1::canonical }];

/// Whether it is known who asks.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// It is: the scope keeps callers apart.
    Named,
    /// It is not. A credential that is not known to be one may be in any field, so every field counts that is not among
    /// [`FIELDS_THAT_NAME_NO_CALLER`].
    Anonymous,
}

/// The parts of a request in front of its body.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Head<'a> {
    /// The method, as it came.
    pub method: &'a Method,
    /// The path, as it came: still percent-encoded, without the query.
    pub path: &'a str,
    /// The query, as it came, without the question mark.
    pub query: Option<&'a str>,
    /// The host and port, as they came.
    pub host: Option<&'a [u8]>,
    /// The header fields. `Content-Type` and `Content-Encoding` say how the body is to be read.
    pub headers: &'a HeaderMap,
    /// Whether it is known who asks.
    pub caller: Caller,
    /// Which fields there are, if that was looked up before.
    fields: Option<RequestFields>,
}

impl<'a> Head<'a> {
    /// The head of a request by a caller that is known, without a host.
    pub fn new(method: &'a Method, path: &'a str, query: Option<&'a str>, headers: &'a HeaderMap) -> Self {
        Self { method, path, query, host: None, headers, caller: Caller::Named, fields: None }
    }

    /// Sets the host of the target or, if that has none, of the `Host` field.
    pub fn with_host_of(mut self, uri: &'a Uri) -> Self {
        self.host = host::of(uri, self.headers, self.fields(), None);
        self
    }

    /// The head of a request that has these fields.
    pub(crate) fn of(parts: &'a Parts, fields: RequestFields) -> Self {
        let Parts { method, uri, headers, .. } = parts;
        let (path, query) = (uri.path(), uri.query());
        let fields = Some(fields);
        Self { method, path, query, host: None, headers, caller: Caller::Named, fields }.with_host_of(uri)
    }

    fn fields(&self) -> RequestFields {
        self.fields.unwrap_or_else(|| RequestFields::of(self.headers))
    }

    /// Sets the host that a trusted proxy names, if it names one.
    pub fn with_forwarded_host(mut self, forwarded: Option<&'a ForwardedHost>) -> Self {
        if let Some(ForwardedHost(host)) = forwarded {
            self.host = Some(host.as_bytes());
        }
        self
    }

    /// Sets whether it is known who asks.
    pub fn with_caller(mut self, caller: Caller) -> Self {
        self.caller = caller;
        self
    }
}

/// The fingerprint of a request under each version and secret that is still honoured.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fingerprints {
    /// For a new receipt, and for the stored ones made like it.
    pub current: Fingerprint,
    /// For receipts from before an upgrade or a rotation: hand them to
    /// [`Ask::with_older_fingerprints`](onceward::Ask::with_older_fingerprints). Empty, and then free, where there is nothing older.
    pub older: Vec<Fingerprint>,
}

/// The fingerprint of a request under the newest version.
pub fn fingerprint(rules: &Rules, secret: &[u8; SECRET_BYTES], head: &Head<'_>, body: &[u8]) -> Fingerprint {
    SCHEMES[0].fingerprint(rules, secret, head, body)
}

/// The fingerprint of a request under a stored one's version, or none where that version is unknown
/// here: it was then written by a newer release, and cannot be compared here.
pub fn fingerprint_of_version(
    version: u8,
    rules: &Rules,
    secret: &[u8; SECRET_BYTES],
    head: &Head<'_>,
    body: &[u8],
) -> Option<Fingerprint> {
    let scheme = SCHEMES.iter().find(|scheme| scheme.version == version)?;
    Some(scheme.fingerprint(rules, secret, head, body))
}

/// The fingerprints of a request under every version and every secret. The body is read once per
/// version, for any number of secrets.
pub fn fingerprints(rules: &Rules, secrets: &Secrets, head: &Head<'_>, body: &[u8]) -> Fingerprints {
    let newest = &SCHEMES[0];
    let canonical = (newest.canonical)(rules, head, body);
    let current = canonical.digest(newest.version, secrets.current());
    let mut older: Vec<_> =
        secrets.older().iter().map(|secret| canonical.digest(newest.version, secret)).collect();
    for scheme in &SCHEMES[1..] {
        let canonical = (scheme.canonical)(rules, head, body);
        older.extend(secrets.all().map(|secret| canonical.digest(scheme.version, secret)));
    }
    Fingerprints { current, older }
}

impl<'a> From<&'a Parts> for Head<'a> {
    fn from(parts: &'a Parts) -> Self {
        let uri = &parts.uri;
        Self::new(&parts.method, uri.path(), uri.query(), &parts.headers).with_host_of(uri)
    }
}

/// One version's reading of a request.
struct Scheme {
    version: u8,
    canonical: for<'b> fn(&Rules, &Head<'_>, &'b [u8]) -> Canonical<'b>,
}

impl Scheme {
    fn fingerprint(
        &self,
        rules: &Rules,
        secret: &[u8; SECRET_BYTES],
        head: &Head<'_>,
        body: &[u8],
    ) -> Fingerprint {
        (self.canonical)(rules, head, body).digest(self.version, secret)
    }
}

/// The canonical form of a request: what was written, followed by a body that counts by its bytes,
/// which is not copied.
#[derive(Debug, PartialEq, Eq)]
struct Canonical<'b> {
    written: Vec<u8>,
    bytes: &'b [u8],
}

impl Canonical<'_> {
    fn digest(&self, version: u8, secret: &[u8; SECRET_BYTES]) -> Fingerprint {
        if self.bytes.is_empty() {
            return Fingerprint::new(version, *blake3::keyed_hash(secret, &self.written).as_bytes());
        }
        let mut hasher = blake3::Hasher::new_keyed(secret);
        hasher.update(&self.written).update(self.bytes);
        Fingerprint::new(version, *hasher.finalize().as_bytes())
    }
}

/// The error of a canonicaliser for a body that it cannot read unambiguously: the body counts by its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ByBytes;

#[cfg(test)]
mod model_test;
#[cfg(test)]
#[path = "fingerprint/fingerprint_test.rs"]
mod test;
