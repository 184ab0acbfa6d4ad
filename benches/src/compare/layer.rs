//! Measures the cost of the HTTP layer over the bare handler, in process: the memory store, one caller, no socket.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use onceward_http::{
    KeyRule, OnSameRequest, OncewardLayer, OncewardService, Route, RouteBuilder, SameRequest,
};
use tokio::runtime::Runtime;
use tower_layer::Layer;
use tower_service::Service;

use super::engine::engine;
use crate::load::{runtime, touch_memory};
use crate::process::Missing;
use crate::report::{Findings, Goal, Row, Unit};
use crate::scale::Scale;
use crate::turns::{Turn, Turns};

/// A handler that answers a small JSON document.
#[derive(Clone)]
pub struct Handler;

impl Service<Request<Full<Bytes>>> for Handler {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        black_box(request);
        let body =
            Full::new(Bytes::from_static(br#"{"id":"ch_1","amount":1200,"currency":"EUR","status":"paid"}"#));
        std::future::ready(Ok(Response::builder()
            .header("content-type", "application/json")
            .body(body)
            .unwrap()))
    }
}

/// The handler behind the layer.
pub fn guarded() -> OncewardService<Handler> {
    behind(Route::builder())
}

/// The same, with a record of every request that runs.
pub fn guarded_with_record(on_found: OnSameRequest) -> OncewardService<Handler> {
    let rule = SameRequest::within(Duration::from_secs(30)).with_on_found(on_found);
    behind(Route::builder().with_same_request(rule))
}

fn behind(route: RouteBuilder) -> OncewardService<Handler> {
    OncewardLayer::new(engine(), [7; 32], route.with_key(KeyRule::Optional).build().unwrap()).layer(Handler)
}

/// A small JSON request, with or without a key.
pub fn request(key: Option<&str>) -> Request<Full<Bytes>> {
    with_body(key, Bytes::from_static(br#"{"account":"acc_1","amount":1200,"currency":"EUR"}"#))
}

/// The same with an amount of its own: another request, not only another key.
pub fn distinct_request(key: &str, amount: usize) -> Request<Full<Bytes>> {
    let body = format!(r#"{{"account":"acc_1","amount":{amount},"currency":"EUR"}}"#);
    with_body(Some(key), body.into())
}

fn with_body(key: Option<&str>, body: Bytes) -> Request<Full<Bytes>> {
    let body = Full::new(body);
    let request =
        Request::builder().method("POST").uri("/charges").header("content-type", "application/json");
    let request = match key {
        Some(key) => request.header("idempotency-key", key),
        None => request,
    };
    request.body(body).unwrap()
}

/// Sends a request through a service and reads the whole answer.
pub fn send<S, B>(service: &mut S, request: Request<Full<Bytes>>) -> impl Future<Output = ()> + use<S, B>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>>,
    B: http_body::Body,
{
    read(service.call(request))
}

async fn read<B: http_body::Body, E>(answer: impl Future<Output = Result<Response<B>, E>>) {
    let Ok(response) = answer.await else { panic!("the handler does not fail") };
    let Ok(body) = response.into_body().collect().await else { panic!("the body does not fail") };
    black_box(body.to_bytes());
}

/// Measures nanoseconds of a first run, a replay and a request without a key.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    touch_memory();
    let (runtime, calls) = (runtime(), scale.calls);
    let service = runtime.block_on(async { guarded() });
    let through_layer = |key: Key, round| on_worker(&runtime, nanos(service.clone(), calls, key, round));
    let to_handler = |key: Key, round| on_worker(&runtime, nanos(Handler, calls, key, round));
    let own: Key = |round, at| Some(format!("k{round}-{at}"));
    // The bare handler is sent the same requests, with a key or without: keys are the client's to make.
    let turns = Turns::new(scale.rounds, Unit::Nanoseconds).after_warm_up();
    let [first, replay, keyless, bare, bare_keyless] = turns.take([
        ("first run", &mut |round| through_layer(own, round)),
        ("replay", &mut |round| through_layer(|round, _| Some(format!("k{round}-0")), round)),
        ("no key", &mut |round| through_layer(|_, _| None, round)),
        ("bare handler", &mut |round| to_handler(own, round)),
        ("bare handler, no key", &mut |round| to_handler(|_, _| None, round)),
    ]);
    let rows = vec![
        Row::excess("first run over the bare handler", Unit::Nanoseconds, &first, &bare)
            .goal(Goal::Below(2_500.0)),
        Row::excess("replay over the bare handler", Unit::Nanoseconds, &replay, &bare),
        Row::excess("no key over the bare handler", Unit::Nanoseconds, &keyless, &bare_keyless)
            .goal(Goal::Below(50.0)),
    ];
    Ok(Findings { rows, ..Findings::default() })
}

/// The key of a call, by its round and its number.
type Key = fn(usize, usize) -> Option<String>;

/// Runs it on a worker, as a server would.
fn on_worker(runtime: &Runtime, task: impl Future<Output = f64> + Send + 'static) -> Turn {
    runtime.block_on(runtime.spawn(task)).unwrap().into()
}

/// Nanoseconds of one call, averaged over `calls` calls in a row.
async fn nanos<S, B>(mut service: S, calls: usize, key: Key, round: usize) -> f64
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>>,
    B: http_body::Body,
{
    let start = Instant::now();
    for at in 0..calls {
        send(&mut service, request(key(round, at).as_deref())).await;
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}
