//! Each record, followed through the writes that the store saw. Every pair of before and after is either
//! named here as legal, with its condition, or it is a violation.

use std::collections::BTreeMap;

use onceward::receipt::{Claim, Doubt, Status};
use onceward::{Id, OnExpired, OnFailure, OnUnknown, Receipt, Settlement, Verdict};

use super::Violation;
use super::facts::Facts;
use crate::sim::history::{End, Event, Stamp, What, name};

pub(super) const OVERLAP: &str = "no two leases of one intent overlap";
pub(super) const FENCE: &str = "the fence only grows";
pub(super) const DONE: &str = "a done outcome never changes while it is kept";
pub(super) const HOLD: &str = "nothing is run after unknown-and-hold unless settled";
pub(super) const INTENT: &str = "a receipt speaks of one intent only";
pub(super) const LEASE: &str = "nobody ends a lease that somebody works under";
pub(super) const RESTART: &str = "nothing acknowledged is lost by a restart";
pub(super) const LIFE: &str = "a receipt lives the life of a receipt";

pub(super) fn check(history: &[Event], facts: &Facts, violations: &mut Vec<Violation>) {
    let mut versions: BTreeMap<&Id, u64> = BTreeMap::new();
    let mut disk = Disk::default();
    for (event, Event { what, .. }) in history.iter().enumerate() {
        match what {
            What::Wrote { id, version, before, after } => {
                let highest = versions.entry(id).or_default();
                if *version <= *highest {
                    let detail = format!("{}: version {version} after {highest}", name(id));
                    violations.push(Violation { rule: FENCE, event, detail });
                }
                *highest = *version;
                disk.wrote(id, *version, after.as_deref());
                let step = Step { facts, event, id, before: before.as_deref(), after: after.as_deref() };
                if let Err((rule, detail)) = step.check() {
                    violations.push(Violation { rule, event, detail: format!("{}: {detail}", name(id)) });
                }
            }
            What::Unreadable { id } => {
                let detail = format!("{}: bytes that are no receipt", name(id));
                violations.push(Violation { rule: LIFE, event, detail });
            }
            What::Acknowledged { id, version } => disk.acknowledged(id, *version),
            What::Reopened { kept } => {
                for detail in disk.reopened(kept) {
                    violations.push(Violation { rule: RESTART, event, detail });
                }
            }
            _ => {}
        }
    }
}

/// One write.
struct Step<'a> {
    facts: &'a Facts,
    event: usize,
    id: &'a Id,
    before: Option<&'a Receipt>,
    after: Option<&'a Receipt>,
}

