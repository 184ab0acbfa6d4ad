//! Intents that are settled while another call is about to send them: a settled request is not sent, and a request
//! that is sent stays in the journal until it has its answer. So one name is never two requests.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use onceward::Store;
use onceward_client::{Client, ErrorKind, Request, SettleIntent};

use crate::journal::{HOUR_US, ManualClock, hasty};
use crate::name_conflicts::open;
use crate::server::{Came, Fault, Server};
use crate::staged_store::StagedStore;

/// A client that gives up after one failure.
fn client(store: Arc<dyn Store>) -> Client {
    client_at(1000, store)
}

fn client_at(hour: u64, store: Arc<dyn Store>) -> Client {
    let clock = ManualClock(Arc::new(AtomicU64::new(hour * HOUR_US)));
    crate::builder()
        .with_retry_config(hasty())
        .with_journal_store(store)
        .with_clock(Arc::new(clock))
        .build()
        .unwrap()
}

/// Requests for different things, all under one name.
fn asks_for(client: &Client, server: &Server, what: &str) -> Request {
    client.post(&server.url).json(&serde_json::json!({ "intent": what })).intent("order-7")
}

/// The server has forgotten the key of the first one; whatever comes first after that takes effect, and
/// its answer is lost.
async fn forgetful() -> Server {
    Server::start(|came: &Came| match (&*came.intent, came.before) {
        ("first", 0) => Fault::KeyExpired,
        ("first", 1) | ("second", 0) => Fault::DropAfterEffect,
        _ => Fault::None,
    })
    .await
}

#[tokio::test]
async fn a_request_that_is_being_settled_is_not_sent() {
    let folder = tempfile::tempdir().unwrap();
    let (server, store) = (forgetful().await, open(folder.path()).await);
    // Unknown, although the journal's clock says nothing against sending it again.
    let first = client(store.clone());
    let error = asks_for(&first, &server, "first").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    let slow = StagedStore::over(&store).holding_a_removal().ready();
    let settling = client(slow.clone());
    let settling = tokio::spawn(async move { settling.settle("order-7", SettleIntent::NotDone).await });
    slow.at_gate().await;
    let meanwhile = asks_for(&first, &server, "first").send().await;
    slow.open_gate();
    settling.await.unwrap().unwrap();

    let later = asks_for(&client(store), &server, "second");
    later.send().await.unwrap_err();
    let effects = ["first", "second"].map(|what| server.intent(what).effects);
    assert_eq!(effects, [0, 1], "one name, one request");
    let error = meanwhile.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "it was not settled yet: {error}");
}

/// An intent that is open: it was given up after one try.
async fn given_up(store: &Arc<dyn Store>) -> (Server, Client) {
    let server = Server::start(|came: &Came| match came.before {
        0 if came.intent == "first" => Fault::DropBeforeEffect,
        _ => Fault::None,
    })
    .await;
    let client = client(store.clone());
    let error = asks_for(&client, &server, "first").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GaveUp, "{error}");
    (server, client)
}

#[tokio::test]
async fn a_resumption_that_looked_before_a_settlement_sends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let (server, client) = given_up(&store).await;
    let slow = StagedStore::over(&store).holding_a_claim().ready();
    let resuming = client_at(1000, slow.clone());
    let resuming = tokio::spawn(async move { resuming.resume().await });
    slow.at_gate().await;
    // A day later the intent is settled, and the name is used for another request.
    client_at(1024, store.clone()).settle("order-7", SettleIntent::NotDone).await.unwrap();
    let answer = asks_for(&client, &server, "second").send().await.unwrap();
    assert_eq!(&*answer.text(), "effect 0 of second");
    slow.open_gate();
    assert!(resuming.await.unwrap().unwrap().is_empty(), "what it had found is there no more");
    assert_eq!(server.intent("first").numbers.len(), 1, "and it was not sent again");
}

/// While the claim of a dropped call is being released, the name still belongs to the open request.
#[tokio::test]
async fn a_claim_that_is_given_back_leaves_no_gap_for_another_request() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let (server, _client) = given_up(&store).await;
    let slow = StagedStore::over(&store).holding_a_claim_reply().ready();
    let gone = client(slow.clone());
    let call = tokio::spawn(asks_for(&gone, &server, "first").send());
    slow.at_gate().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let error = asks_for(&gone, &server, "second").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IntentReused, "{error}");
    slow.open_gate();
    let answer = asks_for(&gone, &server, "first").send().await.unwrap();
    assert_eq!(&*answer.text(), "effect 0 of first");
    assert_eq!(server.intent("first").keys.len(), 1, "under the key of its first try");
    assert_eq!(server.intent("second").numbers.len(), 0);
}
