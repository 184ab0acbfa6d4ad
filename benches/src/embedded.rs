//! The embedded store through the engine, next to a bare fjall loop that keeps the same promise: two
//! synced batches for every group of claims, one when they begin and one when they end.

#![expect(clippy::cast_precision_loss, reason = "a benchmark prints a few digits")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fjall::{Database, KeyspaceCreateOptions, PersistMode};
use onceward::{Ask, Fingerprint, Id, Onceward, Outcome, Policy};
use onceward_stores::embedded::{EmbeddedStore, Options};

use crate::table::{Table, median};

/// Callers at the same time; also the size of the bare loop's batches.
pub const CALLERS: usize = 512;
const ROUNDS: usize = 5;
const SECONDS: u64 = 3;
const BODY_BYTES: usize = 120;

pub fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let table = Table::start("embedded store, 512 callers, claim + complete each, synced");
    let onceward = runtime.block_on(engine(&folder.path().join("ours")));
    let bare = Bare::open(&folder.path().join("bare"));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        theirs.push(bare.run(round as u64));
        ours.push(runtime.block_on(claims_per_second(&onceward, round as u64, SECONDS)));
        eprintln!("  round {}: ours {:.0}/s, bare fjall {:.0}/s", round + 1, ours[round], theirs[round]);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let ratio = ours / theirs;
    table.row("through the engine", &format!("{ours:.0}/s"), "", None);
    table.row("bare fjall loop, two synced batches of 512", &format!("{theirs:.0}/s"), "", None);
    table.row("through the engine / bare fjall", &format!("{ratio:.2}"), ">= 0.70", Some(ratio >= 0.7));
}

pub async fn engine(folder: &Path) -> Onceward {
    let store = EmbeddedStore::open(folder, Options::default()).await.unwrap();
    Onceward::new(Arc::new(store)).unwrap()
}

/// Claim + complete of fresh ids by [`CALLERS`] callers, for this long.
pub async fn claims_per_second(onceward: &Onceward, round: u64, seconds: u64) -> f64 {
    let policy = Arc::new(Policy::http());
    let next = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (onceward, policy, next, stop) = (onceward.clone(), policy.clone(), next.clone(), stop.clone());
        callers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let id = id(round, next.fetch_add(1, Ordering::Relaxed));
                let ask = Ask::new(id, Fingerprint::new(1, [7; 32]), policy.clone());
                let work = async |_| Ok(Outcome::succeeded(vec![b'x'; BODY_BYTES]));
                onceward.run(ask, work).await.unwrap().ran().unwrap();
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    stop.store(true, Ordering::Relaxed);
    callers.join_all().await;
    next.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

/// An id whose key is spread over the whole key space, like the random keys of real clients.
pub fn id(round: u64, number: u64) -> Id {
    let spread = (round << 40 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    Id::new(
        "tenant",
        "POST /charges",
        &format!("{:016x}{:016x}", spread.wrapping_mul(0xff51_afd7_ed55_8ccd), spread),
    )
    .unwrap()
}

/// What somebody would write by hand: look, insert, sync; then overwrite, sync.
struct Bare {
    database: Database,
    keyspace: fjall::Keyspace,
}

impl Bare {
    fn open(folder: &Path) -> Self {
        let database = Database::builder(folder).open().unwrap();
        let keyspace = database.keyspace("receipts", KeyspaceCreateOptions::default).unwrap();
        Self { database, keyspace }
    }

    fn run(&self, round: u64) -> f64 {
        // As many bytes as our own rows have, held and done.
        let (held, done) = (vec![1; 64 + 24], vec![2; 77 + BODY_BYTES + 24]);
        let start = Instant::now();
        let mut number = 0;
        while start.elapsed() < Duration::from_secs(SECONDS) {
            let ids: Vec<_> = (number..number + CALLERS as u64).map(|number| id(round, number)).collect();
            let mut claims = self.database.batch().durability(Some(PersistMode::SyncData));
            for id in &ids {
                assert!(self.keyspace.get(id.as_bytes()).unwrap().is_none());
                claims.insert(&self.keyspace, id.as_bytes(), &held[..]);
            }
            claims.commit().unwrap();
            let mut ends = self.database.batch().durability(Some(PersistMode::SyncData));
            for id in &ids {
                assert!(self.keyspace.get(id.as_bytes()).unwrap().is_some());
                ends.insert(&self.keyspace, id.as_bytes(), &done[..]);
            }
            ends.commit().unwrap();
            number += CALLERS as u64;
        }
        number as f64 / start.elapsed().as_secs_f64()
    }
}
