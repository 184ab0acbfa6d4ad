//! Every cell of the writing half of the protocol. Rows are data: what is there, what happens, what it becomes. Each
//! test walks all combinations and wants exactly one row for each.

#[path = "transition_cells_test.rs"]
mod cells;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::ask::Ask;
use crate::codec::FENCE_IS_VERSION;
use crate::decide::{Decision, Takeover, decide};
use crate::fingerprint::Fingerprint;
use crate::id::Id;
use crate::outcome::Outcome;
use crate::policy::{Backoff, KeepInput, OnDuplicate, OnExpired, OnFailure, OnUnknown, Policy, Retention};
use crate::receipt::{
    Attempt, Claim, Closed, Dead, Done, End, Fence, Gone, Held, Job, Owner, Prior, Receipt, Unknown,
    UnknownReason, Waiting,
};
use crate::store::{Age, Due, Found, State, Version};

const TRIES: u16 = 3;
const DAY: Duration = Duration::from_hours(24);

/// `run` and `ending` are patterns: each word must hold. The run's words are `hold|retry` (both its claim and the
/// policy say retry), `fresh|settled|uncertain` (what is known of earlier runs), `no-job|tries-left|last-try`.
const ENDS: &[(&str, &str, &str)] = &[
    // run                      ending      becomes
    ("", "done", "done outcome"),
    ("hold", "reported", "unknown"),
    ("hold uncertain", "release", "unknown"),
    ("retry uncertain no-job", "release", "waiting Unknown for a day"),
    ("retry uncertain tries-left", "release", "waiting Unknown 2/2 for 2s"),
    ("retry uncertain last-try", "release", "dead Unknown 3/3"),
    ("settled no-job", "release", "waiting Settled for a day"),
    ("settled tries-left", "release", "waiting Settled 2/2 for 2s"),
    ("hold settled last-try", "release", "dead Settled 3/3"),
    ("retry settled last-try", "release", "dead Nothing 3/3"),
    ("fresh no-job", "release", "absent"),
    ("fresh tries-left", "release", "waiting Nothing 2/2 for 2s"),
    ("fresh last-try", "release", "dead Nothing 3/3"),
    ("retry no-job", "reported", "waiting Unknown for a day"),
    ("retry tries-left", "reported", "waiting Unknown 2/2 for 2s"),
    ("retry last-try", "reported", "dead Unknown 3/3"),
    ("fresh no-job", "suspend", "absent"),
    ("settled no-job", "suspend", "waiting Settled for a day"),
    ("uncertain no-job", "suspend", "waiting Unknown for a day"),
    ("fresh tries-left", "suspend", "waiting Nothing 1/1 for 9s"),
    ("settled tries-left", "suspend", "waiting Settled 1/1 for 9s"),
    ("uncertain tries-left", "suspend", "waiting Unknown 1/1 for 9s"),
    ("fresh last-try", "suspend", "waiting Nothing 2/2 for 9s"),
    ("settled last-try", "suspend", "waiting Settled 2/2 for 9s"),
    ("uncertain last-try", "suspend", "waiting Unknown 2/2 for 9s"),
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
            let ended = end(&id(), &held, &ending, &policy);
            assert_eq!(show(ended.as_ref()), fitting[0].2, "{cell}");
            let copy = |write: Option<&Write>| write.cloned();
            let mut lent = ending.clone();
            let looked = look_at_end(&id(), &held, &mut lent, &policy, copy);
            let both = format!("{:?}", (looked, lent));
            assert_eq!(both, format!("{:?}", (ended, ending)), "{cell}: without a copy");
            used.insert(fitting[0]);
            cells += 1;
        }
    }
    assert_eq!(used.len(), ENDS.len(), "some rows are never reached");
    assert_eq!(cells, 3 * 3 * 3 * 4);
}

