//! Checks each answer against what the store held at some moment between the call and the answer.

use onceward::receipt::{Done, End as Ended, Status};
use onceward::{
    Answer, Applied, Completed, Enqueued, Error, ErrorKind, OnExpired, OnFailure, OnUnknown, Prior, Recorded,
    Refusal, Snapshot, Verdict,
};

use super::Violation;
use super::facts::{CallFacts, Facts, Moment, Span};
use super::transitions::{Legal, require};
use crate::sim::history::{Call, CallMethod, CallResult, Closing, End, Stamp, name};

pub(super) const OWN: &str = "nobody is answered with another intent's outcome";
pub(super) const SAME: &str = "every caller gets the outcome that is on record";
pub(super) const EXPIRED: &str = "an outcome is not given out past its retention";
pub(super) const ERASED: &str = "an erased outcome is not given out past the published bound";
pub(super) const REFUSAL: &str = "a refusal says what is so";
pub(super) const ERROR: &str = "an error has a reason";
pub(super) const ENQUEUED: &str = "what was called enqueued is there";

pub(super) fn check(facts: &Facts, violations: &mut Vec<Violation>) {
    for call in facts.calls.values() {
        for (at, told) in &call.told {
            let asker = Asker { facts, call, at: *at };
            if let Err((rule, detail)) = asker.check(told) {
                let detail = format!("{}: call {} {detail}", name(&call.id), call.call.0);
                violations.push(Violation { rule, event: at.event, detail });
            }
        }
    }
}

struct Asker<'a> {
    facts: &'a Facts,
    call: &'a CallFacts,
    at: Moment,
}

