//! Makes one try over reqwest: sends the request and reads the complete answer.

use std::pin::pin;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::TRY_NUMBER;
use super::key_status::KeyStatus;
use super::prepared_request::PreparedRequest;
use super::retry_after::{expires_in, retry_after};
use super::retry_decision::{Sent, TryResult};
use super::retry_loop::Try;
use onceward_http::headers::IDEMPOTENCY_KEY;

/// Number of header fields that this client, reqwest and hyper add to a request.
const ADDED_FIELDS: usize = 5;

/// The result of a call if this try is its last.
pub(crate) type Exchanged = Result<Box<Response<Bytes>>, NoAnswer>;

/// Why a try has no answer to return.
pub(crate) enum NoAnswer {
    /// No complete answer arrived.
    Lost(String),
    /// It arrived, and is over the limit.
    TooLarge(StatusCode),
    /// The URL is `https`, and the HTTP client has no TLS. Nothing was sent.
    NoTls,
}

/// Sends requests over a connection pool, one try at a time.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) http: reqwest::Client,
    /// Header fields of the client itself: in every try and in no journal.
    pub(crate) headers: HeaderMap,
    pub(crate) answer_bytes_max: usize,
}

impl Exchange {
    /// Makes try number `number`, which may take `at_most`.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn keeps its arguments twice, and every call carries them along"
    )]
    pub(crate) fn try_once(
        &self,
        prepared: &PreparedRequest,
        number: u32,
        at_most: Duration,
    ) -> impl Future<Output = Try<Exchanged>> {
        async move {
            let mut honoured_for = None;
            let made = {
                let exchanged = pin!(self.exchange(prepared, number, &mut honoured_for));
                tokio::time::timeout(at_most, exchanged).await
            };
            let lost = match made {
                Ok(Ok(response)) => {
                    let tried = tried(&response);
                    return Try { tried, no_answer: None, honoured_for, value: Ok(response) };
                }
                Ok(Err(Failed::TooLarge(status, key_status))) => {
                    let tried = TryResult::Answered { status, retry_after: None, key_status };
                    return Try {
                        tried,
                        no_answer: None,
                        honoured_for,
                        value: Err(NoAnswer::TooLarge(status)),
                    };
                }
                Ok(Err(Failed::Lost(error))) if has_no_tls(prepared.url.scheme(), &error) => {
                    let (tried, value) = (TryResult::Impossible, Err(NoAnswer::NoTls));
                    return Try { tried, no_answer: None, honoured_for, value };
                }
                Ok(Err(Failed::Lost(error))) => Lost {
                    was_sent: if error.is_connect() { Sent::No } else { Sent::Maybe },
                    why: innermost(&error),
                },
                Err(_) => Lost { was_sent: Sent::Maybe, why: format!("none within {at_most:?}") },
            };
            Try {
                tried: TryResult::Failed(lost.was_sent),
                no_answer: Some(lost.why.clone()),
                honoured_for,
                value: Err(NoAnswer::Lost(lost.why)),
            }
        }
    }

    async fn exchange(
        &self,
        prepared: &PreparedRequest,
        number: u32,
        honoured_for: &mut Option<Duration>,
    ) -> Result<Box<Response<Bytes>>, Failed> {
        let mut response = self.http.execute(self.request(prepared, number)).await?;
        // Set even if reading the body fails: the server has a receipt by now.
        *honoured_for = expires_in(response.headers(), SystemTime::now());
        let body = self.read(&mut response).await?;
        let mut whole = Box::new(Response::new(body));
        *whole.status_mut() = response.status();
        *whole.headers_mut() = std::mem::take(response.headers_mut());
        Ok(whole)
    }

    fn request(&self, prepared: &PreparedRequest, number: u32) -> reqwest::Request {
        // Sized for the fields that are added later, so that the map is never reallocated.
        let mut headers =
            HeaderMap::with_capacity(prepared.headers.len() + self.headers.len() + ADDED_FIELDS);
        for (name, value) in &prepared.headers {
            headers.append(name, value.clone());
        }
        for (name, value) in &self.headers {
            if !prepared.headers.contains_key(name) {
                headers.append(name, value.clone());
            }
        }
        if let Some(key) = &prepared.key {
            headers.insert(IDEMPOTENCY_KEY, key.field_value());
        }
        headers.insert(TRY_NUMBER, HeaderValue::from(number));
        let mut request = reqwest::Request::new(prepared.method.clone(), prepared.url.clone());
        *request.headers_mut() = headers;
        if !prepared.body.is_empty() {
            *request.body_mut() = Some(prepared.body.clone().into());
        }
        request
    }

    /// Reads a body to its end. A body of one chunk is not copied.
    async fn read(&self, response: &mut reqwest::Response) -> Result<Bytes, Failed> {
        let too_large = |response: &reqwest::Response| {
            let status = response.status();
            Failed::TooLarge(status, KeyStatus::read(status, response.headers(), b""))
        };
        let Some(first) = response.chunk().await? else { return Ok(Bytes::new()) };
        let mut length = first.len();
        let mut rest: Option<BytesMut> = None;
        while length <= self.answer_bytes_max
            && let Some(chunk) = response.chunk().await?
        {
            length += chunk.len();
            rest.get_or_insert_with(|| BytesMut::from(&first[..])).extend_from_slice(&chunk);
        }
        match rest {
            _ if length > self.answer_bytes_max => Err(too_large(response)),
            Some(whole) => Ok(whole.freeze()),
            None => Ok(first),
        }
    }
}

struct Lost {
    was_sent: Sent,
    why: String,
}

enum Failed {
    Lost(reqwest::Error),
    TooLarge(StatusCode, KeyStatus),
}

impl From<reqwest::Error> for Failed {
    fn from(error: reqwest::Error) -> Self {
        Self::Lost(error)
    }
}

fn tried(response: &Response<Bytes>) -> TryResult {
    let (status, headers) = (response.status(), response.headers());
    // The common case reads no header at all.
    if status.is_success() {
        return TryResult::Answered { status, retry_after: None, key_status: KeyStatus::NotStated };
    }
    let key_status = KeyStatus::read(status, headers, response.body());
    TryResult::Answered { status, retry_after: retry_after(headers, SystemTime::now()), key_status }
}

/// Whether a request failed because reqwest was built without TLS. Its connector then refuses every `https` URL, and
/// reports it only by this text; the test without the feature `rustls` checks it.
fn has_no_tls(scheme: &str, error: &reqwest::Error) -> bool {
    scheme == "https" && error.is_connect() && innermost(error) == "invalid URL, scheme is not http"
}

/// The innermost source of an error: "connection refused" says more than "error sending request".
fn innermost(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
