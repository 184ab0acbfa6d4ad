//! Every cell of the writing half of the protocol. Rows are data: what is there, what happens, what it becomes. Each
//! test walks all combinations and wants exactly one row for each.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::*;
use crate::decide::decide;
use crate::policy::{Backoff, OnDuplicate};
use crate::receipt::Fence;
use crate::store::Age;

const TRIES: u16 = 3;
const DAY: Duration = Duration::from_hours(24);

/// `run` and `ending` are patterns: each word must hold. The run's words are `hold|retry` (both its claim and the
/// policy say retry), `fresh|settled|doubtful` (what is known of earlier runs), `no-job|tries-left|last-try`.
const ENDS: &[(&str, &str, &str)] = &[
    // run                      ending      becomes
    ("", "done", "done outcome"),
    ("hold", "doubt", "unknown"),
    ("hold doubtful", "release", "unknown"),
    ("retry doubtful no-job", "release", "waiting Unknown for a day"),
    ("retry doubtful tries-left", "release", "waiting Unknown 2/2 for 2s"),
    ("retry doubtful last-try", "release", "dead Nothing 3/3"),
    ("settled no-job", "release", "waiting Settled for a day"),
    ("settled tries-left", "release", "waiting Settled 2/2 for 2s"),
    ("hold settled last-try", "release", "dead Settled 3/3"),
    ("retry settled last-try", "release", "dead Nothing 3/3"),
    ("fresh no-job", "release", "absent"),
    ("fresh tries-left", "release", "waiting Nothing 2/2 for 2s"),
    ("fresh last-try", "release", "dead Nothing 3/3"),
    ("retry no-job", "doubt", "waiting Unknown for a day"),
    ("retry tries-left", "doubt", "waiting Unknown 2/2 for 2s"),
    ("retry last-try", "doubt", "dead Nothing 3/3"),
    ("fresh no-job", "suspend", "absent"),
    ("settled no-job", "suspend", "waiting Settled for a day"),
    ("doubtful no-job", "suspend", "waiting Unknown for a day"),
    ("fresh tries-left", "suspend", "waiting Nothing 1/1 for 9s"),
    ("settled tries-left", "suspend", "waiting Settled 1/1 for 9s"),
    ("doubtful tries-left", "suspend", "waiting Unknown 1/1 for 9s"),
    ("fresh last-try", "suspend", "waiting Nothing 2/2 for 9s"),
    ("settled last-try", "suspend", "waiting Settled 2/2 for 9s"),
    ("doubtful last-try", "suspend", "waiting Unknown 2/2 for 9s"),
];

#[test]
fn every_ending_of_every_run() {
    let mut used = BTreeSet::new();
    let mut cells = 0;
    for (words, held, policy) in every_run() {
        for (ending_word, ending) in every_ending() {
            let fitting: Vec<_> =
                ENDS.iter().filter(|(run, ending, _)| holds(run, &words) && *ending == ending_word).collect();
            let cell = format!("a run '{words}' that ends with {ending_word}");
            assert_eq!(fitting.len(), 1, "{cell}: {} rows", fitting.len());
            assert_eq!(show(end(&id(), &held, &ending, &policy).as_ref()), fitting[0].2, "{cell}");
            used.insert(fitting[0]);
            cells += 1;
        }
    }
    assert_eq!(used.len(), ENDS.len(), "some rows are never reached");
    assert_eq!(cells, 3 * 3 * 3 * 4);
}

/// What the owner's write that lost means: `found` is a pattern over what is there now.
const AFTER_LOSS: &[(&str, &str, &str)] = &[
    // found                    ending      then
    ("absent", "done", "fenced off"),
    ("absent", "doubt", "fenced off"),
    ("absent", "release", "recorded"),
    ("absent", "suspend", "recorded"),
    ("foreign", "", "fenced off"),
    ("own held", "", "write again"),
    ("own done-same", "done", "recorded"),
    ("own done-same", "release", "fenced off"),
    ("own done-same", "doubt", "fenced off"),
    ("own done-same", "suspend", "fenced off"),
    ("own done-other", "", "fenced off"),
    ("own closed", "", "fenced off"),
    ("own unknown", "done", "write again"),
    ("own unknown", "release", "write again"),
    ("own unknown", "suspend", "write again"),
    ("own unknown", "doubt", "recorded"),
    ("own waiting", "done", "write again"),
    ("own waiting", "release", "recorded"),
    ("own waiting", "doubt", "recorded"),
    ("own waiting", "suspend", "recorded"),
    ("own dead", "done", "write again"),
    ("own dead", "release", "recorded"),
    ("own dead", "doubt", "recorded"),
    ("own dead", "suspend", "recorded"),
    ("gone", "", "fenced off"),
];

