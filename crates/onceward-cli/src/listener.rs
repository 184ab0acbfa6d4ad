//! What every listener of the process does for its connections, the gateway's and the admin's: a deadline for each kind
//! of silence, a limit on connections, and a share of it for each address.
//!
//! ```text
//!  accept ─▶ ConnectionSlots ─▶ WatchedStream ─▶ TLS, HTTP
//!              │                   └ records bytes and blocked writes in ConnectionWatch
//!              └ full: closes the oldest connection without a request
//! ```

mod address_share;
mod connection_slots;
mod connection_watch;
mod counted_body;
mod upgraded;
mod watched_stream;

pub use address_share::{AddressGroup, Networks};
pub use connection_slots::{ConnectionSlots, Slot, SlotLimits};
pub use connection_watch::{ConnectionTimeouts, ConnectionWatch, RequestInProgress};
pub use counted_body::CountedBody;
pub use upgraded::{UpgradedConnection, UpgradingConnection};
pub use watched_stream::WatchedStream;
