//! Webhooks: verifies who sent an event before anything is looked up, and tells which event it is.
//!
//! ```text
//! scheme               signed                    key                    second receipt
//! standard-webhooks    id, time, body            webhook-id             none
//! stripe               time, body                /id of the body        none
//! github               body                      X-GitHub-Delivery      body + event + hook
//! shopify              body                      topic + event id       body + topic + shop
//! ```
//!
//! Signatures are HMAC-SHA256 over the raw body, compared in constant time. Where only the body is signed, a captured
//! delivery could be sent again under a new id: a second receipt, by a digest of what identifies the event, stops it.
//!
//! The schemes are pure functions, one file each: no clock, no store, no configuration. A route with a [`Receiver`] passes
//! verified events on while their senders wait, or stores them first; [`Deliveries`] then hand them to the service.

mod deliveries;
mod event_scan;
mod github;
mod hmac;
mod object_queues;
pub(crate) mod receive;
mod receiver;
mod redrive;
mod shopify;
mod standard;
mod stored_event;
mod stripe;

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName};
use onceward::{Error, ErrorKind, Result};

use crate::key_source::as_key;

pub use deliveries::{Arrivals, Deliver, Delivered, Deliveries, DeliveryCounts};
pub use receiver::{OrderBy, Receiver, StoreFirst};
pub use redrive::redrive_dead;
pub use standard::{WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP};
pub use stored_event::{HEAD_BYTES_MAX, StoredEvent};

/// How old, or how far ahead, a signed timestamp may be, unless it is set.
pub const TOLERANCE: Duration = Duration::from_secs(300);
/// The most secrets of one verifier.
pub const SECRETS_MAX: usize = 16;
/// The most signatures in one header field that are looked at; a field with more is refused.
pub const SIGNATURES_MAX: usize = 32;
/// A shorter secret can be guessed.
pub const SECRET_BYTES_MIN: usize = 16;
/// The longest field that is read.
const FIELD_BYTES_MAX: usize = 4096;

/// How a sender signs its webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheme {
    /// Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature`.
    StandardWebhooks,
    /// Stripe: `Stripe-Signature`.
    Stripe,
    /// GitHub: `X-Hub-Signature-256`.
    GitHub,
    /// Shopify: `X-Shopify-Hmac-Sha256`.
    Shopify,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::StandardWebhooks, Self::Stripe, Self::GitHub, Self::Shopify];

    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::StandardWebhooks => "standard-webhooks",
            Self::Stripe => "stripe",
            Self::GitHub => "github",
            Self::Shopify => "shopify",
        }
    }
}

impl FromStr for Scheme {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::new(
                ErrorKind::Invalid,
                format!("there is no scheme of signatures {text:?}; there are {known}"),
            )
        })
    }
}

/// Verifies the webhooks of one sender. Holds one secret, or several while they are rotated.
#[derive(Clone)]
pub struct Verifier {
    scheme: Scheme,
    keys: Vec<Vec<u8>>,
    tolerance: Duration,
}

impl Verifier {
    /// A verifier with these secrets, as the sender shows them. Fails if there is none, or one cannot be used.
    ///
    /// ```
    /// use onceward_http::webhook::{Scheme, Verifier};
    ///
    /// let verifier = Verifier::new(Scheme::Stripe, ["whsec_2f1c9a6e5d4b8f7a"])?;
    /// assert_eq!(verifier.scheme(), Scheme::Stripe);
    /// # Ok::<(), onceward::Error>(())
    /// ```
    pub fn new(scheme: Scheme, secrets: impl IntoIterator<Item: AsRef<str>>) -> Result<Self> {
        let refuse = |why: String| Error::new(ErrorKind::Invalid, why);
        let mut keys = Vec::new();
        for secret in secrets {
            let secret = secret.as_ref().trim();
            let key = match scheme {
                Scheme::StandardWebhooks => standard::key(secret).ok_or_else(|| {
                    refuse(
                        "a secret of Standard Webhooks is base64, with or without `whsec_` in front".into(),
                    )
                })?,
                _ => secret.as_bytes().to_vec(),
            };
            if key.len() < SECRET_BYTES_MIN {
                let bytes = key.len();
                return Err(refuse(format!(
                    "a secret of {bytes} bytes can be guessed; use at least {SECRET_BYTES_MIN} random ones"
                )));
            }
            keys.push(key);
        }
        match keys.len() {
            0 => Err(refuse("signatures cannot be verified without a secret; give at least one".into())),
            1..=SECRETS_MAX => Ok(Self { scheme, keys, tolerance: TOLERANCE }),
            many => Err(refuse(format!("{many} secrets are too many; at most {SECRETS_MAX}"))),
        }
    }

    /// Sets how old, or how far ahead, a signed timestamp may be. The default is 5 minutes. Of no effect where the
    /// sender signs no time: GitHub and Shopify.
    pub fn with_tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// How the sender signs.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Verifies an event by its header fields and its raw body.
    pub fn verify(&self, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Result<Event, BadSignature> {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let signed = Signed { headers, body, keys: &self.keys, now, tolerance: self.tolerance.as_secs() };
        match self.scheme {
            Scheme::StandardWebhooks => standard::verify(&signed),
            Scheme::Stripe => stripe::verify(&signed),
            Scheme::GitHub => github::verify(&signed),
            Scheme::Shopify => shopify::verify(&signed),
        }
    }
}

/// Without the secrets.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verifier({}, {} secrets, {:?})", self.scheme.name(), self.keys.len(), self.tolerance)
    }
}

