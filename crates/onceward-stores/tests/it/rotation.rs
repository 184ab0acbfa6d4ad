//! Tests of journal rotation: a process writes enough that fjall seals journals, flushes tables and removes old
//! journals, and is then killed. The journal check must accept that, and still notice damage in a sealed journal.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use onceward::{ErrorKind, Seen, State, Store, Swap, Swapped, Version};
use onceward_stores::EmbeddedStore;
use onceward_stores::embedded::Options;

use crate::support::*;

const ROW_BYTES: usize = 64 * 1024;
const BATCH: u64 = 16;
/// Killed at any point of flushes, seals and compactions, and no more often than this.
const ROUNDS_MAX: u64 = 40;
/// These stay held from the first groups on, long after their journals have been let go.
const LEFT_HELD: u64 = 5;

#[test]
fn sealed_journals_are_followed_and_checked() {
    let folder = folder_on_disk();
    let first = folder.path().join("db/0.jnl");
    let mut told = Vec::new();
    let mut dice = Dice::new(11);
    let rounds_min = usual_or_long(3, 30);
    // fjall decides when to remove journals: continue until one is removed and another is sealed.
    let journals = (0..ROUNDS_MAX)
        .map(|round| {
            told.extend(write_and_be_killed(folder.path(), round, 40 + dice.below(120)));
            (round, journals(folder.path()))
        })
        .find(|(round, journals)| round + 1 >= rounds_min && journals[0] != first && journals.len() > 1)
        .expect("journals are sealed and let go")
        .1;

    // Damage in every journal that holds groups, sealed or not; the preallocated rest is none.
    for journal in &journals {
        let good = fs::read(journal).unwrap();
        let used = good.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        for _ in 0..if used == 0 { 0 } else { 3 } {
            // After the numbers at the head of the first group.
            let byte = 64 + usize::try_from(dice.below(used as u64 - 64)).unwrap();
            let mut bad = good.clone();
            bad[byte] ^= 0x20;
            fs::write(journal, bad).unwrap();
            let Err(error) = try_open(folder.path()) else { panic!("opened with {byte} flipped") };
            assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
            let name = journal.file_name().unwrap().to_str().unwrap();
            assert!(error.to_string().contains(name), "{error}");
        }
        fs::write(journal, good).unwrap();
    }
    // A sealed journal that is not there at all.
    let gone = folder.path().join("gone");
    for journal in &journals[1..journals.len() - 1] {
        fs::rename(journal, &gone).unwrap();
        let Err(error) = try_open(folder.path()) else { panic!("opened without {}", journal.display()) };
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
        fs::rename(&gone, journal).unwrap();
    }

    for _ in 0..2 {
        let store = open(folder.path());
        for (key, version) in &told {
            let found = load(&store, key).unwrap_or_else(|| panic!("{key} is gone"));
            assert!(found.version >= *version);
            assert_eq!(found.bytes.len(), ROW_BYTES);
        }
        for key in 0..LEFT_HELD {
            let found = load(&store, format!("held-{key}")).unwrap();
            assert!(found.state == State::Held && found.due.is_over());
        }
        let due = scan_keys(&store, &DUE, 3);
        assert!((0..LEFT_HELD).all(|key| due.contains(&format!("held-{key}"))), "{due:?}");
    }
}

fn journals(folder: &Path) -> Vec<PathBuf> {
    let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
    let entries = fs::read_dir(folder.join("db")).unwrap().map(|entry| entry.unwrap().path());
    let mut journals: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "jnl")).collect();
    journals.sort_by_key(number);
    journals
}

fn write_and_be_killed(folder: &Path, round: u64, batches: u64) -> Vec<(String, Version)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rotation::child_fills_journals_until_it_is_killed", "--nocapture"])
        .env("ONCEWARD_TEST_ROTATION", folder)
        .env("ONCEWARD_TEST_ROUND", round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some((key, version)) = line.strip_prefix("told ").and_then(|told| told.split_once(' ')) else {
            continue;
        };
        told.push((key.to_owned(), Version(version.parse().unwrap())));
        if told.len() as u64 == BATCH * batches {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    told
}

/// The other process of the test above.
#[test]
fn child_fills_journals_until_it_is_killed() {
    let Some(folder) = std::env::var_os("ONCEWARD_TEST_ROTATION") else { return };
    let options = Options::default().with_write_buffer_bytes(8 << 20);
    let store = block_on(EmbeddedStore::open(Path::new(&folder), options)).unwrap();
    let round: u64 = std::env::var("ONCEWARD_TEST_ROUND").unwrap().parse().unwrap();
    if round == 0 {
        for key in 0..LEFT_HELD {
            hold(&store, format!("held-{key}"), 3600);
        }
    }
    for number in 0_u64.. {
        let mut keys: Vec<String> = (0..BATCH).map(|part| format!("{round}-{number}-{part}")).collect();
        keys.sort();
        let swap = |key: &String| Swap {
            id: id(key),
            seen: Seen::Absent,
            new: Some(record(State::Done, None, "").with_bytes(vec![7; ROW_BYTES])),
        };
        let batch: Vec<Swap> = keys.iter().map(swap).collect();
        for (key, swapped) in keys.iter().zip(block_on(store.swap(&batch)).unwrap()) {
            let Swapped::Won(version) = swapped else { panic!("{key} lost") };
            let _ = std::io::stdout().lock().write_all(format!("told {key} {}\n", version.0).as_bytes());
        }
    }
}