#[test]
fn the_last_owner_is_heard_until_somebody_else_has_the_receipt() {
    let run = held(OnUnknown::Hold, Prior::Nothing, None);
    let policy = policy(OnUnknown::Hold);
    let mut used = BTreeSet::new();
    for (words, found) in every_found() {
        for (ending_word, ending) in every_ending() {
            let fitting: Vec<_> = AFTER_LOSS
                .iter()
                .filter(|(found, ending, _)| {
                    holds(found, &words) && (ending.is_empty() || *ending == ending_word)
                })
                .collect();
            let cell = format!("found '{words}', ending with {ending_word}");
            assert_eq!(fitting.len(), 1, "{cell}: {} rows", fitting.len());
            let then = match after_loss(&id(), &run, &ending, &policy, found.as_ref()) {
                AfterLoss::WriteAgain(version) => {
                    assert_eq!(version, Version(9));
                    "write again"
                }
                AfterLoss::Recorded => "recorded",
                AfterLoss::FencedOff => "fenced off",
            };
            assert_eq!(then, fitting[0].2, "{cell}");
            used.insert(fitting[0]);
        }
    }
    assert_eq!(used.len(), AFTER_LOSS.len(), "some rows are never reached");
}

#[test]
fn a_claim_counts_its_try_and_remembers_earlier_ones() {
    let ask = ask(OnUnknown::Retry).with_input("new input");
    let waiting_with = |prior, job| receipt(waiting(claim_of(OTHER), prior, job), Due::Never);
    let lapsed = |prior, job| {
        let held = Held { claim: claim_of(OTHER), ..held(OnUnknown::Retry, prior, job) };
        receipt(Status::Held(held), Due::Over(DAY))
    };
    let kept = Some(job(1));
    // takeover, found, expected prior, started, input
    let cases = [
        (Takeover::Absent, None, Prior::Nothing, 1, "new input"),
        (Takeover::Waiting, Some(waiting_with(Prior::Nothing, kept.clone())), Prior::Nothing, 2, "input"),
        (Takeover::Waiting, Some(waiting_with(Prior::Settled, None)), Prior::Settled, 1, "new input"),
        (Takeover::Waiting, Some(waiting_with(Prior::Unknown, None)), Prior::Unknown, 1, "new input"),
        (Takeover::Lapsed, Some(lapsed(Prior::Nothing, kept.clone())), Prior::Unknown, 2, "input"),
        (Takeover::Lapsed, Some(lapsed(Prior::Nothing, None)), Prior::Unknown, 1, "new input"),
        // A try of ours that never began does not count twice.
        (Takeover::Owed, Some(lapsed(Prior::Nothing, kept.clone())), Prior::Nothing, 1, "input"),
        (Takeover::Own, Some(lapsed(Prior::Settled, kept)), Prior::Settled, 1, "input"),
    ];
    for (takeover, found, prior, started, input) in cases {
        let held = claim(&ask, OWN, Owner::Run, takeover, found.as_ref());
        let job = held.job.as_ref().expect("the ask brings an input along");
        assert_eq!(
            (held.prior, job.started, &job.input[..]),
            (prior, started, input.as_bytes()),
            "{takeover:?}"
        );
        assert_eq!((held.claim.attempt, held.on_unknown), (OWN, OnUnknown::Retry));
        let own = takeover == Takeover::Own;
        assert_eq!(held.claim.fence == FENCE_IS_VERSION, !own, "only our own claim keeps its fence");
    }
    let without = claim(&self::ask(OnUnknown::Hold), OWN, Owner::Ticket, Takeover::Absent, None);
    assert_eq!((without.job, without.owner), (None, Owner::Ticket));
}

