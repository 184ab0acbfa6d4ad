//! Tests of the health checks over a store with faults.

use axum::body::to_bytes;
use onceward::{Caps, Choose, Loaded, Page, Scan, State, Store, StoreFuture, Swap, Swapped, Watch};
use onceward_stores::MemoryStore;
use serde_json::Value;
use tokio::net::TcpListener;

use super::*;

/// A store with a chosen fault.
enum FaultyStore {
    Fails,
    NeverAnswers,
    /// Reads still work.
    IsFull,
}

impl Store for FaultyStore {
    fn swap<'a>(&'a self, _: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        Box::pin(async {
            match self {
                Self::IsFull => Err(Error::new(ErrorKind::Full, "no space left on /data")),
                Self::Fails => Err(Error::new(ErrorKind::Unavailable, "cannot reach db.internal")),
                Self::NeverAnswers => std::future::pending().await,
            }
        })
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        Box::pin(async {
            match self {
                Self::Fails => Err(Error::new(ErrorKind::Unavailable, "cannot reach db.internal")),
                Self::NeverAnswers => std::future::pending().await,
                Self::IsFull => Ok(ids.iter().map(|_| Ok(None)).collect()),
            }
        })
    }

    fn scan<'a>(&'a self, _: &'a Scan) -> StoreFuture<'a, Page> {
        Box::pin(async { Ok(Page::default()) })
    }

    fn take<'a>(&'a self, _: State, _: usize, _: Choose<'a>) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        None
    }

    fn watch(&self) -> Option<Watch> {
        None
    }

    fn caps(&self) -> Caps {
        MemoryStore::new().caps()
    }
}

async fn ask(store: Arc<dyn Store>, readiness: Readiness) -> (u16, Value) {
    let onceward = Onceward::builder(store).accept_volatile().build().unwrap();
    let answer = readyz(State(Arc::new(Admin::new(onceward).with_readiness(readiness)))).await;
    let status = answer.status().as_u16();
    let body = to_bytes(answer.into_body(), 4096).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn ready_when_the_store_answers() {
    let (status, body) = ask(Arc::new(MemoryStore::new()), Readiness::new()).await;
    assert_eq!((status, &body["ready"], &body["store"]), (200, &true.into(), &"ready".into()));
}

#[tokio::test]
async fn not_ready_while_draining() {
    let readiness = Readiness::new();
    readiness.drain();
    let (status, body) = ask(Arc::new(MemoryStore::new()), readiness).await;
    assert_eq!((status, &body["draining"], &body["store"]), (503, &true.into(), &"ready".into()));
}

#[tokio::test]
async fn not_ready_when_the_store_fails_or_hangs() {
    let (status, body) = ask(Arc::new(FaultyStore::Fails), Readiness::new()).await;
    assert_eq!((status, &body["store"]), (503, &"not ready: cannot be reached".into()));
    let (status, body) = ask(Arc::new(FaultyStore::NeverAnswers), Readiness::new()).await;
    assert_eq!((status, &body["store"]), (503, &"not ready: no answer within 1s".into()));
}

#[tokio::test]
async fn not_ready_when_the_store_reads_and_does_not_write() {
    let (status, body) = ask(Arc::new(FaultyStore::IsFull), Readiness::new()).await;
    assert_eq!((status, &body["store"]), (503, &"not ready: has no room left".into()));
}

#[tokio::test]
async fn a_probe_leaves_nothing_behind() {
    let store = MemoryStore::new();
    let onceward = Onceward::builder(Arc::new(store.clone())).accept_volatile().build().unwrap();
    let readiness = Readiness::new();
    assert!(readiness.parts(&onceward).await.store.is_ok());
    let page = store.scan(&Scan::new(onceward::ScanTarget::Matching(onceward::Filter::default()), 10)).await;
    assert!(page.unwrap().found.is_empty());
}

#[tokio::test]
async fn not_ready_while_the_upstream_is_away() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (status, body) = ask(Arc::new(MemoryStore::new()), Readiness::new().with_upstream(&address)).await;
    assert_eq!((status, &body["upstream"]), (200, &"ready".into()));
    drop(listener);
    let (status, body) = ask(Arc::new(MemoryStore::new()), Readiness::new().with_upstream(&address)).await;
    assert_eq!((status, &body["store"]), (503, &"ready".into()));
    assert!(body["upstream"].as_str().unwrap().starts_with("not ready"), "{body}");
}
