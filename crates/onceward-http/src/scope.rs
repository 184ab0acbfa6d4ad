//! The scope of a request: which caller it belongs to. It keeps one tenant from getting another tenant's answer.
//!
//! ```text
//! auto   Authorization (Basic, Bearer, Token, ApiKey, DPoP), X-Api-Key, Api-Key, a caller that was verified in front
//!          ─▶ a keyed hash of all that are present
//!        Authorization of another scheme; only a Cookie, Proxy-Authorization or Signature-Input; Basic beside a Cookie
//!          ─▶ refused: the caller has a credential that cannot be recognised from one try to the next
//!        nothing of the kind ─▶ `anonymous`: every field that may name a caller then counts in the fingerprint
//! ```

use std::fmt;

use http::header::{AUTHORIZATION, CONNECTION, COOKIE, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use crate::fingerprint::{Caller, SECRET_BYTES};
use crate::host::{self, ForwardedHost};
use crate::request_fields::RequestFields;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const API_KEY: HeaderName = HeaderName::from_static("api-key");
const SIGNATURE_INPUT: HeaderName = HeaderName::from_static("signature-input");

/// The schemes of `Authorization` whose value stays the same between two tries. All others sign each request.
pub(crate) const SCHEMES: [&str; 5] = ["Basic", "Bearer", "Token", "ApiKey", "DPoP"];

/// Where the scope of a request comes from. A route may list several, which count together.
///
/// Choose something that stays the same between two tries of one intent: with a token that is refreshed in
/// between, the retry would be another intent, and its effect would happen twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScopeFrom {
    /// A keyed hash of the credentials that are present: `Authorization` (`Basic`, `Bearer`, `Token`, `ApiKey`,
    /// `DPoP`), `X-Api-Key`, `Api-Key`, and a [`CallerScope`]. A caller with another credential is refused with `scope-missing`;
    /// one without any has the scope `anonymous`, in which every field that may name a caller counts in the fingerprint.
    #[default]
    Auto,
    /// A keyed hash of this field. The field must come from a proxy that clients cannot get around.
    Header(HeaderName),
    /// A keyed hash of the cookie with this name.
    Cookie(String),
    /// A keyed hash of the host that the request is for.
    Host,
    /// A keyed hash of the [`CallerScope`] among the request's extensions: a component in front of
    /// the layer has determined the caller.
    Extension,
    /// All callers share one scope. For services with one caller.
    Shared,
}

/// The caller, as determined in front of the layer: a claim of a verified token, the identity in a client's
/// certificate. An empty one says that there is a caller whom nothing names. See [`ScopeFrom::Extension`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerScope(pub String);

/// The callers that former settings would have determined in front of the layer, each under the name of its settings:
/// see [`Identity::with_callers_from`](crate::Identity::with_callers_from). An extension of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormerCallers(Vec<(String, CallerScope)>);

impl FormerCallers {
    /// Adds the caller that the settings with this name have determined.
    pub fn with_caller(mut self, name: impl Into<String>, caller: CallerScope) -> Self {
        self.0.push((name.into(), caller));
        self
    }

    pub(crate) fn find(&self, name: &str) -> Option<&CallerScope> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, caller)| caller)
    }
}

/// The treatment of a request that names no caller.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnAnonymous {
    /// The scope `anonymous`, which all of them share; every field that may name a caller counts in the fingerprint.
    Share,
    /// A refusal, `scope-missing`.
    Refuse,
}

/// Why it cannot be told whose request it is. One sentence for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unnamed {
    /// The scheme signs each request.
    Scheme(String),
    /// Only this field says who asks, and it changes from request to request.
    OnlyField(HeaderName),
    BasicBesideCookie,
    /// The caller was verified, and nothing in the proof names it.
    NamelessCaller,
    /// This source is absent.
    Absent(ScopeFrom),
    /// `Connection` lists this field, so the service would not see it.
    ListedByConnection(String),
}

impl fmt::Display for ScopeFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Host => f.write_str("host"),
            Self::Extension => f.write_str("caller"),
            Self::Shared => f.write_str("shared"),
        }
    }
}

impl fmt::Display for Unnamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SET: &str = "set `scope` for this route to something that stays the same between two tries, such as \
                           header:NAME, cookie:NAME or jwt:sub";
        match self {
            Self::Scheme(scheme) => write!(
                f,
                "Authorization{scheme} is not one of {}, so it may differ from try to try; {SET}",
                SCHEMES.join(", ")
            ),
            Self::OnlyField(name) => {
                write!(f, "only {name} says who asks, and it may differ from try to try; {SET}")
            }
            Self::BasicBesideCookie => {
                write!(f, "Basic credentials together with a cookie do not identify the caller; {SET}")
            }
            Self::NamelessCaller => write!(f, "nothing in the verified credentials names the caller; {SET}"),
            Self::Absent(ScopeFrom::Auto) => f.write_str(
                "there are no credentials, and this route wants to know who asks (its setting is `anonymous`)",
            ),
            Self::Absent(ScopeFrom::Extension) => f.write_str("no verified credentials name a caller"),
            Self::Absent(source) => write!(
                f,
                "the scope of this route comes from {source}, which is missing (see its settings `scope` and `anonymous`)"
            ),
            Self::ListedByConnection(name) => {
                write!(f, "Connection lists {name}, which tells whose request it is or what it asks for")
            }
        }
    }
}

