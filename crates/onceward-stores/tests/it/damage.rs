//! Tests of damaged journals: whatever would lose an acknowledged receipt is refused, with the folder left
//! as it was; a torn tail that was never acknowledged is not damage.

use std::fs;
use std::path::{Path, PathBuf};

use onceward::{Error, ErrorKind, Seen, State, Swap};
use tempfile::TempDir;

use crate::support::*;

const GROUPS: u64 = 30;

/// A closed folder with one group per key, its journal without the preallocated zeros, and the
/// places where its groups end.
struct Fixture {
    folder: TempDir,
    ends: Vec<usize>,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        {
            let store = open(folder.path());
            for key in 0..GROUPS {
                hold(&store, key, 3600);
            }
        }
        // fjall cuts the zeros when it opens a journal.
        drop(open(folder.path()));
        let journal = fs::read(journal(folder.path())).unwrap();
        let ends: Vec<usize> =
            (4..=journal.len()).filter(|&end| journal[end - 4..end] == *b"FJL\x03").collect();
        assert_eq!(ends.len() as u64, GROUPS);
        assert_eq!(ends.last(), Some(&journal.len()));
        Self { folder, ends }
    }

    /// A copy whose journal was changed.
    fn with(&self, change: impl FnOnce(&mut Vec<u8>)) -> TempDir {
        let copy = tempfile::tempdir().unwrap();
        copy_folder(self.folder.path(), copy.path());
        let journal = journal(copy.path());
        let mut bytes = fs::read(&journal).unwrap();
        change(&mut bytes);
        fs::write(journal, bytes).unwrap();
        copy
    }

    fn len(&self) -> usize {
        *self.ends.last().unwrap()
    }

    /// Where the group that holds this byte begins.
    fn start_of(&self, byte: usize) -> usize {
        self.ends.iter().copied().filter(|&end| end <= byte).max().unwrap_or(0)
    }
}

fn journal(folder: &Path) -> PathBuf {
    folder.join("db/0.jnl")
}

/// As after a power cut that took the last writes of the side file.
fn forget_acknowledgements(folder: &Path) {
    fs::remove_file(folder.join("ACKED")).unwrap();
}

fn assert_damaged(error: &Error, byte: usize) {
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    let text = error.to_string();
    assert!(text.contains("0.jnl") && text.contains(&format!("at byte {byte}:")), "{text} instead of {byte}");
    assert!(text.contains("restore"), "{text}");
}

fn assert_holds(folder: &Path, groups: u64) {
    let store = open(folder);
    for key in 0..GROUPS {
        assert_eq!(load(&store, key).is_some(), key < groups, "key {key} of {groups}");
    }
    // It continues from there, also after another restart.
    hold(&store, "next", 1);
    drop(store);
    assert!(load(&open(folder), "next").is_some());
}

#[test]
fn a_flipped_bit_anywhere_is_refused() {
    let fixture = Fixture::new();
    let mut dice = Dice::new(1);
    // Bytes of an inner group and of the last one, in turn; the rest at random.
    let group = |at: usize| (fixture.ends[at - 1]..fixture.ends[at]).step_by(usual_or_long(5, 1));
    let chosen =
        (0..usual_or_long(20, 400)).map(|_| usize::try_from(dice.below(fixture.len() as u64)).unwrap());
    for byte in group(10).chain(group(fixture.ends.len() - 1)).chain(chosen.collect::<Vec<_>>()) {
        let folder = fixture.with(|journal| journal[byte] ^= 0x10);
        let start = fixture.start_of(byte);
        // The number at the head of a group is under no checksum of fjall's; of its low bits only
        // the order of the groups can be checked, which they do not change.
        if (5..8).contains(&(byte - start)) && try_open(folder.path()).is_ok() {
            assert_holds(folder.path(), GROUPS);
            continue;
        }
        let folder = fixture.with(|journal| journal[byte] ^= 0x10);
        let error = refused(folder.path());
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
        assert!(error.to_string().contains("0.jnl"), "{error}");
    }
}

#[test]
fn damage_names_the_group_where_reading_ends() {
    let fixture = Fixture::new();
    for at in [0, 1, 13, fixture.ends.len() - 1] {
        let byte = fixture.ends[at] - 20;
        let folder = fixture.with(|journal| journal[byte] ^= 0xff);
        assert_damaged(&refused(folder.path()), fixture.start_of(byte));
    }
}

