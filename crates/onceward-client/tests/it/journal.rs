//! The journal: recorded answers, open and unknown intents, and a folder that cannot be used.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onceward::{Clock, Effect, Id, OnUnknown, Onceward, Policy, Retention, State, Stopped};
use onceward_client::{Client, ClientBuilder, ErrorKind, ReplySource, RetryConfig};

use crate::schedules::patient;
use crate::server::{Came, Fault, Server};

pub fn builder(folder: &Path) -> ClientBuilder {
    crate::builder().with_retry_config(patient()).with_journal(format!("embedded:{}", folder.display()))
}

/// Gives up after one failure.
pub fn hasty() -> RetryConfig {
    patient().with_tries_max(1)
}

pub fn body() -> serde_json::Value {
    serde_json::json!({ "intent": "i", "amount": 12 })
}

/// A server that fails after the effect until the flag is set.
pub async fn losing() -> (Server, Arc<AtomicBool>) {
    let well = Arc::new(AtomicBool::new(false));
    let script = {
        let well = well.clone();
        move |_: &Came| if well.load(Ordering::SeqCst) { Fault::None } else { Fault::DropAfterEffect }
    };
    (Server::start(script).await, well)
}

#[tokio::test]
async fn the_same_intent_again_is_answered_from_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::None).await;
    for round in 0..3 {
        let client = builder(folder.path()).build().unwrap();
        // More often than the runtime lets one task go on without a pause.
        for _ in 0..300 {
            let answer = client.post(&server.url).json(&body()).intent("order-7").send().await.unwrap();
            assert_eq!((answer.status().as_u16(), &*answer.text()), (201, "effect 0 of i"), "round {round}");
        }
        client.recorded().await;
    }
    assert_eq!(server.state().requests, 1, "nothing was sent again, in this process or the next");
}

#[tokio::test]
async fn the_same_json_in_another_order_is_the_same_request_and_another_request_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::None).await;
    let client = builder(folder.path()).build().unwrap();
    let json =
        |body: &'static str| client.post(&server.url).header("content-type", "application/json").body(body);
    json(r#"{"intent":"i","amount":12}"#).intent("order-7").send().await.unwrap();
    let again = json(r#"{ "amount": 12.0, "intent": "i" }"#).intent("order-7").send().await.unwrap();
    assert_eq!(again.report().source, ReplySource::Journal);
    let other_url = client.post(format!("{}?x=1", server.url)).json(&body()).intent("order-7");
    let other_host = client.post("http://127.0.0.1:1/charges").json(&body()).intent("order-7");
    let other_method = client.put(&server.url).json(&body()).intent("order-7");
    let other_body = json(r#"{"intent":"i","amount":13}"#).intent("order-7");
    for other in [other_url, other_host, other_method, other_body] {
        let error = other.send().await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::IntentReused, Effect::None), "{error}");
    }
    assert_eq!(server.state().requests, 1);
}

#[tokio::test]
async fn callers_of_one_intent_at_the_same_time_share_one_sending() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::Delay(Duration::from_millis(50))).await;
    let client = builder(folder.path()).build().unwrap();
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let request = client.post(&server.url).json(&body()).intent("order-7");
        callers.spawn(async move { request.send().await.unwrap().text().into_owned() });
    }
    for answer in callers.join_all().await {
        assert_eq!(answer, "effect 0 of i");
    }
    assert_eq!(server.intent("i").effects, 1);
    assert_eq!(server.intent("i").keys.len(), 1);
}

