//! Tests of the embedded store at its limits: full queues, callers that go away, large receipts, long pages, long
//! ids. Nothing blocks a caller's thread, nothing grows without bound.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use onceward::{
    Applied, Clock, ErrorKind, Filter, Id, KEY_BYTES_MAX, OPERATION_BYTES_MAX, Result, SCOPE_BYTES_MAX,
    ScanTarget, Seen, State, Store, Swap, Swapped, TextMatch,
};
use onceward_stores::EmbeddedStore;
use onceward_stores::embedded::Options;

use crate::support::*;

/// Stops the writer, which asks it at the beginning of each group, until it is let go.
#[derive(Default)]
struct Gate {
    state: Mutex<(Shut, Waits)>,
    changed: Condvar,
}

type Shut = bool;
type Waits = bool;

impl Gate {
    fn shut(&self) {
        self.state.lock().unwrap().0 = true;
    }

    fn wait_for_the_writer(&self) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |(_, waits)| !*waits).unwrap());
    }

    fn open(&self) {
        self.state.lock().unwrap().0 = false;
        self.changed.notify_all();
    }
}

impl Clock for Gate {
    fn now_us(&self) -> u64 {
        let mut state = self.state.lock().unwrap();
        state.1 = true;
        self.changed.notify_all();
        self.changed.wait_while(state, |(shut, _)| *shut).unwrap().1 = false;
        NOON_US
    }
}

fn open_gated(path: &Path) -> (EmbeddedStore, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let options = Options::default().with_clock(Arc::clone(&gate) as Arc<dyn Clock>);
    (block_on(EmbeddedStore::open(path, options)).unwrap(), gate)
}

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_full_queue_refuses_at_once_and_loses_nothing() {
    const ASKED: u64 = 140_000;
    let folder = tempfile::tempdir().unwrap();
    let (store, gate) = open_gated(folder.path());
    gate.shut();
    let batches: Vec<[Swap; 1]> =
        (0..ASKED).map(|key| [put(id(key), Seen::Absent, State::Held, Some(30))]).collect();
    // All from one thread: if any call blocked it, the writer would never be released.
    let mut waiting: Vec<(u64, _)> = (0..).zip(batches.iter().map(|batch| store.swap(batch))).collect();
    let mut refused = Vec::new();
    waiting.retain_mut(|(key, swap)| match poll(swap) {
        Poll::Pending => true,
        Poll::Ready(answer) => {
            let error = answer.unwrap_err();
            assert_eq!((error.kind(), error.applied()), (ErrorKind::Overloaded, Applied::No));
            refused.push(*key);
            false
        }
    });
    assert!(!refused.is_empty() && waiting.len() >= 131_072, "{} refused", refused.len());
    // Half of the waiting callers go away; their writes happen anyway.
    let kept: Vec<u64> = waiting.iter().map(|(key, _)| *key).collect();
    waiting.retain(|(key, _)| key % 2 == 0);
    gate.open();
    for (_, swap) in waiting {
        assert!(matches!(block_on(swap).unwrap()[..], [Swapped::Won(_)]));
    }
    drop(store);
    let store = open(folder.path());
    for key in kept.into_iter().step_by(37) {
        assert!(load(&store, key).is_some(), "{key}");
    }
    for key in refused.into_iter().step_by(37) {
        assert!(load(&store, key).is_none(), "{key}");
    }
}

/// A task of an executor that is gone: waking it drops it, and with it the last handle of the store.
struct LastTask(Mutex<Option<Task>>);

type Task = Pin<Box<dyn Future<Output = Result<Vec<Swapped>>> + Send>>;

impl Wake for LastTask {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

#[test]
fn the_last_handle_may_be_dropped_on_the_stores_own_thread() {
    let folder = tempfile::tempdir().unwrap();
    let (store, gate) = open_gated(folder.path());
    let store = Arc::new(store);
    gate.shut();
    let (first, second) = (Arc::clone(&store), Arc::clone(&store));
    let mut first: Task =
        Box::pin(async move { first.swap(&[put(id(1), Seen::Absent, State::Held, Some(30))]).await });
    let task = Arc::new(LastTask(Mutex::new(None)));
    let waker = Waker::from(Arc::clone(&task));
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    *task.0.lock().unwrap() = Some(first);
    gate.wait_for_the_writer();
    // Another one waits for the next group, and must be written although the store is being dropped.
    let mut second =
        Box::pin(async move { second.swap(&[put(id(2), Seen::Absent, State::Held, Some(30))]).await });
    assert!(poll(&mut second).is_pending());
    drop(second);
    drop(store);
    gate.open();
    let store = (0..600)
        .find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            try_open(folder.path()).ok()
        })
        .expect("the folder is let go");
    assert!(load(&store, 1).is_some() && load(&store, 2).is_some());
}

fn large(key: u64, bytes: usize) -> Swap {
    let record = record(State::Done, Some(0), "").with_bytes(vec![0; bytes]);
    Swap { id: id(format!("{key:04}")), seen: Seen::Absent, new: Some(record) }
}

