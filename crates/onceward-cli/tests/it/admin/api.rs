//! The receipts API, one endpoint after the other.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use onceward::{Ask, Claimed, Fingerprint, Id, Lease, Onceward, Outcome, Policy, Stopped, Worker};
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::process::{Answer, Process, eventually};

fn claim(process: &Process, key: &str, more: &Value) -> Answer {
    let mut asked = json!({"scope": "acme", "operation": "charge", "key": key, "fingerprint": "12 EUR"});
    for (name, value) in more.as_object().unwrap() {
        asked[name] = value.clone();
    }
    process.post("/v1/claim", &asked)
}

/// A claim that must be granted.
fn granted(process: &Process, key: &str, more: &Value) -> Value {
    let answer = claim(process, key, more);
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(answer.json()["claimed"], true);
    answer.json()
}

fn show(process: &Process, key: &str) -> Answer {
    process.get(&format!("/v1/receipt?scope=acme&operation=charge&key={key}"))
}

fn settle(process: &Process, key: &str, more: &Value) -> Answer {
    let mut asked = json!({"scope": "acme", "operation": "charge", "key": key});
    for (name, value) in more.as_object().unwrap() {
        asked[name] = value.clone();
    }
    process.post("/v1/settle", &asked)
}

#[test]
fn a_claim_is_completed_and_replayed_also_by_the_next_process() {
    let folder = tempdir().unwrap();
    let process = Process::serve(folder.path());
    let won = granted(&process, "k", &json!({}));
    assert_eq!(won["lease_ms"], 30_000);
    let ticket = &won["ticket"];
    assert_eq!(process.post("/v1/renew", &json!({ "ticket": ticket })).status, 204);
    assert_eq!(show(&process, "k").json()["state"], "held");
    let complete = json!({"ticket": ticket, "outcome": {"verdict": "succeeded", "body": "charged, Grüße"}});
    assert_eq!(process.post("/v1/complete", &complete).status, 204);
    assert_eq!(process.post("/v1/complete", &complete).status, 204, "the same again");
    let mut other = complete.clone();
    other["outcome"]["body"] = "charged twice".into();
    let refused = process.post("/v1/complete", &other);
    assert_eq!(refused.problem(), (409, "not-yours".into()));
    assert_eq!(refused.json()["receipt"]["state"], "done");
    process.kill();

    let process = Process::serve(folder.path());
    let replay = claim(&process, "k", &json!({}));
    assert_eq!(replay.status, 200, "{replay:?}");
    let replay = replay.json();
    assert_eq!((&replay["claimed"], &replay["fence"]), (&json!(false), &won["fence"]));
    assert_eq!(replay["outcome"], json!({"verdict": "succeeded", "body": "charged, Grüße"}));
    let left = replay["expires_in_ms"].as_u64().unwrap();
    assert!((1..=24 * 3_600_000).contains(&left), "{left}");
    let other = claim(&process, "k", &json!({"fingerprint": "13 EUR"}));
    assert_eq!(other.problem(), (422, "key-reused".into()));
}

#[test]
fn a_duplicate_of_a_running_claim_is_refused_or_waits() {
    let folder = tempdir().unwrap();
    let process = Process::serve(folder.path());
    let won = granted(&process, "k", &json!({}));
    let refused = claim(&process, "k", &json!({}));
    assert_eq!(refused.problem(), (409, "in-progress".into()));
    assert!(refused.field("retry-after").is_some());
    assert_eq!(claim(&process, "k", &json!({"wait_ms": 30})).problem(), (409, "in-progress".into()));
    let answers: Vec<Answer> = thread::scope(|scope| {
        let waiting: Vec<_> =
            (0..8).map(|_| scope.spawn(|| claim(&process, "k", &json!({"wait_ms": 60_000})))).collect();
        let complete = json!({"ticket": won["ticket"], "outcome": {"verdict": "failed", "body": "declined"}});
        assert_eq!(process.post("/v1/complete", &complete).status, 204);
        waiting.into_iter().map(|waiting| waiting.join().unwrap()).collect()
    });
    for answer in answers {
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json()["outcome"], json!({"verdict": "failed", "body": "declined"}));
    }
}

