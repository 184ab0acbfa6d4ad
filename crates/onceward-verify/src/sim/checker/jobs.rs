//! Checks the job of a receipt: its input is what was enqueued and never changes, and each try is counted.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use onceward::receipt::{Claim, Job, Status};
use onceward::{Fence, Id};

use super::Violation;
use super::facts::{CallFacts, Facts, Moment, Span};
use super::transitions::{Legal, Step, require};
use crate::sim::history::{CallMethod, End, Stamp, name};

pub(super) const INPUT: &str = "the work sees the input that was asked for";
pub(super) const TRIES: &str = "an intent is tried as often as its tries allow";
pub(super) const KEPT: &str = "nothing with an input is removed before it is done";

/// How a claim counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    /// As one more try.
    Once,
    /// Not again: the claim in whose place it is never began.
    NotAgain,
    /// Either way is right.
    Either,
}

impl Step<'_> {
    /// A claim's job: the one that was kept, counted once more, or else what an asker brought along.
    pub(super) fn job_of_claim(
        &self,
        before: Option<&Arc<Job>>,
        after: Option<&Arc<Job>>,
        claim: &Claim,
        counted: Counted,
    ) -> Legal {
        let (Some(before), after) = (before, after) else {
            let Some(job) = after else { return Ok(()) };
            require(
                (job.started, job.finished) == (1, 0),
                TRIES,
                "its first try is not counted as the first",
            )?;
            return self.input_was_asked(job, claim);
        };
        let after = after.ok_or((KEPT, "a claim dropped the input".to_owned()))?;
        require(after.input == before.input, INPUT, "a claim changed the input")?;
        let other =
            Stamp::read(&after.input).is_some_and(|of| of.fingerprint != claim.fingerprint.digest()[0]);
        require(!other, INPUT, "a claim took the input of another intent")?;
        let started = u32::from(after.started) - u32::from(before.started.min(after.started));
        let counts = match counted {
            Counted::Once => started == 1,
            Counted::NotAgain => started == 0,
            Counted::Either => started <= 1,
        };
        require(counts && after.started >= before.started, TRIES, "a try was not counted")?;
        let tries_max = self.facts.contracts(self.id, self.event).map(onceward::Policy::tries_max).max();
        require(tries_max.is_some_and(|max| after.started <= max), TRIES, "is tried more often than allowed")
    }

    /// A job that was put there, or put back to its beginning.
    pub(super) fn job_unstarted(
        &self,
        before: Option<&Arc<Job>>,
        after: Option<&Arc<Job>>,
        claim: &Claim,
    ) -> Legal {
        match (before, after) {
            (None, None) => Ok(()),
            (None, Some(job)) => {
                require((job.started, job.finished) == (0, 0), TRIES, "was counted before it began")?;
                self.input_was_asked(job, claim)
            }
            (Some(before), Some(job)) => {
                require(self.is_same_input(claim, before, job), INPUT, "its input was changed")?;
                require((job.started, job.finished) == (0, 0), TRIES, "does not begin at its first try")
            }
            (Some(_), None) => Err((KEPT, "its input was dropped".into())),
        }
    }

    fn input_was_asked(&self, job: &Job, claim: &Claim) -> Legal {
        // A worker that finishes what was left without an input has none to give.
        if job.input.is_empty() {
            let resumes = |run: &CallFacts| matches!(run.way, CallMethod::Work | CallMethod::Resume);
            let run = self.facts.run(self.id, claim.fence).is_none_or(resumes);
            return require(run, INPUT, "was claimed with an input that nobody brought");
        }
        let stamp = Stamp::read(&job.input);
        let asked = stamp.is_some_and(|stamp| {
            stamp.name == name(self.id)
                && stamp.fingerprint == claim.fingerprint.digest()[0]
                && self.facts.brought_input(stamp.call, self.id, self.event)
        });
        require(asked, INPUT, "has an input that nobody brought along for it")
    }

    /// A job at the end of a try: as it was, with the try finished, or not counted.
    pub(super) fn job_of_ending(
        &self,
        claim: &Claim,
        before: Option<&Arc<Job>>,
        after: Option<&Arc<Job>>,
        counts: bool,
    ) -> Legal {
        let (before, after) = match (before, after) {
            (None, None) => return Ok(()),
            (None, Some(_)) => return Err((INPUT, "got an input at its end".into())),
            (Some(_), None) => return Err((KEPT, "its input was dropped before it was done".into())),
            (Some(before), Some(after)) => (before, after),
        };
        require(self.is_same_input(claim, before, after), INPUT, "its input was changed")?;
        let started = if counts { before.started } else { before.started.saturating_sub(1) };
        require(after.started == started, TRIES, "a try was counted that should not, or the other way")?;
        let finished = before.finished + u16::from(counts);
        require(after.finished <= finished, TRIES, "more tries have ended than began")
    }

    /// An input that was replaced, as its run was told, is there from then on.
    pub(super) fn keeps_what_was_replaced(&self) -> Legal {
        // What was erased meanwhile has none, until somebody asks again and brings another one along.
        let had = self.before.and_then(|before| Some((before.status.fence(), before.status.job()?)));
        let Some((fence, had)) = had else { return Ok(()) };
        let of_run = |(at, id, run, _): &&(Moment, Id, Fence, Bytes)| {
            at.event < self.event && id == self.id && *run == fence
        };
        let Some((.., input)) = self.facts.replaced.iter().rev().find(of_run) else { return Ok(()) };
        let job =
            self.after.filter(|after| after.status.fence() == fence).and_then(|after| after.status.job());
        // A later one may be on its way.
        let kept = |job: &Job| {
            job.input == *input
                || job.input == had.input
                || self.facts.is_replacing_later(self.id, fence, input, &job.input)
        };
        require(job.is_none_or(|job| kept(job)), INPUT, "an input that was replaced came back")
    }
}