/// The head of a request, as far as it says who asks.
#[derive(Clone, Copy)]
pub(crate) struct CallerHead<'r> {
    pub(crate) uri: &'r Uri,
    pub(crate) headers: &'r HeaderMap,
    pub(crate) fields: RequestFields,
    /// The caller, as determined in front of the layer.
    pub(crate) caller: Option<&'r CallerScope>,
    pub(crate) forwarded_host: Option<&'r ForwardedHost>,
}

/// The scope of a request from these sources, and whether it is known who asks. Credentials are hashed, never stored.
pub(crate) fn read(
    sources: &[ScopeFrom],
    on_anonymous: Option<OnAnonymous>,
    head: CallerHead<'_>,
    secret: &[u8; SECRET_BYTES],
) -> Result<(Scope, Caller), Unnamed> {
    if let [ScopeFrom::Shared] = sources {
        return Ok((Scope::SHARED, Caller::Named));
    }
    let mut hash = ScopeHash::new(secret);
    let mut caller = Caller::Named;
    for source in sources {
        match (source.add(head, &mut hash), on_anonymous) {
            (Ok(true), _) => {}
            // A request of another caller differs in what then counts in the fingerprint.
            (Ok(false) | Err(_), Some(OnAnonymous::Share)) => caller = Caller::Anonymous,
            (Ok(false), None) if *source == ScopeFrom::Auto => caller = Caller::Anonymous,
            (Ok(false), _) => return Err(Unnamed::Absent(source.clone())),
            (Err(unnamed), _) => return Err(unnamed),
        }
    }
    Ok((hash.finish().unwrap_or(Scope::ANONYMOUS), caller))
}

impl ScopeFrom {
    /// Adds what this source says; `false` if it is absent.
    fn add(&self, head: CallerHead<'_>, hash: &mut ScopeHash) -> Result<bool, Unnamed> {
        match self {
            Self::Auto => add_credentials(head, hash),
            Self::Header(name) => Ok(add_field(name, head.headers, hash)),
            Self::Cookie(name) => Ok(add_cookie(name, head.headers, hash)),
            Self::Host => {
                Ok(host::of(head.uri, head.headers, head.fields, head.forwarded_host).is_some_and(|host| {
                    hash.add("host:", &[&host::plain(host).to_ascii_lowercase()]);
                    true
                }))
            }
            Self::Extension => match head.caller {
                Some(CallerScope(caller)) if !caller.is_empty() => {
                    hash.add("caller:", &[caller.as_bytes()]);
                    Ok(true)
                }
                _ => Ok(false),
            },
            Self::Shared => Ok(true),
        }
    }

    /// Whether this field says who asks.
    pub(crate) fn reads(&self, name: &HeaderName) -> bool {
        match self {
            Self::Auto => [AUTHORIZATION, X_API_KEY, API_KEY, COOKIE].contains(name),
            Self::Header(source) => source == name,
            Self::Cookie(_) => *name == COOKIE,
            Self::Host => *name == http::header::HOST,
            Self::Extension => *name == AUTHORIZATION,
            Self::Shared => false,
        }
    }
}

fn add_credentials(head: CallerHead<'_>, hash: &mut ScopeHash) -> Result<bool, Unnamed> {
    let (has_authorization, has_api_keys, has_cookie) = (
        head.fields.has(RequestFields::AUTHORIZATION),
        head.fields.has(RequestFields::API_KEY),
        head.fields.has(RequestFields::COOKIE),
    );
    if has_authorization {
        for line in head.headers.get_all(AUTHORIZATION) {
            let scheme = scheme(line)?;
            if has_cookie && scheme == "Basic" {
                return Err(Unnamed::BasicBesideCookie);
            }
        }
        add_field(&AUTHORIZATION, head.headers, hash);
    }
    if has_api_keys {
        add_field(&X_API_KEY, head.headers, hash);
        add_field(&API_KEY, head.headers, hash);
    }
    let caller = head.caller.map(|CallerScope(caller)| caller.as_str());
    match caller {
        Some("") => return Err(Unnamed::NamelessCaller),
        Some(caller) => hash.add("caller:", &[caller.as_bytes()]),
        None => {}
    }
    if has_authorization || has_api_keys || caller.is_some() {
        return Ok(true);
    }
    // Credentials that name no caller.
    if head.fields.has(RequestFields::SIGNATURE_INPUT) {
        return Err(Unnamed::OnlyField(SIGNATURE_INPUT));
    }
    if head.fields.has(RequestFields::PROXY_AUTHORIZATION) {
        return Err(Unnamed::OnlyField(PROXY_AUTHORIZATION));
    }
    if has_cookie { Err(Unnamed::OnlyField(COOKIE)) } else { Ok(false) }
}

