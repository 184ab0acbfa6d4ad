//! A record as an item of the table; see `mod.rs` for its attributes.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use onceward::{Age, Due, Error, ErrorKind, Found, Id, Result, State, Version};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

pub(super) type Item = HashMap<String, AttributeValue>;

/// Shards of each state in the index of due times: one of them takes a thousand writes a second.
pub(super) const SHARDS: u64 = 8;
/// Bytes of a due time in a place.
pub(super) const DUE_BYTES: usize = 8;
/// The longest id that is part of a place as it is: DynamoDB takes 1024 bytes.
const PLACE_ID_BYTES: usize = 1000;

/// What is at an id.
pub(super) enum There {
    Nothing,
    /// Removed a moment ago, with this version.
    Removed(u64),
    Record(Box<Found>),
}

pub(super) fn number(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

pub(super) fn bytes(bytes: &[u8]) -> AttributeValue {
    AttributeValue::B(Blob::new(bytes))
}

/// The table's partition key of an id: its scope and its key, which neither has a line break in. Steps share it with
/// their intent.
pub(super) fn intent(id: &Id) -> AttributeValue {
    AttributeValue::S(format!("{}\n{}", id.scope(), id.key()))
}

/// The table's key of an id.
pub(super) fn key(id: &Id) -> Item {
    let operation = AttributeValue::S(id.operation().to_owned());
    Item::from([("intent".to_owned(), intent(id)), ("operation".to_owned(), operation)])
}

pub(super) fn shard_name(state: State, shard: u64) -> String {
    format!("{}{shard}", state.name())
}

/// The shard of an id in the index of due times.
pub(super) fn shard(state: State, id: &Id) -> AttributeValue {
    AttributeValue::S(shard_name(state, xxh3_64(id.as_bytes()) % SHARDS))
}

/// The place of a record in the index of due times: by due time and id.
pub(super) fn place(due_us: u64, id: &Id) -> Vec<u8> {
    let id = id.as_bytes();
    let due = due_us.to_be_bytes();
    match id.get(..PLACE_ID_BYTES) {
        Some(start) if id.len() > PLACE_ID_BYTES => [&due[..], start, &xxh3_128(id).to_be_bytes()].concat(),
        _ => [&due[..], id].concat(),
    }
}

/// The id of an item.
pub(super) fn id(item: &Item) -> Option<Id> {
    let (scope, key) = text(item, "intent")?.split_once('\n')?;
    Id::from_columns(scope, text(item, "operation")?, key).ok()
}

pub(super) fn text<'a>(item: &'a Item, name: &str) -> Option<&'a str> {
    match item.get(name)? {
        AttributeValue::S(text) => Some(text),
        _ => None,
    }
}

pub(super) fn blob<'a>(item: &'a Item, name: &str) -> Option<&'a [u8]> {
    match item.get(name)? {
        AttributeValue::B(blob) => Some(blob.as_ref()),
        _ => None,
    }
}

/// Reads what is at an id, at this time.
pub(super) fn there(id: &Id, item: Option<&Item>, now_us: u64) -> Result<There> {
    let Some(item) = item else { return Ok(There::Nothing) };
    read(item, now_us).ok_or_else(|| {
        let detail = format!(
            "the record of {id:?} in DynamoDB cannot be read: it is damaged, was written by a later version, or is not onceward's; upgrade onceward, or restore it"
        );
        Error::new(ErrorKind::Damaged, detail)
    })
}

fn read(item: &Item, now_us: u64) -> Option<There> {
    let number = |name: &str| match item.get(name)? {
        AttributeValue::N(number) => number.parse::<u64>().ok(),
        _ => None,
    };
    let version = number("version")?;
    if item.contains_key("removed") {
        return Some(There::Removed(version));
    }
    let state: State = text(item, "state")?.parse().ok()?;
    let due = if item.contains_key("due") { Some(number("due")?) } else { None };
    let age = Age::between(now_us, number("created")?, number("updated")?);
    let receipt = blob(item, "receipt")?.to_vec();
    Some(There::Record(Box::new(Found::new(
        Version(version),
        state,
        Due::between(now_us, due),
        age,
        receipt,
    ))))
}