#[test]
fn one_of_many_simultaneous_claims_is_granted() {
    let folder = tempdir().unwrap();
    let process = Process::serve(folder.path());
    let answers: Vec<Answer> = thread::scope(|scope| {
        let asking: Vec<_> = (0..32).map(|_| scope.spawn(|| claim(&process, "k", &json!({})))).collect();
        asking.into_iter().map(|asking| asking.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1, "{answers:?}");
    for answer in answers.iter().filter(|answer| answer.status != 201) {
        assert_eq!(answer.problem(), (409, "in-progress".into()));
    }
}

#[test]
fn a_claim_repeated_after_a_lost_answer_is_granted_again() {
    let folder = tempdir().unwrap();
    let process = Process::serve(folder.path());
    let attempt = json!({"attempt": "8e03978e-40d5-43e8-bc93-6894a57f9324"});
    let first = granted(&process, "k", &attempt);
    let again = granted(&process, "k", &attempt);
    assert_eq!((&first["ticket"], &first["fence"]), (&again["ticket"], &again["fence"]));
    let other = json!({"attempt": "00000000-40d5-43e8-bc93-6894a57f9324"});
    assert_eq!(claim(&process, "k", &other).problem(), (409, "in-progress".into()));
}

#[test]
fn a_released_claim_runs_again_with_a_higher_fence() {
    let folder = tempdir().unwrap();
    let process = Process::serve(folder.path());
    let first = granted(&process, "k", &json!({}));
    let ticket = json!({"ticket": first["ticket"]});
    assert_eq!(process.post("/v1/release", &ticket).status, 204);
    assert_eq!(show(&process, "k").problem(), (404, "no-receipt".into()));
    let second = granted(&process, "k", &json!({}));
    assert!(second["fence"].as_u64() > first["fence"].as_u64());
    for verb in ["renew", "release", "unknown"] {
        let refused = process.post(&format!("/v1/{verb}"), &ticket);
        assert_eq!(refused.problem(), (409, "not-yours".into()), "{verb}");
        assert_eq!(refused.json()["receipt"]["fence"], second["fence"], "{verb}");
    }
}

#[test]
fn a_lapsed_lease_is_unknown_or_taken_over_by_policy() {
    let folder = tempdir().unwrap();
    let process = Process::serve(folder.path());
    let hold = json!({"policy": {"lease_ms": 20}});
    granted(&process, "hold", &hold);
    eventually("the lease of the first ends", || {
        (claim(&process, "hold", &hold).problem() == (409, "outcome-unknown".into())).then_some(())
    });
    let shown = show(&process, "hold").json();
    assert_eq!((&shown["state"], &shown["reason"]), (&json!("unknown"), &json!("lease_ended")));

    let retry = json!({"policy": {"lease_ms": 20, "on_unknown": "retry"}});
    let first = granted(&process, "retry", &retry);
    let second = eventually("the lease of the first ends", || {
        let answer = claim(&process, "retry", &retry);
        (answer.status == 201).then(|| answer.json())
    });
    assert!(second["fence"].as_u64() > first["fence"].as_u64());
    let late = json!({"ticket": first["ticket"], "outcome": {"verdict": "succeeded"}});
    assert_eq!(process.post("/v1/complete", &late).problem(), (409, "not-yours".into()));
}

#[test]
fn a_restart_takes_no_claim_from_its_owner() {
    let folder = tempdir().unwrap();
    let process = Process::serve(folder.path());
    let ticket = &granted(&process, "k", &json!({"policy": {"lease_ms": 600_000}}))["ticket"];
    process.kill();
    let process = Process::serve(folder.path());
    assert_eq!(claim(&process, "k", &json!({})).problem(), (409, "in-progress".into()));
    assert_eq!(process.post("/v1/renew", &json!({ "ticket": ticket })).status, 204);
    let complete = json!({"ticket": ticket, "outcome": {"verdict": "succeeded", "body": "charged"}});
    assert_eq!(process.post("/v1/complete", &complete).status, 204);
    assert_eq!(claim(&process, "k", &json!({})).json()["outcome"]["body"], "charged");
}

#[test]
fn an_unknown_outcome_is_settled_once_and_only_for_the_run_with_its_fence() {
    let folder = tempdir().unwrap();
    let process = Process::serve(folder.path());
    let first = granted(&process, "k", &json!({}));
    let fence = &first["fence"];
    let done = json!({"fence": fence, "done": {"verdict": "succeeded", "body": "charged"}});
    assert_eq!(settle(&process, "k", &done).problem(), (409, "still-running".into()));
    assert_eq!(process.post("/v1/unknown", &json!({"ticket": first["ticket"]})).status, 204);
    assert_eq!(show(&process, "k").json()["reason"], "reported");
    assert_eq!(claim(&process, "k", &json!({})).problem(), (409, "outcome-unknown".into()));

    let other_run = json!({"fence": fence.as_u64().unwrap() + 1, "not_done": true});
    assert_eq!(settle(&process, "k", &other_run).problem(), (409, "not-unknown".into()));
    for nonsense in [
        json!({"fence": fence}),
        json!({"fence": fence, "not_done": true, "done": done["done"]}),
        json!({"fence": fence, "done": done["done"], "force": true}),
        json!({"fence": fence, "force": true}),
    ] {
        assert_eq!(settle(&process, "k", &nonsense).problem(), (400, "invalid-request".into()));
    }
    assert_eq!(settle(&process, "k", &done).status, 204);
    assert_eq!(settle(&process, "k", &done).status, 204, "the same again");
    assert_eq!(claim(&process, "k", &json!({})).json()["outcome"]["body"], "charged");
    let not_done = json!({"fence": fence, "not_done": true});
    assert_eq!(settle(&process, "k", &not_done).problem(), (409, "not-unknown".into()));
    assert_eq!(settle(&process, "absent", &not_done).problem(), (404, "no-receipt".into()));

    // What was sent cannot take effect late here: the claim says so.
    let second = granted(&process, "again", &json!({"policy": {"late_effect_max_ms": 0}}));
    assert_eq!(process.post("/v1/unknown", &json!({"ticket": second["ticket"]})).status, 204);
    let not_done = json!({"fence": second["fence"], "not_done": true});
    assert_eq!(settle(&process, "again", &not_done).status, 204);
    assert_eq!(settle(&process, "again", &not_done).status, 204, "the same again");
    let shown = show(&process, "again").json();
    assert_eq!((&shown["state"], &shown["prior"]), (&json!("waiting"), &json!("settled")));
    granted(&process, "again", &json!({}));
    let metrics = process.get("/metrics").body;
    assert!(metrics.contains("onceward_settlements_total{found=\"done\"} 1"), "{metrics}");
    assert!(metrics.contains("onceward_settlements_total{found=\"not_done\"} 1"), "{metrics}");
}

/// The request may still take effect, so settling it as not done is refused without `force`.
#[test]
fn an_effect_that_may_still_happen_is_settled_as_not_done_only_with_force() {
    let folder = tempdir().unwrap();
    prepare(folder.path(), async |onceward| {
        let policy =
            Policy::http().to_builder().with_late_effect_max(Duration::from_secs(600)).build().unwrap();
        for key in ["k", "l"] {
            let Claimed::Granted(ticket) = onceward.claim(ask(key, &policy)).await.unwrap() else { panic!() };
            onceward.mark_unknown(&ticket).await.unwrap();
        }
    });
    let process = Process::serve(folder.path());
    // A claim that says nothing about it has a minute.
    let silent = granted(&process, "silent", &json!({}));
    assert_eq!(process.post("/v1/unknown", &json!({"ticket": silent["ticket"]})).status, 204);
    let too_soon = settle(&process, "silent", &json!({"fence": silent["fence"], "not_done": true}));
    assert_eq!(too_soon.problem(), (409, "may-still-happen".into()));
    let fence = show(&process, "k").json()["fence"].clone();
    let refused = settle(&process, "k", &json!({"fence": fence, "not_done": true}));
    assert_eq!(refused.problem(), (409, "may-still-happen".into()));
    assert!(refused.body.contains("may still take effect for"), "{refused:?}");
    assert_eq!(show(&process, "k").json()["state"], "unknown");
    let forced = json!({"fence": fence, "not_done": true, "force": true});
    assert_eq!(settle(&process, "k", &forced).status, 204);
    assert_eq!(show(&process, "k").json()["state"], "waiting");
    // It can be settled as done at any time.
    let done = json!({"fence": show(&process, "l").json()["fence"], "done": {"verdict": "succeeded"}});
    assert_eq!(settle(&process, "l", &done).status, 204);
}

/// Changes the receipts before the process starts.
pub fn prepare(folder: &Path, work: impl AsyncFnOnce(&Onceward)) {
    let url = format!("embedded:{}", folder.join("receipts").display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let onceward = Onceward::new(onceward_stores::open(&url).await.unwrap()).unwrap();
        work(&onceward).await;
    });
}

fn ask(key: &str, policy: &Policy) -> Ask {
    let id = Id::new("acme", "charge", key).unwrap();
    Ask::new(id, Fingerprint::of(b"12 EUR"), Arc::new(policy.clone()))
}

/// Creates two dead tasks and one that waits.
pub fn prepare_tasks(folder: &Path) {
    prepare(folder, async |onceward| {
        let once = Policy::http().to_builder().with_tries_max(1).build().unwrap();
        for key in ["dead", "dead too"] {
            onceward.enqueue(ask(key, &once).with_input("12")).await.unwrap();
        }
        let fails = async |_: Lease| Err(Stopped::before_effect("no such account\u{1b}[2J"));
        let worker = Worker::builder(onceward.clone())
            .with_operation("charge", Arc::new(once.clone()), fails)
            .build()
            .unwrap();
        assert_eq!(worker.run_once().await.unwrap().dead, 2);
        onceward
            .enqueue(ask("waiting", &once).with_input("1234").with_delay(Duration::from_secs(600)))
            .await
            .unwrap();
    });
}

/// A done intent with a step.
pub fn prepare_steps(folder: &Path) {
    prepare(folder, async |onceward| {
        let work = async |lease: Lease| {
            lease.step("charge", async |_| Ok(Outcome::succeeded("ch_1"))).await?.into_result()?;
            Ok(Outcome::succeeded("paid"))
        };
        onceward.run(ask("stepped", &Policy::http()), work).await.unwrap().into_result().unwrap();
    });
}

fn change(process: &Process, verb: &str, key: &str) -> Answer {
    process.post(&format!("/v1/{verb}"), &json!({"scope": "acme", "operation": "charge", "key": key}))
}

#[test]
fn dead_tasks_are_retried_or_discarded_and_waiting_ones_are_cancelled() {
    let folder = tempdir().unwrap();
    prepare_tasks(folder.path());
    let process = Process::serve(folder.path());
    let dead = show(&process, "dead").json();
    assert_eq!(
        (&dead["state"], &dead["tries"], &dead["input_bytes"]),
        (&json!("dead"), &json!(1), &json!(2))
    );
    assert_eq!(dead["last_error"], "no such account [2J");
    assert_eq!(claim(&process, "dead", &json!({})).problem(), (409, "dead".into()));

    assert_eq!(change(&process, "retry-dead", "dead").status, 204);
    let waiting = show(&process, "dead").json();
    assert_eq!((&waiting["state"], &waiting["tries"]), (&json!("waiting"), &json!(0)));
    let again = change(&process, "retry-dead", "dead");
    assert_eq!(again.problem(), (409, "other-state".into()));
    assert_eq!(again.json()["receipt"]["state"], "waiting");

    for verb in ["cancel", "erase", "discard-dead", "retry-dead"] {
        assert_eq!(change(&process, verb, "absent").problem(), (404, "no-receipt".into()), "{verb}");
    }
    for (verb, key, closed) in [
        ("cancel", "waiting", "cancelled"),
        ("cancel", "dead", "cancelled"),
        ("discard-dead", "dead too", "discarded"),
    ] {
        assert_eq!(change(&process, verb, key).status, 204);
        assert_eq!(change(&process, verb, key).status, 204, "the same again");
        let shown = show(&process, &key.replace(' ', "%20")).json();
        assert_eq!((&shown["state"], &shown["closed"]), (&json!("done"), &json!(closed)));
        assert_eq!(claim(&process, key, &json!({})).problem(), (409, "closed".into()));
    }
    assert_eq!(change(&process, "discard-dead", "waiting").problem(), (409, "other-state".into()));
}

#[test]
fn an_erased_outcome_is_not_given_again_and_nothing_runs_again() {
    let folder = tempdir().unwrap();
    let process = Process::serve(folder.path());
    let ticket = &granted(&process, "k", &json!({}))["ticket"];
    assert_eq!(change(&process, "erase", "k").problem(), (409, "not-erasable".into()));
    let complete = json!({"ticket": ticket, "outcome": {"verdict": "succeeded", "body": "4000 1234"}});
    assert_eq!(process.post("/v1/complete", &complete).status, 204);
    assert_eq!(claim(&process, "k", &json!({})).json()["outcome"]["body"], "4000 1234");
    assert_eq!(change(&process, "erase", "k").status, 204);
    assert_eq!(claim(&process, "k", &json!({})).problem(), (409, "response-not-stored".into()));
    let shown = show(&process, "k");
    assert!(!shown.body.contains("4000") && shown.body.contains("erased"), "{shown:?}");
}

#[test]
fn bytes_that_are_not_text_and_responses_come_back_as_they_were() {
    let folder = tempdir().unwrap();
    let process = Process::serve(folder.path());
    let ticket = &granted(&process, "bytes", &json!({}))["ticket"];
    let outcome = json!({"verdict": "succeeded", "body_base64": "/wD+"});
    assert_eq!(process.post("/v1/complete", &json!({"ticket": ticket, "outcome": outcome})).status, 204);
    assert_eq!(claim(&process, "bytes", &json!({})).json()["outcome"], outcome);

    let ticket = &granted(&process, "http", &json!({}))["ticket"];
    let http = json!({
        "status": 201,
        "headers": [["content-type", "application/json"], ["x-two", "1"], ["x-two", "2"]],
        "body": "{\"charged\":12}",
    });
    let outcome = json!({"verdict": "succeeded", "http": http});
    assert_eq!(process.post("/v1/complete", &json!({"ticket": ticket, "outcome": outcome})).status, 204);
    assert_eq!(show(&process, "http").json()["outcome"]["http"], http);

    let ticket = &granted(&process, "bad", &json!({}))["ticket"];
    for outcome in [
        json!({"verdict": "succeeded", "body": "a", "body_base64": "YQ=="}),
        json!({"verdict": "succeeded", "body": "a", "http": {"status": 200}}),
        json!({"verdict": "succeeded", "body_base64": "not base64"}),
        json!({"verdict": "succeeded", "http": {"status": 42}}),
        json!({"verdict": "succeeded", "http": {"status": 200, "headers": [["a b", "c"]]}}),
        json!({"verdict": "perhaps"}),
    ] {
        let refused = process.post("/v1/complete", &json!({"ticket": ticket, "outcome": outcome}));
        assert_eq!(refused.problem(), (400, "invalid-request".into()), "{outcome}");
    }
}

#[test]
fn a_list_has_pages_and_filters() {
    let folder = tempdir().unwrap();
    let process = Process::serve(folder.path());
    for number in 0..25 {
        granted(&process, &format!("k{number}"), &json!({}));
    }
    let other = json!({"scope": "other", "operation": "ship", "key": "k"});
    let ticket = &process.post("/v1/claim", &other).json()["ticket"];
    assert_eq!(process.post("/v1/unknown", &json!({ "ticket": ticket })).status, 204);

    let mut keys = Vec::new();
    let mut path = "/v1/receipts?scope=acme&limit=10".to_owned();
    loop {
        let page = process.get(&path).json();
        let receipts = page["receipts"].as_array().unwrap();
        assert!(receipts.len() <= 10);
        keys.extend(receipts.iter().map(|receipt| receipt["key"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/receipts?scope=acme&limit=10&cursor={next}");
    }
    keys.sort();
    let mut all: Vec<_> = (0..25).map(|number| format!("k{number}")).collect();
    all.sort();
    assert_eq!(keys, all);

    let found = |query: &str| process.get(&format!("/v1/receipts?{query}")).json()["receipts"].clone();
    assert_eq!(found("").as_array().unwrap().len(), 26);
    assert_eq!(found("state=held").as_array().unwrap().len(), 25);
    let unknown = found("state=unknown");
    assert_eq!(unknown.as_array().unwrap().len(), 1);
    assert_eq!((&unknown[0]["scope"], &unknown[0]["reason"]), (&json!("other"), &json!("reported")));
    // Its age grows while we look.
    let only = |query: &str| found(query)[0]["key"] == "k" && found(query).as_array().unwrap().len() == 1;
    assert!(only("operation=ship") && only("operation_prefix=sh") && only("key=k"));
    assert_eq!(found("operation_prefix=charge&key=k7").as_array().unwrap().len(), 1);
    let both = process.get("/v1/receipts?operation=a&operation_prefix=b");
    assert_eq!(both.problem(), (400, "invalid-request".into()));
    assert_eq!(found("scope=acme&operation=ship"), json!([]));
}

#[test]
fn the_document_names_every_path_and_every_member_is_explained() {
    let folder = tempdir().unwrap();
    let process = Process::serve(folder.path());
    let document = process.get("/openapi.json").json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    let paths: Vec<_> = document["paths"].as_object().unwrap().keys().cloned().collect();
    let mut verbs = paths.clone();
    verbs.sort();
    assert_eq!(
        verbs,
        [
            "/v1/audit",
            "/v1/cancel",
            "/v1/change-dead-letters",
            "/v1/claim",
            "/v1/complete",
            "/v1/dead-input",
            "/v1/dead-letter",
            "/v1/dead-letters",
            "/v1/discard-dead",
            "/v1/discard-dead-letter",
            "/v1/erase",
            "/v1/erase-matching",
            "/v1/receipt",
            "/v1/receipts",
            "/v1/redrive-dead",
            "/v1/release",
            "/v1/renew",
            "/v1/retry-dead",
            "/v1/retry-dead-letter",
            "/v1/retry-saga",
            "/v1/saga",
            "/v1/sagas",
            "/v1/scopes",
            "/v1/settle",
            "/v1/settle-dead-letter",
            "/v1/settle-saga",
            "/v1/undo-saga",
            "/v1/unknown"
        ]
    );
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        for (member, of) in schema["properties"].as_object().into_iter().flatten() {
            assert!(is_explained(of), "{name}.{member} is not explained");
        }
    }
}

fn is_explained(member: &Value) -> bool {
    let alternatives = member["oneOf"].as_array().into_iter().flatten();
    member["description"].is_string() || alternatives.into_iter().any(is_explained)
}
