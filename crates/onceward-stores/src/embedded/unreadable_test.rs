//! Tests of unreadable rows: a receipt that cannot be read fails alone.

use std::time::Duration;

use bytes::Bytes;
use fjall::{OwnedWriteBatch, PersistMode};
use onceward::{Applied, Filter, Record, ScanTarget, Seen, State, Version};

use super::group_record::{GroupRecord, RECORD_KEY};
use super::*;

const LEASE: Duration = Duration::from_hours(1);

fn id(key: &str) -> Id {
    Id::new("scope", "operation", key).unwrap()
}

fn put(id: &Id, seen: Seen, state: State, due_in: Option<Duration>) -> Swap {
    let record =
        Record::new(state, Bytes::from_static(b"receipt")).with_due_in(due_in).with_ends_with_writer(true);
    Swap { id: id.clone(), seen, new: Some(record) }
}

async fn open(path: &Path) -> EmbeddedStore {
    EmbeddedStore::open(path, Options::default()).await.unwrap()
}

async fn write(store: &EmbeddedStore, id: &Id, state: State, due_in: Option<Duration>) -> Version {
    match store.swap(&[put(id, Seen::Absent, state, due_in)]).await.unwrap().remove(0) {
        Swapped::Won(version) => version,
        other => panic!("{other:?}"),
    }
}

/// Changes stored rows as a broken disk would, in a group of its own, so that only the rows are damaged.
/// Nothing may be written through the store afterwards.
fn damage(store: &EmbeddedStore, ids: &[&Id], damage: impl Fn(&mut Vec<u8>)) {
    let inner = store.slot.inner();
    let tables = &inner.tables;
    let mut batch = OwnedWriteBatch::with_capacity(tables.database.clone(), ids.len() + 1)
        .durability(Some(PersistMode::SyncData));
    for id in ids {
        let Some(location) = inner.lease_ends.location(id) else {
            let mut row = tables.receipts.get(id.as_bytes()).unwrap().unwrap().to_vec();
            damage(&mut row);
            batch.insert(&tables.receipts, id.as_bytes(), &row[..]);
            continue;
        };
        let key = location.block.to_key();
        let mut block = tables.held.get(key).unwrap().unwrap().to_vec();
        assert_eq!(location.at + location.len, block.len(), "its group wrote no other row");
        let mut row = block.split_off(location.at);
        damage(&mut row);
        block.extend(row);
        batch.insert(&tables.held, key, &block[..]);
    }
    let last = GroupRecord::decode(&tables.groups.get(RECORD_KEY).unwrap().unwrap()).unwrap();
    let record = GroupRecord { sequence: last.sequence + 1, engine_number: tables.database.seqno(), ..last };
    batch.insert(&tables.groups, RECORD_KEY, record.encode());
    batch.commit().unwrap();
}

async fn page(store: &EmbeddedStore, of: ScanTarget) -> (Vec<String>, Vec<String>) {
    let (mut found, mut unreadable, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let page = store.scan(&Scan::new(of.clone(), 2).with_after(after)).await.unwrap();
        found.extend(page.found.into_iter().map(|(id, _)| id.key().to_owned()));
        for (id, error) in page.unreadable {
            assert_eq!(error.kind(), ErrorKind::Damaged);
            unreadable.push(id.key().to_owned());
        }
        after = page.next;
        if after.is_none() {
            found.sort();
            unreadable.sort();
            return (found, unreadable);
        }
    }
}

fn in_state(state: State) -> ScanTarget {
    ScanTarget::Matching(Filter::default().with_state(state))
}

fn names(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|&key| key.to_owned()).collect()
}

#[tokio::test]
async fn the_neighbours_of_a_damaged_row_are_swapped_and_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let ids = ["1", "2", "3"].map(id);
    for id in &ids {
        write(&store, id, State::Done, None).await;
    }
    damage(&store, &[&ids[1]], |row| row[3] ^= 1);
    let batch = ids.each_ref().map(|id| put(id, Seen::Absent, State::Held, None));
    for _ in 0..2 {
        // On its own and together with others, whose groups share one write.
        let (one, two) = tokio::join!(store.swap(&batch), store.swap(&batch));
        for answers in [one.unwrap(), two.unwrap()] {
            let [Swapped::Lost(Some(_)), Swapped::Failed(error), Swapped::Lost(Some(_))] = &answers[..]
            else {
                panic!("{answers:?}")
            };
            assert_eq!((error.kind(), error.applied()), (ErrorKind::Damaged, Applied::No));
            assert!(error.to_string().contains("checksum"), "{error}");
        }
    }
    let loaded = store.load(&ids).await.unwrap();
    assert!(loaded[0].is_ok() && loaded[2].is_ok());
    assert_eq!(loaded[1].as_ref().unwrap_err().kind(), ErrorKind::Damaged);
}

