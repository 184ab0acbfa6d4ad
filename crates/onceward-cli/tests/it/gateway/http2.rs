//! What only HTTP/2 has: hosts in `:authority`, cookies in several fields, targets that are no paths.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll, ready};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::oneshot;

use super::stage::{Gateway, Home, Service};
use crate::process::{eventually, send};

struct Client(SendRequest<Full<Bytes>>);

/// Status, whether it was replayed, and the body.
type Answer = (StatusCode, bool, String);

impl Client {
    async fn connect(gateway: &Gateway) -> Self {
        let stream = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
        let (sender, connection) =
            http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    async fn post(&mut self, authority: &str, path: &'static str, fields: &[(&str, &str)]) -> Answer {
        let target = Uri::builder().scheme("http").authority(authority);
        let target = target.path_and_query(PathAndQuery::from_static(path)).build().unwrap();
        let mut request = Request::post(target).header("idempotency-key", "order-81");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let answer = self.0.send_request(request.body(Full::new(Bytes::from_static(b"{}"))).unwrap()).await;
        let (head, body) = answer.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let replayed = head.headers.contains_key("idempotent-replayed");
        (head.status, replayed, String::from_utf8(body.to_vec()).unwrap())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_in_the_authority_separate_tenants() {
    let (home, service) = (Home::new(), Service::charging());
    home.write_config("[[route]]\npath = \"/tenants\"\nscope = [\"auto\", \"host\"]\n");
    let gateway = home.start(&service.url());
    let mut client = Client::connect(&gateway).await;
    let token = [("authorization", "Bearer one")];
    for (host, replayed) in [("tenant1.example", false), ("tenant1.example", true)] {
        let answer = client.post(host, "/charges", &token).await;
        assert_eq!((answer.0, answer.1), (StatusCode::CREATED, replayed), "{answer:?}");
    }
    let other = client.post("tenant2.example", "/charges", &token).await;
    assert_eq!(other.0, StatusCode::UNPROCESSABLE_ENTITY, "{other:?}");
    assert!(other.2.contains("key-reused"), "{other:?}");
    assert_eq!(service.effects(), 1);
    for (host, replayed) in
        [("tenant1.example", false), ("tenant2.example", false), ("tenant2.example", true)]
    {
        let answer = client.post(host, "/tenants", &token).await;
        assert_eq!((answer.0, answer.1), (StatusCode::CREATED, replayed), "{answer:?}");
    }
    let hosts: Vec<_> = service.received().iter().map(|got| got.field("host").unwrap().to_owned()).collect();
    assert_eq!(hosts, ["tenant1.example", "tenant1.example", "tenant2.example"]);
}

/// Browsers send a field for each cookie (RFC 9113, section 8.2.3).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cookies_in_several_fields_are_one_field_for_the_service_and_for_the_scope() {
    let (home, service) = (Home::new(), Service::charging());
    home.write_config("[defaults]\nscope = \"cookie:session\"\n");
    let gateway = home.start(&service.url());
    let mut client = Client::connect(&gateway).await;
    for (session, replayed) in [("session=alice", false), ("session=bob", false), ("session=bob", true)] {
        let cookies = [("cookie", "theme=dark"), ("cookie", session), ("cookie", "last=1")];
        let answer = client.post("pay.example", "/charges", &cookies).await;
        assert_eq!((answer.0, answer.1), (StatusCode::CREATED, replayed), "{answer:?}");
    }
    for (got, session) in service.received().iter().zip(["alice", "bob"]) {
        let cookies: Vec<_> = got.fields.iter().filter(|(name, _)| name == "cookie").collect();
        assert_eq!(cookies.len(), 1, "{cookies:?}");
        assert_eq!(cookies[0].1, format!("theme=dark; session={session}; last=1"));
    }
    assert_eq!(service.effects(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_no_path_is_refused() {
    let (home, service) = (Home::new(), Service::charging());
    let gateway = home.start(&service.url());
    let mut client = Client::connect(&gateway).await;
    let answer = client.post("pay.example", "*", &[]).await;
    assert_eq!(answer.0, StatusCode::BAD_REQUEST, "{answer:?}");
    assert_eq!(service.effects(), 0);
    assert_eq!(client.post("pay.example", "/charges", &[]).await.0, StatusCode::CREATED);
}

const LARGE_BYTES: usize = 16 << 20;

/// A service with a large answer on `/large`. It says of each of those whether the gateway has taken all of it.
fn large_service() -> (SocketAddr, mpsc::Receiver<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (ended, is_ended) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let ended = ended.clone();
            thread::spawn(move || serve_large(stream.unwrap(), &ended));
        }
    });
    (address, is_ended)
}

fn serve_large(mut stream: TcpStream, ended: &mpsc::Sender<bool>) {
    let mut got = Vec::new();
    while !got.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return;
        }
        got.push(byte[0]);
    }
    let is_large = got.starts_with(b"POST /large");
    if !is_large {
        // The body that every other request has: a connection that is closed with unread bytes is reset.
        stream.read_exact(&mut [0; 2]).unwrap();
    }
    let bytes = if is_large { LARGE_BYTES } else { 2 };
    let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {bytes}\r\n\r\n");
    let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&vec![b'x'; bytes]));
    if is_large {
        // Nobody listens any more if the test has failed.
        let _ = ended.send(sent.is_ok());
    }
}

