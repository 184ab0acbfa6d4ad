//! A request being put together. What is wrong with it is said when it is sent.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::answer::Answer;
use super::client::Client;
use super::error::{Error, Result};
use super::prepared::{Key, Prepared};
use super::{Guard, TRY_NUMBER};
use onceward_http::BoxError;
use onceward_http::headers::IDEMPOTENCY_KEY;

/// One request of a [`Client`], to be sent with [`Request::send`].
#[must_use = "a request does nothing until it is sent"]
#[derive(Debug)]
pub struct Request {
    client: Client,
    parts: Result<Parts>,
}

#[derive(Debug)]
struct Parts {
    /// Without its key. In a place of its own, because whatever waits for the answer carries the rest along.
    prepared: Box<Prepared>,
    keyed: Keyed,
    intent: Option<String>,
    call_at_most: Duration,
}

/// Whose key is sent.
#[derive(Debug)]
enum Keyed {
    /// A random one, unless the method changes nothing.
    ByClient,
    ByCaller(String),
    NotAtAll,
}

/// Fields that the client itself writes.
const OURS: [HeaderName; 2] = [IDEMPOTENCY_KEY, TRY_NUMBER];
/// Fields that do not belong on a disk.
const SECRETS: [HeaderName; 3] = [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE];

impl Request {
    pub(crate) fn new(client: Client, method: Method, url: &str) -> Self {
        let call_at_most = client.terms().call_at_most;
        let parts = client.inner.urls.read(url).map(|url| {
            let prepared = Prepared { method, url, headers: HeaderMap::new(), body: Bytes::new(), key: None };
            Parts { prepared: Box::new(prepared), keyed: Keyed::ByClient, intent: None, call_at_most }
        });
        Self { client, parts }
    }

    /// Adds a field. With a journal it is written down with the request, so credentials are refused
    /// here: give them to [`Builder::header`](super::Builder::header).
    pub fn header<N, V>(self, name: N, value: V) -> Self
    where
        N: TryInto<HeaderName, Error: std::fmt::Display>,
        V: TryInto<HeaderValue, Error: std::fmt::Display>,
    {
        self.change(|parts| {
            let name = name.try_into().map_err(|error| Error::invalid(format!("a field's name: {error}")))?;
            let value =
                value.try_into().map_err(|error| Error::invalid(format!("the value of {name}: {error}")))?;
            if OURS.contains(&name) {
                return Err(Error::invalid(format!("{name} is written by the client; see Request::key")));
            }
            parts.prepared.headers.append(name, value);
            Ok(())
        })
    }

    /// Sets the body.
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        self.change(|parts| {
            parts.prepared.body = body.into();
            Ok(())
        })
    }

    /// Sets the body to `value` written as JSON, and says so in `Content-Type` unless that is set.
    pub fn json<T: serde::Serialize + ?Sized>(self, value: &T) -> Self {
        self.change(|parts| {
            let json = serde_json::to_vec(value)
                .map_err(|error| Error::invalid("the body cannot be written as JSON").caused_by(error))?;
            parts.prepared.body = json.into();
            let headers = &mut parts.prepared.headers;
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
            Ok(())
        })
    }

    /// Reads a body that comes in pieces, because only what is in memory can be sent again. One over
    /// the client's bound is refused, and nothing of it is sent.
    pub async fn body_from<B>(self, body: B) -> Self
    where
        B: Body,
        B::Error: Into<BoxError>,
    {
        let max = self.client.request_bytes_max();
        let read = Limited::new(body, max).collect().await.map(http_body_util::Collected::to_bytes);
        self.change(|parts| {
            parts.prepared.body = read.map_err(|error| match error.downcast::<LengthLimitError>() {
                Ok(_) => over(max),
                Err(error) => Error::invalid("the body cannot be read").caused_by(error),
            })?;
            Ok(())
        })
    }

    /// Names the intent in the journal. The same name again gives the recorded answer and sends
    /// nothing, for as long as the journal keeps it; with another request it is refused.
    pub fn intent(self, name: impl Into<String>) -> Self {
        self.change(|parts| {
            parts.intent = Some(name.into());
            Ok(())
        })
    }

    /// Sends this key instead of a random one: where the application has a token of its own for the
    /// intent.
    pub fn key(self, key: impl Into<String>) -> Self {
        self.change(|parts| {
            parts.keyed = Keyed::ByCaller(key.into());
            Ok(())
        })
    }

    /// Sends no key: for a server that takes offence at one. Unless its method changes nothing, the
    /// request is then only sent again if it provably never left.
    pub fn without_key(self) -> Self {
        self.change(|parts| {
            parts.keyed = Keyed::NotAtAll;
            Ok(())
        })
    }

    /// Sets how long this call may take in all, pauses included.
    pub fn at_most(self, call_at_most: Duration) -> Self {
        self.change(|parts| {
            parts.call_at_most = call_at_most;
            Ok(())
        })
    }

    /// Sends it, as often as it takes and may, and gives the whole answer.
    ///
    /// With a journal, key and request are durable before the first byte leaves; the answer is being
    /// recorded when this returns ([`Client::recorded`] waits for it). **Dropping** the future stops the
    /// call where it is; what the journal holds by then is taken up by [`Client::resume`] or by the next
    /// call with the same intent.
    pub async fn send(self) -> Result<Answer> {
        let Self { client, parts } = self;
        let Parts { mut prepared, keyed, intent, call_at_most } = parts?;
        let max = client.request_bytes_max();
        if prepared.body.len() > max {
            return Err(over(max));
        }
        prepared.key = match &keyed {
            Keyed::ByCaller(key) => Some(Key::parse(key)?),
            Keyed::NotAtAll => None,
            Keyed::ByClient if prepared.method.is_safe() && intent.is_none() => None,
            Keyed::ByClient => Some(client.inner.shared.new_key()),
        };
        if !client.has_journal() && intent.is_some() {
            return Err(Error::invalid(
                "an intent is remembered in a journal, and this client has none; build it with one, or name the key",
            ));
        }
        match (prepared.guard(), intent) {
            (Guard::Keyed, intent) if client.has_journal() => {
                refuse_secrets(&prepared.headers)?;
                client.send_journaled(prepared, intent, call_at_most).await
            }
            (_, Some(_)) => Err(Error::invalid("an intent needs a key; without one it cannot be sent twice")),
            (_, None) => client.send_plain(&prepared, call_at_most).await,
        }
    }

    fn change(mut self, change: impl FnOnce(&mut Parts) -> Result<()>) -> Self {
        if let Ok(parts) = &mut self.parts
            && let Err(error) = change(parts)
        {
            self.parts = Err(error);
        }
        self
    }
}

fn refuse_secrets(headers: &HeaderMap) -> Result<()> {
    let secret = headers
        .iter()
        .find(|(name, value)| SECRETS.contains(name) || value.is_sensitive())
        .map(|found| found.0);
    match secret {
        None => Ok(()),
        Some(name) => Err(Error::invalid(format!(
            "{name} would be written to the journal; give it to Client::builder().header(), which every try carries and no journal keeps"
        ))),
    }
}

fn over(max: usize) -> Error {
    Error::invalid(format!(
        "the body is over {max} bytes, more than is kept for another try; nothing was sent"
    ))
}

#[cfg(test)]
#[path = "request_test.rs"]
mod tests;
