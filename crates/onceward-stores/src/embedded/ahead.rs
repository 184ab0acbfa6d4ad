//! Gives fjall's journal its blocks before they are needed.
//!
//! fjall makes a journal as one long hole. The first write to each part of it makes the file system find room
//! and write that down too, which makes a sync half as long again. Zeros that are written ahead, a stretch at a
//! time, take that out of the callers' way.
//!
//! Only what reads as zeros is overwritten, with zeros, and only by the thread that has fjall write its
//! journal: no content can change.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// How far behind the end of what is written there are blocks.
const AHEAD_BYTES: u64 = 2 << 20;
/// After so many bytes it is worth looking again.
const LOOK_EVERY_BYTES: u64 = 512 << 10;
/// What is read and written at a time.
const PIECE_BYTES: usize = 64 << 10;

pub(crate) struct Ahead {
    folder: PathBuf,
    journal: Option<Journal>,
    /// Written by groups since the last look.
    written: u64,
    piece: Vec<u8>,
}

struct Journal {
    path: PathBuf,
    file: File,
    len: u64,
    /// Up to here it has been written, for all we have seen.
    end: u64,
    /// Up to here it has its blocks.
    filled: u64,
}

impl Ahead {
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            journal: None,
            written: LOOK_EVERY_BYTES,
            piece: vec![0; PIECE_BYTES],
        }
    }

    /// A group of about so many bytes has been written.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
    }

    /// Writes ahead if it is time to. No group may be written meanwhile.
    pub(crate) fn keep_up(&mut self) {
        if self.written < LOOK_EVERY_BYTES {
            return;
        }
        self.written = 0;
        if let Err(error) = self.look() {
            // A full disk, say: who writes the group will be told, and this is only about time.
            tracing::debug!(%error, "no blocks ahead of the journal");
            self.journal = None;
        }
    }

    fn look(&mut self) -> io::Result<()> {
        let Some(path) = newest(&self.folder)? else { return Ok(()) };
        if self.journal.as_ref().is_none_or(|journal| journal.path != path) {
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            let len = file.metadata()?.len();
            self.journal = Some(Journal { path, file, len, end: 0, filled: 0 });
        }
        let Some(journal) = &mut self.journal else { return Ok(()) };
        while journal.end < journal.len && !journal.is_zero(journal.end, &mut self.piece)? {
            journal.end += PIECE_BYTES as u64;
        }
        journal.filled = journal.filled.max(journal.end);
        while journal.filled < journal.len.min(journal.end + AHEAD_BYTES) {
            if journal.is_zero(journal.filled, &mut self.piece)? {
                // `piece` is what was read, and all of it is zeros.
                journal.file.seek(SeekFrom::Start(journal.filled))?;
                journal.file.write_all(&self.piece)?;
            }
            journal.filled += PIECE_BYTES as u64;
        }
        Ok(())
    }
}

impl Journal {
    /// Whether there is a whole piece at this place and all of it is zeros.
    fn is_zero(&mut self, at: u64, piece: &mut [u8]) -> io::Result<bool> {
        if at + piece.len() as u64 > self.len {
            return Ok(false);
        }
        self.file.seek(SeekFrom::Start(at))?;
        self.file.read_exact(piece)?;
        Ok(piece.iter().all(|byte| *byte == 0))
    }
}

/// The journal that fjall writes to: the one with the highest number.
fn newest(folder: &Path) -> io::Result<Option<PathBuf>> {
    let mut newest: Option<(u64, PathBuf)> = None;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse().ok());
        if let Some(number) = number
            && newest.as_ref().is_none_or(|(highest, _)| *highest < number)
        {
            newest = Some((number, path));
        }
    }
    Ok(newest.map(|(_, path)| path))
}

#[cfg(all(test, unix))]
#[path = "ahead_test.rs"]
mod tests;
