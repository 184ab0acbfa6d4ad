//! Checks each run of work against its claim.

use std::collections::BTreeMap;

use onceward::receipt::Status;
use onceward::{Fence, Id, OnUnknown};

use super::Violation;
use super::facts::{CallFacts, Facts, Span};
use crate::sim::history::{CallMethod, End, name};

pub(super) const CLAIM: &str = "work is done under a claim of its own";
pub(super) const RENEWED: &str = "a lease is renewed while its work goes on";
pub(super) const STOPPED: &str = "work stops when its lease is lost";

/// What an owner may need beyond its lease to notice that it is over: it looks at a sixth of the lease, and
/// is itself polled some time later.
const NOTICE_US: u64 = 10_000;

pub(super) fn check(facts: &Facts, violations: &mut Vec<Violation>) {
    let mut fences: BTreeMap<(&Id, Fence), u32> = BTreeMap::new();
    for call in facts.calls.values() {
        let Some((began, fence)) = call.began else { continue };
        // Claims in transactions are looked at in `transactions`.
        if call.way.is_in_transaction() {
            continue;
        }
        if let Some(other) = fences.insert((&call.id, fence), call.call.0) {
            let detail =
                format!("{}: calls {other} and {} run with fence {fence}", name(&call.id), call.call.0);
            violations.push(Violation { rule: CLAIM, event: began.event, detail });
        }
        for (event, rule, detail) in one(facts, call, fence) {
            let detail = format!("{}: call {} {detail}", name(&call.id), call.call.0);
            violations.push(Violation { rule, event, detail });
        }
    }
}

fn one(facts: &Facts, call: &CallFacts, fence: Fence) -> Vec<(usize, &'static str, String)> {
    let began = call.began.expect("asked for those that began").0;
    let leases: Vec<&Span> = leases(facts, call, fence).collect();
    let mut wrong = Vec::new();
    let Some(first) = leases.first().filter(|lease| lease.from < began) else {
        return vec![(began.event, CLAIM, format!("works with fence {fence}, which the store never gave"))];
    };
    let claim = first.claim().expect("a lease is a claim");
    if claim.fingerprint.digest()[0] != call.fingerprint {
        wrong.push((began.event, CLAIM, "works under the claim of another intent".into()));
    }
    if first.by != call.process {
        wrong.push((began.event, CLAIM, "works under the claim of another process".into()));
    }
    if was_given_back(facts, call, fence, &leases) {
        wrong.push((began.event, CLAIM, "begins to work after its claim was given back".into()));
    }
    // By hand, renewing is the caller's own business, and so is stopping.
    if matches!(call.way, CallMethod::Hand(_)) {
        return wrong;
    }
    if let Some((ended, how)) = call.ended
        && !facts.faulty
        && !facts.was_too_slow(call, ended)
        && how != End::Cut
        && !leases.iter().any(|lease| lease.from < ended && lease.to > ended && lease.due_us > ended.at_us)
    {
        wrong.push((ended.event, RENEWED, "has lost its lease although nothing was ever faulty".into()));
    }
    if let Some(effect) = call.effect
        && call.policy.on_unknown() == OnUnknown::Retry
        && let Some(last) = leases.iter().rev().find(|lease| lease.from < effect)
    {
        let lease_us = last.due_us.saturating_sub(last.from.at_us);
        let until_us = last.due_us.saturating_add(lease_us / 4 + NOTICE_US);
        let since_us = last.from.at_us.saturating_sub(lease_us);
        // Under hold the work goes on: nobody else will run it.
        if effect.at_us > until_us && !facts.was_absent(call.process, since_us, effect.at_us) {
            wrong.push((effect.event, STOPPED, "has its effect long after its lease".into()));
        }
    }
    wrong
}

/// The records under which a run holds its lease.
fn leases<'a>(facts: &'a Facts, call: &CallFacts, fence: Fence) -> impl Iterator<Item = &'a Span> {
    let spans = facts.spans.get(&call.id).into_iter().flatten();
    spans.filter(move |span| span.is_held() && span.receipt.status.fence() == fence)
}

/// Whether the claim had been given back, by its own process or a sweep, before the work began. A lease that
/// was over is another matter where work may be repeated: the process may have been slow.
fn was_given_back(facts: &Facts, call: &CallFacts, fence: Fence, leases: &[&Span]) -> bool {
    let began = call.began.expect("asked for those that began").0;
    let Some(last) = leases.iter().rev().find(|lease| lease.from < began).filter(|last| last.to < began)
    else {
        return false;
    };
    let Status::Held(held) = &last.receipt.status else { unreachable!("leases are held") };
    let alive = last.due_us > last.to.at_us;
    let next = facts.spans[&call.id].iter().find(|span| span.from == last.to);
    let followed = next.is_some_and(|span| !matches!(span.receipt.status, Status::Waiting(_)));
    let settled = facts.settled(&call.id, fence, began.event, |_| true);
    !followed && !settled && (alive || held.on_unknown == OnUnknown::Hold)
}
