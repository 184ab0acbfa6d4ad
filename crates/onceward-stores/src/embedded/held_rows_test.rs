//! Tests of where a receipt is while it is held, and of what readers see meanwhile.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onceward::{Filter, Found, Record, Scan, ScanTarget, Seen, Store, Swap, Swapped, TextMatch, Version};

use super::*;
use crate::embedded::{EmbeddedStore, Options};

fn id(key: &str) -> Id {
    Id::new("scope", "operation", key).unwrap()
}

async fn open(path: &Path) -> EmbeddedStore {
    EmbeddedStore::open(path, Options::default()).await.unwrap()
}

/// Writes this state over `seen`; `None` removes the receipt. Due in an hour, unless it is over at once.
async fn write(store: &EmbeddedStore, key: &str, seen: Seen, state: Option<State>, is_over: bool) -> Seen {
    let due_in = if is_over { Duration::ZERO } else { Duration::from_hours(1) };
    let record = |state: State| Record::new(state, state.to_string().into_bytes()).with_due_in(Some(due_in));
    let swap = Swap { id: id(key), seen, new: state.map(record) };
    match store.swap(&[swap]).await.unwrap().remove(0) {
        Swapped::Won(version) if state.is_some() => Seen::Version(version),
        Swapped::Won(_) => Seen::Absent,
        other => panic!("{other:?}"),
    }
}

async fn load(store: &EmbeddedStore, key: &str) -> Option<Found> {
    store.load(&[id(key)]).await.unwrap().remove(0).unwrap()
}

/// The states of the rows in `held` and in `receipts`.
fn stored(store: &EmbeddedStore, key: &str) -> (Option<State>, Option<State>) {
    let inner = store.slot.inner();
    let held = inner.lease_ends.location(&id(key)).map(|location| inner.tables.held_row(&id(key), location));
    let held = held.map(|row| row.unwrap().expect("its block is there").state);
    (held, inner.tables.row_unless_held(&id(key)).unwrap().map(|row| row.state))
}

async fn found(store: &EmbeddedStore, of: ScanTarget) -> Vec<(String, State)> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store.scan(&Scan::new(of.clone(), 1).with_after(after)).await.unwrap();
        assert!(page.unreadable.is_empty());
        all.extend(page.found.into_iter().map(|(id, found)| (id.key().to_owned(), found.state)));
        after = page.next;
        if after.is_none() {
            return all;
        }
    }
}

fn matching(state: Option<State>) -> ScanTarget {
    ScanTarget::Matching(Filter::default().with_state(state))
}

#[tokio::test]
async fn a_receipt_is_stored_once_while_it_is_held() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let (held, done) = (Some(State::Held), Some(State::Done));
    let claimed = write(&store, "1", Seen::Absent, held, false).await;
    assert_eq!(stored(&store, "1"), (held, None));
    let renewed = write(&store, "1", claimed, held, false).await;
    assert_eq!(stored(&store, "1"), (held, None));
    let completed = write(&store, "1", renewed, done, false).await;
    assert_eq!(stored(&store, "1"), (None, done));
    let again = write(&store, "1", completed, held, false).await;
    assert_eq!(stored(&store, "1"), (held, done), "a claim leaves what it replaces");
    write(&store, "1", again, None, false).await;
    assert_eq!(stored(&store, "1"), (None, None));
}

#[tokio::test]
async fn what_was_before_a_claim_is_not_found_while_it_is_held_or_after() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = open(folder.path()).await;
    let mut seen = Vec::new();
    for state in State::ALL.into_iter().filter(|state| *state != State::Held) {
        let key = state.to_string();
        let before = write(&store, &key, Seen::Absent, Some(state), true).await;
        seen.push((key.clone(), write(&store, &key, before, Some(State::Held), false).await));
    }
    // Only of a table each: one before all of those, one among them.
    let first = write(&store, "a", Seen::Absent, Some(State::Held), false).await;
    write(&store, "e", Seen::Absent, Some(State::Done), false).await;
    for _ in 0..2 {
        let all = ["a", "dead", "done", "e", "gone", "unknown", "waiting"];
        let state = |key: &str| if key == "e" { State::Done } else { State::Held };
        assert_eq!(
            found(&store, matching(None)).await,
            all.map(|key| (key.to_owned(), state(key))),
            "in the order of their ids"
        );
        for other in State::ALL.into_iter().filter(|state| *state != State::Held) {
            let expected: &[&str] = if other == State::Done { &["e"] } else { &[] };
            let keys = found(&store, matching(Some(other))).await;
            assert_eq!(keys.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), expected, "{other}");
        }
        assert_eq!(found(&store, ScanTarget::Due(None)).await, []);
        for (key, seen) in &seen {
            let found_row = load(&store, key).await.unwrap();
            assert_eq!((Seen::Version(found_row.version), found_row.state), (*seen, State::Held));
            let filter = Filter::default()
                .with_scope("scope".to_owned())
                .with_operation(TextMatch::Is("operation".into()))
                .with_key(key.clone());
            let one = found(&store, ScanTarget::Matching(filter)).await;
            assert_eq!(one, [(key.clone(), State::Held)]);
        }
        store.close().await.unwrap();
        store = open(folder.path()).await;
    }
    // Released ones do not become what they were, neither now nor when the folder is opened again.
    for (key, seen) in seen {
        write(&store, &key, seen, None, false).await;
    }
    for _ in 0..2 {
        assert_eq!(found(&store, matching(Some(State::Held))).await, [("a".to_owned(), State::Held)]);
        assert_eq!(found(&store, matching(None)).await.len(), 2);
        store.close().await.unwrap();
        store = open(folder.path()).await;
    }
    write(&store, "a", first, Some(State::Done), false).await;
}

/// An id goes from one table to the other and back while others read it: it always exists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_never_misses_what_is_claimed_or_given_back_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(folder.path()).await);
    let mut seen = write(&store, "1", Seen::Absent, Some(State::Waiting), true).await;
    let (stop, reading) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let reader = tokio::task::spawn_blocking({
        let (inner, stop, reading) = (store.slot.inner(), Arc::clone(&stop), Arc::clone(&reading));
        move || {
            let (mut reads, mut last) = ([0; 2], Version(0));
            while !stop.load(Ordering::Relaxed) {
                let row = inner.row(&id("1")).unwrap().expect("it was never removed");
                assert!(Version(row.version) >= last, "time does not go back");
                last = Version(row.version);
                reads[usize::from(row.state == State::Held)] += 1;
                let page = crate::embedded::reader::scan(&inner, &Scan::new(matching(None), 9)).unwrap();
                assert_eq!(page.found.len(), 1);
                reading.store(true, Ordering::Relaxed);
            }
            reads
        }
    });
    while !reading.load(Ordering::Relaxed) {
        tokio::task::yield_now().await;
    }
    for round in 0..2000 {
        let state = if round % 2 == 0 { State::Held } else { State::Waiting };
        seen = write(&store, "1", seen, Some(state), true).await;
    }
    stop.store(true, Ordering::Relaxed);
    let reads = reader.await.unwrap();
    assert!(reads.iter().all(|reads| *reads > 0), "both were seen: {reads:?}");
}
