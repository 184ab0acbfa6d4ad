//! Sends the same requests over direct connections and by hyper, to a service that treats both alike: what a caller sees
//! must be the same.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;

use super::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const BODY: &[u8] = b"charge";
/// More than the service's receive buffer takes.
const LONG_BODY_BYTES: usize = 60_000;
/// The limit of an answer that never comes to its end. Where the two differ it was perhaps too short for a busy machine,
/// and the next one is tried.
const STALL_LIMITS_MS: [u64; 3] = [5, 300, 3_000];

/// How the service treats a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Service {
    /// It reads the request, answers, and closes its sending side.
    Answers,
    /// It reads the request, answers, and then sends nothing more.
    Stalls,
    /// It answers as soon as it has the head of the request, and closes its sending side.
    AnswersEarly,
    /// It closes its sending side before it has read anything.
    HalfCloses,
    /// It closes the connection of an earlier request, and answers over the next one.
    ClosesIdle,
    /// It sends the bytes over the connection of an earlier request, and answers over the next one.
    SpeaksWhileIdle,
}

impl Service {
    const ALL: [Self; 6] = [
        Self::Answers,
        Self::Stalls,
        Self::AnswersEarly,
        Self::HalfCloses,
        Self::ClosesIdle,
        Self::SpeaksWhileIdle,
    ];

    fn of(input: &[u8]) -> (Self, &[u8]) {
        let Some((first, response)) = input.split_first() else { return (Self::Answers, input) };
        let service = Self::ALL[usize::from(*first) % Self::ALL.len()];
        // Nothing is sent, so the connection is as good as before.
        let is_same = service == Self::SpeaksWhileIdle && response.is_empty();
        (if is_same { Self::Answers } else { service }, response)
    }

    fn has_earlier_request(self) -> bool {
        matches!(self, Self::ClosesIdle | Self::SpeaksWhileIdle)
    }
}

/// What a caller sees of a response.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Seen {
    Answer { status: u16, fields: Vec<(String, Vec<u8>)>, body: Option<Vec<u8>>, undelimited: bool },
    NotSent,
    NoAnswer,
}

async fn seen(answer: Result<Response<GatewayBody>, SendFailure>) -> Seen {
    match answer {
        Err(SendFailure::NotSent(_)) => Seen::NotSent,
        Err(SendFailure::NoAnswer(_)) => Seen::NoAnswer,
        Ok(response) => {
            let fields = response.headers().iter();
            Seen::Answer {
                status: response.status().as_u16(),
                fields: fields.map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect(),
                undelimited: response.extensions().get::<onceward_http::UndelimitedBody>().is_some(),
                body: response.into_body().collect().await.ok().map(|body| body.to_bytes().to_vec()),
            }
        }
    }
}

/// Reads until the request ends like this.
async fn read_until(stream: &mut TcpStream, end: &[u8]) {
    let mut got = Vec::new();
    while !got.ends_with(end) {
        assert!(stream.read_buf(&mut got).await.unwrap() > 0, "{:?}", String::from_utf8_lossy(&got));
    }
}

async fn read_head(stream: &mut TcpStream) {
    let mut got = Vec::new();
    while !got.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        assert!(stream.read_buf(&mut got).await.unwrap() > 0, "{:?}", String::from_utf8_lossy(&got));
    }
}

/// Reads until the other side closes; the number of bytes.
async fn read_to_end(mut stream: TcpStream) -> usize {
    let mut got = Vec::new();
    while matches!(stream.read_buf(&mut got).await, Ok(1..)) {}
    got.len()
}

/// In two pieces; where they part is part of the input. The other side may have seen enough and closed the connection.
async fn answer(stream: &mut TcpStream, response: &[u8]) {
    let cut = response.iter().map(|&byte| usize::from(byte)).sum::<usize>() % (response.len() + 1);
    let _ = stream.write_all(&response[..cut]).await;
    tokio::task::yield_now().await;
    let _ = stream.write_all(&response[cut..]).await;
}

/// Serves one request, and before it an earlier one where the service has one. The number of bytes that it got before its
/// last answer is not known to anybody, or `Some` where it read nothing itself: all that has arrived.
async fn serve(
    service: Service,
    response: &[u8],
    listener: TcpListener,
    answered: oneshot::Receiver<()>,
    is_changed: oneshot::Sender<()>,
) -> Option<usize> {
    let accept = async || {
        let stream = listener.accept().await.unwrap().0;
        stream.set_nodelay(true).unwrap();
        stream
    };
    let mut stream = accept().await;
    match service {
        Service::HalfCloses => {
            stream.shutdown().await.unwrap();
            return Some(read_to_end(stream).await);
        }
        Service::AnswersEarly => read_head(&mut stream).await,
        _ => read_until(&mut stream, BODY).await,
    }
    if service.has_earlier_request() {
        stream.write_all(OK).await.unwrap();
        answered.await.unwrap();
        let earlier = if service == Service::SpeaksWhileIdle {
            let _ = stream.write_all(response).await;
            Some(stream)
        } else {
            drop(stream);
            None
        };
        is_changed.send(()).unwrap();
        stream = accept().await;
        read_until(&mut stream, BODY).await;
        if let Some(earlier) = earlier {
            assert_eq!(read_to_end(earlier).await, 0, "a request came over a connection that was not quiet");
        }
    }
    answer(&mut stream, if service == Service::SpeaksWhileIdle { OK } else { response }).await;
    if service != Service::Stalls {
        let _ = stream.shutdown().await;
    }
    read_to_end(stream).await;
    None
}