#[test]
fn an_input_is_dropped_when_it_is_done_unless_it_is_kept() {
    let run = held(OnUnknown::Hold, Prior::Nothing, Some(job(1)));
    let done = Ending::Done(Outcome::succeeded("ok"));
    let drops = policy(OnUnknown::Hold);
    assert_eq!(end(&id(), &run, &done, &drops).unwrap().status.job(), None);
    let keeps = drops.to_builder().with_keep_input(KeepInput::WithReceipt).build().unwrap();
    let kept = end(&id(), &run, &done, &keeps).unwrap();
    let job = kept.status.job().expect("it is kept");
    assert_eq!((&job.input[..], job.started, job.finished), (&b"input"[..], 1, 1));
}

#[test]
fn a_failure_is_kept_or_tried_again_by_policy() {
    let keeps = policy(OnUnknown::Hold);
    assert!(matches!(Ending::of(Outcome::failed("no"), &keeps), Ending::Done(_)));
    assert!(matches!(Ending::of(Outcome::succeeded("yes"), &keeps), Ending::Done(_)));
    let retries = keeps.to_builder().with_on_failure(OnFailure::Retry).build().unwrap();
    assert!(Ending::of(Outcome::failed("no"), &retries).is_release());
    assert!(!Ending::of(Outcome::succeeded("yes"), &retries).is_release());
}

#[test]
fn what_is_due_expires_by_its_state() {
    let over = Due::Over(Duration::from_secs(60));
    let tombstone = |keep| {
        Status::Done(Done {
            claim: claim_of(OWN),
            end: End::Outcome(Outcome::succeeded("ok")),
            tombstone: keep,
            job: None,
        })
    };
    let step = id().step("email").unwrap();
    let week = Duration::from_hours(24 * 7);
    let cases: Vec<(&str, Id, Receipt, Duration, &str)> = vec![
        ("not due", id(), receipt(tombstone(None), Due::In(DAY)), week, "keep"),
        ("done", id(), receipt(tombstone(None), over), week, "remove"),
        (
            "done, tombstone",
            id(),
            receipt(tombstone(Some(Retention::For(DAY))), over),
            week,
            "gone for 86400s",
        ),
        ("done step", step.clone(), receipt(tombstone(None), over), week, "remove with parent"),
        ("gone", id(), receipt(Status::Gone(Gone { fence: Fence(1) }), over), week, "remove"),
        ("held, hold", id(), held_receipt(OnUnknown::Hold, None, over), week, "unknown"),
        ("held, hold, with input", id(), held_receipt(OnUnknown::Hold, Some(job(1)), over), week, "unknown"),
        ("held, retry, young", id(), held_receipt(OnUnknown::Retry, None, over), week, "keep"),
        ("held, retry, old", id(), held_receipt(OnUnknown::Retry, None, over), Duration::ZERO, "remove"),
        (
            "held step, retry, old",
            step,
            held_receipt(OnUnknown::Retry, None, over),
            Duration::ZERO,
            "remove with parent",
        ),
        (
            "held, retry, input",
            id(),
            held_receipt(OnUnknown::Retry, Some(job(1)), over),
            Duration::ZERO,
            "keep",
        ),
        (
            "waiting with input",
            id(),
            receipt(waiting(claim_of(OWN), Prior::Nothing, Some(job(0))), over),
            Duration::ZERO,
            "keep",
        ),
        (
            "waiting without",
            id(),
            receipt(waiting(claim_of(OWN), Prior::Settled, None), over),
            week,
            "remove",
        ),
        ("unknown", id(), receipt(unknown_status(None), over), Duration::ZERO, "keep"),
        ("dead", id(), receipt(dead_status(Prior::Nothing), over), Duration::ZERO, "keep"),
    ];
    for (name, id, found, abandoned_after, expected) in cases {
        let shown = match expire(&id, &found, abandoned_after) {
            Expiry::Keep => "keep".to_owned(),
            Expiry::Remove => "remove".to_owned(),
            Expiry::RemoveWithParent => "remove with parent".to_owned(),
            Expiry::Become(write) if matches!(write.status, Status::Gone(_)) => {
                format!("gone for {:?}", write.due_in.unwrap())
            }
            Expiry::Become(write) => show(Some(&write)),
        };
        assert_eq!(shown, expected, "{name}");
    }
}

