//! `onceward complete`: lists unfinished and waiting intents, and has the service finish them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use onceward::{
    Ask, Claimed, Enqueued, Fingerprint, Id, Lease, OnUnknown, Onceward, Outcome, Policy, Scan, ScanTarget,
    State as Receipts, Stopped, Worked, Worker,
};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::process::{eventually, onceward};

const LEASE: Duration = Duration::from_millis(200);

/// A database with unfinished intents, and the service that has the code of their operation.
struct Shop {
    folder: tempfile::TempDir,
    runtime: Runtime,
    service: Service,
}

/// The service, and the number of effects for each key.
#[derive(Clone)]
struct Service {
    onceward: Onceward,
    worker: Arc<Worker>,
    effects: Arc<Mutex<HashMap<String, usize>>>,
}

impl Shop {
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("shop.db").display());
        let store = runtime.block_on(onceward_stores::open(&url)).unwrap();
        let onceward = Onceward::new(store).unwrap();
        let effects = Arc::<Mutex<HashMap<String, usize>>>::default();
        let work = {
            let effects = effects.clone();
            move |lease| pay_out(lease, effects.clone())
        };
        let worker =
            Worker::builder(onceward.clone()).with_operation("payout", policy(OnUnknown::Retry), work);
        let service = Service { onceward, worker: Arc::new(worker.build().unwrap()), effects };
        Self { folder, runtime, service }
    }

    fn store(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("shop.db").display())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Begins an intent and abandons it.
    fn abandon(&self, operation: &str, key: &str, rule: OnUnknown) {
        let ask = ask(Id::new("acme corp", operation, key).unwrap(), rule);
        let claimed = self.runtime.block_on(self.service.onceward.claim(ask)).unwrap();
        assert!(matches!(claimed, Claimed::Granted(_)));
    }

    /// Enqueues an intent for a worker.
    fn enqueue(&self, operation: &str, key: &str) {
        let ask = ask(Id::new("acme corp", operation, key).unwrap(), OnUnknown::Retry).with_input("12");
        let enqueued = self.runtime.block_on(self.service.onceward.enqueue(ask)).unwrap();
        assert_eq!(enqueued, Enqueued::Accepted);
    }

    /// Waits until this number of leases have ended, or tries are due.
    fn wait_until_due(&self, number: usize) {
        let due = |state| {
            let scan = Scan::new(ScanTarget::Due(Some(state)), 1_000);
            let page = self.runtime.block_on(self.service.onceward.list(&scan)).unwrap();
            page.found.iter().filter(|(id, found)| !id.is_step() && found.due.is_over()).count()
        };
        eventually("their leases end", || {
            (due(Receipts::Held) + due(Receipts::Waiting) == number).then_some(())
        });
    }

    /// Starts the listener of the service, and returns the address for notifications.
    fn listen(&self) -> String {
        let app = Router::new().route("/resume", post(resume)).with_state(self.service.clone());
        let listener = self.runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        self.runtime.spawn(async move { axum::serve(listener, app).await });
        format!("http://{address}/resume")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = onceward(&["complete", "--store", &self.store()]);
        command.args(words);
        command
    }

    fn complete(&self, words: &[&str]) -> Printed {
        self.command(words).output().unwrap().into()
    }

    fn effects(&self, key: &str) -> usize {
        self.service.effects.lock().unwrap().get(key).copied().unwrap_or_default()
    }
}

fn ask(id: Id, rule: OnUnknown) -> Ask {
    Ask::new(id, Fingerprint::of(b"a request"), policy(rule))
}

fn policy(rule: OnUnknown) -> Arc<Policy> {
    Arc::new(Policy::http().to_builder().with_on_unknown(rule).with_lease(LEASE).build().unwrap())
}

