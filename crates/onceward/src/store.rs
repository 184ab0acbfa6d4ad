//! The store seam: a dumb, batched compare-and-set box. It contains no rule of the protocol.
//!
//! Only durations cross this line, never timestamps: the store stamps due times with its own clock
//! and hands back what remains of them, so leases survive clock skew between callers.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;

use crate::error::Result;
use crate::id::Id;

/// What a store's methods return. Boxed: a store is always behind `dyn`, and one allocation per
/// *batch* buys builds that do not grow with the number of stores.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Where receipts are kept.
///
/// An implementation proves itself with `onceward_verify::conformance::run`, which exercises every
/// sentence below. There are no default methods, so that a wrapper cannot forget one.
pub trait Store: Send + Sync + 'static {
    /// Puts each record whose place still looks as `seen` says. A loser learns what is there now.
    /// The answers are in the order of the batch.
    ///
    /// * Each swap is atomic; the batch as a whole need not be.
    /// * The batch is sorted by id and names no id twice.
    /// * `Won` means durable, if [`Caps::durable`] says so.
    /// * An error is about the whole batch: [`Applied::No`](crate::Applied::No) promises that none of
    ///   it happened.
    /// * The new version is above every version this id ever had, also after its record was removed.
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> Fut<'a, Vec<Swapped>>;

    /// Reads records as they are now, in the order asked for. What it returns is never older than
    /// the last finished `swap`.
    fn load<'a>(&'a self, ids: &'a [Id]) -> Fut<'a, Vec<Option<Found>>>;

    /// Reads one page of records: those that are due, or those that match. See [`Scan`].
    fn scan<'a>(&'a self, query: &'a Scan) -> Fut<'a, Page>;

    /// What this store can and cannot promise.
    fn caps(&self) -> Caps;

    /// The groups that it has made so far, if it [gathers](Caps::gathers).
    fn groups(&self) -> Groups {
        Groups::default()
    }
}

/// One conditional write.
#[derive(Clone, Debug)]
pub struct Swap {
    /// Whose record.
    pub id: Id,
    /// What must be there for the write to happen.
    pub seen: Seen,
    /// What to put there; `None` removes the record.
    pub new: Option<Record>,
}

/// What the writer believes to be in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Absent,
    /// A record of exactly this version.
    Version(Version),
}

/// A record to be written.
#[derive(Clone, Debug)]
pub struct Record {
    /// In which state; kept apart from the bytes so that people and scans can read it.
    pub state: State,
    /// When it falls due, counted from the moment of the write; `None` for never.
    pub due_in: Option<Duration>,
    /// The encoded receipt, see `codec.rs`.
    pub bytes: Bytes,
}

/// What became of one swap.
#[derive(Clone, Debug)]
pub enum Swapped {
    /// Written; this is its version now. For a removal, any version above the removed one.
    Won(Version),
    /// Not written; this is what is there instead.
    Lost(Option<Found>),
}

/// A record as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its version: grows with every write to the id.
    pub version: Version,
    /// Its state.
    pub state: State,
    /// What remains until it falls due, by the store's clock at the moment of the answer.
    pub due: Due,
    /// The encoded receipt.
    pub bytes: Bytes,
}

/// The number of a record's last write. It comes from the store's clock in microseconds and never
/// goes back for an id. The version of a claim is its [fence](crate::Fence).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// The four states of a receipt that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Somebody has the lease; due when the lease ends.
    Held,
    /// The outcome is known; due when its retention ends.
    Done,
    /// The effect may or may not have happened; never due.
    Unknown,
    /// The outcome was forgotten at the end of its retention, the key is still refused; due when the
    /// tombstone may go.
    Gone,
}

impl State {
    /// All of them, in the order of a receipt's life.
    pub const ALL: [Self; 4] = [Self::Held, Self::Done, Self::Unknown, Self::Gone];

    /// The word for it, as it stands in tables and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Done => "done",
            Self::Unknown => "unknown",
            Self::Gone => "gone",
        }
    }
}

/// What remains of a due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Never falls due.
    Never,
    /// Falls due after this long.
    In(Duration),
    /// Fell due this long ago.
    Over(Duration),
}

impl Due {
    /// Whether the due time has come.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Over(_))
    }

    /// From two readings of one clock in microseconds; `None` is never due.
    pub fn between(now_us: u64, due_us: Option<u64>) -> Self {
        match due_us {
            None => Self::Never,
            Some(due) if due > now_us => Self::In(Duration::from_micros(due - now_us)),
            Some(due) => Self::Over(Duration::from_micros(now_us - due)),
        }
    }
}

/// Which records to read, and how many.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Which records.
    pub of: ScanOf,
    /// Go on behind this place; `None` starts at the beginning.
    pub after: Option<Cursor>,
    /// *Look at* no more than this many records (at least 1), so that one call is a bounded slice of work. A page
    /// may therefore be short, or even empty, and still have a next one.
    pub limit: usize,
}

/// Which records a scan is about.
#[derive(Clone, Debug)]
pub enum ScanOf {
    /// Those whose due time has come, earliest first. Reads only what is due.
    Due,
    /// Those that match all that is given, in an order of the store's own.
    Matching {
        /// Only this scope.
        scope: Option<String>,
        /// Only this operation.
        operation: Option<String>,
        /// Only this state.
        state: Option<State>,
    },
}

/// One page of a scan.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The records, each with its id.
    pub found: Vec<(Id, Found)>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}

/// A place in a scan: opaque, valid for the same query on the same store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub Bytes);

/// What a store can and cannot promise. The engine adapts to it, and refuses to be built on a store
/// that is not fit to be the record of truth unless that is said out loud.
#[expect(clippy::struct_excessive_bools, reason = "each is a promise of its own, not a mode")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// A short name for messages: `embedded`, `memory`, `postgres`, …
    pub name: &'static str,
    /// What was answered survives a crash of the process and of the machine.
    pub durable: bool,
    /// Of two swaps that saw the same thing, exactly one wins; always, also across a failover.
    pub atomic: bool,
    /// Several processes may use it at the same time.
    pub shared: bool,
    /// It can join the caller's own transaction.
    pub transactions: bool,
    /// How many batches are worth having under way at once.
    pub batches_in_flight: usize,
    /// It makes groups of the batches that wait, in a thread or task of its own, and a swap whose future
    /// was polled once goes on when that is dropped. The engine then gathers nothing and hands each swap over.
    pub gathers: bool,
}

/// How large the groups were that a store has made of the swaps that waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// How many there were of one swap, of up to 2, up to 4 and so on up to 1024, and how many were larger.
    pub by_size: [u64; 12],
    /// Swaps in all of them.
    pub swaps: u64,
}
