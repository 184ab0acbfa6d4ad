//! The result of a call: the complete HTTP answer, and a report of its tries.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};

use super::error::{Error, Result};
use super::report::CallReport;

/// A complete answer, final for its intent. A 404 is an answer too.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Boxed, because an answer is moved many times on its way to the caller.
    response: Box<Response<Bytes>>,
    report: CallReport,
}

impl Reply {
    pub(crate) fn new(response: Box<Response<Bytes>>, report: CallReport) -> Self {
        Self { response, report }
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Its header fields.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Its complete body.
    pub fn body(&self) -> &Bytes {
        self.response.body()
    }

    /// Its body as text; invalid UTF-8 is replaced.
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

    /// How the call went.
    pub fn report(&self) -> &CallReport {
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
