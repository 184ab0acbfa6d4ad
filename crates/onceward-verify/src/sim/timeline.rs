//! Prints a history for an operator, one line per event.

use std::fmt::Write as _;

use onceward::receipt::{End, Job, Status};
use onceward::{Answer, Due, Receipt, Snapshot};

use super::checker::Violation;
use super::history::{CallResult, Event, EventKind, name};

/// The whole history, with the violations where they show.
pub fn timeline(history: &[Event], violations: &[Violation]) -> String {
    let mut text = String::new();
    for (number, event) in history.iter().enumerate() {
        let place = if event.process.number == 0 {
            "outside".to_owned()
        } else {
            format!("p{}.{}", event.process.number, event.process.life)
        };
        let _ = writeln!(text, "{number:5} {:>12} {place:8} {}", clock(event.at_us), describe(&event.what));
        for violation in violations.iter().filter(|violation| violation.event == number) {
            let _ =
                writeln!(text, "      >>>>>>>>>>>> VIOLATION    {}: {}", violation.rule, violation.detail);
        }
    }
    text
}

fn clock(at_us: u64) -> String {
    format!("{}.{:03} ms", at_us / 1000, at_us % 1000)
}

fn describe(what: &EventKind) -> String {
    match what {
        EventKind::Wrote { id, version, before, after, tx, .. } => {
            let before = before.as_deref().map_or_else(|| "absent".into(), receipt);
            let after = after.as_deref().map_or_else(|| "absent".into(), receipt);
            let tx = tx.map(|tx| format!("tx {}  ", tx.0)).unwrap_or_default();
            format!("store  {}  v{version}  {tx}{before}  ->  {after}", name(id))
        }
        EventKind::Staged { tx, id, after } => {
            let after = after.as_deref().map_or_else(|| "absent".into(), receipt);
            format!("tx {}  {} is to become {after}", tx.0, name(id))
        }
        EventKind::Committed { tx, business } => {
            format!("tx {}  COMMITTED, business writes of {business:?}", tx.0)
        }
        EventKind::Charged { tx, call } => format!("call {:3}  business write in tx {}", call.0, tx.0),
        EventKind::RolledBack { tx } => format!("tx {}  undone", tx.0),
        EventKind::Unreadable { id } => format!("store  {}  bytes that are no receipt", name(id)),
        EventKind::Reopened { kept } => {
            let kept: Vec<String> =
                kept.iter().map(|(id, kept)| format!("{} {}", name(id), receipt(kept))).collect();
            format!("store  reopened with [{}]", kept.join(", "))
        }
        EventKind::Acknowledged { id, version } => format!("store  {}  v{version} acknowledged", name(id)),
        EventKind::Asked { call, id, fingerprint, policy, way, input } => format!(
            "call {:3}  asks for {} as {fingerprint} by {way:?}{}  (lease {:?}, {:?}, {:?} on failure, {:?} on unknown, {:?} on expired, {} tries)",
            call.0,
            name(id),
            if *input { " with its input" } else { "" },
            policy.lease(),
            policy.on_duplicate(),
            policy.on_failure(),
            policy.on_unknown(),
            policy.on_expired(),
            policy.tries_max()
        ),
        EventKind::Answered { call, told } => format!("call {:3}  is told {}", call.0, describe_told(told)),
        EventKind::WentAway { call } => format!("call {:3}  went away", call.0),
        EventKind::Began { call, fence, input } => {
            let input = input.as_ref().map(|input| format!(", input \"{}\"", String::from_utf8_lossy(input)));
            format!("call {:3}  work begins, fence {fence}{}", call.0, input.unwrap_or_default())
        }
        EventKind::Effect { call } => format!("call {:3}  EFFECT", call.0),
        EventKind::Ended { call, how } => format!("call {:3}  work ends: {how:?}", call.0),
        EventKind::Settling { id, fence, settlement } => {
            format!("operator  {} of fence {fence} is {settlement:?}", name(id))
        }
        EventKind::Erasing { id, reopen, bound } => {
            let then = if *reopen { " and reopens it" } else { "" };
            format!("operator  erases {}{then}, copies of which may be given for {bound:?}", name(id))
        }
        EventKind::Forgetting { id, version, .. } => {
            format!("operator  forgets {} as of v{version}", name(id))
        }
        EventKind::Replacing { id, fence, input } => {
            let input = String::from_utf8_lossy(input);
            format!("{} under fence {fence}: its input is to become \"{input}\"", name(id))
        }
        EventKind::Replaced { id, fence, input } => {
            let input = String::from_utf8_lossy(input);
            format!("{} under fence {fence}: its input is \"{input}\" now", name(id))
        }
        EventKind::LongTrip(takes) => format!("a write leaves for the store and will take {takes:?}"),
        EventKind::Fault(fault) => format!("fault: {}", fault.name()),
        EventKind::Crashed => "CRASH".into(),
        EventKind::Started => "started again".into(),
        EventKind::Paused(duration) => format!("PAUSE for {duration:?}"),
        EventKind::Jumped(duration) => format!("CLOCK JUMPS ahead by {duration:?}"),
        EventKind::Calm => "all faults have ceased".into(),
        EventKind::Sweeps { .. } => "a sweep begins".into(),
        EventKind::Works(workers) => format!(
            "workers begin, with code for {:?}, {:?} on unknown, {} tries",
            workers.patterns,
            workers.policy.on_unknown(),
            workers.policy.tries_max()
        ),
        EventKind::Patience => "what needs nobody's word must be over by now".into(),
        EventKind::Wedged(detail) => format!("WEDGED: {detail}"),
    }
}

