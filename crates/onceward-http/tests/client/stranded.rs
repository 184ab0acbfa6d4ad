//! Two different requests under one name at the same moment: one of them comes to lie in the journal
//! although its claim was lost by a moment. Exactly one of the two is ever sent, and whoever is told that
//! nothing was sent is told the truth, also when the process dies.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onceward::{Id, Result, Store};
use onceward_http::client::{Answer, Client, ErrorKind, Source};
use tokio::task::JoinHandle;

use crate::journal::body;
use crate::schedules::patient;
use crate::server::{Fault, Server};
use crate::staged::{REQUESTS, Staged};

pub async fn open(folder: &Path) -> Arc<dyn Store> {
    onceward_stores::open(&format!("embedded:{}", folder.display())).await.unwrap()
}

fn client(store: Arc<dyn Store>) -> Client {
    crate::builder().terms(patient()).journal_in(store).build().unwrap()
}

#[tokio::test]
async fn beside_an_answer_it_is_taken_away_and_the_answer_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::None).await;
    let store = open(folder.path()).await;
    let first = client(store.clone());
    first.post(&server.url).json(&body()).intent("order-7").send().await.unwrap();
    first.recorded().await;

    let second = client(Staged::over(&store).early().ready());
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
    let store = open(folder.path()).await;
    let first = client(store.clone());
    first.post(&server.url).json(&body()).intent("order-7").send().await.unwrap();
    first.recorded().await;

    let second = client(Staged::over(&store).early().ready());
    let other = second.put(&server.url).json(&body()).intent("order-7").send().await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::IntentReused, "{other}");
    assert!(first.resume().await.unwrap().is_empty(), "no request is left by the time it is refused");
    assert_eq!(server.world().requests, 1, "the refused request was never sent");
}

type Call = JoinHandle<Result<Answer, onceward_http::client::Error>>;

/// The claim is the first one's, a `POST`; the request in the journal is the second one's, a `PUT`.
async fn race(
    server: &Server,
    first: &Arc<Staged>,
    second: &Arc<Staged>,
    store: &Arc<dyn Store>,
) -> (Call, Call) {
    let there = async |operation: &str| {
        let id = Id::from_columns("client", operation, "order-7").unwrap();
        while store.load(std::slice::from_ref(&id)).await.unwrap()[0].is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let post = client(first.clone()).post(&server.url).json(&body()).intent("order-7");
    let post = tokio::spawn(post.send());
    there("send").await;
    let put = client(second.clone()).put(&server.url).json(&body()).intent("order-7");
    let put = tokio::spawn(put.send());
    there(REQUESTS).await;
    (post, put)
}

#[tokio::test]
async fn whose_request_lies_in_the_journal_is_sent_and_the_other_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::None).await;
    let store = open(folder.path()).await;
    let (first, second) = (Staged::over(&store).holding_puts().ready(), Staged::over(&store).early().ready());
    let (post, put) = race(&server, &first, &second, &store).await;
    first.open_gate();
    let refused = post.await.unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::IntentReused, "{refused}");
    let answer = put.await.unwrap().unwrap();
    assert_eq!((&*answer.text(), answer.report().source), ("effect 0 of i", Source::Server));
    assert_eq!(server.world().requests, 1);
    let third = client(store);
    let again = third.put(&server.url).json(&body()).intent("order-7").send().await.unwrap();
    assert_eq!(again.report().source, Source::Journal, "the name is the one's that was sent");
}

#[tokio::test]
async fn who_dies_with_a_claim_and_no_request_is_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::None).await;
    let store = open(folder.path()).await;
    let (first, second) = (Staged::over(&store).holding_puts().ready(), Staged::over(&store).early().ready());
    let (post, put) = race(&server, &first, &second, &store).await;
    first.die();
    second.die();
    // Nobody has been told anything, so whichever is sent is the right one.
    let calls = [post, put];
    // Both at once: neither may still see the other's end.
    calls.iter().for_each(JoinHandle::abort);
    for call in calls {
        assert!(call.await.unwrap_err().is_cancelled());
    }
    let left = Arc::downgrade(&store);
    drop((first, second, store));
    // What the engines had under way ends first, as it would with the process.
    let ended = async {
        while left.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("somebody keeps the journal open");

    let later = client(open(folder.path()).await);
    let resumed = later.resume().await.unwrap();
    assert_eq!(&*resumed[0].result.as_ref().unwrap().text(), "effect 0 of i");
    assert!(later.resume().await.unwrap().is_empty(), "nothing is open any more");
    let again = later.put(&server.url).json(&body()).intent("order-7").send().await.unwrap();
    assert_eq!(again.report().source, Source::Journal, "it was the one in the journal");
    let refused = later.post(&server.url).json(&body()).intent("order-7").send().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::IntentReused, "{refused}");
    assert_eq!(server.world().requests, 1);
}