#[tokio::test]
async fn a_stopped_call_stays_open_and_is_resumed_with_its_key_and_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (server, well) = losing().await;
    let client = builder(folder.path()).with_retry_config(hasty()).build().unwrap();
    let error = client.post(&server.url).json(&body()).intent("order-7").send().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::GaveUp, Effect::Maybe), "{error}");
    let other =
        client.post(&server.url).json(&serde_json::json!({"intent": "i"})).intent("order-7").send().await;
    assert_eq!(other.unwrap_err().kind(), ErrorKind::IntentReused, "an open intent guards its name too");
    drop(client);

    well.store(true, Ordering::SeqCst);
    let client = builder(folder.path()).build().unwrap();
    let resumed = client.resume().await.unwrap();
    assert_eq!(resumed.len(), 1);
    assert_eq!(resumed[0].intent, "order-7");
    let answer = resumed[0].result.as_ref().unwrap();
    assert_eq!((&*answer.text(), answer.report().source), ("effect 0 of i", ReplySource::Replay));
    let intent = server.intent("i");
    assert_eq!((intent.effects, intent.keys.len(), intent.bodies.len()), (1, 1, 1), "{intent:?}");
    assert!(client.resume().await.unwrap().is_empty(), "nothing is open any more");
    let again = client.post(&server.url).json(&body()).intent("order-7").send().await.unwrap();
    assert_eq!(again.report().source, ReplySource::Journal);
}

#[tokio::test]
async fn an_open_intent_is_finished_by_the_next_call_of_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (server, well) = losing().await;
    let client = builder(folder.path()).with_retry_config(hasty()).build().unwrap();
    let send = || client.post(&server.url).json(&body()).intent("order-7").send();
    send().await.unwrap_err();
    well.store(true, Ordering::SeqCst);
    assert_eq!(send().await.unwrap().report().source, ReplySource::Replay);
    assert_eq!((server.intent("i").effects, server.intent("i").keys.len()), (1, 1));
}

#[tokio::test]
async fn a_call_that_is_dropped_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let hang = Arc::new(AtomicBool::new(true));
    let script = {
        let hang = hang.clone();
        move |_: &Came| {
            if hang.load(Ordering::SeqCst) { Fault::Delay(Duration::from_hours(1)) } else { Fault::None }
        }
    };
    let server = Server::start(script).await;
    let config = patient().with_try_at_most(Duration::from_secs(600));
    let client = builder(folder.path()).with_retry_config(config).build().unwrap();
    let call = tokio::spawn(client.post(&server.url).json(&body()).intent("order-7").send());
    while server.state().requests == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    hang.store(false, Ordering::SeqCst);
    // Dropping releases the claim by a task of its own; until then the intent is held.
    let resumed = loop {
        let resumed = client.resume().await.unwrap();
        if !resumed.is_empty() {
            break resumed;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    assert_eq!(&*resumed[0].result.as_ref().unwrap().text(), "effect 0 of i");
    assert_eq!(server.intent("i").keys.len(), 1);
}

/// A clock that the test sets.
#[derive(Clone)]
pub struct ManualClock(pub Arc<AtomicU64>);

impl Clock for ManualClock {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

pub const HOUR_US: u64 = 3_600_000_000;

/// An open intent, put down at hour 1000, that is looked at again at hour `then`.
pub async fn open_until(then: u64) -> (Server, Client, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let (server, well) = losing().await;
    let clock = ManualClock(Arc::new(AtomicU64::new(1000 * HOUR_US)));
    let client = builder(folder.path())
        .with_retry_config(hasty())
        .with_clock(Arc::new(clock.clone()))
        .build()
        .unwrap();
    client.post(&server.url).json(&body()).intent("order-7").send().await.unwrap_err();
    well.store(true, Ordering::SeqCst);
    clock.0.store(then * HOUR_US, Ordering::SeqCst);
    (server, client, folder)
}

#[tokio::test]
async fn after_the_key_expires_the_outcome_is_and_stays_unknown() {
    let (server, client, _folder) = open_until(1024).await;
    for _ in 0..2 {
        let resumed = client.resume().await.unwrap();
        let error = resumed[0].result.as_ref().unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unknown, Effect::Maybe), "{error}");
    }
    let error = client.post(&server.url).json(&body()).intent("order-7").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    assert_eq!(server.state().requests, 1, "nothing was sent");
    assert_eq!(client.counts().unknown, 1);
}

