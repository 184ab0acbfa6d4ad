//! Helpers for the other test modules: clocks, ids, swaps, folders.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use onceward::{
    Clock, Error, Filter, Found, Id, Page, Record, Scan, ScanTarget, Seen, State, Store, Swap, Swapped,
    Version,
};

/// A clock that stands still until it is set.
#[derive(Default)]
pub(crate) struct HandClock(AtomicU64);

pub(crate) const NOON_US: u64 = 1_800_000_000_000_000;

impl HandClock {
    pub(crate) fn at(now_us: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(now_us)))
    }

    pub(crate) fn set(&self, now_us: u64) {
        self.0.store(now_us, Ordering::SeqCst);
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

pub(crate) fn id(key: impl std::fmt::Display) -> Id {
    Id::new("tenant", "POST /charges", &key.to_string()).unwrap()
}

/// What is held is held by a run of this process.
pub(crate) fn record(state: State, due_in_s: Option<u64>, bytes: &'static str) -> Record {
    Record::new(state, Bytes::from_static(bytes.as_bytes()))
        .with_due_in(due_in_s.map(Duration::from_secs))
        .with_ends_with_writer(state == State::Held)
}

pub(crate) fn put(id: Id, seen: Seen, state: State, due_in_s: Option<u64>) -> Swap {
    Swap { id, seen, new: Some(record(state, due_in_s, "receipt")) }
}

/// Swaps one record and expects to win.
pub(crate) fn won(store: &dyn Store, swap: Swap) -> Version {
    match one(store, swap).unwrap() {
        Swapped::Won(version) => version,
        other => panic!("did not win: {other:?}"),
    }
}

/// Swaps one record and expects to lose.
pub(crate) fn lost(store: &dyn Store, swap: Swap) -> Option<Found> {
    match one(store, swap).unwrap() {
        Swapped::Lost(found) => found,
        other => panic!("did not lose: {other:?}"),
    }
}

pub(crate) fn one(store: &dyn Store, swap: Swap) -> Result<Swapped, Error> {
    block_on(store.swap(&[swap])).map(|mut swapped| swapped.remove(0))
}

pub(crate) fn hold(store: &dyn Store, key: impl std::fmt::Display, lease_s: u64) -> Version {
    won(store, put(id(key), Seen::Absent, State::Held, Some(lease_s)))
}

/// Held on behalf of somebody who outlives this process.
#[cfg(feature = "embedded")]
pub(crate) fn hold_for_others(store: &dyn Store, key: impl std::fmt::Display, lease_s: u64) -> Version {
    let record = record(State::Held, Some(lease_s), "receipt").with_ends_with_writer(false);
    won(store, Swap { id: id(key), seen: Seen::Absent, new: Some(record) })
}

pub(crate) fn done(store: &dyn Store, key: impl std::fmt::Display, version: Version, keep_s: u64) -> Version {
    won(store, put(id(key), Seen::Version(version), State::Done, Some(keep_s)))
}

pub(crate) fn remove(store: &dyn Store, key: impl std::fmt::Display, version: Version) -> Version {
    won(store, Swap { id: id(key), seen: Seen::Version(version), new: None })
}

pub(crate) fn load(store: &dyn Store, key: impl std::fmt::Display) -> Option<Found> {
    block_on(store.load(&[id(key)])).unwrap().remove(0).unwrap()
}

/// What is due, in whatever state.
pub(crate) const DUE: ScanTarget = ScanTarget::Due(None);

/// Everything in this state.
pub(crate) fn in_state(state: State) -> ScanTarget {
    ScanTarget::Matching(Filter::default().with_state(state))
}

/// Everything.
pub(crate) fn everything() -> ScanTarget {
    ScanTarget::Matching(Filter::default())
}

pub(crate) fn page(store: &dyn Store, of: ScanTarget, after: Option<onceward::Cursor>, limit: usize) -> Page {
    block_on(store.scan(&Scan::new(of, limit).with_after(after))).unwrap()
}

/// The keys of everything a scan finds, page by page.
pub(crate) fn scan_keys(store: &dyn Store, of: &ScanTarget, limit: usize) -> Vec<String> {
    let mut keys = Vec::new();
    let mut after = None;
    loop {
        let page = page(store, of.clone(), after, limit);
        assert!(page.found.len() <= limit, "a page looks at no more than its limit");
        assert!(page.unreadable.is_empty(), "{:?}", page.unreadable);
        keys.extend(page.found.iter().map(|(id, _)| id.key().to_owned()));
        match page.next {
            Some(next) => after = Some(next),
            None => return keys,
        }
    }
}

/// A folder on the disk, also where temporary ones are in memory: what is to be killed while it writes
/// and flushes needs the pace of a disk.
#[cfg(feature = "embedded")]
pub(crate) fn folder_on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The usual amount, or the large one where `./check --long` asks for it.
#[cfg(feature = "embedded")]
pub(crate) fn usual_or_long<T>(usual: T, long: T) -> T {
    if std::env::var_os("ONCEWARD_LONG").is_some_and(|wanted| wanted == "1") { long } else { usual }
}

/// A small generator with a seed; the same seed gives the same test.
#[cfg(feature = "embedded")]
pub(crate) struct Dice(u64);

#[cfg(feature = "embedded")]
impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[cfg(feature = "embedded")]
pub(crate) use embedded::*;

#[cfg(feature = "embedded")]
mod embedded {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    use onceward_stores::EmbeddedStore;
    use onceward_stores::embedded::Options;

    use super::*;

    pub(crate) fn open(path: &Path) -> EmbeddedStore {
        try_open(path).unwrap()
    }

    pub(crate) fn try_open(path: &Path) -> Result<EmbeddedStore, Error> {
        block_on(EmbeddedStore::open(path, Options::default()))
    }

    pub(crate) fn open_at(path: &Path, clock: &Arc<HandClock>) -> EmbeddedStore {
        let options = Options::default().with_clock(Arc::clone(clock) as Arc<dyn Clock>);
        block_on(EmbeddedStore::open(path, options)).unwrap()
    }

    /// The error of an opening that must fail, and that the folder is left byte for byte as it was.
    pub(crate) fn refused(path: &Path) -> Error {
        let before = all_bytes(path);
        let Err(error) = try_open(path) else { panic!("{} opened", path.display()) };
        assert!(before == all_bytes(path), "a refused folder was changed: {error}");
        error
    }

    /// Every file below a folder with its bytes; folders with none.
    pub(crate) fn all_bytes(path: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut all = BTreeMap::new();
        for entry in std::fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                all.extend(all_bytes(&path));
                all.insert(path, None);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                all.insert(path, Some(bytes));
            }
        }
        all
    }

    pub(crate) fn copy_folder(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let target = to.join(entry.file_name());
            if entry.path().is_dir() {
                copy_folder(&entry.path(), &target);
            } else {
                std::fs::copy(entry.path(), target).unwrap();
            }
        }
    }
}