/// Holds what each run was given against its claim, and counts the runs of each intent.
pub(super) fn check(facts: &Facts, violations: &mut Vec<Violation>) {
    for call in facts.calls.values() {
        // By hand nothing is handed over.
        if matches!(call.way, CallMethod::Hand(_) | CallMethod::ClaimIn) {
            continue;
        }
        for begin in &call.begins {
            let claimed = match call.way {
                CallMethod::Transact => facts.staged.iter().rev().find_map(|staged| {
                    staged
                        .held
                        .as_ref()
                        .filter(|held| staged.id == call.id && held.claim.fence == begin.fence)
                }),
                _ => facts.claim(&call.id, begin.fence).and_then(|span| match &span.receipt.status {
                    Status::Held(held) => Some(held),
                    _ => None,
                }),
            };
            // (One without a claim is another rule's.)
            let Some(held) = claimed else { continue };
            // An empty one is none to the work.
            let input = held.job.as_ref().map(|job| &job.input).filter(|input| !input.is_empty());
            if input != begin.input.as_ref() {
                let detail = format!("{}: call {} was given another one", name(&call.id), call.call.0);
                violations.push(Violation { rule: INPUT, event: begin.at.event, detail });
            }
        }
    }
    for id in facts.spans.keys() {
        count_runs(facts, id, violations);
    }
}

/// Whether the end of a try says that it does not count; that of a process that died says nothing.
fn is_uncounted(from_claim: &[Span]) -> bool {
    let started = |span: &Span| span.receipt.status.job().map(|job| job.started);
    let Some((claim, later)) = from_claim.split_first() else { return false };
    let fence = claim.receipt.status.fence();
    let waits = later
        .iter()
        .take_while(|span| span.receipt.status.fence() == fence)
        .find(|span| matches!(span.receipt.status, Status::Waiting(_)));
    waits.is_some_and(|waits| started(waits) < started(claim))
}

/// Every begin of an intent that carries its input counts, except those that were suspended or dropped, until somebody
/// has it tried from the beginning. What was in a transaction that was undone never was.
fn count_runs(facts: &Facts, id: &Id, violations: &mut Vec<Violation>) {
    let Some(max) = facts.contracts(id, usize::MAX).map(onceward::Policy::tries_max).max() else { return };
    let (mut runs, mut claims) = (0, BTreeSet::new());
    let spans = &facts.spans[id];
    for (number, claim) in spans.iter().enumerate().filter(|(_, span)| span.is_held()) {
        let fence = claim.receipt.status.fence();
        if !claims.insert(fence) {
            continue;
        }
        // What was there before the claim tells whether somebody had begun.
        let before = number.checked_sub(1).map(|before| &spans[before]).filter(|span| span.to == claim.from);
        let begun = before.filter(|span| !matches!(span.receipt.status, Status::Done(_)));
        if begun.and_then(|span| span.receipt.status.job()).is_none_or(|job| job.started == 0) {
            runs = 0;
        }
        let Some(call) = facts.run(id, fence).filter(|_| claim.receipt.status.job().is_some()) else {
            continue;
        };
        runs += u16::from(match call.ended {
            Some((_, End::Suspended)) => false,
            Some((_, End::Cut)) => !is_uncounted(&spans[number..]),
            _ => true,
        });
        if let Some((at, _)) = call.began.filter(|_| runs > max) {
            let detail = format!("{}: call {} is run {runs} of {max}", name(id), call.call.0);
            violations.push(Violation { rule: TRIES, event: at.event, detail });
        }
    }
}
