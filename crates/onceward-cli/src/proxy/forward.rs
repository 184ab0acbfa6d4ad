//! Forwards a request to the upstream, and says of every failure whether the request may have been sent.
//!
//! ```text
//!  nothing was sent (refused, no such host)      502 upstream-unreachable   the key is free again
//!  sent, and no valid answer (timeout, reset)    504 upstream-timeout       unknown
//!  an answer                                     as it came                 the route decides
//! ```

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderValue};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, Uri, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use onceward::Lease;
use onceward_http::Action;
use onceward_http::headers::{ONCEWARD_ATTEMPT, ONCEWARD_FENCE};
use onceward_http::problem::Problem;
use tower_service::Service;

use super::body::GatewayBody;
use super::client_body::BodyProgress;
use super::fields::{self, ClientConnection};
use super::head_rules::ForwardedPath;
use super::pool::{Pool, SendFailure, SendOptions, UpstreamReuse};
use super::tls::UpstreamTls;
use super::worker_threads;
use crate::listener::{UpgradedConnection, UpgradingConnection};

/// The label that keys for the upstream are derived with.
pub const CHILD_LABEL: &str = "upstream";

/// The service behind the gateway. Shared by all routes, and kept over a reload.
pub struct Upstream {
    /// One for each thread: a connection belongs to the runtime it was made on.
    pools: Vec<ThreadPools>,
    authority: Authority,
    /// The prefix of every path, without a trailing slash.
    base: String,
}

/// What an unguarded request left on a connection never becomes part of an answer that is stored.
struct ThreadPools {
    guarded: Arc<Pool>,
    unguarded: Arc<Pool>,
}

/// Which key is sent to the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForwardKey {
    /// The key of the request.
    #[default]
    Same,
    /// A key derived from it, the same on every try.
    Derived,
    /// No key.
    Stripped,
}

/// Forwards the requests of one route.
#[derive(Clone)]
pub struct Forward {
    pub upstream: Arc<Upstream>,
    pub key: ForwardKey,
    /// The field that the service reads the key from.
    pub key_field: HeaderName,
    /// The longest wait for an answer to begin once the request was sent, and between two of its frames.
    pub answer_timeout: Duration,
    pub reuse: UpstreamReuse,
}