fn listen() -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket.listen(2).unwrap()
}

/// What the caller sees of the last response.
async fn ask(service: Service, response: &[u8], by_hyper: bool, limit: Duration) -> Seen {
    let listener = listen();
    let port = listener.local_addr().unwrap().port();
    let (answered, is_answered) = oneshot::channel();
    let (changed, is_changed) = oneshot::channel();
    let asking = async move {
        // A pool of its own for each: what is learnt from one response must not matter to the next.
        let pool = Arc::new(Pool::new("127.0.0.1".into(), port, None));
        let reuse = if service.has_earlier_request() { UpstreamReuse::Safe } else { UpstreamReuse::Never };
        let options = SendOptions { answer_timeout: limit, idle_max: Some(limit), reuse };
        let send = async || {
            let body = match service {
                Service::AnswersEarly => vec![b'a'; LONG_BODY_BYTES],
                _ => BODY.to_vec(),
            };
            let request = Request::post("/charges?a=b").body(GatewayBody::from(Bytes::from(body))).unwrap();
            seen(if by_hyper {
                pool.send_by_hyper(request, options, None, None).await
            } else {
                pool.send(request, options, None, None).await
            })
            .await
        };
        if service.has_earlier_request() {
            let earlier = send().await;
            assert!(matches!(earlier, Seen::Answer { status: 200, .. }), "{earlier:?}");
            answered.send(()).unwrap();
            is_changed.await.unwrap();
        }
        send().await
    };
    let serving = serve(service, response, listener, is_answered, changed);
    let both = async { tokio::join!(asking, serving) };
    let ended = tokio::time::timeout(Duration::from_secs(60), both).await;
    let (seen, arrived) = ended.expect("the request reaches the service, and its connection is closed");
    if service == Service::SpeaksWhileIdle {
        assert!(matches!(&seen, Seen::Answer { body: Some(body), .. } if body == b"ok"), "{seen:?}");
    }
    if let Some(arrived) = arrived {
        // No answer can come. Whether the end was seen before or after the request was sent is a matter of moments.
        assert!(matches!(seen, Seen::NotSent | Seen::NoAnswer), "{seen:?}");
        assert!(
            seen != Seen::NotSent || arrived == 0,
            "{arrived} bytes arrived of a request that was not sent"
        );
        return Seen::NoAnswer;
    }
    assert!(seen != Seen::NotSent, "the service has read a request that was not sent");
    seen
}

async fn compare(service: Service, response: &[u8]) -> Seen {
    let limits: &[u64] = if service == Service::Stalls { &STALL_LIMITS_MS } else { &[10_000] };
    for limit_ms in limits {
        let limit = Duration::from_millis(*limit_ms);
        let direct = ask(service, response, false, limit).await;
        let hyper = ask(service, response, true, limit).await;
        if direct == hyper {
            return hyper;
        }
        assert_ne!(Some(limit_ms), limits.last(), "{service:?}: direct {direct:?}, by hyper {hyper:?}");
    }
    unreachable!("the last limit decides")
}

#[test]
fn fuzz_upstream_response() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let responses = [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nLocation: /a\r\nContent-Length: 1\r\n\r\n1",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end",
        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\nX: \u{ff}\r\n folded\r\n\r\nok",
    ];
    let words: &[&[u8]] = &[
        b"\r\n",
        b"\n",
        b"\r\n\r\n",
        b"Content-Length: ",
        b"Transfer-Encoding: ",
        b"chunked",
        b"HTTP/1.1 ",
        b"100 ",
        b"101 ",
        b"204 ",
        b"2",
        b"18446744073709551616",
        b", ",
        b" ",
        b":",
        b"\0",
        b"0\r\n\r\n",
        b"Connection: close",
    ];
    let mut seeds = Vec::new();
    for (number, service) in (0_u8..).zip(Service::ALL) {
        // Every stall costs its limit.
        let count = if service == Service::Stalls { 2 } else { responses.len() };
        seeds.extend(responses[..count].iter().map(|response| {
            let bytes = response.chars().map(|each| each as u8);
            [number].into_iter().chain(bytes).collect::<Vec<_>>()
        }));
    }
    onceward_fuzz::Fuzz::new("upstream_response").with_seeds(seeds).with_words(words).run(|input| {
        let (service, response) = Service::of(input);
        let seen = runtime.block_on(compare(service, response));
        let text: String = format!("{seen:?}").chars().filter(|each| !each.is_ascii_digit()).collect();
        (service, text)
    });
}
