//! Every cell of the protocol's table. Rows are data: what is found, what is asked, what is decided. The
//! test walks all combinations and wants exactly one row for each.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::fingerprint::Fingerprint;
use crate::id::Id;
use crate::outcome::Outcome;
use crate::policy::{OnFailure, Policy, Retention};
use crate::receipt::Job;
use crate::receipt::{
    Attempt, Claim, Dead, Fence, Gone, Held, Owner, Prior, Unknown, UnknownReason, Waiting,
};
use crate::store::{Age, Version};

/// `found` and `asker` are patterns: each word must hold. The asker's words are `wait|conflict`,
/// `hold|retry`, `burn|again` (failures), `forget|refuse` (expired keys), `intent|step`.
const TABLE: &[(&str, &str, &str)] = &[
    // found                        asker      decision
    ("absent", "", "run absent"),
    ("held alive same own", "", "run own"),
    ("held alive same foreign", "wait", "wait 7s"),
    ("held alive same foreign", "conflict", "refuse in-progress 5s"),
    ("held alive other own", "", "refuse key-reused"),
    ("held alive other foreign", "", "refuse key-reused"),
    ("held over other own", "", "refuse key-reused"),
    ("held over other foreign", "", "refuse key-reused"),
    ("held over same claimed-retry tries-left", "retry", "run lapsed"),
    ("held over same claimed-retry no-job", "retry", "run lapsed"),
    ("held over same claimed-retry tries-used-up", "retry", "refuse dead"),
    ("held over same own claimed-retry", "hold", "refuse unknown"),
    ("held over same foreign claimed-retry", "hold", "refuse unknown"),
    ("held over same own claimed-hold", "", "refuse unknown"),
    ("held over same foreign claimed-hold", "", "refuse unknown"),
    ("done kept succeeded same", "", "replay"),
    ("done kept succeeded other", "", "refuse key-reused"),
    ("done kept failed same", "", "replay"),
    ("done kept failed other", "", "refuse key-reused"),
    ("done kept omitted-succeeded same", "", "refuse not-stored succeeded"),
    ("done kept omitted-succeeded other", "", "refuse key-reused"),
    ("done kept omitted-failed same", "", "refuse not-stored failed"),
    ("done kept omitted-failed other", "", "refuse key-reused"),
    ("done kept closed", "", "refuse closed cancelled"),
    ("done expired", "intent forget", "run expired"),
    ("done expired", "intent refuse", "refuse key-expired"),
    ("done expired succeeded same", "step", "replay"),
    ("done expired failed same", "step", "replay"),
    ("done expired omitted-succeeded same", "step", "refuse not-stored succeeded"),
    ("done expired omitted-failed same", "step", "refuse not-stored failed"),
    ("done expired succeeded other", "step", "refuse key-reused"),
    ("done expired failed other", "step", "refuse key-reused"),
    ("done expired omitted-succeeded other", "step", "refuse key-reused"),
    ("done expired omitted-failed other", "step", "refuse key-reused"),
    ("done expired closed", "step", "refuse closed cancelled"),
    ("dead same", "", "refuse dead"),
    ("dead other", "", "refuse key-reused"),
    ("waiting same certain", "", "run waiting"),
    ("waiting same uncertain", "retry", "run waiting"),
    ("waiting same uncertain", "hold", "refuse unknown"),
    ("waiting other", "", "refuse key-reused"),
    ("unknown same", "", "refuse unknown"),
    ("unknown other", "", "refuse key-reused"),
    ("gone standing", "forget", "run expired"),
    ("gone standing", "refuse", "refuse key-expired"),
    ("gone crumbled", "", "run expired"),
];

#[test]
fn every_cell_has_one_row_and_decides_by_it() {
    let mut used = BTreeSet::new();
    let mut cells = 0;
    for (found_words, receipt) in every_found() {
        for (asker_words, ask) in every_asker() {
            let rows: Vec<_> = TABLE
                .iter()
                .filter(|(found, asker, _)| holds(found, &found_words) && holds(asker, &asker_words))
                .collect();
            let cell = format!("found '{found_words}', asked by '{asker_words}'");
            assert_eq!(rows.len(), 1, "{cell}: {} rows", rows.len());
            assert_eq!(show(&decide(&ask, receipt.as_ref())), rows[0].2, "{cell}");
            used.insert(rows[0]);
            cells += 1;
        }
    }
    assert_eq!(used.len(), TABLE.len(), "some rows are never reached");
    assert!(cells > 3_000, "only {cells} cells were walked");
}