/// A try that is dropped with its worker does not count; where unknown outcomes are held, it is one.
#[test]
fn a_dropped_try_does_not_count() {
    for (words, held, policy) in every_run() {
        let dropped = Finish::Unknown(UnknownReason::Dropped, "it was dropped".into());
        let expected = match words.split_whitespace().collect::<Vec<_>>()[..] {
            ["hold", ..] => "unknown",
            [_, _, "no-job"] => "waiting Unknown for a day",
            [_, _, "tries-left"] => "waiting Unknown 1/1 for 2s",
            _ => "waiting Unknown 2/2 for 4s",
        };
        assert_eq!(show(end(&id(), &held, &dropped, &policy).as_ref()), expected, "{words}");
    }
}

/// What the owner's write that lost means: `found` is a pattern over what is there now.
const AFTER_LOSS: &[(&str, &str, &str)] = &[
    // found                    ending      then
    ("absent", "done", "fenced off"),
    ("absent", "reported", "fenced off"),
    ("absent", "release", "recorded"),
    ("absent", "suspend", "recorded"),
    ("foreign", "", "fenced off"),
    ("own held", "", "write again"),
    ("own done-same", "done", "recorded"),
    ("own done-same", "release", "fenced off"),
    ("own done-same", "reported", "fenced off"),
    ("own done-same", "suspend", "fenced off"),
    ("own done-other", "", "fenced off"),
    ("own closed", "", "fenced off"),
    ("own unknown", "done", "write again"),
    ("own unknown", "release", "write again"),
    ("own unknown", "suspend", "write again"),
    ("own unknown", "reported", "recorded"),
    ("own waiting", "done", "write again"),
    ("own waiting", "release", "recorded"),
    ("own waiting", "reported", "recorded"),
    ("own waiting", "suspend", "recorded"),
    ("own dead", "done", "write again"),
    ("own dead", "release", "recorded"),
    ("own dead", "reported", "recorded"),
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
fn an_input_is_dropped_when_it_is_done_unless_it_is_kept() {
    let run = held(OnUnknown::Hold, Prior::Nothing, Some(job(1)));
    let done = Finish::Done(Outcome::succeeded("ok"));
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
    assert!(matches!(Finish::of(Outcome::failed("no"), &keeps), Finish::Done(_)));
    assert!(matches!(Finish::of(Outcome::succeeded("yes"), &keeps), Finish::Done(_)));
    let retries = keeps.to_builder().with_on_failure(OnFailure::Retry).build().unwrap();
    assert!(Finish::of(Outcome::failed("no"), &retries).is_release());
    assert!(!Finish::of(Outcome::succeeded("yes"), &retries).is_release());
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
        (
            "waiting",
            receipt(waiting_status(claim_of(OWN), Prior::Nothing, None), Due::Never),
            "nothing",
            "nothing",
        ),
        (
            "waiting, unknown",
            receipt(waiting_status(claim_of(OWN), Prior::Unknown, Some(job(2))), Due::Never),
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
    let late = Duration::from_secs(60);
    let (policy, retried) = (policy(OnUnknown::Hold), policy(OnUnknown::Retry));
    let run = Held { late_effect_max: late, ..held(OnUnknown::Retry, Prior::Nothing, Some(job(TRIES))) };
    let reported = Finish::Unknown(UnknownReason::Reported, "no answer".into());
    // Its last try has just become unknown.
    let ended_dead = end(&id(), &run, &reported, &retried).unwrap().status;
    let lapsed_dead = exhaust(&receipt(Status::Held(run.clone()), Due::Over(DAY))).unwrap().status;
    assert!(matches!((&ended_dead, &lapsed_dead), (Status::Dead(_), Status::Dead(_))));
    let first_try = Held { job: Some(job(1)), ..run.clone() };
    let waits = end(&id(), &first_try, &reported, &retried).unwrap().status;
    let without_input = Held { job: None, ..run.clone() };
    let waits_for_an_ask = end(&id(), &without_input, &reported, &retried).unwrap().status;
    let Ok(Some(Write { status: tried_again, .. })) = retry(&receipt(ended_dead.clone(), Due::Never)) else {
        panic!("an intent whose tries are repeated may be retried")
    };
    for waiting in [&waits, &waits_for_an_ask, &tried_again] {
        assert!(matches!(waiting, Status::Waiting(_)), "{waiting:?}");
    }
    let Status::Unknown(unknown) = unknown_status(None) else { unreachable!() };
    let unknown = Status::Unknown(Unknown { late_effect_max: late, ..unknown });
    let lapsed = Status::Held(Held { on_unknown: OnUnknown::Hold, ..without_input });
    let at = |status: &Status, since: Duration| Receipt {
        age: Age { updated: since, created: DAY },
        ..receipt(status.clone(), Due::Over(since))
    };
    for status in [&unknown, &lapsed, &ended_dead, &lapsed_dead, &waits, &waits_for_an_ask, &tried_again] {
        for (since, is_early) in [(Duration::ZERO, true), (Duration::from_secs(59), true), (late, false)] {
            let found = at(status, since);
            let not_done = settle(&id(), &found, &Settlement::NotDone, &policy);
            assert_eq!(not_done.is_err(), is_early, "{found:?}");
            if let Err(error) = not_done {
                let left = format!("may still take effect for {:?}", late.saturating_sub(since));
                assert!(error.to_string().contains(&left), "{error}");
            }
            assert!(settle(&id(), &found, &Settlement::ForceNotDone, &policy).unwrap().is_some());
        }
    }
}

#[test]
fn a_claim_allows_for_what_an_earlier_one_can_still_do() {
    let late = Duration::from_secs(60);
    let ask = ask(OnUnknown::Retry);
    let run = Held { late_effect_max: late, ..held(OnUnknown::Retry, Prior::Nothing, None) };
    let lapsed = receipt(Status::Held(run.clone()), Due::Over(DAY));
    let reported = Finish::Unknown(UnknownReason::Reported, String::new());
    let waits = end(&id(), &run, &reported, &ask.policy).unwrap().status;
    let waits = receipt(waits, Due::Over(DAY));
    for (takeover, found) in [(Takeover::Lapsed, &lapsed), (Takeover::Waiting, &waits)] {
        let second = claim(&ask, OTHER, Owner::Run, takeover, Some(found));
        assert_eq!((second.late_effect_max, second.claim.tries), (late, 2), "{takeover:?}");
    }
    // What is settled as not done can take no effect any more.
    let forced = settle(&id(), &waits, &Settlement::ForceNotDone, &policy(OnUnknown::Hold)).unwrap().unwrap();
    let forced = receipt(forced.status, Due::Never);
    let second = claim(&ask, OTHER, Owner::Run, Takeover::Waiting, Some(&forced));
    assert_eq!(second.late_effect_max, Duration::ZERO);
}

#[test]
fn tries_are_counted_where_nothing_carries_the_input() {
    let ask = ask(OnUnknown::Hold);
    let first = claim(&ask, OWN, Owner::Run, Takeover::Absent, None);
    assert_eq!(first.claim.tries, 1);
    let own = receipt(Status::Held(first.clone()), Due::In(DAY));
    assert_eq!(claim(&ask, OWN, Owner::Run, Takeover::Own, Some(&own)).claim.tries, 1);
    let lapsed = receipt(Status::Held(first), Due::Over(DAY));
    let settled = settle(&id(), &lapsed, &Settlement::NotDone, &ask.policy).unwrap().unwrap();
    let settled = receipt(settled.status, Due::Never);
    let second = claim(&ask, OTHER, Owner::Run, Takeover::Waiting, Some(&settled));
    let outcome = Finish::Done(Outcome::succeeded("paid"));
    let done = end(&id(), &second, &outcome, &ask.policy).unwrap();
    assert_eq!(done.status.claim().unwrap().tries, 2);
    // After its retention it is another intent.
    let expired = receipt(done.status, Due::Over(DAY));
    assert_eq!(claim(&ask, OWN, Owner::Run, Takeover::Expired, Some(&expired)).claim.tries, 1);
    // An enqueued one has no try until it is claimed.
    let ask = ask.with_input("input");
    let Enqueue::Write(write) = enqueue(&ask, &Decision::Run(Takeover::Absent), None) else { panic!() };
    assert_eq!(write.status.claim().unwrap().tries, 0);
    let waits = receipt(write.status, Due::Over(DAY));
    assert_eq!(claim(&ask, OWN, Owner::Run, Takeover::Waiting, Some(&waits)).claim.tries, 1);
}

/// What closing makes of each receipt, by the reason.
const CLOSES: &[(&str, &str, &str, &str)] = &[
    // found                undone         cancelled      discarded
    ("absent", "done closed", "done closed", "done closed"),
    ("gone", "done closed", "done closed", "done closed"),
    ("waiting Nothing", "done closed", "done closed", "done closed"),
    ("waiting Settled", "done closed", "done closed", "done closed"),
    ("waiting Unknown", "conflict", "done closed", "done closed"),
    // One of a previous version does not say whether a try under `Retry` may have taken effect.
    ("dead Nothing", "conflict", "done closed", "done closed"),
    ("dead Settled", "conflict", "done closed", "done closed"),
    ("dead Unknown", "conflict", "done closed", "done closed"),
    ("done", "nothing", "nothing", "nothing"),
    ("closed", "nothing", "nothing", "nothing"),
    ("held", "conflict", "conflict", "conflict"),
    ("unknown", "conflict", "conflict", "conflict"),
];

#[test]
fn only_what_cannot_have_taken_effect_is_undone_by_closing() {
    let policy = policy(OnUnknown::Hold);
    let mut all = vec![
        ("absent".to_owned(), None),
        ("gone".to_owned(), Some(Status::Gone(Gone { fence: Fence(1) }))),
        ("done".to_owned(), Some(done_status())),
        ("closed".to_owned(), Some(closed_status())),
        ("held".to_owned(), Some(Status::Held(held(OnUnknown::Hold, Prior::Nothing, None)))),
        ("unknown".to_owned(), Some(unknown_status(None))),
    ];
    for prior in [Prior::Nothing, Prior::Settled, Prior::Unknown] {
        all.push((format!("waiting {prior:?}"), Some(waiting_status(claim_of(OWN), prior, Some(job(0))))));
        all.push((format!("dead {prior:?}"), Some(dead_status(prior))));
    }
    assert_eq!(all.len(), CLOSES.len());
    for (words, status) in all {
        let found = status.map(|status| receipt(status, Due::Never));
        let row = CLOSES.iter().find(|(found, ..)| *found == words).expect("a row for each");
        let reasons = [(Closed::Undone, row.1), (Closed::Cancelled, row.2), (Closed::Discarded, row.3)];
        for (why, expected) in reasons {
            let closed = match close(&id(), found.as_ref(), why, &policy) {
                Ok(Some(write)) => show(Some(&write)),
                Ok(None) => "nothing".into(),
                Err(error) => format!("{:?}", error.kind()).to_lowercase(),
            };
            assert_eq!(closed, expected, "{words}, closed as {why}");
        }
    }
}

#[test]
fn an_outcome_contradicts_what_was_settled_about_its_own_run() {
    let run = claim_of(OWN);
    let done = Finish::Done(Outcome::succeeded("ok"));
    let settled_held = |attempt| {
        Status::Held(Held { claim: claim_of(attempt), ..held(OnUnknown::Hold, Prior::Settled, None) })
    };
    let more = [
        ("own settled-waiting".to_owned(), Some(waiting_status(claim_of(OWN), Prior::Settled, None))),
        ("foreign settled-waiting".to_owned(), Some(waiting_status(claim_of(OTHER), Prior::Settled, None))),
        ("own settled-dead".to_owned(), Some(dead_status(Prior::Settled))),
        ("own settled-held".to_owned(), Some(settled_held(OWN))),
        ("foreign settled-held".to_owned(), Some(settled_held(OTHER))),
    ];
    let more = more.map(|(words, status)| (words, status.map(|status| receipt(status, Due::Never))));
    let contradicted: Vec<_> = every_found()
        .into_iter()
        .chain(more)
        .filter(|(_, found)| found.as_ref().is_some_and(|found| is_settled_otherwise(&run, &done, found)))
        .map(|(words, _)| words)
        .collect();
    let expected =
        ["own done-other", "own closed", "own settled-waiting", "own settled-dead", "foreign settled-held"];
    assert_eq!(contradicted, expected);
    // Only an outcome can contradict.
    for (word, ending) in every_ending().into_iter().filter(|(word, _)| *word != "done") {
        for (words, found) in every_found() {
            let settled = found.is_some_and(|found| is_settled_otherwise(&run, &ending, &found));
            assert!(!settled, "found '{words}', ending with {word}");
        }
    }
}

#[test]
fn only_what_waits_for_its_time_is_started_now() {
    let found = |status, due| receipt(status, due);
    let waits = |job: Option<Arc<Job>>| waiting_status(claim_of(OWN), Prior::Unknown, job);
    for (status, due, expected) in [
        (waits(Some(job(2))), Due::In(DAY), "waiting Unknown 2/0 for 0ns"),
        (waits(Some(job(2))), Due::Never, "waiting Unknown 2/0 for 0ns"),
        (waits(Some(job(2))), Due::Over(Duration::ZERO), "absent"),
        // Its due time is the end of what is remembered, and no worker begins it.
        (waits(None), Due::In(DAY), "absent"),
        (Status::Held(held(OnUnknown::Retry, Prior::Nothing, Some(job(1)))), Due::In(DAY), "absent"),
        (done_status(), Due::In(DAY), "absent"),
        (unknown_status(Some(job(1))), Due::Never, "absent"),
        (dead_status(Prior::Nothing), Due::Never, "absent"),
        (Status::Gone(Gone { fence: Fence(1) }), Due::In(DAY), "absent"),
    ] {
        let found = found(status, due);
        assert_eq!(show(start_now(&found).as_ref()), expected, "{found:?}");
    }
}

#[test]
fn what_waits_after_an_unknown_outcome_is_held_for_settlement_and_nothing_else_is() {
    let policy = policy(OnUnknown::Hold);
    for job in [None, Some(job(2))] {
        let found = receipt(waiting_status(claim_of(OWN), Prior::Unknown, job.clone()), Due::In(DAY));
        let write = hold_unknown(&found, &policy).expect("it is held");
        let Status::Unknown(unknown) = &write.status else { panic!("it is {:?}", write.status) };
        assert_eq!((unknown.claim, unknown.prior), (claim_of(OWN), Prior::Unknown));
        assert_eq!((unknown.reason, &unknown.job), (UnknownReason::Reported, &job));
        assert_eq!((unknown.late_effect_max, write.due_in), (policy.late_effect_max(), None));
    }
    for status in [
        waiting_status(claim_of(OWN), Prior::Nothing, Some(job(2))),
        waiting_status(claim_of(OWN), Prior::Settled, None),
        Status::Held(held(OnUnknown::Hold, Prior::Unknown, None)),
        unknown_status(None),
        dead_status(Prior::Unknown),
        done_status(),
        closed_status(),
        Status::Gone(Gone { fence: Fence(1) }),
    ] {
        assert_eq!(hold_unknown(&receipt(status.clone(), Due::Never), &policy), None, "{status:?}");
    }
}

#[test]
fn a_step_is_of_a_former_run_if_it_was_done_before_that_run_and_is_over() {
    let expired = receipt(done_status(), Due::Over(DAY));
    let over = Due::Over(Duration::ZERO);
    for (state, due, version, expected) in [
        (State::Done, over, 8, true),
        // Recorded by a run that has claimed the intent since, or not over yet.
        (State::Done, over, 9, false),
        (State::Done, over, 10, false),
        (State::Done, Due::In(DAY), 8, false),
        (State::Done, Due::Never, 8, false),
        // Without an outcome, what is known of it still counts.
        (State::Held, over, 8, false),
        (State::Waiting, over, 8, false),
        (State::Unknown, over, 8, false),
        (State::Dead, over, 8, false),
        (State::Gone, over, 8, false),
    ] {
        let age = Age::default();
        let step = Found { version: Version(version), state, due, age, bytes: Bytes::new() };
        assert_eq!(is_of_former_run(&step, &expired), expected, "{step:?}");
    }
}

#[test]
fn an_unknown_outcome_is_forgotten_when_nothing_can_still_happen() {
    let late = |age: Duration| {
        let Status::Unknown(unknown) = unknown_status(Some(job(1))) else { unreachable!() };
        let status = Status::Unknown(Unknown { late_effect_max: DAY, ..unknown });
        Receipt { age: Age { updated: age, ..Age::default() }, ..receipt(status, Due::Never) }
    };
    assert!(forget_unknown(&receipt(unknown_status(None), Due::Never)).is_ok());
    assert!(forget_unknown(&late(DAY)).is_ok());
    assert!(forget_unknown(&late(DAY / 2)).is_err());
    for status in [
        waiting_status(claim_of(OWN), Prior::Unknown, None),
        Status::Held(held(OnUnknown::Hold, Prior::Unknown, None)),
        dead_status(Prior::Unknown),
        done_status(),
        closed_status(),
        Status::Gone(Gone { fence: Fence(1) }),
    ] {
        assert!(forget_unknown(&receipt(status.clone(), Due::Over(DAY))).is_err(), "{status:?}");
    }
}

#[test]
fn the_dead_are_tried_again_unless_an_outcome_is_unknown() {
    let again = retry(&receipt(dead_status(Prior::Nothing), Due::Never)).unwrap();
    assert_eq!(show(again.as_ref()), "waiting Nothing 0/0 for 0ns");
    assert!(retry(&receipt(dead_status(Prior::Unknown), Due::Never)).is_err());
    // Where tries are repeated it may be, and what undoes it still knows that it may have taken effect.
    let Status::Dead(dead) = dead_status(Prior::Unknown) else { unreachable!() };
    let repeated = receipt(Status::Dead(Dead { on_unknown: OnUnknown::Retry, ..dead }), Due::Never);
    let again = retry(&repeated).unwrap();
    assert_eq!(show(again.as_ref()), "waiting Unknown 0/0 for 0ns");
    let again = receipt(again.unwrap().status, Due::Over(DAY));
    assert!(close(&id(), Some(&again), Closed::Undone, &policy(OnUnknown::Retry)).is_err());
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
    assert_eq!(show(Some(&dead)), "dead Unknown 3/1");
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
        assert!(dead.status.note().contains("it was not settled within 3600s"), "{}", dead.status.note());
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
    let ending = Finish::Unknown(UnknownReason::Reported, "the service answered 504".into());
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
    let priors = [("fresh", Prior::Nothing), ("settled", Prior::Settled), ("uncertain", Prior::Unknown)];
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

fn every_ending() -> [(&'static str, Finish); 4] {
    [
        ("done", Finish::Done(Outcome::succeeded("ok"))),
        ("release", Finish::Release("refused".into())),
        ("reported", Finish::Unknown(UnknownReason::Reported, "no answer".into())),
        ("suspend", Finish::Suspend(Duration::from_secs(9))),
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
            ("waiting", waiting_status(claim, Prior::Nothing, None)),
            (
                "dead",
                Status::Dead(Dead {
                    claim,
                    prior: Prior::Nothing,
                    on_unknown: OnUnknown::Hold,
                    late_effect_max: Duration::ZERO,
                    note: String::new(),
                    job: Some(job(5)),
                }),
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
    Claim { fingerprint: same(), attempt, fence: Fence(3), tries: 1 }
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
    let (on_unknown, late_effect_max, note) = (OnUnknown::Hold, Duration::ZERO, String::new());
    let (claim, job) = (claim_of(OWN), Some(job(TRIES)));
    Status::Dead(Dead { claim, prior, on_unknown, late_effect_max, note, job })
}

fn waiting_status(claim: Claim, prior: Prior, job: Option<Arc<Job>>) -> Status {
    Status::Waiting(Waiting { claim, prior, late_effect_max: Duration::ZERO, job })
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
