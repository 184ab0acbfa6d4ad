//! The fjall database: its five tables, their settings, and what must exist before it is opened.
//!
//! It depends on fjall and not on the meaning of groups, leases or rows.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use onceward::{Error, ErrorKind, Id, Result};

use super::errors;
use super::held_block::Location;
use super::row::Row;

/// fjall numbers tables in the order of their creation; the journal check relies on this one.
pub(crate) const GROUPS_ID: u64 = 1;

/// In the order of their creation, see [`GROUPS_ID`].
const NAMES: [&str; 5] = ["groups", "receipts", "due", "held", "index"];

const MIB: u64 = 1024 * 1024;
/// fjall seals a journal once it is past 64 MB, or when a folder is opened (`next_journal.rs`), and lets it go when the tables
/// hold all of it; above this it makes the tables catch up.
const JOURNALS_BYTES_MAX: u64 = 128 * MIB;
/// At four, fjall makes the writer wait without looking whether the flush it waits for has failed.
const SEALED_MEMTABLES_MAX: usize = 2;
/// At thirty, the same.
const LEVEL_ZERO_RUNS_MAX: usize = 24;
/// A panic in a thread of fjall is not reported. After this long without progress callers get an error
/// instead of waiting forever; rewriting a gigabyte on a slow disk takes a fraction of it.
const STANDSTILL_MAX: Duration = Duration::from_secs(600);

/// How much memory the database may take.
#[derive(Clone, Copy)]
pub(crate) struct MemoryLimits {
    pub(crate) cache_bytes: u64,
    pub(crate) write_buffer_bytes: u64,
}

pub(crate) struct Tables {
    /// id → row; what is not held.
    pub(crate) receipts: Keyspace,
    /// list, due time, group → block of rows; all that fall due, but for leases (`due_scan.rs`).
    pub(crate) due: Keyspace,
    /// group → block of rows, list of versions; what is held, which is in no other table (`held_rows.rs`).
    pub(crate) held: Keyspace,
    /// Rows by state and steps by parent, where no other list has them (index.rs).
    pub(crate) index: Keyspace,
    /// One row: the record of the last group.
    pub(crate) groups: Keyspace,
    pub(crate) database: Database,
}

impl Tables {
    /// Makes an empty database in a new folder. It stays open: fjall preallocates a new journal, which
    /// makes syncs cheaper, and gives that up when it opens one again.
    pub(crate) fn create(path: &Path, memory: MemoryLimits) -> Result<Self> {
        let failed = |error| errors::engine(format!("cannot create a database in {}", path.display()), error);
        let database = builder(path, memory).open().map_err(failed)?;
        let table = |name: &str| database.keyspace(name, || options(name, memory)).map_err(failed);
        let [groups, receipts, due, held, index] = NAMES;
        let tables = [table(groups)?, table(receipts)?, table(due)?, table(held)?, table(index)?];
        database.persist(PersistMode::SyncAll).map_err(failed)?;
        Self::new(path, database, tables)
    }

    /// Lets fjall open its database, which replays the journals and cuts torn tails. Call
    /// [`all_there`] first.
    pub(crate) fn open(path: &Path, memory: MemoryLimits) -> Result<Self> {
        let failed = |error| errors::engine(format!("cannot open the database in {}", path.display()), error);
        let database = builder(path, memory).open().map_err(failed)?;
        let table = |name: &str| {
            if !database.keyspace_exists(name) {
                return Err(missing(path, name));
            }
            database.keyspace(name, || options(name, memory)).map_err(failed)
        };
        let [groups, receipts, due, held, index] = NAMES;
        let tables = [table(groups)?, table(receipts)?, table(due)?, table(held)?, table(index)?];
        Self::new(path, database, tables)
    }

    fn new(path: &Path, database: Database, tables: [Keyspace; NAMES.len()]) -> Result<Self> {
        let [groups, receipts, due, held, index] = tables;
        if groups.id() != GROUPS_ID {
            return Err(missing(path, NAMES[0]));
        }
        Ok(Self { receipts, due, held, index, groups, database })
    }

    /// The row of this id, which is held there; `None` if its block was removed. Only what is durable: fjall makes a
    /// group visible after its sync.
    pub(crate) fn held_row(&self, id: &Id, location: Location) -> Result<Option<Row>> {
        let Location { block, at, len } = location;
        let Some(block) = self.held.get(block.to_key()).map_err(cannot_read)? else { return Ok(None) };
        let row = at.checked_add(len).and_then(|end| block.get(at..end)).ok_or_else(|| missing_claim(id))?;
        Row::decode(id, row).map(Some)
    }