#[test]
fn a_fingerprint_of_an_older_version_is_recognised() {
    let older = Fingerprint::new(0, [7; 32]);
    let receipt = receipt_of(Status::Unknown(unknown(claim(older, FOREIGN), UnknownReason::Reported)));
    let ask = Ask::new(id(), Fingerprint::new(1, [8; 32]), Arc::new(Policy::http()));
    assert_eq!(decide(&ask, Some(&receipt)), Decision::Refuse(Refusal::KeyReused));
    let ask = ask.with_older_fingerprints([older]);
    assert_eq!(decide(&ask, Some(&receipt)), Decision::Refuse(Refusal::OutcomeUnknown));
}

const OWN: Attempt = Attempt(1);
const FOREIGN: Attempt = Attempt(2);

fn every_found() -> Vec<(String, Option<Receipt>)> {
    let mut all = vec![("absent".to_owned(), None)];
    let mut add = |words: String, due: Due, status: Status| {
        all.push((words, Some(Receipt { version: Version(9), due, age: Age::default(), status })));
    };
    let alive = Due::In(Duration::from_secs(5));
    let over = Due::Over(Duration::from_secs(5));
    for (print_word, print) in [("same", same()), ("other", Fingerprint::of(b"other"))] {
        for (own_word, attempt) in [("own", OWN), ("foreign", FOREIGN)] {
            for (rule_word, on_unknown) in
                [("claimed-hold", OnUnknown::Hold), ("claimed-retry", OnUnknown::Retry)]
            {
                for (due_word, due) in [("alive", alive), ("over", over)] {
                    for (job_word, job) in
                        [("no-job", None), ("tries-left", Some(job(4))), ("tries-used-up", Some(job(5)))]
                    {
                        let held = Held {
                            claim: claim(print, attempt),
                            on_unknown,
                            owner: Owner::Run,
                            prior: Prior::Nothing,
                            late_effect_max: Duration::ZERO,
                            job,
                        };
                        add(
                            format!("held {due_word} {print_word} {own_word} {rule_word} {job_word}"),
                            due,
                            Status::Held(held),
                        );
                    }
                }
            }
            for (due_word, due) in [("early", alive), ("ready", over), ("unhurried", Due::Never)] {
                let priors = [
                    ("certain", Prior::Nothing),
                    ("certain settled", Prior::Settled),
                    ("uncertain", Prior::Unknown),
                ];
                for (prior_word, prior) in priors {
                    let waiting = Waiting {
                        claim: claim(print, attempt),
                        prior,
                        late_effect_max: Duration::ZERO,
                        job: Some(job(1)),
                    };
                    add(
                        format!("waiting {due_word} {print_word} {own_word} {prior_word}"),
                        due,
                        Status::Waiting(waiting),
                    );
                }
            }
            let dead = Dead {
                claim: claim(print, attempt),
                prior: Prior::Nothing,
                on_unknown: OnUnknown::Hold,
                late_effect_max: Duration::ZERO,
                note: String::new(),
                job: Some(job(5)),
            };
            add(format!("dead {print_word} {own_word}"), Due::Never, Status::Dead(dead));
            for (outcome_word, end) in [
                ("succeeded", End::Outcome(Outcome::succeeded("x"))),
                ("failed", End::Outcome(Outcome::failed("x"))),
                ("omitted-succeeded", End::Outcome(Outcome::omitted(Verdict::Succeeded, "x"))),
                ("omitted-failed", End::Outcome(Outcome::omitted(Verdict::Failed, "x"))),
                ("closed", End::Closed(Closed::Cancelled)),
            ] {
                for (due_word, due) in [("kept", alive), ("kept forever", Due::Never), ("expired", over)] {
                    let claim = claim(print, attempt);
                    let done = Done { claim, end: end.clone(), tombstone: None, job: None };
                    add(
                        format!("done {due_word} {print_word} {own_word} {outcome_word}"),
                        due,
                        Status::Done(done),
                    );
                }
            }
            let unknown = unknown(claim(print, attempt), UnknownReason::LeaseEnded);
            add(format!("unknown {print_word} {own_word}"), Due::Never, Status::Unknown(unknown));
        }
    }
    for (due_word, due) in [("standing", alive), ("standing forever", Due::Never), ("crumbled", over)] {
        add(format!("gone {due_word}"), due, Status::Gone(Gone { fence: Fence(3) }));
    }
    all
}

