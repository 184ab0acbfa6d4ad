//! Resolves an unknown outcome by asking the service: `GET` of a path that contains the key.
//!
//! ```text
//!  200 with Onceward-Status: 201     it happened; this is the answer to replay, with that status
//!  404 with Onceward-Status: none    it did not happen, and will not
//!  202                               not yet known
//!  anything else                     proves nothing: a catch-all page, a typo, an ingress without the route
//! ```

use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use onceward::child_key;
use onceward_http::headers::{ONCEWARD_FENCE, ONCEWARD_STATUS};
use onceward_http::{Reconcile, Reconciled, UndelimitedBody, UnknownRequest};

use super::body::GatewayBody;
use super::fields;
use super::forward::{CHILD_LABEL, ForwardKey, Upstream, set_host};
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
                child_key(&unknown.child_keys_of, CHILD_LABEL).map_err(|error| error.to_string())?.to_string()
            }
            ForwardKey::Same | ForwardKey::Stripped => unknown.id.key().to_owned(),
        };
        // These would be another path.
        if matches!(key.as_str(), "." | "..") {
            return Err(format!("the key `{key}` cannot be part of a path"));
        }
        let target: Uri =
            self.template.replace("{key}", &escaped(&key)).parse().map_err(|error| format!("{error}"))?;
        let mut request =
            Request::get(target).body(GatewayBody::Whole(None)).map_err(|error| error.to_string())?;
        // A client that may send the request may also read its outcome, as the same tenant on the same host.
        *request.headers_mut() = fields_of_asker(unknown);
        *request.extensions_mut() = unknown.request.extensions.clone();
        request.headers_mut().insert(ONCEWARD_FENCE, HeaderValue::from(unknown.fence.0));
        let answer = self.upstream.ask(request, self.answer_timeout).await;
        let answer = answer.map_err(|(SendFailure::NotSent(why) | SendFailure::NoAnswer(why))| why)?;
        match answer.status() {
            StatusCode::OK => happened(answer).await,
            StatusCode::NOT_FOUND if says_none(answer.headers()) => Ok(Reconciled::DidNotHappen),
            StatusCode::NOT_FOUND => Err(format!(
                "the service answered 404 without `{ONCEWARD_STATUS}: none`, so that the path may just not exist"
            )),
            StatusCode::ACCEPTED => Ok(Reconciled::NotYet),
            other => Err(format!("the service answered {other} to the reconcile request")),
        }
    }
}

/// The fields of the request that asks, without those of its body and its connection.
fn fields_of_asker(unknown: &UnknownRequest) -> HeaderMap {
    let mut headers = unknown.request.headers.clone();
    fields::remove_hop_by_hop(&mut headers);
    let of_the_body = |name: &HeaderName| {
        let name = name.as_str();
        name.starts_with("content-")
            || name.starts_with("if-")
            || ["expect", "range", "accept-encoding"].contains(&name)
    };
    let gone: Vec<HeaderName> = headers.keys().filter(|name| of_the_body(name)).cloned().collect();
    for name in gone {
        headers.remove(name);
    }
    set_host(&mut headers, &unknown.request.uri);
    headers
}

fn says_none(headers: &HeaderMap) -> bool {
    headers.get(ONCEWARD_STATUS).is_some_and(|said| said.as_bytes().eq_ignore_ascii_case(b"none"))
}

async fn happened(answer: Response<GatewayBody>) -> Result<Reconciled, String> {
    let undelimited = answer.extensions().get::<UndelimitedBody>().copied();
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
    let mut headers = parts.headers;
    fields::remove_hop_by_hop(&mut headers);
    let status = status(&mut headers)?;
    let mut response = Response::new(body.to_bytes());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    if let Some(undelimited) = undelimited {
        response.extensions_mut().insert(undelimited);
    }
    Ok(Reconciled::Happened(response))
}

/// The status that the first answer had.
fn status(headers: &mut HeaderMap) -> Result<StatusCode, String> {
    let Some(said) = headers.remove(ONCEWARD_STATUS) else {
        return Err(format!(
            "the service answered 200 without {ONCEWARD_STATUS}, so that it may be any page"
        ));
    };
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
