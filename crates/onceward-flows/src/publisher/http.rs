//! HTTP endpoints: a message is a `POST` whose `Idempotency-Key` is the message id, sent with the retries, the budget and
//! the circuit breaker of `onceward-client`. Any answer of 200 to 299 confirms it.
//!
//! An endpoint that does not recognise the key sees the copies, as with any broker. There is no source: the endpoint is
//! the consumer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::stream::{self, StreamExt};
use http::{HeaderName, HeaderValue};
use onceward::{Error, ErrorKind, Result};
use onceward_client::Client;
use onceward_http::webhook::{Signer, WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP};

use super::{Answered, Outgoing, PublishEachFuture, PublishFuture, Publisher};

const TOPIC: HeaderName = HeaderName::from_static("onceward-topic");
const ORDERING_KEY: HeaderName = HeaderName::from_static("onceward-ordering-key");
const POSITION: HeaderName = HeaderName::from_static("onceward-position");
/// Requests of one batch: all at a time.
const CONCURRENCY: usize = 32;
/// How long one message may take: less than what a relay waits for.
const CALL_AT_MOST: Duration = Duration::from_secs(20);
/// Most of an answer that is quoted in an error.
const QUOTED_MAX: usize = 200;

/// Publishes to an HTTP endpoint.
///
/// A request has the payload as its body, the headers of the message as its fields, and `Idempotency-Key`,
/// `Onceward-Topic`, `Onceward-Ordering-Key` and `Onceward-Position`; `Content-Type` is `application/octet-stream`, unless
/// the message has that header.
#[derive(Clone, Debug)]
pub struct HttpPublisher {
    client: Client,
    url: String,
    signer: Option<Signer>,
    call_at_most: Duration,
}

impl HttpPublisher {
    /// Publishes to this address with this client. The client needs no journal: the outbox is one.
    pub fn new(client: Client, url: &str) -> Result<Self> {
        let uri: http::Uri = url.parse().map_err(|error| {
            Error::new(ErrorKind::Invalid, "the address of the endpoint cannot be read").caused_by(error)
        })?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
            return Err(Error::new(ErrorKind::Invalid, "an endpoint looks like https://host/path"));
        }
        Ok(Self { client, url: url.to_owned(), signer: None, call_at_most: CALL_AT_MOST })
    }

    /// Signs every request as Standard Webhooks do: `webhook-id` is the message id.
    pub fn with_signer(mut self, signer: Signer) -> Self {
        self.signer = Some(signer);
        self
    }

    /// Sets how long one message may take, retries included (20 s). After that it is an error, and the relay comes back
    /// to it after its own pause. Shorter than `publish_timeout` of the relay. Longer than the tolerance of a signature (5 minutes) makes no sense with one.
    pub fn with_call_at_most(mut self, call_at_most: Duration) -> Self {
        self.call_at_most = call_at_most;
        self
    }

    async fn publish_one(&self, outgoing: &Outgoing) -> Result<()> {
        let message = outgoing.message();
        let mut request = self
            .client
            .post(&self.url)
            .key(message.id())
            .at_most(self.call_at_most)
            .header(TOPIC, text(message.topic())?)
            .header(POSITION, HeaderValue::from(outgoing.position()));
        if let Some(key) = message.ordering_key() {
            request = request.header(ORDERING_KEY, text(key)?);
        }
        let mut has_type = false;
        for (name, value) in message.headers() {
            has_type |= name.eq_ignore_ascii_case("content-type");
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| {
                Error::new(ErrorKind::Invalid, format!("`{name}` is no field of HTTP")).caused_by(error)
            })?;
            request = request.header(name, text(value)?);
        }
        if !has_type {
            request = request
                .header(http::header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        }
        if let Some(signer) = &self.signer {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            request = request
                .header(WEBHOOK_ID, text(message.id())?)
                .header(WEBHOOK_TIMESTAMP, HeaderValue::from(now))
                .header(WEBHOOK_SIGNATURE, text(&signer.sign(message.id(), now, message.payload()))?);
        }
        let answer = request.body(message.payload().clone()).send().await.map_err(|error| {
            Error::new(ErrorKind::Unavailable, "the endpoint did not confirm a message")
                .caused_by(error)
                .maybe_applied()
        })?;
        if answer.status().is_success() {
            return Ok(());
        }
        let said: String = answer.text().chars().filter(|char| !char.is_control()).take(QUOTED_MAX).collect();
        let detail = format!("the endpoint refused a message with {}: {said}", answer.status());
        Err(Error::new(ErrorKind::Unavailable, detail).maybe_applied())
    }
}

impl Publisher for HttpPublisher {
    fn publish<'a>(&'a self, batch: &'a [Outgoing]) -> PublishFuture<'a> {
        Box::pin(async move {
            let calls = batch.iter().map(|outgoing| self.publish_one(outgoing));
            stream::iter(calls.collect::<Vec<_>>()).buffered(CONCURRENCY).collect().await
        })
    }

    fn publish_each<'a>(
        &'a self,
        batch: &'a [Outgoing],
        answered: &'a Answered<'a>,
    ) -> PublishEachFuture<'a> {
        Box::pin(async move {
            let call = |(place, outgoing)| async move { answered(place, self.publish_one(outgoing).await) };
            let calls: Vec<_> = batch.iter().enumerate().map(call).collect();
            stream::iter(calls).buffer_unordered(CONCURRENCY).collect::<()>().await;
        })
    }

    fn batch_max(&self) -> usize {
        CONCURRENCY
    }

    fn answers_within(&self) -> Option<Duration> {
        Some(self.call_at_most)
    }

    fn target(&self) -> String {
        let place = self.url.split(['?', '#']).next().unwrap_or_default();
        let (scheme, rest) = place.split_once("://").unwrap_or(("", place));
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        format!("{scheme}://{}/{path}", host.rsplit_once('@').map_or(host, |(_, host)| host))
    }
}

/// Text beyond ASCII goes as it is, in UTF-8.
fn text(value: &str) -> Result<HeaderValue> {
    HeaderValue::from_bytes(value.as_bytes()).map_err(|error| {
        Error::new(ErrorKind::Invalid, "a text is no value of a field of HTTP").caused_by(error)
    })
}
