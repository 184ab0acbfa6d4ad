//! Builds the text of a statement for a batch, with the data inside. All data is in hexadecimal, so there is nothing to
//! escape.

use std::fmt::Write;

use onceward::{Id, Seen, Swap};

use super::statements;
use crate::sql::FREE_GRACE;
use crate::sql::row::{due_us, micros};
use crate::sql::swap_kinds::seen_by;

/// Bytes of receipts in one statement, unless one receipt alone is larger: more would only take longer.
const STATEMENT_BYTES_MAX: usize = 3 << 20;
/// Bytes of a statement with one receipt, besides the receipt: ids in hexadecimal, and SQL.
const REST_BYTES_MAX: usize = 64 << 10;

/// What a swap has besides its receipt, counted as if it were a part of it: an id of any length, twice.
const SWAP_BYTES: usize = 2 << 10;

/// The largest receipt that fits into a statement, if this is the largest packet that the server takes.
pub(super) fn record_bytes_max(packet_bytes_max: usize) -> usize {
    // In hexadecimal.
    (packet_bytes_max.saturating_sub(REST_BYTES_MAX) / 2).saturating_sub(SWAP_BYTES)
}

/// What a statement does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StatementKind {
    Create,
    Replace,
    Free,
    Check,
}

/// Begins a transaction, writes, and reads the rows back. It does not end the transaction: after a caller has stopped
/// waiting for the answer, it must not commit.
pub(super) fn write(batch: &[Swap], of: &[usize], kind: StatementKind, mark: &[u8; 16]) -> String {
    let mark = {
        let mut text = String::from("X'");
        push_hex(&mut text, mark);
        text + "'"
    };
    let asked = format!("'{}'", asked(batch, of));
    let ids = format!("'{}'", ids(of.iter().map(|index| &batch[*index].id)));
    let write = match kind {
        StatementKind::Create => fill(statements::CREATE, &[&mark, &asked]),
        StatementKind::Replace => fill(statements::REPLACE, &[&asked, &mark]),
        StatementKind::Free => fill(statements::FREE, &[&asked, &micros(FREE_GRACE).to_string(), &mark]),
        StatementKind::Check => unreachable!("a check writes nothing"),
    };
    let look = fill(statements::LOOK, &[&mark, &mark, &ids, &mark]);
    format!("START TRANSACTION; {write}; {look}")
}

/// A statement with literals in place of its placeholders.
fn fill(statement: &str, literals: &[&str]) -> String {
    let mut literals = literals.iter();
    let mut filled = String::new();
    for (at, part) in statement.split('?').enumerate() {
        if at > 0 {
            filled.push_str(literals.next().expect("a literal for every placeholder"));
        }
        filled.push_str(part);
    }
    assert!(literals.next().is_none(), "a placeholder for every literal");
    filled
}

/// The indexes of one kind of swap, in pieces that fit into a statement where no receipt is larger than `record_bytes_max`.
pub(super) fn pieces<'a>(batch: &'a [Swap], of: &'a [usize], record_bytes_max: usize) -> Vec<&'a [usize]> {
    let bytes_max = STATEMENT_BYTES_MAX.min(record_bytes_max + SWAP_BYTES);
    let mut pieces = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, index) in of.iter().enumerate() {
        let len = SWAP_BYTES + batch[*index].new.as_ref().map_or(0, |new| new.bytes.len());
        if at > start && bytes + len > bytes_max {
            pieces.push(&of[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += len;
    }
    if start < of.len() {
        pieces.push(&of[start..]);
    }
    pieces
}

/// Ids as the statements take them.
pub(super) fn ids<'a>(ids: impl Iterator<Item = &'a Id>) -> String {
    let mut text = String::from("[");
    for id in ids {
        push_id(&mut text, id);
        text.push_str("],");
    }
    text.pop();
    text.push(']');
    text
}

/// A batch as the statements take it.
fn asked(batch: &[Swap], of: &[usize]) -> String {
    let mut asked = String::from("[");
    for index in of {
        let swap = &batch[*index];
        push_id(&mut asked, &swap.id);
        let (state, due, bytes) = match &swap.new {
            Some(new) => (new.state.name(), due_us(new), &new.bytes[..]),
            None => ("free", None, &[][..]),
        };
        let due = due.map_or_else(|| "null".to_owned(), |due| due.to_string());
        let seen = if let Seen::Version(_) = swap.seen { seen_by(swap) } else { 0 };
        write!(asked, ",\"{state}\",{due},\"").expect("a String takes anything");
        push_hex(&mut asked, bytes);
        write!(asked, "\",{seen}],").expect("a String takes anything");
    }
    asked.pop();
    asked.push(']');
    asked
}

fn push_id(asked: &mut String, id: &Id) {
    asked.push_str("[\"");
    push_hex(asked, id.scope().as_bytes());
    asked.push_str("\",\"");
    push_hex(asked, id.operation().as_bytes());
    asked.push_str("\",\"");
    push_hex(asked, id.key().as_bytes());
    asked.push('"');
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    text.reserve(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}
