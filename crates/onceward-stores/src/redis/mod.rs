//! Receipts in Redis (or Valkey): idempotency keys on a server that is fast and may lose what it has acknowledged.
//!
//! ```text
//! PREFIX:{0}:format      marks the prefix as ours, and has the number of buckets
//! PREFIX:{N}:r:ID        a record: "ow1", state (1 byte), version, created, due (8 bytes each, big endian), receipt
//! PREFIX:{N}:i:STATE     the records in that state: due time (8 bytes) and id, in that order
//! PREFIX:{N}:s:PARENT    the ids of the steps of an intent
//! PREFIX:{N}:v           the last version that was given in this bucket
//! PREFIX:changed         the channel on which the ids of changed records are published
//! ```
//!
//! `N` is a bucket, chosen by scope and key, so that an intent and its steps are in the same one. All keys of a bucket have
//! one hash tag. A cluster therefore keeps a bucket on one node, where one script call changes records and their indexes
//! together. A prefix that was begun on a cluster has 256 buckets, which its nodes share. One that was begun on one server
//! has one: every batch is then one call, which writes each index, and the version, once. The mark of the prefix has the number.
//!
//! **Versions.** A version is the server's clock in microseconds, or one more than the last version of the bucket,
//! whichever is higher; what one call writes has one version. Nothing is kept for a removed record.
//!
//! **Expiry.** A tombstone ([`State::Gone`](onceward::State::Gone)) that is not a step's is all that Redis itself may
//! remove, an hour after it is due. Everything else is found by its due time and removed by a sweep: only the engine
//! knows whether a done receipt leaves a tombstone.
//!
//! **What can be lost.** See [`RedisStore::losses`]: Redis acknowledges before its replicas have a write, so a failover
//! can undo acknowledged receipts, and unless it is configured otherwise a crash can too. The engine therefore wants
//! [`accept_volatile`](onceward::OncewardBuilder::accept_volatile), and an address wants `accept=volatile`.
//!
//! | file | idea |
//! |---|---|
//! | `address.rs` | addresses: servers, prefix, what was accepted |
//! | `cluster.rs` | which node of a cluster has a bucket |
//! | `connection.rs` | a connection to one server: opened, checked, used, replaced |
//! | `errors.rs` | what an error of the server means, and whether the write may have happened |
//! | `front.rs` | a volatile front before another store; it shares nothing with the store but addresses |
//! | `groups.rs` | divides a batch into script calls |
//! | `keys.rs` | buckets, and the names of keys |
//! | `mark.rs` | the mark of a prefix |
//! | `record.rs` | a record as it is stored |
//! | `scan.rs` | scans: the indexes of all buckets, merged |
//! | `scripts.rs` | the scripts; each is a file beside it |
//! | `sentinel.rs` | where the primary is, according to sentinels |
//! | `server_check.rs` | what a server can promise, asked at every connection |
//! | `servers.rs` | the servers of a store, and which of them has a bucket |
//! | `store.rs` | the store |
//! | `swap.rs` | one call of the script that swaps |
//! | `watch.rs` | signals of changed records |

mod address;
mod cluster;
mod connection;
mod errors;
mod front;
mod groups;
mod keys;
mod mark;
mod record;
mod scan;
mod scripts;
mod sentinel;
mod server_check;
mod servers;
mod store;
mod swap;
mod watch;

pub use front::RedisFront;
pub use store::{Options, RedisStore};

pub(crate) use address::is_volatile_accepted;
