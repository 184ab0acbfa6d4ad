//! The worked example of CONTRIBUTING.md: what stands there, and the parts that it leaves out, pass the suite.

#![expect(clippy::similar_names, reason = "the names are those of the guide")]

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use onceward::{
    Age, Caps, Choose, Clock, Cursor, Due, Found, Id, Loaded, Page, Promises, Record, Scan, ScanTarget,
    State, Store, StoreFuture, Swap, Swapped, SystemClock, Version, Watch,
};
use onceward_verify::conformance;

use crate::kit;

#[derive(Default)]
struct Shelf {
    rows: BTreeMap<Id, Row>,
    version_max: u64,
}

struct Row {
    record: Record,
    version: u64,
    created: u64,
    due_us: Option<u64>,
}

struct ShelfStore {
    shelf: Mutex<Shelf>,
    clock: Arc<dyn Clock>,
}

impl ShelfStore {
    fn new() -> Self {
        Self { shelf: Mutex::default(), clock: Arc::new(SystemClock) }
    }
}

impl Shelf {
    fn swap(&mut self, swap: &Swap, now_us: u64) -> Swapped {
        let there = self.rows.get(&swap.id);
        if !kit::is_as_seen(swap.seen, there.map(|row| row.version)) {
            return Swapped::Lost(there.map(|row| row.found(now_us)));
        }
        // One counter for all ids: a removed id then needs no memory of its own.
        self.version_max = kit::next_version(self.version_max, now_us);
        let (version, created) = (self.version_max, there.map(|row| row.created));
        match &swap.new {
            None => drop(self.rows.remove(&swap.id)),
            Some(record) => {
                let due_us = kit::due_us(now_us, record.due_in);
                let (record, created) = (record.clone(), created.unwrap_or(version));
                self.rows.insert(swap.id.clone(), Row { record, version, created, due_us });
            }
        }
        Swapped::Won(Version(version))
    }
}

impl Row {
    fn found(&self, now_us: u64) -> Found {
        let due = Due::between(now_us, self.due_us);
        let age = Age::between(now_us, self.created, self.version);
        Found::new(Version(self.version), self.record.state, due, age, self.record.bytes.clone())
    }
}

impl Store for ShelfStore {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>> {
        let (now_us, mut shelf) = (kit::now_us(&*self.clock), self.shelf.lock().unwrap());
        Box::pin(ready(Ok(batch.iter().map(|swap| shelf.swap(swap, now_us)).collect())))
    }

    fn take<'a>(&'a self, _: State, _: usize, _: Choose<'a>) -> Option<StoreFuture<'a, Vec<Swapped>>> {
        None // or `take_by_scan`, where no other process can come between; or a step of its own, as in PostgreSQL
    }

    fn watch(&self) -> Option<Watch> {
        None // or `Some(self.signals.watch())`, with a `kit::signals::Broadcaster`
    }

