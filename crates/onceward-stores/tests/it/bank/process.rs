//! One process of a bank and its callers: charges that run at once, concurrently, or slowly.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use onceward::{
    Answer, Ask, Claimed, Completed, Enqueued, Fingerprint, Id, Lease, OnFailure, Onceward, Outcome, Policy,
    State, Stopped, Ticket, Transactions,
};
use onceward_stores::sql::{InTransaction, SqlTransaction};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::{Bank, Tx};

/// An engine and transactions of its own. Its outcomes bear its name.
pub(crate) struct Process<B: Bank> {
    name: &'static str,
    /// Whether it says the outcome of its charges before they run.
    knows: bool,
    pub(crate) onceward: Onceward,
    pub(crate) transactions: B::T,
}

impl<B: Bank> Clone for Process<B> {
    fn clone(&self) -> Self {
        let Self { name, knows, onceward, transactions } = self;
        Self { name, knows: *knows, onceward: onceward.clone(), transactions: transactions.clone() }
    }
}

impl<B: Bank> Process<B> {
    pub(crate) async fn new(bank: &B, name: &'static str) -> Self {
        let store = onceward_stores::open(&bank.url()).await.unwrap();
        let (onceward, transactions) = (Onceward::new(store).unwrap(), bank.transactions().await);
        Self { name, knows: false, onceward, transactions }
    }

    /// The same process, which says the outcome of its charges before they run.
    pub(crate) fn knowing(&self) -> Self {
        Self { knows: true, ..self.clone() }
    }

    fn outcome(&self, key: &str) -> Outcome {
        Outcome::succeeded(format!("{} charged {key}", self.name))
    }

    pub(crate) async fn charge(&self, ask: Ask) -> onceward::Result<Answer> {
        self.charge_through(&self.transactions, ask, &AtomicUsize::new(0)).await
    }

    /// Charges through these transactions, and counts how often the work ran.
    pub(crate) async fn charge_through<T: Transactions<Tx = Tx<B>>>(
        &self,
        transactions: &T,
        ask: Ask,
        worked: &AtomicUsize,
    ) -> onceward::Result<Answer> {
        let key = ask.id().key().to_owned();
        let work = async |_: Lease, tx: Tx<B>| {
            worked.fetch_add(1, Ordering::SeqCst);
            B::charge(&tx, &key).await?;
            Ok(self.outcome(&key))
        };
        if self.knows {
            let outcome = self.outcome(&key);
            let work = async |lease: Lease, tx: Tx<B>| work(lease, tx).await.map(drop);
            return self.onceward.transact_with_outcome(transactions, ask, outcome, work).await;
        }
        self.onceward.transact(transactions, ask, work).await
    }

    /// Charges in a task of its own.
    pub(crate) fn charge_beside(&self, ask: Ask) -> JoinHandle<onceward::Result<Answer>> {
        let process = self.clone();
        tokio::spawn(async move { process.charge(ask).await })
    }

    /// Begins a charge and pauses inside its work, with the charge written; continues when told.
    pub(crate) async fn charge_slowly(&self, ask: Ask) -> Slow {
        let (inside, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let then = Arc::new(Mutex::new(None));
        let (process, reached, waits, told) =
            (self.clone(), Arc::clone(&inside), Arc::clone(&go_on), Arc::clone(&then));
        let running = tokio::spawn(async move {
            let key = ask.id().key().to_owned();
            let work = async |_: Lease, tx: Tx<B>| {
                B::charge(&tx, &key).await?;
                // On a retry, it has been told already.
                if told.lock().unwrap().is_none() {
                    reached.notify_one();
                    waits.notified().await;
                }
                let then = *told.lock().unwrap();
                match then.expect("it goes on when it is told how") {
                    Then::Succeed => Ok(process.outcome(&key)),
                    Then::Fail => Ok(Outcome::failed("declined")),
                    Then::Stop => Err(Stopped::unknown("told to stop")),
                }
            };
            process.onceward.transact(&process.transactions, ask, work).await
        });
        inside.notified().await;
        Slow { running, go_on, then }
    }
}

/// How a slow charge ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Succeed,
    Fail,
    Stop,
}

/// A charge that stands still.
pub(crate) struct Slow {
    pub(crate) running: JoinHandle<onceward::Result<Answer>>,
    go_on: Arc<Notify>,
    then: Arc<Mutex<Option<Then>>>,
}

