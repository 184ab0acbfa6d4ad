//! Kills a writing process repeatedly; everything that was acknowledged must be there afterwards.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use onceward::{Found, Seen, State, Store, Swap, Swapped, Version};

use crate::support::*;

const TASKS: u64 = 6;

/// How far the life of a key has come, as the child was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Held,
    Done,
    Removed,
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let folder = folder_on_disk();
    let mut dice = Dice::new(42);
    let mut told: HashMap<String, (Stage, Version)> = HashMap::new();
    let mut version_max = Version(0);
    for round in 0..usual_or_long(16, 200) {
        let before = told.len();
        let mut child = child(folder.path(), round);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Killed after a number of answers, so at any point of the work that goes on meanwhile.
        let mut left = 1 + dice.below(400);
        for line in lines {
            let line = line.unwrap();
            let Some((key, stage, version)) = parse(&line) else { continue };
            // A fence never goes back, whatever was killed in between.
            if stage == Stage::Held {
                assert!(version > told.get(&key).map_or(Version(0), |told| told.1));
            }
            told.insert(key, (stage, version));
            left = left.saturating_sub(1);
            if left == 0 {
                // What is still in the pipe was answered before; read it to the end.
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(told.len() > before, "the child of round {round} did nothing");

        let store = open(folder.path());
        for (key, &(stage, version)) in &told {
            check(key, stage, version, load(&store, key));
            version_max = version_max.max(version);
        }
        assert!(hold(&store, format!("after-{round}"), 1) > version_max);
    }
}

fn check(key: &str, stage: Stage, version: Version, found: Option<Found>) {
    let now = match &found {
        None => Stage::Removed,
        Some(found) if found.state == State::Held => Stage::Held,
        Some(_) => Stage::Done,
    };
    // The write after the last answer may or may not have happened.
    assert!(now >= stage, "{key} was {stage:?}, is {now:?}");
    if let Some(found) = found {
        assert!(found.version >= version, "{key}");
        assert_eq!(now == stage, found.version == version, "{key}");
        assert_eq!(&found.bytes[..], b"receipt");
        assert!(now != Stage::Held || found.due.is_over(), "the owner of {key} is dead");
    }
}

fn parse(line: &str) -> Option<(String, Stage, Version)> {
    let mut words = line.strip_prefix("told ")?.split(' ');
    let stage = match words.next()? {
        "held" => Stage::Held,
        "done" => Stage::Done,
        "removed" => Stage::Removed,
        _ => return None,
    };
    Some((words.next()?.to_owned(), stage, Version(words.next()?.parse().ok()?)))
}

fn child(folder: &Path, round: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_writes_until_it_is_killed", "--nocapture"])
        .env("ONCEWARD_TEST_CRASH", folder)
        .env("ONCEWARD_TEST_ROUND", round.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The other process of the test above: tasks that take keys through their life and say what they
/// were told.
#[test]
fn child_writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os("ONCEWARD_TEST_CRASH") else { return };
    let round: u64 = std::env::var("ONCEWARD_TEST_ROUND").unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let store: Arc<dyn Store> = Arc::new(open(Path::new(&folder)));
    let tasks: Vec<_> =
        (0..TASKS).map(|task| runtime.spawn(write(Arc::clone(&store), round, task))).collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
}

async fn write(store: Arc<dyn Store>, round: u64, task: u64) {
    let mut dice = Dice::new(round * 100 + task);
    for number in 0_u64.. {
        let mut keys: Vec<String> =
            (0..=dice.below(5)).map(|part| format!("{round}-{task}-{number}-{part}")).collect();
        keys.sort();
        let claims: Vec<Swap> =
            keys.iter().map(|key| put(id(key), Seen::Absent, State::Held, Some(3600))).collect();
        let held = swap(&*store, &claims, "held", &keys).await;
        let (mut done, mut removed) = (Vec::new(), Vec::new());
        for (key, version) in keys.iter().zip(held) {
            if dice.below(4) > 0 {
                done.push((key.clone(), put(id(key), Seen::Version(version), State::Done, Some(3600))));
            }
        }
        let (keys, swaps): (Vec<String>, Vec<Swap>) = done.into_iter().unzip();
        let versions = swap(&*store, &swaps, "done", &keys).await;
        for (key, version) in keys.iter().zip(versions) {
            if dice.below(4) == 0 {
                removed.push((key.clone(), Swap { id: id(key), seen: Seen::Version(version), new: None }));
            }
        }
        let (keys, swaps): (Vec<String>, Vec<Swap>) = removed.into_iter().unzip();
        swap(&*store, &swaps, "removed", &keys).await;
    }
}

async fn swap(store: &dyn Store, swaps: &[Swap], stage: &str, keys: &[String]) -> Vec<Version> {
    let mut versions = Vec::new();
    for (swapped, key) in store.swap(swaps).await.unwrap().into_iter().zip(keys) {
        let Swapped::Won(version) = swapped else { panic!("{key} lost") };
        // One write, so that a kill cannot leave half a line that reads like another.
        let line = format!("told {stage} {key} {} \n", version.0);
        let _ = std::io::stdout().lock().write_all(line.as_bytes());
        versions.push(version);
    }
    versions
}
