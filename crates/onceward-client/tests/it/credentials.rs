//! Credentials and the journal: they never enter it, and without them nothing is resumed.

use std::path::Path;
use std::sync::atomic::Ordering;

use onceward::Effect;
use onceward_client::{ErrorKind, ReplySource};

use crate::journal::{body, builder, hasty, losing};
use crate::server::{Fault, Server};

#[tokio::test]
async fn credentials_are_never_written_down_and_better_ones_finish_the_intent() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|came| {
        let good = came.fields.get("authorization").is_some_and(|value| value == "Bearer good-secret");
        if good { Fault::None } else { Fault::Status(401) }
    })
    .await;
    let with = |secret: &'static str| {
        let value = http::HeaderValue::from_static(secret);
        builder(folder.path()).with_header(http::header::AUTHORIZATION, value).build().unwrap()
    };
    let client = with("Bearer old-secret");
    let refused =
        client.post(&server.url).header("authorization", "x").json(&body()).intent("a").send().await;
    assert!(refused.unwrap_err().to_string().contains("would be written to the journal"));
    let answer = client.post(&server.url).json(&body()).intent("order-7").send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 401);
    drop(client);
    let client = with("Bearer good-secret");
    let resumed = client.resume().await.unwrap();
    assert_eq!(resumed[0].result.as_ref().unwrap().status().as_u16(), 201);
    drop(client);
    assert_eq!((server.intent("i").effects, server.intent("i").keys.len()), (1, 1));
    assert!(!holds(folder.path(), b"secret"), "no file of the journal holds a credential");
    assert!(holds(folder.path(), b"order-7"), "and the search does find what is there");
}

fn holds(folder: &Path, needle: &[u8]) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return holds(&path, needle);
        }
        std::fs::read(&path).unwrap().windows(needle.len()).any(|window| window == needle)
    })
}

/// What the server may accept later, with other credentials or after an operator's decision, stays open; a replay of
/// the same is final.
#[tokio::test]
async fn an_intent_that_the_server_may_accept_later_stays_open() {
    for (fault, status, open) in [
        (Fault::Status(401), 401, true),
        (Fault::Status(403), 403, true),
        (Fault::Status(407), 407, true),
        (Fault::Dead, 409, true),
        (Fault::StatusWith(403, "Idempotent-Replayed: true\r\n"), 403, false),
        (Fault::Status(404), 404, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(move |came| if came.before == 0 { fault } else { Fault::None }).await;
        let client = builder(folder.path()).build().unwrap();
        let send = async || client.post(&server.url).json(&body()).intent("order-7").send().await.unwrap();
        assert_eq!(send().await.status().as_u16(), status, "{fault:?}");
        client.recorded().await;
        let again = send().await;
        let expected = if open { (201, ReplySource::Server) } else { (status, ReplySource::Journal) };
        assert_eq!((again.status().as_u16(), again.report().source), expected, "{fault:?}");
        let intent = server.intent("i");
        assert_eq!((intent.keys.len(), intent.effects), (1, u32::from(open)), "{fault:?}");
    }
}

#[tokio::test]
async fn credentials_of_every_kind_are_fields_of_the_client_and_never_in_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::Status(503)).await;
    let client = builder(folder.path())
        .with_retry_config(hasty())
        .with_credential_name(http::HeaderName::from_static("x-gate-code"))
        .build()
        .unwrap();
    for name in ["cookie", "x-api-key", "Api-Key", "x-access-token", "x-client-secret", "dpop", "x-gate-code"]
    {
        let request = client.post(&server.url).header(name, "s3cr3t").json(&body()).intent(name);
        let error = request.send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{name}");
        assert!(error.to_string().contains("would be written to the journal"), "{error}");
    }
    let url = server.url.replace("http://", "http://user:s3cr3t@");
    let error = client.post(&url).json(&body()).intent("url").send().await.unwrap_err();
    assert!(error.to_string().contains("password in the URL"), "{error}");
    assert!(!error.to_string().contains("s3cr3t"), "{error}");
    assert_eq!(server.state().requests, 0);
    client.recorded().await;
    drop(client);
    assert!(!holds(folder.path(), b"s3cr3t"), "nothing of it was written");
}

/// Without the credential, the server would take the request for another caller's and might run it again.
#[tokio::test]
async fn an_intent_is_not_resumed_without_the_credentials_it_was_sent_with() {
    let folder = tempfile::tempdir().unwrap();
    let (server, well) = losing().await;
    let with = |value: Option<&'static str>| {
        let builder = builder(folder.path()).with_retry_config(hasty());
        let name = http::HeaderName::from_static("x-api-key");
        match value {
            Some(value) => builder.with_header(name, http::HeaderValue::from_static(value)),
            None => builder,
        }
    };
    let client = with(Some("old-s3cr3t")).build().unwrap();
    client.post(&server.url).json(&body()).intent("order-7").send().await.unwrap_err();
    client.recorded().await;
    drop(client);
    well.store(true, Ordering::SeqCst);
    let before = server.state().requests;
    let client = with(None).build().unwrap();
    let resumed = client.resume().await.unwrap();
    let error = resumed[0].result.as_ref().unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::CredentialsMissing, Effect::Maybe));
    assert!(error.to_string().contains("x-api-key"), "{error}");
    let error = client.post(&server.url).json(&body()).intent("order-7").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CredentialsMissing, "and not by its next call either");
    assert_eq!(server.state().requests, before, "nothing was sent");
    drop(client);
    let client = with(Some("new-s3cr3t")).build().unwrap();
    let resumed = client.resume().await.unwrap();
    assert_eq!(resumed[0].result.as_ref().unwrap().status().as_u16(), 201, "a renewed one will do");
    assert_eq!((server.intent("i").effects, server.intent("i").keys.len()), (1, 1));
    client.recorded().await;
    drop(client);
    assert!(!holds(folder.path(), b"s3cr3t") && holds(folder.path(), b"order-7"));
}
