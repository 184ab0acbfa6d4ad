//! A small payments service behind the layer, on a port of its own, and a plain HTTP client.

use std::collections::VecDeque;
use std::fmt::Write;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Extension, Router};
use bytes::Bytes;
use onceward::{Limits, Onceward, Store};
use onceward_http::{
    Action, Admission, CallerScope, Metrics, OncewardLayer, ReportedEffect, Route, Secrets, UndelimitedBody,
};
use onceward_stores::MemoryStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The bytes of one frame of a large body.
pub const FRAME_BYTES: usize = 16 << 10;

pub struct Stage {
    pub address: SocketAddr,
    pub metrics: Arc<Metrics>,
    pub admission: Arc<Admission>,
    pub charges: Arc<AtomicUsize>,
    /// Charges wait until this is true.
    pub gate: watch::Sender<bool>,
}

impl Stage {
    pub async fn start(route: Route) -> Self {
        Self::over(Arc::new(MemoryStore::new()), Limits::default(), route).await
    }

    /// The service over this store.
    pub async fn over(store: Arc<dyn Store>, limits: Limits, route: Route) -> Self {
        Self::within(Admission::new(), store, limits, route).await
    }

    /// The service over this store, with these limits.
    pub async fn within(admission: Admission, store: Arc<dyn Store>, limits: Limits, route: Route) -> Self {
        Self::with_all(Secrets::new([7; 32]), admission, store, limits, route).await
    }

    /// The service over this store, under these secrets.
    pub async fn under(secrets: Secrets, store: Arc<dyn Store>, route: Route) -> Self {
        Self::with_all(secrets, Admission::new(), store, Limits::default(), route).await
    }

