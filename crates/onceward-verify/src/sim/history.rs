//! The recorded events of a simulation: what the store wrote, what the work did, what callers were told. The checker
//! reads nothing else. All times are the store's.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use onceward::{Answer, Attempt, Enqueued, Fence, Id, Outcome, Policy, Receipt, Settlement, Snapshot};

use super::executor::{Executor, Process, lock};
use super::faults::Fault;
use super::scenario::Workers;

/// Which call of which caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call(pub u32);

/// Which transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tx(pub u32);

/// One thing that happened.
#[derive(Clone, Debug)]
pub struct Event {
    /// When, by the store's clock.
    pub at_us: u64,
    /// In which process.
    pub process: Process,
    /// What.
    pub what: EventKind,
}

/// What can happen.
#[derive(Clone, Debug)]
pub enum EventKind {
    /// The store changed a record. `after` is `None` for a removal.
    Wrote {
        /// Whose.
        id: Id,
        /// The number of this write.
        version: u64,
        /// What was there.
        before: Option<Box<Receipt>>,
        /// What is there now.
        after: Option<Box<Receipt>>,
        /// In which transaction, if it was one.
        tx: Option<Tx>,
        /// When the write left for the store.
        sent_us: u64,
    },
    /// A transaction wrote a record that nobody else can see yet.
    Staged {
        /// Which.
        tx: Tx,
        /// Whose.
        id: Id,
        /// What it would be.
        after: Option<Box<Receipt>>,
    },
    /// The work of a call makes its business write in a transaction.
    Charged {
        /// In this one.
        tx: Tx,
        /// For this call.
        call: Call,
    },
    /// A transaction committed, together with all that the store wrote under its number just before.
    Committed {
        /// Which.
        tx: Tx,
        /// The business writes in it, by the calls that made them.
        business: Vec<Call>,
    },
    /// A transaction was undone.
    RolledBack {
        /// Which.
        tx: Tx,
    },
    /// The store wrote bytes that are no receipt.
    Unreadable {
        /// Whose.
        id: Id,
    },
    /// The store was opened again with what it had on disk. Only what was acknowledged must be there.
    Reopened {
        /// All that is there.
        kept: Vec<(Id, Box<Receipt>)>,
    },
    /// The store told its caller that this version is written. Recorded where a restart can lose it.
    Acknowledged {
        /// Whose.
        id: Id,
        /// As what.
        version: u64,
    },
    /// Somebody asks for an intent.
    Asked {
        /// In this call.
        call: Call,
        /// For this.
        id: Id,
        /// As described so.
        fingerprint: u8,
        /// Under this contract.
        policy: Arc<Policy>,
        /// In this way.
        way: CallMethod,
        /// Whether it brings an input along: a [`Stamp`] of the call.
        input: bool,
    },
    /// The call has its answer.
    Answered {
        /// Which call.
        call: Call,
        /// What it was told.
        told: CallResult,
    },
    /// The caller went away, or its process died.
    WentAway {
        /// Which call.
        call: Call,
    },
    /// The work of a call begins.
    Began {
        /// For this call.
        call: Call,
        /// With this fence.
        fence: Fence,
        /// What it was told is to be done.
        input: Option<Bytes>,
    },
    /// The work has had its external effect.
    Effect {
        /// For this call.
        call: Call,
    },
    /// The work is over.
    Ended {
        /// For this call.
        call: Call,
        /// In this way.
        how: End,
    },
    /// An operator is about to settle an unknown outcome.
    Settling {
        /// Whose.
        id: Id,
        /// Of which run.
        fence: Fence,
        /// What is said.
        settlement: Settlement,
    },
    /// An operator is about to erase a receipt.
    Erasing {
        /// Whose.
        id: Id,
        /// Whether its key is to be free afterwards.
        reopen: bool,
        /// How long copies of it may still be given out.
        bound: Duration,
    },
    /// An operator is about to forget an unknown outcome that did not happen, if its receipt is still this one.
    Forgetting {
        /// Whose.
        id: Id,
        /// As it was read.
        version: u64,
        /// How long copies of its steps may still be given out.
        bound: Duration,
    },
    /// A run is about to replace what its receipt carries as its input.
    Replacing {
        /// Whose.
        id: Id,
        /// Of this run.
        fence: Fence,
        /// By this.
        input: Bytes,
    },
    /// It was told that this is durable.
    Replaced {
        /// Whose.
        id: Id,
        /// Of this run.
        fence: Fence,
        /// What it is now.
        input: Bytes,
    },
    /// A write leaves for the store whose way there and back will take this long. Recorded where that is
    /// long beside the shortest lease.
    LongTrip(Duration),
    /// A fault of the store.
    Fault(Fault),
    /// The process dies.
    Crashed,
    /// It is back.
    Started,
    /// It does nothing for this long.
    Paused(Duration),
    /// Its clock moves ahead by this much.
    Jumped(Duration),
    /// From here on nothing is faulty any more.
    Calm,
    /// A sweep begins in this process.
    Sweeps {
        /// After how long it gives up unknown outcomes, if it does.
        unknown_after: Option<Duration>,
    },
    /// Workers are at work in this process from here on.
    Works(Workers),
    /// Long enough after the last fault for everything to have come to an end that needs nobody's word.
    Patience,
    /// Even so, something never ended.
    Wedged(String),
}

