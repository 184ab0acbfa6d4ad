//! The `Store` trait: a table of records with batched compare-and-set. It contains no rule of the protocol.
//!
//! Only durations cross this line, never timestamps: the store stamps due times with its own clock
//! and hands back what remains of them, so leases survive clock skew between callers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;

use crate::caps::Caps;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Id;

/// The return type of a store's methods. Boxed: a store is always behind `dyn`, and one allocation per
/// *batch* buys builds that do not grow with the number of stores.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// Stores receipts: a table with batched compare-and-set.
///
/// An implementation proves itself with `onceward_verify::conformance::run`, which exercises every
/// sentence below. There are no default methods, so that a wrapper cannot forget one.
pub trait Store: Send + Sync + 'static {
    /// Writes each record whose current version equals `seen`; otherwise returns the current record.
    /// The answers are in the order of the batch.
    ///
    /// * Each swap is atomic and has its own answer; the batch as a whole need not be atomic.
    /// * The batch is sorted by id and names no id twice.
    /// * [`Swapped::Won`] means durable, if [`Promises::durable`](crate::Promises::durable) says so.
    /// * [`Swapped::Failed`] is about that id alone: its record cannot be read, or its part of a cluster
    ///   cannot be reached. Its neighbours have answers of their own.
    /// * An error is about the whole batch: [`Applied::No`](crate::Applied::No) promises that none of
    ///   it happened.
    /// * The new version is above every version this id ever had, also after its record was removed.
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> StoreFuture<'a, Vec<Swapped>>;

    /// Reads records as they are now, in the order asked for, each with its own result. What it returns is
    /// never older than the last finished `swap`.
    fn load<'a>(&'a self, ids: &'a [Id]) -> StoreFuture<'a, Vec<Loaded>>;

    /// Reads one page of records. See [`ScanTarget`].
    fn scan<'a>(&'a self, query: &'a Scan) -> StoreFuture<'a, Page>;

    /// Reads due records and writes what `choose` makes of them in one step, so that callers that take at the
    /// same time get different records. `None` if the store has no such step: its callers scan and swap.
    ///
    /// * `choose` is given at most `limit` records of this state whose due time has come, about the earliest. The
    ///   store passes over those that another call is taking or changing at that moment.
    /// * `choose` is called at most once, and must be quick: what it is given may be locked. An error
    ///   without a call means that nothing was written.
    /// * What `choose` returns is written and answered as by [`swap`](Self::swap). It may be about other records too.
    fn take<'a>(
        &'a self,
        state: State,
        limit: usize,
        choose: Choose<'a>,
    ) -> Option<StoreFuture<'a, Vec<Swapped>>>;

    /// A signal of the store's own that records have changed, where it has one.
    fn watch(&self) -> Option<Watch>;

    /// What this store can and cannot promise.
    fn caps(&self) -> Caps;
}

/// The result of a load for one id: nothing, a record, or why that one record cannot be read.
pub type Loaded = Result<Option<Found>>;

/// Makes swaps of the records that a [take](Store::take) has read: a batch, sorted by id, that names no id twice.
pub type Choose<'a> = Box<dyn FnOnce(Page) -> Vec<Swap> + Send + 'a>;

/// A [take](Store::take) made of a scan and a swap: for stores whose callers cannot come between the two, and for
/// wrappers that change either.
pub fn take_by_scan<'a>(
    store: &'a dyn Store,
    state: State,
    limit: usize,
    choose: Choose<'a>,
) -> Option<StoreFuture<'a, Vec<Swapped>>> {
    Some(Box::pin(async move {
        let page = store.scan(&Scan::new(ScanTarget::Due(Some(state)), limit)).await?;
        let batch = choose(page);
        if batch.is_empty() { Ok(Vec::new()) } else { store.swap(&batch).await }
    }))
}

/// A store's own signal that records have changed. It is a hint: signals may be lost, late, doubled or
/// false, and nothing but speed may depend on them.
pub type Watch = Box<dyn Signals>;

/// Where the signals of a [`Watch`] come from.
pub trait Signals: Send {
    /// Ready when a record may have changed since the last call: this one, or any if `None`.
    fn changed(&mut self) -> Pin<Box<dyn Future<Output = Option<Id>> + Send + '_>>;
}