#[test]
fn a_settlement_ends_unknown_outcomes_and_dead_letters_and_nothing_else() {
    let policy = policy(OnUnknown::Hold);
    let over = Due::Over(Duration::from_secs(60));
    let done = Settlement::Done(Outcome::succeeded("ok"));
    let cases: Vec<(&str, Receipt, &str, &str)> = vec![
        ("unknown", receipt(unknown_status(None), Due::Never), "done outcome", "waiting Settled for a day"),
        (
            "unknown, input",
            receipt(unknown_status(Some(job(2))), Due::Never),
            "done outcome",
            "waiting Settled 0/0 for 0ns",
        ),
        ("lapsed", held_receipt(OnUnknown::Hold, None, over), "done outcome", "waiting Settled for a day"),
        (
            "dead",
            receipt(dead_status(Prior::Unknown), Due::Never),
            "done outcome",
            "waiting Settled 0/0 for 0ns",
        ),
        ("alive", held_receipt(OnUnknown::Hold, None, Due::In(DAY)), "conflict", "conflict"),
        ("done", receipt(done_status(), Due::In(DAY)), "nothing", "nothing"),
        ("waiting", receipt(waiting(claim_of(OWN), Prior::Nothing, None), Due::Never), "nothing", "nothing"),
        (
            "waiting, unknown",
            receipt(waiting(claim_of(OWN), Prior::Unknown, Some(job(2))), Due::Never),
            "done outcome",
            "waiting Settled 0/0 for 0ns",
        ),
        ("gone", receipt(Status::Gone(Gone { fence: Fence(1) }), Due::Never), "nothing", "nothing"),
    ];
    for (name, found, by_done, by_not_done) in cases {
        for (settlement, expected) in
            [(&done, by_done), (&Settlement::NotDone, by_not_done), (&Settlement::ForceNotDone, by_not_done)]
        {
            let shown = match settle(&id(), &found, settlement, &policy) {
                Ok(Some(write)) => show(Some(&write)),
                Ok(None) => "nothing".into(),
                Err(error) => format!("{:?}", error.kind()).to_lowercase(),
            };
            assert_eq!(shown, expected, "{name}, {settlement:?}");
        }
    }
}

#[test]
fn nobody_is_believed_that_it_did_not_happen_while_it_still_can() {
    let policy = policy(OnUnknown::Hold);
    let late = Duration::from_secs(60);
    let young = |updated: Duration| {
        let Status::Unknown(unknown) = unknown_status(None) else { unreachable!() };
        let status = Status::Unknown(Unknown { late_effect_max: late, ..unknown });
        Receipt { age: Age { updated, created: DAY }, ..receipt(status, Due::Never) }
    };
    let lapsed = |ago: Duration| {
        let run = Held { late_effect_max: late, ..held(OnUnknown::Hold, Prior::Nothing, None) };
        receipt(Status::Held(run), Due::Over(ago))
    };
    for (found, is_early) in [
        (young(Duration::from_secs(59)), true),
        (young(late), false),
        (lapsed(Duration::from_secs(59)), true),
        (lapsed(late), false),
    ] {
        let not_done = settle(&id(), &found, &Settlement::NotDone, &policy);
        assert_eq!(not_done.is_err(), is_early, "{found:?}");
        if let Err(error) = not_done {
            assert!(error.to_string().contains("may still take effect for 1s"), "{error}");
        }
        assert!(settle(&id(), &found, &Settlement::ForceNotDone, &policy).unwrap().is_some());
    }
}

