//! Tests of a database on a full disk: every caller is told, nothing acknowledged is lost, what is there can
//! still be read, and work goes on as soon as there is free space again.

use std::path::Path;

use onceward::{Applied, Error, ErrorKind, Record, Seen, State, Store, Swap, Swapped, Version};
use onceward_stores::{MySqlStore, SqliteStore, sql::Options};

use crate::disk_full::Mount;
use crate::servers::MariaDb;
use crate::support::id;

/// More than any of it needs.
const ENOUGH_SPACE: &str = "size=500m";

/// What was answered, in the order of the answers.
struct Kept(Vec<Version>);

fn claim(key: usize, bytes: usize) -> Swap {
    let bytes = vec![u8::try_from(key % 251).unwrap(); bytes];
    let new = Record::new(State::Done, bytes);
    Swap { id: id(key), seen: Seen::Absent, new: Some(new) }
}

impl Kept {
    /// All of it is there, as it was answered.
    async fn check(&self, store: &dyn Store) {
        for (key, version) in self.0.iter().enumerate() {
            let found = store.load(&[id(key)]).await.unwrap().remove(0).unwrap();
            assert_eq!(found.map(|found| found.version), Some(*version), "{key} is gone");
        }
    }
}

/// Writes until it fails.
async fn fill(store: &dyn Store, row_bytes: usize) -> (Kept, Error) {
    let mut kept = Kept(Vec::new());
    loop {
        let key = kept.0.len();
        assert!(key < 100_000, "the disk never ran full");
        match store.swap(&[claim(key, row_bytes)]).await {
            Ok(swapped) => match &swapped[0] {
                Swapped::Won(version) => kept.0.push(*version),
                other => panic!("nobody else claims {key}, and it can be read: {other:?}"),
            },
            Err(error) => {
                assert!(!kept.0.is_empty());
                return (kept, error);
            }
        }
    }
}

/// Refusals go on, each with its reason; and so do replays.
async fn is_full(store: &dyn Store, kept: &Kept, error: &Error, row_bytes: usize) {
    let again = store.swap(&[claim(kept.0.len() + 1, row_bytes)]).await.unwrap_err();
    for error in [error, &again] {
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        assert!(error.to_string().contains("no room left"), "{error}");
    }
    kept.check(store).await;
}

/// There is free space again: the claim that failed can be made, and nothing is lost.
async fn goes_on(store: &dyn Store, mut kept: Kept, error: &Error, row_bytes: usize) -> Kept {
    match store.swap(&[claim(kept.0.len(), row_bytes)]).await.unwrap().remove(0) {
        Swapped::Won(version) => kept.0.push(version),
        Swapped::Lost(found) => {
            assert_eq!(error.applied(), Applied::Maybe, "{error}");
            kept.0.push(found.expect("somebody won").version);
        }
        Swapped::Failed(error) => panic!("{error}"),
    }
    kept.check(store).await;
    kept
}

#[tokio::test]
async fn sqlite_on_a_full_disk_loses_nothing_and_goes_on() {
    for (size, row_bytes) in [("size=1m", 300), ("size=8m", 100_000)] {
        let folder = tempfile::tempdir().unwrap();
        let Some(mount) = Mount::tmpfs(folder.path(), size) else { return };
        let path = folder.path().join("receipts.db");
        let store = SqliteStore::open(&path, Options::default()).await.unwrap();
        let (kept, error) = fill(&store, row_bytes).await;
        is_full(&store, &kept, &error, row_bytes).await;
        mount.remount(ENOUGH_SPACE);
        let kept = goes_on(&store, kept, &error, row_bytes).await;
        drop(store);
        kept.check(&SqliteStore::open(&path, Options::default()).await.unwrap()).await;
    }
}

/// A server on a disk that is nearly full already.
fn mariadb(folder: &Path) -> Option<(Mount, MariaDb, String)> {
    let mount = Mount::tmpfs(folder, "size=140m")?;
    let place = folder.join("server");
    std::fs::create_dir(&place).unwrap();
    let server = MariaDb::start_in(Some(place), &[])?;
    let url = server.database("receipts");
    Some((mount, server, url))
}

#[tokio::test]
async fn mariadb_on_a_full_disk_loses_nothing_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let Some((mount, mut server, url)) = mariadb(folder.path()) else { return };
    let store = MySqlStore::open(&url, Options::default()).await.unwrap();
    let (kept, error) = fill(&store, 4_000).await;
    is_full(&store, &kept, &error, 4_000).await;
    mount.remount(ENOUGH_SPACE);
    let kept = goes_on(&store, kept, &error, 4_000).await;
    server.kill();
    server.up();
    kept.check(&store).await;
}

/// With large receipts the server cannot undo what does not fit, and stops. With free space and a restart, nothing
/// is lost.
#[tokio::test]
async fn mariadb_that_gives_up_on_a_full_disk_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let Some((mount, mut server, url)) = mariadb(folder.path()) else { return };
    let store = MySqlStore::open(&url, Options::default()).await.unwrap();
    let (kept, error) = fill(&store, 100_000).await;
    assert!(matches!(error.kind(), ErrorKind::Full | ErrorKind::Unavailable), "{error}");
    mount.remount(ENOUGH_SPACE);
    server.kill();
    server.up();
    goes_on(&store, kept, &error, 100_000).await;
}
