//! Settling intents whose outcome is unknown.

use bytes::Bytes;
use http::Response;
use onceward::Effect;
use onceward_client::{Client, ErrorKind, ReplySource, SettleIntent};

use crate::journal::{body, builder, hasty, open_until};
use crate::server::{Fault, Server};

/// An hour at which the server may have forgotten the key of [`open_until`].
const TOO_LATE: u64 = 1024;

fn paid() -> SettleIntent {
    SettleIntent::Done(Response::builder().status(201).body(Bytes::from_static(b"charge 1")).unwrap())
}

fn refused(result: Result<(), onceward_client::Error>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotUnknown, "{error}");
    error.to_string()
}

#[tokio::test]
async fn an_intent_settled_as_done_is_answered_from_the_journal() {
    let (server, client, _folder) = open_until(TOO_LATE).await;
    assert_eq!(client.resume().await.unwrap()[0].result.as_ref().unwrap_err().kind(), ErrorKind::Unknown);
    for _ in 0..2 {
        client.settle("order-7", paid()).await.unwrap();
    }
    let answer = client.post(&server.url).json(&body()).intent("order-7").send().await.unwrap();
    assert_eq!((answer.status().as_u16(), &*answer.text()), (201, "charge 1"));
    assert_eq!(answer.report().source, ReplySource::Journal);
    assert!(client.resume().await.unwrap().is_empty(), "nothing is open any more");
    assert_eq!(server.state().requests, 1, "and nothing was sent for it");
    let other = client.put(&server.url).json(&body()).intent("order-7").send().await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::IntentReused, "the name still means the request it meant");
    assert!(refused(client.settle("order-7", SettleIntent::NotDone).await).contains("it has an answer"));
}

/// Also before the unknown outcome is recorded: the clock alone shows that the key has expired.
#[tokio::test]
async fn an_intent_settled_as_not_done_is_a_new_intent_with_a_new_key() {
    for looked_before in [true, false] {
        let (server, client, _folder) = open_until(TOO_LATE).await;
        if looked_before {
            client.resume().await.unwrap();
        }
        client.settle("order-7", SettleIntent::NotDone).await.unwrap();
        assert!(client.resume().await.unwrap().is_empty(), "the old request is not sent");
        let answer = client.post(&server.url).json(&body()).intent("order-7").send().await.unwrap();
        assert_eq!(answer.report().source, ReplySource::Server);
        assert_eq!(server.intent("i").keys.len(), 2);
        assert!(
            refused(client.settle("order-9", SettleIntent::NotDone).await).contains("no intent of that name")
        );
    }
}

#[tokio::test]
async fn an_open_intent_is_not_settled_but_finished() {
    let (server, client, _folder) = open_until(1001).await;
    assert!(refused(client.settle("order-7", paid()).await).contains("resume it"));
    assert!(client.resume().await.unwrap()[0].result.is_ok());
    assert_eq!(server.intent("i").effects, 1);
}

/// An intent that is being sent cannot be settled.
#[tokio::test]
async fn an_intent_that_is_being_sent_is_not_settled() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::Delay(std::time::Duration::from_hours(1))).await;
    let config = hasty().with_try_at_most(std::time::Duration::from_secs(600));
    let client: Client = builder(folder.path()).with_retry_config(config).build().unwrap();
    let call = tokio::spawn(client.post(&server.url).json(&body()).intent("order-7").send());
    while server.state().requests == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert!(refused(client.settle("order-7", SettleIntent::NotDone).await).contains("it is being sent"));
    call.abort();
}

#[tokio::test]
async fn without_a_journal_there_is_nothing_to_settle() {
    let error = crate::builder().build().unwrap().settle("a", SettleIntent::NotDone).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Invalid, Effect::None));
}
