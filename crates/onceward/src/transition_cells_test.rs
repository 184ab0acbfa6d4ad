//! Every cell of what claims, what is enqueued and what expires.

use super::*;
use crate::outcome::Verdict;

const PRIORS: [(&str, Prior); 3] =
    [("fresh", Prior::Nothing), ("settled", Prior::Settled), ("uncertain", Prior::Unknown)];

fn jobs() -> [(&'static str, Option<Arc<Job>>); 2] {
    [("no-job", None), ("job", Some(job(1)))]
}

/// The only row whose patterns fit the words of a cell.
fn row<'a, const N: usize>(table: &'a [[&'a str; N]], words: &str) -> (usize, &'a [&'a str; N]) {
    let fits = |row: &&[&str; N]| row[..N - 1].iter().all(|pattern| holds(pattern, words));
    let fitting: Vec<_> = table.iter().enumerate().filter(|(_, row)| fits(row)).collect();
    assert_eq!(fitting.len(), 1, "'{words}': {} rows", fitting.len());
    fitting[0]
}

/// What is taken over, what was found, and what the ask brings along: the prior of the claim, the number of its try, and
/// whose job it is.
const CLAIMS: &[[&str; 4]] = &[
    // takeover     found               ask          becomes
    ["absent", "", "input", "Nothing, try 1 of its own"],
    ["absent", "", "no-input", "Nothing, no job"],
    ["expired", "", "input", "Nothing, try 1 of its own"],
    ["expired", "", "no-input", "Nothing, no job"],
    ["waiting", "fresh job", "", "Nothing, try 2 of the job found"],
    ["waiting", "settled job", "", "Settled, try 2 of the job found"],
    ["waiting", "uncertain job", "", "Unknown, try 2 of the job found"],
    ["waiting", "fresh no-job", "input", "Nothing, try 1 of its own"],
    ["waiting", "settled no-job", "input", "Settled, try 1 of its own"],
    ["waiting", "uncertain no-job", "input", "Unknown, try 1 of its own"],
    ["waiting", "fresh no-job", "no-input", "Nothing, no job"],
    ["waiting", "settled no-job", "no-input", "Settled, no job"],
    ["waiting", "uncertain no-job", "no-input", "Unknown, no job"],
    // Whatever was known before: the run that lapsed may have had its effect.
    ["lapsed", "job", "", "Unknown, try 2 of the job found"],
    ["lapsed", "no-job", "input", "Unknown, try 1 of its own"],
    ["lapsed", "no-job", "no-input", "Unknown, no job"],
    // It was counted when it was claimed; what the ask brings along was kept then.
    ["own", "fresh job", "", "Nothing, try 1 of the job found, same fence"],
    ["own", "settled job", "", "Settled, try 1 of the job found, same fence"],
    ["own", "uncertain job", "", "Unknown, try 1 of the job found, same fence"],
    ["own", "fresh no-job", "", "Nothing, no job, same fence"],
    ["own", "settled no-job", "", "Settled, no job, same fence"],
    ["own", "uncertain no-job", "", "Unknown, no job, same fence"],
    // It was counted, and never began.
    ["owed", "fresh job", "", "Nothing, try 1 of the job found"],
    ["owed", "settled job", "", "Settled, try 1 of the job found"],
    ["owed", "uncertain job", "", "Unknown, try 1 of the job found"],
    ["owed", "fresh no-job", "input", "Nothing, try 1 of its own"],
    ["owed", "settled no-job", "input", "Settled, try 1 of its own"],
    ["owed", "uncertain no-job", "input", "Unknown, try 1 of its own"],
    ["owed", "fresh no-job", "no-input", "Nothing, no job"],
    ["owed", "settled no-job", "no-input", "Settled, no job"],
    ["owed", "uncertain no-job", "no-input", "Unknown, no job"],
];

#[test]
fn every_claim_on_what_was_found() {
    let (mut used, mut cells) = (BTreeSet::new(), 0);
    for (words, takeover, found) in every_takeover() {
        for (input_word, input) in [("input", Some("new input")), ("no-input", None)] {
            for (rule, owner) in [(OnUnknown::Retry, Owner::Run), (OnUnknown::Retry, Owner::Ticket)] {
                let mut asked = ask(rule).with_attempt(OWN);
                asked.input = input.map(|input| Bytes::from_static(input.as_bytes()));
                if takeover != Takeover::Owed {
                    assert_eq!(decide(&asked, found.as_ref()), Decision::Run(takeover), "{words}");
                }
                let words = format!("{words} {input_word}");
                let (at, row) = row(CLAIMS, &words);
                let held = claim(&asked, OWN, owner, takeover, found.as_ref());
                assert_eq!(show_claim(&held), row[3], "{words}");
                assert_eq!((held.claim.attempt, held.claim.fingerprint), (OWN, same()), "{words}");
                assert_eq!((held.on_unknown, held.owner), (rule, owner), "{words}");
                used.insert(at);
                cells += 1;
            }
        }
    }
    assert_eq!(used.len(), CLAIMS.len(), "some rows are never reached");
    assert_eq!(cells, (1 + 4 + 6 + 6 + 6 + 12) * 4);
}

fn every_takeover() -> Vec<(String, Takeover, Option<Receipt>)> {
    let mut all = vec![("absent".to_owned(), Takeover::Absent, None)];
    let gone = Status::Gone(Gone { fence: Fence(1) });
    for due in [Due::Over(DAY), Due::In(DAY)] {
        all.push(("expired gone".into(), Takeover::Expired, Some(receipt(gone.clone(), due))));
    }
    for (job_word, job) in jobs() {
        let done = Done { job: job.clone(), ..done_of(OTHER, End::Outcome(Outcome::succeeded("ok"))) };
        let done = receipt(Status::Done(done), Due::Over(DAY));
        all.push((format!("expired done {job_word}"), Takeover::Expired, Some(done)));
        for (prior_word, prior) in PRIORS {
            let words = |takeover: &str| format!("{takeover} {prior_word} {job_word}");
            let held_by =
                |attempt| Held { claim: claim_of(attempt), ..held(OnUnknown::Retry, prior, job.clone()) };
            let waits = waiting_status(claim_of(OTHER), prior, job.clone());
            all.push((words("waiting"), Takeover::Waiting, Some(receipt(waits, Due::Over(DAY)))));
            let lapsed = receipt(Status::Held(held_by(OTHER)), Due::Over(DAY));
            all.push((words("lapsed"), Takeover::Lapsed, Some(lapsed)));
            let own = receipt(Status::Held(held_by(OWN)), Due::In(DAY));
            all.push((words("own"), Takeover::Own, Some(own)));
            let Held { claim, late_effect_max, .. } = held_by(OTHER);
            let reason = UnknownReason::LeaseEnded;
            let unknown =
                Unknown { claim, reason, prior, late_effect_max, note: String::new(), job: job.clone() };
            for owed in [Status::Held(held_by(OTHER)), Status::Unknown(unknown)] {
                all.push((words("owed"), Takeover::Owed, Some(receipt(owed, Due::In(DAY)))));
            }
        }
    }
    all
}

fn show_claim(held: &Held) -> String {
    let job = held.job.as_deref().map_or("no job".to_owned(), |job| {
        let whose = if job.input == "new input" { "its own" } else { "the job found" };
        format!("try {} of {whose}", job.started)
    });
    let fence = if held.claim.fence == FENCE_IS_VERSION { "" } else { ", same fence" };
    format!("{:?}, {job}{fence}", held.prior)
}

/// What enqueueing makes of what is there.
const ENQUEUES: &[[&str; 3]] = &[
    // found                        ask         becomes
    ["absent", "", "waiting Nothing 0/0 for 9s"],
    ["gone over", "", "waiting Nothing 0/0 for 9s"],
    ["gone alive", "run-expired", "waiting Nothing 0/0 for 9s"],
    ["gone alive", "refuse-expired", "refused: KeyExpired"],
    ["done over", "run-expired", "waiting Nothing 0/0 for 9s"],
    ["done over", "refuse-expired", "refused: KeyExpired"],
    ["done alive closed", "", "already done"],
    ["done alive outcome same", "", "already done"],
    ["done alive outcome other", "", "refused: KeyReused"],
    ["waiting same job", "", "already waiting"],
    // Nobody had left anything to do: now there is.
    ["waiting same no-job fresh", "", "waiting Nothing 0/0 for 9s"],
    ["waiting same no-job settled", "", "waiting Settled 0/0 for 9s"],
    ["waiting same no-job uncertain", "", "waiting Unknown 0/0 for 9s"],
    ["waiting other", "", "refused: KeyReused"],
    ["held same", "", "already held"],
    ["held other", "", "refused: KeyReused"],
    ["unknown same", "", "already unknown"],
    ["unknown other", "", "refused: KeyReused"],
    ["dead same", "", "already dead"],
    ["dead other", "", "refused: KeyReused"],
];

#[test]
fn every_enqueue_on_what_was_found() {
    let (mut used, mut cells) = (BTreeSet::new(), 0);
    for (words, found) in every_found_of_enqueue() {
        for (expired_word, on_expired) in
            [("run-expired", OnExpired::Run), ("refuse-expired", OnExpired::Refuse(Retention::For(DAY)))]
        {
            for rule in [OnUnknown::Hold, OnUnknown::Retry] {
                let policy = policy(rule).to_builder().with_on_expired(on_expired).build().unwrap();
                let asked = Ask::new(id(), same(), Arc::new(policy));
                let asked = asked.with_input("new input").with_delay(Duration::from_secs(9));
                let words = format!("{words} {expired_word}");
                let (at, row) = row(ENQUEUES, &words);
                let decision = decide(&asked, found.as_ref());
                let shown = match enqueue(&asked, &decision, found.as_ref()) {
                    Enqueue::Write(write) => {
                        assert_eq!(write.status.job().unwrap().input, "new input", "{words}");
                        show(Some(&write))
                    }
                    Enqueue::AlreadyThere(state) => format!("already {state}"),
                    Enqueue::Refused(refusal) => format!("refused: {refusal:?}"),
                };
                assert_eq!(shown, row[2], "{words}");
                used.insert(at);
                cells += 1;
            }
        }
    }
    assert_eq!(used.len(), ENQUEUES.len(), "some rows are never reached");
    assert_eq!(cells, (1 + 2 + 2 * (12 + 8 + 8 + 1 + 3)) * 4);
}

fn every_found_of_enqueue() -> Vec<(String, Option<Receipt>)> {
    let mut all = vec![("absent".to_owned(), None)];
    let mut add = |words: String, status, due| all.push((words, Some(receipt(status, due))));
    let dues = [("alive", Due::In(DAY)), ("over", Due::Over(DAY))];
    for (due_word, due) in dues {
        add(format!("gone {due_word}"), Status::Gone(Gone { fence: Fence(1) }), due);
    }
    for (print_word, fingerprint) in [("same", same()), ("other", Fingerprint::of(b"other"))] {
        let claim = Claim { fingerprint, ..claim_of(OTHER) };
        for (due_word, due) in dues {
            for (prior_word, prior) in PRIORS {
                for (job_word, job) in jobs() {
                    let words = format!("waiting {due_word} {print_word} {prior_word} {job_word}");
                    add(words, waiting_status(claim, prior, job), due);
                }
            }
            for (rule_word, rule) in [("hold", OnUnknown::Hold), ("retry", OnUnknown::Retry)] {
                for (job_word, job) in jobs() {
                    let held = Held { claim, ..held(rule, Prior::Nothing, job) };
                    add(
                        format!("held {due_word} {print_word} {rule_word} {job_word}"),
                        Status::Held(held),
                        due,
                    );
                }
            }
            for (end_word, end) in [
                ("outcome", End::Outcome(Outcome::succeeded("ok"))),
                ("outcome", End::Outcome(Outcome::failed("no"))),
                ("outcome", End::Outcome(Outcome::omitted(Verdict::Succeeded, "large"))),
                ("closed", End::Closed(Closed::Cancelled)),
            ] {
                let done = Status::Done(Done { claim, ..done_of(OTHER, end) });
                add(format!("done {due_word} {print_word} {end_word}"), done, due);
            }
        }
        let Status::Unknown(unknown) = unknown_status(None) else { unreachable!("made as such") };
        add(format!("unknown {print_word}"), Status::Unknown(Unknown { claim, ..unknown }), Due::Never);
        for (prior_word, prior) in PRIORS {
            let Status::Dead(dead) = dead_status(prior) else { unreachable!("made as such") };
            add(format!("dead {print_word} {prior_word}"), Status::Dead(Dead { claim, ..dead }), Due::Never);
        }
    }
    all
}

/// What becomes of a receipt that a sweep looks at.
const EXPIRES: &[[&str; 2]] = &[
    ["not-due", "keep"],
    ["over done plain intent", "remove"],
    ["over done plain step", "remove with parent"],
    ["over done day", "gone for a day"],
    ["over done forever", "gone forever"],
    ["over gone intent", "remove"],
    ["over gone step", "remove with parent"],
    ["over held hold", "unknown forever"],
    // Its fingerprint guards the key until the next ask takes it over, or nobody has come for it for long.
    ["over held retry job", "keep"],
    ["over held retry no-job young", "keep"],
    ["over held retry no-job old intent", "remove"],
    ["over held retry no-job old step", "remove with parent"],
    ["over waiting job", "keep"],
    ["over waiting no-job intent", "remove"],
    ["over waiting no-job step", "remove with parent"],
    ["over unknown", "keep"],
    ["over dead", "keep"],
];

#[test]
fn every_expiry_of_what_is_due() {
    let (mut used, mut cells) = (BTreeSet::new(), 0);
    let ids = [("intent", id()), ("step", id().step("email").unwrap())];
    let dues = [("over", Due::Over(DAY)), ("not-due", Due::In(DAY)), ("not-due", Due::Never)];
    for (status_words, status) in every_status() {
        for (id_word, id) in &ids {
            for (due_word, due) in dues {
                for (age_word, abandoned_after) in [("young", DAY * 2), ("old", DAY)] {
                    let words = format!("{due_word} {status_words} {id_word} {age_word}");
                    let (at, row) = row(EXPIRES, &words);
                    let shown = match expire(id, &receipt(status.clone(), due), abandoned_after) {
                        Expiry::Keep => "keep".to_owned(),
                        Expiry::Remove => "remove".to_owned(),
                        Expiry::RemoveWithParent => "remove with parent".to_owned(),
                        Expiry::Become(Write { status, due_in }) => {
                            let due_in = due_in.map_or("forever".to_owned(), |due_in| {
                                assert_eq!(due_in, DAY, "{words}");
                                "for a day".to_owned()
                            });
                            format!("{} {due_in}", status.state())
                        }
                    };
                    assert_eq!(shown, row[1], "{words}");
                    used.insert(at);
                    cells += 1;
                }
            }
        }
    }
    assert_eq!(used.len(), EXPIRES.len(), "some rows are never reached");
    assert_eq!(cells, (6 + 1 + 12 + 6 + 2 + 3) * 2 * 3 * 2);
}

fn every_status() -> Vec<(String, Status)> {
    let mut all = vec![("gone".to_owned(), Status::Gone(Gone { fence: Fence(1) }))];
    for (word, tombstone) in
        [("plain", None), ("day", Some(Retention::For(DAY))), ("forever", Some(Retention::Forever))]
    {
        for end in [End::Outcome(Outcome::succeeded("ok")), End::Closed(Closed::Undone)] {
            all.push((format!("done {word}"), Status::Done(Done { tombstone, ..done_of(OWN, end) })));
        }
    }
    for (job_word, job) in jobs() {
        for (prior_word, prior) in PRIORS {
            for (rule_word, rule) in [("hold", OnUnknown::Hold), ("retry", OnUnknown::Retry)] {
                let held = Status::Held(held(rule, prior, job.clone()));
                all.push((format!("held {rule_word} {job_word} {prior_word}"), held));
            }
            let waits = waiting_status(claim_of(OWN), prior, job.clone());
            all.push((format!("waiting {job_word} {prior_word}"), waits));
        }
        all.push((format!("unknown {job_word}"), unknown_status(job)));
    }
    for (prior_word, prior) in PRIORS {
        all.push((format!("dead {prior_word}"), dead_status(prior)));
    }
    all
}

fn done_of(attempt: Attempt, end: End) -> Done {
    Done { claim: claim_of(attempt), end, tombstone: None, job: None }
}