/// One conditional write.
///
/// It is built from its fields: another field is a breaking change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    /// The id of the record.
    pub id: Id,
    /// The record that must be there for the write to happen.
    pub seen: Seen,
    /// The new record; `None` removes it.
    pub new: Option<Record>,
}

/// The record that the writer expects.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Absent,
    /// A record of exactly this version.
    Version(Version),
}

/// A record to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// In which state; kept apart from the bytes so that people and scans can read it.
    pub state: State,
    /// When it falls due, counted from the moment of the write; `None` for never.
    pub due_in: Option<Duration>,
    /// Whether it falls due at once when the process that wrote it has ended, if the store can be certain
    /// of that (see [`Promises::shared`](crate::Promises::shared)). Other stores keep to `due_in`.
    pub ends_with_writer: bool,
    /// The encoded receipt, see `codec.rs`.
    pub bytes: Bytes,
}

impl Record {
    /// A record that never falls due.
    pub fn new(state: State, bytes: impl Into<Bytes>) -> Self {
        Self { state, due_in: None, ends_with_writer: false, bytes: bytes.into() }
    }

    /// Sets when it falls due, counted from the moment of the write; `None` for never.
    pub fn with_due_in(mut self, due_in: impl Into<Option<Duration>>) -> Self {
        self.due_in = due_in.into();
        self
    }

    /// Sets whether it falls due at once when the process that wrote it has ended.
    pub fn with_ends_with_writer(mut self, ends_with_writer: bool) -> Self {
        self.ends_with_writer = ends_with_writer;
        self
    }

    /// Sets the encoded receipt.
    pub fn with_bytes(mut self, bytes: impl Into<Bytes>) -> Self {
        self.bytes = bytes.into();
        self
    }
}

/// The result of one swap.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Debug)]
pub enum Swapped {
    /// Written; this is its version now. For a removal, any version above the removed one.
    Won(Version),
    /// Not written; this is what is there instead.
    Lost(Option<Found>),
    /// Failed for this id alone; the error says whether the write may have happened.
    Failed(Error),
}

/// A record as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// Its version: grows with every write to the id.
    pub version: Version,
    /// Its state.
    pub state: State,
    /// The time until it is due, by the store's clock at the moment of the answer.
    pub due: Due,
    /// How long ago it was written, by the store's clock.
    pub age: Age,
    /// The encoded receipt.
    pub bytes: Bytes,
}

impl Found {
    /// A record of this version and state, with what remains until it falls due, its age and its receipt.
    pub fn new(version: Version, state: State, due: Due, age: Age, bytes: impl Into<Bytes>) -> Self {
        Self { version, state, due, age, bytes: bytes.into() }
    }
}

/// How long ago a record was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Age {
    /// Since the first write to its id after it was last absent.
    pub created: Duration,
    /// Since the last write.
    pub updated: Duration,
}

impl Age {
    /// First written this long ago, and last written that long ago.
    pub fn new(created: Duration, updated: Duration) -> Self {
        Self { created, updated }
    }

    /// From three readings of one clock in microseconds.
    pub fn between(now_us: u64, created_us: u64, updated_us: u64) -> Self {
        let since = |us| Duration::from_micros(now_us.saturating_sub(us));
        Self::new(since(created_us), since(updated_us))
    }
}

/// The number of a record's last write. It comes from the store's clock in microseconds and never
/// goes back for an id. The version of a claim is its [fence](crate::Fence).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// The states of a receipt that exists.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// It has not begun; due when a worker may begin.
    Waiting,
    /// A run has the lease; due when the lease ends.
    Held,
    /// The outcome is known, or the intent was closed; due when its retention ends.
    Done,
    /// The effect may or may not have happened; never due.
    Unknown,
    /// It was tried as often as its policy allows; never due.
    Dead,
    /// The outcome was forgotten at the end of its retention, the key is still refused; due when the
    /// tombstone may go.
    Gone,
}

impl State {
    /// All of them, in the order of a receipt's life.
    pub const ALL: [Self; 6] = [Self::Waiting, Self::Held, Self::Done, Self::Unknown, Self::Dead, Self::Gone];

    /// Its name in tables and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::Done => "done",
            Self::Unknown => "unknown",
            Self::Dead => "dead",
            Self::Gone => "gone",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for State {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            Error::new(ErrorKind::Invalid, format!("`{name}` is not a state; there are {known}"))
        })
    }
}

