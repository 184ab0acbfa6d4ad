//! Requests that are taken away from the journal while somebody is about to send them: what is taken away
//! is not sent, and what is sent stays until it has its answer. So one name is never two requests.

use std::sync::Arc;

use onceward::{Id, Seen, Store, Swap};
use onceward_http::client::{Client, ErrorKind, Request, Settlement, Source};

use crate::journal::hasty;
use crate::server::{Came, Fault, Server};
use crate::staged::{REQUESTS, Staged};
use crate::stranded::open;

/// A client that gives up after one failure.
fn client(store: Arc<dyn Store>) -> Client {
    crate::builder().terms(hasty()).journal_in(store).build().unwrap()
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

/// An intent that is unknown although the journal's clock says nothing against sending it again.
async fn unknown(store: &Arc<dyn Store>, server: &Server) -> Client {
    let client = client(store.clone());
    let error = asks_for(&client, server, "first").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    client
}

#[tokio::test]
async fn what_a_settlement_takes_away_is_not_sent_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let (server, store) = (forgetful().await, open(folder.path()).await);
    let first = unknown(&store, &server).await;
    let slow = Staged::over(&store).holding_removals().ready();
    let settling = client(slow.clone());
    let settling = tokio::spawn(async move { settling.settle("order-7", Settlement::NotDone).await });
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

#[tokio::test]
async fn who_is_about_to_be_refused_hears_that_a_resumption_has_sent_it() {
    let folder = tempfile::tempdir().unwrap();
    let (server, store) = (forgetful().await, open(folder.path()).await);
    let first = unknown(&store, &server).await;
    // As a settlement leaves it that dies half-way.
    let id = Id::from_columns("client", REQUESTS, "order-7").unwrap();
    let version = store.load(std::slice::from_ref(&id)).await.unwrap()[0].as_ref().unwrap().version;
    store.swap(&[Swap { id, seen: Seen::Version(version), new: None }]).await.unwrap();

    // Another request comes to lie in the journal beside the unknown one, and is about to be taken away.
    let slow = Staged::over(&store).early().holding_removals().ready();
    let refused = tokio::spawn(asks_for(&client(slow.clone()), &server, "second").send());
    slow.at_gate().await;
    first.settle("order-7", Settlement::NotDone).await.unwrap();
    let resumed = client(store.clone()).resume().await.unwrap();
    assert_eq!(resumed[0].result.as_ref().unwrap_err().kind(), ErrorKind::GaveUp, "its answer was lost");
    slow.open_gate();

    let answer = refused.await.unwrap().expect("it was sent, so it is not refused");
    assert_eq!((&*answer.text(), answer.report().source), ("effect 0 of second", Source::Replay));
    let third = asks_for(&first, &server, "third").send().await.unwrap_err();
    assert_eq!(third.kind(), ErrorKind::IntentReused, "{third}");
    assert_eq!(server.intent("second").effects + server.intent("third").effects, 1);
}
