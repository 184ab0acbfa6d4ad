//! The builder of one request. Errors in it are reported when it is sent.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::client::Client;
use super::credentials::Credentials;
use super::error::{Error, Result};
use super::prepared_request::{Key, PreparedRequest};
use super::server_reply::Reply;
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
    /// Without its key. Boxed, to keep the future of a call small.
    prepared: Box<PreparedRequest>,
    key_source: KeySource,
    intent: Option<String>,
    call_at_most: Duration,
}

/// Where the key comes from.
#[derive(Debug)]
enum KeySource {
    /// A random one, unless the method is safe.
    ByClient,
    ByCaller(String),
    NotAtAll,
}

/// Header fields that the client itself writes.
pub(crate) const CLIENT_HEADERS: [HeaderName; 2] = [IDEMPOTENCY_KEY, TRY_NUMBER];

impl Request {
    pub(crate) fn new(client: Client, method: Method, url: &str) -> Self {
        let call_at_most = client.config().call_at_most;
        let parts = client.inner.urls.read(url).map(|url| {
            let prepared =
                PreparedRequest { method, url, headers: HeaderMap::new(), body: Bytes::new(), key: None };
            Parts {
                prepared: Box::new(prepared),
                key_source: KeySource::ByClient,
                intent: None,
                call_at_most,
            }
        });
        Self { client, parts }
    }

    /// Adds a header field. With a journal it is stored with the request, so credentials are refused here:
    /// give them to [`ClientBuilder::with_header`](super::ClientBuilder::with_header).
    pub fn header<N, V>(self, name: N, value: V) -> Self
    where
        N: TryInto<HeaderName, Error: std::fmt::Display>,
        V: TryInto<HeaderValue, Error: std::fmt::Display>,
    {
        self.change(|parts| {
            let name = name.try_into().map_err(|error| Error::invalid(format!("a field's name: {error}")))?;
            let value =
                value.try_into().map_err(|error| Error::invalid(format!("the value of {name}: {error}")))?;
            if CLIENT_HEADERS.contains(&name) {
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

    /// Reads a streamed body into memory, so that it can be sent again. A body over the client's limit is refused,
    /// and nothing of it is sent.
    pub async fn body_from<B>(self, body: B) -> Self
    where
        B: Body,
        B::Error: Into<BoxError>,
    {
        let max = self.client.request_bytes_max();
        let read = Limited::new(body, max).collect().await.map(http_body_util::Collected::to_bytes);
        self.change(|parts| {
            parts.prepared.body = read.map_err(|error| match error.downcast::<LengthLimitError>() {
                Ok(_) => too_large(max),
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

    /// Sends this key instead of a random one, if the application has a key of its own for the intent.
    pub fn key(self, key: impl Into<String>) -> Self {
        self.change(|parts| {
            parts.key_source = KeySource::ByCaller(key.into());
            Ok(())
        })
    }

    /// Sends no key: for a server that rejects one. Unless the method is safe, the request is then only sent again if
    /// it was certainly not sent.
    pub fn without_key(self) -> Self {
        self.change(|parts| {
            parts.key_source = KeySource::NotAtAll;
            Ok(())
        })
    }

    /// Sets how long this call may take in all, pauses included. With no time at all nothing is sent, and
    /// [`send`](Self::send) returns an error that says so.
    pub fn at_most(self, call_at_most: Duration) -> Self {
        self.change(|parts| {
            parts.call_at_most = call_at_most;
            Ok(())
        })
    }

    /// Sends the request, with retries within the limits, and returns the complete answer.
    ///
    /// With a journal, key and request are durable before the first byte is sent; the answer is being recorded when
    /// this returns ([`Client::recorded`] waits for it). **Dropping** the future stops the call; what the journal
    /// holds by then is finished by [`Client::resume`] or by the next call with the same intent.
    pub async fn send(self) -> Result<Reply> {
        let Self { client, parts } = self;
        let Parts { mut prepared, key_source, intent, call_at_most } = parts?;
        let max = client.request_bytes_max();
        if prepared.body.len() > max {
            return Err(too_large(max));
        }
        prepared.key = match &key_source {
            KeySource::ByCaller(key) => Some(Key::parse(key)?),
            KeySource::NotAtAll => None,
            KeySource::ByClient if prepared.method.is_safe() && intent.is_none() => None,
            KeySource::ByClient => Some(client.inner.shared.new_key()),
        };
        if !client.has_journal() && intent.is_some() {
            return Err(Error::invalid(
                "an intent is stored in a journal, and this client has none; build it with one, or set the key",
            ));
        }
        match (prepared.guard(), intent) {
            (Guard::Keyed, intent) if client.has_journal() => {
                refuse_secrets(&prepared, &client.inner.credentials)?;
                client.send_journaled(prepared, intent, call_at_most).await
            }
            (_, Some(_)) => Err(Error::invalid("an intent needs a key; without one it cannot be sent twice")),
            (_, None) => client.send_plain(&prepared, call_at_most).await,
        }
    }

    /// The request with an error, which is reported when it is sent. The first one counts.
    pub(crate) fn fail(self, error: Error) -> Self {
        self.change(|_| Err(error))
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

/// Refuses a request whose credentials would be written to the journal.
fn refuse_secrets(prepared: &PreparedRequest, credentials: &Credentials) -> Result<()> {
    if !prepared.url.username().is_empty() || prepared.url.password().is_some() {
        return Err(Error::invalid(
            "the user name and password in the URL would be written to the journal; give Authorization to \
             ClientBuilder::with_header instead, which every try carries and no journal keeps",
        ));
    }
    let mut fields = prepared.headers.iter();
    match fields.find(|(name, value)| credentials.covers(name) || value.is_sensitive()) {
        None => Ok(()),
        Some((name, _)) => Err(Error::invalid(format!(
            "{name} would be written to the journal; give it to ClientBuilder::with_header, which every try carries \
             and no journal keeps"
        ))),
    }
}

fn too_large(max: usize) -> Error {
    Error::invalid(format!(
        "the body is over {max} bytes, more than is kept for another try; nothing was sent"
    ))
}

#[cfg(test)]
#[path = "request_test.rs"]
mod tests;
