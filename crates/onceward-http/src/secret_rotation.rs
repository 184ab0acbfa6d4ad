//! Handles one intent under several secrets while they are rotated. The scope of a request is hashed with a secret, so while secrets are
//! rotated two processes may know one intent by two ids. An intent therefore has a receipt under the id of
//! each listed secret, and its work begins only when all of them are claimed: any two processes that share
//! a secret exclude each other, whichever they list first.
//!
//! ```text
//! ids, in the one order that all processes agree on:   a < b
//! run(a) ─▶ claimed ─▶ run(b) ─▶ claimed ─▶ work
//!   │ done: replay       │ done: replay, and a is recorded like it
//! ```
//!
//! With one secret there is one id and nothing of this.

use std::pin::Pin;
use std::sync::Arc;
use std::vec;

use onceward::receipt::Status;
use onceward::{
    Answer, Applied, Ask, Completed, Fingerprint, Id, Lease, OnDuplicate, Onceward, Outcome, Policy,
    Recorded, Refusal, Result, Retention, Settlement, Stopped,
};

use crate::fingerprint::{Caller, Fingerprints};
use crate::oldest_receipt;

/// The ids of one intent, by the secrets in the order in which they are listed.
#[derive(Debug)]
pub(crate) struct Ids {
    pub(crate) current: Id,
    caller: Caller,
    /// Those under the other secrets and under previous terms of the route, with the place of the secret in the list;
    /// empty, and then free, where there is one secret or the scope needs none.
    others: Vec<OtherId>,
}

#[derive(Debug)]
struct OtherId {
    secret: usize,
    caller: Caller,
    id: Id,
}

/// One intent, asked for under each of its ids.
#[derive(Debug)]
pub(crate) struct Asks {
    pub(crate) current: Ask,
    pub(crate) caller: Caller,
    others: Vec<Ask>,
}

impl Ids {
    pub(crate) fn new(current: Id, caller: Caller) -> Self {
        Self { current, caller, others: Vec::new() }
    }

    pub(crate) fn also(&mut self, secret: usize, (id, caller): (Id, Caller)) {
        if id != self.current && self.others.iter().all(|other| other.id != id) {
            self.others.push(OtherId { secret, caller, id });
        }
    }

    /// Adds the ids of the same intent by another key.
    pub(crate) fn join(&mut self, other: Self) {
        let Self { current, caller, others } = other;
        self.also(0, (current, caller));
        for OtherId { secret, caller, id } in others {
            self.also(secret, (id, caller));
        }
    }

    /// The same ask under each id, with one fingerprint for all.
    pub(crate) fn ask_as(self, fingerprint: Fingerprint, policy: &Arc<Policy>) -> Asks {
        let Self { current, caller, others } = self;
        let ask = |id| Ask::new(id, fingerprint, policy.clone());
        Asks {
            current: ask(current),
            caller,
            others: others.into_iter().map(|other| ask(other.id)).collect(),
        }
    }

    /// All ids, each with whether it names the caller.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&Id, Caller)> {
        std::iter::once((&self.current, self.caller))
            .chain(self.others.iter().map(|other| (&other.id, other.caller)))
    }

    /// Each id has the fingerprint of its own secret, so that a process that knows only that secret recognises the
    /// request.
    /// `prints` gives them for a caller that is known, or is not.
    pub(crate) fn ask(self, prints: impl Fn(Caller) -> Fingerprints, policy: &Arc<Policy>) -> Asks {
        let Self { current, caller, others } = self;
        let own = prints(caller);
        if others.is_empty() {
            let mut current = Ask::new(current, own.current, policy.clone());
            if !own.older.is_empty() {
                current = current.with_older_fingerprints(own.older);
            }
            return Asks { current, caller, others: Vec::new() };
        }
        let listed = |prints: Fingerprints| -> Vec<Fingerprint> {
            std::iter::once(prints.current).chain(prints.older).collect()
        };
        let own = listed(own);
        // Only under former terms can the caller be known in another way.
        let differs = others.iter().find(|other| other.caller != caller);
        let differing = differs.map(|other| listed(prints(other.caller)));
        let ask = |OtherId { secret, caller: by, id }| {
            let all = differing.as_ref().filter(|_| by != caller).unwrap_or(&own);
            Ask::new(id, all[secret], policy.clone()).with_older_fingerprints(all.iter().copied())
        };
        let current = ask(OtherId { secret: 0, caller, id: current });
        Asks { current, caller, others: others.into_iter().map(ask).collect() }
    }
}

impl Asks {
    /// The same asks, which wait for no run.
    pub(crate) fn at_once(self) -> Self {
        let policy = self.current.policy().to_builder().with_on_duplicate(OnDuplicate::Conflict).build();
        let Ok(policy) = policy.map(Arc::new) else { return self };
        let Self { current, caller, others } = self;
        let at_once = |ask: Ask| ask.with_policy(policy.clone());
        Self { current: at_once(current), caller, others: others.into_iter().map(at_once).collect() }
    }

    /// The cached answer under any of the ids. A run that begins now does not look again.
    pub(crate) fn cached_answer(&mut self, onceward: &Onceward) -> Option<Answer> {
        let mut all = std::iter::once(&mut self.current).chain(&mut self.others);
        all.find_map(|ask| {
            let answer = onceward.cached_answer(ask);
            ask.set_not_cached();
            answer
        })
    }

    /// The answer of an earlier run under any of the ids, without running.
    pub(crate) async fn answer_without_running(&self, onceward: &Onceward) -> Result<Option<Answer>> {
        for ask in self.each() {
            if let Some(answer) = onceward.answer_without_running(ask).await? {
                return Ok(Some(match answer {
                    Answer::Refused(Refusal::OutcomeUnknown) => {
                        self.done_under_another(onceward).await.unwrap_or(answer)
                    }
                    answer => answer,
                }));
            }
        }
        Ok(None)
    }

