//! A history that a person can read, one line per event, in the words of the protocol.

use std::fmt::Write as _;

use onceward::receipt::Status;
use onceward::{Answer, Due, Receipt, Snapshot};

use super::history::{Event, Told, What, name};
use super::judge::Violation;

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

fn describe(what: &What) -> String {
    match what {
        What::Wrote { id, version, before, after } => {
            let before = before.as_deref().map_or_else(|| "absent".into(), receipt);
            let after = after.as_deref().map_or_else(|| "absent".into(), receipt);
            format!("store  {}  v{version}  {before}  ->  {after}", name(id))
        }
        What::Unreadable { id } => format!("store  {}  bytes that are no receipt", name(id)),
        What::Reopened { kept } => {
            let kept: Vec<String> =
                kept.iter().map(|(id, kept)| format!("{} {}", name(id), receipt(kept))).collect();
            format!("store  reopened with [{}]", kept.join(", "))
        }
        What::Acknowledged { id, version } => format!("store  {}  v{version} acknowledged", name(id)),
        What::Asked { call, id, fingerprint, policy, way } => format!(
            "call {:3}  asks for {} as {fingerprint} by {way:?}  (lease {:?}, {:?}, {:?} on failure, {:?} on unknown, {:?} on expired)",
            call.0,
            name(id),
            policy.lease_duration(),
            policy.duplicate_rule(),
            policy.failure_rule(),
            policy.unknown_rule(),
            policy.expired_rule()
        ),
        What::Answered { call, told } => format!("call {:3}  is told {}", call.0, describe_told(told)),
        What::WentAway { call } => format!("call {:3}  went away", call.0),
        What::Began { call, fence } => format!("call {:3}  work begins, fence {fence}", call.0),
        What::Effect { call } => format!("call {:3}  EFFECT", call.0),
        What::Ended { call, how } => format!("call {:3}  work ends: {how:?}", call.0),
        What::Settling { id, fence, settlement } => {
            format!("operator  {} of fence {fence} is {settlement:?}", name(id))
        }
        What::LongTrip(takes) => format!("a write leaves for the store and will take {takes:?}"),
        What::Fault(fault) => format!("fault: {}", fault.name()),
        What::Crashed => "CRASH".into(),
        What::Started => "started again".into(),
        What::Paused(duration) => format!("PAUSE for {duration:?}"),
        What::Jumped(duration) => format!("CLOCK JUMPS ahead by {duration:?}"),
        What::Calm => "all faults have ceased".into(),
        What::Completes => "a completer begins".into(),
        What::Patience => "what was left must be completed by now".into(),
        What::Wedged(detail) => format!("WEDGED: {detail}"),
    }
}

fn receipt(receipt: &Receipt) -> String {
    let due = match receipt.due {
        Due::Never => "for ever".to_owned(),
        Due::In(left) => format!("for {left:?}"),
        Due::Over(ago) => format!("over since {ago:?}"),
    };
    let inside = match &receipt.status {
        Status::Held(held) => {
            format!(
                "of {}, {:?}, {:?}",
                held.claim.fingerprint.digest()[0],
                held.claim.attempt,
                held.on_unknown
            )
        }
        Status::Done(done) => {
            format!("of {}, {}", done.claim.fingerprint.digest()[0], snapshot(done.outcome.snapshot()))
        }
        Status::Unknown(unknown) => format!("{:?}", unknown.doubt),
        Status::Gone(_) => String::new(),
    };
    let fence = receipt.status.fence();
    format!("{}({inside}) fence {fence} {due}", receipt.status.state().name().to_uppercase())
}

fn snapshot(snapshot: &Snapshot) -> String {
    match snapshot {
        Snapshot::Kept(bytes) => format!("\"{}\"", String::from_utf8_lossy(bytes)),
        Snapshot::Omitted(bytes) => format!("omitted \"{}\"", String::from_utf8_lossy(bytes)),
    }
}

fn describe_told(told: &Told) -> String {
    match told {
        Told::Answer(answer) => match &**answer {
            Answer::Ran(ran) => format!(
                "{:?} {} fence {} {}, {:?}",
                ran.outcome.verdict(),
                snapshot(ran.outcome.snapshot()),
                ran.fence,
                if ran.replayed { "replayed" } else { "fresh" },
                ran.recorded
            ),
            Answer::Refused(refusal) => format!("{refusal:?}"),
        },
        Told::Ticket(fence) => format!("the claim is its own, fence {fence}"),
        Told::Recorded => "recorded".into(),
        Told::TooLate => "too late, somebody else has it".into(),
        Told::Error(error) => {
            format!("error {:?}, applied {:?}: {error}", error.kind(), error.applied())
        }
        Told::Panic => "the panic of its work".into(),
    }
}
