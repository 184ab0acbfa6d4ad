//! A disk that runs full under a database: every caller is told, nothing acknowledged is lost, what is there can
//! still be read, and work goes on as soon as there is room again, without a restart.

use onceward::{Applied, ErrorKind, Record, Seen, State, Store, Swap, Swapped, Version};
use onceward_stores::{MySqlStore, SqliteStore, sql::Options};

use crate::disk_full::Mount;
use crate::servers::MariaDb;
use crate::support::id;

/// What was answered, in the order of the answers.
struct Kept(Vec<Version>);

fn claim(key: usize, bytes: usize) -> Swap {
    let bytes = vec![u8::try_from(key % 251).unwrap(); bytes].into();
    Swap { id: id(key), seen: Seen::Absent, new: Some(Record { state: State::Done, due_in: None, bytes }) }
}

impl Kept {
    /// All of it is there, as it was answered.
    async fn check(&self, store: &dyn Store) {
        for (key, version) in self.0.iter().enumerate() {
            let found = store.load(&[id(key)]).await.unwrap().remove(0);
            assert_eq!(found.map(|found| found.version), Some(*version), "{key} is gone");
        }
    }
}

/// Writes until there is no room, makes room, and goes on.
async fn runs_full_and_goes_on(store: &dyn Store, mount: &Mount, row_bytes: usize) -> Kept {
    let mut kept = Kept(Vec::new());
    let error = loop {
        let key = kept.0.len();
        assert!(key < 100_000, "the disk never ran full");
        match store.swap(&[claim(key, row_bytes)]).await {
            Ok(swapped) => match swapped[0] {
                Swapped::Won(version) => kept.0.push(version),
                Swapped::Lost(_) => panic!("nobody else claims {key}"),
            },
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(error.to_string().contains("no room left"), "{error}");
    assert!(!kept.0.is_empty());
    // Refusals go on, each with its reason; and so do replays.
    let failed = kept.0.len();
    let again = store.swap(&[claim(failed + 1, row_bytes)]).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Full, "{again}");
    kept.check(store).await;

    mount.remount("size=500m");
    match store.swap(&[claim(failed, row_bytes)]).await.unwrap().remove(0) {
        Swapped::Won(version) => kept.0.push(version),
        Swapped::Lost(found) => {
            assert_eq!(error.applied(), Applied::Maybe, "{error}");
            kept.0.push(found.expect("somebody won").version);
        }
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
        let kept = runs_full_and_goes_on(&store, &mount, row_bytes).await;
        drop(store);
        kept.check(&SqliteStore::open(&path, Options::default()).await.unwrap()).await;
    }
}

#[tokio::test]
async fn mariadb_on_a_full_disk_loses_nothing_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    // The server takes half of it by itself.
    let Some(mount) = Mount::tmpfs(folder.path(), "size=220m") else { return };
    let place = folder.path().join("server");
    std::fs::create_dir(&place).unwrap();
    let Some(mut server) = MariaDb::start_in(Some(place), &[]) else { return };
    let url = server.database("receipts");
    let store = MySqlStore::open(&url, Options::default()).await.unwrap();
    let kept = runs_full_and_goes_on(&store, &mount, 500_000).await;
    server.kill();
    server.up();
    kept.check(&MySqlStore::open(&url, Options::default()).await.unwrap()).await;
}
