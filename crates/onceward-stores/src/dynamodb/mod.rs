//! Receipts in DynamoDB: idempotency keys in one table of the user's account.
//!
//! ```text
//! intent                    S     the table's partition key: scope, line break, key
//! operation                 S     its sort key; a step's begins with its intent's
//! state                     S     its name; absent where the record was removed
//! version                   N     the last write: the service's clock in microseconds, or one more than the version before
//! created, updated, due     N     in microseconds; no `due` for never
//! receipt                   B
//! due_shard, due_place      S, B  index `due`: state and one of 8 shards; due time (8 bytes) and id
//! removed, expires          BOOL, N  only of removed records: DynamoDB's own time to live, in seconds
//! ```
//!
//! **Swaps.** Each is one conditional `UpdateItem`, which returns what is there if it loses: one round trip.
//! A write is never sent twice on a guess: the SDK's retries are off.
//!
//! **Removal** leaves the version in place, for [`REMOVED_KEPT`], so that the next one is above it whichever process
//! writes it; then DynamoDB removes it. These markers, of intents and of steps, are all that has a time to live: they are
//! no receipts any more, and only the engine knows what else may end.
//!
//! **Time.** Due times go by the `Date` field of the service's answers; see [`CLOCK_MARGIN`].
//!
//! **Scans** for due records and lists read an index that follows the table a moment later, so a sweep or a worker can see
//! a record late. What they return is read again from the table, consistently. The steps of an intent are next to it in
//! the table, and are read there, consistently: erasing an intent must not miss one.
//!
//! **Completions with writes of the caller's** are one `TransactWriteItems` ([`DynamoDbStore::complete_with`]).
//!
//! | file | idea |
//! |---|---|
//! | `address.rs` | addresses, and the SDK's client |
//! | `errors.rs` | what an error of the SDK means, and whether the write may have happened |
//! | `item.rs` | a record as an item |
//! | `scan.rs` | scans: the shards of an index, merged |
//! | `store.rs` | the store |
//! | `table.rs` | the table: created by `onceward migrate`, checked when the store is opened |
//! | `transaction.rs` | a completion together with writes of the caller's |
//! | `write.rs` | a conditional write of one record |

mod address;
mod errors;
mod item;
mod scan;
mod store;
mod table;
mod transaction;
mod write;

pub use crate::kit::migrated::Migrated;
pub use store::{CLOCK_MARGIN, DynamoDbStore, Options};
pub use transaction::{CompletedWith, RefusedWrite, WRITES_MAX};
pub use write::REMOVED_KEPT;