/// The time until something is due.
///
/// Match it without a `_` arm: a new variant is a breaking change.
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
    /// Returns whether the due time has come.
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
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scan {
    /// Which records.
    pub target: ScanTarget,
    /// Go on behind this place; `None` starts at the beginning.
    pub after: Option<Cursor>,
    /// *Look at* no more than this many records (at least 1), so that one call is a bounded slice of work. A page
    /// may therefore be short, or even empty, and still have a next one.
    pub limit: usize,
}

impl Scan {
    /// A scan from the beginning that looks at no more than `limit` records.
    pub fn new(target: ScanTarget, limit: usize) -> Self {
        Self { target, after: None, limit }
    }

    /// Sets which records.
    pub fn with_target(mut self, target: ScanTarget) -> Self {
        self.target = target;
        self
    }

    /// Sets the place to go on behind; `None` starts at the beginning.
    pub fn with_after(mut self, after: impl Into<Option<Cursor>>) -> Self {
        self.after = after.into();
        self
    }

    /// Sets how many records are looked at, at least 1.
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

/// Which records a scan is about.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanTarget {
    /// Those whose due time has come, earliest first; only of this state, if one is given. Reads only what
    /// is due.
    Due(Option<State>),
    /// Those that match, in an order of the store's own.
    Matching(Filter),
    /// The [steps](crate::Id::step) of this intent, directly below it.
    StepsOf(Id),
}

/// Which records match: those that fit all that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filter {
    /// Only this scope.
    pub scope: Option<String>,
    /// Only such operations.
    pub operation: Option<TextMatch>,
    /// Only this key.
    pub key: Option<String>,
    /// Only this state. Waiting, held, unknown and dead records are found without reading done ones, whatever else is
    /// given. Done and gone records, and records of any state, are found among all records of the scope and key, or among
    /// all there are: a prefix of the operation bounds nothing. A list for operators, which shows done receipts too, costs
    /// that; work in progress asks for a state.
    pub state: Option<State>,
}

/// Which text matches.
///
/// Match it without a `_` arm: a new variant is a breaking change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextMatch {
    /// This one.
    Is(String),
    /// Any that begins like this.
    StartsWith(String),
}

impl TextMatch {
    /// Returns whether this text matches.
    pub fn matches(&self, text: &str) -> bool {
        match self {
            Self::Is(wanted) => text == wanted,
            Self::StartsWith(prefix) => text.starts_with(prefix),
        }
    }
}

impl Filter {
    /// Sets the only scope; `None` for any.
    pub fn with_scope(mut self, scope: impl Into<Option<String>>) -> Self {
        self.scope = scope.into();
        self
    }

    /// Sets which operations; `None` for any.
    pub fn with_operation(mut self, operation: impl Into<Option<TextMatch>>) -> Self {
        self.operation = operation.into();
        self
    }

    /// Sets the only key; `None` for any.
    pub fn with_key(mut self, key: impl Into<Option<String>>) -> Self {
        self.key = key.into();
        self
    }

    /// Sets the only state; `None` for any.
    pub fn with_state(mut self, state: impl Into<Option<State>>) -> Self {
        self.state = state.into();
        self
    }

    /// Returns whether a record with this id and state matches.
    pub fn matches(&self, id: &Id, state: State) -> bool {
        self.state.is_none_or(|wanted| wanted == state)
            && self.scope.as_ref().is_none_or(|scope| id.scope() == scope)
            && self.operation.as_ref().is_none_or(|operation| operation.matches(id.operation()))
            && self.key.as_ref().is_none_or(|key| id.key() == key)
    }
}

/// One page of a scan.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Page {
    /// The records, each with its id.
    pub found: Vec<(Id, Found)>,
    /// Records that belong here and cannot be read, and why.
    pub unreadable: Vec<(Id, Error)>,
    /// Where to continue; `None` at the end.
    pub next: Option<Cursor>,
}

impl Page {
    /// A page of these records, all of them readable, and where to continue.
    pub fn new(found: Vec<(Id, Found)>, next: Option<Cursor>) -> Self {
        Self { found, unreadable: Vec::new(), next }
    }

    /// Sets the records that cannot be read, and why.
    pub fn with_unreadable(mut self, unreadable: Vec<(Id, Error)>) -> Self {
        self.unreadable = unreadable;
        self
    }
}

/// A place in a scan: opaque, valid for the same query on the same store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub Bytes);
