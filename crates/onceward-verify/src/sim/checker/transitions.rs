//! Checks one write against the state machine of a receipt. Every transition is either listed here as legal, with its
//! condition, or it is a violation.

use onceward::receipt::{Closed, Dead, Done, End as Ended, Held, Status, Unknown, UnknownReason, Waiting};
use onceward::{Due, Id, OnExpired, OnUnknown, Prior, Receipt, Snapshot, State};

use super::conditions::may_repeat;
use super::facts::Facts;
use super::jobs::{Counted, KEPT, TRIES};
use super::receipts::{FENCE, LIFE};
use crate::sim::executor::Process;
use crate::sim::executor::micros;
use crate::sim::history::{CallMethod, Closing, End, Tx};

pub(super) const OVERLAP: &str = "no two leases of one intent overlap";
pub(super) const DONE: &str = "a done outcome never changes while it is kept";
pub(super) const HOLD: &str = "nothing is run after unknown-and-hold unless settled";
pub(super) const INTENT: &str = "a receipt speaks of one intent only";
pub(super) const LEASE: &str = "nobody ends a lease that somebody works under";
pub(super) const DEAD: &str = "a dead letter is not run by itself";
pub(super) const LATE: &str = "`it did not happen` is believed when it cannot happen any more";
pub(super) const STEPS: &str = "a step is kept as long as its intent";
pub(super) const EARLY: &str = "a worker begins nothing before its time";

pub(super) type Legal = Result<(), (&'static str, String)>;

pub(super) fn require(condition: bool, rule: &'static str, detail: &str) -> Legal {
    if condition { Ok(()) } else { Err((rule, detail.to_owned())) }
}

/// One write.
pub(super) struct Step<'a> {
    pub(super) facts: &'a Facts,
    pub(super) event: usize,
    pub(super) at_us: u64,
    /// When it left for the store.
    pub(super) sent_us: u64,
    pub(super) process: Process,
    pub(super) id: &'a Id,
    pub(super) before: Option<&'a Receipt>,
    pub(super) after: Option<&'a Receipt>,
    /// In which transaction.
    pub(super) tx: Option<Tx>,
}

