use std::os::unix::fs::{FileExt, MetadataExt};

use super::*;

/// A journal as fjall makes it: one long hole, with so many bytes written to it.
fn journal(folder: &Path, number: u64, len: u64, written: &[u8]) -> PathBuf {
    let path = folder.join(format!("{number}.jnl"));
    let file = File::create_new(&path).unwrap();
    file.set_len(len).unwrap();
    file.write_all_at(written, 0).unwrap();
    path
}

fn kept_up(folder: &Path) -> Ahead {
    let mut ahead = Ahead::new(folder);
    ahead.keep_up();
    ahead
}

fn bytes_on_disk(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

#[test]
fn the_newest_journal_gets_blocks_and_keeps_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let written: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    let older = journal(folder.path(), 9, 8 << 20, &written);
    let newest = journal(folder.path(), 10, 8 << 20, &written);
    let before = std::fs::read(&newest).unwrap();
    kept_up(folder.path());
    assert_eq!(std::fs::read(&newest).unwrap(), before);
    assert!(bytes_on_disk(&newest) >= AHEAD_BYTES, "{} bytes", bytes_on_disk(&newest));
    assert!(bytes_on_disk(&older) < 1 << 20, "nobody writes to it any more");
}

/// A body of zeros looks like a hole, and what comes behind it is none.
#[test]
fn data_behind_zeros_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let mut written = vec![0; 3 << 20];
    for at in [0, 70_000, 200_000, 1 << 20, (2 << 20) + 1, (3 << 20) - 1] {
        written[at] = 7;
    }
    let path = journal(folder.path(), 0, 8 << 20, &written);
    let before = std::fs::read(&path).unwrap();
    kept_up(folder.path());
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// After a restart fjall appends to a journal that it has cut: there is nothing behind the end.
#[test]
fn no_journal_ever_gets_longer() {
    let folder = tempfile::tempdir().unwrap();
    let path = journal(folder.path(), 3, 100_001, &vec![7; 100_001]);
    kept_up(folder.path());
    assert_eq!(path.metadata().unwrap().len(), 100_001);
    let path = journal(folder.path(), 4, 100_001, &[7; 10]);
    kept_up(folder.path());
    assert_eq!(path.metadata().unwrap().len(), 100_001);
}

#[test]
fn it_follows_what_is_written_and_looks_only_now_and_then() {
    let folder = tempfile::tempdir().unwrap();
    let path = journal(folder.path(), 0, 8 << 20, &vec![7; PIECE_BYTES]);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let mut ahead = kept_up(folder.path());
    let first = bytes_on_disk(&path);
    file.write_all_at(&vec![7; 1 << 20], PIECE_BYTES as u64).unwrap();
    ahead.wrote(10);
    ahead.keep_up();
    assert_eq!(bytes_on_disk(&path), first, "too little was written");
    ahead.wrote(1 << 20);
    ahead.keep_up();
    assert!(bytes_on_disk(&path) >= first + (1 << 19), "{} bytes", bytes_on_disk(&path));
}

#[test]
fn a_folder_without_a_journal_is_let_be() {
    let folder = tempfile::tempdir().unwrap();
    kept_up(folder.path());
    kept_up(&folder.path().join("absent"));
}
