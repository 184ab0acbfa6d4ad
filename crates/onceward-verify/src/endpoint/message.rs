//! Requests, answers, and the result of sending a request once.

use std::fmt::{self, Write};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use serde_json::Value;

use super::http_date;
use super::place::Place;
use super::secrets::without_credentials;

/// One request, ready to be sent as often as asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where it goes.
    pub place: Place,
    /// The method.
    pub method: String,
    /// Header fields in order, without `Host` and `Content-Length`. Values are bytes: some are bad on purpose.
    pub fields: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Bytes,
    /// The key that it carries, if it is a plain one.
    pub key: String,
    /// The name in a timeline.
    pub label: String,
}

impl Request {
    /// Adds a field.
    pub fn field(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.fields.push((name.to_owned(), value.into()));
        self
    }

    /// Puts this field in the place of those of the same name.
    pub fn replace(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.fields.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.field(name, value)
    }

    /// With another body.
    pub fn body(mut self, body: Bytes) -> Self {
        self.body = body;
        self
    }

    /// To another place.
    pub fn to(mut self, place: &Place) -> Self {
        self.place = place.clone();
        self
    }

    /// Under this name in a timeline.
    pub fn called(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }
}

/// The response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Fields in order, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// The meaning of its status.
    pub meaning: Meaning,
}

/// The meaning of a response's status, where the check says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Meaning {
    /// What it usually means.
    #[default]
    Usual,
    /// "Not now": the first one is still running.
    NotNow,
    /// The request itself is refused.
    Refused,
    /// It failed.
    Failed,
    /// The outcome is unknown, and an operator has to settle it.
    Held,
}

impl Answer {
    /// The first field of this name, which is given in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Returns whether it says that the thing was done.
    pub fn is_success(&self) -> bool {
        self.meaning == Meaning::Usual && (200..400).contains(&self.status)
    }

    /// Returns whether it says "not now": the first is still running (409, 423 Locked, 425), or there is too much to
    /// do.
    pub fn is_not_now(&self) -> bool {
        match self.meaning {
            Meaning::Usual => matches!(self.status, 409 | 423 | 425 | 429 | 503) && !self.is_held(),
            Meaning::NotNow => true,
            Meaning::Refused | Meaning::Failed | Meaning::Held => false,
        }
    }

    /// Returns whether there is too much to do (429, 503), which says nothing of the key.
    pub fn is_overload(&self) -> bool {
        self.meaning == Meaning::Usual && matches!(self.status, 429 | 503)
    }

    /// Returns whether it says, for good, that the outcome of the first is unknown: a problem document (RFC 9457)
    /// with
    /// `"retryable": false` or of a type that ends in `outcome-unknown`, or what the check names. Then an operator has
    /// to look, and the key is not wedged but held.
    pub fn is_held(&self) -> bool {
        if self.meaning != Meaning::Usual {
            return self.meaning == Meaning::Held;
        }
        let is_problem = self.field("content-type").is_some_and(|media| media.contains("problem+json"));
        if self.status != 409 || !is_problem {
            return false;
        }
        let problem: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        problem["retryable"] == false
            || problem["type"].as_str().is_some_and(|of| of.ends_with("outcome-unknown"))
    }

    /// Returns whether it refuses the request itself.
    pub fn is_refusal(&self) -> bool {
        match self.meaning {
            Meaning::Usual => (400..500).contains(&self.status),
            Meaning::Refused => true,
            Meaning::NotNow | Meaning::Failed | Meaning::Held => false,
        }
    }

    /// Returns whether it says that the attempt failed.
    pub fn is_failure(&self) -> bool {
        match self.meaning {
            Meaning::Usual => self.status >= 500,
            Meaning::Failed => true,
            Meaning::NotNow | Meaning::Refused | Meaning::Held => false,
        }
    }

    /// Returns whether it has the status and the body of another.
    pub fn is_like(&self, other: &Self) -> bool {
        (self.status, &self.body) == (other.status, &other.body)
    }

