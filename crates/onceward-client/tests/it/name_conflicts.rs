//! Two different requests under one intent name at the same time: exactly one of them is ever sent. If a caller gets
//! the error that nothing was sent, that is true, also after a crash.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onceward::Store;
use onceward_client::{Client, ErrorKind, ReplySource};

use crate::journal::body;
use crate::schedules::patient;
use crate::server::{Came, Fault, Server};
use crate::staged_store::StagedStore;

pub async fn open(folder: &Path) -> Arc<dyn Store> {
    onceward_stores::open(&format!("embedded:{}", folder.display())).await.unwrap()
}

fn client(store: Arc<dyn Store>) -> Client {
    crate::builder().with_retry_config(patient()).with_journal_store(store).build().unwrap()
}

#[tokio::test]
async fn beside_an_answer_the_same_request_gets_it_and_another_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::None).await;
    let store = open(folder.path()).await;
    let first = client(store.clone());
    first.post(&server.url).json(&body()).intent("order-7").send().await.unwrap();
    first.recorded().await;

    let second = client(store);
    let again = second.post(&server.url).json(&body()).intent("order-7").send().await.unwrap();
    assert_eq!(again.report().source, ReplySource::Journal);
    let other = second.put(&server.url).json(&body()).intent("order-7").send().await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::IntentReused, "{other}");
    assert!(first.resume().await.unwrap().is_empty(), "nothing is open");
    assert_eq!(server.state().requests, 1, "the refused request was never sent");
}

#[tokio::test]
async fn the_request_that_is_claimed_first_is_sent_and_the_other_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::Delay(Duration::from_millis(100))).await;
    let store = open(folder.path()).await;
    let slow = StagedStore::over(&store).holding_a_claim().ready();
    let post = client(slow.clone()).post(&server.url).json(&body()).intent("order-7");
    let post = tokio::spawn(post.send());
    slow.at_gate().await;
    let put = client(store.clone()).put(&server.url).json(&body()).intent("order-7");
    let put = tokio::spawn(put.send());
    while server.state().requests == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // While the other one is being sent, and not only when it has its answer.
    slow.open_gate();
    let refused = post.await.unwrap().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::IntentReused, "{refused}");
    let answer = put.await.unwrap().unwrap();
    assert_eq!((&*answer.text(), answer.report().source), ("effect 0 of i", ReplySource::Server));
    assert_eq!(server.state().requests, 1);
    let again = client(store).put(&server.url).json(&body()).intent("order-7").send().await.unwrap();
    assert_eq!(again.report().source, ReplySource::Journal, "the name is the one's that was sent");
}

#[tokio::test]
async fn after_a_crash_the_name_belongs_to_the_request_in_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|came: &Came| match came.before {
        0 => Fault::Delay(Duration::from_hours(1)),
        _ => Fault::None,
    })
    .await;
    let store = open(folder.path()).await;
    let staged = StagedStore::over(&store).ready();
    let dying = client(staged.clone());
    let put = tokio::spawn(dying.put(&server.url).json(&body()).intent("order-7").send());
    while server.state().requests == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    staged.die();
    put.abort();
    assert!(put.await.unwrap_err().is_cancelled());
    let left = Arc::downgrade(&store);
    drop((staged, dying, store));
    // What the engine had under way ends first, as it would with the process.
    let ended = async {
        while left.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the journal is still open");

    let later = client(open(folder.path()).await);
    let refused = later.post(&server.url).json(&body()).intent("order-7").send().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::IntentReused, "{refused}");
    let resumed = later.resume().await.unwrap();
    assert_eq!(&*resumed[0].result.as_ref().unwrap().text(), "effect 0 of i");
    assert!(later.resume().await.unwrap().is_empty(), "nothing is open any more");
    let again = later.put(&server.url).json(&body()).intent("order-7").send().await.unwrap();
    assert_eq!(again.report().source, ReplySource::Journal, "it was the one in the journal");
    let intent = server.intent("i");
    assert_eq!((intent.numbers.len(), intent.keys.len()), (2, 1), "twice, under one key: {intent:?}");
}