#[test]
fn a_page_of_large_receipts_is_bounded_by_bytes() {
    const MIB: usize = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let batch: Vec<Swap> = (0..24).map(|key| large(key, MIB)).collect();
    block_on(store.swap(&batch)).unwrap();
    let matching = |state| ScanTarget::Matching(Filter::default().with_state(state));
    for of in [DUE, matching(None)] {
        let page = page(&store, of.clone(), None, 1000);
        assert!((1..=9).contains(&page.found.len()) && page.next.is_some(), "{of:?}: {}", page.found.len());
        assert_eq!(scan_keys(&store, &of, 1000).len(), 24, "{of:?}");
    }
    // Rows that do not match are read as well.
    let none = page(&store, matching(Some(State::Gone)), None, 1000);
    assert!(none.found.is_empty() && none.next.is_some());
}

#[test]
fn a_huge_batch_is_written_in_several_groups() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let many: Vec<Swap> =
        (0..9000).map(|key| put(id(format!("{key:04}")), Seen::Absent, State::Held, Some(30))).collect();
    let heavy: Vec<Swap> = (0..10).map(|key| large(10_000 + key, 1 << 20)).collect();
    for (batch, groups) in [(many, 3), (heavy, 2)] {
        let before = groups_in(folder.path());
        let swapped = block_on(store.swap(&batch)).unwrap();
        assert!(swapped.len() == batch.len() && swapped.iter().all(|one| matches!(one, Swapped::Won(_))));
        assert_eq!(groups_in(folder.path()) - before, groups);
    }
}

/// How many groups end in the journal.
fn groups_in(folder: &Path) -> usize {
    let journal = std::fs::read(folder.join("db/0.jnl")).unwrap();
    // Most of it is preallocated zeros, which are quickest compared in whole slices.
    let zeros = [0; 4096];
    let used: Vec<u8> = journal
        .chunks(zeros.len())
        .filter(|slice| slice != &&zeros[..slice.len()])
        .flatten()
        .copied()
        .collect();
    used.windows(4).filter(|bytes| bytes == b"FJL\x03").count()
}

#[test]
fn closing_waits_for_the_folder_and_for_what_was_asked() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..5 {
        let store = open(folder.path());
        let batch = [put(id(round), Seen::Absent, State::Held, Some(30))];
        // Sent, and usually not yet answered.
        let _ = poll(&mut store.swap(&batch));
        block_on(store.close()).unwrap();
        assert!(load(&open(folder.path()), round).is_some());
    }
}

#[test]
fn a_receipt_beyond_all_bounds_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    // Never touched, so it costs address space only.
    let huge = large(1, (2 << 30) + 1);
    let batch = [put(id("0000"), Seen::Absent, State::Held, None), huge, large(2, 10)];
    let answers = block_on(store.swap(&batch)).unwrap();
    let [Swapped::Won(_), Swapped::Failed(error), Swapped::Won(_)] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Invalid, Applied::No));
    hold(&store, "0001", 30);
    assert_eq!(store.caps().promises.record_bytes_max, 2 << 30);
}

fn matching(scope: &str, operation: Option<TextMatch>) -> ScanTarget {
    ScanTarget::Matching(Filter::default().with_scope(scope.to_owned()).with_operation(operation))
}

#[test]
fn the_longest_ids_are_kept_found_and_swept() {
    let folder = tempfile::tempdir().unwrap();
    let clock = HandClock::at(NOON_US);
    let scope = "s".repeat(SCOPE_BYTES_MAX);
    let operation = "o".repeat(OPERATION_BYTES_MAX);
    let ids: Vec<Id> = (0..9)
        .map(|last| Id::new(&scope, &operation, &format!("{}{last}", "k".repeat(KEY_BYTES_MAX - 1))).unwrap())
        .collect();
    let store = open_at(folder.path(), &clock);
    for (at, id) in ids.iter().enumerate() {
        let state = if at % 2 == 0 { State::Held } else { State::Done };
        won(&store, put(id.clone(), Seen::Absent, state, Some(30)));
    }
    drop(store);
    clock.advance(Duration::from_secs(60));
    let store = open_at(folder.path(), &clock);
    assert!(block_on(store.load(&ids)).unwrap().into_iter().all(|found| found.unwrap().is_some()));
    for of in [
        DUE,
        matching(&scope, Some(TextMatch::Is(operation.clone()))),
        matching(&scope, Some(TextMatch::StartsWith(operation.clone()))),
    ] {
        assert_eq!(scan_keys(&store, &of, 2).len(), ids.len(), "{of:?}");
    }
    let beyond = matching(&"s".repeat(70_000), None);
    assert_eq!(scan_keys(&store, &beyond, 2), [""; 0]);
}

#[test]
fn opening_again_and_again_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    hold(&open(folder.path()), 1, 30);
    drop(open(folder.path()));
    let files = |path: &Path| -> (usize, usize) {
        let all = all_bytes(path);
        (all.len(), all.values().flatten().map(Vec::len).sum())
    };
    let before = files(folder.path());
    for _ in 0..20 {
        drop(open(folder.path()));
    }
    assert_eq!(files(folder.path()), before);
}
