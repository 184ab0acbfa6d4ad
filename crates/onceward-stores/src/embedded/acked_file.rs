//! The side file `ACKED`: the sequence number of the last acknowledged group.
//!
//! Written after the group's sync and before the answers, usually without a sync of its own. After
//! a power cut it may therefore be too low, but never too high, so it causes no false alarm. Two slots
//! are written in turn, so that a torn write leaves the other.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::folder::private;

const SLOTS: u64 = 2;
/// Far enough apart that no disk sector holds both.
const SLOT_BYTES: u64 = 512;
const ENTRY_BYTES: usize = 12;
const GROUPS_PER_SYNC: u64 = 1024;

pub(crate) struct AckedFile {
    file: File,
}

/// What the side file said when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastAcked {
    /// The file does not exist.
    Nothing,
    /// The file exists, but neither slot can be read.
    Unreadable,
    /// This group and all before it were acknowledged.
    Sequence(u64),
}

impl AckedFile {
    /// Reads without changing anything.
    pub(crate) fn read(path: &Path) -> io::Result<LastAcked> {
        let mut bytes = Vec::new();
        match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LastAcked::Nothing),
            opened => opened?.take(SLOTS * SLOT_BYTES).read_to_end(&mut bytes)?,
        };
        let slot = |slot: u64| {
            let at = usize::try_from(slot * SLOT_BYTES).ok()?;
            let (sequence, checksum) = bytes.get(at..at + ENTRY_BYTES)?.split_first_chunk::<8>()?;
            (checksum == crc32fast::hash(sequence).to_le_bytes()).then_some(u64::from_le_bytes(*sequence))
        };
        Ok((0..SLOTS).filter_map(slot).max().map_or(LastAcked::Unreadable, LastAcked::Sequence))
    }

    /// Opens it for writing and writes `sequence`, durably.
    pub(crate) fn open(path: &Path, sequence: u64) -> io::Result<Self> {
        let file = private().create(true).truncate(false).write(true).open(path)?;
        file.set_len(SLOTS * SLOT_BYTES)?;
        let mut acked = Self { file };
        // Both slots, so that later writes find their blocks allocated.
        for turn in 0..SLOTS {
            acked.write(turn, sequence)?;
        }
        acked.file.sync_all()?;
        Ok(acked)
    }

    /// Records that everything up to `sequence` is about to be acknowledged.
    pub(crate) fn note(&mut self, sequence: u64) -> io::Result<()> {
        self.write(sequence % SLOTS, sequence)?;
        if sequence.is_multiple_of(GROUPS_PER_SYNC) { self.file.sync_data() } else { Ok(()) }
    }

    /// Makes the last record durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn write(&mut self, slot: u64, sequence: u64) -> io::Result<()> {
        let mut entry = [0; ENTRY_BYTES];
        let sequence = sequence.to_le_bytes();
        entry[..8].copy_from_slice(&sequence);
        entry[8..].copy_from_slice(&crc32fast::hash(&sequence).to_le_bytes());
        write_at(&mut self.file, &entry, slot * SLOT_BYTES)
    }
}

/// One system call where the platform has it.
#[cfg(unix)]
fn write_at(file: &mut File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(not(unix))]
fn write_at(file: &mut File, bytes: &[u8], at: u64) -> io::Result<()> {
    use std::io::{Seek, SeekFrom, Write};
    file.seek(SeekFrom::Start(at))?;
    file.write_all(bytes)
}