#[tokio::test]
async fn just_before_the_key_expires_it_is_resumed() {
    let (server, client, _folder) = open_until(1023).await;
    assert!(client.resume().await.unwrap()[0].result.is_ok());
    assert_eq!(server.intent("i").effects, 1);
}

#[tokio::test]
async fn a_clock_that_went_back_by_hours_leaves_it_unknown() {
    let (server, client, _folder) = open_until(998).await;
    let resumed = client.resume().await.unwrap();
    assert_eq!(resumed[0].result.as_ref().unwrap_err().kind(), ErrorKind::Unknown);
    assert_eq!(server.state().requests, 1);
}

#[tokio::test]
async fn a_server_that_has_forgotten_the_key_leaves_it_unknown() {
    for (name, status, stays) in
        [("key-expired", "410 Gone", true), ("outcome-unknown", "409 Conflict", false)]
    {
        let folder = tempfile::tempdir().unwrap();
        let (url, requests) = says(crate::server::problem(status, name, false)).await;
        let client = builder(folder.path()).build().unwrap();
        let send = || client.post(&url).json(&body()).intent("order-7").send();
        let error = send().await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unknown, Effect::Maybe), "{name}: {error}");
        send().await.unwrap_err();
        let asked = requests.load(Ordering::SeqCst);
        assert_eq!(asked, if stays { 1 } else { 2 }, "{name}: what can be settled there is asked for again");
    }
}

/// A server that says the same to everything.
async fn says(reply: String) -> (String, Arc<AtomicU64>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (url, requests) =
        (format!("http://{}/", listener.local_addr().unwrap()), Arc::new(AtomicU64::new(0)));
    let counter = requests.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            let mut read = Vec::new();
            while !read.ends_with(b"}") {
                let length = socket.read(&mut buffer).await.unwrap();
                read.extend_from_slice(&buffer[..length]);
            }
            counter.fetch_add(1, Ordering::SeqCst);
            let _ = socket.write_all(reply.as_bytes()).await;
        }
    });
    (url, requests)
}

/// The head of an answer says that the key is honoured for two seconds, and the body never comes.
#[tokio::test]
async fn the_expiry_from_a_broken_answer_is_stored_across_processes() {
    let folder = tempfile::tempdir().unwrap();
    let head = "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\
                Date: Thu, 01 Jan 2026 00:00:00 GMT\r\nIdempotency-Expires: Thu, 01 Jan 2026 01:00:00 GMT\r\n\r\nhalf";
    let (url, requests) = says(head.into()).await;
    let clock = ManualClock(Arc::new(AtomicU64::new(1000 * HOUR_US)));
    let client = |config| {
        builder(folder.path()).with_retry_config(config).with_clock(Arc::new(clock.clone())).build().unwrap()
    };
    let first = client(hasty());
    first.post(&url).json(&body()).intent("order-7").send().await.unwrap_err();
    drop(first);
    // An hour is over, the day that is taken for granted is not.
    clock.0.store(1001 * HOUR_US, Ordering::SeqCst);
    let resumed = client(hasty()).resume().await.unwrap();
    assert_eq!(resumed[0].result.as_ref().unwrap_err().kind(), ErrorKind::Unknown);
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_journal_that_cannot_be_used_sends_nothing() {
    let server = Server::start(|_| Fault::None).await;
    let folder = tempfile::tempdir().unwrap();
    let first = builder(folder.path()).build().unwrap();
    first.resume().await.unwrap();
    let foreign = tempfile::tempdir().unwrap();
    std::fs::write(foreign.path().join("letter.txt"), "mine").unwrap();
    let damaged = tempfile::tempdir().unwrap();
    builder(damaged.path()).build().unwrap().resume().await.unwrap();
    std::fs::write(damaged.path().join("ONCEWARD"), "onceward-embedded 1 of something").unwrap();
    let memory = crate::builder().with_journal("memory:").build().unwrap();
    let nonsense = crate::builder().with_journal("carrier-pigeon:").build().unwrap();
    for (client, says) in [
        (builder(folder.path()).build().unwrap(), "in use by another process"),
        (builder(foreign.path()).build().unwrap(), "belongs to something else"),
        (builder(&foreign.path().join("letter.txt")).build().unwrap(), "letter.txt"),
        (builder(damaged.path()).build().unwrap(), "is damaged"),
        // A path that cannot be written, even by root.
        (builder(Path::new("/proc/outgoing")).build().unwrap(), "/proc/outgoing"),
        (memory, "forgets its receipts"),
        (nonsense, "no store is known"),
    ] {
        let error = client.post(&server.url).json(&body()).intent("order-7").send().await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Journal, Effect::None), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(server.state().requests, 0, "nothing was sent");
}

#[tokio::test]
async fn a_name_past_its_retention_is_a_new_intent_and_a_resumption_removes_its_answer() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::None).await;
    let store = onceward_stores::open(&format!("embedded:{}", folder.path().display())).await.unwrap();
    let keep = Retention::For(Duration::from_millis(1));
    let client = crate::builder()
        .with_retry_config(patient())
        .with_journal_store(store.clone())
        .with_retention(keep)
        .build()
        .unwrap();
    for sent in 1..=3 {
        let answer = client.post(&server.url).json(&body()).intent("order-7").send().await.unwrap();
        assert_eq!(answer.report().source, ReplySource::Server);
        assert_eq!(server.intent("i").keys.len(), sent, "each with a key of its own");
        client.recorded().await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(client.resume().await.unwrap().is_empty());
    let id = Id::new("client", "send", "order-7").unwrap();
    assert_eq!(Onceward::new(store).unwrap().receipt(&id).await.unwrap(), None);
}