#[test]
fn an_intent_is_enqueued_once() {
    let ask = ask(OnUnknown::Retry).with_input("new input").with_delay(Duration::from_secs(9));
    let cases: Vec<(Option<Receipt>, &str)> = vec![
        (None, "waiting Nothing 0/0 for 9s"),
        (Some(receipt(done_status(), Due::Over(DAY))), "waiting Nothing 0/0 for 9s"),
        (
            Some(receipt(waiting(claim_of(OTHER), Prior::Settled, None), Due::Never)),
            "waiting Settled 0/0 for 9s",
        ),
        (
            Some(receipt(waiting(claim_of(OTHER), Prior::Nothing, Some(job(1))), Due::Never)),
            "already waiting",
        ),
        (Some(held_receipt(OnUnknown::Retry, None, Due::In(DAY))), "already held"),
        (Some(held_receipt(OnUnknown::Retry, Some(job(1)), Due::Over(DAY))), "already held"),
        (Some(receipt(done_status(), Due::In(DAY))), "already done"),
        (Some(receipt(unknown_status(None), Due::Never)), "already unknown"),
        (Some(receipt(dead_status(Prior::Nothing), Due::Never)), "already dead"),
        (Some(receipt(closed_status(), Due::In(DAY))), "already done"),
    ];
    for (found, expected) in cases {
        let decision = decide(&ask, found.as_ref());
        let shown = match enqueue(&ask, &decision, found.as_ref()) {
            Enqueue::Write(write) => show(Some(&write)),
            Enqueue::AlreadyThere(state) => format!("already {state}"),
            Enqueue::Refused(refusal) => format!("refused: {refusal}"),
        };
        assert_eq!(shown, expected, "{found:?}");
    }
    let other = Ask::new(id(), Fingerprint::of(b"other"), ask.policy.clone()).with_input("x");
    let found = receipt(waiting(claim_of(OTHER), Prior::Nothing, Some(job(0))), Due::Never);
    let enqueued = enqueue(&other, &decide(&other, Some(&found)), Some(&found));
    assert_eq!(enqueued, Enqueue::Refused(Refusal::KeyReused));
}

#[test]
fn only_what_has_not_begun_is_closed() {
    let policy = policy(OnUnknown::Hold);
    let close = |found: Option<Receipt>| match close(&id(), found.as_ref(), Closed::Undone, &policy) {
        Ok(Some(write)) => show(Some(&write)),
        Ok(None) => "nothing".into(),
        Err(error) => format!("{:?}", error.kind()).to_lowercase(),
    };
    assert_eq!(close(None), "done closed");
    assert_eq!(close(Some(receipt(Status::Gone(Gone { fence: Fence(1) }), Due::Never))), "done closed");
    assert_eq!(
        close(Some(receipt(waiting(claim_of(OWN), Prior::Nothing, Some(job(0))), Due::Never))),
        "done closed"
    );
    assert_eq!(close(Some(receipt(dead_status(Prior::Nothing), Due::Never))), "done closed");
    assert_eq!(close(Some(receipt(done_status(), Due::In(DAY)))), "nothing");
    assert_eq!(close(Some(receipt(closed_status(), Due::In(DAY)))), "nothing");
    assert_eq!(close(Some(held_receipt(OnUnknown::Hold, None, Due::In(DAY)))), "conflict");
    assert_eq!(close(Some(receipt(unknown_status(None), Due::Never))), "conflict");
}

#[test]
fn the_dead_are_tried_again_unless_an_outcome_is_unknown() {
    let again = retry(&receipt(dead_status(Prior::Nothing), Due::Never)).unwrap();
    assert_eq!(show(again.as_ref()), "waiting Nothing 0/0 for 0ns");
    assert!(retry(&receipt(dead_status(Prior::Unknown), Due::Never)).is_err());
    assert_eq!(retry(&receipt(done_status(), Due::Never)).unwrap(), None);
}

#[test]
fn an_expired_lease_is_unknown_or_dead() {
    let over = Due::Over(DAY);
    let found = held_receipt(OnUnknown::Hold, Some(job(2)), over);
    assert_eq!(show(lapse(&found).as_ref()), "unknown");
    let found = held_receipt(
        OnUnknown::Retry,
        Some(Arc::new(Job { started: 3, finished: 1, ..Job::clone(&job(3)) })),
        over,
    );
    let dead = exhaust(&found).unwrap();
    assert_eq!(show(Some(&dead)), "dead Nothing 3/1");
    let note = &dead.status.job().unwrap().note;
    assert!(note.starts_with("2 of 3 tries ended without a word"), "{note}");
    assert_eq!(exhaust(&held_receipt(OnUnknown::Retry, None, over)), None);
    assert_eq!(lapse(&receipt(done_status(), over)), None);
}

