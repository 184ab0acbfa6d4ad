//! The HTTP server that all services of the zoo share.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

use super::charges::{Charges, WORK};
use super::events::Events;
use super::limits::Versions;

/// What events are signed with.
pub(super) const WEBHOOK_SECRET: &str = "whsec_of_the_zoo";

/// A request as a service of the zoo sees it.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Who asks, of whom and where: all that tells tenants apart.
    pub tenant: String,
    /// The credential as it came.
    pub credential: String,
    /// Whom the cookie names.
    pub cookie_user: String,
    /// The host that was asked.
    pub host: String,
    /// The operation.
    pub path: String,
    /// The lines of the key's field, as they came.
    pub key_lines: Vec<Vec<u8>>,
    /// The query.
    pub query: String,
    /// With what.
    pub body: Bytes,
    /// How long the work takes.
    pub work: Duration,
    /// Whether the work fails before its effect.
    pub fails: bool,
    /// The status that it is answered with after its effect, if that is a failure.
    pub fails_after: Option<u16>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// Fields.
    pub fields: Vec<(&'static str, String)>,
    /// The body.
    pub body: String,
}

impl Reply {
    /// An answer with nothing but a status and a word.
    pub fn plain(status: u16, body: &str) -> Self {
        Self { status, fields: Vec::new(), body: body.to_owned() }
    }

    /// The first is still running.
    pub fn in_progress() -> Self {
        Self { fields: vec![("retry-after", "1".to_owned())], ..Self::plain(409, "in progress") }
    }

    /// Nobody knows what became of the first.
    pub fn outcome_unknown() -> Self {
        let fields = vec![("content-type", "application/problem+json".to_owned())];
        Self { fields, ..Self::plain(409, r#"{"type":"urn:example:outcome-unknown","retryable":false}"#) }
    }

    /// The key was used for something else.
    pub fn key_reused() -> Self {
        Self::plain(422, "this key was used for another request")
    }
}

/// A service on its way to an answer.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Reply> + Send + 'a>>;

/// A service to be checked.
pub trait Service: Send + Sync + 'static {
    /// Answers a request, with the work done in the charges.
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a>;

    /// How changes of a version are guarded.
    fn versions(&self) -> Versions {
        Versions::Right
    }

    /// By what events are known again.
    fn events(&self) -> Events {
        Events::Right
    }

    /// Whether the work is dropped when the client hangs up, as many frameworks do.
    fn is_dropped_on_hang_up(&self) -> bool {
        false
    }
}

/// A service that listens. Dropping it ends it.
#[derive(Debug)]
pub struct Listening {
    /// Where.
    pub address: SocketAddr,
    task: AbortHandle,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Lets a service listen at this address, such as `127.0.0.1:0`.
pub async fn listen(
    at: &str,
    service: Arc<dyn Service>,
    charges: Arc<Charges>,
) -> std::io::Result<Listening> {
    let listener = TcpListener::bind(at).await?;
    let address = listener.local_addr()?;
    let task = tokio::spawn(async move {
        // Connections end with the listener.
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (service, charges) = (service.clone(), charges.clone());
            connections.spawn(async move {
                let handler = service_fn(move |request| handle(request, service.clone(), charges.clone()));
                let builder = auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), handler).await;
            });
            while connections.try_join_next().is_some() {}
        }
    });
    Ok(Listening { address, task: task.abort_handle() })
}

async fn handle(
    request: Request<Incoming>,
    service: Arc<dyn Service>,
    charges: Arc<Charges>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    if head.uri.path() == "/effects" {
        return Ok(Response::new(Full::from(charges.effects().to_string())));
    }
    let field = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    if head.uri.path() == "/limits" {
        if head.method == http::Method::GET {
            return Ok(response(charges.limits.read()));
        }
        let Ok(body) = body.collect().await else { return Ok(response(Reply::plain(400, "half a body"))) };
        let json: serde_json::Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        let mut key = key_lines(&head.headers).join(&b' ');
        key.extend(json["request_id"].as_str().unwrap_or_default().bytes());
        key.extend(head.uri.query().unwrap_or_default().bytes());
        let matches = field("if-match").unwrap_or_default();
        let work = work(&head.headers).unwrap_or_default();
        return Ok(response(charges.limits.change(service.versions(), key, matches, work).await));
    }
    let Ok(body) = body.collect().await else { return Ok(response(Reply::plain(400, "half a body"))) };
    if head.uri.path() == "/events" {
        let (fields, body) = (head.headers, body.to_bytes());
        let work = work(&fields).unwrap_or(WORK);
        let take = async move { charges.inbox.take(service.events(), &fields, &body, work, &charges).await };
        return Ok(response(tokio::spawn(take).await.unwrap_or_else(|_| Reply::plain(500, "it panicked"))));
    }
    let credential = field("authorization").unwrap_or("anonymous").to_owned();
    // What follows the dot is renewed from time to time.
    let user = credential.split('.').next().unwrap_or_default();
    let cookie = field("cookie").unwrap_or_default();
    let cookie_user = cookie.split("user=").nth(1).unwrap_or_default().to_owned();
    let host = field("host").or(head.uri.host()).unwrap_or_default().to_owned();
    let ask = Ask {
        tenant: format!("{user} {cookie_user} {host}"),
        credential: credential.clone(),
        cookie_user,
        host,
        path: head.uri.path().to_owned(),
        key_lines: key_lines(&head.headers),
        query: head.uri.query().unwrap_or_default().to_owned(),
        body: body.to_bytes(),
        work: work(&head.headers).unwrap_or(WORK),
        fails: field("x-fail").is_some(),
        fails_after: field("x-fail-after").and_then(|status| status.parse().ok()),
    };
    if service.is_dropped_on_hang_up() {
        return Ok(response(service.answer(ask, &charges).await));
    }
    let work = tokio::spawn(async move { service.answer(ask, &charges).await });
    Ok(response(work.await.unwrap_or_else(|_| Reply::plain(500, "it panicked"))))
}

/// How long the work is to take, if the request says so.
fn work(headers: &HeaderMap) -> Option<Duration> {
    headers.get("x-work-ms")?.to_str().ok()?.parse().ok().map(Duration::from_millis)
}

fn key_lines(headers: &HeaderMap) -> Vec<Vec<u8>> {
    headers.get_all("idempotency-key").iter().map(|value| value.as_bytes().to_vec()).collect()
}

fn response(reply: Reply) -> Response<Full<Bytes>> {
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.fields {
        response = response.header(name, value);
    }
    response.body(Full::from(reply.body)).expect("the zoo's own fields are well formed")
}