/// Handles a notification: the service has the code registered, and continues the intent.
async fn resume(State(service): State<Service>, body: String) -> StatusCode {
    let told: Value = serde_json::from_str(&body).unwrap();
    assert!(told["fence"].as_u64().is_some_and(|fence| fence > 0), "{told}");
    let part = |name: &str| told[name].as_str().unwrap().to_owned();
    let id = Id::new(&part("scope"), &part("operation"), &part("key")).unwrap();
    match service.worker.work_on(&id).await.unwrap() {
        Worked::Finished | Worked::NothingToDo => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

async fn pay_out(lease: Lease, effects: Arc<Mutex<HashMap<String, usize>>>) -> Result<Outcome, Stopped> {
    let key = lease.id().key();
    let pay = async |_: Lease| {
        if key == "broken" {
            return Err(Stopped::unknown("it never works"));
        }
        *effects.lock().unwrap().entry(key.to_owned()).or_default() += 1;
        Ok(Outcome::succeeded("paid out"))
    };
    Ok(lease.step("pay", pay).await?.into_result()?.outcome)
}

#[derive(Debug)]
struct Printed {
    code: i32,
    out: String,
    err: String,
}

impl From<Output> for Printed {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Printed {
    fn has_line(&self, start: &str, end: &str) -> bool {
        self.out.lines().any(|line| line.starts_with(start) && line.ends_with(end))
    }
}

#[test]
fn unfinished_intents_are_listed_and_not_changed() {
    let shop = Shop::open();
    let printed = shop.complete(&[]);
    assert_eq!((printed.code, printed.out.as_str()), (0, "Nothing is left.\n"), "{printed:?}");
    shop.abandon("payout", "p 1", OnUnknown::Retry);
    shop.abandon("payout", "p2", OnUnknown::Hold);
    shop.abandon("ship", "s1", OnUnknown::Retry);
    shop.enqueue("payout", "p3");
    shop.wait_until_due(4);
    let printed = shop.complete(&[]);
    assert_eq!(printed.code, 1, "{printed:?}");
    assert!(printed.has_line("waiting ", "ago  'acme corp' payout p3"), "{printed:?}");
    assert!(printed.has_line("left ", "ago  'acme corp' payout 'p 1'"), "{printed:?}");
    assert!(printed.has_line("unknown ", "ago  'acme corp' payout p2"), "{printed:?}");
    assert!(printed.has_line("left ", "ship s1") && printed.out.contains("1 unknown: see"), "{printed:?}");
    let printed = shop.complete(&["--operation", "ship"]);
    assert_eq!((printed.code, printed.out.lines().count()), (1, 1), "{printed:?}");
    shop.wait_until_due(4);
}

#[test]
fn a_notified_service_finishes_each_once_and_unknown_outcomes_are_not_changed() {
    let shop = Shop::open();
    for number in 0..20 {
        shop.abandon("payout", &format!("p{number}"), OnUnknown::Retry);
    }
    shop.abandon("payout", "unknown", OnUnknown::Hold);
    shop.abandon("payout", "broken", OnUnknown::Retry);
    shop.abandon("ship", "s1", OnUnknown::Retry);
    shop.enqueue("payout", "enqueued");
    shop.wait_until_due(24);
    let to = shop.listen();
    // Two commands at the same time, without coordination.
    let words = ["--operation", "payout", "--to", &to, "--once", "--grace", "0"];
    let start = || shop.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let both = [start(), start()].map(|child| Printed::from(child.wait_with_output().unwrap()));
    for printed in &both {
        assert_eq!(
            (printed.code, printed.err.as_str()),
            (1, ""),
            "the outcome of one is unknown: {printed:?}"
        );
    }
    for number in 0..20 {
        assert_eq!(shop.effects(&format!("p{number}")), 1);
        let line = format!("'acme corp' payout p{number}");
        assert!(both.iter().any(|printed| printed.has_line("finished", &line)), "{both:?}");
    }
    assert_eq!((shop.effects("enqueued"), shop.effects("unknown"), shop.effects("s1")), (1, 0, 0));
    // Left: an unknown outcome, an operation without code here, and one that always fails.
    shop.wait_until_due(3);
    let printed = shop.complete(&words);
    assert!(printed.code == 1 && printed.out.lines().count() == 1, "{printed:?}");
    assert!(printed.has_line("waiting", "payout broken: 503 Service Unavailable"), "{printed:?}");
}

#[test]
fn a_command_gets_the_intent_in_its_environment_and_the_receipt_decides() {
    let shop = Shop::open();
    shop.abandon("payout", "it's \"p1\" $HOME", OnUnknown::Retry);
    shop.wait_until_due(1);
    let told = shop.file("told");
    let script = format!(
        r#"printf '%s|%s|%s|%s\n' "$ONCEWARD_SCOPE" "$ONCEWARD_OPERATION" "$ONCEWARD_KEY" "$ONCEWARD_FENCE" >>{}"#,
        told.display()
    );
    let exec =
        |script: &str| shop.complete(&["--operation", "payout", "--exec", script, "--once", "--grace", "0"]);
    // Exit code 0 is not enough: the receipt has no outcome.
    let printed = exec(&script);
    assert_eq!(printed.code, 1, "{printed:?}");
    assert!(printed.out.starts_with("left "), "{printed:?}");
    let line = std::fs::read_to_string(&told).unwrap();
    let parts: Vec<&str> = line.trim_end().split('|').collect();
    assert_eq!(parts[..3], ["acme corp", "payout", "it's \"p1\" $HOME"]);
    assert!(parts[3].parse::<u64>().unwrap() > 0);
    let printed = exec("exit 3");
    assert!(printed.code == 1 && printed.out.contains("exit status: 3"), "{printed:?}");
    shop.wait_until_due(1);
}

#[test]
fn the_pause_grows_for_an_intent_that_cannot_be_finished() {
    let shop = Shop::open();
    shop.abandon("payout", "broken", OnUnknown::Retry);
    shop.wait_until_due(1);
    let told = shop.file("told");
    let script = format!("date +%s%N >>{}; exit 1", told.display());
    let words = ["--operation", "payout", "--exec", &script, "--pause", "1", "--grace", "0"];
    let mut child = shop.command(&words).stdout(Stdio::null()).spawn().unwrap();
    let times = eventually("it is notified twice", || {
        let times = std::fs::read_to_string(&told).unwrap_or_default();
        let times: Vec<u128> = times.lines().filter_map(|line| line.parse().ok()).collect();
        (times.len() >= 2).then_some(times)
    });
    assert!(times[1] - times[0] >= 5_000_000_000, "{times:?}");
    let end = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(end.success() && child.wait().unwrap().success());
}

#[test]
fn errors_say_what_is_wrong() {
    let shop = Shop::open();
    for (words, part) in [
        (vec!["--to", "http://127.0.0.1:1/"], "--operation"),
        (vec!["--operation", "x", "--to", "ftp://there"], "http://"),
        (vec!["--operation", "x", "--to", "http://h/", "--exec", "true"], "cannot be used with"),
    ] {
        let printed = shop.complete(&words);
        assert!(printed.code == 2 && printed.err.contains(part), "{printed:?}");
    }
    let printed = Printed::from(onceward(&["complete", "--store", "nosuch:x"]).output().unwrap());
    assert!(printed.code == 2 && printed.err.contains("no store is known"), "{printed:?}");
    shop.abandon("payout", "p1", OnUnknown::Retry);
    shop.wait_until_due(1);
    let nobody = ["--operation", "payout", "--to", "http://127.0.0.1:1/", "--once", "--grace", "0"];
    let printed = shop.complete(&nobody);
    assert!(printed.code == 1 && printed.out.starts_with("left "), "{printed:?}");
}