/// Signs as Standard Webhooks does: for services that are sent events.
#[derive(Clone)]
pub struct Signer(Vec<u8>);

impl Signer {
    /// A signer with this secret: base64, with or without `whsec_` in front.
    pub fn new(secret: &str) -> Result<Self> {
        let Verifier { mut keys, .. } = Verifier::new(Scheme::StandardWebhooks, [secret])?;
        Ok(Self(keys.remove(0)))
    }

    /// The value of `webhook-signature` for an event with this id and body, signed at this time (in seconds since 1970).
    pub fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        standard::sign(&self.0, id, &timestamp.to_string(), body)
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer")
    }
}

/// A verified event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    key: String,
    content: Option<EventContent>,
}

/// What else identifies an event whose id is not signed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EventContent {
    kind: String,
    source: String,
}

impl Event {
    fn new(id: String) -> Self {
        Self { key: as_key(id), content: None }
    }

    fn with_content(mut self, kind: String, source: String) -> Self {
        self.content = Some(EventContent { kind, source });
        self
    }

    /// The sender's id of the event, as an idempotency key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The key of a second receipt, where the sender signs only the body: a digest, keyed with a secret of yours, over
    /// body, event type and source. A captured delivery that is sent again under another id has the same one. `None`
    /// where the signature covers the id.
    pub fn content_key(&self, secret: &[u8; 32], body: &[u8]) -> Option<String> {
        let content = self.content.as_ref()?;
        let mut hasher = blake3::Hasher::new_keyed(secret);
        for part in [content.kind.as_bytes(), content.source.as_bytes(), body] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        // No event id begins with it: see `as_key`.
        Some(format!("~{}", hasher.finalize().to_hex()))
    }
}

/// Why an event is refused. One sentence for the sender's log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadSignature {
    /// This field is missing.
    Missing(HeaderName),
    /// This field is there more than once.
    Several(HeaderName),
    /// This field cannot be read.
    Malformed(HeaderName),
    /// The field has too many signatures.
    TooMany(HeaderName),
    /// The signed time is this many seconds ago.
    TooOld(u64),
    /// The signed time is this many seconds ahead.
    TooEarly(u64),
    /// No signature is right: wrong secret, or the body was changed on its way.
    Mismatch,
    /// The signature is right, but the event has no id.
    NoId,
}

impl fmt::Display for BadSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "the field {name} is missing"),
            Self::Several(name) => write!(f, "there are several fields {name}; send exactly one"),
            Self::Malformed(name) => write!(f, "the field {name} cannot be read"),
            Self::TooMany(name) => {
                write!(f, "the field {name} has more than {SIGNATURES_MAX} signatures")
            }
            Self::TooOld(seconds) => write!(
                f,
                "it was signed {seconds} seconds ago, which is too long; send it again with a new signature, and check \
                 the clocks of both sides"
            ),
            Self::TooEarly(seconds) => {
                write!(f, "it was signed {seconds} seconds ahead of this clock; check the clocks of both sides")
            }
            Self::Mismatch => f.write_str(
                "no signature is right for this body; check the secret, and that nothing on the way changes the body",
            ),
            Self::NoId => f.write_str("the event has no id; it must be a string or an integer"),
        }
    }
}

/// What a scheme verifies, with what.
struct Signed<'a> {
    headers: &'a HeaderMap,
    body: &'a [u8],
    keys: &'a [Vec<u8>],
    /// Seconds since 1970.
    now: u64,
    tolerance: u64,
}

impl<'a> Signed<'a> {
    /// The one line of a field.
    fn field(&self, name: &HeaderName) -> Result<&'a str, BadSignature> {
        let mut lines = self.headers.get_all(name).iter();
        let line = lines.next().ok_or_else(|| BadSignature::Missing(name.clone()))?;
        if lines.next().is_some() {
            return Err(BadSignature::Several(name.clone()));
        }
        match line.to_str() {
            Ok(text) if !text.is_empty() && text.len() <= FIELD_BYTES_MAX => Ok(text),
            _ => Err(BadSignature::Malformed(name.clone())),
        }
    }

    /// Checks the time of a signature; `name` is the field that it is in.
    fn check_time(&self, text: &str, name: &HeaderName) -> Result<(), BadSignature> {
        // More digits than any clock shows.
        let digits = (1..=15).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        let signed: u64 =
            text.parse().ok().filter(|_| digits).ok_or_else(|| BadSignature::Malformed(name.clone()))?;
        match (self.now.saturating_sub(signed), signed.saturating_sub(self.now)) {
            (ago, _) if ago > self.tolerance => Err(BadSignature::TooOld(ago)),
            (_, ahead) if ahead > self.tolerance => Err(BadSignature::TooEarly(ahead)),
            _ => Ok(()),
        }
    }

    /// Whether one of the signatures is that of `parts` under one of the secrets.
    fn any_matches(&self, parts: &[&[u8]], signatures: &[Vec<u8>]) -> Result<(), BadSignature> {
        // Every pair is compared, so that the time does not say which one was right.
        let mut matches = false;
        for key in self.keys {
            matches |= hmac::any_is_right(key, parts, signatures);
        }
        if matches { Ok(()) } else { Err(BadSignature::Mismatch) }
    }
}

#[cfg(test)]
#[path = "webhook/webhook_test.rs"]
mod tests;