impl Slow {
    pub(crate) async fn end(self, then: Then) -> onceward::Result<Answer> {
        *self.then.lock().unwrap() = Some(then);
        self.go_on.notify_one();
        self.running.await.unwrap()
    }
}

/// What is done in a transaction of the caller's own, one after the other: undone, kept, and found as it was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    Undone,
    Kept,
    FoundDone,
    EnqueuedAndUndone,
    EnqueuedAndKept,
    FoundWaiting,
    /// A failure under a policy that has failures tried again.
    FailedAndKept,
}

impl Round {
    pub(crate) const ALL: [Self; 3] = [Self::Undone, Self::Kept, Self::FoundDone];

    /// Whether the caller commits.
    pub(crate) fn commits(self) -> bool {
        matches!(self, Self::Kept | Self::EnqueuedAndKept | Self::FailedAndKept)
    }

    /// Does what the round says in a transaction that the caller has begun.
    pub(crate) async fn inside<B: Bank, T: SqlTransaction>(self, process: &Process<B>, tx: &mut T) {
        match self {
            Self::Undone | Self::Kept | Self::FoundDone => self.claim(process, tx).await,
            Self::FailedAndKept => {
                let ask = ask_under(
                    "failed own",
                    Policy::http().to_builder().with_on_failure(OnFailure::Retry).build().unwrap(),
                );
                let ticket = claimed(process.onceward.claim_in(&mut InTransaction(tx), &ask).await);
                let (outcome, mut joined) = (Outcome::failed("declined"), InTransaction(tx));
                process.onceward.complete_in(&mut joined, &ticket, &outcome).await.unwrap();
            }
            Self::EnqueuedAndUndone | Self::EnqueuedAndKept | Self::FoundWaiting => {
                let ask = ask("enqueued").with_input("12");
                let enqueued = process.onceward.enqueue_in(&mut InTransaction(tx), &ask).await.unwrap();
                let expected = match self {
                    Self::FoundWaiting => Enqueued::AlreadyThere(State::Waiting),
                    _ => Enqueued::Accepted,
                };
                assert_eq!(enqueued, expected, "{self:?}");
            }
        }
    }

    /// Claims, charges and completes.
    async fn claim<B: Bank, T: SqlTransaction>(self, process: &Process<B>, tx: &mut T) {
        match process.onceward.claim_in(&mut InTransaction(tx), &ask("own")).await.unwrap() {
            Claimed::Granted(ticket) => {
                assert_ne!(self, Self::FoundDone);
                tx.fetch("INSERT INTO charges VALUES ('own')", &[]).await.unwrap();
                let (outcome, mut joined) = (process.outcome("own"), InTransaction(tx));
                process.onceward.complete_in(&mut joined, &ticket, &outcome).await.unwrap();
            }
            Claimed::Answered(answer) => {
                assert_eq!(self, Self::FoundDone);
                assert_eq!(said(Ok(answer)), replay_of(process.name, "own"));
            }
        }
    }
}

pub(crate) fn ask(key: &str) -> Ask {
    ask_under(key, Policy::http())
}

pub(crate) fn ask_under(key: &str, policy: Policy) -> Ask {
    Ask::new(Id::new("tenant", "charge", key).unwrap(), Fingerprint::of(b"12"), Arc::new(policy))
}

pub(crate) fn ran(answer: onceward::Result<Answer>) -> Completed {
    answer.unwrap().into_result().unwrap()
}

/// A claim that nobody else has.
pub(crate) fn claimed(claimed: onceward::Result<Claimed>) -> Ticket {
    match claimed.unwrap() {
        Claimed::Granted(ticket) => ticket,
        Claimed::Answered(answer) => panic!("{answer:?}"),
    }
}

/// What the outcome says, and whether it is a replay.
pub(crate) fn said(answer: onceward::Result<Answer>) -> (String, bool) {
    let ran = ran(answer);
    (String::from_utf8(ran.outcome.body().to_vec()).unwrap(), ran.replayed)
}

/// What is said to the first one to ask, if this process charged.
pub(crate) fn first_of(name: &str, key: &str) -> (String, bool) {
    (format!("{name} charged {key}"), false)
}

/// What is said to all others.
pub(crate) fn replay_of(name: &str, key: &str) -> (String, bool) {
    (format!("{name} charged {key}"), true)
}