    fn caps(&self) -> Caps {
        Caps::new("shelf", Promises::default().with_atomic(true))
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>> {
        let (now_us, shelf) = (kit::now_us(&*self.clock), self.shelf.lock().unwrap());
        let load = |id: &Id| Ok(shelf.rows.get(id).map(|row| row.found(now_us)));
        Box::pin(ready(Ok(ids.iter().map(load).collect())))
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page> {
        let (now_us, shelf) = (kit::now_us(&*self.clock), self.shelf.lock().unwrap());
        Box::pin(ready(Ok(shelf.scan(query, now_us))))
    }
}

impl Shelf {
    fn scan(&self, query: &Scan, now_us: u64) -> Page {
        let rows = self.rows.iter();
        match &query.target {
            ScanTarget::Due(state) => {
                let fits = |row: &Row| state.is_none_or(|state| state == row.record.state);
                let due = rows.filter(|(_, row)| fits(row)).filter_map(|(id, row)| {
                    let due_us = row.due_us.filter(|due_us| *due_us <= now_us)?;
                    Some(([&due_us.to_be_bytes()[..], id.as_bytes()].concat(), (id, row)))
                });
                Self::page(&due.collect(), query, now_us, |_, _| true)
            }
            ScanTarget::Matching(filter) => {
                let settled = |state| matches!(state, State::Done | State::Gone);
                // As an index over what is not settled does.
                let wanted =
                    |row: &Row| filter.state.is_none_or(|state| state == row.record.state || settled(state));
                let listed =
                    rows.filter(|(_, row)| wanted(row)).map(|(id, row)| (id.as_bytes().to_vec(), (id, row)));
                Self::page(&listed.collect(), query, now_us, |id, row| filter.matches(id, row.record.state))
            }
            ScanTarget::StepsOf(parent) => {
                let steps = rows.filter(|(id, _)| id.parent().as_ref() == Some(parent));
                let steps = steps.map(|(id, row)| (id.as_bytes().to_vec(), (id, row)));
                Self::page(&steps.collect(), query, now_us, |_, _| true)
            }
        }
    }

    /// A page of an index.
    fn page(
        index: &BTreeMap<Vec<u8>, (&Id, &Row)>,
        query: &Scan,
        now_us: u64,
        matches: impl Fn(&Id, &Row) -> bool,
    ) -> Page {
        let after = query.after.as_ref().map_or(Bound::Unbounded, |after| Bound::Excluded(after.0.to_vec()));
        let mut rest = index.range((after, Bound::Unbounded));
        let looked: Vec<_> = rest.by_ref().take(kit::scan_limit(query)).collect();
        let last = looked.last().filter(|_| rest.next().is_some());
        let next = last.map(|(place, _)| Cursor((*place).clone().into()));
        let found = looked.into_iter().filter(|(_, (id, row))| matches(id, row));
        Page::new(found.map(|(_, (id, row))| ((*id).clone(), row.found(now_us))).collect(), next)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shelf() {
    let make = async || Ok(Arc::new(ShelfStore::new()) as Arc<dyn Store>);
    let caps = Caps::new("shelf", Promises::default().with_atomic(true));
    conformance::run(make, caps).await;
}

/// The code in CONTRIBUTING.md is this file's, word for word.
#[test]
fn the_example_is_what_is_tested() {
    let guide = include_str!("../../../../CONTRIBUTING.md");
    let source = include_str!("shelf_test.rs");
    let (_, from_code) = guide.split_once("```rust\nimpl Shelf {").expect("the store is there");
    let (code, _) =
        from_code.split_once("    // load, scan\n}\n```").expect("it leaves out `load` and `scan`");
    assert!(source.contains(&format!("impl Shelf {{{code}")), "the example has changed, or this file has");
    let (_, call) = guide.split_once("```rust\n#[tokio::test").expect("the call is there");
    let (call, _) = call.split_once("```").expect("it ends");
    assert!(source.contains(&format!("#[tokio::test{call}")), "the call has changed, or this file has");
}

/// The entry of the guide has the fields that an entry of the table has.
#[test]
fn the_entry_of_the_guide_has_all_fields() {
    let guide = include_str!("../../../../CONTRIBUTING.md");
    let (_, entry) = guide.split_once("```rust\nScheme {\n").expect("the entry is there");
    let (entry, _) = entry.split_once("\n},\n```").expect("it ends");
    let (_, table) =
        include_str!("../open.rs").split_once("\nstruct Scheme {\n").expect("the table has a type");
    let (declared, _) = table.split_once("\n}\n").expect("it ends");
    // Several fields may stand in one line of the entry, and what a field is set to may have colons in it.
    let is_field = |word: &str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let named = |text: &str| -> BTreeSet<String> {
        let parts = text.split([' ', '\n']).filter_map(|word| word.strip_suffix(':'));
        parts.filter(|name| is_field(name)).map(str::to_owned).collect()
    };
    let declared = declared.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>();
    assert_eq!(named(entry), named(&declared.join("\n")));
}
