//! A volatile front: a cache that several processes share, such as Redis, before the store that they share.
//!
//! It makes replays faster and decides nothing. Successes are the only receipts in it, written after their commit and
//! sealed with a key that is in the store ([`entry`]); beside them are unsealed hints that an intent is being run. Losing
//! it, flushing it, and whatever somebody else writes into it changes speed only: no entry ever lets work begin.

pub mod entry;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::store::StoreFuture;

/// A volatile front and the source of the identity that its entries are sealed with. Give it to
/// [`OncewardBuilder::with_front`](crate::OncewardBuilder::with_front).
#[derive(Clone)]
pub struct Front {
    pub(crate) cache: Arc<dyn FrontCache>,
    pub(crate) identity: Arc<dyn IdentitySource>,
}

impl Front {
    /// A front: where its entries are, and the identity of the store that it is before.
    pub fn new(cache: Arc<dyn FrontCache>, identity: Arc<dyn IdentitySource>) -> Self {
        Self { cache, identity }
    }
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Front")
    }
}

/// Where the entries of a [`Front`] are. It may lose, delay and mix up everything.
pub trait FrontCache: Send + Sync + 'static {
    /// Reads an entry. The engine waits for the answer only for a short time.
    fn get<'a>(&'a self, key: &'a FrontKey) -> StoreFuture<'a, Option<Bytes>>;

    /// Has an entry written, and returns at once. What cannot be written soon is dropped.
    fn put(&self, put: FrontPut);

    /// Removes an entry.
    fn remove<'a>(&'a self, key: &'a FrontKey) -> StoreFuture<'a, ()>;

    /// Ready when an entry may be another one than `seen`, where `None` is that there was none. It may be ready early, late
    /// or never.
    fn changed<'a>(
        &'a self,
        key: &'a FrontKey,
        seen: Option<&'a Bytes>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
}

/// The name of an entry in a [`FrontCache`]: a digest, so that no idempotency key is readable there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrontKey(pub [u8; FrontKey::BYTES]);

impl FrontKey {
    /// Its length.
    pub const BYTES: usize = 16;
}

/// An entry to be written.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FrontPut {
    /// Its name.
    pub key: FrontKey,
    /// Its bytes.
    pub bytes: Bytes,
    /// How long it may be kept at most.
    pub ttl: Duration,
    /// Whether an entry that is there is replaced, and those that wait for it are told.
    pub replace: bool,
}

impl FrontPut {
    /// An entry that replaces nothing.
    pub fn new(key: FrontKey, bytes: impl Into<Bytes>, ttl: Duration) -> Self {
        Self { key, bytes: bytes.into(), ttl, replace: false }
    }

    /// Sets whether an entry that is there is replaced.
    pub fn with_replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }
}

/// Reads the identity of a store from the store itself.
pub trait IdentitySource: Send + Sync + 'static {
    /// Reads it as it is now.
    fn read(&self) -> StoreFuture<'_, StoreIdentity>;

    /// Changes with every new connection to the store: another database may be behind it. The engine then reads the
    /// identity again before it trusts an entry. It also does so every few seconds.
    fn epoch(&self) -> u64;
}

/// The identity of a store, which differs from that of all others and of its own restored copies, and the key that only
/// its users know.
#[derive(Clone)]
#[non_exhaustive]
pub struct StoreIdentity {
    /// Random bytes in the store, and what its server says of itself.
    pub name: Vec<u8>,
    /// Random bytes in the store.
    pub seal_key: [u8; 32],
    /// The store's clock in microseconds, the one its versions come from.
    pub now_us: u64,
}

impl StoreIdentity {
    /// An identity, and the store's clock at the moment at which it was read.
    pub fn new(name: impl Into<Vec<u8>>, seal_key: [u8; 32], now_us: u64) -> Self {
        Self { name: name.into(), seal_key, now_us }
    }
}

impl fmt::Debug for StoreIdentity {
    /// Never with its key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreIdentity").field("name", &self.name).finish_non_exhaustive()
    }
}
