//! One try of several messages of a partition in one transaction.
//!
//! ```text
//! begin + receipt of the first + fence, sequences ─▶ receipts of the others ─▶ handler ─▶ commit
//!                                     │                    │                      └─ failed: each by itself
//!                                     └────────────────────┴─ not plain arrivals: left out, each by itself
//! ```
//!
//! Only plain arrivals are handled here: no receipt, no dead letter, no tries, no sequence of their key. Whatever else
//! there is to decide about a message, its dead letter included, is decided by `effect.rs` when it is tried by itself.
//! A message that is left out takes the later ones of its key with it, so that they do not overtake it.
//!
//! Nothing is recorded of a failure: the transaction is rolled back, and no try is charged.

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use onceward::{Answer, Ask, Error, ErrorKind, Lease, Outcome, Result, Stopped};
use onceward_stores::sql::{Cell, SqlTransactions, Value};

use super::admission::AdmittingTransactions;
use super::effect::{Cause, End, Item};
use super::{BATCH_MESSAGES_MAX, Consumer, Failure, Received};

/// Several messages of one partition, under one fence, in the order in which the handler gets them.
pub(super) struct Batch<'a, T, H> {
    pub(super) consumer: &'a Consumer<T>,
    pub(super) flow: &'a str,
    pub(super) handler: &'a H,
    pub(super) items: &'a [&'a Item],
}

/// Why the work inside the transaction has stopped, which is then rolled back.
enum Stop {
    FencedOff,
    /// These do not belong in the batch; indexes of the items.
    LeaveOut(Vec<usize>),
    Failed(Failure),
    Database(Error),
}

/// What became of a transaction.
enum Tried {
    /// With the effects of these.
    Committed(Vec<usize>),
    Stopped(Stop),
}

