//! Indexes a history: what each call did, and each id's record over time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onceward::receipt::{Claim, Held, Status};
use onceward::{Fence, Id, OnUnknown, Policy, Receipt, Settlement, Version};

use super::entries::{Begin, NEVER};
pub(super) use super::entries::{CallFacts, Moment, Span, Staged};
use crate::sim::executor::{Process, micros};
use crate::sim::faults::Fault;
use crate::sim::history::{Call, CallMethod, Closing, Event, EventKind, Tx};
use crate::sim::scenario::Workers;

/// How late the answer to a write may be: longer than any simulated store takes.
const LATE_US: u64 = 1_000_000;
/// How long after a failed look a process knows the answer of its next one: the engine's longest pause, and a late
/// answer.
const LOOK_AGAIN_US: u64 = 2 * LATE_US;

/// A history, sorted.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) calls: BTreeMap<Call, CallFacts>,
    pub(super) spans: BTreeMap<Id, Vec<Span>>,
    /// Who runs under a fence.
    pub(super) runs: BTreeMap<(Id, Fence), Call>,
    pub(super) settlings: Vec<(Moment, Id, Fence, Settlement)>,
    /// From when to when a process was not itself: paused, or its clock jumped.
    pub(super) absences: Vec<(usize, u64, u64)>,
    /// Trips to the store that took long though nothing was faulty: whose, from when, to when.
    long_trips: Vec<(Process, u64, u64)>,
    /// Processes with workers, which may be about to claim anything that they have code for.
    workers: Vec<(Process, Workers)>,
    /// What transactions wrote, in order.
    pub(super) staged: Vec<Staged>,
    /// The calls whose business writes are made in transactions.
    pub(super) charged: BTreeSet<Call>,
    /// When each transaction ended.
    transactions_over: BTreeMap<Tx, Moment>,
    /// When each sweep began.
    sweeps: Vec<(Process, Moment)>,
    /// Which of them give up unknown outcomes, and after how long.
    pub(super) gives_up: Vec<(Process, Moment, Duration)>,
    /// What operators erased, whether the key was to be free afterwards, and how long copies may be given after that.
    erasings: Vec<(Moment, Id, bool, u64)>,
    /// Which unknown outcomes operators were about to forget, as of which version, and how long copies of their steps may be
    /// given after that; and in which process.
    forgettings: Vec<(Moment, Id, Version, u64, Process)>,
    /// What runs were about to make of their inputs, and what they were told that it is.
    replacings: Vec<(Moment, Id, Fence, Bytes)>,
    pub(super) replaced: Vec<(Moment, Id, Fence, Bytes)>,
    /// When each process died.
    pub(super) crashed: BTreeMap<Process, Moment>,
    /// When everything had had the time to come to an end.
    pub(super) patience: Option<Moment>,
    /// When a process could not read the store.
    failed_reads: Vec<(Process, u64)>,
    /// Whether anything was ever faulty.
    pub(super) faulty: bool,
}

impl Facts {
    /// Sorts a history.
    pub(super) fn gather(history: &[Event]) -> Self {
        let mut facts = Self::default();
        for (event, entry) in history.iter().enumerate() {
            facts.take(Moment { event, at_us: entry.at_us }, entry);
        }
        facts
    }