impl Step<'_> {
    pub(super) fn check(&self) -> Legal {
        if let Some(Receipt {
            status: Status::Done(Done { claim, end: Ended::Outcome(outcome), .. }), ..
        }) = self.after
        {
            self.outcome_is_of_its_run(claim, outcome)?;
        }
        self.keeps_what_was_replaced()?;
        if self.is_note_erased() {
            return Ok(());
        }
        // The steps of a reopened intent go with it, whatever is known of them.
        if self.id.is_step() && self.is_reopened() {
            return Ok(());
        }
        match self.before.map(|before| (&before.status, before)) {
            None => self.come_into_being(),
            Some((Status::Waiting(waiting), before)) => self.leave_waiting(waiting, before),
            Some((Status::Held(held), before)) => self.leave_held(held, before),
            Some((Status::Done(done), before)) => self.leave_done(done, before),
            Some((Status::Unknown(unknown), before)) => self.leave_unknown(unknown, before),
            Some((Status::Dead(dead), _)) => self.leave_dead(dead),
            Some((Status::Gone(_), before)) => self.leave_gone(before),
        }
    }

    /// A new intent: claimed, enqueued, closed before it began, or claimed and done in one transaction.
    fn come_into_being(&self) -> Legal {
        let Some(after) = self.after else { return Ok(()) };
        match &after.status {
            Status::Held(held) => {
                fence_is_version(after)?;
                require(held.prior == Prior::Nothing, LIFE, "knows of a run before the first one")?;
                self.job_of_claim(None, held.job.as_ref(), &held.claim, Counted::Once)
            }
            Status::Waiting(waiting) => {
                require(waiting.job.is_some(), LIFE, "waits without anything to do")?;
                require(waiting.prior == Prior::Nothing, LIFE, "knows of a run before the first one")?;
                self.job_unstarted(None, waiting.job.as_ref(), &waiting.claim)
            }
            Status::Done(done) => match &done.end {
                Ended::Closed(closed) => self.closed(*closed, None),
                Ended::Outcome(_) => require(self.tx.is_some(), LIFE, "was done without a claim"),
            },
            _ => Err((LIFE, "came into being without a claim".into())),
        }
    }

    fn leave_waiting(&self, waiting: &Waiting, before: &Receipt) -> Legal {
        let Some(after) = self.after else {
            require(waiting.job.is_none(), KEPT, "what waits with its input was removed")?;
            require(before.due.is_over(), LIFE, "what is known of earlier runs was removed before its time")?;
            return self.step_goes_with_its_parent();
        };
        match &after.status {
            Status::Held(held) => {
                let same = held.claim.fingerprint == waiting.claim.fingerprint;
                require(same, INTENT, "another intent took the key of one that waits")?;
                fence_is_version(after)?;
                require(held.prior == waiting.prior, LIFE, "a claim forgot what is known of earlier runs")?;
                may_repeat(waiting, held.on_unknown)?;
                let by_worker =
                    self.facts.run(self.id, held.claim.fence).is_some_and(|run| run.way == CallMethod::Work);
                require(!by_worker || before.due.is_over(), EARLY, "a worker began it before it was due")?;
                self.job_of_claim(waiting.job.as_ref(), held.job.as_ref(), &held.claim, Counted::Once)
            }
            Status::Waiting(now) if waiting.prior == Prior::Unknown && now.prior == Prior::Settled => {
                require(now.claim == waiting.claim, LIFE, "settled under another claim")?;
                require(self.is_settled(&waiting.claim), HOLD, "settled without anybody's word")?;
                self.job_unstarted(waiting.job.as_ref(), now.job.as_ref(), &now.claim)
            }
            // Only its time may be another one.
            Status::Waiting(now) if now == waiting && waiting.job.is_some() => {
                let wanted = self.facts.closing(self.id, self.event, Closing::StartNow);
                require(wanted, EARLY, "begins earlier without anybody's word")
            }
            Status::Waiting(now) => {
                require(waiting.job.is_none(), super::jobs::INPUT, "what waits was replaced")?;
                let same = now.claim == waiting.claim && now.prior == waiting.prior;
                require(same, LIFE, "enqueueing changed what is known of earlier runs")?;
                self.job_unstarted(None, now.job.as_ref(), &now.claim)
            }
            Status::Done(done) => match &done.end {
                Ended::Closed(closed) => {
                    let undone = *closed == Closed::Undone && waiting.prior == Prior::Unknown;
                    require(!undone, HOLD, "undone by closing although a try of it may have taken effect")?;
                    self.closed(*closed, Some(State::Waiting))
                }
                // The late word of its last owner, or a claim and its outcome in one transaction.
                Ended::Outcome(_) => {
                    let same = done.claim.fingerprint == waiting.claim.fingerprint;
                    require(same, INTENT, "another intent took the key of one that waits")?;
                    if done.claim == waiting.claim {
                        return Ok(());
                    }
                    require(self.tx.is_some(), OVERLAP, "completed by somebody who did not claim it")?;
                    let rule = self.by_stamp(done).map_or(OnUnknown::Hold, |call| call.policy.on_unknown());
                    may_repeat(waiting, rule)
                }
            },
            // Asked for under a policy that holds unknown outcomes.
            Status::Unknown(unknown) => {
                require(unknown.claim == waiting.claim, LIFE, "marked unknown under another claim")?;
                require(waiting.prior == Prior::Unknown, LIFE, "marked unknown although nothing is")?;
                require(unknown.job == waiting.job, super::jobs::INPUT, "marked unknown without its input")?;
                let asked = self.somebody_asked(|policy| policy.on_unknown() == OnUnknown::Hold);
                require(asked, LIFE, "marked unknown although every policy says retry")
            }
            _ => Err((LIFE, "what waits became something else without a claim".into())),
        }
    }

    fn leave_held(&self, held: &Held, before: &Receipt) -> Legal {
        let over = before.due.is_over();
        let Some(after) = self.after else {
            require(held.job.is_none(), KEPT, "a claim was removed with its input")?;
            // A release. Work that may be repeated is also forgotten when its lease is long over.
            let given_up = self.may_be_given_up(&held.claim, if over { HOLD } else { LEASE });
            if over && held.on_unknown == OnUnknown::Retry && given_up.is_err() {
                return self.step_goes_with_its_parent();
            }
            return given_up;
        };
        match &after.status {
            // A renewal, also a late one: nobody has taken the lease meanwhile.
            Status::Held(now) if now.claim == held.claim => {
                require(self.is_renewal(held, now), LIFE, "something else than the time changed in a renewal")
            }
            Status::Held(now) => {
                self.may_be_taken_over(held, over, &now.claim, now.on_unknown)?;
                fence_is_version(after)?;
                let counted = match (self.is_owed(&held.claim), over) {
                    (true, true) => Counted::Either,
                    (true, false) => Counted::NotAgain,
                    (false, _) => Counted::Once,
                };
                let says_so = counted != Counted::Once || now.prior == Prior::Unknown;
                require(says_so, LIFE, "took over after an unknown outcome and does not record it")?;
                self.job_of_claim(held.job.as_ref(), now.job.as_ref(), &now.claim, counted)
            }
            Status::Done(Done { end: Ended::Closed(_), .. }) => {
                Err((LEASE, "closed while it was held".into()))
            }
            Status::Done(done) if done.claim == held.claim => Ok(()),
            Status::Done(done) => {
                require(self.tx.is_some(), OVERLAP, "completed by somebody who does not hold it")?;
                let rule = self.by_stamp(done).map_or(OnUnknown::Hold, |call| call.policy.on_unknown());
                self.may_be_taken_over(held, over, &done.claim, rule)
            }
            Status::Unknown(unknown) => {
                require(unknown.claim == held.claim, LIFE, "marked unknown under another claim")?;
                let agreed = held.on_unknown == OnUnknown::Hold
                    || self.somebody_asked(|policy| policy.on_unknown() == OnUnknown::Hold);
                require(agreed, LIFE, "marked unknown although every policy says retry")?;
                match unknown.reason {
                    UnknownReason::LeaseEnded => {
                        require(over, LEASE, "its lease was called over before its end")
                    }
                    _ => {
                        require(!self.is_working(&held.claim), LEASE, "marked unknown while its work goes on")
                    }
                }
            }
            Status::Waiting(now) => self.wait_again(held, over, before, now),
            Status::Dead(dead) => {
                require(dead.claim == held.claim, LIFE, "buried under another claim")?;
                let tries_min =
                    self.facts.contracts(self.id, self.event).map(onceward::Policy::tries_max).min();
                let is_enough =
                    tries_min.is_some_and(|min| dead.job.as_ref().is_some_and(|job| job.started >= min));
                require(is_enough, TRIES, "given up before its tries were used up")?;
                // Without its owner's word it keeps its unknown outcome.
                if over && held.on_unknown == OnUnknown::Retry && dead.prior == Prior::Unknown {
                    return Ok(());
                }
                self.may_be_given_up(&held.claim, HOLD)?;
                let ended = self.begun(&held.claim).and_then(|run| run.ended).map(|(_, how)| how);
                let outcome_unknown = matches!(ended, Some(End::Unknown | End::Panicked | End::Cut));
                require(
                    !outcome_unknown || dead.prior == Prior::Unknown,
                    LIFE,
                    "buried without its unknown outcome",
                )
            }
            Status::Gone(_) => Err((LIFE, "held became a tombstone".into())),
        }
    }

    /// A run that goes back to waiting: released, suspended, settled, or with an unknown outcome that is retried.
    fn wait_again(&self, held: &Held, over: bool, before: &Receipt, now: &Waiting) -> Legal {
        require(now.claim == held.claim, LIFE, "waits again under another claim")?;
        let kept = now.job.is_some() || now.prior != Prior::Nothing;
        require(kept, LIFE, "waits although there is nothing to keep")?;
        let given_up = self.may_be_given_up(&held.claim, if over { HOLD } else { LEASE });
        let settled = over && now.prior == Prior::Settled && self.is_settled(&held.claim);
        if settled && (given_up.is_err() || held.prior != Prior::Settled) {
            let Due::Over(ago) = before.due else { unreachable!("it is over") };
            self.is_late_enough(&held.claim, ago, held.late_effect_max)?;
            return self.job_unstarted(held.job.as_ref(), now.job.as_ref(), &now.claim);
        }
        given_up?;
        let how = self.begun(&held.claim).and_then(|run| run.ended.map(|(_, how)| how));
        let outcome_unknown = matches!(how, Some(End::Unknown | End::Panicked | End::Cut));
        let expected = if outcome_unknown { Prior::Unknown } else { held.prior };
        require(now.prior == expected, LIFE, "says something else of earlier runs than is known")?;
        let goes_back = held.prior == Prior::Unknown && held.on_unknown == OnUnknown::Hold;
        let suspended = matches!(how, None | Some(End::Suspended));
        require(!goes_back || suspended, HOLD, "a run after an unknown outcome freed the key")?;
        // Nor does a try count that was dropped with its owner.
        let counts = !suspended && how != Some(End::Cut);
        self.job_of_ending(&held.claim, held.job.as_ref(), now.job.as_ref(), counts)
    }

    fn leave_done(&self, done: &Done, before: &Receipt) -> Legal {
        let over = before.due.is_over();
        let expired = over
            && if self.id.is_step() {
                self.is_step_of_a_previous_life(before.version)
            } else {
                self.somebody_asked(|policy| policy.on_expired() == OnExpired::Run)
            };
        match self.after.map(|after| (&after.status, after)) {
            Some((Status::Held(now), after)) => {
                require(expired, DONE, "a kept outcome was run again")?;
                fence_is_version(after)?;
                require(now.prior == Prior::Nothing, LIFE, "knows of a run before the first one")?;
                self.job_of_claim(None, now.job.as_ref(), &now.claim, Counted::Once)
            }
            Some((Status::Waiting(now), _)) => {
                require(expired, DONE, "a kept outcome was enqueued again")?;
                self.job_unstarted(None, now.job.as_ref(), &now.claim)
            }
            None if self.is_reopened() => Ok(()),
            None => {
                require(over, DONE, "a kept outcome was removed")?;
                require(done.tombstone.is_none(), LIFE, "removed without leaving the tombstone it promised")?;
                if self.is_step_of_an_expired_intent(before.version) {
                    return Ok(());
                }
                self.step_goes_with_its_parent()
            }
            Some((Status::Gone(_), _)) => {
                require(over, DONE, "a kept outcome became a tombstone")?;
                require(done.tombstone.is_some(), LIFE, "left a tombstone that nobody asked for")
            }
            Some((Status::Done(now), after)) if self.is_erasure(done, now) => {
                // What was left of its time when the erasure read it is what it writes.
                let ran_out_meanwhile = match (before.due, self.facts.erasing_since(self.id, self.event)) {
                    (Due::Over(ago), Some(since_us)) => micros(ago) <= self.at_us.saturating_sub(since_us),
                    _ => false,
                };
                let right = !over || after.due.is_over() || ran_out_meanwhile;
                require(right, DONE, "an erasure brought back what was over")
            }
            Some((after, _)) if self.is_erased(&before.status, after) => Ok(()),
            Some((Status::Done(now), _)) => {
                let again = expired && self.tx.is_some() && now.claim != done.claim;
                require(again, DONE, "a done outcome was written over")
            }
            Some((Status::Unknown(_) | Status::Dead(_), _)) => {
                Err((DONE, "a done outcome was marked unknown or dead".into()))
            }
        }
    }

    /// Whether a write leaves a step unknown or dead, and removes what is noted of it, as somebody wanted.
    fn is_note_erased(&self) -> bool {
        let statuses = (self.before.map(|before| &before.status), self.after.map(|after| &after.status));
        let same = match statuses {
            (Some(Status::Unknown(was)), Some(Status::Unknown(is))) => {
                was.claim == is.claim && was.prior == is.prior && is.note.is_empty() && is.job.is_none()
            }
            (Some(Status::Dead(was)), Some(Status::Dead(is))) => {
                was.claim == is.claim && was.prior == is.prior && is.note.is_empty() && is.job.is_none()
            }
            _ => false,
        };
        same && self.id.is_step() && self.facts.erased(self.id, self.event).is_some()
    }

    /// Whether a write removes what a done receipt says and nothing else, as somebody wanted.
    fn is_erasure(&self, done: &Done, now: &Done) -> bool {
        let omitted = |done: &Done| match &done.end {
            Ended::Outcome(outcome) => {
                Some((outcome.verdict(), matches!(outcome.snapshot(), Snapshot::Omitted(_))))
            }
            Ended::Closed(_) => None,
        };
        let same_verdict =
            omitted(done).zip(omitted(now)).is_some_and(|((was, _), (is, omitted))| was == is && omitted);
        let same = now.claim == done.claim && now.tombstone == done.tombstone && now.job.is_none();
        same && same_verdict && self.facts.erased(self.id, self.event).is_some()
    }

    fn leave_unknown(&self, unknown: &Unknown, before: &Receipt) -> Legal {
        let claim = &unknown.claim;
        match self.after.map(|after| &after.status) {
            Some(Status::Done(Done { end: Ended::Closed(_), .. })) => {
                Err((HOLD, "an unknown outcome was closed".into()))
            }
            // The word of its owner, or of an operator.
            Some(Status::Done(done)) => {
                let owed = self.tx.is_some() && self.is_owed(claim);
                require(
                    owed || done.claim == *claim,
                    HOLD,
                    "an unknown outcome was ended under another claim",
                )
            }
            Some(Status::Unknown(now)) => {
                require(now.claim == *claim, LIFE, "an unknown outcome passed to another claim")
            }
            Some(Status::Held(held)) if held.claim == *claim => {
                Err((LIFE, "renewed although its outcome is unknown".into()))
            }
            Some(Status::Held(_)) => {
                require(self.is_owed(claim), HOLD, "work with an unknown outcome was run again")
            }
            Some(Status::Gone(_)) => Err((LIFE, "an unknown outcome became a tombstone".into())),
            Some(Status::Waiting(now)) => {
                require(now.claim == *claim, LIFE, "waits again under another claim")?;
                let taken_back = self.owner_takes_it_back(claim);
                let settled = now.prior == Prior::Settled && self.is_settled(claim);
                if settled && (taken_back.is_err() || unknown.prior != Prior::Settled) {
                    self.is_late_enough(claim, before.age.updated, unknown.late_effect_max)?;
                    return self.job_unstarted(unknown.job.as_ref(), now.job.as_ref(), claim);
                }
                taken_back
            }
            Some(Status::Dead(dead)) => {
                require(dead.claim == *claim, LIFE, "buried under another claim")?;
                if self.is_given_up(unknown, dead, before.age.updated) {
                    return Ok(());
                }
                self.owner_takes_it_back(claim)
            }
            // Its owner may take it back beside an operator who is refused.
            None if self.is_forgotten() => {
                let own = unknown.job.is_none() && self.owner_takes_it_back(claim).is_ok();
                if own {
                    return Ok(());
                }
                self.is_late_enough(claim, before.age.updated, unknown.late_effect_max)
            }
            None => {
                require(unknown.job.is_none(), KEPT, "an unknown outcome was removed with its input")?;
                self.owner_takes_it_back(claim)
            }
        }
    }

    fn leave_dead(&self, dead: &Dead) -> Legal {
        match self.after.map(|after| &after.status) {
            Some(Status::Waiting(now)) => {
                require(now.claim == dead.claim, LIFE, "waits again under another claim")?;
                let retriable = dead.prior != Prior::Unknown || dead.on_unknown == OnUnknown::Retry;
                let retried = retriable
                    && now.prior == dead.prior
                    && self.facts.closing(self.id, self.event, Closing::Retry);
                require(retried || self.is_settled(&dead.claim), DEAD, "tried again without anybody's word")?;
                self.job_unstarted(dead.job.as_ref(), now.job.as_ref(), &now.claim)
            }
            Some(Status::Done(done)) => match &done.end {
                Ended::Closed(closed) => {
                    let undone = *closed == Closed::Undone;
                    require(!undone, HOLD, "undone by closing although a try of it may have taken effect")?;
                    self.closed(*closed, Some(State::Dead))
                }
                Ended::Outcome(_) => require(done.claim == dead.claim, DEAD, "done by another run"),
            },
            Some(Status::Held(_)) => Err((DEAD, "was run".into())),
            Some(after) if self.is_erased(&Status::Dead(dead.clone()), after) => Ok(()),
            _ => Err((KEPT, "a dead letter went away".into())),
        }
    }

    fn leave_gone(&self, before: &Receipt) -> Legal {
        let over = before.due.is_over();
        let free = over || self.somebody_asked(|policy| policy.on_expired() == OnExpired::Run);
        match self.after.map(|after| (&after.status, after)) {
            Some((Status::Held(now), after)) => {
                require(free, LIFE, "a tombstone did not keep its key")?;
                fence_is_version(after)?;
                self.job_of_claim(None, now.job.as_ref(), &now.claim, Counted::Once)
            }
            Some((Status::Waiting(now), _)) => {
                require(free, LIFE, "a tombstone did not keep its key")?;
                self.job_unstarted(None, now.job.as_ref(), &now.claim)
            }
            Some((Status::Done(now), _)) => match &now.end {
                Ended::Closed(closed) => self.closed(*closed, None),
                Ended::Outcome(_) => {
                    require(free && self.tx.is_some(), LIFE, "a tombstone did not keep its key")
                }
            },
            None => require(over || self.is_reopened(), LIFE, "a tombstone was removed before its time"),
            Some(_) => Err((LIFE, "a tombstone became something else".into())),
        }
    }
}

fn fence_is_version(after: &Receipt) -> Legal {
    let fence = after.status.fence().0;
    require(fence == after.version.0, FENCE, "the fence of a claim is not its version")
}
