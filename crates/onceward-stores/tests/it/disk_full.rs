//! Tests of a full disk: every caller is told, nothing acknowledged is lost, and what was there can
//! still be read.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use onceward::{Applied, ErrorKind, Seen, State, Store, Swap, Swapped};

use crate::support::*;

/// A file system of its own for one test, unmounted at its end.
pub(crate) struct Mount(PathBuf);

impl Mount {
    /// `None`, with a visible message, where mounting is not permitted; fails where it should be.
    pub(crate) fn tmpfs(path: &Path, options: &str) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(path).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(path.to_path_buf()));
        }
        let must = std::env::var_os("ONCEWARD_CHECK").is_some_and(|check| check == "1");
        assert!(!(must && is_root()), "mounting failed for root, so a full or read-only disk is NOT tested");
        // Past the test's captured output: a skip must be seen.
        let skipped = "SKIPPED: mounting is not permitted here, so a full or read-only disk was NOT tested\n";
        let _ = std::io::stderr().write_all(skipped.as_bytes());
        None
    }

    pub(crate) fn remount(&self, options: &str) {
        let status = Command::new("mount").arg("-o").arg(format!("remount,{options}")).arg(&self.0).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

#[test]
fn a_full_disk_loses_nothing_and_says_so() {
    for (size, row_bytes) in [("size=2m", 300), ("size=3m", 20_000), ("size=24m", 100_000)] {
        let folder = tempfile::tempdir().unwrap();
        let Some(mount) = Mount::tmpfs(folder.path(), size) else { return };
        let place = folder.path().join("store");
        let store = open(&place);
        let mut kept = Vec::new();
        let claim = |key: u64| {
            let bytes = vec![u8::try_from(key % 251).unwrap(); row_bytes];
            let new = Some(record(State::Done, None, "").with_bytes(bytes));
            Swap { id: id(key), seen: Seen::Absent, new }
        };
        let error = loop {
            let key = kept.len() as u64;
            assert!(key < 1_000_000, "the disk never ran full");
            match one(&store, claim(key)) {
                Ok(Swapped::Won(version)) => kept.push((key, version)),
                Ok(lost) => panic!("{lost:?}"),
                Err(error) => break error,
            }
        };
        assert!(!kept.is_empty());
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        assert!(error.to_string().contains("free at least 8 MiB"), "{error}");

        // It is unknown whether the failed write is on disk, so it is neither shown nor hidden.
        let failed = kept.len() as u64;
        if error.applied() == Applied::Maybe {
            assert!(block_on(store.load(&[id(failed)])).unwrap()[0].is_err());
        }
        // Nothing new is acknowledged, and each refusal says why; replays go on.
        for key in failed + 1..failed + 20 {
            let error = one(&store, claim(key)).unwrap_err();
            assert_eq!((error.kind(), error.applied()), (ErrorKind::Full, Applied::No));
            assert!(error.to_string().contains("free at least 8 MiB"), "{error}");
        }
        for (key, version) in &kept {
            assert_eq!(lost(&store, claim(*key)).unwrap().version, *version);
        }
        drop(store);

        mount.remount("size=200m");
        let store = open(&place);
        for (key, version) in &kept {
            assert_eq!(load(&store, key).unwrap().version, *version, "{size}: {key} is gone");
        }
        let next = kept.last().unwrap().0 + 100;
        assert!(matches!(one(&store, claim(next)), Ok(Swapped::Won(_))));
        drop(store);
        assert!(load(&open(&place), next).is_some());
    }
}

#[test]
fn the_store_goes_on_by_itself_when_there_is_space_again() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::tmpfs(folder.path(), "size=2m") else { return };
    let store = open(&folder.path().join("store"));
    let running = |key: u64| {
        let new = record(State::Held, Some(3600), "");
        Swap { id: id(format!("running-{key}")), seen: Seen::Absent, new: Some(new) }
    };
    let Ok(Swapped::Won(run)) = one(&store, running(0)) else { panic!("an empty disk is full") };
    let claim = |key: u64| {
        let new = Some(record(State::Done, None, "").with_bytes(vec![7; 20_000]));
        Swap { id: id(key), seen: Seen::Absent, new }
    };
    let mut kept = Vec::new();
    while let Ok(Swapped::Won(version)) = one(&store, claim(kept.len() as u64)) {
        kept.push(version);
        assert!(kept.len() < 1_000_000, "the disk never ran full");
    }
    mount.remount("size=200m");
    let began = Instant::now();
    while one(&store, running(1)).is_err() {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not go on");
        std::thread::sleep(Duration::from_millis(20));
    }
    for (key, version) in kept.iter().enumerate() {
        assert_eq!(load(&store, key).unwrap().version, *version, "{key} is gone");
    }
    // A run of this process is alive: the folder was opened again, but not by another process.
    let found = load(&store, "running-0").unwrap();
    assert_eq!(found.version, run);
    assert!(!found.due.is_over(), "{:?}", found.due);
    drop(store);
    let reopened = open(&folder.path().join("store"));
    assert!(load(&reopened, "running-0").unwrap().due.is_over(), "now its process has ended");
}

#[test]
fn a_disk_too_small_to_begin_with_is_said_to_be_full() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::tmpfs(folder.path(), "size=16k") else { return };
    let place = folder.path().join("store");
    let Err(error) = try_open(&place) else { panic!("opened") };
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    mount.remount("size=50m");
    hold(&open(&place), 1, 30);
}

#[test]
fn a_batch_that_only_fits_in_part_says_that_it_may_have_happened() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mount) = Mount::tmpfs(folder.path(), "size=30m") else { return };
    let place = folder.path().join("store");
    let store = open(&place);
    let claim = |key: u64| Swap {
        id: id(format!("{key:04}")),
        seen: Seen::Absent,
        new: Some(record(State::Done, None, "").with_bytes(vec![7; 1 << 20])),
    };
    let batch: Vec<Swap> = (0..60).map(claim).collect();
    let error = block_on(store.swap(&batch)).unwrap_err();
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Full, Applied::Maybe), "{error}");
    drop(store);
    mount.remount("size=300m");
    let store = open(&place);
    let there: Vec<bool> = batch.iter().map(|swap| load(&store, swap.id.key()).is_some()).collect();
    assert!(there[0] && !there[59] && there.is_sorted_by(|one, next| one >= next), "{there:?}");
}
