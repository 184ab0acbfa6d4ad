//! A history, sorted: what each call did, and what each id's record was from when to when.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward::receipt::{Claim, Status};
use onceward::{Fence, Id, Policy, Receipt, Settlement};

use crate::sim::executor::Process;
use crate::sim::history::{Call, End, Event, Told, Way, What};

/// A moment: the number of an event, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    /// The number of the event. It alone tells what came first.
    pub(super) event: usize,
    /// The store's time.
    pub(super) at_us: u64,
}

/// How late the answer to a write may be: longer than any simulated store takes.
const LATE_US: u64 = 1_000_000;

/// After everything.
const NEVER: Moment = Moment { event: usize::MAX, at_us: u64::MAX };

/// All about one call.
#[derive(Clone, Debug)]
pub(super) struct CallFacts {
    pub(super) call: Call,
    pub(super) process: Process,
    pub(super) id: Id,
    pub(super) fingerprint: u8,
    pub(super) policy: Arc<Policy>,
    pub(super) way: Way,
    pub(super) asked: Moment,
    /// What it was told, in order; by hand it is told twice.
    pub(super) told: Vec<(Moment, Told)>,
    pub(super) began: Option<(Moment, Fence)>,
    pub(super) effect: Option<Moment>,
    pub(super) ended: Option<(Moment, End)>,
    /// When nobody waited for it any more.
    pub(super) over: Moment,
}

