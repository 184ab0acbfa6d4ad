//! Compares the embedded store, through the engine, with two alternatives of the same durability: a bare fjall
//! loop with two synced batches for every group of claims, one when they begin and one when they end; and the
//! protocol hand-written on SQLite.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fjall::{Database, KeyspaceCreateOptions, PersistMode};
use onceward::{Ask, Fingerprint, Id, Onceward, Outcome, Policy};
use onceward_stores::embedded::{EmbeddedStore, Options};
use rusqlite::Connection;

use crate::latency::Latency;
use crate::load::{callers, runtime};
use crate::process::Missing;
use crate::report::{Findings, Goal, Row, Unit};
use crate::scale::Scale;
use crate::turns::{Turn, Turns};

/// Callers at the same time; also the size of the bare loop's batches.
pub const CALLERS: usize = 512;
/// Threads that share the SQLite connection; one uses it while the others wait.
const SQLITE_CALLERS: usize = 64;
/// Length of every answer.
pub const BODY_BYTES: usize = 120;

/// Measures claim + complete per second, synced.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let onceward = runtime.block_on(engine(&folder.path().join("ours")));
    let bare = Bare::open(&folder.path().join("bare"));
    let sqlite = Plain::open(&folder.path().join("plain.db"));
    let [ours, fjall, sqlite] = Turns::new(scale.rounds, Unit::PerSecond).take([
        ("engine", &mut |round| {
            runtime.block_on(async { claims(&onceward, round as u64, tokio::time::sleep(scale.round)).await })
        }),
        ("bare fjall", &mut |round| bare.run(round as u64, scale.round).into()),
        ("plain SQLite", &mut |round| sqlite.run(round as u64, scale.round)),
    ]);
    let rows = vec![
        Row::ratio("claim + complete, 512 callers / bare fjall loop", Unit::PerSecond, &ours, &fjall)
            .goal(Goal::AtLeast(0.7)),
        Row::ratio("claim + complete, 512 callers / plain SQLite", Unit::PerSecond, &ours, &sqlite)
            .goal(Goal::AtLeast(1.0)),
    ];
    Ok(Findings { rows, ..Findings::default() })
}

/// An engine over the embedded store in this folder.
pub async fn engine(folder: &Path) -> Onceward {
    let store = EmbeddedStore::open(folder, Options::default()).await.unwrap();
    Onceward::new(Arc::new(store)).unwrap()
}

/// Claim + complete of fresh ids by [`CALLERS`] callers, for as long as `length` takes.
pub async fn claims(onceward: &Onceward, round: u64, length: impl Future<Output = ()>) -> Turn {
    let (onceward, policy, next) = (onceward.clone(), Arc::new(Policy::http()), AtomicU64::new(0));
    let call = move |_| {
        let id = id(round, next.fetch_add(1, Ordering::Relaxed));
        let (onceward, ask) = (onceward.clone(), Ask::new(id, Fingerprint::new(1, [7; 32]), policy.clone()));
        async move {
            let work = async |_| Ok(Outcome::succeeded(vec![b'x'; BODY_BYTES]));
            assert!(!onceward.run(ask, work).await.unwrap().into_result().unwrap().replayed);
        }
    };
    callers(CALLERS, length, call).await
}

/// An id whose key is spread over the whole key space, like the random keys of real clients.
pub fn id(round: u64, number: u64) -> Id {
    let spread = (round << 40 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let key = format!("{:016x}{:016x}", spread.wrapping_mul(0xff51_afd7_ed55_8ccd), spread);
    Id::new("tenant", "POST /charges", &key).unwrap()
}

/// A hand-written loop: read, insert, sync; then overwrite, sync.
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

    fn run(&self, round: u64, length: Duration) -> f64 {
        // As many bytes as our own rows have, held and done.
        let (held, done) = (vec![1; 64 + 24], vec![2; 77 + BODY_BYTES + 24]);
        let start = Instant::now();
        let mut number = 0;
        while start.elapsed() < length {
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

/// The protocol hand-written on SQLite: two statements, each its own synced commit, one
/// connection behind a mutex.
struct Plain {
    connection: Mutex<Connection>,
}

impl Plain {
    fn open(file: &Path) -> Self {
        let connection = Connection::open(file).unwrap();
        let tables = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
            CREATE TABLE receipts (key TEXT PRIMARY KEY, state TEXT NOT NULL, answer BLOB) WITHOUT ROWID";
        connection.execute_batch(tables).unwrap();
        Self { connection: Mutex::new(connection) }
    }

    fn run(&self, round: u64, length: Duration) -> Turn {
        let (next, stop, start) = (AtomicU64::new(0), AtomicBool::new(false), Instant::now());
        let samples = std::thread::scope(|scope| {
            let caller = || {
                let mut samples = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let (number, begin) = (next.fetch_add(1, Ordering::Relaxed), Instant::now());
                    self.charge(&format!("{round}-{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
                    samples.push(begin.elapsed().as_secs_f32() * 1e6);
                }
                samples
            };
            let callers: Vec<_> = (0..SQLITE_CALLERS).map(|_| scope.spawn(caller)).collect();
            std::thread::sleep(length);
            stop.store(true, Ordering::Relaxed);
            callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect::<Vec<_>>()
        });
        let per_second = samples.len() as f64 / start.elapsed().as_secs_f64();
        Turn::with_latency(per_second, Latency::from_samples(samples))
    }

    fn charge(&self, key: &str) {
        const CLAIM: &str = "INSERT INTO receipts VALUES (?1, 'held', NULL) ON CONFLICT DO NOTHING";
        const COMPLETE: &str =
            "UPDATE receipts SET state = 'done', answer = ?2 WHERE key = ?1 AND state = 'held'";
        let claimed = self.connection.lock().unwrap().prepare_cached(CLAIM).unwrap().execute([key]).unwrap();
        assert_eq!(claimed, 1, "the key is fresh");
        let connection = self.connection.lock().unwrap();
        let mut complete = connection.prepare_cached(COMPLETE).unwrap();
        assert_eq!(complete.execute((key, [b'x'; BODY_BYTES])).unwrap(), 1);
    }
}
