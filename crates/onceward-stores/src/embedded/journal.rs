//! Checks fjall's journal files before fjall opens them, without changing anything.
//!
//! fjall treats damage inside a journal as a torn tail: it truncates the file there and continues
//! without the groups after it. Every group of this store carries a [`GroupRecord`] with a sequence without
//! gaps and the nonce of the folder, so this walk can tell the two apart. It knows the layout of fjall
//! 3.1 and nothing of what the rows mean. A layout that it does not know is refused as damage: the records in it are
//! found by the nonce, wherever they are.
//!
//! ```text
//! group   = start item* end
//! start   = 01  items: u32  number: u64                        not under the checksum
//! item    = 02  kind: u8  compression: u8  table: u64  key length: u16
//!               value length: u32  stored length: u32  key  value
//! end     = 03  xxh3 over the items: u64  "FJL" 03             all numbers little endian
//! journal = group*  then zeros (preallocated) or a torn group
//! ```

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use onceward::{Error, ErrorKind, Result};
use xxhash_rust::xxh3::Xxh3;

use super::folder::Nonce;
use super::group_record::{GroupRecord, RECORD_BYTES, RECORD_KEY};
use super::tables::GROUPS_ID;

pub(super) const TAG_START: u8 = 1;
pub(super) const TAG_ITEM: u8 = 2;
pub(super) const TAG_END: u8 = 3;
pub(super) const TRAILER: [u8; 4] = *b"FJL\x03";
const ITEM_HEAD_BYTES: usize = 21;
const CHUNK_BYTES: usize = 256 * 1024;

/// What the journals hold, if nothing acknowledged is missing from them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalContents {
    /// The record of the last whole group; `None` if the journals hold no group.
    pub(crate) last: Option<GroupRecord>,
    /// Groups that were never acknowledged and are incomplete: the files to truncate, and where.
    pub(crate) torn: Vec<(PathBuf, u64)>,
    /// The journal that was written last, which fjall would continue.
    pub(crate) newest: Option<NewestJournal>,
}

/// A journal by its number, and the bytes of its whole groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewestJournal {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

/// Walks all journals in the folder of the database. Refuses if a group up to `acknowledged` cannot
/// be read, or if a readable group follows an unreadable one.
pub(crate) fn walk(folder: &Path, nonce: Nonce, acknowledged: u64) -> Result<JournalContents> {
    let journals = journals(folder).map_err(|error| unreadable(folder, error))?;
    let Some(&(oldest, _)) = journals.first() else {
        return if acknowledged == 0 {
            Ok(JournalContents::default())
        } else {
            Err(damaged(folder, 0, "its journal is missing"))
        };
    };
    let mut walked = JournalContents::default();
    // Where the last whole group ended, and why nothing could be read there.
    let mut stopped = (folder.to_path_buf(), 0, "nothing is there");
    let mut number = None;
    for (place, path) in journals {
        let mut file = File::open(&path).map_err(|error| unreadable(&path, error))?;
        let mut at = 0;
        let mut groups = GroupReader::new(&mut file);
        let end = loop {
            match groups.next().map_err(|error| unreadable(&path, error))? {
                JournalItem::Group { record, number: own, end } => {
                    if record.nonce != nonce {
                        return Err(damaged(&path, at, "it holds a group of another folder"));
                    }
                    let expected = walked.last.map_or(record.sequence, |last| last.sequence + 1);
                    // Journals before the oldest were removed once the tables held everything in them.
                    if record.sequence != expected
                        || (oldest == 0 && walked.last.is_none() && record.sequence != 1)
                    {
                        let what = format!("group {expected} is missing before group {}", record.sequence);
                        return Err(damaged(&stopped.0, stopped.1, &what));
                    }
                    if number.is_some_and(|before| own <= before) {
                        return Err(damaged(&path, at, "the numbers of its groups go back"));
                    }
                    number = Some(own);
                    walked.last = Some(record);
                    at = end;
                }
                other => break other,
            }
        };
        let what = match end {
            JournalItem::Broken(what) => what,
            _ => "no group is there",
        };
        if let Some(behind) = records_after(&mut file, at, nonce, walked.last.map(|last| last.sequence))
            .map_err(|error| unreadable(&path, error))?
        {
            // A torn group may have its record. But a group is only written once the one before it
            // is durable: the record of a later group proves that this is not a torn tail.
            let torn = walked.last.map_or(behind.lowest, |last| last.sequence + 1);
            if behind.highest > torn {
                let what = format!("{what}, and group {} comes behind it", behind.highest);
                return Err(damaged(&path, at, &what));
            }
            if behind.highest <= acknowledged {
                let what = format!("{what}, but group {} was acknowledged", behind.highest);
                return Err(damaged(&path, at, &what));
            }
        }
        if matches!(end, JournalItem::Broken(_)) {
            walked.torn.push((path.clone(), at));
        }
        walked.newest = Some(NewestJournal { number: place, bytes: at });
        stopped = (path, at, what);
    }
    let last = walked.last.map_or(0, |last| last.sequence);
    // If the oldest journals were removed and the rest are empty, only the tables can tell.
    let only_tables_can_tell = walked.last.is_none() && oldest > 0;
    if last < acknowledged && !only_tables_can_tell {
        let what = format!("{}, but groups up to {acknowledged} were acknowledged", stopped.2);
        return Err(damaged(&stopped.0, stopped.1, &what));
    }
    Ok(walked)
}

