//! Every cell of the protocol's table. Rows are data: what is found, who asks, what comes of it. The
//! test walks all combinations and wants exactly one row for each.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::fingerprint::Fingerprint;
use crate::id::Id;
use crate::outcome::Outcome;
use crate::policy::{Policy, Retention};
use crate::receipt::{Attempt, Claim, Done, Doubt, Fence, Gone, Held, Unknown};
use crate::store::Version;

/// `found` and `asker` are patterns: each word must hold. The asker's words are `wait|conflict`,
/// `hold|retry`, `burn|again` (failures), `forget|refuse` (expired keys).
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
    ("held over same own claimed-retry", "retry", "run lapsed"),
    ("held over same foreign claimed-retry", "retry", "run lapsed"),
    ("held over same own claimed-retry", "hold", "refuse unknown"),
    ("held over same foreign claimed-retry", "hold", "refuse unknown"),
    ("held over same own claimed-hold", "", "refuse unknown"),
    ("held over same foreign claimed-hold", "", "refuse unknown"),
    ("done kept succeeded same", "", "replay"),
    ("done kept succeeded other", "", "refuse key-reused"),
    ("done kept failed same", "burn", "replay"),
    ("done kept failed same", "again", "run failed"),
    ("done kept failed other", "", "refuse key-reused"),
    ("done kept omitted-succeeded same", "", "refuse not-stored succeeded"),
    ("done kept omitted-succeeded other", "", "refuse key-reused"),
    ("done kept omitted-failed same", "burn", "refuse not-stored failed"),
    ("done kept omitted-failed same", "again", "run failed"),
    ("done kept omitted-failed other", "", "refuse key-reused"),
    ("done expired", "forget", "run expired"),
    ("done expired", "refuse", "refuse key-expired"),
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
    assert!(cells > 400, "only {cells} cells were walked");
}

#[test]
fn a_fingerprint_of_an_older_version_is_recognised() {
    let older = Fingerprint::new(0, [7; 32]);
    let receipt =
        receipt_of(Status::Unknown(Unknown { claim: claim(older, FOREIGN), doubt: Doubt::Reported }));
    let ask = Ask::new(id(), Fingerprint::new(1, [8; 32]), Arc::new(Policy::http()));
    assert_eq!(decide(&ask, Some(&receipt)), Decision::Refuse(Refusal::KeyReused));
    let ask = ask.also([older]);
    assert_eq!(decide(&ask, Some(&receipt)), Decision::Refuse(Refusal::OutcomeUnknown));
}

const OWN: Attempt = Attempt(1);
const FOREIGN: Attempt = Attempt(2);

fn every_found() -> Vec<(String, Option<Receipt>)> {
    let mut all = vec![("absent".to_owned(), None)];
    let mut add = |words: String, due: Due, status: Status| {
        all.push((words, Some(Receipt { version: Version(9), due, status })));
    };
    let alive = Due::In(Duration::from_secs(5));
    let over = Due::Over(Duration::from_secs(5));
    for (print_word, print) in [("same", same()), ("other", Fingerprint::of(b"other"))] {
        for (own_word, attempt) in [("own", OWN), ("foreign", FOREIGN)] {
            for (rule_word, on_unknown) in
                [("claimed-hold", OnUnknown::Hold), ("claimed-retry", OnUnknown::Retry)]
            {
                for (due_word, due) in [("alive", alive), ("over", over)] {
                    let held = Held { claim: claim(print, attempt), on_unknown };
                    add(
                        format!("held {due_word} {print_word} {own_word} {rule_word}"),
                        due,
                        Status::Held(held),
                    );
                }
            }
            for (outcome_word, outcome) in [
                ("succeeded", Outcome::succeeded("x")),
                ("failed", Outcome::failed("x")),
                ("omitted-succeeded", Outcome::omitted(Verdict::Succeeded, "x")),
                ("omitted-failed", Outcome::omitted(Verdict::Failed, "x")),
            ] {
                for (due_word, due) in [("kept", alive), ("kept for-ever", Due::Never), ("expired", over)] {
                    let done =
                        Done { claim: claim(print, attempt), outcome: outcome.clone(), tombstone: None };
                    add(
                        format!("done {due_word} {print_word} {own_word} {outcome_word}"),
                        due,
                        Status::Done(done),
                    );
                }
            }
            let unknown = Unknown { claim: claim(print, attempt), doubt: Doubt::LeaseEnded };
            add(format!("unknown {print_word} {own_word}"), Due::Never, Status::Unknown(unknown));
        }
    }
    for (due_word, due) in [("standing", alive), ("standing for-ever", Due::Never), ("crumbled", over)] {
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
                    let policy = Policy::http().on_unknown(on_unknown).on_failure(on_failure);
                    let policy = policy.on_duplicate(on_duplicate).unwrap().on_expired(on_expired).unwrap();
                    let ask = Ask::new(id(), same(), Arc::new(policy)).attempt(OWN);
                    all.push((format!("{wait_word} {hold_word} {burn_word} {late_word}"), ask));
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
    }
}

fn id() -> Id {
    Id::new("scope", "operation", "key").unwrap()
}

fn same() -> Fingerprint {
    Fingerprint::of(b"same")
}

fn claim(fingerprint: Fingerprint, attempt: Attempt) -> Claim {
    Claim { fingerprint, attempt, fence: Fence(3) }
}

fn receipt_of(status: Status) -> Receipt {
    Receipt { version: Version(9), due: Due::Never, status }
}