/// How an intent is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallMethod {
    /// With `run`: the engine renews the lease and drops the work when it is lost.
    Run,
    /// As a step inside another run.
    Step,
    /// By a worker, on behalf of nobody.
    Work,
    /// With `resume`, as it was found: by a caller that selects intents itself.
    Resume,
    /// With `transact`: claim, business write and outcome in one transaction.
    Transact,
    /// With `claim_in` and `complete_in`: the same by hand.
    ClaimIn,
    /// With `record_in`: done in a transaction of the caller's own, without a claim before.
    RecordIn,
    /// With `close_in`: undone before it begins, if a transaction of the caller's own commits.
    CloseIn,
    /// With `enqueue`: for a worker to do.
    Enqueue,
    /// With `enqueue_in`, inside the transaction of another call.
    EnqueueIn,
    /// Not at all: it is to be closed.
    Close(Closing),
    /// With `claim`, and everything else by hand; perhaps under a name of the caller's own for this try.
    Hand(Option<Attempt>),
}

impl CallMethod {
    /// Returns whether claim, business write and outcome are in one transaction.
    pub fn is_in_transaction(self) -> bool {
        matches!(self, Self::Transact | Self::ClaimIn)
    }
}

/// How an intent is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// If it waits.
    Cancel,
    /// If it has not begun, also where nobody has asked for it yet.
    Undo,
    /// If it is dead.
    Discard,
    /// Not: what is dead is tried again.
    Retry,
    /// Not: what waits for its time begins now.
    StartNow,
}

/// What a call was told.
#[derive(Clone, Debug)]
pub enum CallResult {
    /// An answer.
    Answer(Box<Answer>),
    /// The claim is the caller's.
    Ticket(Fence),
    /// By hand: the ending is in the store.
    Recorded,
    /// By hand: somebody else has the receipt.
    TooLate,
    /// The result of enqueueing an intent.
    Enqueued(Box<Enqueued>),
    /// Whether an intent was closed.
    Closed(bool),
    /// Whether an intent was recorded as done by the transaction, which has committed; `false` if it had a receipt.
    RecordedIn(bool),
    /// An error.
    Error(Box<onceward::Error>),
    /// The work's panic came back.
    Panic,
}

/// How work can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With what was asked.
    Succeeded,
    /// Without what was asked.
    Failed,
    /// Before anything happened.
    BeforeEffect,
    /// Nobody can tell.
    Unknown,
    /// With a panic.
    Panicked,
    /// It is to go on later.
    Suspended,
    /// It was dropped midway: by its caller, by a lost lease, or by a crash.
    Cut,
}

/// Takes down what happens.
pub struct Recorder {
    executor: Arc<Executor>,
    events: Mutex<Vec<Event>>,
    calls: AtomicU32,
    transactions: AtomicU32,
}

impl Recorder {
    /// An empty history.
    pub fn new(executor: &Arc<Executor>) -> Arc<Self> {
        Arc::new(Self {
            executor: Arc::clone(executor),
            events: Mutex::default(),
            calls: AtomicU32::new(0),
            transactions: AtomicU32::new(0),
        })
    }

    /// Takes down one thing.
    pub fn record(&self, process: Process, what: EventKind) {
        let at_us = self.executor.now_us();
        lock(&self.events).push(Event { at_us, process, what });
    }

    /// The request, as the claim says that has this fence.
    pub fn claimed(&self, id: &Id, fence: Fence) -> u8 {
        let claim = |event: &Event| match &event.what {
            EventKind::Wrote { id: of, after: Some(after), .. } if of == id => {
                after.status.claim().filter(|claim| claim.fence == fence).map(|claim| claim.fingerprint)
            }
            _ => None,
        };
        lock(&self.events).iter().rev().find_map(claim).map_or(0, |fingerprint| fingerprint.digest()[0])
    }

    /// The contract under which a call asks.
    pub fn policy_of(&self, wanted: Call) -> Arc<Policy> {
        let asked = |event: &Event| match &event.what {
            EventKind::Asked { call, policy, .. } if *call == wanted => Some(Arc::clone(policy)),
            _ => None,
        };
        lock(&self.events).iter().rev().find_map(asked).expect("every call is asked")
    }

    /// A number for the next call.
    pub fn next_call(&self) -> Call {
        Call(self.calls.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// A number for the next transaction.
    pub fn next_transaction(&self) -> Tx {
        Tx(self.transactions.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// All that was taken down so far.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *lock(&self.events))
    }
}

/// What an outcome says about itself: for which intent it was made, or for which ones, and by which call. Zero is the
/// operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The key, and the step if it is one; with `+` between several.
    pub name: String,
    /// The request.
    pub fingerprint: u8,
    /// Who made it.
    pub call: u32,
}

impl Stamp {
    /// As bytes of an outcome.
    pub fn text(&self) -> String {
        format!("{} {} {}", self.name, self.fingerprint, self.call)
    }

    /// Whether it was made for this intent.
    pub fn is_for(&self, id: &Id) -> bool {
        let own = name(id);
        self.name.split('+').any(|name| name == own)
    }

    /// Of an outcome, kept or not.
    pub fn of(outcome: &Outcome) -> Option<Self> {
        match outcome.snapshot() {
            Snapshot::Kept(bytes) | Snapshot::Omitted(bytes) => Self::read(bytes),
        }
    }

    /// From the bytes of an outcome or an input.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
        let (name, fingerprint, call) = (words.next()?, words.next()?, words.next()?);
        Some(Self { name: name.into(), fingerprint: fingerprint.parse().ok()?, call: call.parse().ok()? })
    }
}

/// A short name for an id of a simulation: its key, and its step if it is one.
pub fn name(id: &Id) -> String {
    match id.operation().split_once('#') {
        Some((_, step)) => format!("{}#{step}", id.key()),
        None => id.key().to_owned(),
    }
}