#[tokio::test]
async fn a_folder_that_is_freed_can_be_used_by_the_client_that_was_refused() {
    let server = Server::start(|_| Fault::None).await;
    let folder = tempfile::tempdir().unwrap();
    let first = builder(folder.path()).build().unwrap();
    first.resume().await.unwrap();
    let second = builder(folder.path()).build().unwrap();
    let send = || second.post(&server.url).json(&body()).intent("order-7").send();
    send().await.unwrap_err();
    drop(first);
    assert_eq!(send().await.unwrap().status().as_u16(), 201);
}

#[tokio::test]
async fn two_clients_in_one_store_are_two_unless_they_have_one_name() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::None).await;
    let store = onceward_stores::open(&format!("embedded:{}", folder.path().display())).await.unwrap();
    let client = |name| {
        crate::builder()
            .with_retry_config(patient())
            .with_journal_store(store.clone())
            .with_journal_name(name)
            .build()
            .unwrap()
    };
    let (billing, twin, shop) = (client("billing"), client("billing"), client("shop"));
    for (client, requests) in [(&billing, 1), (&twin, 1), (&shop, 2)] {
        client.post(&server.url).json(&body()).intent("order-7").send().await.unwrap();
        client.recorded().await;
        assert_eq!(server.state().requests, requests);
    }
}

/// Two clients in one journal, at the same time: one sends, the other waits for its answer.
#[tokio::test]
async fn two_processes_with_one_journal_send_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::Delay(Duration::from_millis(30))).await;
    let store = onceward_stores::open(&format!("embedded:{}", folder.path().display())).await.unwrap();
    // Two engines over one store: what they know of each other is in the store only.
    let client =
        || crate::builder().with_retry_config(patient()).with_journal_store(store.clone()).build().unwrap();
    let (one, two) = (client(), client());
    let send = |client: &Client| client.post(&server.url).json(&body()).intent("order-7").send();
    let (first, second) = tokio::join!(send(&one), send(&two));
    assert_eq!(first.unwrap().text(), second.unwrap().text());
    let intent = server.intent("i");
    assert_eq!((intent.effects, intent.keys.len()), (1, 1), "{intent:?}");
}

