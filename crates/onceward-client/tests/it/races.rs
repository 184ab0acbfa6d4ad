//! Random races: an unknown intent is settled while other callers send the same request, send other requests under
//! its name, resume, and are dropped. In every order the name is one request from then on. If a caller gets the error
//! that nothing was sent, that is true.

use std::sync::Arc;
use std::time::Duration;

use onceward::{Effect, Id, Onceward, State, Store};
use onceward_client::{Client, ErrorKind, SettleIntent};
use tokio::task::{JoinHandle, JoinSet};

use crate::journal::hasty;
use crate::name_conflicts::open;
use crate::server::{Came, Dice, Fault, Server, usual_or_long};
use crate::staged_store::StagedStore;

const AT_ONCE: usize = 16;
/// What is asked for under one name. The first is the one that is unknown.
const WHAT: [&str; 3] = ["first", "second", "third"];

/// Each race has a journal of its own, as far as resumptions go. No try is given up for time: the script has no
/// silence in it, and a caller is late here only because the machine is.
fn client(name: &str, store: Arc<dyn Store>) -> Client {
    let config = hasty().with_try_at_most(Duration::from_mins(1));
    crate::builder()
        .with_retry_config(config)
        .with_journal_store(store)
        .with_journal_name(name)
        .build()
        .unwrap()
}

/// The server has forgotten the first key; of what comes then, it loses the first two answers.
fn script(came: &Came) -> Fault {
    match (came.intent.ends_with(WHAT[0]), came.before) {
        (true, 0) => Fault::KeyExpired,
        (true, 1) | (false, 0) => Fault::DropAfterEffect,
        (true, 2) | (false, 1) => Fault::DropBeforeEffect,
        _ => Fault::None,
    }
}

/// What a caller of one of [`WHAT`] was told, if it was told anything.
type Told = Option<Effect>;

async fn send(client: Client, url: String, name: String, what: &'static str, pause: Duration) -> Effect {
    tokio::time::sleep(pause).await;
    let body = serde_json::json!({ "intent": format!("{name} {what}") });
    match client.post(url).json(&body).intent(name).send().await {
        Ok(_) => Effect::Maybe,
        Err(error) => error.effect(),
    }
}

/// Runs all of that on one name. Returns what the callers of each request were told.
async fn race(seed: u64, server: &Server, store: &Arc<dyn Store>) -> [Vec<Told>; 3] {
    let mut dice = Dice::new(seed);
    let name = format!("order-{seed}");
    let mut pause = || Duration::from_micros(dice.below(4_000));
    let unknown = client(&name, store.clone());
    let body = serde_json::json!({ "intent": format!("{name} {}", WHAT[0]) });
    let error = unknown.post(&server.url).json(&body).intent(&name).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");

    let settling = {
        let (client, name, pause) = (client(&name, store.clone()), name.clone(), pause());
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            client.settle(&name, SettleIntent::NotDone).await.unwrap();
        })
    };
    let resuming = {
        let (client, pause) = (client(&name, store.clone()), pause());
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            client.resume().await.unwrap();
        })
    };
    let mut calls: Vec<(usize, JoinHandle<Effect>)> = Vec::new();
    for (at, what) in WHAT.iter().enumerate().cycle().take(5) {
        // Each is a process of its own, and half of them are slow to write.
        let late = pause();
        let staged = StagedStore::over(store);
        let staged = if late.as_micros() % 2 == 0 { staged.late(late) } else { staged };
        let call = send(client(&name, staged.ready()), server.url.clone(), name.clone(), what, pause());
        calls.push((at, tokio::spawn(call)));
    }
    tokio::time::sleep(pause()).await;
    // One caller goes away half-way.
    calls[usize::try_from(seed % 5).unwrap()].1.abort();
    settling.await.unwrap();
    resuming.await.unwrap();
    let mut told = [const { Vec::new() }; 3];
    for (at, call) in calls {
        told[at].push(call.await.ok());
    }
    told
}

/// Resumes until nothing is open. What the caller that went away had begun is given back a moment later, and
/// long before its lease would end.
async fn come_to_an_end(seed: u64, store: Arc<dyn Store>) {
    const SOON: Duration = Duration::from_secs(20);
    let name = format!("order-{seed}");
    let (later, id) = (client(&name, store.clone()), Id::new(&name, "send", &name).unwrap());
    let onceward = Onceward::new(store).unwrap();
    let ended = async {
        loop {
            later.resume().await.unwrap();
            let receipt = onceward.receipt(&id).await.unwrap();
            if receipt.is_none_or(|receipt| receipt.status.state() == State::Done) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let ended = tokio::time::timeout(SOON, ended).await;
    assert!(ended.is_ok(), "race {seed} does not come to an end: {:?}", onceward.receipt(&id).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_settlement_racing_calls_send_one_request_per_name() {
    let races = usual_or_long(256, 5_000);
    let folder = tempfile::tempdir().unwrap();
    let (server, store) = (Arc::new(Server::start(script).await), open(folder.path()).await);
    let (mut running, mut told) = (JoinSet::new(), Vec::new());
    for seed in 0..races {
        let (server, store) = (server.clone(), store.clone());
        running.spawn(async move {
            let told = race(seed, &server, &store).await;
            come_to_an_end(seed, store).await;
            (seed, told)
        });
        if running.len() >= AT_ONCE {
            told.push(running.join_next().await.unwrap().unwrap());
        }
    }
    told.extend(running.join_all().await);
    let mut sent = 0;
    for (seed, told) in told {
        let came = WHAT.map(|what| server.intent(&format!("order-{seed} {what}")));
        // The first one was sent before its settlement too.
        let tries = [came[0].numbers.len() - 1, came[1].numbers.len(), came[2].numbers.len()];
        let requests = tries.iter().filter(|tries| **tries > 0).count();
        assert!(requests <= 1, "race {seed}: {tries:?} tries");
        sent += requests;
        for at in 0..3 {
            assert!(came[at].effects <= 1, "race {seed}: {came:?}");
            let nobody = !told[at].is_empty() && told[at].iter().all(|told| *told == Some(Effect::None));
            assert!(
                !nobody || tries[at] == 0,
                "race {seed}: all who asked for {} were told no: {told:?}",
                WHAT[at]
            );
        }
    }
    println!("{races} races, {sent} requests sent after their settlement");
    assert!(sent > 0, "no race sent a request");
}