    /// What is done under one id is done under all: a crash between two writes may have left the outcome unknown under
    /// one and recorded under another. Settles the unknown ones like it; `None` if it is done under none.
    async fn done_under_another(&self, onceward: &Onceward) -> Option<Answer> {
        let mut found = None;
        for ask in self.each().filter(|_| !self.others.is_empty()) {
            let answer = onceward.answer_without_running(ask).await.ok().flatten();
            if let Some(answer) = answer
                && let Ok(outcome) = ending_like(&Ok(answer.clone()))
            {
                found = Some((answer, outcome));
                break;
            }
        }
        let (answer, outcome) = found?;
        for ask in self.each() {
            let Ok(Some(receipt)) = onceward.receipt(ask.id()).await else { continue };
            if let Status::Unknown(_) = receipt.status {
                let done = Settlement::Done(outcome.clone());
                let settled = onceward.settle(ask.id(), receipt.status.fence(), &done, ask.policy()).await;
                tracing::info!(id = ?ask.id(), ?settled, "an unknown outcome is recorded under another id of its intent");
            }
        }
        Some(answer)
    }

    /// The same, for receipts that describe the intent in one of these ways too.
    pub(crate) fn also_described_by(self, prints: &[Fingerprint]) -> Self {
        let add = |ask: Ask| ask.with_older_fingerprints(prints.iter().copied());
        Self { current: add(self.current), others: self.others.into_iter().map(add).collect(), ..self }
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &Ask> {
        std::iter::once(&self.current).chain(&self.others)
    }

    /// Whether the current one is the only one.
    pub(crate) fn is_one(&self) -> bool {
        self.others.is_empty()
    }

    /// Runs `work` once for the intent, with the lease of the id whose receipt is the oldest.
    pub(crate) fn run<'a, F, W>(self, onceward: &'a Onceward, work: F) -> RunFuture<'a>
    where
        F: FnOnce(Lease) -> W + Send + 'a,
        W: Future<Output = Result<Outcome, Stopped>> + Send + 'a,
    {
        Box::pin(async move {
            let mut asks: Vec<Ask> = self.each().cloned().collect();
            asks.sort_by(|a, b| a.id().cmp(b.id()));
            let answer = run_within(onceward, asks.into_iter(), Vec::new(), work).await?;
            Ok(match answer {
                Answer::Refused(Refusal::OutcomeUnknown) => {
                    self.done_under_another(onceward).await.unwrap_or(answer)
                }
                answer => answer,
            })
        })
    }
}

pub(crate) type RunFuture<'a> = Pin<Box<dyn Future<Output = Result<Answer>> + Send + 'a>>;

/// Runs under the first of the remaining ids, and within it under the others.
fn run_within<'a, F, W>(
    onceward: &'a Onceward,
    mut asks: vec::IntoIter<Ask>,
    mut leases: Vec<Lease>,
    work: F,
) -> RunFuture<'a>
where
    F: FnOnce(Lease) -> W + Send + 'a,
    W: Future<Output = Result<Outcome, Stopped>> + Send + 'a,
{
    Box::pin(async move {
        let ask = asks.next().expect("there is at least one id");
        if asks.len() == 0 {
            let run = onceward.run(ask, async move |own| {
                leases.push(own);
                work(lease_of(onceward, leases).await?).await
            });
            return run.await;
        }
        let mut within = None;
        let within_here = &mut within;
        let answer = onceward
            .run(ask, async move |own| {
                leases.push(own);
                let answer = run_within(onceward, asks, leases, work).await;
                let ending = ending_like(&answer);
                *within_here = Some(answer);
                ending
            })
            .await;
        within.unwrap_or(answer)
    })
}

/// The lease of the id whose receipt is the oldest. A transaction that ends its run ends those of the others as well: a process that knows
/// only one of the secrets must find the outcome under that one.
async fn lease_of(onceward: &Onceward, mut leases: Vec<Lease>) -> Result<Lease, Stopped> {
    let at = {
        let oldest = oldest_receipt::find(onceward, leases.iter().map(Lease::id)).await;
        // Without it, this run might call others under another key than the run before.
        let oldest = oldest.map_err(Stopped::before_effect)?;
        leases.iter().position(|lease| Some(lease.id()) == oldest).unwrap_or(0)
    };
    Ok(leases.swap_remove(at).beside(&leases))
}

/// The end of a receipt whose intent got this answer under the next id.
fn ending_like(answer: &Result<Answer>) -> Result<Outcome, Stopped> {
    match answer {
        Ok(Answer::Completed(Completed { recorded: Recorded::Released, .. })) => {
            Err(Stopped::before_effect("it is free to run again"))
        }
        // Kept for as long as the one that it is a copy of.
        Ok(Answer::Completed(Completed { outcome, replayed: true, expires_in, .. })) => {
            let retention = expires_in.map_or(Retention::Forever, Retention::For);
            Ok(outcome.clone().with_retention(retention))
        }
        Ok(Answer::Completed(ran)) => Ok(ran.outcome.clone()),
        Ok(Answer::Refused(Refusal::ResponseNotStored { verdict, note })) => {
            Ok(Outcome::omitted(*verdict, note.clone()))
        }
        // Nothing was run here; the other receipt has the state.
        Ok(Answer::Refused(_)) => Err(Stopped::before_effect("it was refused under another secret")),
        Err(error) if error.applied() == Applied::No => Err(Stopped::before_effect(error.clone())),
        Err(error) => Err(Stopped::unknown(error.to_string())),
    }
}
