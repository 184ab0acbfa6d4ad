//! A request that rode with a claim which lost after all, by a moment: it must not lie there for ever,
//! and nobody may ever send it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onceward::{Caps, Found, Fut, Id, Page, Scan, Store, Swap, Swapped};
use onceward_http::client::{Client, ErrorKind, Source};

use crate::journal::body;
use crate::schedules::patient;
use crate::server::{Fault, Server};

/// Finds no receipt at its first look, as if that had been written a moment later.
struct Early(Arc<dyn Store>, AtomicBool);

impl Early {
    fn over(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self(store, AtomicBool::new(true)))
    }
}

impl Store for Early {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> Fut<'a, Vec<Swapped>> {
        self.0.swap(batch)
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> Fut<'a, Vec<Option<Found>>> {
        if self.1.swap(false, Ordering::SeqCst) {
            return Box::pin(async { Ok(vec![None; ids.len()]) });
        }
        self.0.load(ids)
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> Fut<'a, Page> {
        self.0.scan(query)
    }

    fn caps(&self) -> Caps {
        self.0.caps()
    }
}

fn client(store: Arc<dyn Store>) -> Client {
    crate::builder().terms(patient()).journal_in(store).build().unwrap()
}

#[tokio::test]
async fn beside_an_answer_it_is_taken_away_and_the_answer_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::None).await;
    let store = onceward_stores::open(&format!("embedded:{}", folder.path().display())).await.unwrap();
    let first = client(store.clone());
    first.post(&server.url).json(&body()).intent("order-7").send().await.unwrap();
    first.recorded().await;

    let second = client(Early::over(store));
    let again = second.post(&server.url).json(&body()).intent("order-7").send().await.unwrap();
    assert_eq!(again.report().source, Source::Journal);
    second.recorded().await;
    assert!(first.resume().await.unwrap().is_empty(), "no request is left");
    assert_eq!(server.world().requests, 1);
}

#[tokio::test]
async fn beside_another_request_it_is_refused_and_never_sent() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::None).await;
    let store = onceward_stores::open(&format!("embedded:{}", folder.path().display())).await.unwrap();
    let first = client(store.clone());
    first.post(&server.url).json(&body()).intent("order-7").send().await.unwrap();
    first.recorded().await;

    let second = client(Early::over(store));
    let other = second.put(&server.url).json(&body()).intent("order-7").send().await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::IntentReused, "{other}");
    second.recorded().await;
    assert!(first.resume().await.unwrap().is_empty(), "no request is left");
    assert_eq!(server.world().requests, 1, "the refused request was never sent");
}