#[test]
fn a_cut_tail_is_refused() {
    let fixture = Fixture::new();
    for groups in 0..fixture.ends.len() {
        let whole = if groups == 0 { 0 } else { fixture.ends[groups - 1] };
        for len in [whole, whole + 1, whole + 40] {
            let folder = fixture.with(|journal| journal.truncate(len));
            assert_damaged(&refused(folder.path()), whole);
        }
    }
}

#[test]
fn zeroed_ranges_are_refused() {
    let fixture = Fixture::new();
    let mut dice = Dice::new(3);
    for _ in 0..40 {
        let start = usize::try_from(dice.below(fixture.len() as u64 - 600)).unwrap();
        let end = start + 1 + usize::try_from(dice.below(600)).unwrap();
        let folder = fixture.with(|journal| {
            // At least one byte that was not zero.
            journal[start] = 1;
            journal[start..end].fill(0);
        });
        if fs::read(journal(folder.path())).unwrap() == fs::read(journal(fixture.folder.path())).unwrap() {
            continue;
        }
        if fixture.start_of(start) + 13 <= start || end - start > 13 {
            let error = refused(folder.path());
            assert_eq!(error.kind(), ErrorKind::Damaged, "{start}..{end}: {error}");
        }
    }
    // Exactly whole groups: fjall treats the zeros as the end of the journal.
    for (from, to) in [(0, 1), (5, 6), (5, 20), (0, fixture.ends.len() - 1), (28, 30)] {
        let start = if from == 0 { 0 } else { fixture.ends[from - 1] };
        let folder = fixture.with(|journal| journal[start..fixture.ends[to - 1]].fill(0));
        assert_damaged(&refused(folder.path()), start);
    }
}

#[test]
fn damage_inside_a_journal_is_noticed_without_the_side_file() {
    let fixture = Fixture::new();
    for at in [0, 7, fixture.ends.len() - 2] {
        let byte = fixture.ends[at] - 30;
        let folder = fixture.with(|journal| journal[byte] ^= 0xff);
        forget_acknowledgements(folder.path());
        assert_damaged(&refused(folder.path()), fixture.start_of(byte));
        let start = fixture.start_of(byte);
        let folder = fixture.with(|journal| journal[start..fixture.ends[at]].fill(0));
        forget_acknowledgements(folder.path());
        assert_damaged(&refused(folder.path()), start);
        let folder = fixture.with(|journal| drop(journal.drain(start..fixture.ends[at])));
        forget_acknowledgements(folder.path());
        assert_eq!(refused(folder.path()).kind(), ErrorKind::Damaged);
    }
}

#[test]
fn a_group_that_was_never_acknowledged_may_be_torn() {
    let fixture = Fixture::new();
    let start = fixture.ends[fixture.ends.len() - 2];
    for len in [start, start + 1, start + 13, start + 50, fixture.len() - 1] {
        let folder = fixture.with(|journal| journal.truncate(len));
        forget_acknowledgements(folder.path());
        assert_holds(folder.path(), GROUPS - 1);
        // The preallocated rest after it changes nothing.
        let folder = fixture.with(|journal| {
            journal.truncate(len);
            journal.resize(len + 100_000, 0);
        });
        forget_acknowledgements(folder.path());
        assert_holds(folder.path(), GROUPS - 1);
    }
    // A page inside it that never reached the disk, although the end of the group did.
    for hole in (start + 1..fixture.len() - 40).step_by(9) {
        let folder = fixture.with(|journal| journal[hole..hole + 32].fill(0));
        forget_acknowledgements(folder.path());
        assert_holds(folder.path(), GROUPS - 1);
    }
}

#[test]
fn the_same_torn_group_is_damage_once_it_was_acknowledged() {
    let fixture = Fixture::new();
    let start = fixture.ends[fixture.ends.len() - 2];
    for byte in [start, start + 20, fixture.len() - 5] {
        let folder = fixture.with(|journal| journal[byte] ^= 0xff);
        assert_damaged(&refused(folder.path()), start);
    }
}

