//! Opens a folder, in the order that leaves a refused folder unchanged: first the marker, then the acknowledged
//! sequence, then the journals, and only then fjall.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::{Arc, OnceLock, mpsc};

use onceward::{Error, ErrorKind, Result};

use super::acked_file::{AckedFile, LastAcked};
use super::due_scan::Floor;
use super::folder::Folder;
use super::group_record::{GroupRecord, RECORD_KEY};
use super::held_rows::HeldRows;
use super::journal::{self, JournalContents};
use super::next_journal;
use super::queue::queue;
use super::reopen::{OpenFolder, Slot};
use super::row::{DUE_LISTS, OpenedAt};
use super::tables::{self, MemoryLimits, Tables, cannot_read};
use super::writer::Writer;
use super::{EmbeddedInner, EmbeddedStore, Lasting, Options, QUESTIONS_MAX, errors, reader, spawn};
use crate::kit::now_us;
use crate::kit::signals::Broadcaster;
use crate::kit::steady_clock::SteadyClock;

pub(crate) fn open(path: &Path, options: Options) -> Result<EmbeddedStore> {
    // The process may change its current folder later on.
    let path = std::path::absolute(path).map_err(|error| {
        Error::new(ErrorKind::Invalid, format!("`{}` names no folder", path.display())).caused_by(error)
    })?;
    let (signals, sizes) = (Arc::<Broadcaster>::default(), Arc::default());
    let slot = Arc::new(Slot::default());
    let memory =
        MemoryLimits { cache_bytes: options.cache_bytes, write_buffer_bytes: options.write_buffer_bytes };
    let (tables, record, folder) = open_tables(Folder::take(&path)?, memory)?;
    // Versions come from the clock, so the highest one is the last time seen.
    let clock = options.clock.unwrap_or_else(|| Arc::new(SteadyClock::after(record.version_max)));
    let opened = OpenedAt { at_us: now_us(&*clock), version_max: record.version_max };
    let slot_here = Arc::downgrade(&slot);
    let lasting = Lasting {
        clock,
        opened,
        memory,
        signals: signals.clone(),
        sizes: Arc::clone(&sizes),
        slot: slot_here,
    };
    slot.set(start(lasting, tables, record, folder)?);
    Ok(EmbeddedStore { slot, signals, sizes })
}

/// Opens a folder again that this process had open, and continues as if it had never been closed: this process's runs
/// are still alive.
pub(crate) fn open_again(lasting: Lasting, folder: Folder) -> Result<OpenFolder> {
    let (tables, record, folder) = open_tables(folder, lasting.memory)?;
    start(lasting, tables, record, folder)
}

fn open_tables(folder: Folder, memory: MemoryLimits) -> Result<(Tables, GroupRecord, Folder)> {
    let acknowledged = acknowledged(&folder)?;
    let (tables, record) = if folder.has_database() {
        recover(&folder, acknowledged, memory)?
    } else {
        (create(&folder, acknowledged, memory)?, GroupRecord::before_the_first(folder.nonce()))
    };
    Ok((tables, record, folder))
}

fn start(lasting: Lasting, tables: Tables, record: GroupRecord, folder: Folder) -> Result<OpenFolder> {
    let acked = AckedFile::open(&folder.acked(), record.sequence)
        .map_err(|error| errors::io(format!("cannot write {}", folder.acked().display()), error))?;
    let (held, lease_ends) = HeldRows::read(&tables, record.held_from, lasting.opened)?;
    let shared = Arc::new(EmbeddedInner {
        lasting,
        lease_ends,
        floors: DUE_LISTS.map(|list| Floor::new(list, record.floors_us[list as usize])),
        stopped: OnceLock::new(),
        tables,
        folder,
    });
    let version_max = record.version_max;
    let writer =
        Writer { shared: Arc::clone(&shared), held, acked, record, version_max, scratch: Vec::new() };
    let (swaps, asked_swaps) = queue();
    let (loads, asked_loads) = mpsc::sync_channel(QUESTIONS_MAX);
    let (scans, asked_scans) = mpsc::sync_channel(QUESTIONS_MAX);
    let (for_loads, for_scans) = (Arc::clone(&shared), Arc::clone(&shared));
    let threads = vec![
        spawn("writer", move || writer.run(&asked_swaps))?,
        spawn("reader", move || reader::run(&asked_loads, |ids: &Vec<_>| Ok(reader::load(&for_loads, ids))))?,
        spawn("scanner", move || reader::run(&asked_scans, |query| reader::scan(&for_scans, query)))?,
    ];
    Ok(OpenFolder { swaps: Some(swaps), loads: Some(loads), scans: Some(scans), threads, shared })
}

