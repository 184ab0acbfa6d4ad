//! What a call gives: the whole answer, and how it came.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};

use super::error::{Error, Result};
use super::report::Report;

/// A whole answer, final for its intent. A 404 is an answer too.
#[derive(Clone, Debug)]
pub struct Answer {
    /// In a place of its own: on its way to the caller it is handed on many times.
    response: Box<Response<Bytes>>,
    report: Report,
}

impl Answer {
    pub(crate) fn new(response: Box<Response<Bytes>>, report: Report) -> Self {
        Self { response, report }
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Its fields.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Its body, to the last byte.
    pub fn body(&self) -> &Bytes {
        self.response.body()
    }

    /// Its body as text; what is not UTF-8 is replaced.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(self.body())
    }

    /// Its body read as JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(self.body()).map_err(|error| {
            Error::invalid("the answer is not the JSON that was expected")
                .effect_is(onceward::Effect::Maybe)
                .caused_by(error)
        })
    }

    /// How it came.
    pub fn report(&self) -> &Report {
        &self.report
    }

    pub(crate) fn as_response(&self) -> &Response<Bytes> {
        &self.response
    }

    /// The answer as a plain response.
    pub fn into_response(self) -> Response<Bytes> {
        *self.response
    }
}
