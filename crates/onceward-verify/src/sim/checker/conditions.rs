//! The conditions under which a write is legal: which claims may be taken over or given up, and which
//! decisions an operator or a caller must have made.

use std::sync::Arc;
use std::time::Duration;

use onceward::receipt::{Claim, Dead, Done, End as Ended, Held, Job, Status, Unknown, Waiting};
use onceward::{Closed, OnFailure, OnUnknown, Outcome, Policy, Prior, Settlement, State, Version};

use super::facts::{CallFacts, Moment};
use super::receipts::LIFE;
use super::transitions::{DONE, HOLD, INTENT, LATE, LEASE, Legal, OVERLAP, STEPS, Step, require};
use crate::sim::history::{Call, CallMethod, Closing, End, Stamp};

/// What waits after an unknown outcome is run again only under a policy that allows it.
pub(super) fn may_repeat(waiting: &Waiting, rule: OnUnknown) -> Legal {
    let allowed = waiting.prior != Prior::Unknown || rule == OnUnknown::Retry;
    require(allowed, HOLD, "an unknown outcome was repeated for an ask that holds them")
}

impl Step<'_> {
    /// A lease that ended may be taken over if both say so. One whose work never began is free to the process
    /// that made it and must release it.
    pub(super) fn may_be_taken_over(&self, held: &Held, over: bool, now: &Claim, rule: OnUnknown) -> Legal {
        if self.is_owed(&held.claim) {
            return Ok(());
        }
        require(over, OVERLAP, "a living lease was taken over")?;
        let same = now.fingerprint == held.claim.fingerprint;
        require(same, INTENT, "another intent took over the key")?;
        let both = (held.on_unknown, rule) == (OnUnknown::Retry, OnUnknown::Retry);
        require(both, HOLD, "a lease that ended under hold was taken over")
    }

    /// A claim may be given up if its work never began, said that nothing happened, failed in a way that may
    /// be tried again, or had an unknown outcome under a policy that retries those.
    pub(super) fn may_be_given_up(&self, claim: &Claim, rule: &'static str) -> Legal {
        let Some(run) = self.begun(claim) else { return Ok(()) };
        match run.ended.filter(|(at, _)| at.event < self.event).map(|(_, how)| how) {
            None => Err((LEASE, "given up while its work goes on".into())),
            Some(End::BeforeEffect | End::Suspended) => Ok(()),
            Some(End::Failed) => {
                let retry = run.policy.on_failure() == OnFailure::Retry;
                require(retry, DONE, "a failure to be kept was given up")
            }
            Some(End::Succeeded) => Err((DONE, "a success was given up".into())),
            Some(End::Unknown | End::Panicked | End::Cut) => {
                let retry = run.policy.on_unknown() == OnUnknown::Retry;
                require(retry, rule, "given up although its effect may have happened")
            }
        }
    }

    /// An unknown outcome that its owner ends without one: the work never began, or certainly had no effect.
    pub(super) fn owner_takes_it_back(&self, claim: &Claim) -> Legal {
        let outcome_unknown = self.begun(claim).and_then(|run| run.ended).is_some_and(|(at, how)| {
            at.event < self.event && matches!(how, End::Unknown | End::Panicked | End::Cut)
        });
        require(!outcome_unknown, HOLD, "an unknown outcome was ended without a settlement")?;
        self.may_be_given_up(claim, HOLD)
    }

    /// Whether a claim never began and was made by the process that writes now.
    pub(super) fn is_owed(&self, claim: &Claim) -> bool {
        let made_here = self.facts.claim(self.id, claim.fence).is_some_and(|span| span.by == self.process);
        made_here && self.begun(claim).is_none() && !self.facts.is_named(self.id, claim)
    }

    /// The run under a claim, if it has begun by now.
    pub(super) fn begun(&self, claim: &Claim) -> Option<&CallFacts> {
        let run = self.facts.run(self.id, claim.fence)?;
        run.began.is_some_and(|(at, _)| at.event < self.event).then_some(run)
    }

    pub(super) fn is_working(&self, claim: &Claim) -> bool {
        self.begun(claim).is_some_and(|run| run.ended.is_none_or(|(at, _)| at.event > self.event))
    }

    pub(super) fn is_settled(&self, claim: &Claim) -> bool {
        let not_done = |settlement: &Settlement| !matches!(settlement, Settlement::Done(_));
        self.facts.settled(self.id, claim.fence, self.event, not_done)
    }

    /// Unless somebody took it upon themselves, what was sent has had its time.
    pub(super) fn is_late_enough(&self, claim: &Claim, ago: Duration, late: Duration) -> Legal {
        let by_force = |settlement: &Settlement| *settlement == Settlement::ForceNotDone;
        let forced = self.facts.settled(self.id, claim.fence, self.event, by_force);
        require(forced || ago >= late, LATE, "settled while what was sent may still take effect")
    }

    /// What is closed was wanted so, in a state in which that can be.
    pub(super) fn closed(&self, closed: Closed, state: Option<State>) -> Legal {
        let (closing, fits) = match closed {
            Closed::Cancelled => (Closing::Cancel, state == Some(State::Waiting)),
            Closed::Discarded => (Closing::Discard, state == Some(State::Dead)),
            // What is undone in a transaction is undone by its commit.
            Closed::Undone if self.tx.is_some() && self.facts.closes_in(self.id, self.event) => return Ok(()),
            Closed::Undone => (Closing::Undo, true),
            _ => return require(false, LIFE, "was closed for a reason that is not known here"),
        };
        let wanted = fits && self.facts.closing(self.id, self.event, closing);
        require(wanted, LIFE, "was closed without anybody's word")
    }

    /// A step is removed only when its parent has gone. A sweep looks at the parent before it removes the step,
    /// and cannot see one that comes into being meanwhile.
    pub(super) fn step_goes_with_its_parent(&self) -> Legal {
        let Some(parent) = self.id.parent() else { return Ok(()) };
        let now = Moment { event: self.event, at_us: self.at_us };
        let gone = self.facts.was_gone_to_sweep(&parent, self.process, now, self.sent_us);
        require(gone, STEPS, "was removed while its intent is there")
    }

    /// Whether it is a step whose intent was past its retention after the step was written.
    pub(super) fn is_step_of_an_expired_intent(&self, step: Version) -> bool {
        let now = Moment { event: self.event, at_us: self.at_us };
        self.id.parent().is_some_and(|parent| self.facts.was_expired_after(&parent, step, now))
    }

    /// Whether it is a step that was written before the receipt of its intent came into being: an earlier intent with the
    /// same key had it, and was removed.
    pub(super) fn is_step_of_a_previous_life(&self, step: Version) -> bool {
        let now = Moment { event: self.event, at_us: self.at_us };
        self.id.parent().is_some_and(|parent| self.facts.was_absent_after(&parent, self.id, step, now))
    }

    /// An unknown outcome is given up by a sweep that was told to, when its time is over, and stays unknown.
    pub(super) fn is_given_up(&self, unknown: &Unknown, dead: &Dead, ago: Duration) -> bool {
        let told = self.facts.gives_up.iter().any(|(by, at, after)| {
            *by == self.process && at.event < self.event && ago >= (*after).max(unknown.late_effect_max)
        });
        let input = |job: &Option<Arc<Job>>| job.as_ref().map(|job| job.input.clone());
        told && dead.prior == Prior::Unknown && input(&dead.job) == input(&unknown.job)
    }

    /// Whether it is removed because an operator wanted its key, or that of its intent, to be free.
    pub(super) fn is_reopened(&self) -> bool {
        self.after.is_none()
            && (self.facts.is_to_be_erased(self.id, self.event, |reopen| reopen)
                || self
                    .id
                    .parent()
                    .is_some_and(|parent| self.facts.is_to_be_forgotten(&parent, self.event, None)))
    }

    /// Whether an operator wanted this unknown outcome to be forgotten, as it was read.
    pub(super) fn is_forgotten(&self) -> bool {
        let version = self.before.map(|before| before.version);
        self.after.is_none() && self.facts.is_to_be_forgotten(self.id, self.event, version)
    }

    /// Whether a run has the input that it had before, or one that it wanted to have instead.
    pub(super) fn is_same_input(&self, claim: &Claim, before: &Job, after: &Job) -> bool {
        before.input == after.input || self.facts.is_replacing(self.id, claim.fence, self.event, &after.input)
    }

    /// Whether a claim is the same as before, but for its time and an input that its run wanted to replace.
    pub(super) fn is_renewal(&self, before: &Held, after: &Held) -> bool {
        let replaced = || {
            let (Some(was), Some(is)) = (&before.job, &after.job) else { return false };
            let (mut former, mut job) = (after.clone(), Job::clone(is));
            job.input = was.input.clone();
            former.job = Some(Arc::new(job));
            self.is_same_input(&before.claim, was, is) && former == *before
        };
        after == before || replaced()
    }

    /// Whether it says the same as before, except for what an operator wanted to be erased.
    pub(super) fn is_erased(&self, before: &Status, after: &Status) -> bool {
        let emptied = match (before, after) {
            (Status::Done(before), Status::Done(after)) => match (&before.end, &after.end) {
                (Ended::Outcome(was), Ended::Outcome(is)) => {
                    let kept = (was.verdict(), before.tombstone) == (is.verdict(), after.tombstone);
                    kept && Stamp::of(is).is_none()
                }
                _ => false,
            },
            (Status::Dead(before), Status::Dead(after)) => before.prior == after.prior,
            _ => false,
        };
        let says_nothing = after.job().is_none() && after.note().is_empty();
        emptied
            && says_nothing
            && before.claim() == after.claim()
            && self.facts.is_to_be_erased(self.id, self.event, |_| true)
    }

    pub(super) fn somebody_asked(&self, contract: impl Fn(&Policy) -> bool) -> bool {
        self.facts.asked(self.id, self.event, contract)
    }

    /// The call that an outcome says it is of.
    pub(super) fn by_stamp(&self, done: &Done) -> Option<&CallFacts> {
        let Ended::Outcome(outcome) = &done.end else { return None };
        let stamp = Stamp::of(outcome)?;
        self.facts.calls.values().find(|call| call.call.0 == stamp.call)
    }

    /// What is on record was made by the run that holds the receipt, or said by an operator.
    pub(super) fn outcome_is_of_its_run(&self, claim: &Claim, outcome: &Outcome) -> Legal {
        let Some(stamp) = Stamp::of(outcome) else { return Ok(()) };
        let fits = stamp.is_for(self.id) && stamp.fingerprint == claim.fingerprint.digest()[0];
        require(fits, INTENT, "the outcome of another intent was recorded")?;
        if self.facts.calls.get(&Call(stamp.call)).is_some_and(|call| call.way == CallMethod::RecordIn) {
            let there = self.before.filter(|before| before.status.claim() != Some(claim));
            return require(there.is_none(), DONE, "recorded as done over a receipt that was there");
        }
        let by_run = self.facts.run(self.id, claim.fence).is_some_and(|run| run.call.0 == stamp.call);
        let done = |settlement: &Settlement| matches!(settlement, Settlement::Done(_));
        let by_operator = stamp.call == 0 && self.facts.settled(self.id, claim.fence, self.event, done);
        require(by_run || by_operator, INTENT, "the outcome of another run was recorded")
    }
}
