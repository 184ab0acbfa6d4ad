//! The types of the receipts API for outcomes: text as text, other bytes as base64, gateway responses as HTTP.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use onceward::{Outcome, Snapshot};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::admin::problem::Problem;
use crate::snapshot;

/// Whether the work got done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It did what was asked.
    Succeeded,
    /// It ended, without what was asked. A declined card stays declined.
    Failed,
}

/// The result of the work. Give one of `body`, `body_base64` and `http`, or none for an empty body.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OutcomeGiven {
    /// Whether it got done.
    pub verdict: Verdict,
    /// The content of every replay, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The content of every replay, as base64: for anything that is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// A response that the gateway can replay to an HTTP client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpShown>,
}

/// A recorded outcome.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct OutcomeShown {
    /// Whether it got done.
    pub verdict: Verdict,
    /// The recorded bytes, if they are text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The recorded bytes, if they are not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// The same bytes read as a response of the gateway, if they are one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpShown>,
    /// The bytes were too many to be kept; this is the note about them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<String>,
}

/// An HTTP response.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HttpShown {
    /// Its status.
    pub status: u16,
    /// Its fields, in their order, each as name and value.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// Its body, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Its body, if it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
}

impl OutcomeGiven {
    pub(in crate::admin) fn read(&self) -> Result<Outcome, Problem> {
        let body = match &self.http {
            None => bytes_of(self.body.as_deref(), self.body_base64.as_deref())?,
            Some(http) if self.body.is_none() && self.body_base64.is_none() => http.encode()?,
            Some(_) => return Err(invalid("give `http` or a body, not both")),
        };
        Ok(match self.verdict {
            Verdict::Succeeded => Outcome::succeeded(body),
            Verdict::Failed => Outcome::failed(body),
        })
    }
}

impl OutcomeShown {
    pub(in crate::admin) fn new(outcome: &Outcome) -> Self {
        let verdict = Verdict::of(outcome);
        match outcome.snapshot() {
            Snapshot::Kept(bytes) => {
                let (body, body_base64) = text_or_base64(bytes);
                Self { verdict, body, body_base64, http: HttpShown::decode(bytes), omitted: None }
            }
            Snapshot::Omitted(note) => {
                let omitted = Some(String::from_utf8_lossy(note).into_owned());
                Self { verdict, body: None, body_base64: None, http: None, omitted }
            }
        }
    }
}

impl Verdict {
    pub(in crate::admin) fn of(outcome: &Outcome) -> Self {
        match outcome.verdict() {
            onceward::Verdict::Succeeded => Self::Succeeded,
            onceward::Verdict::Failed => Self::Failed,
        }
    }
}

impl HttpShown {
    /// The bytes that the gateway keeps of such a response.
    fn encode(&self) -> Result<Bytes, Problem> {
        let status = StatusCode::from_u16(self.status)
            .ok()
            .filter(|status| !status.is_informational())
            .ok_or_else(|| invalid(format!("`status` {} is not the status of a response", self.status)))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let field = HeaderName::try_from(name).ok().zip(HeaderValue::try_from(value).ok());
            let (name, value) = field.ok_or_else(|| invalid(format!("`{name}: {value}` is not a field")))?;
            headers.append(name, value);
        }
        let body = bytes_of(self.body.as_deref(), self.body_base64.as_deref())?;
        Ok(snapshot::encode(status, &headers, &body, &snapshot::Omitted::default()))
    }

    fn decode(bytes: &Bytes) -> Option<Self> {
        let (head, body) = snapshot::decode(bytes)?.into_parts();
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let headers = head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        let (body, body_base64) = text_or_base64(&body);
        Some(Self { status: head.status.as_u16(), headers, body, body_base64 })
    }
}

fn bytes_of(text: Option<&str>, base64: Option<&str>) -> Result<Bytes, Problem> {
    match (text, base64) {
        (Some(text), None) => Ok(Bytes::copy_from_slice(text.as_bytes())),
        (None, Some(base64)) => BASE64_STANDARD
            .decode(base64)
            .map(Into::into)
            .map_err(|error| invalid(format!("`body_base64` is not base64: {error}"))),
        (None, None) => Ok(Bytes::new()),
        (Some(_), Some(_)) => Err(invalid("give `body` or `body_base64`, not both")),
    }
}

fn text_or_base64(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(BASE64_STANDARD.encode(bytes))),
    }
}

fn invalid(why: impl Into<String>) -> Problem {
    Problem::Invalid(why.into())
}