#[tokio::test]
async fn a_scan_goes_past_damaged_rows_and_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let mut damaged = Vec::new();
    for state in State::ALL {
        for (kind, due_in) in [("never", None), ("over", Some(Duration::ZERO)), ("later", Some(LEASE))] {
            for part in ["bad", "good"] {
                let id = id(&format!("{state}-{kind}-{part}"));
                write(&store, &id, state, due_in).await;
                damaged.extend((part == "bad").then_some(id));
            }
        }
    }
    let parent = id("parent");
    for step in ["bad", "good"] {
        let step = parent.step(step).unwrap();
        write(&store, &step, State::Done, None).await;
        damaged.extend(step.operation().ends_with("bad").then_some(step));
    }
    damage(&store, &damaged.iter().collect::<Vec<_>>(), |row| {
        row.truncate(11);
    });

    let (found, unreadable) = page(&store, ScanTarget::Matching(Filter::default())).await;
    assert_eq!((found.len(), unreadable.len()), (damaged.len(), damaged.len()));
    for state in [State::Waiting, State::Held, State::Unknown, State::Dead] {
        let all = |part| ["later", "never", "over"].map(|kind| format!("{state}-{kind}-{part}")).to_vec();
        assert_eq!(page(&store, in_state(state)).await, (all("good"), all("bad")), "{state}");
    }
    for state in State::ALL {
        let (found, unreadable) = page(&store, ScanTarget::Due(Some(state))).await;
        assert_eq!(found, [format!("{state}-over-good")]);
        assert!(unreadable.contains(&format!("{state}-over-bad")), "{state}: {unreadable:?}");
    }
    let (found, unreadable) = page(&store, ScanTarget::Due(None)).await;
    assert_eq!((found.len(), unreadable.len()), (State::ALL.len(), State::ALL.len()));
    assert_eq!(page(&store, ScanTarget::StepsOf(parent)).await, (names(&["parent"]), names(&["parent"])));
    let one = Filter::default()
        .with_scope("scope".to_owned())
        .with_operation(onceward::TextMatch::Is("operation".into()))
        .with_key("done-never-bad".to_owned());
    assert_eq!(page(&store, ScanTarget::Matching(one)).await, (vec![], names(&["done-never-bad"])));
}

#[tokio::test]
async fn a_folder_with_a_damaged_claim_opens_and_frees_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let (good, bad) = (id("good"), id("bad"));
    let version = write(&store, &good, State::Held, Some(LEASE)).await;
    let lost = write(&store, &bad, State::Held, Some(LEASE)).await;
    damage(&store, &[&bad], |row| row[12] ^= 0x80);
    store.close().await.unwrap();

    for _ in 0..2 {
        let store = open(folder.path()).await;
        for of in [ScanTarget::Due(None), ScanTarget::Due(Some(State::Held)), in_state(State::Held)] {
            assert_eq!(page(&store, of).await, (names(&["good"]), names(&["bad"])));
        }
        let batch = [
            put(&bad, Seen::Version(lost), State::Done, None),
            put(&good, Seen::Version(Version(1)), State::Done, None),
        ];
        let answers = store.swap(&batch).await.unwrap();
        assert!(matches!(&answers[..], [Swapped::Failed(_), Swapped::Lost(Some(_))]), "{answers:?}");
        store.close().await.unwrap();
    }
    let store = open(folder.path()).await;
    let answers = store.swap(&[put(&good, Seen::Version(version), State::Done, None)]).await.unwrap();
    assert!(matches!(&answers[..], [Swapped::Won(_)]), "{answers:?}");
}

#[tokio::test]
async fn a_row_of_a_later_layout_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let id = id("later");
    write(&store, &id, State::Done, None).await;
    damage(&store, &[&id], |row| {
        row[0] = 9;
        let (head, bytes) = row.split_at(30);
        let sum = crc32fast::hash(&[id.as_bytes(), &head[..26], bytes].concat());
        row[26..30].copy_from_slice(&sum.to_le_bytes());
    });
    let error = store.load(&[id]).await.unwrap().remove(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.to_string().contains("layout 9"), "{error}");
}