#[test]
fn a_journal_as_a_killed_process_leaves_it_opens() {
    let folder = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for key in 0..GROUPS {
        hold(&store, key, 3600);
    }
    // The files as they are now, without a clean shutdown, and the journal preallocated as fjall makes new ones.
    copy_folder(folder.path(), copy.path());
    fs::OpenOptions::new().write(true).open(journal(copy.path())).unwrap().set_len(64 << 20).unwrap();
    assert_holds(copy.path(), GROUPS);
}

#[test]
fn garbage_in_the_preallocated_rest_is_a_torn_tail() {
    let fixture = Fixture::new();
    for garbage in [&[7_u8; 300][..], b"FJL\x03", &[1, 9, 9, 9, 9], &[0, 0, 1, 1, 0, 0, 0]] {
        let folder = fixture.with(|journal| {
            journal.extend_from_slice(garbage);
            journal.resize(journal.len() + 300_000, 0);
        });
        assert_holds(folder.path(), GROUPS);
    }
}

fn done_with(key: &str, body: Vec<u8>) -> Swap {
    let new = Some(record(State::Done, None, "").with_bytes(body));
    Swap { id: id(key), seen: Seen::Absent, new }
}

#[test]
fn another_folders_journal_inside_a_body_is_only_a_body() {
    // Its groups have higher sequences than ours.
    let other = fs::read(journal(Fixture::new().folder.path())).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    hold(&store, 0, 3600);
    let before = fs::metadata(journal(folder.path())).unwrap().len();
    won(&store, done_with("whole", other.clone()));
    won(&store, done_with("torn", other.clone()));
    drop(store);
    drop(open(folder.path()));
    let good = fs::read(journal(folder.path())).unwrap();
    assert!(before > good.len() as u64, "the journal was preallocated");

    let ends: Vec<usize> =
        (4..good.len()).filter(|&end| good[end - 4..end] == *b"FJL\x03" && good[end] == 1).collect();
    let body =
        |from: usize| from + good[from..].windows(other.len()).position(|bytes| bytes == other).unwrap();
    let whole = body(0);
    let torn = body(whole + other.len());
    let start = *ends.iter().rfind(|&&end| end < torn).unwrap();
    // Torn before, inside and after the body, with and without the preallocated rest.
    for len in [start + 20, torn + other.len() / 2, torn + other.len(), good.len() - 1] {
        for rest in [0, 100_000] {
            let copy = tempfile::tempdir().unwrap();
            copy_folder(folder.path(), copy.path());
            let mut bytes = good[..len].to_vec();
            bytes.resize(len + rest, 0);
            fs::write(journal(copy.path()), bytes).unwrap();
            forget_acknowledgements(copy.path());
            let store = open(copy.path());
            assert_eq!(&load(&store, "whole").unwrap().bytes[..], other);
            assert_eq!(load(&store, "torn"), None);
            hold(&store, "next", 1);
        }
    }
    assert_eq!(&load(&open(folder.path()), "torn").unwrap().bytes[..], other);
}

#[test]
fn another_folders_journal_in_place_of_ours_is_refused() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let others = fs::read(journal(other.folder.path())).unwrap();
    let folder = fixture.with(|journal| journal.clone_from(&others));
    forget_acknowledgements(folder.path());
    assert_damaged(&refused(folder.path()), 0);
    // Nor does the whole database belong here.
    let folder = fixture.with(|_| ());
    fs::copy(other.folder.path().join("ONCEWARD"), folder.path().join("ONCEWARD")).unwrap();
    forget_acknowledgements(folder.path());
    assert_damaged(&refused(folder.path()), 0);
}

#[test]
fn a_later_group_proves_damage_even_if_it_is_torn_itself() {
    let fixture = Fixture::new();
    let (damaged, torn) = (fixture.ends.len() - 2, fixture.ends.len() - 1);
    let folder = fixture.with(|journal| {
        journal[fixture.ends[damaged] - 30] ^= 0xff;
        journal.truncate(fixture.ends[torn] - 1);
    });
    forget_acknowledgements(folder.path());
    assert_damaged(&refused(folder.path()), fixture.ends[damaged - 1]);
}

#[test]
fn a_torn_tail_is_not_cut_in_a_folder_that_is_refused() {
    let fixture = Fixture::new();
    let folder = fixture.with(|journal| journal.truncate(fixture.len() - 1));
    forget_acknowledgements(folder.path());
    fs::remove_file(folder.path().join("db/version")).unwrap();
    assert_eq!(refused(folder.path()).kind(), ErrorKind::Damaged);
}