/// A record, from one write to the next.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) receipt: Receipt,
    pub(super) from: Moment,
    /// When the next write (or a restart) took its place.
    pub(super) to: Moment,
    /// When it falls due.
    pub(super) due_us: u64,
    pub(super) by: Process,
}

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
    /// Processes with a completer, which may be about to claim anything that was left.
    completers: Vec<Process>,
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
            What::Wrote { id, after, .. } => self.write(now, *process, id, after.as_deref()),
            What::Reopened { kept } => {
                for spans in self.spans.values_mut() {
                    close(spans, now);
                }
                for (id, receipt) in kept {
                    self.write(now, *process, id, Some(receipt));
                }
            }
            What::Asked { call, id, fingerprint, policy, way } => {
                let facts = CallFacts {
                    call: *call,
                    process: *process,
                    id: id.clone(),
                    fingerprint: *fingerprint,
                    policy: Arc::clone(policy),
                    way: *way,
                    asked: now,
                    told: Vec::new(),
                    began: None,
                    effect: None,
                    ended: None,
                    over: NEVER,
                };
                self.calls.insert(*call, facts);
            }
            What::Answered { call, told } => self.of(*call, |facts| {
                facts.told.push((now, told.clone()));
                facts.over = now;
            }),
            What::WentAway { call } => self.of(*call, |facts| facts.over = now),
            What::Began { call, fence } => {
                self.of(*call, |facts| facts.began = Some((now, *fence)));
                if let Some(facts) = self.calls.get(call) {
                    self.runs.entry((facts.id.clone(), *fence)).or_insert(*call);
                }
            }
            What::Effect { call } => self.of(*call, |facts| facts.effect = Some(now)),
            What::Ended { call, how } => self.of(*call, |facts| facts.ended = Some((now, *how))),
            What::Settling { id, fence, settlement } => {
                self.settlings.push((now, id.clone(), *fence, settlement.clone()));
            }
            What::Paused(duration) => {
                let until = now.at_us + u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
                self.absences.push((process.number, now.at_us, until));
                self.faulty = true;
            }
            What::Jumped(_) => {
                self.absences.push((process.number, now.at_us, now.at_us));
                self.faulty = true;
            }
            What::LongTrip(takes) => {
                let until = now.at_us + u64::try_from(takes.as_micros()).unwrap_or(u64::MAX);
                self.long_trips.push((*process, now.at_us, until));
            }
            What::Fault(_) | What::Crashed => self.faulty = true,
            What::Completes => self.completers.push(*process),
            What::Acknowledged { .. }
            | What::Unreadable { .. }
            | What::Started
            | What::Calm
            | What::Patience
            | What::Wedged(_) => {}
        }
    }

    fn of(&mut self, call: Call, note: impl FnOnce(&mut CallFacts)) {
        if let Some(facts) = self.calls.get_mut(&call) {
            note(facts);
        }
    }

    fn write(&mut self, now: Moment, by: Process, id: &Id, after: Option<&Receipt>) {
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
            spans.push(Span { receipt: receipt.clone(), from: now, to: NEVER, due_us, by });
        }
    }

    /// The records of an id by which a call may be refused: those that were there at some moment of it, or of
    /// what its process was still busy with, whose word it may be told.
    pub(super) fn during(&self, call: &CallFacts, told: Moment) -> impl Iterator<Item = &Span> {
        let since =
            self.beside(call, told).map(|other| other.asked).min().unwrap_or(call.asked).min(call.asked);
        let spans = self.spans.get(&call.id).into_iter().flatten();
        spans.filter(move |span| span.from < told && span.to > since)
    }

    /// Other calls for the same in the same life of the same process, at some moment of this one. What one
    /// of them knows the other may be told, without a look at the store.
    pub(super) fn beside(&self, call: &CallFacts, told: Moment) -> impl Iterator<Item = &CallFacts> {
        let asked = call.asked;
        self.alike(call, told).filter(move |other| self.lingers_us(other) > asked.at_us)
    }

    /// Those and others whose claim may only arrive now, although nobody waits for it any more.
    pub(super) fn of_late(&self, call: &CallFacts, told: Moment) -> impl Iterator<Item = &CallFacts> {
        let asked = call.asked;
        self.alike(call, told).filter(move |other| {
            let late_us = other.over.at_us.saturating_add(LATE_US);
            late_us.max(self.lingers_us(other)) > asked.at_us
        })
    }

    /// From when on a replay may be true. A duplicate rides on the way to the store of whoever
    /// was first in its process, so its answer may be as old as that one's question.
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
    fn lingers_us(&self, call: &CallFacts) -> u64 {
        let Some((_, fence)) = call.began else { return call.over.at_us };
        let leases = self.spans.get(&call.id).into_iter().flatten().filter(|span| span.is_held());
        let due_us = leases.filter(|span| span.receipt.status.fence() == fence).map(|span| span.due_us);
        due_us.max().unwrap_or_default().max(call.over.at_us).saturating_add(LATE_US)
    }

    /// The run that was made under a claim.
    pub(super) fn run(&self, id: &Id, fence: Fence) -> Option<&CallFacts> {
        self.runs.get(&(id.clone(), fence)).and_then(|call| self.calls.get(call))
    }

    /// Whether anybody had asked for this under such a contract.
    pub(super) fn asked(&self, id: &Id, before: usize, contract: impl Fn(&Policy) -> bool) -> bool {
        self.calls.values().any(|call| call.id == *id && call.asked.event < before && contract(&call.policy))
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

    /// Whether a call's lease may have been lost although nothing was faulty: its store was too slow for it.
    ///
    /// A renewal leaves when half of the lease is over at the latest: it is due at a third, and looked for at
    /// every sixth. Then it may have to wait for one batch before it, and travel itself. In the half that is
    /// left both fit if neither takes more than a quarter of the lease; if one does, nobody can promise
    /// anything. Such trips are rare in these worlds and stay in them, because everything else must hold all
    /// the more when a store is slow.
    pub(super) fn was_too_slow(&self, call: &CallFacts, until: Moment) -> bool {
        let quarter_us = u64::try_from(call.policy.lease_duration().as_micros() / 4).unwrap_or(u64::MAX);
        let since_us = until.at_us.saturating_sub(8 * quarter_us);
        self.long_trips.iter().any(|(process, from_us, to_us)| {
            let long = to_us - from_us > quarter_us;
            long && *process == call.process && *from_us < until.at_us && *to_us > since_us
        })
    }

    /// Whether a process has a completer.
    pub(super) fn completes(&self, process: Process) -> bool {
        self.completers.contains(&process)
    }

    /// Whether a process was paused, or its clock jumped, in a stretch of time.
    pub(super) fn was_absent(&self, process: Process, from_us: u64, to_us: u64) -> bool {
        self.absences
            .iter()
            .any(|(number, start, end)| *number == process.number && *start <= to_us && *end >= from_us)
    }
}

impl Span {
    /// The claim that it speaks of.
    pub(super) fn claim(&self) -> Option<&Claim> {
        self.receipt.status.claim()
    }

    /// Whether it was there and not due at some moment from `asked` on.
    pub(super) fn kept_since(&self, asked: Moment) -> bool {
        self.due_us > asked.at_us
    }

    /// Whether it was there and due at some moment until `told`.
    pub(super) fn due_until(&self, told: Moment) -> bool {
        self.due_us <= told.at_us.min(self.to.at_us)
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.receipt.status, Status::Held(_))
    }
}

fn close(spans: &mut [Span], now: Moment) {
    if let Some(last) = spans.last_mut()
        && last.to == NEVER
    {
        last.to = now;
    }
}