    fn take(&mut self, now: Moment, Event { process, what, .. }: &Event) {
        match what {
            EventKind::Wrote { id, after, sent_us, .. } => {
                self.write(now, *process, id, after.as_deref(), *sent_us);
            }
            EventKind::Staged { tx, id, after } => {
                let held = after.as_deref().and_then(held_of);
                let claim = after.as_deref().and_then(|receipt| receipt.status.claim());
                let fence = claim.map(|claim| claim.fence);
                self.staged.push(Staged { tx: *tx, at: now, id: id.clone(), held, fence });
            }
            EventKind::Charged { call, .. } => {
                self.charged.insert(*call);
            }
            EventKind::Committed { tx, .. } | EventKind::RolledBack { tx } => {
                self.transactions_over.insert(*tx, now);
            }
            EventKind::Reopened { kept } => {
                for spans in self.spans.values_mut() {
                    close(spans, now);
                }
                for (id, receipt) in kept {
                    self.write(now, *process, id, Some(receipt), now.at_us);
                }
            }
            EventKind::Asked { call, id, fingerprint, policy, way, input } => {
                let facts = CallFacts {
                    call: *call,
                    process: *process,
                    id: id.clone(),
                    fingerprint: *fingerprint,
                    policy: Arc::clone(policy),
                    way: *way,
                    input: *input,
                    asked: now,
                    told: Vec::new(),
                    began: None,
                    begins: Vec::new(),
                    effect: None,
                    ended: None,
                    over: NEVER,
                };
                self.calls.insert(*call, facts);
            }
            EventKind::Answered { call, told } => self.of(*call, |facts| {
                facts.told.push((now, told.clone()));
                facts.over = now;
            }),
            EventKind::WentAway { call } => self.of(*call, |facts| facts.over = now),
            EventKind::Began { call, fence, input } => {
                self.of(*call, |facts| {
                    facts.began.get_or_insert((now, *fence));
                    facts.begins.push(Begin { at: now, fence: *fence, input: input.clone() });
                });
                if let Some(facts) = self.calls.get(call) {
                    self.runs.entry((facts.id.clone(), *fence)).or_insert(*call);
                }
            }
            EventKind::Effect { call } => self.of(*call, |facts| facts.effect = Some(now)),
            EventKind::Ended { call, how } => self.of(*call, |facts| facts.ended = Some((now, *how))),
            EventKind::Settling { .. }
            | EventKind::Erasing { .. }
            | EventKind::Forgetting { .. }
            | EventKind::Replacing { .. }
            | EventKind::Replaced { .. } => self.take_intention(now, *process, what),
            EventKind::Paused(duration) => {
                self.absences.push((process.number, now.at_us, now.at_us + micros(*duration)));
                self.faulty = true;
            }
            EventKind::Jumped(_) => {
                self.absences.push((process.number, now.at_us, now.at_us));
                self.faulty = true;
            }
            EventKind::LongTrip(takes) => {
                self.long_trips.push((*process, now.at_us, now.at_us + micros(*takes)));
            }
            EventKind::Fault(fault) => {
                self.faulty = true;
                if matches!(fault, Fault::ReadFailure) {
                    self.failed_reads.push((*process, now.at_us));
                }
            }
            EventKind::Crashed => {
                self.crashed.insert(*process, now);
                self.faulty = true;
            }
            EventKind::Works(workers) => self.workers.push((*process, workers.clone())),
            EventKind::Patience => self.patience = Some(now),
            EventKind::Sweeps { unknown_after } => {
                self.sweeps.push((*process, now));
                self.gives_up.extend(unknown_after.map(|after| (*process, now, after)));
            }
            EventKind::Acknowledged { .. }
            | EventKind::Unreadable { .. }
            | EventKind::Started
            | EventKind::Calm
            | EventKind::Wedged(_) => {}
        }
    }

    /// What somebody was about to do, or has done, to a receipt that is there.
    fn take_intention(&mut self, now: Moment, by: Process, what: &EventKind) {
        match what {
            EventKind::Settling { id, fence, settlement } => {
                self.settlings.push((now, id.clone(), *fence, settlement.clone()));
            }
            EventKind::Erasing { id, reopen, bound } => {
                self.erasings.push((now, id.clone(), *reopen, micros(*bound)));
            }
            EventKind::Forgetting { id, version, bound } => {
                self.forgettings.push((now, id.clone(), Version(*version), micros(*bound), by));
            }
            EventKind::Replacing { id, fence, input } => {
                self.replacings.push((now, id.clone(), *fence, input.clone()));
            }
            EventKind::Replaced { id, fence, input } => {
                self.replaced.push((now, id.clone(), *fence, input.clone()));
            }
            _ => {}
        }
    }

    fn of(&mut self, call: Call, note: impl FnOnce(&mut CallFacts)) {
        if let Some(facts) = self.calls.get_mut(&call) {
            note(facts);
        }
    }

    fn write(&mut self, now: Moment, by: Process, id: &Id, after: Option<&Receipt>, sent_us: u64) {
        let spans = self.spans.entry(id.clone()).or_default();
        close(spans, now);
        if let Some(receipt) = after {
            let due_us = match receipt.due {
                onceward::Due::Never => u64::MAX,
                onceward::Due::In(left) => {
                    now.at_us.saturating_add(u64::try_from(left.as_micros()).unwrap_or(u64::MAX))
                }
                onceward::Due::Over(_) => now.at_us,
            };
            spans.push(Span { receipt: receipt.clone(), from: now, to: NEVER, due_us, by, sent_us });
        }
    }

