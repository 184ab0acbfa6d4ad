//! Futures that are dropped at any point: nothing runs twice, and nothing is held for longer than a lease.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use onceward::receipt::Status;
use onceward::{Id, Onceward};
use onceward_http::{OncewardLayer, OncewardService, ResponseFuture, Route, ScopeFrom};
use onceward_stores::MemoryStore;
use tokio::sync::Semaphore;
use tower_layer::Layer;
use tower_service::Service;

/// A service that works until it is let go on.
#[derive(Clone)]
struct Slow {
    begun: Arc<Semaphore>,
    go_on: Arc<Semaphore>,
}

impl Service<Request<Full<Bytes>>> for Slow {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        let slow = self.clone();
        Box::pin(async move {
            slow.begun.add_permits(1);
            slow.go_on.acquire().await.unwrap().forget();
            Ok(Response::new(Full::from("done")))
        })
    }
}

struct Scene {
    onceward: Onceward,
    service: OncewardService<Slow>,
    slow: Slow,
}

impl Scene {
    fn new() -> Self {
        let onceward = Onceward::builder(Arc::new(MemoryStore::new())).accept_volatile().build().unwrap();
        let slow = Slow { begun: Arc::new(Semaphore::new(0)), go_on: Arc::new(Semaphore::new(0)) };
        let route = Route::builder().with_scope(ScopeFrom::Shared).build().unwrap();
        let service = OncewardLayer::new(onceward.clone(), [7; 32], route).layer(slow.clone());
        Self { onceward, service, slow }
    }

    fn post(&mut self) -> ResponseFuture<Slow, Full<Bytes>, Full<Bytes>> {
        let request = Request::post("/charges").header("idempotency-key", "k");
        self.service.call(request.body(Full::from("{}")).unwrap())
    }

    /// What the receipt says, once it is no longer held.
    async fn ending(&self) -> Option<Status> {
        let id = Id::new("shared", "POST /charges", "k").unwrap();
        let ended = async {
            loop {
                match self.onceward.receipt(&id).await.unwrap().map(|receipt| receipt.status) {
                    Some(Status::Held(_)) => tokio::time::sleep(Duration::from_millis(2)).await,
                    ended => return ended,
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the receipt is held forever")
    }
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_the_work_to_a_task() {
    let mut scene = Scene::new();
    let mut future = Box::pin(scene.post());
    assert!(poll_once(future.as_mut()).is_pending());
    assert_eq!(scene.slow.begun.available_permits(), 1, "it runs in the caller's own task");
    drop(future);
    scene.slow.go_on.add_permits(1);
    assert!(matches!(scene.ending().await, Some(Status::Done(_))));
}

#[tokio::test]
async fn a_caller_that_panics_leaves_the_work_to_a_task() {
    let mut scene = Scene::new();
    let mut future = Box::pin(scene.post());
    let panicked = tokio::spawn(async move {
        assert!(poll_once(future.as_mut()).is_pending());
        let _held = future;
        panic!("a bug of the caller");
    });
    assert!(panicked.await.unwrap_err().is_panic());
    scene.slow.go_on.add_permits(1);
    assert!(matches!(scene.ending().await, Some(Status::Done(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_outside_of_the_runtime_leaves_it_to_the_runtime_of_the_engine() {
    let mut scene = Scene::new();
    let mut future = Box::pin(scene.post());
    assert!(poll_once(future.as_mut()).is_pending());
    std::thread::spawn(move || drop(future)).join().unwrap();
    scene.slow.go_on.add_permits(1);
    assert!(matches!(scene.ending().await, Some(Status::Done(_))));
}

/// The work ends with the runtime, and its outcome is unknown.
#[test]
fn a_runtime_that_ends_takes_the_work_with_it_and_nothing_runs_again() {
    for threads in [1, 2] {
        let mut scene = Scene::new();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
        let runtime = runtime.unwrap();
        let future = scene.post();
        runtime.spawn(future);
        let begun = scene.slow.begun.clone();
        runtime.block_on(async move { begun.acquire().await.unwrap().forget() });
        drop(runtime);
        let after = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        after.block_on(async {
            let id = Id::new("shared", "POST /charges", "k").unwrap();
            let status = scene.onceward.receipt(&id).await.unwrap().expect("the claim stands").status;
            assert!(matches!(status, Status::Held(_) | Status::Unknown(_)), "{status:?}");
        });
        assert_eq!(scene.slow.begun.available_permits(), 0, "it was not run again");
    }
}

/// Before the body has arrived, nothing is claimed.
#[tokio::test]
async fn a_caller_that_goes_away_while_it_sends_leaves_nothing() {
    let mut scene = Scene::new();
    drop(scene.post());
    assert!(scene.ending().await.is_none());
    assert_eq!(scene.slow.begun.available_permits(), 0);
}
