//! What the HTTP layer costs in process, over the bare handler: the memory store, one caller, no socket.

#![expect(clippy::cast_precision_loss, reason = "a benchmark prints a few digits")]

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use onceward_http::{KeyRule, OncewardLayer, OncewardService, Route};
use tower_layer::Layer;
use tower_service::Service;

use crate::engine::engine;
use crate::table::{Table, median};

const ROUNDS: usize = 7;

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

pub fn guarded() -> OncewardService<Handler> {
    OncewardLayer::new(engine(), [7; 32], Route::default().key(KeyRule::Optional)).layer(Handler)
}

pub fn request(key: Option<&str>) -> Request<Full<Bytes>> {
    let body = Full::new(Bytes::from_static(br#"{"account":"acc_1","amount":1200,"currency":"EUR"}"#));
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

pub fn run(calls: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // On a worker, as in a server: the guarded work is a task of its own there.
    runtime.block_on(async { tokio::spawn(measure(calls)).await.unwrap() });
}

async fn measure(calls: usize) {
    let table = Table::start("HTTP layer over the memory store, in process, one caller");
    let mut service = guarded();
    let (mut bare, mut keyless, mut first, mut replay) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let bare_nanos = nanos(calls, |_| send(&mut Handler, request(None))).await;
        let keyless_nanos = nanos(calls, |_| send(&mut service, request(None))).await;
        let first_nanos =
            nanos(calls, |at| send(&mut service, request(Some(&format!("k{round}-{at}"))))).await;
        let replay_nanos = nanos(calls, |_| send(&mut service, request(Some("k0-1")))).await;
        // The first round fills the tables.
        if round > 0 {
            bare.push(bare_nanos);
            keyless.push(keyless_nanos);
            first.push(first_nanos);
            replay.push(replay_nanos);
        }
    }
    let bare = median(bare);
    let over = |series| median(series) - bare;
    let (keyless, first, replay) = (over(keyless), over(first), over(replay));
    table.row("bare handler, request and answer", &format!("{bare:.0} ns"), "", None);
    table.row("first run over it", &format!("{first:.0} ns"), "< 3000 ns", Some(first < 3_000.0));
    table.row("replay over it", &format!("{replay:.0} ns"), "", None);
    table.row("without a key over it", &format!("{keyless:.0} ns"), "< 50 ns", Some(keyless < 50.0));
}

async fn nanos<F: Future<Output = ()>>(calls: usize, mut call: impl FnMut(usize) -> F) -> f64 {
    let start = Instant::now();
    for at in 0..calls {
        call(at).await;
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}
