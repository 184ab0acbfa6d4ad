//! One HTTP call on a connection of its own: for commands that talk to a running gateway.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// An answer may take this long: longer than the gateway lets anyone wait by default.
const ANSWER_WITHIN: Duration = Duration::from_secs(90);

/// A request in the making.
pub struct Call {
    authority: String,
    request: http::request::Builder,
    body: Bytes,
}

/// A response, whole.
#[derive(Clone)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Call {
    /// To `authority` (`host:port`).
    pub fn new(method: Method, authority: &str, path: &str) -> Self {
        let request = Request::builder().method(method).uri(path).header(HOST, authority);
        Self { authority: authority.to_owned(), request, body: Bytes::new() }
    }

    /// With this field.
    pub fn field(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    /// With this JSON.
    pub fn json(mut self, body: String) -> Self {
        self.request = self.request.header(CONTENT_TYPE, "application/json");
        self.body = body.into();
        self
    }

    /// Sends it and waits for the answer. Fails with a message that says where it was going.
    pub async fn send(self) -> Result<Answer, String> {
        let to = self.authority.clone();
        match timeout(ANSWER_WITHIN, self.exchange()).await {
            Ok(answer) => answer.map_err(|error| format!("http://{to}: {error}")),
            Err(_) => Err(format!("http://{to}: no answer within {ANSWER_WITHIN:?}")),
        }
    }

    async fn exchange(self) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
        let request = self.request.body(Full::new(self.body))?;
        let stream = TcpStream::connect(&self.authority).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let exchange = async {
            let (head, body) = sender.send_request(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok(Answer { status: head.status, headers: head.headers, body })
        };
        tokio::pin!(connection);
        tokio::select! {
            answer = exchange => answer,
            ended = &mut connection => Err(ended.err().map_or_else(|| "the connection was closed".into(), Into::into)),
        }
    }
}

impl Answer {
    /// The value of a field, if it is text.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}
