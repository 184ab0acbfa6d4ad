//! Resolves an unknown outcome by asking the service: `GET` of a path that contains the key.
//!
//! ```text
//!  200  it happened; this is the answer to replay (its status in `Onceward-Status`, or 200)
//!  404  it did not happen, and will not      202  not yet known      anything else: asked again later
//! ```

use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use onceward::child_key;
use onceward_http::headers::{ONCEWARD_FENCE, ONCEWARD_STATUS};
use onceward_http::{Reconcile, Reconciled, UnknownRequest};

use super::body::{GatewayBody, SlowSenderLimit};
use super::fields;
use super::forward::{CHILD_LABEL, ForwardKey, Upstream};
use super::pool::SendFailure;

/// A larger answer is not stored as an outcome.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Resolves unknown outcomes by asking the upstream.
pub struct HttpReconciler {
    pub upstream: Arc<Upstream>,
    /// A path with `{key}` in it.
    pub template: String,
    /// Which key the service received.
    pub key: ForwardKey,
    pub answer_timeout: Duration,
}

impl Reconcile for HttpReconciler {
    fn reconcile(&self, unknown: UnknownRequest) -> Pin<Box<dyn Future<Output = Reconciled> + Send + '_>> {
        Box::pin(async move {
            match self.ask(&unknown).await {
                Ok(answer) => answer,
                Err(why) => Reconciled::Failed(why),
            }
        })
    }
}

impl HttpReconciler {
    async fn ask(&self, unknown: &UnknownRequest) -> Result<Reconciled, String> {
        let key = match self.key {
            ForwardKey::Derived => {
                child_key(&unknown.id, CHILD_LABEL).map_err(|error| error.to_string())?.to_string()
            }
            ForwardKey::Same | ForwardKey::Stripped => unknown.id.key().to_owned(),
        };
        let target: Uri =
            self.template.replace("{key}", &escaped(&key)).parse().map_err(|error| format!("{error}"))?;
        let mut request =
            Request::get(target).body(GatewayBody::Whole(None)).map_err(|error| error.to_string())?;
        // A client that may send the request may also read its outcome.
        if let Some(credentials) = unknown.request.headers.get(AUTHORIZATION) {
            request.headers_mut().insert(AUTHORIZATION, credentials.clone());
        }
        request.headers_mut().insert(ONCEWARD_FENCE, HeaderValue::from(unknown.fence.0));
        let limit = SlowSenderLimit::idle(self.answer_timeout);
        let answer = self.upstream.ask(request, self.answer_timeout, limit).await;
        let answer = answer.map_err(|(SendFailure::NotSent(why) | SendFailure::NoAnswer(why))| why)?;
        match answer.status() {
            StatusCode::OK => happened(answer).await,
            StatusCode::NOT_FOUND => Ok(Reconciled::DidNotHappen),
            StatusCode::ACCEPTED => Ok(Reconciled::NotYet),
            other => Err(format!("the service answered {other} to the reconcile request")),
        }
    }
}

async fn happened(answer: Response<GatewayBody>) -> Result<Reconciled, String> {
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
    let mut headers = parts.headers;
    fields::remove_hop_by_hop(&mut headers);
    let status = status(&mut headers)?;
    let mut response = Response::new(body.to_bytes());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(Reconciled::Happened(response))
}

/// The status that the first answer had.
fn status(headers: &mut HeaderMap) -> Result<StatusCode, String> {
    let Some(said) = headers.remove(ONCEWARD_STATUS) else { return Ok(StatusCode::OK) };
    StatusCode::from_bytes(said.as_bytes())
        .map_err(|_| format!("{ONCEWARD_STATUS}: {said:?} is not a status"))
}

/// A key as one segment of a path, or one value of a query.
fn escaped(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}