/// The last group that was acknowledged, according to the side file.
fn acknowledged(folder: &Folder) -> Result<u64> {
    let path = folder.acked();
    let told = AckedFile::read(&path)
        .map_err(|error| errors::io(format!("cannot read {}", path.display()), error))?;
    match told {
        LastAcked::Sequence(sequence) => Ok(sequence),
        LastAcked::Nothing => Ok(0),
        // Written whole before the database counts as created.
        LastAcked::Unreadable if !folder.has_database() => Ok(0),
        LastAcked::Unreadable => Err(Error::new(
            ErrorKind::Damaged,
            format!(
                "{} is damaged, so it is unknown whether receipts are missing; restore the folder from a copy, or \
                 remove this one file to trust the rest",
                path.display()
            ),
        )),
    }
}

fn recover(folder: &Folder, acknowledged: u64, memory: MemoryLimits) -> Result<(Tables, GroupRecord)> {
    let database = folder.database();
    let walked = journal::walk(&database, folder.nonce(), acknowledged)?;
    // Before the first change.
    tables::all_there(&database)?;
    cut(&walked)?;
    next_journal::begin(&database, &walked)?;
    let tables = Tables::open(&database, memory)?;
    let record = last_record(&tables, folder, &walked, acknowledged)?;
    Ok((tables, record))
}

fn create(folder: &Folder, acknowledged: u64, memory: MemoryLimits) -> Result<Tables> {
    if acknowledged > 0 {
        return Err(Error::new(
            ErrorKind::Damaged,
            format!(
                "{} is missing, but receipts were acknowledged; restore the folder from a copy",
                folder.database().display()
            ),
        ));
    }
    AckedFile::open(&folder.acked(), 0)
        .map_err(|error| errors::io(format!("cannot write {}", folder.acked().display()), error))?;
    folder.create_database(|path| Tables::create(path, memory))
}

/// Truncates incomplete groups. fjall would do the same for most, but reports some (a page that never reached the
/// disk inside a group whose end did) as an error.
fn cut(walked: &JournalContents) -> Result<()> {
    for (path, len) in &walked.torn {
        tracing::info!(path = %path.display(), len, "cutting a group that was never acknowledged");
        OpenOptions::new()
            .write(true)
            .open(path)
            .and_then(|file| {
                file.set_len(*len)?;
                file.sync_all()
            })
            .map_err(|error| errors::io(format!("cannot cut {}", path.display()), error))?;
    }
    Ok(())
}

/// What fjall has after its recovery must be what the journals promised and what callers were told.
fn last_record(
    tables: &Tables,
    folder: &Folder,
    walked: &JournalContents,
    acknowledged: u64,
) -> Result<GroupRecord> {
    let record = match tables.groups.get(RECORD_KEY).map_err(cannot_read)? {
        None => GroupRecord::before_the_first(folder.nonce()),
        Some(bytes) => {
            GroupRecord::decode(&bytes).filter(|record| record.nonce == folder.nonce()).ok_or_else(|| {
                Error::new(
                    ErrorKind::Damaged,
                    "the record of the last group is damaged or another folder's; restore the folder from a copy",
                )
            })?
        }
    };
    let promised = walked.last.map_or(acknowledged, |last| last.sequence.max(acknowledged));
    if record.sequence < promised {
        return Err(Error::new(
            ErrorKind::Damaged,
            format!(
                "the database ends at group {}, but groups up to {promised} were written; restore the folder from a copy",
                record.sequence
            ),
        ));
    }
    Ok(record)
}