    /// The row of this id if it is not held; if it is, what was there before the claim. Only what is durable.
    pub(crate) fn row_unless_held(&self, id: &Id) -> Result<Option<Row>> {
        match self.receipts.get(id.as_bytes()).map_err(cannot_read)? {
            None => Ok(None),
            Some(row) => Row::decode(id, &row).map(Some),
        }
    }

    /// Waits until the background work has caught up far enough for one more group. Fails if that
    /// work has failed or makes no progress; nothing was written then.
    pub(crate) fn wait_for_space(&self) -> Result<(), fjall::Error> {
        let backlog = || [&self.receipts, &self.due, &self.held, &self.index, &self.groups].map(Backlog::of);
        // Only reports whether the database still takes writes.
        let takes_writes = || self.database.persist(PersistMode::Buffer);
        wait_while_behind(backlog, takes_writes, STANDSTILL_MAX)
    }
}

/// What a table's background work still has to do.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Backlog {
    sealed_memtables: usize,
    level_zero_runs: usize,
}

impl Backlog {
    fn of(table: &Keyspace) -> Self {
        Self {
            sealed_memtables: table.tree.sealed_memtable_count(),
            level_zero_runs: table.tree.l0_run_count(),
        }
    }

    fn is_behind(self) -> bool {
        self.sealed_memtables >= SEALED_MEMTABLES_MAX || self.level_zero_runs >= LEVEL_ZERO_RUNS_MAX
    }
}

fn wait_while_behind(
    backlog: impl Fn() -> [Backlog; NAMES.len()],
    takes_writes: impl Fn() -> Result<(), fjall::Error>,
    standstill_max: Duration,
) -> Result<(), fjall::Error> {
    let (mut before, mut moved_at) = (backlog(), Instant::now());
    while before.into_iter().any(Backlog::is_behind) {
        takes_writes()?;
        std::thread::sleep(Duration::from_millis(1));
        let now = backlog();
        if now != before {
            (before, moved_at) = (now, Instant::now());
        } else if moved_at.elapsed() > standstill_max {
            let what = "the background work of the database stands still";
            return Err(fjall::Error::Io(io::Error::new(io::ErrorKind::TimedOut, what)));
        }
    }
    Ok(())
}

pub(crate) fn cannot_read(error: fjall::Error) -> Error {
    errors::engine("cannot read from the database", error)
}

fn builder(path: &Path, memory: MemoryLimits) -> fjall::DatabaseBuilder<Database> {
    Database::builder(path)
        .cache_size(memory.cache_bytes)
        .max_journaling_size(JOURNALS_BYTES_MAX)
        // Set explicitly: another crate of the same program may turn on fjall's compression, and the journal
        // check reads plain journals only.
        .journal_compression(CompressionType::None)
}

fn options(name: &str, memory: MemoryLimits) -> KeyspaceCreateOptions {
    // The same here: a folder must open in every program, whatever features that enables.
    let options =
        KeyspaceCreateOptions::default().data_block_compression_policy(CompressionPolicy::disabled());
    let bloom = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0));
    match name {
        // A claim asks for an id that is most often new: a filter on every level answers without a read.
        "receipts" => options
            .max_memtable_size(memory.write_buffer_bytes)
            .filter_policy(FilterPolicy::all(bloom))
            .expect_point_read_hits(false),
        // Few and large values, read as a range, or looked up where memory says that they are there.
        "due" | "held" => {
            options.max_memtable_size(memory.write_buffer_bytes / 2).filter_policy(FilterPolicy::disabled())
        }
        _ => options.max_memtable_size(memory.write_buffer_bytes / 8).filter_policy(FilterPolicy::disabled()),
    }
}

/// fjall creates what it misses and removes tables that look unfinished. In a folder that held
/// receipts both would lose them, so what it needs must be there first.
pub(crate) fn all_there(path: &Path) -> Result<()> {
    let tables = (0..=NAMES.len()).map(|table| format!("keyspaces/{table}/current"));
    for file in std::iter::once("version".to_owned()).chain(tables) {
        if !path.join(&file).exists() {
            return Err(missing(path, &file));
        }
    }
    Ok(())
}

/// What memory has as held is in its table, unless the table is damaged.
pub(crate) fn missing_claim(id: &Id) -> Error {
    let detail = format!("the stored claim of {id:?} is missing; restore the folder from a copy");
    Error::new(ErrorKind::Damaged, detail)
}

fn missing(path: &Path, what: &str) -> Error {
    Error::new(
        ErrorKind::Damaged,
        format!("{what} is missing from {}; restore the folder from a copy", path.display()),
    )
}

#[cfg(test)]
#[path = "tables_test.rs"]
mod tests;