/// The engine's limit of tries is not the client's: `RetryConfig` says how many tries are sent.
#[tokio::test]
async fn an_intent_that_is_dead_in_the_engine_is_resumed_and_sent() {
    for by_name in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (server, well) = losing().await;
        let store = onceward_stores::open(&format!("embedded:{}", folder.path().display())).await.unwrap();
        let client =
            crate::builder().with_retry_config(hasty()).with_journal_store(store.clone()).build().unwrap();
        let send = || client.post(&server.url).json(&body()).intent("order-7").send();
        send().await.unwrap_err();
        let (onceward, id) = (Onceward::new(store).unwrap(), Id::new("client", "send", "order-7").unwrap());
        let found = onceward.receipt(&id).await.unwrap().unwrap();
        let once = Arc::new(
            Policy::http().to_builder().with_on_unknown(OnUnknown::Retry).with_tries_max(1).build().unwrap(),
        );
        let fails = async |_| Err(Stopped::before_effect("it took its process with it"));
        onceward.resume(&id, &found, once, fails).await.unwrap();
        let state = onceward.receipt(&id).await.unwrap().unwrap().status.state();
        assert_eq!(state, State::Dead);
        well.store(true, Ordering::SeqCst);
        let answer = if by_name { send().await } else { client.resume().await.unwrap().remove(0).result };
        assert_eq!(answer.unwrap().report().source, ReplySource::Replay);
        assert_eq!((server.intent("i").effects, server.intent("i").keys.len()), (1, 1));
    }
}

#[tokio::test]
async fn a_closed_intent_is_not_sent() {
    let folder = tempfile::tempdir().unwrap();
    let (server, well) = losing().await;
    let store = onceward_stores::open(&format!("embedded:{}", folder.path().display())).await.unwrap();
    let client =
        crate::builder().with_retry_config(hasty()).with_journal_store(store.clone()).build().unwrap();
    let send = || client.post(&server.url).json(&body()).intent("order-7").send();
    send().await.unwrap_err();
    well.store(true, Ordering::SeqCst);
    let id = Id::new("client", "send", "order-7").unwrap();
    Onceward::new(store).unwrap().cancel(&id, &Policy::http()).await.unwrap();
    let error = send().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Closed, Effect::Maybe), "{error}");
    assert!(client.resume().await.unwrap().is_empty(), "it is not open any more");
    assert_eq!(server.state().requests, 1);
}

#[tokio::test]
async fn a_request_that_does_not_fit_into_the_journal_is_refused_before_anything_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Fault::None).await;
    let client = builder(folder.path()).with_request_bytes_max(100).build().unwrap();
    let large = vec![b'x'; 300 << 10];
    let request = client.post(&server.url).header("x-large", &large[..]).json(&body()).intent("order-7");
    let error = request.send().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Invalid, Effect::None), "{error}");
    assert!(error.to_string().contains("does not fit into the journal"), "{error}");
    assert!(client.resume().await.unwrap().is_empty());
    assert_eq!(server.state().requests, 0);
}

/// The connection never came about, so nothing was sent: the intent is open and waits for its first try.
#[tokio::test]
async fn an_intent_that_was_never_sent_is_open_too() {
    let folder = tempfile::tempdir().unwrap();
    let port = tokio::net::TcpSocket::new_v4().unwrap();
    port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/charges", port.local_addr().unwrap());
    let client = builder(folder.path()).with_retry_config(hasty()).build().unwrap();
    let error = client.post(&url).json(&body()).intent("order-7").send().await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::GaveUp, Effect::None), "{error}");
    for _ in 0..3 {
        let resumed = client.resume().await.unwrap();
        assert_eq!((resumed.len(), &*resumed[0].intent), (1, "order-7"));
        assert_eq!(resumed[0].result.as_ref().unwrap_err().kind(), ErrorKind::GaveUp);
    }
}