type Legal = Result<(), (&'static str, String)>;

fn require(condition: bool, rule: &'static str, detail: &str) -> Legal {
    if condition { Ok(()) } else { Err((rule, detail.to_owned())) }
}

impl Step<'_> {
    fn check(&self) -> Legal {
        if let Some(Receipt { status: Status::Done(done), .. }) = self.after {
            self.outcome_is_of_its_run(&done.claim, done.outcome.body())?;
        }
        let Some(before) = self.before else {
            let Some(after) = self.after else { return Ok(()) };
            require(matches!(after.status, Status::Held(_)), LIFE, "came into being without a claim")?;
            return fence_is_version(after);
        };
        match &before.status {
            Status::Held(_) => self.leave_held(before),
            Status::Done(_) => self.leave_done(before),
            Status::Unknown(unknown) => self.leave_unknown(&unknown.claim),
            Status::Gone(_) => self.leave_gone(before),
        }
    }

    fn leave_held(&self, before: &Receipt) -> Legal {
        let Status::Held(held) = &before.status else { unreachable!("asked for held") };
        let over = before.due.is_over();
        let Some(after) = self.after else {
            // A release. Work that may be repeated is also forgotten when its lease is long over.
            if over && held.on_unknown == OnUnknown::Retry {
                return Ok(());
            }
            return self.may_be_given_up(&held.claim, if over { HOLD } else { LEASE });
        };
        match &after.status {
            // A renewal, also a late one: nobody has taken the lease meanwhile.
            Status::Held(now) if now.claim == held.claim => {
                require(now.on_unknown == held.on_unknown, LIFE, "changed its rule in a renewal")
            }
            Status::Held(now) => {
                require(over, OVERLAP, "a living lease was taken over")?;
                let same = now.claim.fingerprint == held.claim.fingerprint;
                require(same, INTENT, "another intent took over the key")?;
                let both = (held.on_unknown, now.on_unknown) == (OnUnknown::Retry, OnUnknown::Retry);
                require(both, HOLD, "a lease that ended under hold was taken over")?;
                fence_is_version(after)
            }
            Status::Done(done) => {
                require(done.claim == held.claim, OVERLAP, "completed by somebody who does not hold it")
            }
            Status::Unknown(unknown) => {
                require(unknown.claim == held.claim, LIFE, "put in doubt under another claim")?;
                match unknown.doubt {
                    Doubt::LeaseEnded => require(over, LEASE, "its lease was called over before its end"),
                    _ => require(!self.is_working(&held.claim), LEASE, "put in doubt while its work goes on"),
                }
            }
            Status::Gone(_) => Err((LIFE, "held became a tombstone".into())),
        }
    }

    fn leave_done(&self, before: &Receipt) -> Legal {
        let Status::Done(done) = &before.status else { unreachable!("asked for done") };
        let over = before.due.is_over();
        match self.after.map(|after| (&after.status, after)) {
            Some((Status::Held(now), after)) => {
                // Decided while it was kept, perhaps, and written a moment later: the version is the same.
                let retried = done.outcome.verdict() == Verdict::Failed
                    && now.claim.fingerprint == done.claim.fingerprint
                    && self.somebody_asked(|policy| policy.failure_rule() == OnFailure::Retry);
                let expired = over && self.somebody_asked(|policy| policy.expired_rule() == OnExpired::Run);
                require(retried || expired, DONE, "a kept outcome was run again")?;
                fence_is_version(after)
            }
            None => {
                require(over, DONE, "a kept outcome was removed")?;
                require(done.tombstone.is_none(), LIFE, "removed without leaving the tombstone it promised")
            }
            Some((Status::Gone(_), _)) => {
                require(over, DONE, "a kept outcome became a tombstone")?;
                require(done.tombstone.is_some(), LIFE, "left a tombstone that nobody asked for")
            }
            Some((Status::Done(_), _)) => Err((DONE, "a done outcome was written over".into())),
            Some((Status::Unknown(_), _)) => Err((DONE, "a done outcome was put in doubt".into())),
        }
    }

    fn leave_unknown(&self, claim: &Claim) -> Legal {
        match self.after.map(|after| &after.status) {
            // The word of its owner, or of an operator.
            Some(Status::Done(done)) => {
                require(done.claim == *claim, LIFE, "a doubt was ended under another claim")
            }
            Some(Status::Unknown(unknown)) => {
                require(unknown.claim == *claim, LIFE, "a doubt passed to another claim")
            }
            Some(Status::Held(held)) if held.claim == *claim => {
                Err((LIFE, "renewed although its outcome is in doubt".into()))
            }
            Some(Status::Held(_)) => Err((HOLD, "an outcome in doubt was run again".into())),
            Some(Status::Gone(_)) => Err((LIFE, "a doubt became a tombstone".into())),
            None => self.may_be_given_up(claim, HOLD),
        }
    }

    fn leave_gone(&self, before: &Receipt) -> Legal {
        let over = before.due.is_over();
        match self.after.map(|after| (&after.status, after)) {
            Some((Status::Held(_), after)) => {
                let allowed = over || self.somebody_asked(|policy| policy.expired_rule() == OnExpired::Run);
                require(allowed, LIFE, "a tombstone did not keep its key")?;
                fence_is_version(after)
            }
            None => require(over, LIFE, "a tombstone was removed before its time"),
            Some(_) => Err((LIFE, "a tombstone became something else".into())),
        }
    }

    /// A claim may be given up if its work never began, said that nothing happened, failed in a way that may
    /// be tried again, was in doubt where doubt means retry, or if an operator said that nothing happened.
    fn may_be_given_up(&self, claim: &Claim, rule: &'static str) -> Legal {
        let not_done = |settlement: &Settlement| *settlement == Settlement::NotDone;
        if self.facts.settled(self.id, claim.fence, self.event, not_done) {
            return Ok(());
        }
        let run = self.facts.run(self.id, claim.fence);
        let Some(run) = run.filter(|run| run.began.is_some_and(|(at, _)| at.event < self.event)) else {
            return Ok(());
        };
        match run.ended.filter(|(at, _)| at.event < self.event).map(|(_, how)| how) {
            None => Err((LEASE, "given up while its work goes on".into())),
            Some(End::BeforeEffect) => Ok(()),
            Some(End::Failed) => {
                let retry = run.policy.failure_rule() == OnFailure::Retry;
                require(retry, DONE, "a failure to be kept was given up")
            }
            Some(End::Succeeded) => Err((DONE, "a success was given up".into())),
            Some(End::Unknown | End::Panicked | End::Cut) => {
                let retry = run.policy.unknown_rule() == OnUnknown::Retry;
                require(retry, rule, "given up although its effect may have happened")
            }
        }
    }

    fn is_working(&self, claim: &Claim) -> bool {
        self.facts.run(self.id, claim.fence).is_some_and(|run| {
            run.began.is_some_and(|(at, _)| at.event < self.event)
                && run.ended.is_none_or(|(at, _)| at.event > self.event)
        })
    }

    fn somebody_asked(&self, contract: impl Fn(&onceward::Policy) -> bool) -> bool {
        self.facts.asked(self.id, self.event, contract)
    }

    /// What is on record was made by the run that holds the receipt, or said by an operator.
    fn outcome_is_of_its_run(&self, claim: &Claim, body: &[u8]) -> Legal {
        let Some(stamp) = Stamp::read(body) else { return Ok(()) };
        let fits = stamp.name == name(self.id) && stamp.fingerprint == claim.fingerprint.digest()[0];
        require(fits, INTENT, "the outcome of another intent was recorded")?;
        let by_run = self.facts.run(self.id, claim.fence).is_some_and(|run| run.call.0 == stamp.call);
        let done = |settlement: &Settlement| matches!(settlement, Settlement::Done(_));
        let by_operator = stamp.call == 0 && self.facts.settled(self.id, claim.fence, self.event, done);
        require(by_run || by_operator, INTENT, "the outcome of another run was recorded")
    }
}