fn every_asker() -> Vec<(String, Ask)> {
    let mut all = Vec::new();
    for (wait_word, on_duplicate) in
        [("wait", OnDuplicate::Wait(Duration::from_secs(7))), ("conflict", OnDuplicate::Conflict)]
    {
        for (hold_word, on_unknown) in [("hold", OnUnknown::Hold), ("retry", OnUnknown::Retry)] {
            for (burn_word, on_failure) in [("burn", OnFailure::Replay), ("again", OnFailure::Retry)] {
                for (late_word, on_expired) in
                    [("forget", OnExpired::Run), ("refuse", OnExpired::Refuse(Retention::Forever))]
                {
                    let policy = Policy::http()
                        .to_builder()
                        .with_on_unknown(on_unknown)
                        .with_on_failure(on_failure)
                        .build()
                        .unwrap();
                    let policy = policy
                        .to_builder()
                        .with_on_duplicate(on_duplicate)
                        .with_on_expired(on_expired)
                        .build()
                        .unwrap();
                    let policy = Arc::new(policy);
                    for (id_word, id) in [("intent", id()), ("step", id().step("email").unwrap())] {
                        let ask = Ask::new(id, same(), policy.clone()).with_attempt(OWN);
                        all.push((format!("{wait_word} {hold_word} {burn_word} {late_word} {id_word}"), ask));
                    }
                }
            }
        }
    }
    all
}

fn holds(pattern: &str, words: &str) -> bool {
    pattern.split_whitespace().all(|word| words.split_whitespace().any(|have| have == word))
}

fn show(decision: &Decision) -> String {
    match decision {
        Decision::Run(takeover) => format!("run {takeover:?}").to_lowercase(),
        Decision::Wait { at_most } => format!("wait {at_most:?}"),
        Decision::Replay => "replay".into(),
        Decision::Refuse(Refusal::KeyReused) => "refuse key-reused".into(),
        Decision::Refuse(Refusal::InProgress { retry_after }) => {
            format!("refuse in-progress {retry_after:?}")
        }
        Decision::Refuse(Refusal::OutcomeUnknown) => "refuse unknown".into(),
        Decision::Refuse(Refusal::ResponseNotStored { verdict, .. }) => {
            format!("refuse not-stored {verdict:?}").to_lowercase()
        }
        Decision::Refuse(Refusal::KeyExpired) => "refuse key-expired".into(),
        Decision::Refuse(Refusal::Dead { .. }) => "refuse dead".into(),
        Decision::Refuse(Refusal::Closed(closed)) => format!("refuse closed {closed:?}").to_lowercase(),
    }
}

fn id() -> Id {
    Id::new("scope", "operation", "key").unwrap()
}

fn same() -> Fingerprint {
    Fingerprint::of(b"same")
}

fn claim(fingerprint: Fingerprint, attempt: Attempt) -> Claim {
    Claim { fingerprint, attempt, fence: Fence(3), tries: 1 }
}

fn job(started: u16) -> Arc<Job> {
    Arc::new(Job { started, ..Job::new(Bytes::from_static(b"input")) })
}

fn unknown(claim: Claim, reason: UnknownReason) -> Unknown {
    let (prior, note) = (Prior::Nothing, String::new());
    Unknown { claim, reason, prior, late_effect_max: Duration::ZERO, note, job: None }
}

fn receipt_of(status: Status) -> Receipt {
    Receipt { version: Version(9), due: Due::Never, age: Age::default(), status }
}