    /// The records of an id by which a call may be refused: those that were there at some moment of it, or of
    /// what its process was still busy with, whose word it may be told.
    pub(super) fn during(&self, call: &CallFacts, told: Moment) -> impl Iterator<Item = &Span> {
        let since =
            self.beside(call, told).map(|other| other.asked).min().unwrap_or(call.asked).min(call.asked);
        let spans = self.spans.get(&call.id).into_iter().flatten();
        spans.filter(move |span| span.from < told && self.is_known_at(&call.id, span, since))
    }

    /// Whether a process may know of a record at a moment or later: while it is there, and for some time after an erasure
    /// if there are copies of it.
    pub(super) fn is_known_at(&self, id: &Id, span: &Span, moment: Moment) -> bool {
        let copied = || {
            let until_us = self.copies_of(id, span).map(|bound_us| span.to.at_us.saturating_add(bound_us));
            until_us.is_some_and(|until_us| until_us > moment.at_us)
        };
        span.to > moment || copied()
    }

    /// Whether an operator had wanted this, or an intent that it is a step of, to be erased in such a way.
    pub(super) fn is_to_be_erased(&self, id: &Id, before: usize, way: impl Fn(bool) -> bool) -> bool {
        let wanted = |of: &Id| {
            self.erasings
                .iter()
                .any(|(at, erased, reopen, _)| at.event < before && erased == of && way(*reopen))
        };
        std::iter::successors(Some(id.clone()), Id::parent).any(|id| wanted(&id))
    }

    /// Whether an operator had wanted to forget this version of an unknown outcome; of any version, if none is given.
    pub(super) fn is_to_be_forgotten(&self, id: &Id, before: usize, version: Option<Version>) -> bool {
        self.forgettings.iter().any(|(at, of, found, ..)| {
            at.event < before && of == id && version.is_none_or(|version| version == *found)
        })
    }

    /// Whether an operator in another process than the one of this run had wanted to forget that its outcome is unknown. That
    /// process cannot know that the run has an outcome which is still to be written; the run's own process refuses.
    pub(super) fn is_forgotten_elsewhere(
        &self,
        id: &Id,
        fence: Fence,
        process: Process,
        before: usize,
    ) -> bool {
        let unknown = |at: &Moment| {
            self.spans.get(id).into_iter().flatten().any(|span| {
                matches!(span.receipt.status, Status::Unknown(_))
                    && span.claim().is_some_and(|claim| claim.fence == fence)
                    && (span.from.event..span.to.event).contains(&at.event)
            })
        };
        self.forgettings
            .iter()
            .any(|(at, of, .., by)| at.event < before && of == id && *by != process && unknown(at))
    }

    /// Whether a run had wanted this to be the input from then on.
    pub(super) fn is_replacing(&self, id: &Id, fence: Fence, before: usize, input: &Bytes) -> bool {
        self.replacings
            .iter()
            .any(|(at, of, run, by)| at.event < before && of == id && *run == fence && by == input)
    }

    /// Whether a run wanted an input to be replaced after another one of its own.
    pub(super) fn is_replacing_later(&self, id: &Id, fence: Fence, earlier: &Bytes, input: &Bytes) -> bool {
        let mut of_run =
            self.replacings.iter().filter(|(_, of, run, _)| of == id && *run == fence).map(|(.., by)| by);
        of_run.by_ref().any(|by| by == earlier) && of_run.any(|by| by == input)
    }

    /// Whether somebody had wanted this to be undone in a transaction, before it begins.
    pub(super) fn closes_in(&self, id: &Id, before: usize) -> bool {
        let wanted =
            |call: &CallFacts| call.id == *id && call.asked.event < before && call.way == CallMethod::CloseIn;
        self.calls.values().any(wanted)
    }

    /// Other calls for the same in the same life of the same process, at some moment of this one. What one
    /// of them knows the other may be told, without a look at the store.
    pub(super) fn beside(&self, call: &CallFacts, told: Moment) -> impl Iterator<Item = &CallFacts> {
        let asked = call.asked;
        self.alike(call, told).filter(move |other| self.may_act_until_us(other) > asked.at_us)
    }

