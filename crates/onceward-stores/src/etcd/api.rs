//! Requests and answers of etcd's JSON gateway: bytes are base64, 64-bit numbers are texts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

pub(super) fn put(key: &[u8], value: &[u8]) -> Value {
    json!({ "request_put": { "key": STANDARD.encode(key), "value": STANDARD.encode(value) } })
}

pub(super) fn delete(key: &[u8]) -> Value {
    json!({ "request_delete_range": { "key": STANDARD.encode(key) } })
}

pub(super) fn get(key: &[u8]) -> Value {
    json!({ "request_range": { "key": STANDARD.encode(key) } })
}

/// The first keys from `key` to before `end`.
pub(super) fn list(key: &[u8], end: &[u8], limit: usize) -> Value {
    let (key, end) = (STANDARD.encode(key), STANDARD.encode(end));
    json!({ "request_range": { "key": key, "range_end": end, "limit": limit.to_string(), "keys_only": true } })
}

/// If the last write to the key has this revision (0: there is none), then `success`, else `failure`.
pub(super) fn if_revision(key: &[u8], revision: u64, success: &[Value], failure: &[Value]) -> Value {
    json!({
        "compare": [{
            "result": "EQUAL", "target": "MOD", "key": STANDARD.encode(key), "mod_revision": revision.to_string(),
        }],
        "success": success,
        "failure": failure,
    })
}

/// A transaction as an operation of another.
pub(super) fn nested(transaction: &Value) -> Value {
    json!({ "request_txn": transaction })
}

/// All of these operations.
pub(super) fn all(operations: &[Value]) -> Value {
    json!({ "success": operations })
}

/// Signals of all keys from `key` to before `end`.
pub(super) fn watch(key: &[u8], end: &[u8]) -> Value {
    json!({ "create_request": { "key": STANDARD.encode(key), "range_end": STANDARD.encode(end) } })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Header {
    #[serde(deserialize_with = "number")]
    pub(super) revision: u64,
}

/// The answer to a transaction.
#[derive(Debug, Deserialize)]
pub(super) struct Txn {
    #[serde(default)]
    pub(super) header: Header,
    #[serde(default)]
    pub(super) succeeded: bool,
    #[serde(default)]
    pub(super) responses: Vec<Response>,
}

/// The answer to one operation; empty for a write.
#[derive(Debug, Deserialize)]
pub(super) struct Response {
    pub(super) response_range: Option<Range>,
    pub(super) response_txn: Option<Txn>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Range {
    pub(super) kvs: Vec<KeyValue>,
    /// There are more keys than were asked for.
    pub(super) more: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyValue {
    #[serde(deserialize_with = "bytes")]
    pub(super) key: Vec<u8>,
    #[serde(deserialize_with = "bytes")]
    pub(super) value: Vec<u8>,
    #[serde(deserialize_with = "number")]
    pub(super) mod_revision: u64,
}

/// One line of a watch.
#[derive(Debug, Deserialize)]
pub(super) struct Watched {
    pub(super) result: Option<WatchResult>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchResult {
    pub(super) canceled: bool,
    pub(super) events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Event {
    #[serde(default)]
    pub(super) kv: KeyValue,
}

/// What a server says of itself.
#[derive(Debug, Deserialize)]
pub(super) struct Status {
    #[serde(default)]
    pub(super) header: Header,
    pub(super) version: String,
    #[serde(default, rename = "dbSize", deserialize_with = "number")]
    pub(super) db_bytes: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Alarms {
    pub(super) alarms: Vec<Alarm>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Alarm {
    #[serde(default)]
    pub(super) alarm: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Login {
    pub(super) token: String,
}

/// Why a call was refused.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    pub(super) message: String,
    pub(super) error: String,
    /// As in gRPC.
    pub(super) code: u32,
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    STANDARD.decode(String::deserialize(from)?).map_err(serde::de::Error::custom)
}