    /// Returns whether its body has the form of another one: JSON with the same members, or none at all.
    pub fn resembles(&self, other: &Self) -> bool {
        let json = |answer: &Self| serde_json::from_slice::<Value>(&answer.body).ok();
        match (json(self), json(other)) {
            (Some(Value::Object(one)), Some(Value::Object(other))) => one.keys().eq(other.keys()),
            (one, other) => one.is_some() == other.is_some(),
        }
    }

    /// How many seconds it asks to wait, if it says so: a number, or a date, which is compared with the answer's own `Date`
    /// where there is one.
    pub(super) fn retry_after_s(&self) -> Option<u64> {
        let text = self.field("retry-after")?.trim();
        if let Ok(seconds) = text.parse() {
            return Some(seconds);
        }
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let sent = self.field("date").and_then(http_date::unix_s).unwrap_or_else(now);
        Some(http_date::unix_s(text)?.saturating_sub(sent))
    }

    /// The beginning of the body, in one line, without members that are credentials.
    pub fn excerpt(&self) -> String {
        let body = without_credentials(&self.body).map_or_else(|| self.body.clone(), Bytes::from);
        let text: String = String::from_utf8_lossy(&body).split_whitespace().collect::<Vec<_>>().join(" ");
        match text.char_indices().nth(EXCERPT_CHARS) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }
}

/// As much of a body as helps to tell it from another.
const EXCERPT_CHARS: usize = 60;

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        if self.body.is_empty() { Ok(()) } else { write!(f, " {}", self.excerpt()) }
    }
}

/// How one sending of a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With an answer.
    Answered(Answer),
    /// Without one: the connection broke.
    Broke(String),
    /// Without one: it took too long.
    TimedOut,
    /// We hung up on purpose.
    HungUp,
}

/// One sending of a request.
#[derive(Clone, Debug)]
pub struct Shot {
    /// The key that it carried, if it was a plain one.
    pub key: String,
    /// The name in a timeline.
    pub label: String,
    /// When its last byte left.
    pub sent: Instant,
    /// When it ended.
    pub ended: Instant,
    /// How.
    pub ending: Ending,
}

impl Shot {
    /// The answer, if there was one.
    pub fn answer(&self) -> Option<&Answer> {
        match &self.ending {
            Ending::Answered(answer) => Some(answer),
            _ => None,
        }
    }

    /// The answer, to be changed.
    pub(super) fn answer_mut(&mut self) -> Option<&mut Answer> {
        match &mut self.ending {
            Ending::Answered(answer) => Some(answer),
            _ => None,
        }
    }

    /// The answer, if it says that the thing was done.
    pub fn success(&self) -> Option<&Answer> {
        self.answer().filter(|answer| answer.is_success())
    }

    /// Returns whether the answer says "not now".
    pub fn is_not_now(&self) -> bool {
        self.answer().is_some_and(Answer::is_not_now)
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(answer) => answer.fmt(f),
            Self::Broke(why) => write!(f, "no answer: {why}"),
            Self::TimedOut => f.write_str("no answer in time"),
            Self::HungUp => f.write_str("hung up"),
        }
    }
}

/// The host that a request is for: a field of its own may name another than its place does.
pub(super) fn host(request: &Request) -> String {
    let field = request.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    match field {
        Some((_, value)) => String::from_utf8_lossy(value).into_owned(),
        None => request.place.authority(),
    }
}

/// The bytes of a request in HTTP/1.1.
pub(super) fn encode(request: &Request) -> Vec<u8> {
    let mut head = String::new();
    let _ = write!(head, "{} {} HTTP/1.1\r\n", request.method, request.place.target());
    let _ = write!(head, "Host: {}\r\n", host(request));
    let mut bytes = head.into_bytes();
    for (name, value) in request.fields.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
    }
    if !request.body.is_empty() || request.method != "GET" {
        bytes.extend_from_slice(format!("Content-Length: {}\r\n", request.body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&request.body);
    bytes
}

#[cfg(test)]
#[path = "message_test.rs"]
mod tests;
