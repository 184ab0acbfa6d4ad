//! `onceward sagas` on a real database, and the same through the receipts API.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onceward::{Backoff, Onceward, Worker};
use onceward_flows::{Ended, Saga, SagaState, SagaView, Sagas, Step, StepStop};
use onceward_stores::sql::Options;
use onceward_stores::sql::postgres::PostgresStore;
use serde_json::{Value, json};

use crate::process::{Answer, Process, onceward, send};
use crate::servers::Postgres;

const TOKEN: &str = "0123456789abcdef-operator";
const APPLICATION_TOKEN: &str = "0123456789abcdef-application";

/// Runs a command on a database, and returns its exit code and all that it prints.
async fn run(url: &str, words: &[&str]) -> (i32, String) {
    let mut command = onceward(words);
    command.env("ONCEWARD_STORE", url);
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (ended.status.code().unwrap(), text)
}

/// Whether a table has a row that begins with these words.
fn has_row(text: &str, words: &[&str]) -> bool {
    text.lines().any(|line| line.split_whitespace().take(words.len()).eq(words.iter().copied()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_saga_that_needs_a_person_is_listed_shown_and_settled() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.url(&server.fresh());
    let store = PostgresStore::open(&url, Options::default()).await.unwrap();
    let engine = Onceward::new(Arc::new(store)).unwrap();
    let saga = Saga::builder("order")
        .step("reserve", |_: Step| async { Ok("seat 12") })
        .undo(|_: Step| async { Ok(()) })
        .step("charge", |_: Step| async { Err::<(), _>(StepStop::unknown("no answer")) })
        .build()
        .unwrap();
    assert_eq!(run(&url, &["sagas", "list"]).await, (0, "No sagas.\n".into()));
    saga.start(&engine, "order-81", "the input").await.unwrap();
    let worker = saga.worker(&engine).unwrap();
    worker.run_once().await.unwrap();
    // The receipts of its steps and of its version are in between.
    let mut found = 0;
    let mut after = String::new();
    for page in 0.. {
        assert!(page < 20, "the list does not end");
        let words = ["sagas", "list", "--limit", "1", "--after", &after];
        let (code, text) = run(&url, if after.is_empty() { &words[..4] } else { &words }).await;
        assert_eq!(code, 0, "{text}");
        found += usize::from(text.contains("order-81"));
        let Some((_, next)) = text.split_once("There are more: --after ") else { break };
        next.trim().clone_into(&mut after);
    }
    assert_eq!(found, 1);
    let odd = run(&url, &["sagas", "list", "--after", "xyz"]).await;
    assert!(odd.0 == 2 && odd.1.contains("--after is not"), "{}", odd.1);
    assert_eq!(run(&url, &["sagas", "retry", "order", "order-81", "charge", "--undo"]).await.0, 1);
    let (code, text) = run(&url, &["sagas", "list", "--needs-person"]).await;
    assert!(code == 0 && has_row(&text, &["needs-person", "saga", "order", "order-81"]), "{text}");
    assert!(text.contains("action of charge is unknown: no answer"), "{text}");
    let (_, text) = run(&url, &["sagas", "show", "order", "order-81"]).await;
    for part in ["the input", "seat 12", "reserve  action", "succeeded", "charge", "unknown"] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
    let settle = ["sagas", "settle", "order", "order-81", "charge", "--refused", "there is no such charge"];
    assert_eq!(run(&url, &settle).await.0, 0);
    assert_eq!(run(&url, &settle).await.0, 1, "it is settled");
    tokio::time::timeout(Duration::from_secs(20), async {
        while saga.view(&engine, "order-81").await.unwrap().unwrap().ended.is_none() {
            worker.run_once().await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    let (_, text) = run(&url, &["sagas", "list", "order"]).await;
    assert!(has_row(&text, &["undone", "saga", "order", "order-81"]), "{text}");
    assert!(text.contains("charge: there is no such charge"), "{text}");
    for words in [
        &["sagas", "undo", "order", "order-81", "--reason", "late"][..],
        &["sagas", "retry", "order", "nosuch"],
        &["sagas", "show", "order", "nosuch"],
    ] {
        assert_eq!(run(&url, words).await.0, 1, "{words:?}");
    }
}

/// Two sagas on a database: `order`, whose step `charge` is as its key says, and `party`, which waits for a signal.
struct Stage {
    url: String,
    engine: Onceward,
    order: Saga,
    party: Saga,
    worker: Worker,
    /// Whether the undo of `reserve` works.
    fixed: Arc<AtomicBool>,
}

impl Stage {
    async fn start() -> Option<Self> {
        let server = Postgres::shared()?;
        let url = server.url(&server.fresh());
        let store = PostgresStore::open(&url, Options::default()).await.unwrap();
        let engine = Onceward::new(Arc::new(store)).unwrap();
        let fixed = Arc::new(AtomicBool::new(false));
        let works = fixed.clone();
        let release = move |_: Step| {
            let works = works.load(Ordering::SeqCst);
            async move { if works { Ok(()) } else { Err(StepStop::retry("the hall does not answer")) } }
        };
        let charge = |step: Step| async move {
            match step.saga().key() {
                key if key.starts_with("dead") => Err::<(), _>(StepStop::refused("declined")),
                _ => Err(StepStop::unknown("no answer")),
            }
        };
        let once = Backoff::new(Duration::from_millis(1), Duration::from_millis(1));
        let order = Saga::builder("order")
            .step("reserve", |_: Step| async { Ok("seat 12") })
            .undo(release)
            .with_tries(1, once)
            .step("charge", charge)
            .build()
            .unwrap();
        let party = Saga::builder("party")
            .step("quote", |_: Step| async { Ok("12 EUR") })
            .undo(|_: Step| async { Ok(()) })
            .wait_for("approved", None)
            .step("invite", |_: Step| async { Ok(()) })
            .build()
            .unwrap();
        let worker = Sagas::new().with_saga(&order).with_saga(&party).worker(engine.clone()).unwrap();
        Some(Self { url, engine, order, party, worker, fixed })
    }

    /// The admin listener of a process on the same database, with a token for each kind of client.
    fn serve(&self) -> Process {
        let mut command =
            onceward(&["serve", "--admin", "127.0.0.1:0", "--log", "error", "--store", &self.url]);
        command.env("ONCEWARD_ADMIN_TOKEN", TOKEN).env("ONCEWARD_APP_TOKEN", APPLICATION_TOKEN);
        Process::spawn(command)
    }

    async fn work_until(&self, saga: &Saga, key: &str, wanted: impl Fn(&SagaView) -> bool) -> SagaView {
        let looking = async {
            loop {
                self.worker.run_once().await.unwrap();
                let view = saga.view(&self.engine, key).await.unwrap().unwrap();
                if wanted(&view) {
                    return view;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), looking).await.unwrap()
    }
}

fn needs_person(view: &SagaView) -> bool {
    matches!(view.state, SagaState::NeedsPerson(_))
}

/// Each decision of a person, made on the store and through the receipts API: it is applied, and the saga goes on with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_undos_and_settlements_are_applied() {
    let Some(stage) = Stage::start().await else { return };
    let process = stage.serve();
    let admin = format!("http://{}", process.address);
    for more in [&[][..], &["--admin", &admin, "--token", TOKEN, "--by", "ada"]] {
        let way = if more.is_empty() { "store" } else { "admin" };
        let decide = async |words: &[&str]| run(&stage.url, &[&["sagas"], words, more].concat()).await;

        // A dead undo is tried again.
        let key = format!("dead-{way}");
        stage.fixed.store(false, Ordering::SeqCst);
        stage.order.start(&stage.engine, &key, "").await.unwrap();
        let view = stage.work_until(&stage.order, &key, needs_person).await;
        assert!(format!("{view:?}").contains("the hall does not answer"), "{view:#?}");
        let (code, text) = decide(&["list", "order", "--needs-person"]).await;
        assert!(code == 0 && text.contains(&key) && text.contains("undo of reserve is dead"), "{text}");
        stage.fixed.store(true, Ordering::SeqCst);
        assert_eq!(decide(&["retry", "order", &key, "charge"]).await.0, 1, "it is not dead");
        assert_eq!(decide(&["retry", "order", &key]).await, (0, String::new()));
        let view = stage.work_until(&stage.order, &key, |view| view.ended.is_some()).await;
        assert_eq!(view.ended, Some(Ended::Undone("charge: declined".into())));

        // A saga that waits is undone.
        let key = format!("wait-{way}");
        stage.party.start(&stage.engine, &key, "").await.unwrap();
        let waits = |view: &SagaView| view.steps[0].ended.is_some() && view.state == SagaState::Waiting;
        stage.work_until(&stage.party, &key, waits).await;
        let undo = ["undo", "party", &key, "--reason", "the customer called"];
        assert_eq!(decide(&undo).await, (0, String::new()));
        let view = stage.work_until(&stage.party, &key, |view| view.ended.is_some()).await;
        assert_eq!(view.ended, Some(Ended::Undone("the customer called".into())));
        assert_eq!(decide(&undo).await.0, 1, "it has ended");

        // An unknown outcome is settled as done, with its result.
        let key = format!("lost-{way}");
        stage.order.start(&stage.engine, &key, "the input").await.unwrap();
        stage.work_until(&stage.order, &key, needs_person).await;
        let settle = ["settle", "order", &key, "charge", "--done", "ch_1"];
        assert_eq!(decide(&settle).await, (0, String::new()));
        let view = stage.work_until(&stage.order, &key, |view| view.ended.is_some()).await;
        assert_eq!(view.ended, Some(Ended::Succeeded("ch_1".into())));
        let (code, text) = decide(&["show", "order", &key]).await;
        assert_eq!(code, 0);
        for part in ["completed", "the input", "seat 12", "ch_1"] {
            assert!(text.contains(part), "no `{part}` in\n{text}");
        }
    }
}

/// An operator who does not know the scopes finds the sagas of all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sagas_of_every_scope_are_listed_with_their_scope() {
    let Some(stage) = Stage::start().await else { return };
    let process = stage.serve();
    let admin = format!("http://{}", process.address);
    stage.party.start(&stage.engine, "p-1", "").await.unwrap();
    stage.party.in_scope("billing").start(&stage.engine, "p-1", "").await.unwrap();
    stage.party.in_scope("billing").start(&stage.engine, "p-2", "").await.unwrap();
    for more in [&[][..], &["--admin", &admin, "--token", TOKEN, "--by", "ada"]] {
        let sagas = async |words: &[&str]| run(&stage.url, &[&["sagas"], words, more].concat()).await;
        let (code, all) = sagas(&["list"]).await;
        assert_eq!(code, 0, "{all}");
        for [scope, key] in [["saga", "p-1"], ["billing", "p-1"], ["billing", "p-2"]] {
            assert!(has_row(&all, &["waiting", scope, "party", key]), "{scope} {key}: {all}");
        }
        let (_, billing) = sagas(&["list", "party", "--scope", "billing"]).await;
        assert!(billing.contains("p-2") && !has_row(&billing, &["waiting", "saga"]), "{billing}");
        let (_, usual) = sagas(&["list", "--scope", "saga"]).await;
        assert!(has_row(&usual, &["waiting", "saga", "party", "p-1"]) && !usual.contains("p-2"), "{usual}");
        // What is about one saga is about the usual scope, unless another one is named.
        assert_eq!(sagas(&["show", "party", "p-1"]).await.0, 0);
        assert_eq!(sagas(&["show", "party", "p-2"]).await.0, 1);
        assert_eq!(sagas(&["show", "party", "p-2", "--scope", "billing"]).await.0, 0);
    }
    let undo = ["sagas", "undo", "party", "p-2", "--scope", "billing", "--reason", "no longer wanted"];
    assert_eq!(run(&stage.url, &undo).await, (0, String::new()));
}

fn ask(process: &Process, token: &str, path: &str) -> Answer {
    send(process.address, "GET", path, &[("Authorization", &format!("Bearer {token}"))], "")
}

fn post(process: &Process, token: &str, path: &str, body: &Value) -> Answer {
    let fields = [("Authorization", &*format!("Bearer {token}")), ("Content-Type", "application/json")];
    send(process.address, "POST", path, &fields, &body.to_string())
}

/// The operators' token is needed, every decision is in the audit with who made it, and what cannot be done says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_receipts_api_shows_sagas_and_records_decisions() {
    let Some(stage) = Stage::start().await else { return };
    let process = stage.serve();
    stage.order.start(&stage.engine, "lost-1", "the input").await.unwrap();
    stage.work_until(&stage.order, "lost-1", needs_person).await;
    stage.party.start(&stage.engine, "wait-1", "").await.unwrap();

    for (token, problem) in [("wrong", (401, "unauthorized")), (APPLICATION_TOKEN, (403, "wrong-token"))] {
        let expected = (problem.0, problem.1.to_owned());
        assert_eq!(ask(&process, token, "/v1/sagas").problem(), expected);
        assert_eq!(ask(&process, token, "/v1/saga?name=order&key=lost-1").problem(), expected);
        for path in ["/v1/retry-saga", "/v1/undo-saga", "/v1/settle-saga"] {
            assert_eq!(post(&process, token, path, &json!({})).problem(), expected, "{path}");
        }
    }
    let all = ask(&process, TOKEN, "/v1/sagas?limit=1000").json();
    assert_eq!(all["sagas"].as_array().unwrap().len(), 2, "{all}");
    let listed = ask(&process, TOKEN, "/v1/sagas?needs_person=true&name=order&limit=1000").json();
    let [saga] = &listed["sagas"].as_array().unwrap()[..] else { panic!("{listed}") };
    assert_eq!((&saga["key"], &saga["state"]), (&json!("lost-1"), &json!("needs-person")));
    assert_eq!(saga["needs_person"]["step"], "charge");
    assert!(saga.get("input").is_none() && saga.get("steps").is_none(), "{saga}");
    let shown = ask(&process, TOKEN, "/v1/saga?name=order&key=lost-1").json();
    assert_eq!(shown["input"], "the input");
    assert_eq!(shown["steps"][0]["ended"], json!({"how": "succeeded", "result": "seat 12"}));
    assert_eq!(shown["steps"][1]["state"], "unknown");

    let settle = |more: &Value| {
        let mut asked =
            json!({"name": "order", "key": "lost-1", "step": "charge", "by": "ada", "reason": "asked them"});
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        post(&process, TOKEN, "/v1/settle-saga", &asked)
    };
    for ends in
        [json!({}), json!({"done": "a", "failed": "b"}), json!({"force": true}), json!({"done_base64": "?"})]
    {
        assert_eq!(settle(&ends).problem(), (400, "invalid-request".into()), "{ends}");
    }
    let undo = json!({"name": "party", "key": "wait-1", "reason": "no longer wanted", "by": "bob"});
    let nobody = json!({"name": "party", "key": "nosuch", "reason": "no longer wanted"});
    assert_eq!(post(&process, TOKEN, "/v1/undo-saga", &nobody).problem(), (404, "no-saga".into()));
    assert_eq!(ask(&process, TOKEN, "/v1/saga?name=party&key=nosuch").problem(), (404, "no-saga".into()));
    assert_eq!(post(&process, TOKEN, "/v1/undo-saga", &undo).status, 204);
    let retry = json!({"name": "order", "key": "lost-1"});
    assert_eq!(post(&process, TOKEN, "/v1/retry-saga", &retry).problem(), (409, "nothing-to-decide".into()));
    assert_eq!(settle(&json!({"done_base64": "AP8="})).status, 204);
    assert_eq!(settle(&json!({"done_base64": "AP8="})).problem(), (409, "nothing-to-decide".into()));
    let view = stage.work_until(&stage.order, "lost-1", |view| view.ended.is_some()).await;
    assert_eq!(view.ended, Some(Ended::Succeeded(vec![0, 255].into())));
    let shown = ask(&process, TOKEN, "/v1/saga?name=order&key=lost-1").json();
    assert_eq!(shown["ended"], json!({"how": "succeeded", "result_base64": "AP8="}));
    let late = json!({"name": "order", "key": "lost-1", "reason": "late"});
    assert_eq!(post(&process, TOKEN, "/v1/undo-saga", &late).problem(), (409, "saga-ended".into()));

    let audit = ask(&process, TOKEN, "/v1/audit?limit=1000").json();
    let mut changes: Vec<_> = audit["entries"].as_array().unwrap().iter().collect();
    changes.sort_by_key(|entry| entry["at_ms"].as_u64());
    let of = |name: &str| -> Vec<&Value> {
        changes.iter().filter(|entry| entry["action"] == name).copied().collect()
    };
    let [settled, again] = of("settle-saga")[..] else { panic!("{audit}") };
    assert_eq!((&settled["by"], &settled["reason"]), (&json!("ada"), &json!("asked them")));
    assert_eq!((&settled["how"], &settled["result"]), (&json!("done"), &json!("made")));
    assert_eq!((&settled["operation"], &settled["key"]), (&json!("saga:order#charge"), &json!("lost-1")));
    assert_eq!(again["result"], "nothing-to-decide");
    assert!(
        of("undo-saga").iter().any(|entry| entry["by"] == "bob" && entry["reason"] == "no longer wanted")
    );
    assert_eq!(of("retry-saga")[0]["result"], "nothing-to-decide");
}