    /// Those and others whose claim may only arrive now, although nobody waits for it any more.
    pub(super) fn of_late(&self, call: &CallFacts, told: Moment) -> impl Iterator<Item = &CallFacts> {
        let asked = call.asked;
        self.alike(call, told).filter(move |other| {
            let late_us = other.over.at_us.saturating_add(LATE_US);
            late_us.max(self.may_act_until_us(other)) > asked.at_us
        })
    }

    /// From when on a replay may be true. A duplicate shares the trip to the store of the
    /// first one in its process, so its answer may be as old as that one's question.
    pub(super) fn since(&self, call: &CallFacts, told: Moment) -> Moment {
        let first = self.alike(call, told).filter(|other| other.over > call.asked).map(|other| other.asked);
        first.min().unwrap_or(call.asked).min(call.asked)
    }

    fn alike(&self, call: &CallFacts, told: Moment) -> impl Iterator<Item = &CallFacts> {
        let (id, number, process) = (call.id.clone(), call.call, call.process);
        self.calls.values().filter(move |other| {
            other.call != number && other.id == id && other.process == process && other.asked < told
        })
    }

    /// Until when a process may be busy with a call: also when its caller has its answer or went away, the
    /// ending is written, and the answer to that may be late.
    fn may_act_until_us(&self, call: &CallFacts) -> u64 {
        let Some((_, fence)) = call.began else { return call.over.at_us };
        let spans = self.spans.get(&call.id).into_iter().flatten();
        let of_run = spans.filter(|span| span.receipt.status.fence() == fence);
        let open_us = of_run.filter_map(|span| match &span.receipt.status {
            // Where nobody else may run it, its end is written for as long as the process lives.
            Status::Held(held) if held.on_unknown == OnUnknown::Hold => Some(span.to.at_us),
            Status::Unknown(_) => Some(span.to.at_us),
            Status::Held(_) => Some(span.due_us),
            _ => None,
        });
        let until_us = open_us.max().unwrap_or_default().max(call.over.at_us).saturating_add(LATE_US);
        if self.has_recorded(call, fence) {
            until_us
        } else {
            self.after_failed_reads(call.process, until_us)
        }
    }

    /// Whether a process has recorded the outcome of a run that it made. What its sweeps and operators wrote meanwhile
    /// is not that: the run's own ending learns of it only by a look.
    fn has_recorded(&self, call: &CallFacts, fence: Fence) -> bool {
        let Some((ended, _)) = call.ended else { return true };
        let mut spans = self.spans.get(&call.id).into_iter().flatten();
        spans.any(|span| {
            // What an operator discarded in the same process is not of the run, either.
            let done = span.receipt.status.outcome().is_some() && span.receipt.status.fence() == fence;
            done && span.by == call.process && span.from > ended
        })
    }

    /// A process whose ending is not written looks what became of the record, again and again while the look fails. It
    /// is told of a settlement by the first look that succeeds.
    fn after_failed_reads(&self, process: Process, until_us: u64) -> u64 {
        let of_process = self.failed_reads.iter().filter(|(of, _)| *of == process);
        of_process.fold(until_us, |until_us, (_, failed_us)| {
            if *failed_us <= until_us {
                until_us.max(failed_us.saturating_add(LOOK_AGAIN_US))
            } else {
                until_us
            }
        })
    }

    /// The run that was made under a claim.
    pub(super) fn run(&self, id: &Id, fence: Fence) -> Option<&CallFacts> {
        self.runs.get(&(id.clone(), fence)).and_then(|call| self.calls.get(call))
    }

    /// The record of an id at a moment.
    pub(super) fn at(&self, id: &Id, moment: Moment) -> Option<&Span> {
        let spans = self.spans.get(id)?;
        spans.iter().find(|span| span.from < moment && span.to > moment)
    }

    /// Whether an id had no record, or a tombstone, at some moment of the sweep that wrote this.
    pub(super) fn was_gone_to_sweep(&self, id: &Id, process: Process, now: Moment, sent_us: u64) -> bool {
        let began = |(by, at): &&(Process, Moment)| *by == process && at.at_us <= sent_us && *at < now;
        let Some((_, since)) = self.sweeps.iter().rev().find(began) else { return false };
        let mut there_until = *since;
        for span in
            self.spans.get(id).into_iter().flatten().filter(|span| span.to > *since && span.from < now)
        {
            if span.from > there_until || matches!(span.receipt.status, Status::Gone(_)) {
                return true;
            }
            there_until = span.to;
        }
        there_until < now
    }