/// The journal files by number, which is their age.
fn journals(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut journals = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse().ok());
        journals.extend(number.map(|number: u64| (number, path)));
    }
    journals.sort_unstable();
    Ok(journals)
}

/// What was read where a group may begin.
enum JournalItem {
    Group {
        record: GroupRecord,
        number: u64,
        end: u64,
    },
    /// The end of the file, or preallocated zeros.
    Nothing,
    Broken(&'static str),
}

/// Reads groups one after the other.
struct GroupReader<'a> {
    reader: BufReader<&'a mut File>,
    read: u64,
    hasher: Xxh3,
}

impl<'a> GroupReader<'a> {
    fn new(file: &'a mut File) -> Self {
        Self { reader: BufReader::with_capacity(CHUNK_BYTES, file), read: 0, hasher: Xxh3::new() }
    }

    /// The next group. Nothing can be read after a broken one.
    fn next(&mut self) -> io::Result<JournalItem> {
        let start = self.read;
        match self.group() {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(if self.read == start {
                JournalItem::Nothing
            } else {
                JournalItem::Broken("the file ends inside a group")
            }),
            step => step,
        }
    }

    fn group(&mut self) -> io::Result<JournalItem> {
        match self.take::<1>()? {
            [TAG_START] => {}
            [0] => return Ok(JournalItem::Nothing),
            _ => return Ok(JournalItem::Broken("no group begins there")),
        }
        let items = u32::from_le_bytes(self.take()?);
        let number = u64::from_le_bytes(self.take()?);
        self.hasher.reset();
        let mut record = None;
        for _ in 0..items {
            if self.take()? != [TAG_ITEM] {
                return Ok(JournalItem::Broken("an item of the group is broken"));
            }
            self.hasher.update(&[TAG_ITEM]);
            record = match self.item()? {
                Ok(record) => record,
                Err(what) => return Ok(JournalItem::Broken(what)),
            };
        }
        if self.take()? != [TAG_END] {
            return Ok(JournalItem::Broken("the group has no end"));
        }
        if u64::from_le_bytes(self.take()?) != self.hasher.digest() {
            return Ok(JournalItem::Broken("the checksum of the group does not match"));
        }
        if self.take()? != TRAILER {
            return Ok(JournalItem::Broken("the end of the group is broken"));
        }
        let Some(record) = record else {
            return Ok(JournalItem::Broken("the group does not say which one it is"));
        };
        if !record.fits_engine_number(number) {
            return Ok(JournalItem::Broken("the number at the head of the group cannot be true"));
        }
        Ok(JournalItem::Group { record, number, end: self.read })
    }