fn receipt(receipt: &Receipt) -> String {
    let due = match receipt.due {
        Due::Never => "forever".to_owned(),
        Due::In(left) => format!("for {left:?}"),
        Due::Over(ago) => format!("over since {ago:?}"),
    };
    let inside = match &receipt.status {
        Status::Held(held) => {
            format!(
                "of {}, {:?}, {:?}, {:?}, {:?} before{}",
                held.claim.fingerprint.digest()[0],
                held.claim.attempt,
                held.on_unknown,
                held.owner,
                held.prior,
                job(receipt.status.job().map(|job| &**job))
            )
        }
        Status::Done(done) => {
            let end = match &done.end {
                End::Outcome(outcome) => snapshot(outcome.snapshot()),
                End::Closed(closed) => format!("{closed:?}"),
            };
            format!("of {}, {end}", done.claim.fingerprint.digest()[0])
        }
        Status::Waiting(waiting) => format!(
            "of {}, {:?} before{}",
            waiting.claim.fingerprint.digest()[0],
            waiting.prior,
            job(waiting.job.as_deref())
        ),
        Status::Dead(dead) => format!("{:?} before{}", dead.prior, job(dead.job.as_deref())),
        Status::Unknown(unknown) => format!("{:?}{}", unknown.reason, job(unknown.job.as_deref())),
        Status::Gone(_) => String::new(),
    };
    let fence = receipt.status.fence();
    format!("{}({inside}) fence {fence} {due}", receipt.status.state().name().to_uppercase())
}

fn job(job: Option<&Job>) -> String {
    let of = |job: &Job| {
        format!(", input \"{}\" {}/{}", String::from_utf8_lossy(&job.input), job.finished, job.started)
    };
    job.map(of).unwrap_or_default()
}

fn snapshot(snapshot: &Snapshot) -> String {
    match snapshot {
        Snapshot::Kept(bytes) => format!("\"{}\"", String::from_utf8_lossy(bytes)),
        Snapshot::Omitted(bytes) => format!("omitted \"{}\"", String::from_utf8_lossy(bytes)),
    }
}

fn describe_told(told: &CallResult) -> String {
    match told {
        CallResult::Answer(answer) => match &**answer {
            Answer::Completed(ran) => format!(
                "{:?} {} fence {} {}, {:?}",
                ran.outcome.verdict(),
                snapshot(ran.outcome.snapshot()),
                ran.fence,
                if ran.replayed { "replayed" } else { "fresh" },
                ran.recorded
            ),
            Answer::Refused(refusal) => format!("{refusal:?}"),
        },
        CallResult::Ticket(fence) => format!("the claim is its own, fence {fence}"),
        CallResult::Recorded => "recorded".into(),
        CallResult::TooLate => "too late, somebody else has it".into(),
        CallResult::Enqueued(enqueued) => format!("{enqueued:?}"),
        CallResult::Closed(closed) => if *closed { "it is so" } else { "nothing to do" }.into(),
        CallResult::RecordedIn(recorded) => if *recorded { "recorded" } else { "it has a receipt" }.into(),
        CallResult::Error(error) => {
            format!("error {:?}, applied {:?}: {error}", error.kind(), error.applied())
        }
        CallResult::Panic => "the panic of its work".into(),
    }
}