    async fn with_all(
        secrets: Secrets,
        admission: Admission,
        store: Arc<dyn Store>,
        limits: Limits,
        route: Route,
    ) -> Self {
        let admission = Arc::new(admission);
        let onceward = Onceward::builder(store).with_limits(limits).accept_volatile().build().unwrap();
        let charges = Arc::new(AtomicUsize::new(0));
        let (gate, _) = watch::channel(true);
        let handler = {
            let (charges, gate) = (charges.clone(), gate.clone());
            move |request: Request| charge(request, charges.clone(), gate.subscribe())
        };
        let metrics = Arc::new(Metrics::new());
        let layer = OncewardLayer::new(onceward, secrets, route)
            .with_metrics(metrics.clone())
            .with_admission(admission.clone());
        let app = Router::new()
            .route("/charges", any(handler.clone()))
            .route("/refunds", any(handler))
            .layer(layer)
            .layer(axum::middleware::map_request(find_caller));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, metrics, admission, charges, gate }
    }

    pub fn charges(&self) -> usize {
        self.charges.load(Ordering::SeqCst)
    }

    /// What a meter says, with the value of its label if it has one.
    pub fn meter(&self, name: &str, label: Option<&str>) -> u64 {
        let mut all = self.metrics.each();
        let found = all.find(|(n, pair, _)| *n == name && pair.map(|(_, value)| value) == label);
        found.unwrap_or_else(|| panic!("there is no meter {name} {label:?}")).2
    }

    /// POST /charges with this key and body.
    pub async fn post(&self, key: &str, body: &str) -> Answer {
        self.send("POST", "/charges", &[("Idempotency-Key", key)], body).await
    }

    pub async fn send(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Answer {
        send_to(self.address, method, path, fields, body).await
    }

    /// Sends a request, as JSON unless a field says otherwise, and leaves the answer to the caller.
    pub async fn begin(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> TcpStream {
        begin_at(self.address, method, path, fields, body).await
    }

    /// A charge under the key `k` that is running, and stays so until the gate is opened.
    pub async fn begin_running(&self, body: &str) -> TcpStream {
        self.gate.send_replace(false);
        let socket = self.begin("POST", "/charges", &[("Idempotency-Key", "k")], body).await;
        self.charges_begun(1).await;
        socket
    }

    /// Waits until this many charges have begun.
    pub async fn charges_begun(&self, count: usize) {
        until("the charge never began", || self.charges() >= count).await;
    }

    /// Waits until this many guarded requests have reached the layer.
    pub async fn guarded_begun(&self, count: u64) {
        until("the request never came", || self.meter("requests_guarded", None) >= count).await;
    }
}

/// Sends a request to any service, and reads the whole answer.
pub async fn send_to(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> Answer {
    let mut socket = begin_at(address, method, path, fields, body).await;
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).await.unwrap();
    Answer::parse(&bytes)
}

async fn begin_at(
    address: SocketAddr,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> TcpStream {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n");
    for (name, value) in fields {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    if !fields.iter().any(|(name, _)| *name == "Content-Type") {
        head.push_str("Content-Type: application/json\r\n");
    }
    write!(head, "Content-Length: {}\r\n\r\n", body.len()).unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(body.as_bytes()).await.unwrap();
    socket
}

/// Waits until a condition holds.
pub async fn until(otherwise: &str, so: impl Fn() -> bool) {
    let waiting = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect(otherwise);
}

/// A component in front of the layer that determines the caller.
async fn find_caller(mut request: Request) -> Request {
    if let Some(caller) = request.headers().get("x-caller") {
        let caller = CallerScope(caller.to_str().unwrap().to_owned());
        request.extensions_mut().insert(caller);
    }
    request
}

/// Counts a charge, then does what the body says.
async fn charge(request: Request, charges: Arc<AtomicUsize>, mut gate: watch::Receiver<bool>) -> Response {
    let lease = request.extensions().get::<onceward::Lease>().cloned();
    let body = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
    let body = String::from_utf8(body.to_vec()).unwrap();
    let number = charges.fetch_add(1, Ordering::SeqCst) + 1;
    gate.wait_for(|open| *open).await.unwrap();
    let words: Vec<&str> = body.trim_matches(['"', '{', '}']).split(' ').collect();
    match words[..] {
        ["status", code] => {
            (StatusCode::from_u16(code.parse().unwrap()).unwrap(), format!("try {number}")).into_response()
        }
        // Tells what its maker knows of the effect.
        ["effect", effect, code] => {
            let effect = match effect {
                "none" => ReportedEffect::None,
                "decided" => ReportedEffect::Decided,
                _ => ReportedEffect::Unknown,
            };
            (StatusCode::from_u16(code.parse().unwrap()).unwrap(), Extension(effect), format!("try {number}"))
                .into_response()
        }
        // Says when to come back.
        ["later", code] => {
            let fields = [("retry-after", "1")];
            let status = StatusCode::from_u16(code.parse().unwrap()).unwrap();
            (status, fields, format!("try {number}")).into_response()
        }
        ["problem", code, name] => {
            let fields = [("content-type", "application/problem+json")];
            let status = StatusCode::from_u16(code.parse().unwrap()).unwrap();
            let problem = format!("{{\"type\":\"urn:onceward:problem:{name}\",\"try\":{number}}}");
            (status, fields, problem).into_response()
        }
        // The first tries are refused before they begin.
        ["429", times] if number <= if times == "once" { 1 } else { 3 } => {
            (StatusCode::TOO_MANY_REQUESTS, format!("try {number}")).into_response()
        }
        // The first try is lost, and the next ones get this status.
        ["lost", "then", _] if number == 1 => {
            (StatusCode::GATEWAY_TIMEOUT, Extension(ReportedEffect::Unknown), "late").into_response()
        }
        ["lost", "then", code] => {
            (StatusCode::from_u16(code.parse().unwrap()).unwrap(), format!("try {number}")).into_response()
        }
        // As of a forwarder whose upstream closed the connection to end the body.
        ["undelimited", code] => {
            let status = StatusCode::from_u16(code.parse().unwrap()).unwrap();
            (status, Extension(UndelimitedBody), format!("try {number}")).into_response()
        }
        ["unsent"] => {
            (StatusCode::BAD_GATEWAY, Extension(Action::Retry), format!("try {number}")).into_response()
        }
        ["unanswered"] => (StatusCode::GATEWAY_TIMEOUT, Extension(Action::Unknown), "late").into_response(),
        ["final", code] => {
            let status = StatusCode::from_u16(code.parse().unwrap()).unwrap();
            (status, Extension(Action::Replay), "final").into_response()
        }
        ["broken"] => {
            let frames = [Ok("half of "), Err(std::io::Error::other("gone"))];
            body_of(frames).into_response()
        }
        ["panic"] => panic!("a bug in the handler"),
        ["large", bytes] => {
            let bytes: usize = bytes.parse().unwrap();
            Body::from("x".repeat(bytes)).into_response()
        }
        // In frames: a body that is not in memory as a whole.
        ["frames", count] => {
            let frame: &str = "x".repeat(FRAME_BYTES).leak();
            body_of((0..count.parse().unwrap()).map(|_: usize| Ok(frame))).into_response()
        }
        // With its length in a field, as behind a gateway, and the last byte in a frame of its own.
        ["sized", bytes] => {
            let bytes: usize = bytes.parse().unwrap();
            let frames = [Ok("x".repeat(bytes - 1).leak() as &str), Ok("x")];
            let fields = [("content-length", bytes.to_string())];
            (fields, body_of(frames)).into_response()
        }
        ["large", "then", "broken"] => {
            let frames = [Ok("x".repeat(5_000).leak() as &str), Err(std::io::Error::other("gone"))];
            body_of(frames).into_response()
        }
        ["large", "then", "panic"] => {
            body_of([Ok("x".repeat(5_000).leak() as &str), Ok("panic")]).into_response()
        }
        // Its outcome is unknown, and the client sees the key that a provider would have got.
        ["lost", "child"] => {
            let child = lease.map(|lease| lease.child("provider").unwrap().to_string());
            (StatusCode::GATEWAY_TIMEOUT, Extension(ReportedEffect::Unknown), child.unwrap_or_default())
                .into_response()
        }
        ["child"] => lease
            .map(|lease| lease.child("provider").unwrap().to_string())
            .unwrap_or_default()
            .into_response(),
        _ => {
            let fields = [
                ("x-charge", number.to_string()),
                ("set-cookie", "session=1".into()),
                ("x-last", "z".into()),
            ];
            (StatusCode::CREATED, fields, format!("charge {number}")).into_response()
        }
    }
}

/// A body that is said frame by frame.
struct Frames {
    frames: VecDeque<std::io::Result<&'static str>>,
    paused: bool,
}

fn body_of(frames: impl IntoIterator<Item = std::io::Result<&'static str>>) -> Body {
    Body::new(Frames { frames: frames.into_iter().collect(), paused: false })
}

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = std::io::Error;

    /// Each frame takes its time.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<http_body::Frame<Bytes>>>> {
        self.paused = !self.paused;
        if self.paused {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        assert!(!matches!(self.frames.front(), Some(Ok("panic"))), "a bug in the body");
        Poll::Ready(
            self.frames.pop_front().map(|frame| frame.map(|data| http_body::Frame::data(data.into()))),
        )
    }
}

/// A response, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: String,
    /// Whether a chunked body came to its end.
    pub whole: bool,
}

impl Answer {
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let mut lines = head.lines();
        let status =
            lines.next().and_then(|line| line.split(' ').nth(1)).map_or(0, |code| code.parse().unwrap());
        let fields: Vec<_> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let chunked = fields.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        let (body, whole) = if chunked { unchunk(body) } else { (body.to_owned(), true) };
        Self { status, fields, body, whole }
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// The last part of the problem's type.
    pub fn problem(&self) -> &str {
        assert_eq!(self.field("content-type"), Some("application/problem+json"), "{self:?}");
        let (_, rest) = self.body.split_once("urn:onceward:problem:").expect("a problem has a type");
        rest.split('"').next().unwrap()
    }

    /// The fields that a replay must have too, in their order.
    pub fn lasting_fields(&self) -> Vec<(String, String)> {
        let passing = ["date", "connection", "set-cookie", "idempotent-replayed", "idempotency-expires"];
        self.fields.iter().filter(|(name, _)| !passing.contains(&name.as_str())).cloned().collect()
    }
}

fn unchunk(mut body: &str) -> (String, bool) {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return (whole, true);
        }
        whole.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    (whole, false)
}