/// The scheme of an `Authorization` line, if it stays the same between two tries.
fn scheme(line: &HeaderValue) -> Result<&'static str, Unnamed> {
    let bytes = line.as_bytes().trim_ascii();
    let Some(end) = bytes.iter().position(|byte| *byte == b' ') else {
        // Without a scheme the text is the credential, and does not belong in an answer.
        return Err(Unnamed::Scheme(" without a scheme".into()));
    };
    let given = &bytes[..end];
    let known = SCHEMES.into_iter().find(|scheme| scheme.as_bytes().eq_ignore_ascii_case(given));
    known.ok_or_else(|| {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        let readable = given.len() <= 32 && given.iter().all(plain);
        let name = if readable { String::from_utf8_lossy(given).into_owned() } else { String::new() };
        Unnamed::Scheme(format!(" of the scheme {name}"))
    })
}

fn add_field(name: &HeaderName, headers: &HeaderMap, hash: &mut ScopeHash) -> bool {
    let lines = headers.get_all(name);
    let count = lines.iter().count();
    if count > 0 {
        hash.begin(name.as_str(), count);
        for line in lines {
            hash.value(line.as_bytes());
        }
    }
    count > 0
}

/// All cookies with this name, in their order: which one a service uses is its own affair.
fn add_cookie(name: &str, headers: &HeaderMap, hash: &mut ScopeHash) -> bool {
    let mut values = Vec::new();
    for line in headers.get_all(COOKIE) {
        for pair in line.as_bytes().split(|byte| *byte == b';') {
            let pair = pair.trim_ascii();
            if let Some(value) = pair.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) {
                values.push(value);
            }
        }
    }
    if !values.is_empty() {
        hash.add("cookie:", &[name.as_bytes()]);
        hash.add("values:", &values);
    }
    !values.is_empty()
}

/// The first field that `Connection` lists and that counts for scope or fingerprint. The next hop removes it, so the
/// service would not see what was counted here.
pub(crate) fn listed_by_connection(
    headers: &HeaderMap,
    counts: impl Fn(&HeaderName) -> bool,
) -> Option<Unnamed> {
    let lines = headers.get_all(CONNECTION).iter().filter_map(|line| line.to_str().ok());
    let mut names = lines.flat_map(|line| line.split(',')).filter_map(|name| {
        let name = name.trim();
        // The usual ones, without a lookup.
        let usual = ["close", "keep-alive", "upgrade", "te", "http2-settings", "transfer-encoding"];
        if usual.iter().any(|usual| usual.eq_ignore_ascii_case(name)) {
            return None;
        }
        HeaderName::try_from(name).ok().filter(|name| headers.contains_key(name))
    });
    names.find(|name| counts(name)).map(|name| Unnamed::ListedByConnection(name.to_string()))
}

/// Hashes what the sources say, each value behind its source and its length.
struct ScopeHash {
    secret: [u8; SECRET_BYTES],
    hasher: Option<blake3::Hasher>,
}

impl ScopeHash {
    fn new(secret: &[u8; SECRET_BYTES]) -> Self {
        Self { secret: *secret, hasher: None }
    }

    fn add(&mut self, source: &str, values: &[&[u8]]) {
        self.begin(source, values.len());
        for value in values {
            self.value(value);
        }
    }

    /// `source` is the name of a field, or has a colon, which no such name has.
    fn begin(&mut self, source: &str, values: usize) {
        self.value(source.as_bytes());
        self.hasher().update(&(values as u64).to_le_bytes());
    }

    fn value(&mut self, value: &[u8]) {
        self.hasher().update(&(value.len() as u64).to_le_bytes()).update(value);
    }

    fn hasher(&mut self) -> &mut blake3::Hasher {
        self.hasher.get_or_insert_with(|| blake3::Hasher::new_keyed(&self.secret))
    }

    fn finish(self) -> Option<Scope> {
        let digest = self.hasher?.finalize();
        let mut text = [0; Scope::BYTES];
        text.copy_from_slice(&digest.to_hex().as_bytes()[..Scope::BYTES]);
        Some(Scope::Hash(text))
    }
}

/// The text of a scope, without an allocation of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Named(&'static str),
    /// Hexadecimal digits.
    Hash([u8; Scope::BYTES]),
}

impl Scope {
    /// Hexadecimal digits of a hash: 128 bits.
    const BYTES: usize = 32;
    /// Of all callers without credentials.
    pub(crate) const ANONYMOUS: Self = Self::Named("anonymous");
    /// Of all callers.
    pub(crate) const SHARED: Self = Self::Named("shared");

    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Named(name) => name,
            Self::Hash(digits) => std::str::from_utf8(digits).expect("hexadecimal digits"),
        }
    }
}

#[cfg(test)]
#[path = "scope_test.rs"]
mod tests;