impl Upstream {
    pub fn new(url: &Uri) -> Result<Self, String> {
        let tls = match url.scheme_str() {
            Some("http") => None,
            Some("https") => Some(UpstreamTls::new(url.host().unwrap_or_default())?),
            Some(other) => {
                return Err(format!("the scheme of an upstream must be http or https, not {other}"));
            }
            None => return Err(format!("`{url}` must begin with http:// or https://")),
        };
        let authority = url.authority().cloned().ok_or_else(|| format!("`{url}` has no host"))?;
        if url.query().is_some() {
            return Err(format!("`{url}` has a query; an upstream is a host and an optional path"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
        let pool = || Arc::new(Pool::new(host.clone(), port, tls.clone()));
        let pools = (0..=worker_threads::count())
            .map(|_| ThreadPools { guarded: pool(), unguarded: pool() })
            .collect();
        let base = url.path().trim_end_matches('/').to_owned();
        Ok(Self { pools, authority, base })
    }

    /// Its host and port.
    pub fn address(&self) -> String {
        self.pools().guarded.address()
    }

    fn pools(&self) -> &ThreadPools {
        &self.pools[worker_threads::current()]
    }

    /// Sends a request of the gateway itself, not of a client. `timeout` is also the longest time between two frames of
    /// the answer.
    pub async fn ask(
        &self,
        mut request: Request<GatewayBody>,
        timeout: Duration,
    ) -> Result<Response<GatewayBody>, SendFailure> {
        let wrong = |error: http::Error| SendFailure::NotSent(error.to_string());
        *request.uri_mut() = self.target_of(request.uri().path_and_query()).map_err(wrong)?;
        let host = HeaderValue::try_from(self.authority.as_str()).map_err(|error| wrong(error.into()))?;
        request.headers_mut().entry(HOST).or_insert(host);
        if let Some(connection) = request.extensions().get::<ClientConnection>().copied() {
            let fence = request.headers().get(ONCEWARD_FENCE).cloned();
            fields::add_forwarded(request.headers_mut(), connection);
            request.headers_mut().extend(fence.map(|fence| (ONCEWARD_FENCE, fence)));
        }
        // A connection of its own: the answer becomes a receipt.
        let options =
            SendOptions { answer_timeout: timeout, idle_max: Some(timeout), reuse: UpstreamReuse::Never };
        self.pools().guarded.send(request, options, None, None).await
    }

    /// Sends a stored event.
    pub async fn deliver(
        &self,
        mut request: Request<GatewayBody>,
        timeout: Duration,
        reuse: UpstreamReuse,
        lease: &Lease,
    ) -> Result<Response<GatewayBody>, SendFailure> {
        let wrong = |error: http::Error| SendFailure::NotSent(error.to_string());
        *request.uri_mut() = self.target_of(request.uri().path_and_query()).map_err(wrong)?;
        let host = HeaderValue::try_from(self.authority.as_str()).map_err(|error| wrong(error.into()))?;
        request.headers_mut().entry(HOST).or_insert(host);
        if reuse == UpstreamReuse::Never {
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let options = SendOptions { answer_timeout: timeout, idle_max: Some(timeout), reuse };
        self.pools().guarded.send(request, options, Some(lease), None).await
    }

    /// The path for the upstream: the base, then the path of the request.
    fn target_of(&self, asked: Option<&PathAndQuery>) -> Result<Uri, http::Error> {
        let path = match asked {
            // `OPTIONS *` is about the server, not about a path.
            Some(path) if path == "*" => path.clone(),
            Some(path) if self.base.is_empty() => path.clone(),
            Some(path) => PathAndQuery::try_from(format!("{}{path}", self.base))?,
            None => PathAndQuery::from_static("/"),
        };
        Ok(Uri::from(path))
    }
}

impl Service<Request<GatewayBody>> for Forward {
    type Response = Response<GatewayBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<GatewayBody>) -> Self::Future {
        Box::pin(self.clone().forward(request))
    }
}

impl Forward {
    async fn forward(self, mut request: Request<GatewayBody>) -> Result<Response<GatewayBody>, Infallible> {
        let lease = request.extensions_mut().remove::<Lease>();
        // An upgraded connection has no response to record, so only unguarded requests may upgrade.
        let protocol = if lease.is_none() { fields::requested_upgrade(request.headers()) } else { None };
        // Without its connection nobody would enforce the deadlines of the upgraded one.
        let connection = request.extensions_mut().remove::<UpgradingConnection>();
        let protocol = protocol.filter(|_| connection.is_some());
        let client_side =
            connection.filter(|_| protocol.is_some()).map(|at| (at, hyper::upgrade::on(&mut request)));
        if self.rewrite_request(&mut request, lease.as_ref(), protocol).is_err() {
            return Ok(problem(Problem::UpstreamUnreachable, Action::Retry));
        }
        // A response that stalls would hold its key forever. Without a key, the client decides how long to wait.
        let options = SendOptions {
            answer_timeout: self.answer_timeout,
            idle_max: lease.is_some().then_some(self.answer_timeout),
            reuse: self.reuse,
        };
        let pools = self.upstream.pools();
        let pool = if lease.is_some() { &pools.guarded } else { &pools.unguarded };
        let progress = request.extensions_mut().remove::<Arc<BodyProgress>>();
        // The body of a guarded request has arrived.
        let progress = progress.filter(|_| request.body().length().is_none());
        let answer = pool.send(request, options, lease.as_ref(), progress.clone()).await;
        if answer.is_err()
            && let Some(fault) = progress.and_then(|progress| progress.fault())
        {
            let (status, text) = fault.answer();
            return Ok(plain(status, text));
        }
        let upstream = &self.upstream.authority;
        let mut response = match answer {
            Ok(response) => response,
            Err(SendFailure::NotSent(why)) => {
                tracing::warn!(%upstream, why, "the upstream cannot be reached; nothing was sent");
                return Ok(problem(Problem::UpstreamUnreachable, Action::Retry));
            }
            Err(SendFailure::NoAnswer(why)) => {
                tracing::warn!(%upstream, why, "the upstream was sent a request and gave no answer");
                return Ok(problem(Problem::UpstreamTimeout, Action::Unknown));
            }
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some((connection, client_side)) = client_side else {
                return Ok(problem(Problem::UpstreamTimeout, Action::Unknown));
            };
            let protocol = fields::requested_upgrade(response.headers());
            let upstream_side = hyper::upgrade::on(&mut response);
            tokio::spawn(join_both(connection.agreed(), client_side, upstream_side, self.answer_timeout));
            fields::remove_hop_by_hop(response.headers_mut());
            if let Some(protocol) = protocol {
                fields::add_upgrade(response.headers_mut(), protocol);
            }
        } else {
            fields::remove_hop_by_hop(response.headers_mut());
        }
        fields::remove_protocol_fields(response.headers_mut());
        Ok(response)
    }

    /// Rewrites target, version and header fields for the upstream.
    fn rewrite_request(
        &self,
        request: &mut Request<GatewayBody>,
        lease: Option<&Lease>,
        protocol: Option<HeaderValue>,
    ) -> Result<(), http::Error> {
        let written = request.extensions_mut().remove::<ForwardedPath>().map(|path| path.0);
        let target = self.upstream.target_of(written.as_ref().or(request.uri().path_and_query()))?;
        let asked = std::mem::replace(request.uri_mut(), target);
        set_host(request.headers_mut(), &asked);
        *request.version_mut() = Version::HTTP_11;
        let connection = request.extensions().get::<ClientConnection>().copied();
        // The length of a buffered body is known, whatever the client declared.
        let whole = request.body().length();
        let headers = request.headers_mut();
        fields::remove_hop_by_hop(headers);
        // The gateway has answered `Expect` itself.
        headers.remove(EXPECT);
        if let Some(length) = whole {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        if let Some(connection) = connection {
            fields::add_forwarded(headers, connection);
        }
        if self.reuse == UpstreamReuse::Never {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(protocol) = protocol {
            fields::add_upgrade(headers, protocol);
        }
        let Some(lease) = lease else { return Ok(()) };
        headers.insert(ONCEWARD_FENCE, HeaderValue::from(lease.fence().0));
        headers.insert(ONCEWARD_ATTEMPT, HeaderValue::try_from(format!("{:032x}", lease.attempt().0))?);
        match self.key {
            ForwardKey::Same => {}
            ForwardKey::Derived => {
                let child = lease.child(CHILD_LABEL).expect("a short label");
                headers.insert(&self.key_field, HeaderValue::try_from(format!("\"{child}\""))?);
            }
            ForwardKey::Stripped => {
                headers.remove(&self.key_field);
            }
        }
        Ok(())
    }
}

/// A host in the target overrides `Host` (RFC 9112, section 3.2.2).
pub fn set_host(headers: &mut HeaderMap, target: &Uri) {
    if let Some(authority) = target.authority()
        && let Ok(host) = HeaderValue::try_from(authority.as_str())
    {
        headers.insert(HOST, host);
    }
}

fn problem(problem: Problem, action: Action) -> Response<GatewayBody> {
    let status = problem.status();
    let mut response = problem.into_response(status).map(GatewayBody::from);
    response.extensions_mut().insert(action);
    response
}

/// A sentence as an answer.
pub fn plain<B: From<Bytes>>(status: StatusCode, sentence: &str) -> Response<B> {
    let mut response = Response::new(B::from(Bytes::from(format!("{sentence}\n"))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Copies bytes between two upgraded connections, in both directions.
async fn join_both(
    connection: UpgradedConnection,
    client: OnUpgrade,
    upstream: OnUpgrade,
    rest_max: Duration,
) {
    let (Ok(client), Ok(upstream)) = tokio::join!(client, upstream) else { return };
    connection.join(TokioIo::new(client), TokioIo::new(upstream), rest_max).await;
}
