//! Receipts in etcd: idempotency keys for those who have a consensus store and no database.
//!
//! ```text
//! PREFIX format              marks the prefix as ours
//! PREFIX counted             written with every batch, so that etcd counts it against its quota
//! PREFIX r/ ID               a record: "oe1", state (1 byte), created, updated, due (8 bytes each, big endian), receipt
//! PREFIX i/ STATE DUE ID     the records in that state (1 byte), by due time (8 bytes) and id; its value is empty
//! PREFIX s/ LENGTH PARENT ID the steps of an intent, whose id has this length (2 bytes)
//! ```
//!
//! **Swaps.** Each swap is a transaction of its own (compare the revision, then write, else read) inside an outer one,
//! so that a batch is one round trip, and its indexes are written with the record. etcd cannot read within a
//! transaction, and a writer knows only the version it replaces; the index entry to remove follows from the record of
//! that version. A process remembers what it has written and read (`heads.rs`), and otherwise reads first.
//!
//! **Versions** are etcd's revisions (`mod_revision`): one counter for all keys, so nothing is kept for a removed record.
//!
//! **Time.** etcd has no clock that can be asked. Due times go by the `Date` field of its answers, and the promises say
//! that this can differ by [`CLOCK_MARGIN`] between processes: the servers' clocks must be synchronised.
//!
//! A write that turns out to have been stamped with a time long past is repeated (`stamped.rs`).
//!
//! **Expiry.** No etcd leases: only the engine knows whether a done receipt leaves a tombstone, and a lease that ends
//! early would end a receipt. Everything is found by its due time and removed by a sweep.
//!
//! **The JSON gateway** of etcd is used, which is on by default and has all that is needed. The gRPC client would need
//! `protoc` to build and bring some sixty crates.
//!
//! | file | idea |
//! |---|---|
//! | `address.rs` | addresses: servers, login, prefix, TLS |
//! | `api.rs` | requests and answers of the JSON gateway |
//! | `client.rs` | calls: to which server, logged in, what was learned of the time |
//! | `errors.rs` | what an error of etcd means, and whether the write may have happened |
//! | `heads.rs` | what this process knows of records: what a swap needs besides the version |
//! | `http.rs` | connections, and whether a byte of a call can have been sent |
//! | `keys.rs` | the names of keys |
//! | `record.rs` | a record as it is stored |
//! | `scan.rs` | scans: the indexes of all states, merged |
//! | `server_check.rs` | what a server is and says, when the store is opened |
//! | `stamped.rs` | writes with the right time, also after a pause of this process |
//! | `store.rs` | the store |
//! | `watch.rs` | signals of changed records |

mod address;
mod api;
mod client;
mod errors;
mod heads;
mod http;
mod keys;
mod record;
mod scan;
mod server_check;
mod stamped;
mod store;
mod watch;

pub use store::{CLOCK_MARGIN, EtcdStore, Options};