    /// Reads one item after its tag; returns the group record if the item is one.
    fn item(&mut self) -> io::Result<Result<Option<GroupRecord>, &'static str>> {
        let head: [u8; ITEM_HEAD_BYTES - 1] = self.take()?;
        self.hasher.update(&head);
        let [kind, compression, rest @ ..] = head;
        let table = u64::from_le_bytes(std::array::from_fn(|i| rest[i]));
        let key_len = usize::from(u16::from_le_bytes([rest[8], rest[9]]));
        let value_len = u32::from_le_bytes(std::array::from_fn(|i| rest[10 + i]));
        let stored_len = u32::from_le_bytes(std::array::from_fn(|i| rest[14 + i]));
        if kind > 2 || compression != 0 || value_len != stored_len {
            return Ok(Err("an item of the group is broken"));
        }
        if (table, key_len, value_len as usize) != (GROUPS_ID, RECORD_KEY.len(), RECORD_BYTES) {
            self.pass(key_len as u64 + u64::from(stored_len))?;
            return Ok(Ok(None));
        }
        let key: [u8; RECORD_KEY.len()] = self.take()?;
        let value: [u8; RECORD_BYTES] = self.take()?;
        self.hasher.update(&key);
        self.hasher.update(&value);
        Ok(Ok(GroupRecord::decode(&value).filter(|_| key == RECORD_KEY)))
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        self.read += N as u64;
        Ok(bytes)
    }

    /// Skips and hashes bytes in pieces, so that a broken length does not cost memory.
    fn pass(&mut self, mut len: u64) -> io::Result<()> {
        let mut piece = [0; 1024];
        while len > 0 {
            let now = usize::try_from(len).unwrap_or(usize::MAX).min(piece.len());
            self.reader.read_exact(&mut piece[..now])?;
            self.hasher.update(&piece[..now]);
            self.read += now as u64;
            len -= now as u64;
        }
        Ok(())
    }
}

/// The range of sequence numbers of records after a position.
struct LaterSequences {
    lowest: u64,
    highest: u64,
}

/// Searches after `at` for records of this folder's groups after `last`. The nonce is random, so no bytes that a
/// caller has stored look like a record, and the search costs the same for any content.
fn records_after(
    file: &mut File,
    at: u64,
    nonce: Nonce,
    last: Option<u64>,
) -> io::Result<Option<LaterSequences>> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let zeros = vec![0; CHUNK_BYTES];
    let mut behind: Option<LaterSequences> = None;
    let mut start = at;
    loop {
        file.seek(SeekFrom::Start(start))?;
        let len = read_up_to(file, &mut chunk)?;
        let chunk = &chunk[..len];
        // Compared whole: the preallocated rest of a journal is up to 64 MiB of zeros.
        if chunk != &zeros[..len] {
            let places = (0..len).filter(|&i| chunk[i] == nonce[0] && chunk[i..].starts_with(&nonce));
            let records = places.filter_map(|i| GroupRecord::decode(chunk.get(i..i + RECORD_BYTES)?));
            for sequence in records.map(|record| record.sequence).filter(|&sequence| Some(sequence) > last) {
                let found = behind.get_or_insert(LaterSequences { lowest: sequence, highest: sequence });
                found.lowest = found.lowest.min(sequence);
                found.highest = found.highest.max(sequence);
            }
        }
        if len < CHUNK_BYTES {
            return Ok(behind);
        }
        // Overlap, so that a record across two chunks is found.
        start += (len - RECORD_BYTES) as u64;
    }
}

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..])? {
            0 => break,
            more => len += more,
        }
    }
    Ok(len)
}

fn damaged(path: &Path, at: u64, what: &str) -> Error {
    Error::new(
        ErrorKind::Damaged,
        format!(
            "{} is damaged at byte {at}: {what}. Opening it would lose acknowledged receipts, so nothing was \
             changed; restore the folder from a copy, or move it away to begin with an empty one",
            path.display()
        ),
    )
}

fn unreadable(path: &Path, error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("cannot read {}", path.display())).caused_by(error)
}
