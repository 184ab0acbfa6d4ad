use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::*;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// What a scripted service does with a connection, and what it has seen.
struct Service {
    listener: TcpListener,
}

impl Service {
    async fn start() -> (Self, Arc<Pool>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pool = Arc::new(Pool::new("127.0.0.1".into(), listener.local_addr().unwrap().port(), None));
        (Self { listener }, pool)
    }

    async fn accept(&self) -> TcpStream {
        self.listener.accept().await.unwrap().0
    }

    /// Whether a connection is pending.
    async fn is_called(&self) -> bool {
        tokio::time::timeout(Duration::from_millis(50), self.listener.accept()).await.is_ok()
    }
}

/// Reads a request with a body of six bytes.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut got = Vec::new();
    while !got.ends_with(b"\r\n\r\ncharge") {
        assert!(stream.read_buf(&mut got).await.unwrap() > 0, "{:?}", String::from_utf8_lossy(&got));
    }
    String::from_utf8(got).unwrap()
}

fn request() -> Request<GatewayBody> {
    let body = GatewayBody::from(Bytes::from_static(b"charge"));
    Request::post("/charges?a=b").header("x-a", "1").body(body).unwrap()
}

fn options() -> SendOptions {
    let limit = Duration::from_secs(10);
    SendOptions { answer_timeout: limit, idle_max: Some(limit), reuse: UpstreamReuse::Safe }
}

async fn send(pool: &Arc<Pool>) -> Result<Response<GatewayBody>, SendFailure> {
    pool.send(request(), options(), None, None).await
}