    /// Whether an id had no record at some moment after this version of a step of it was written.
    pub(super) fn was_absent_after(&self, id: &Id, step: &Id, version: Version, now: Moment) -> bool {
        let mut steps = self.spans.get(step).into_iter().flatten();
        let Some(since) = steps.find(|span| span.receipt.version == version).map(|span| span.from) else {
            return false;
        };
        let mut there_until = since;
        let beside = |span: &&Span| span.to > since && span.from < now;
        for span in self.spans.get(id).into_iter().flatten().filter(beside) {
            if span.from > there_until {
                return true;
            }
            there_until = span.to;
        }
        there_until < now
    }

    /// Whether an id was done or gone, past its retention, at some moment before this one and after a step of it was
    /// written: the next run of it must not find that step.
    pub(super) fn was_expired_after(&self, id: &Id, step: Version, now: Moment) -> bool {
        let expired = |span: &Span| {
            let over = match span.receipt.status {
                Status::Gone(_) => true,
                Status::Done(_) => span.due_us <= now.at_us,
                _ => false,
            };
            over && span.from < now && span.receipt.version > step
        };
        self.spans.get(id).is_some_and(|spans| spans.iter().any(expired))
    }

    /// The first record of a claim: it tells who made it, and when.
    pub(super) fn claim(&self, id: &Id, fence: Fence) -> Option<&Span> {
        let spans = self.spans.get(id)?;
        spans.iter().find(|span| span.is_held() && span.receipt.status.fence() == fence)
    }

    /// Whether a claim was made under a name that its caller gave to the try, and may use again.
    pub(super) fn is_named(&self, id: &Id, claim: &Claim) -> bool {
        self.calls.values().any(|call| call.id == *id && call.way == CallMethod::Hand(Some(claim.attempt)))
    }

    /// Whether a call with this number asked for this with an input before.
    pub(super) fn brought_input(&self, call: u32, id: &Id, before: usize) -> bool {
        let call = self.calls.get(&Call(call));
        call.is_some_and(|call| call.input && call.id == *id && call.asked.event < before)
    }

    /// Whether a worker with code for this, or anybody who had asked for it, had such a contract.
    pub(super) fn asked(&self, id: &Id, before: usize, contract: impl Fn(&Policy) -> bool) -> bool {
        self.contracts(id, before).any(contract)
    }

    /// The contracts under which this may be run.
    pub(super) fn contracts(&self, id: &Id, before: usize) -> impl Iterator<Item = &Policy> {
        let workers = self.workers.iter().filter(|(_, workers)| workers.cover(id));
        let workers = workers.map(|(_, workers)| &*workers.policy);
        let calls = self.calls.values().filter(move |call| call.id == *id && call.asked.event < before);
        calls.map(|call| &*call.policy).chain(workers)
    }

    /// Whether somebody had wanted this to be closed, or a dead letter to be tried again.
    pub(super) fn closing(&self, id: &Id, before: usize, closing: Closing) -> bool {
        self.calls
            .values()
            .any(|call| call.id == *id && call.asked.event < before && call.way == CallMethod::Close(closing))
    }

    /// Whether a transaction of anybody had written this at some moment from `since` to `told`.
    pub(super) fn in_transaction(&self, id: &Id, since: Moment, told: Moment) -> bool {
        self.staged.iter().any(|staged| {
            let over = self.transactions_over.get(&staged.tx).copied().unwrap_or(NEVER);
            staged.id == *id && staged.at < told && over > since
        })
    }

    /// Whether an operator had said this of a run.
    pub(super) fn settled(
        &self,
        id: &Id,
        fence: Fence,
        before: usize,
        as_what: impl Fn(&Settlement) -> bool,
    ) -> bool {
        self.settlings
            .iter()
            .any(|(at, of, run, what)| at.event < before && of == id && *run == fence && as_what(what))
    }