impl Asker<'_> {
    fn check(&self, told: &CallResult) -> Legal {
        match told {
            CallResult::Answer(answer) => match &**answer {
                Answer::Completed(ran) => self.ran(ran),
                Answer::Refused(refusal) => self.refused(refusal),
            },
            CallResult::Recorded => self.recorded_by_hand(),
            CallResult::TooLate => {
                let alive =
                    self.spans().any(|span| self.is_ours(span) && span.is_held() && self.is_now(span));
                require(!alive, REFUSAL, "was told that its living lease is somebody else's")
            }
            CallResult::Error(error) => self.error(error),
            CallResult::Panic => {
                require(self.ended() == Some(End::Panicked), ERROR, "got a panic that its work did not make")
            }
            CallResult::Ticket(_) => Ok(()),
            CallResult::Enqueued(enqueued) => self.enqueued(enqueued),
            CallResult::Closed(closed) => {
                require(!closed || self.has_closed(), SAME, "closed something that is not")
            }
            CallResult::RecordedIn(true) => {
                let recorded = self.spans().any(|span| span.from < self.at && self.is_recorded_in(span));
                require(recorded, SAME, "was told that it is recorded as done, and it is not")
            }
            CallResult::RecordedIn(false) => {
                let there = self.facts.during(self.call, self.at).next().is_some()
                    || self.facts.in_transaction(&self.call.id, self.call.asked, self.at);
                require(there, REFUSAL, "was told that it has a receipt, and it had none")
            }
        }
    }

    fn ran(&self, ran: &Completed) -> Legal {
        let Some(stamp) = Stamp::of(&ran.outcome) else {
            return Err((OWN, "got an outcome that nobody made".into()));
        };
        let own = stamp.is_for(&self.call.id) && stamp.fingerprint == self.call.fingerprint;
        require(own, OWN, &format!("got the outcome of {} {}", stamp.name, stamp.fingerprint))?;
        if ran.replayed { self.replayed(ran) } else { self.fresh(ran, &stamp) }
    }

    /// A recorded outcome: it was on record, and kept, at some moment of the call.
    fn replayed(&self, ran: &Completed) -> Legal {
        let on_record = self.records(ran).filter(|span| span.from < self.at).collect::<Vec<_>>();
        require(!on_record.is_empty(), SAME, "got an outcome that is not on record")?;
        let since = self.facts.since(self.call, self.at);
        // A step that is there counts, however old it is.
        let is_step = self.call.id.is_step();
        let is_kept = |span: &&&Span| is_step || span.kept_since(since);
        let kept = on_record.iter().filter(is_kept).any(|span| span.to > since);
        if !kept
            && let Some(bound_us) = on_record.iter().filter(is_kept).find_map(|span| {
                let bound_us = self.facts.copies_of(&self.call.id, span)?;
                Some(span.to.at_us.saturating_add(bound_us))
            })
        {
            return require(
                bound_us > since.at_us,
                ERASED,
                "got an outcome that was erased long before it asked",
            );
        }
        require(kept, EXPIRED, "got an outcome that was no longer kept when it asked")
    }

    /// Whether the contract is to run again what ended so.
    fn is_to_be_retried(&self, verdict: Verdict) -> bool {
        verdict == Verdict::Failed && self.call.policy.on_failure() == OnFailure::Retry
    }

    /// The outcome of the caller's own work.
    fn fresh(&self, ran: &Completed, stamp: &Stamp) -> Legal {
        let own =
            stamp.call == self.call.call.0 && self.call.begins.iter().any(|begin| begin.fence == ran.fence);
        require(own, SAME, "got a fresh outcome that is not its own")?;
        match ran.recorded {
            Recorded::Yes => {
                let on_record = self.records(ran).any(|span| span.from < self.at);
                require(on_record, SAME, "was told that its outcome is recorded, and it is not")
            }
            Recorded::NotYet => {
                require(self.facts.faulty, SAME, "was told `not yet` although nothing was faulty")
            }
            Recorded::Released => {
                let retry = self.is_to_be_retried(ran.outcome.verdict());
                require(retry, SAME, "was told `released` for an outcome to be kept")
            }
        }
    }

    /// By hand: what was completed is on record.
    fn recorded_by_hand(&self) -> Legal {
        let kept = match self.ended() {
            Some(End::Succeeded) => true,
            Some(End::Failed) => self.call.policy.on_failure() == OnFailure::Replay,
            _ => false,
        };
        let stamped = |span: &Span| self.is_stamped(span);
        let on_record = self.spans().any(|span| self.is_ours(span) && stamped(span) && span.from < self.at);
        require(!kept || on_record, SAME, "was told that its completion is recorded, and it is not")
    }

    fn refused(&self, refusal: &Refusal) -> Legal {
        let policy = &self.call.policy;
        let mut there = self.facts.during(self.call, self.at);
        let since = self.facts.since(self.call, self.at);
        let works = self.facts.works(self.call.process, &self.call.id);
        let kept = |span: &Span| span.kept_since(since);
        let due = |span: &Span| span.due_until(self.at);
        match refusal {
            Refusal::KeyReused => {
                let other = |span: &Span| {
                    let binds = !matches!(span.receipt.status, Status::Done(_))
                        || kept(span)
                        || self.call.id.is_step();
                    binds
                        && span
                            .claim()
                            .is_some_and(|claim| claim.fingerprint.digest()[0] != self.call.fingerprint)
                };
                // A run in the same process speaks for its claim until it has noticed that it lost it.
                let beside = |other: &CallFacts| other.fingerprint != self.call.fingerprint;
                let so = there.any(other) || self.facts.beside(self.call, self.at).any(beside);
                require(so, REFUSAL, "was told `key reused`, nobody else used it")
            }
            Refusal::InProgress { .. } => {
                // Also while another call of the same process is only about to claim, or its worker, or a
                // transaction that nobody can look into.
                let so = there.any(|span| span.is_held() && (kept(span) || works))
                    || works && self.facts.during(self.call, self.at).any(Span::is_waiting)
                    || self.facts.beside(self.call, self.at).next().is_some()
                    || self.facts.has_late_claim(self.call, self.at)
                    || self.facts.in_transaction(&self.call.id, self.call.asked, self.at);
                require(so, REFUSAL, "was told `in progress`, nobody had a lease")?;
                require(!self.is_alone(), REFUSAL, "was told `in progress` because of its own claim")
            }
            Refusal::OutcomeUnknown => {
                let asker_holds = policy.on_unknown() == OnUnknown::Hold;
                let so = there.any(|span| match &span.receipt.status {
                    Status::Unknown(_) => true,
                    Status::Held(held) => due(span) && (asker_holds || held.on_unknown == OnUnknown::Hold),
                    Status::Waiting(waiting) => asker_holds && waiting.prior == Prior::Unknown,
                    _ => false,
                });
                require(so, REFUSAL, "was told `outcome unknown`, no outcome was unknown")
            }
            Refusal::KeyExpired => {
                let refuses = policy.on_expired() != OnExpired::Run;
                let so = there.any(|span| match &span.receipt.status {
                    Status::Done(_) => due(span),
                    Status::Gone(_) => true,
                    _ => false,
                });
                require(refuses && so, REFUSAL, "was told `key expired`, nothing had expired")
            }
            Refusal::Dead { .. } => {
                let so = there.any(|span| match &span.receipt.status {
                    Status::Dead(_) => true,
                    Status::Held(held) => {
                        let used_up = held.job.as_ref().is_some_and(|job| job.started >= policy.tries_max());
                        used_up && due(span) && held.on_unknown == OnUnknown::Retry
                    }
                    _ => false,
                });
                require(so, REFUSAL, "was told `dead`, it was not given up")
            }
            Refusal::Closed(closed) => {
                let so = there.any(|span| match &span.receipt.status {
                    Status::Done(Done { end: Ended::Closed(there), .. }) => there == closed,
                    _ => false,
                });
                require(so, REFUSAL, "was told `closed`, it was not")
            }
            Refusal::ResponseNotStored { .. } => {
                let so = there.any(|span| {
                    let outcome = span.receipt.status.outcome();
                    outcome.is_some_and(|outcome| matches!(outcome.snapshot(), Snapshot::Omitted(_)))
                });
                require(so, REFUSAL, "was told `response not stored`, there is none such")
            }
            _ => Err((REFUSAL, format!("got a refusal that the checker does not know: {refusal:?}"))),
        }
    }

    fn error(&self, error: &Error) -> Legal {
        let unchanged = error.applied() == Applied::No;
        require(
            !unchanged || !self.has_claimed(),
            ERROR,
            "was told that nothing was changed, and its claim is there",
        )?;
        let written = unchanged && self.is_written();
        require(!written, ERROR, "was told that nothing was changed, and what it wrote is there")?;
        let legal = match error.kind() {
            ErrorKind::Stopped => {
                matches!(self.ended(), Some(End::BeforeEffect | End::Unknown | End::Suspended))
            }
            // Running, or its outcome is unknown.
            ErrorKind::Conflict => matches!(self.call.way, CallMethod::Close(_) | CallMethod::CloseIn),
            // Undone in favour of others too often.
            ErrorKind::Overloaded => {
                self.call.way.is_in_transaction()
                    || matches!(self.call.way, CallMethod::RecordIn | CallMethod::CloseIn)
            }
            ErrorKind::LeaseLost => {
                let lost = self.call.ended.map_or(self.at, |(ended, _)| ended);
                self.facts.faulty
                    || matches!(self.call.way, CallMethod::Hand(_))
                    || self.facts.was_too_slow(self.call, lost)
            }
            ErrorKind::Unavailable => self.facts.faulty,
            _ => false,
        };
        require(legal, ERROR, &format!("got {:?}: {error}", error.kind()))
    }

    /// Whether a living claim that nobody works under can only be this caller's: made by its process while
    /// it asked, when nobody else there had asked for the same of late. A process whose clock jumped may
    /// rightly have thought that the lease was over.
    fn has_claimed(&self) -> bool {
        let alone = self.facts.of_late(self.call, self.at).next().is_none()
            && !self.facts.works(self.call.process, &self.call.id);
        let absent = self.facts.was_absent(self.call.process, self.call.asked.at_us, self.at.at_us);
        alone
            && !absent
            && self.call.began.is_none()
            && self.spans().any(|span| {
                let made_here = span.by == self.call.process && span.from > self.call.asked;
                let unused = self.facts.run(&self.call.id, span.receipt.status.fence()).is_none();
                span.is_held() && made_here && unused && self.is_now(span)
            })
    }

    /// The records that hold this outcome.
    fn records<'a>(&'a self, ran: &'a Completed) -> impl Iterator<Item = &'a Span> {
        self.spans().filter(move |span| match &span.receipt.status {
            Status::Done(done) => {
                done.claim.fence == ran.fence && span.receipt.status.outcome() == Some(&ran.outcome)
            }
            _ => false,
        })
    }

    /// What was enqueued is there, or was there already, or the key is taken.
    fn enqueued(&self, enqueued: &Enqueued) -> Legal {
        let mut there = self.facts.during(self.call, self.at);
        match enqueued {
            Enqueued::Accepted => {
                let so = there.any(|span| span.is_waiting() && self.is_input_of(span));
                require(so, ENQUEUED, "was told that it is enqueued, and it never was")
            }
            Enqueued::AlreadyThere(state) => {
                let so = there.any(|span| span.receipt.status.state() == *state);
                require(so, ENQUEUED, "was told that it is there already, in a state that it was not in")
            }
            Enqueued::Refused(refusal) => self.refused(refusal),
            _ => require(false, ENQUEUED, "was told something that this checker does not know"),
        }
    }

    /// Whether what this call wanted to have written by one swap or one commit is in the store, now or later.
    fn is_written(&self) -> bool {
        match self.call.way {
            CallMethod::Enqueue => self.spans().any(|span| self.is_input_of(span)),
            CallMethod::Transact | CallMethod::ClaimIn => self.spans().any(|span| self.is_stamped(span)),
            CallMethod::RecordIn => self.spans().any(|span| self.is_recorded_in(span)),
            _ => false,
        }
    }

    /// Whether a record carries the input that this call brought along.
    fn is_input_of(&self, span: &Span) -> bool {
        let stamp = span.receipt.status.job().and_then(|job| Stamp::read(&job.input));
        stamp.is_some_and(|stamp| stamp.call == self.call.call.0)
    }

    /// Whether a record is of an outcome that this call made.
    fn is_stamped(&self, span: &Span) -> bool {
        span.receipt.status.outcome().and_then(Stamp::of).is_some_and(|stamp| stamp.call == self.call.call.0)
    }

    /// Whether a record is of the outcome that this call, alone or beside others of the same caller, recorded in a
    /// transaction.
    fn is_recorded_in(&self, span: &Span) -> bool {
        let stamp = span.receipt.status.outcome().and_then(Stamp::of);
        let by = stamp.and_then(|stamp| self.facts.calls.get(&Call(stamp.call)));
        by.is_some_and(|by| by.way == CallMethod::RecordIn && by.asked.at_us == self.call.asked.at_us)
    }

    /// Whether what this call wanted to be closed, or tried again, became so while it asked.
    fn has_closed(&self) -> bool {
        self.spans().filter(|span| span.from > self.call.asked && span.from < self.at).any(|span| {
            match (&span.receipt.status, self.call.way) {
                (Status::Waiting(_), CallMethod::Close(Closing::Retry | Closing::StartNow)) => true,
                (Status::Done(done), _) => matches!(done.end, Ended::Closed(_)),
                _ => false,
            }
        })
    }

    /// Whether all that was there during the call was the claim that this very caller made, under the name
    /// that it gave to its try.
    fn is_alone(&self) -> bool {
        let CallMethod::Hand(Some(attempt)) = self.call.way else { return false };
        let mut there =
            self.spans().filter(|span| span.from < self.at && span.to > self.call.asked).peekable();
        self.facts.beside(self.call, self.at).next().is_none()
            && there.peek().is_some()
            && there.all(|span| span.is_held() && span.claim().is_some_and(|claim| claim.attempt == attempt))
    }

    fn spans(&self) -> impl Iterator<Item = &Span> {
        self.facts.spans.get(&self.call.id).into_iter().flatten()
    }

    fn is_ours(&self, span: &Span) -> bool {
        self.call.began.is_some_and(|(_, fence)| span.receipt.status.fence() == fence)
    }

    fn is_now(&self, span: &Span) -> bool {
        span.from < self.at && span.to > self.at && span.due_us > self.at.at_us
    }

    fn ended(&self) -> Option<End> {
        self.call.ended.map(|(_, how)| how)
    }
}
