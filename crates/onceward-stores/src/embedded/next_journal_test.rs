//! Tests of beginning a new journal. `ONCEWARD_LONG=1` measures with the longest one that fjall does not seal itself.

use std::time::{Duration, Instant};

use bytes::Bytes;
use onceward::{Id, Loaded, Record, Seen, State, Store, Swap, Swapped};

use super::super::{EmbeddedStore, Options, journal};
use super::*;
use crate::embedded::acked_file::{AckedFile, LastAcked};
use crate::embedded::folder::Folder;

const BODY_BYTES: usize = 64 << 10;

fn bodies(mib: usize) -> usize {
    mib * (1 << 20) / BODY_BYTES
}

fn id(number: usize) -> Id {
    Id::new("scope", "operation", &format!("{number:05}")).unwrap()
}

fn body(number: usize) -> Bytes {
    Bytes::from(vec![u8::try_from(number % 251).unwrap(); BODY_BYTES])
}

async fn open(folder: &Path) -> (EmbeddedStore, Duration) {
    let began = Instant::now();
    let store = EmbeddedStore::open(folder, Options::default()).await.unwrap();
    (store, began.elapsed())
}

async fn write(store: &EmbeddedStore, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let new = Some(Record::new(State::Done, body(number)));
        let swapped = store.swap(&[Swap { id: id(number), seen: Seen::Absent, new }]).await.unwrap();
        assert!(matches!(swapped[..], [Swapped::Won(_)]), "{swapped:?}");
    }
}

async fn all_are_there(store: &EmbeddedStore, count: usize) {
    for number in 0..count {
        let loaded: Vec<Loaded> = store.load(&[id(number)]).await.unwrap();
        let [Ok(Some(found))] = &loaded[..] else { panic!("{number}: {loaded:?}") };
        assert!(found.bytes == body(number), "{number}");
    }
}

/// The numbers of the journals.
fn journals(folder: &Path) -> Vec<u64> {
    let names = std::fs::read_dir(folder.join("db")).unwrap().map(|entry| entry.unwrap().file_name());
    let number = |name: std::ffi::OsString| name.to_str()?.strip_suffix(".jnl")?.parse().ok();
    let mut numbers: Vec<u64> = names.filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

async fn until_journals_are(folder: &Path, expected: &[u64]) {
    for _ in 0..3000 {
        if journals(folder) == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{:?} instead of {expected:?}", journals(folder));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_journal_is_read_by_one_start_only() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let count = bodies(if std::env::var_os("ONCEWARD_LONG").is_some() { 56 } else { 9 });
    let (store, _) = open(folder).await;
    write(&store, 0..count).await;
    store.close().await.unwrap();
    assert_eq!(journals(folder), [0]);

    let (store, first) = open(folder).await;
    until_journals_are(folder, &[1]).await;
    all_are_there(&store, count).await;
    write(&store, count..count + 1).await;
    store.close().await.unwrap();

    let (store, second) = open(folder).await;
    let mib = (count * BODY_BYTES) >> 20;
    println!("{mib} MiB of journal: {first:?}, and {second:?} by the next start");
    assert_eq!(journals(folder), [1], "a short one is continued");
    all_are_there(&store, count + 1).await;
}

/// A start that is killed before fjall has opened its database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_journal_after_a_long_one_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let count = bodies(9);
    let (store, _) = open(folder).await;
    write(&store, 0..count).await;
    store.close().await.unwrap();
    {
        let taken = Folder::take(folder).unwrap();
        let Ok(LastAcked::Sequence(acknowledged)) = AckedFile::read(&taken.acked()) else { panic!() };
        let walked = journal::walk(&taken.database(), taken.nonce(), acknowledged).unwrap();
        begin(&taken.database(), &walked).unwrap();
        // And the next one, again: the empty journal is short.
        let walked = journal::walk(&taken.database(), taken.nonce(), acknowledged).unwrap();
        begin(&taken.database(), &walked).unwrap();
        assert_eq!(journals(folder), [0, 1]);
    }
    let (store, _) = open(folder).await;
    all_are_there(&store, count).await;
    until_journals_are(folder, &[1]).await;
    // What is acknowledged is still checked for when the journals hold none of it.
    store.close().await.unwrap();
    let (store, _) = open(folder).await;
    all_are_there(&store, count).await;
    store.close().await.unwrap();
    std::fs::remove_file(folder.join("db/1.jnl")).unwrap();
    let error = EmbeddedStore::open(folder, Options::default()).await.unwrap_err();
    assert_eq!(error.kind(), onceward::ErrorKind::Damaged);
}