#[test]
fn an_unknown_outcome_that_nobody_settles_is_given_up_and_is_not_retried() {
    let hour = Duration::from_hours(1);
    let aged = |status: Status, updated| Receipt {
        age: Age { created: DAY, updated },
        ..receipt(status, Due::Never)
    };
    assert_eq!(give_up_unknown(&aged(unknown_status(None), Duration::from_secs(3_599)), hour), None);
    for (job_of, shown) in [(None, "dead Unknown no job"), (Some(job(2)), "dead Unknown 2/0")] {
        let dead = give_up_unknown(&aged(unknown_status(job_of), hour), hour).unwrap();
        assert_eq!(show(Some(&dead)), shown);
        let dead = receipt(dead.status, Due::Never);
        assert!(dead.status.note().contains("nobody settled it within 3600s"), "{}", dead.status.note());
        assert!(retry(&dead).is_err(), "it may have taken effect");
        let policy = policy(OnUnknown::Hold);
        assert!(settle(&id(), &dead, &Settlement::NotDone, &policy).unwrap().is_some());
    }
    // What was sent may still take effect: too early, whatever is configured.
    let Status::Unknown(unknown) = unknown_status(None) else { unreachable!() };
    let late = Status::Unknown(Unknown { late_effect_max: DAY, ..unknown });
    assert_eq!(give_up_unknown(&aged(late, hour), hour), None);
    assert_eq!(give_up_unknown(&aged(done_status(), DAY), hour), None);
}

#[test]
fn a_run_without_input_keeps_the_reason_of_its_unknown_outcome() {
    let ending = Ending::Unknown(UnknownReason::Reported, "the service answered 504".into());
    let run = held(OnUnknown::Hold, Prior::Nothing, None);
    let unknown = end(&id(), &run, &ending, &policy(OnUnknown::Hold)).unwrap();
    assert_eq!(unknown.status.note(), "the service answered 504");
}

#[test]
fn notes_are_one_short_line_of_text() {
    assert_eq!(clean_note("a\nb\0c\u{1b}[31m"), "a b c [31m");
    let long = clean_note(&"ü".repeat(1_000));
    assert!(long.len() <= NOTE_BYTES_MAX && long.chars().all(|letter| letter == 'ü'));
}

const OWN: Attempt = Attempt(1);
const OTHER: Attempt = Attempt(2);

fn every_run() -> Vec<(String, Held, Policy)> {
    let rules = [
        ("hold", OnUnknown::Hold, OnUnknown::Hold),
        ("hold", OnUnknown::Hold, OnUnknown::Retry),
        ("retry", OnUnknown::Retry, OnUnknown::Retry),
    ];
    let priors = [("fresh", Prior::Nothing), ("settled", Prior::Settled), ("doubtful", Prior::Unknown)];
    let jobs = [("no-job", None), ("tries-left", Some(2)), ("last-try", Some(TRIES))];
    let mut all = Vec::new();
    for (rule_word, claimed, by_policy) in rules {
        for (prior_word, prior) in priors {
            for (job_word, started) in jobs {
                let job = started
                    .map(|started| Arc::new(Job { finished: started - 1, ..Job::clone(&job(started)) }));
                let words = format!("{rule_word} {prior_word} {job_word}");
                all.push((words, held(claimed, prior, job), policy(by_policy)));
            }
        }
    }
    all
}

