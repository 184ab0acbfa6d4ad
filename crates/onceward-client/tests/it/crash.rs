//! A process that uses the client is killed repeatedly at random moments; the next process resumes what it left.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onceward_client::{Client, ReplySource};

use crate::schedules::patient;
use crate::server::{Came, Dice, Fault, Server, usual_or_long};

const CALLERS: u64 = 4;

/// Now and then a fault, so that a kill also meets a call between two tries.
fn script(came: &Came) -> Fault {
    let mut dice =
        Dice::new(came.intent.bytes().fold(came.before as u64, |hash, byte| hash * 31 + u64::from(byte)));
    match dice.below(10) {
        0 => Fault::DropAfterEffect,
        1 => Fault::DropMidAnswer,
        2 => Fault::Status(503),
        3 => Fault::DropBeforeEffect,
        _ => Fault::None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_nothing_is_done_twice_and_nothing_is_forgotten() {
    let kills = usual_or_long(60, 500);
    let server = Arc::new(Server::start(script).await);
    let folder = tempfile::tempdir().unwrap();
    let mut dice = Dice::new(7);
    let mut told: BTreeMap<String, String> = BTreeMap::new();
    for round in 0..kills {
        let mut child = spawn(folder.path(), &server.url, round);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let kill_at = server.state().requests + 1 + dice.below(60);
        let pause = Duration::from_micros(dice.below(2_000));
        let killer = {
            let server = server.clone();
            tokio::spawn(async move {
                // This many requests on, and a little later: anywhere in the life of an intent.
                while server.state().requests < kill_at && child.try_wait().unwrap().is_none() {
                    tokio::time::sleep(Duration::from_micros(200)).await;
                }
                tokio::time::sleep(pause).await;
                child.kill().unwrap();
                child.wait().unwrap()
            })
        };
        let heard = tokio::task::spawn_blocking(move || {
            let words = lines.map_while(Result::ok).filter_map(|line| {
                let (intent, answer) = line.strip_prefix("told ")?.strip_suffix('.')?.split_once(": ")?;
                Some((intent.to_owned(), answer.to_owned()))
            });
            words.collect::<Vec<_>>()
        });
        told.extend(heard.await.unwrap());
        let status = killer.await.unwrap();
        assert!(
            !status.success() && status.code().is_none(),
            "round {round} was killed, not ended: {status}"
        );
    }
    check(&server, folder.path(), &told).await;
    let state = server.state();
    println!("{kills} kills, {} intents, {} requests", state.intents.len(), state.requests);
}

async fn check(server: &Server, folder: &Path, told: &BTreeMap<String, String>) {
    let client = client(folder);
    let mut resumed = BTreeSet::new();
    for one in client.resume().await.unwrap() {
        one.result.unwrap_or_else(|error| panic!("{}: {error}", one.intent));
        resumed.insert(one.intent);
    }
    assert!(client.resume().await.unwrap().is_empty(), "nothing is open any more");
    let intents = server.state().intents.clone();
    for (name, intent) in &intents {
        assert_eq!(intent.effects, 1, "{name}: {intent:?}");
        assert_eq!((intent.keys.len(), intent.bodies.len()), (1, 1), "{name}: {intent:?}");
        if let Some(answer) = told.get(name) {
            assert_eq!(answer, &intent.answer, "{name} was told something else");
        }
    }
    assert!(told.keys().all(|name| intents.contains_key(name)), "every reported answer has an intent");
    assert!(told.len() < intents.len(), "some were cut off: {} of {}", told.len(), intents.len());
    // Whatever the server has seen, the journal now knows the answer of.
    let requests = server.state().requests;
    for (name, intent) in &intents {
        let answer = send(&client, &server.url, name).await;
        assert_eq!(
            (&*answer.text(), answer.report().source),
            (&*intent.answer, ReplySource::Journal),
            "{name}"
        );
    }
    assert_eq!(server.state().requests, requests, "and nothing was sent for it");
}

fn client(folder: &Path) -> Client {
    let address = format!("embedded:{}", folder.join("journal").display());
    crate::builder().with_retry_config(patient()).with_journal(address).build().unwrap()
}

async fn send(client: &Client, url: &str, name: &str) -> onceward_client::Reply {
    client.post(url).json(&serde_json::json!({ "intent": name })).intent(name).send().await.unwrap()
}

fn spawn(folder: &Path, url: &str, round: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_sends_until_it_is_killed", "--nocapture"])
        .env("ONCEWARD_TEST_CRASH", folder)
        .env("ONCEWARD_TEST_URL", url)
        .env("ONCEWARD_TEST_ROUND", round.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The other process of the test above: resumes, then sends, and says what it was told.
#[test]
fn child_sends_until_it_is_killed() {
    let Some(folder) = std::env::var_os("ONCEWARD_TEST_CRASH") else { return };
    let url = std::env::var("ONCEWARD_TEST_URL").unwrap();
    let round = std::env::var("ONCEWARD_TEST_ROUND").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = client(Path::new(&folder));
        for one in client.resume().await.unwrap() {
            say(&one.intent, &one.result.unwrap().text());
        }
        let mut callers = tokio::task::JoinSet::new();
        for caller in 0..CALLERS {
            let (client, url, round) = (client.clone(), url.clone(), round.clone());
            callers.spawn(async move {
                for number in 0_u64.. {
                    let name = format!("{round}-{caller}-{number}");
                    say(&name, &send(&client, &url, &name).await.text());
                }
            });
        }
        callers.join_all().await;
    });
}

/// One write, so that a kill cannot leave half a line that reads like another.
fn say(name: &str, answer: &str) {
    let line = format!("told {name}: {answer}.\n");
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}