async fn text(response: Response<GatewayBody>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn requests_follow_each_other_on_one_connection() {
    let (service, pool) = Service::start().await;
    let serving = tokio::spawn(async move {
        let mut stream = service.accept().await;
        let first = read_request(&mut stream).await;
        stream.write_all(OK.as_bytes()).await.unwrap();
        read_request(&mut stream).await;
        // The rest of the body comes later.
        stream.write_all(&OK.as_bytes()[..OK.len() - 1]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        stream.write_all(b"k").await.unwrap();
        read_request(&mut stream).await;
        stream.write_all(OK.as_bytes()).await.unwrap();
        assert!(!service.is_called().await);
        first
    });
    for _ in 0..3 {
        assert_eq!(text(send(&pool).await.unwrap()).await, "ok");
    }
    let first = serving.await.unwrap();
    assert_eq!(first, "POST /charges?a=b HTTP/1.1\r\nx-a: 1\r\ncontent-length: 6\r\n\r\ncharge");
}

#[tokio::test]
async fn a_connection_that_was_closed_while_it_was_idle_gets_no_request() {
    let (service, pool) = Service::start().await;
    let (closed, is_closed) = oneshot::channel();
    let serving = tokio::spawn(async move {
        let mut stream = service.accept().await;
        read_request(&mut stream).await;
        stream.write_all(OK.as_bytes()).await.unwrap();
        drop(stream);
        closed.send(()).unwrap();
        let mut stream = service.accept().await;
        read_request(&mut stream).await;
        stream.write_all(OK.as_bytes()).await.unwrap();
    });
    text(send(&pool).await.unwrap()).await;
    is_closed.await.unwrap();
    assert_eq!(text(send(&pool).await.unwrap()).await, "ok");
    serving.await.unwrap();
}

#[tokio::test]
async fn what_follows_a_response_is_not_the_next_response() {
    for later in [false, true] {
        let (service, pool) = Service::start().await;
        let (sent, is_sent) = oneshot::channel();
        let serving = tokio::spawn(async move {
            let mut confused = service.accept().await;
            read_request(&mut confused).await;
            let stray = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray";
            if later {
                confused.write_all(OK.as_bytes()).await.unwrap();
                confused.write_all(stray.as_bytes()).await.unwrap();
            } else {
                confused.write_all(format!("{OK}{stray}").as_bytes()).await.unwrap();
            }
            sent.send(()).unwrap();
            let mut stream = service.accept().await;
            read_request(&mut stream).await;
            stream.write_all(OK.as_bytes()).await.unwrap();
        });
        text(send(&pool).await.unwrap()).await;
        is_sent.await.unwrap();
        assert_eq!(text(send(&pool).await.unwrap()).await, "ok");
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn hyper_goes_on_where_a_response_has_no_length() {
    let (service, pool) = Service::start().await;
    let serving = tokio::spawn(async move {
        let mut stream = service.accept().await;
        for request in 0..3 {
            let got = read_request(&mut stream).await;
            assert!(got.starts_with("POST /charges"), "request {request}: {got}");
            let head = "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(b"1\r\n!\r\n0\r\n\r\n").await.unwrap();
        }
        // And where it ends with its connection.
        let mut last = service.accept().await;
        drop(stream);
        read_request(&mut last).await;
        last.write_all(b"HTTP/1.1 200 OK\r\n\r\nuntil the end").await.unwrap();
    });
    for _ in 0..3 {
        let response = send(&pool).await.unwrap();
        assert_eq!(response.status(), StatusCode::CREATED);
        assert!(matches!(response.body(), GatewayBody::FromService(_)));
        assert_eq!(text(response).await, "ok!");
    }
    let other = Arc::new(Pool::new(
        "127.0.0.1".into(),
        pool.address().rsplit_once(':').unwrap().1.parse().unwrap(),
        None,
    ));
    let response = send(&other).await.unwrap();
    assert!(response.extensions().get::<onceward_http::UndelimitedBody>().is_some());
    assert_eq!(text(response).await, "until the end");
    serving.await.unwrap();
}

#[tokio::test]
async fn it_is_known_whether_a_byte_was_sent() {
    // Nobody listens.
    let (service, pool) = Service::start().await;
    drop(service);
    assert!(matches!(send(&pool).await, Err(SendFailure::NotSent(_))));
    // The service reads nothing and closes; reads and closes; closes in the head; closes its sending side.
    for response in ["", "HTTP/1.1 200 OK\r\nContent-Le"] {
        let (service, pool) = Service::start().await;
        let serving = tokio::spawn(async move {
            let mut stream = service.accept().await;
            read_request(&mut stream).await;
            stream.write_all(response.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            // Half of the connection is still open.
            stream
        });
        assert!(matches!(send(&pool).await, Err(SendFailure::NoAnswer(_))), "{response:?}");
        serving.await.unwrap();
    }
    let (service, pool) = Service::start().await;
    let silent = SendOptions { answer_timeout: Duration::from_millis(50), ..options() };
    let sending = pool.send(request(), silent, None, None);
    let (sent, _silent) = tokio::join!(sending, service.accept());
    assert!(matches!(sent, Err(SendFailure::NoAnswer(why)) if why.contains("no answer within")));
}

#[tokio::test]
async fn a_body_that_breaks_off_or_stalls_is_an_error() {
    for stalls in [false, true] {
        let (service, pool) = Service::start().await;
        let serving = tokio::spawn(async move {
            let mut stream = service.accept().await;
            read_request(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await.unwrap();
            stalls.then_some(stream)
        });
        let options = SendOptions { idle_max: Some(Duration::from_millis(50)), ..options() };
        let response = pool.send(request(), options, None, None).await.unwrap();
        let error = response.into_body().collect().await.unwrap_err().to_string();
        assert_eq!(error.contains("too slow"), stalls, "{error}");
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn a_service_may_answer_before_it_has_read_the_request() {
    let listener = tokio::net::TcpSocket::new_v4().unwrap();
    listener.set_recv_buffer_size(4096).unwrap();
    listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listener.listen(1).unwrap();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(4096).unwrap();
    let stream = socket.connect(listener.local_addr().unwrap()).await.unwrap();
    let mut service = listener.accept().await.unwrap().0;
    // More than the buffers of both sides take.
    let body = Bytes::from(vec![b'a'; 4 << 20]);
    let request = Request::post("/").body(GatewayBody::from(body)).unwrap();
    let sending = tokio::spawn(async move { DirectConnection::new(stream).send(&request).await });
    let refusal = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n";
    service.write_all(refusal).await.unwrap();
    let Ok(DirectAnswer::Plain(head, _)) = sending.await.unwrap() else { panic!("no answer") };
    assert_eq!(head.response.status(), 413);
    assert!(!head.keeps_connection, "the rest of the body is missing");
}

#[tokio::test]
async fn idle_connections_are_closed_in_time() {
    let (service, pool) = Service::start().await;
    let serving = tokio::spawn(async move {
        let mut stream = service.accept().await;
        read_request(&mut stream).await;
        stream.write_all(OK.as_bytes()).await.unwrap();
        stream.read(&mut [0]).await.unwrap()
    });
    text(send(&pool).await.unwrap()).await;
    let end = tokio::time::timeout(IDLE_MAX * 5, serving).await.expect("it is closed").unwrap();
    assert_eq!(end, 0);
}
