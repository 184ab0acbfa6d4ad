//! Every cell of the table of erasures: each state, erased and reopened, for intents and for steps.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::fingerprint::Fingerprint;
use crate::outcome::Snapshot;
use crate::receipt::{Attempt, Claim, Closed, Fence, Gone, Job, Owner, Prior, UnknownReason};
use crate::store::{Age, Version};

const HOUR: Duration = Duration::from_hours(1);

/// Each state, what an erasure makes of it, what reopening makes of it, and what both make of such a step.
#[test]
fn every_state_is_erased_or_refused() {
    let table: Vec<(&str, Receipt, &str, &str, &str)> = vec![
        ("done", receipt(done(), Due::In(HOUR)), "done, says 'erased'", "removed", "removed"),
        (
            "done, input kept",
            receipt(done_with_input(), Due::Never),
            "done, says 'erased'",
            "removed",
            "removed",
        ),
        ("closed", receipt(closed(), Due::In(HOUR)), "nothing", "removed", "removed"),
        (
            "gone",
            receipt(Status::Gone(Gone { fence: Fence(1) }), Due::Never),
            "nothing",
            "removed",
            "removed",
        ),
        ("unknown", receipt(unknown("", None), Due::Never), "nothing", "refused", "removed"),
        (
            "unknown, note",
            receipt(unknown("504", None), Due::Never),
            "unknown, says ''",
            "refused",
            "removed",
        ),
        ("unknown, input", receipt(unknown("", job()), Due::Never), "unknown, says ''", "refused", "removed"),
        ("dead", receipt(dead(job()), Due::Never), "dead, says ''", "refused", "removed"),
        ("dead, erased", receipt(dead(None), Due::Never), "nothing", "refused", "removed"),
        ("held", receipt(held(OnUnknown::Hold, None), Due::In(HOUR)), "refused", "refused", "refused"),
        (
            "lapsed",
            receipt(held(OnUnknown::Hold, job()), Due::Over(HOUR)),
            "unknown, says ''",
            "refused",
            "removed",
        ),
        (
            "lapsed retry",
            receipt(held(OnUnknown::Retry, None), Due::Over(HOUR)),
            "nothing",
            "refused",
            "removed",
        ),
        (
            "lapsed task",
            receipt(held(OnUnknown::Retry, job()), Due::Over(HOUR)),
            "refused",
            "refused",
            "removed",
        ),
        ("waiting", receipt(waiting(job()), Due::In(HOUR)), "refused", "refused", "removed"),
        ("waiting for an ask", receipt(waiting(None), Due::In(HOUR)), "nothing", "refused", "removed"),
    ];
    let reopen = Erase::new().with_reopen(true);
    for (name, found, erased, reopened, step_reopened) in table {
        assert_eq!(shown(erase(&found, &Erase::new())), erased, "{name}, erased");
        assert_eq!(shown(erase_step(&found, &Erase::new())), erased, "{name}, erased as a step");
        assert_eq!(shown(erase(&found, &reopen)), reopened, "{name}, reopened");
        assert_eq!(shown(erase_step(&found, &reopen)), step_reopened, "{name}, reopened as a step");
    }
}

#[test]
fn an_erased_receipt_keeps_its_claim_its_verdict_and_its_time() {
    let note = |outcome: &Outcome| Bytes::from(format!("{} bytes", outcome.body().len()));
    let erasure = erase(&receipt(done(), Due::In(HOUR)), &Erase::new().with_note(note)).unwrap();
    let Erasure::Write(write) = erasure else { panic!("{erasure:?}") };
    assert_eq!((write.due_in, write.status.claim()), (Some(HOUR), Some(&claim())));
    let outcome = write.status.outcome().unwrap();
    assert_eq!(outcome.verdict(), crate::Verdict::Succeeded);
    assert!(matches!(outcome.snapshot(), Snapshot::Omitted(note) if note == "2 bytes"));
}

fn shown(erasure: Result<Erasure>) -> String {
    match erasure {
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict);
            "refused".into()
        }
        Ok(Erasure::Remove) => "removed".into(),
        Ok(Erasure::Nothing) => "nothing".into(),
        Ok(Erasure::Write(Write { status, .. })) => {
            assert!(status.job().is_none(), "an input is left in {status:?}");
            let says = match status.outcome().map(Outcome::snapshot) {
                Some(Snapshot::Omitted(note)) => String::from_utf8(note.to_vec()).unwrap(),
                Some(Snapshot::Kept(_)) => panic!("a body is left in {status:?}"),
                None => status.note().to_owned(),
            };
            format!("{}, says '{says}'", status.state())
        }
    }
}

fn claim() -> Claim {
    Claim { fingerprint: Fingerprint::of(b"same"), attempt: Attempt(7), fence: Fence(3), tries: 1 }
}

#[expect(clippy::unnecessary_wraps, reason = "receipts have one or none")]
fn job() -> Option<Arc<Job>> {
    Some(Arc::new(Job { note: "503".into(), ..Job::new(Bytes::from_static(b"input")) }))
}

fn done() -> Status {
    Status::Done(Done::new(claim(), End::Outcome(Outcome::succeeded("ok"))))
}

fn done_with_input() -> Status {
    Status::Done(Done { job: job(), ..Done::new(claim(), End::Outcome(Outcome::failed("no"))) })
}

fn closed() -> Status {
    Status::Done(Done::new(claim(), End::Closed(Closed::Undone)))
}

fn unknown(note: &str, job: Option<Arc<Job>>) -> Status {
    let (reason, prior, late_effect_max) = (UnknownReason::Reported, Prior::Nothing, Duration::ZERO);
    Status::Unknown(Unknown { claim: claim(), reason, prior, late_effect_max, note: note.into(), job })
}

fn dead(job: Option<Arc<Job>>) -> Status {
    let (on_unknown, note) = (OnUnknown::Hold, String::new());
    Status::Dead(Dead {
        claim: claim(),
        prior: Prior::Nothing,
        on_unknown,
        late_effect_max: Duration::ZERO,
        note,
        job,
    })
}

fn held(on_unknown: OnUnknown, job: Option<Arc<Job>>) -> Status {
    let (owner, prior, late_effect_max) = (Owner::Run, Prior::Nothing, Duration::ZERO);
    Status::Held(Held { claim: claim(), on_unknown, owner, prior, late_effect_max, job })
}

fn waiting(job: Option<Arc<Job>>) -> Status {
    Status::Waiting(Waiting { claim: claim(), prior: Prior::Nothing, late_effect_max: Duration::ZERO, job })
}

fn receipt(status: Status, due: Due) -> Receipt {
    Receipt::new(Version(9), due, Age::default(), status)
}