fn every_ending() -> [(&'static str, Ending); 4] {
    [
        ("done", Ending::Done(Outcome::succeeded("ok"))),
        ("release", Ending::Release("refused".into())),
        ("doubt", Ending::Unknown(UnknownReason::Reported, "no answer".into())),
        ("suspend", Ending::Suspend(Duration::from_secs(9))),
    ]
}

fn every_found() -> Vec<(String, Option<Receipt>)> {
    let mut all = vec![("absent".to_owned(), None)];
    let gone = Status::Gone(Gone { fence: Fence(1) });
    all.push(("gone".to_owned(), Some(receipt(gone, Due::Never))));
    for (whose, attempt) in [("own", OWN), ("foreign", OTHER)] {
        let claim = claim_of(attempt);
        let done = |end| Status::Done(Done { claim, end, tombstone: None, job: None });
        for (word, status) in [
            ("held", Status::Held(Held { claim, ..held(OnUnknown::Hold, Prior::Nothing, None) })),
            ("done-same", done(End::Outcome(Outcome::succeeded("ok")))),
            ("done-other", done(End::Outcome(Outcome::succeeded("settled")))),
            ("closed", done(End::Closed(Closed::Undone))),
            (
                "unknown",
                Status::Unknown(Unknown {
                    claim,
                    reason: UnknownReason::LeaseEnded,
                    prior: Prior::Nothing,
                    late_effect_max: Duration::ZERO,
                    note: String::new(),
                    job: None,
                }),
            ),
            ("waiting", waiting(claim, Prior::Nothing, None)),
            (
                "dead",
                Status::Dead(Dead { claim, prior: Prior::Nothing, note: String::new(), job: Some(job(5)) }),
            ),
        ] {
            all.push((format!("{whose} {word}"), Some(receipt(status, Due::Never))));
        }
    }
    all
}

fn holds(pattern: &str, words: &str) -> bool {
    pattern.split_whitespace().all(|word| words.split_whitespace().any(|have| have == word))
}

fn show(write: Option<&Write>) -> String {
    let Some(Write { status, due_in }) = write else { return "absent".into() };
    let tries = |job: &Job| format!("{}/{}", job.started, job.finished);
    let pause = match due_in {
        None => "ever".to_owned(),
        Some(DAY) => "a day".to_owned(),
        Some(pause) => format!("{pause:?}"),
    };
    match status {
        Status::Waiting(Waiting { prior, job: None, .. }) => format!("waiting {prior:?} for {pause}"),
        Status::Waiting(Waiting { prior, job: Some(job), .. }) => {
            format!("waiting {prior:?} {} for {pause}", tries(job))
        }
        Status::Dead(dead) => {
            assert_eq!(*due_in, None, "the dead do not end by themselves");
            format!("dead {:?} {}", dead.prior, dead.job.as_deref().map_or("no job".into(), tries))
        }
        Status::Done(Done { end: End::Outcome(_), .. }) => "done outcome".into(),
        Status::Done(Done { end: End::Closed(_), .. }) => "done closed".into(),
        Status::Unknown(_) => {
            assert_eq!(*due_in, None, "an unknown outcome does not expire");
            "unknown".into()
        }
        Status::Held(_) => "held".into(),
        Status::Gone(_) => "gone".into(),
    }
}

fn id() -> Id {
    Id::new("scope", "operation", "key").unwrap()
}

fn policy(on_unknown: OnUnknown) -> Policy {
    Policy::http()
        .to_builder()
        .with_on_unknown(on_unknown)
        .with_tries_max(TRIES)
        .with_backoff(Backoff::new(Duration::from_secs(1), DAY))
        .with_on_duplicate(OnDuplicate::Conflict)
        .build()
        .unwrap()
}

fn ask(on_unknown: OnUnknown) -> Ask {
    Ask::new(id(), same(), Arc::new(policy(on_unknown)))
}

fn same() -> Fingerprint {
    Fingerprint::of(b"same")
}

fn claim_of(attempt: Attempt) -> Claim {
    Claim { fingerprint: same(), attempt, fence: Fence(3) }
}

fn job(started: u16) -> Arc<Job> {
    Arc::new(Job { started, ..Job::new(Bytes::from_static(b"input")) })
}

fn held(on_unknown: OnUnknown, prior: Prior, job: Option<Arc<Job>>) -> Held {
    let late_effect_max = Duration::ZERO;
    Held { claim: claim_of(OWN), on_unknown, owner: Owner::Run, prior, late_effect_max, job }
}

fn held_receipt(on_unknown: OnUnknown, job: Option<Arc<Job>>, due: Due) -> Receipt {
    receipt(Status::Held(held(on_unknown, Prior::Nothing, job)), due)
}

fn unknown_status(job: Option<Arc<Job>>) -> Status {
    let (reason, prior, note) = (UnknownReason::Reported, Prior::Nothing, String::new());
    let (claim, late_effect_max) = (claim_of(OWN), Duration::ZERO);
    Status::Unknown(Unknown { claim, reason, prior, late_effect_max, note, job })
}

fn dead_status(prior: Prior) -> Status {
    Status::Dead(Dead { claim: claim_of(OWN), prior, note: String::new(), job: Some(job(TRIES)) })
}

fn done_status() -> Status {
    let end = End::Outcome(Outcome::succeeded("ok"));
    Status::Done(Done { claim: claim_of(OWN), end, tombstone: None, job: None })
}

fn closed_status() -> Status {
    Status::Done(Done { claim: claim_of(OWN), end: End::Closed(Closed::Undone), tombstone: None, job: None })
}

fn receipt(status: Status, due: Due) -> Receipt {
    Receipt { version: Version(9), due, age: Age::default(), status }
}