fn fence_is_version(after: &Receipt) -> Legal {
    let fence = after.status.fence().0;
    require(fence == after.version.0, FENCE, "the fence of a claim is not its version")
}

/// What a restart may lose: writes that nobody was told of.
#[derive(Default)]
struct Disk<'a> {
    writes: BTreeMap<&'a Id, Writes>,
}

/// Every write of an id since the last restart, in order.
#[derive(Default)]
struct Writes {
    /// The version of each, and whether a record was there afterwards.
    all: Vec<(u64, bool)>,
    /// How many of them, from the first one on, are older than something acknowledged or it themselves.
    acknowledged: usize,
}

impl<'a> Disk<'a> {
    fn wrote(&mut self, id: &'a Id, version: u64, after: Option<&Receipt>) {
        self.writes.entry(id).or_default().all.push((version, after.is_some()));
    }

    fn acknowledged(&mut self, id: &'a Id, version: u64) {
        let writes = self.writes.entry(id).or_default();
        if let Some(at) = writes.all.iter().position(|(written, _)| *written == version) {
            writes.acknowledged = writes.acknowledged.max(at + 1);
        }
    }

    /// What is missing. Starts afresh from what is there.
    fn reopened(&mut self, kept: &'a [(Id, Box<Receipt>)]) -> Vec<String> {
        let found: BTreeMap<&Id, u64> = kept.iter().map(|(id, receipt)| (id, receipt.version.0)).collect();
        let mut lost = Vec::new();
        for (id, Writes { all, acknowledged }) in &self.writes {
            let Some(first) = acknowledged.checked_sub(1) else { continue };
            let fits = all[first..].iter().any(|(version, there)| match found.get(id) {
                Some(found) => *there && found == version,
                None => !there,
            });
            if !fits {
                let found = found.get(id);
                lost.push(format!("{}: {:?} was acknowledged, {found:?} is there", name(id), all[first]));
            }
        }
        self.writes.clear();
        for (id, receipt) in kept {
            self.writes.insert(id, Writes { all: vec![(receipt.version.0, true)], acknowledged: 1 });
        }
        lost
    }
}
