//! Tests of the retry layer around a scripted service, under a paused clock.

use std::collections::VecDeque;
use std::future::{Ready, ready};
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use http::Method;

use super::super::{BreakerConfig, BudgetConfig, CallReport, ErrorKind};
use super::*;
use onceward_http::problem::Problem;

/// What the service under the layer does with a try.
enum ScriptedReply {
    Answer(Response<Full<Bytes>>),
    Break(io::ErrorKind),
}

/// A service that gives one reply after the other and remembers what it was sent.
#[derive(Clone, Default)]
struct Script {
    replies: Arc<Mutex<VecDeque<ScriptedReply>>>,
    sent: Arc<Mutex<Vec<(String, String, Bytes)>>>,
}

impl Service<Request<Full<Bytes>>> for Script {
    type Response = Response<Full<Bytes>>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let field =
            |name| request.headers().get(name).map(|value: &HeaderValue| value.to_str().unwrap().to_owned());
        let (key, number) = (field(IDEMPOTENCY_KEY).unwrap_or_default(), field(TRY_NUMBER).unwrap());
        let body = request.body().clone();
        let mut sent = self.sent.lock().unwrap();
        sent.push((key, number, bytes_of(body)));
        ready(match self.replies.lock().unwrap().pop_front().unwrap() {
            ScriptedReply::Answer(response) => Ok(response),
            ScriptedReply::Break(kind) => Err(kind.into()),
        })
    }
}

/// The bytes of a body that is all there.
fn bytes_of(body: Full<Bytes>) -> Bytes {
    let mut body = std::pin::pin!(body);
    match body.as_mut().poll_frame(&mut Context::from_waker(std::task::Waker::noop())) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap(),
        _ => Bytes::new(),
    }
}

fn status(status: u16) -> ScriptedReply {
    ScriptedReply::Answer(Response::builder().status(status).body(Full::from("said")).unwrap())
}

fn problem(problem: Problem) -> ScriptedReply {
    let status = problem.status();
    ScriptedReply::Answer(problem.into_response(status).map(Full::new))
}

/// What a request comes to under a script.
async fn send(
    method: Method,
    replies: Vec<ScriptedReply>,
) -> (Script, Result<Response<ReplyBody<Full<Bytes>>>, BoxError>) {
    let script = Script::default();
    script.replies.lock().unwrap().extend(replies);
    let config = RetryConfig::default().with_budget(BudgetConfig::UNLIMITED).with_breaker(BreakerConfig::OFF);
    let layer = RetryLayer::builder().with_retry_config(config).with_request_bytes_max(10).build().unwrap();
    let mut service = layer.layer(script.clone());
    let request =
        Request::builder().method(method).uri("http://pay.example/").body(Full::<Bytes>::from("charge"));
    (script.clone(), service.call(request.unwrap()).await)
}

#[tokio::test(start_paused = true)]
async fn every_try_is_the_same_but_for_its_number() {
    let (script, answer) = send(
        Method::POST,
        vec![status(503), ScriptedReply::Break(io::ErrorKind::ConnectionReset), status(429), status(201)],
    )
    .await;
    let answer = answer.unwrap();
    assert_eq!((answer.status().as_u16(), answer.extensions().get::<CallReport>().unwrap().tries), (201, 4));
    let sent = script.sent.lock().unwrap();
    assert!(sent.iter().all(|(key, _, body)| *key == sent[0].0 && key.len() == 38 && body == "charge"));
    let numbers: Vec<&str> = sent.iter().map(|(_, number, _)| number.as_str()).collect();
    assert_eq!(numbers, ["1", "2", "3", "4"]);
}

#[tokio::test(start_paused = true)]
async fn a_first_one_that_is_still_running_is_waited_out() {
    let began = tokio::time::Instant::now();
    let running = || problem(Problem::InProgress { retry_after: Duration::from_secs(7) });
    let (_, answer) = send(Method::POST, vec![running(), running(), status(200)]).await;
    assert_eq!(answer.unwrap().status().as_u16(), 200);
    assert!(began.elapsed() >= Duration::from_secs(14), "as long as it was told to");
}

#[tokio::test(start_paused = true)]
async fn a_problem_that_is_final_is_handed_on_whole() {
    let (script, answer) = send(Method::POST, vec![problem(Problem::KeyReused)]).await;
    let answer = answer.unwrap();
    assert_eq!(answer.status().as_u16(), 422);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("key-reused"), "what was looked at is still there");
    assert_eq!(script.sent.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_last_answer_is_given_where_tries_run_out() {
    let (script, answer) = send(Method::POST, (0..10).map(|_| status(500)).collect()).await;
    assert_eq!(answer.unwrap().status().as_u16(), 500);
    assert_eq!(script.sent.lock().unwrap().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn an_error_says_whether_anything_left() {
    for (kind, effect) in [
        (io::ErrorKind::ConnectionRefused, onceward::Effect::None),
        (io::ErrorKind::ConnectionReset, onceward::Effect::Maybe),
    ] {
        let (_, answer) = send(Method::POST, (0..10).map(|_| ScriptedReply::Break(kind)).collect()).await;
        let error = answer.unwrap_err().downcast::<Error>().unwrap();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::GaveUp, effect), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_get_has_no_key_and_a_large_body_is_not_sent() {
    let (script, answer) = send(Method::GET, vec![status(500), status(200)]).await;
    assert_eq!(answer.unwrap().status().as_u16(), 200);
    assert!(script.sent.lock().unwrap().iter().all(|(key, _, _)| key.is_empty()));

    let mut service = RetryLayer::builder().with_request_bytes_max(10).build().unwrap().layer(script.clone());
    let error = service.call(Request::new(Full::<Bytes>::from("eleven bytes"))).await.unwrap_err();
    assert!(error.to_string().contains("over 10 bytes"), "{error}");
    assert_eq!(script.sent.lock().unwrap().len(), 2);
}

/// A single call that fails again and again: the budget delays it, and only its deadline ends it.
#[tokio::test(start_paused = true)]
async fn a_budget_delays_a_single_call_until_it_succeeds_or_its_time_is_up() {
    let began = tokio::time::Instant::now();
    let layer = RetryLayer::builder().build().unwrap();
    let request = || Request::post("http://pay.example/").body(Full::<Bytes>::from("charge")).unwrap();
    let script = Script::default();
    script.replies.lock().unwrap().extend((0..7).map(|_| status(503)).chain([status(201)]));
    let answer = layer.layer(script.clone()).call(request()).await.unwrap();
    assert_eq!((answer.status().as_u16(), script.sent.lock().unwrap().len()), (201, 8));
    assert!(
        began.elapsed() >= Duration::from_secs(20),
        "three retries in ten seconds: {:?}",
        began.elapsed()
    );

    let config = RetryConfig::default().with_tries_max(u32::MAX).with_call_at_most(Duration::from_secs(60));
    let layer = RetryLayer::builder().with_retry_config(config).build().unwrap();
    let script = Script::default();
    script.replies.lock().unwrap().extend((0..100).map(|_| status(503)));
    let began = tokio::time::Instant::now();
    let answer = layer.layer(script.clone()).call(request()).await.unwrap();
    assert_eq!(answer.status().as_u16(), 503, "the last one");
    let (took, tries) = (began.elapsed(), script.sent.lock().unwrap().len());
    assert!(
        took > Duration::from_secs(35) && took <= Duration::from_secs(60),
        "not given up early: {took:?}"
    );
    assert!((8..=22).contains(&tries), "three retries in ten seconds: {tries}");
}
