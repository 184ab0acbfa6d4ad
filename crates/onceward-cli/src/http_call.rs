//! A minimal HTTP client for commands that call a running gateway: one request on a connection of its own.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The timeout of a call. Longer than the default wait of a duplicate at the gateway.
const ANSWER_WITHIN: Duration = Duration::from_secs(90);

/// A request that is not sent yet.
pub struct HttpCall {
    authority: String,
    request: http::request::Builder,
    body: Bytes,
}

/// A response with its whole body.
#[derive(Clone)]
pub struct HttpAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl HttpCall {
    /// A request to `authority` (`host:port`).
    pub fn new(method: Method, authority: &str, path: &str) -> Self {
        let request = Request::builder().method(method).uri(path).header(HOST, authority);
        Self { authority: authority.to_owned(), request, body: Bytes::new() }
    }

    /// Adds a header field.
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    /// Sets a JSON body.
    pub fn json(mut self, body: String) -> Self {
        self.request = self.request.header(CONTENT_TYPE, "application/json");
        self.body = body.into();
        self
    }

    /// Sends the request and waits for the answer. An error message begins with the address.
    pub async fn send(self) -> Result<HttpAnswer, String> {
        let to = self.authority.clone();
        match timeout(ANSWER_WITHIN, self.exchange()).await {
            Ok(answer) => answer.map_err(|error| format!("http://{to}: {error}")),
            Err(_) => Err(format!("http://{to}: no answer within {ANSWER_WITHIN:?}")),
        }
    }

    async fn exchange(self) -> Result<HttpAnswer, Box<dyn std::error::Error + Send + Sync>> {
        let request = self.request.body(Full::new(self.body))?;
        let stream = TcpStream::connect(&self.authority).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let exchange = async {
            let (head, body) = sender.send_request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok(HttpAnswer { status: head.status, headers: head.headers, body })
        };
        tokio::pin!(connection);
        tokio::select! {
            answer = exchange => answer,
            ended = &mut connection => Err(ended.err().map_or_else(|| "the connection was closed".into(), Into::into)),
        }
    }
}

impl HttpAnswer {
    /// The value of a header field, if it is text.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}