    /// Whether an operator had wanted to erase this, or what it is a step of; and how long copies may be given.
    pub(super) fn erased(&self, id: &Id, before: usize) -> Option<u64> {
        let is_of = |of: &Id| std::iter::successors(Some(id.clone()), Id::parent).any(|id| id == *of);
        let erased = self.erasings.iter().filter(|(at, of, ..)| at.event < before && is_of(of));
        // The steps of what is forgotten go with it.
        let parent = id.parent();
        let forgotten = self
            .forgettings
            .iter()
            .filter(|(at, of, ..)| at.event < before && parent.as_ref() == Some(of))
            .map(|(_, _, _, bound_us, _)| *bound_us);
        erased.map(|(.., bound_us)| *bound_us).chain(forgotten).max()
    }

    /// When the first operator wanted to erase this, or what it is a step of.
    pub(super) fn erasing_since(&self, id: &Id, before: usize) -> Option<u64> {
        let is_of = |of: &Id| std::iter::successors(Some(id.clone()), Id::parent).any(|id| id == *of);
        let erased = self.erasings.iter().filter(|(at, of, ..)| at.event < before && is_of(of));
        erased.map(|(at, ..)| at.at_us).min()
    }

    /// How long copies of an outcome may be given after it was erased; `None` if it was not.
    pub(super) fn copies_of(&self, id: &Id, span: &Span) -> Option<u64> {
        let done = matches!(span.receipt.status, Status::Done(_));
        done.then(|| self.erased(id, span.to.event.saturating_add(1))).flatten()
    }

    /// Whether a call's lease may have been lost although nothing was faulty: its store was too slow for it.
    ///
    /// A renewal leaves when half of the lease is over at the latest: it is due at a third, and looked for at
    /// every sixth. Then it may have to wait for one batch before it, and travel itself. In the half that is
    /// left both fit if neither takes more than a quarter of the lease; if one does, nobody can promise
    /// anything. Such trips are rare in these simulations and stay in them, because everything else must hold all
    /// the more when a store is slow.
    pub(super) fn was_too_slow(&self, call: &CallFacts, until: Moment) -> bool {
        let quarter_us = u64::try_from(call.policy.lease().as_micros() / 4).unwrap_or(u64::MAX);
        let since_us = until.at_us.saturating_sub(8 * quarter_us);
        self.long_trips.iter().any(|(process, from_us, to_us)| {
            let long = to_us - from_us > quarter_us;
            long && *process == call.process && *from_us < until.at_us && *to_us > since_us
        })
    }

    /// Whether a worker in the process of this call may have sent a claim of the same and still wait for the answer:
    /// that is late. Until then it knows no better than that the claim may stand, also if what was waiting has
    /// been done by another process meanwhile.
    pub(super) fn has_late_claim(&self, call: &CallFacts, told: Moment) -> bool {
        let late = |span: &Span| {
            let sent_us = match span.is_waiting() {
                true => span.to.at_us,
                false if span.is_held() && span.by == call.process => span.sent_us,
                false => return false,
            };
            span.from < told && sent_us.saturating_add(LATE_US) > call.asked.at_us
        };
        self.faulty
            && self.works(call.process, &call.id)
            && self.spans.get(&call.id).into_iter().flatten().any(late)
    }

    /// Whether a process has workers with code for this.
    pub(super) fn works(&self, process: Process, id: &Id) -> bool {
        self.workers.iter().any(|(of, workers)| *of == process && workers.cover(id))
    }

    /// Whether any process that lived on had them.
    pub(super) fn worked_on(&self, id: &Id) -> Option<&Workers> {
        let alive = |process: &Process| !self.crashed.contains_key(process);
        let mut workers =
            self.workers.iter().filter(|(process, workers)| alive(process) && workers.cover(id));
        workers.next().map(|(_, workers)| workers)
    }

    /// Whether a process was paused, or its clock jumped, in a stretch of time.
    pub(super) fn was_absent(&self, process: Process, from_us: u64, to_us: u64) -> bool {
        self.absences
            .iter()
            .any(|(number, start, end)| *number == process.number && *start <= to_us && *end >= from_us)
    }
}

fn close(spans: &mut [Span], now: Moment) {
    if let Some(last) = spans.last_mut()
        && last.to == NEVER
    {
        last.to = now;
    }
}

/// The claim of a receipt that is held.
fn held_of(receipt: &Receipt) -> Option<Held> {
    match &receipt.status {
        Status::Held(held) => Some(held.clone()),
        _ => None,
    }
}