impl<T, H, W> Batch<'_, T, H>
where
    T: SqlTransactions,
    H: Fn(Vec<Received>, T::Tx) -> W,
    W: Future<Output = Result<(), Failure>>,
{
    /// Tries them, and returns what became of each.
    pub(super) async fn run(&self) -> Vec<End> {
        let mut ends: Vec<End> = self.items.iter().map(|_| End::Alone).collect();
        let mut left = self.distinct();
        // Each round leaves one out at least. With one left there is no batch any more.
        while left.len() > 1 {
            match self.try_run(&left).await {
                Tried::Committed(handled) => {
                    self.consumer.counters.batches.fetch_add(1, Ordering::Relaxed);
                    for at in handled {
                        ends[at] = End::Handled;
                    }
                    return ends;
                }
                Tried::Stopped(Stop::LeaveOut(out)) => left = self.without(&left, &out),
                Tried::Stopped(Stop::FencedOff) => {
                    return self.items.iter().map(|_| End::FencedOff).collect();
                }
                Tried::Stopped(Stop::Failed(failure)) => {
                    self.consumer.counters.batches_repeated.fetch_add(1, Ordering::Relaxed);
                    let (consumer, messages) = (&*self.consumer.name, left.len());
                    tracing::info!(consumer, messages, %failure, "a batch failed, its messages are tried one by one");
                    return ends;
                }
                // No fault of the messages, and not made better by as many transactions as there are messages.
                Tried::Stopped(Stop::Database(error)) => {
                    let again = |item: &&Item| End::TryAgain { tries: item.tries, error: error.to_string() };
                    return self.items.iter().map(again).collect();
                }
            }
        }
        ends
    }

    /// Without copies: a second one of an id finds the receipt of the first when it is tried by itself.
    fn distinct(&self) -> Vec<usize> {
        let is_copy = |at: usize| {
            let id = self.items[at].message.id();
            self.items[..at].iter().any(|before| before.message.id() == id)
        };
        let all: Vec<usize> = (0..self.items.len()).collect();
        let out: Vec<usize> = all.iter().copied().filter(|at| is_copy(*at)).collect();
        self.without(&all, &out)
    }

    /// Without these, and without their successors.
    fn without(&self, left: &[usize], out: &[usize]) -> Vec<usize> {
        let key_of = |at: usize| self.items[at].message.ordering_key();
        let follows = |at: usize| {
            key_of(at).is_some() && out.iter().any(|before| *before < at && key_of(*before) == key_of(at))
        };
        left.iter().copied().filter(|at| !out.contains(at) && !follows(*at)).collect()
    }

    /// One transaction. The engine writes the receipt of the first message with its beginning; so a commit whose answer was
    /// lost is looked up there, and what it says of the first one holds for all.
    async fn try_run(&self, left: &[usize]) -> Tried {
        let asks: Result<Vec<Ask>> = left
            .iter()
            .map(|at| {
                let message = &self.items[*at].message;
                Ok(self.consumer.ask(self.consumer.id_of(message)?, message))
            })
            .collect();
        let asks = match asks {
            Ok(asks) => asks,
            Err(error) => return Tried::Stopped(Stop::Database(error)),
        };
        let database = &self.consumer.database;
        let names: Vec<[&str; 2]> = left.iter().map(|at| self.names(*at)).collect();
        let statements = database.tables.statements();
        let (plain, hex) = if statements.admits_in_hex {
            (String::new(), listed(names.iter().map(|pair| pair.map(hex))))
        } else {
            (listed(names.iter()), String::new())
        };
        let values = [
            Value::Text(self.flow),
            Value::Int(Some(self.items[0].part.into())),
            Value::Text(&self.consumer.scope),
            Value::Text(&plain),
            Value::Text(&hex),
        ];
        let transactions = AdmittingTransactions::new(&database.transactions, &statements.admit_all, &values);
        // Of the last execution: after a deadlock there is another one.
        let worked = Mutex::new(Err(Stop::LeaveOut(Vec::new())));
        let work = async |_: Lease, tx: T::Tx| {
            let result = self.work(left, &asks, tx, transactions.take_admitted()).await;
            let stopped = match &result {
                Ok(_) => Ok(()),
                // The error itself, so that a deadlock is recognised and repeated.
                Err(Stop::Failed(failure)) => Err(Stopped::before_effect(Cause(failure.error().clone()))),
                Err(Stop::Database(error)) => Err(Stopped::from(error.clone())),
                Err(_) => Err(Stopped::unknown("the batch is not handled now")),
            };
            *worked.lock().expect("no panic inside") = result;
            stopped
        };
        let (first, outcome) = (asks[0].clone(), Outcome::succeeded(""));
        let answer = database.onceward.transact_with_outcome(&transactions, first, outcome, work).await;
        let worked = worked.into_inner().expect("no panic inside");
        match (answer, worked) {
            (Ok(Answer::Completed(completed)), Ok(handled)) if !completed.replayed => {
                Tried::Committed(handled)
            }
            // The first one was handled before, or is being handled.
            (Ok(_), _) => Tried::Stopped(Stop::LeaveOut(vec![left[0]])),
            (Err(error), Err(stop)) if error.kind() == ErrorKind::Stopped => Tried::Stopped(stop),
            (Err(error), _) => Tried::Stopped(Stop::Database(error)),
        }
    }

    /// Inside the transaction. Returns what the handler was given.
    async fn work(
        &self,
        left: &[usize],
        asks: &[Ask],
        tx: T::Tx,
        admitted: Option<Vec<Cell>>,
    ) -> Result<Vec<usize>, Stop> {
        let mut ours = tx.clone();
        let out = self.not_plain(left, admitted.as_deref())?;
        if out.contains(&left[0]) {
            return Err(Stop::LeaveOut(out));
        }
        let plain = self.without(left, &out);
        let others: Vec<Ask> = left
            .iter()
            .zip(asks)
            .skip(1)
            .filter(|(at, _)| plain.contains(at))
            .map(|(_, ask)| ask.clone())
            .collect();
        let onceward = &self.consumer.database.onceward;
        let recorded = onceward.record_in(&mut ours, &others, &Outcome::succeeded("")).await?;
        let known: Vec<usize> = plain[1..]
            .iter()
            .zip(recorded)
            .filter(|(_, is_recorded)| !is_recorded)
            .map(|(at, _)| *at)
            .collect();
        let handled = self.without(&plain, &known);
        if handled.len() + known.len() < plain.len() {
            // The receipt of a successor is written already, and must not be committed without its effect.
            return Err(Stop::LeaveOut(known));
        }
        let received = |at: &usize| Received { message: self.items[*at].message.clone(), tries: 0 };
        let batch = handled.iter().map(received).collect();
        match AssertUnwindSafe((self.handler)(batch, tx)).catch_unwind().await {
            Ok(result) => result.map(|()| handled).map_err(Stop::Failed),
            Err(_) => Err(Stop::Failed(Failure::panicked())),
        }
    }

    /// Its ordering key and its id.
    fn names(&self, at: usize) -> [&str; 2] {
        let message = &self.items[at].message;
        [message.ordering_key().unwrap_or_default(), message.id()]
    }

    /// Compares the fence, which is locked to the end of the transaction. Returns those that are no plain arrivals.
    fn not_plain(&self, left: &[usize], admitted: Option<&[Cell]>) -> Result<Vec<usize>, Stop> {
        debug_assert!(left.len() <= BATCH_MESSAGES_MAX, "each is a bit");
        let fence = &self.items[0].fence;
        match admitted {
            Some([Cell::Int(found), Cell::Int(bits)]) if found == fence => {
                let is_set = |(bit, _): &(usize, &usize)| *bits >> bit & 1 == 1;
                Ok(left.iter().enumerate().filter(is_set).map(|(_, at)| *at).collect())
            }
            Some([Cell::Int(found), _]) if found == fence => {
                let error =
                    Error::new(ErrorKind::Damaged, "the statement that admits a batch gave no number");
                Err(Stop::Database(error))
            }
            _ => Err(Stop::FencedOff),
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

/// A JSON list.
fn listed(entries: impl Iterator<Item = impl serde::Serialize>) -> String {
    serde_json::to_string(&entries.collect::<Vec<_>>()).expect("a list of texts is JSON")
}

fn hex(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(2 * text.len());
    for byte in text.bytes() {
        let _ = write!(out, "{byte:02x}");
    }
    out
}
