//! The call of a step over HTTP: its key goes along, an undo names what must be closed, and the answer, or its absence,
//! becomes an end of the step.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use onceward::{Error, ErrorKind};
use onceward_client::reqwest;
use onceward_http::headers::{IDEMPOTENCY_KEY, ONCEWARD_ATTEMPT, ONCEWARD_CLOSES, ONCEWARD_FENCE};

use super::decide::Direction;
use super::http::step_result_of;
use super::step::{Step, StepResult, StepStop};

/// How long one call may take, if nothing else is said.
const AT_MOST: Duration = Duration::from_secs(30);

/// One call of a step; see [`Step::request`].
#[must_use = "a request does nothing until it is sent"]
#[derive(Debug)]
pub struct StepRequest {
    step: Step,
    client: reqwest::Client,
    method: Method,
    url: String,
    parts: Result<Parts, StepStop>,
    at_most: Duration,
}

#[derive(Debug)]
struct Parts {
    headers: HeaderMap,
    body: Bytes,
}

impl Step {
    /// The call of this step, to a participant that speaks HTTP: one request, with [the step's key](Step::key) as its
    /// `Idempotency-Key`. It is tried again by the saga, never by itself: a client that repeats requests would hide
    /// unknown outcomes.
    ///
    /// ```no_run
    /// # use onceward_flows::*;
    /// # use http::Method;
    /// # fn saga(client: onceward_client::reqwest::Client) -> onceward::Result<Saga> {
    /// let (charges, refunds) = (client.clone(), client);
    /// Saga::builder("order")
    ///     .step("charge", move |step: Step| {
    ///         let call = step.request(&charges, Method::POST, "http://bank.example/charges");
    ///         call.body(step.input().clone()).send()
    ///     })
    ///     .undo(move |step: Step| {
    ///         let call = step.request(&refunds, Method::POST, "http://bank.example/refunds");
    ///         call.closes("POST /charges").send()
    ///     })
    ///     .build()
    /// # }
    /// ```
    pub fn request(&self, client: &reqwest::Client, method: Method, url: &str) -> StepRequest {
        let parts = || {
            let mut headers = HeaderMap::new();
            headers.insert(IDEMPOTENCY_KEY, value(format!("\"{}\"", self.key()?))?);
            headers.insert(ONCEWARD_FENCE, HeaderValue::from(self.fence().0));
            headers.insert(ONCEWARD_ATTEMPT, value(format!("{:032x}", self.attempt().0))?);
            Ok(Parts { headers, body: Bytes::new() })
        };
        StepRequest {
            step: self.clone(),
            client: client.clone(),
            method,
            url: url.to_owned(),
            parts: parts(),
            at_most: AT_MOST,
        }
    }
}

impl StepRequest {
    /// Adds a header field.
    pub fn header(self, name: HeaderName, value: HeaderValue) -> Self {
        self.change(|parts| {
            parts.headers.append(name, value);
            Ok(())
        })
    }

    /// Sets the body.
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        self.change(|parts| {
            parts.body = body.into();
            Ok(())
        })
    }

    /// Sets the body to a value as JSON.
    pub fn json<T: serde::Serialize + ?Sized>(self, body: &T) -> Self {
        self.change(|parts| {
            let json = serde_json::to_vec(body).map_err(|error| {
                not_sent(Error::new(ErrorKind::Invalid, "a value cannot be written as JSON").caused_by(error))
            })?;
            parts.body = json.into();
            parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Ok(())
        })
    }

    /// In an undo: has the participant close the action first, so that a late copy of it is refused there too.
    /// `operation` is the participant's name of the action, its method and route: `POST /charges`.
    pub fn closes(self, operation: &str) -> Self {
        let closes = match self.step.direction() {
            Direction::Undo => self.step.closes(operation).map(|closes| closes.to_string()),
            Direction::Action => Err(Error::new(ErrorKind::Invalid, "only an undo closes something")),
        };
        self.change(|parts| {
            parts.headers.insert(ONCEWARD_CLOSES, value(closes.map_err(not_sent)?)?);
            Ok(())
        })
    }

    /// Sets how long the call may take: 30 seconds if it is not set. After that its outcome is unknown.
    pub fn at_most(mut self, at_most: Duration) -> Self {
        self.at_most = at_most;
        self
    }

    /// Sends it. What comes of it is the end of the step by the rules of
    /// [`step_result_of`](crate::saga_http::step_result_of): a connection that was refused is a try that may be repeated, and
    /// no answer to what was sent is unknown.
    pub async fn send(self) -> StepResult {
        let (status, headers, body, step) = self.answer().await?;
        step_result_of(&step, status, &headers, &body)
    }

    async fn answer(self) -> StepResult<(StatusCode, HeaderMap, Bytes, Step)> {
        let Parts { headers, body } = self.parts?;
        let request = self.client.request(self.method, &self.url).headers(headers).body(body);
        let mut answer = match request.timeout(self.at_most).send().await {
            Ok(answer) => answer,
            Err(error) if error.is_connect() || error.is_builder() => return Err(not_sent(error)),
            Err(error) => return Err(unknown(error)),
        };
        let (status, headers) = (answer.status(), std::mem::take(answer.headers_mut()));
        // One byte more than can be recorded: what is longer is a failure that says so.
        let bytes_max = self.step.lease().onceward().body_bytes_max();
        let mut body = BytesMut::new();
        while let Some(chunk) = answer.chunk().await.map_err(unknown)? {
            let left = (bytes_max + 1).saturating_sub(body.len());
            body.extend_from_slice(&chunk[..chunk.len().min(left)]);
            if left <= chunk.len() {
                break;
            }
        }
        Ok((status, headers, body.freeze(), self.step))
    }

    fn change(mut self, change: impl FnOnce(&mut Parts) -> Result<(), StepStop>) -> Self {
        if let Ok(parts) = &mut self.parts
            && let Err(stop) = change(parts)
        {
            self.parts = Err(stop);
        }
        self
    }
}

/// Certainly nothing was sent.
fn not_sent(error: impl std::error::Error) -> StepStop {
    StepStop::retry(causes("nothing was sent", &error))
}

fn unknown(error: impl std::error::Error) -> StepStop {
    StepStop::unknown(causes("no answer", &error))
}

fn causes(what: &str, error: &dyn std::error::Error) -> String {
    let mut text = format!("{what}: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn value(text: String) -> Result<HeaderValue, StepStop> {
    HeaderValue::try_from(text).map_err(not_sent)
}
