//! HTTP endpoints, to publish to.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use onceward_client::Client;
use onceward_flows::conformance::{self, Broker};
use onceward_flows::{HttpPublisher, Message, Outgoing, Publisher};
use onceward_http::webhook::{Scheme, Signer, Verifier};
use tokio::task::JoinHandle;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

type Requests = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;
/// While the service is down its listener is gone, but not the connections that it has accepted.
type IsDown = Arc<AtomicBool>;

/// A service that notes every request whose signature is right.
struct Service {
    address: SocketAddr,
    requests: Requests,
    is_down: IsDown,
    task: Option<JoinHandle<()>>,
}

impl Service {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, is_down) = (Requests::default(), IsDown::default());
        let mut service = Self { address, requests, is_down, task: None };
        service.serve(listener);
        service
    }

    fn serve(&mut self, listener: tokio::net::TcpListener) {
        let router = Router::new()
            .fallback(note)
            .layer(DefaultBodyLimit::disable())
            .with_state((self.requests.clone(), self.is_down.clone()));
        self.task = Some(tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }));
    }

    fn url(&self) -> String {
        format!("http://{}/hooks", self.address)
    }
}

async fn note(
    State((requests, is_down)): State<(Requests, IsDown)>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, &'static str) {
    if is_down.load(Ordering::SeqCst) {
        return (StatusCode::SERVICE_UNAVAILABLE, "");
    }
    let verifier = Verifier::new(Scheme::StandardWebhooks, [SECRET]).unwrap();
    if verifier.verify(&headers, &body, SystemTime::now()).is_err() {
        return (StatusCode::UNAUTHORIZED, "the signature is missing\nor wrong");
    }
    requests.lock().unwrap().push((headers, body));
    (StatusCode::NO_CONTENT, "")
}

fn message(headers: &HeaderMap, body: &Bytes) -> Message {
    let text =
        |name: &str| headers.get(name).map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap());
    let id = text("idempotency-key").unwrap();
    assert_eq!(text("webhook-id").unwrap(), id.trim_matches('"'));
    let mut message =
        Message::new(text("onceward-topic").unwrap(), body.clone()).with_id(id.trim_matches('"'));
    if let Some(key) = text("onceward-ordering-key") {
        message = message.with_ordering_key(key);
    }
    if let Some(trace) = text("trace") {
        message = message.with_header("trace", trace);
    }
    message
}

impl Broker for Service {
    async fn read(&self) -> onceward::Result<Vec<Message>> {
        Ok(self.requests.lock().unwrap().iter().map(|(headers, body)| message(headers, body)).collect())
    }

    async fn kill(&mut self) {
        self.is_down.store(true, Ordering::SeqCst);
        let task = self.task.take().unwrap();
        task.abort();
        let _ = task.await;
    }

    async fn start(&mut self) {
        let listener = loop {
            match tokio::net::TcpListener::bind(self.address).await {
                Ok(listener) => break listener,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        self.is_down.store(false, Ordering::SeqCst);
        self.serve(listener);
    }

    async fn write_malformed(&mut self, _: u32) -> Vec<Bytes> {
        Vec::new()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_conforms() {
    let mut service = Service::start().await;
    let publisher = HttpPublisher::new(Client::builder().build().unwrap(), &service.url())
        .unwrap()
        .with_signer(Signer::new(SECRET).unwrap())
        .with_call_at_most(Duration::from_millis(500));
    conformance::publisher(&publisher, &mut service).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_quoted_in_one_line_and_confirms_nothing() {
    let service = Service::start().await;
    let publisher = HttpPublisher::new(Client::builder().build().unwrap(), &service.url()).unwrap();
    let error =
        publisher.publish(&[Outgoing::new(Message::new("t", ""), 1)]).await.pop().unwrap().unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("401") && error.contains("the signature is missing") && !error.contains('\n'),
        "{error}"
    );
    assert!(service.requests.lock().unwrap().is_empty());
    for bad in ["", "host/path", "ftp://host/", "https://"] {
        assert!(HttpPublisher::new(Client::builder().build().unwrap(), bad).is_err(), "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_has_what_the_message_has() {
    let service = Service::start().await;
    let publisher = HttpPublisher::new(Client::builder().build().unwrap(), &service.url())
        .unwrap()
        .with_signer(Signer::new(SECRET).unwrap());
    let plain = Message::new("orders.placed", "81");
    let json = Message::new("orders.placed", "{}").with_header("content-type", "application/json");
    for (message, content_type) in [(plain, "application/octet-stream"), (json, "application/json")] {
        publisher.publish(&[Outgoing::new(message.clone(), 7)]).await.pop().unwrap().unwrap();
        let (headers, body) = service.requests.lock().unwrap().pop().unwrap();
        assert_eq!(headers["content-type"], content_type);
        assert_eq!(headers["onceward-position"], "7");
        assert_eq!(headers["onceward-topic"], "orders.placed");
        assert_eq!(body, message.payload());
    }
}
