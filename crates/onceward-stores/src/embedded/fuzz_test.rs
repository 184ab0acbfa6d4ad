//! Hostile bytes for the files of the embedded store: journals, rows, blocks, and cursors into them.

use std::fs;

use onceward::Id;
use onceward_fuzz::Fuzz;
use xxhash_rust::xxh3::xxh3_64;

use super::folder::NONCE_BYTES;
use super::group_record::{GroupRecord, RECORD_BYTES, RECORD_KEY};
use super::journal::{self, TAG_END, TAG_ITEM, TAG_START, TRAILER};
use super::row::Row;
use super::tables::GROUPS_ID;
use super::{held_block, row_block};
use crate::kit::cursor;

const NONCE: [u8; NONCE_BYTES] = [7; NONCE_BYTES];
/// Bytes of a group in front of its items: the tag, their number, fjall's own number.
const HEAD: usize = 1 + 4 + 8;

/// A journal with one whole group.
fn group() -> Vec<u8> {
    let record = GroupRecord { sequence: 1, ..GroupRecord::before_the_first(NONCE) };
    let mut items = vec![TAG_ITEM, 0, 0];
    items.extend(GROUPS_ID.to_le_bytes());
    items.extend(u16::try_from(RECORD_KEY.len()).unwrap().to_le_bytes());
    items.extend([u32::try_from(RECORD_BYTES).unwrap().to_le_bytes(); 2].concat());
    items.extend(RECORD_KEY);
    items.extend(record.encode());
    let head = [&[TAG_START][..], &1_u32.to_le_bytes(), &record.engine_number.to_le_bytes()].concat();
    [head, items.clone(), vec![TAG_END], xxh3_64(&items).to_le_bytes().to_vec(), TRAILER.to_vec()].concat()
}

#[test]
fn fuzz_journal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("0.jnl");
    fs::write(&file, group()).unwrap();
    let last = journal::walk(folder.path(), NONCE, 0).unwrap().last;
    assert_eq!(last.map(|last| last.sequence), Some(1), "the seed is a whole group");
    Fuzz::new("journal").with_seeds([group()]).with_words(&[&NONCE, &TRAILER]).run(|input| {
        let mut bytes = input.to_vec();
        // The checksum of the group is right in half of them, so that what is behind it is read.
        let end =
            bytes.len().checked_sub(1 + 8 + TRAILER.len()).filter(|end| *end >= HEAD && input.len() % 2 == 0);
        if let Some(end) = end {
            let sum = xxh3_64(&bytes[HEAD..end]);
            bytes[end + 1..end + 9].copy_from_slice(&sum.to_le_bytes());
        }
        fs::write(&file, &bytes).unwrap();
        match journal::walk(folder.path(), NONCE, 0) {
            Ok(contents) => {
                format!("{:?} {}", contents.last.map(|last| last.sequence.min(9)), contents.torn.len())
            }
            Err(error) => error.to_string().chars().rev().take(30).collect(),
        }
    });
}

#[test]
fn fuzz_row_and_block() {
    let id = Id::new("t", "POST /a", "k").unwrap();
    // The golden row of `row_test.rs`.
    #[rustfmt::skip]
    let row = vec![
        2, 129, 2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0xba, 0xea, 0x12, 0xa3, b'x', b'y', b'z',
    ];
    assert!(Row::decode(&id, &row).is_ok());
    let mut block = Vec::new();
    row_block::push(&mut block, 7, &id);
    row_block::push(&mut block, 8, &id.step("charge").unwrap());
    Fuzz::new("row").with_seeds([row, block]).run(|input| {
        let row = Row::decode(&id, input).map_err(|error| error.to_string());
        if let Ok(row) = &row {
            let mut again = Vec::new();
            row.encode(&id, &mut again);
            assert_eq!(again, input, "one row has one form");
        }
        let entries = row_block::entries(input).take_while(Result::is_ok).count();
        let held = held_block::entries(input).take_while(Result::is_ok).count();
        let record = GroupRecord::decode(input).is_some();
        (
            row.map(|row| row.state),
            entries.min(4),
            held.min(4),
            record,
            cursor::unpack::<2>(&onceward::Cursor(input.to_vec().into())).is_ok(),
        )
    });
}