/// A client that never opens the window of a stream gets no more than the first 64 KiB. Its connection goes on, so only the
/// response can be given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_stays_unread_is_given_up_and_its_connection_goes_on() {
    for guarded in [true, false] {
        let home = Home::new();
        let (service, is_ended) = large_service();
        let flags = ["--write-timeout", "500ms", "--in-flight-max", "1"];
        let gateway = home.start_with(&format!("http://{service}"), &flags);
        let mut client = Client::connect(&gateway).await;
        let request = Request::post("http://pay.example/large");
        let request = if guarded { request.header("idempotency-key", "unread") } else { request };
        let unread = client.0.send_request(request.body(Full::new(Bytes::new())).unwrap()).await.unwrap();
        assert_eq!(unread.status(), StatusCode::OK);
        // Of a guarded request the rest is read, because its receipt says what became of it. Otherwise it is broken off.
        let is_read = is_ended.recv_timeout(Duration::from_secs(60)).expect("the answer is given up");
        assert_eq!(is_read, guarded);
        if guarded {
            let again = eventually("the receipt is written", || {
                let fields = [("Host", "pay.example"), ("Idempotency-Key", "unread")];
                let answer = send(gateway.address, "POST", "/large", &fields, "");
                (!answer.is_problem("in-progress")).then_some(answer)
            });
            assert_eq!(again.problem(), (409, "response-not-stored".into()));
            assert_eq!(gateway.charge("other", "{}").status, 200, "the only place for a run is free");
        }
        let rest = tokio::time::timeout(Duration::from_secs(30), unread.into_body().collect()).await;
        assert!(rest.expect("the stream was reset").is_err(), "guarded: {guarded}");
        let answer = client.post("pay.example", "/charges", &[]).await;
        assert_eq!(answer.0, StatusCode::OK, "{answer:?}");
    }
}

/// A body of two bytes that are sent when the gate opens, and that says when they were taken.
struct LateBody {
    gate: Option<oneshot::Receiver<()>>,
    taken: Option<oneshot::Sender<()>>,
}

impl Body for LateBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(gate) = self.gate.as_mut() else {
            self.taken.take().map(|taken| taken.send(()));
            return Poll::Ready(None);
        };
        ready!(Pin::new(gate).poll(cx)).expect("the gate opens");
        self.gate = None;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"{}")))))
    }
}

/// A stream that is reset while its request is still being sent loses the answer for some clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_request_may_still_send_its_body() {
    let (home, service) = (Home::new(), Service::charging());
    let gateway = home.start(&service.url());
    let stream = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
    let (mut sender, connection) =
        http2::handshake::<_, _, LateBody>(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    // By the gateway itself, and by the layer in it, because a cookie names no caller.
    for path in ["/charges;a", "/charges"] {
        let (gate, opened) = oneshot::channel();
        let (taken, is_taken) = oneshot::channel();
        let request = Request::post(format!("http://pay.example{path}"));
        let request = request.header("idempotency-key", "k").header("cookie", "session=1");
        let body = LateBody { gate: Some(opened), taken: Some(taken) };
        let answer = sender.send_request(request.body(body).unwrap()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{path}");
        answer.into_body().collect().await.unwrap();
        // A reset comes with the end of the answer.
        tokio::time::sleep(Duration::from_millis(100)).await;
        gate.send(()).expect("the body is still wanted");
        is_taken.await.unwrap_or_else(|_| panic!("{path}: the stream was reset"));
    }
    assert_eq!(service.effects(), 0);
}
