//! `onceward complete`: what was left and what is waiting, listed, and finished by the service that has the code.

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

/// A database with things that were left in it, and the service that has their code.
struct Shop {
    folder: tempfile::TempDir,
    runtime: Runtime,
    service: Service,
}

/// What was done for each key.
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

    /// Somebody begins it, and nothing is heard of it again.
    fn leave(&self, operation: &str, key: &str, rule: OnUnknown) {
        let ask = ask(Id::new("acme corp", operation, key).unwrap(), rule);
        let claimed = self.runtime.block_on(self.service.onceward.claim(ask)).unwrap();
        assert!(matches!(claimed, Claimed::Granted(_)));
    }

    /// Somebody leaves it to a worker.
    fn enqueue(&self, operation: &str, key: &str) {
        let ask = ask(Id::new("acme corp", operation, key).unwrap(), OnUnknown::Retry).with_input("12");
        let enqueued = self.runtime.block_on(self.service.onceward.enqueue(ask)).unwrap();
        assert_eq!(enqueued, Enqueued::Accepted);
    }

    /// Until this many leases are over, or tries are due.
    fn silence(&self, number: usize) {
        let due = |state| {
            let scan = Scan::new(ScanTarget::Due(Some(state)), 1_000);
            let page = self.runtime.block_on(self.service.onceward.list(&scan)).unwrap();
            page.found.iter().filter(|(id, found)| !id.is_step() && found.due.is_over()).count()
        };
        eventually("their leases end", || {
            (due(Receipts::Held) + due(Receipts::Waiting) == number).then_some(())
        });
    }

    /// The address where the service is told.
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

    fn complete(&self, words: &[&str]) -> Said {
        self.command(words).output().unwrap().into()
    }

    fn effects(&self, key: &str) -> usize {
        self.service.effects.lock().unwrap().get(key).copied().unwrap_or_default()
    }
}

fn ask(id: Id, rule: OnUnknown) -> Ask {
    Ask::new(id, Fingerprint::of(b"whatever was asked"), policy(rule))
}

fn policy(rule: OnUnknown) -> Arc<Policy> {
    Arc::new(Policy::http().to_builder().with_on_unknown(rule).with_lease(LEASE).build().unwrap())
}

/// The service has the code registered, and is told what to go on with.
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
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Said {
    fn has_line(&self, start: &str, end: &str) -> bool {
        self.out.lines().any(|line| line.starts_with(start) && line.ends_with(end))
    }
}

#[test]
fn what_was_left_is_listed_and_not_touched() {
    let shop = Shop::open();
    let said = shop.complete(&[]);
    assert_eq!((said.code, said.out.as_str()), (0, "Nothing is left.\n"), "{said:?}");
    shop.leave("payout", "p 1", OnUnknown::Retry);
    shop.leave("payout", "p2", OnUnknown::Hold);
    shop.leave("ship", "s1", OnUnknown::Retry);
    shop.enqueue("payout", "p3");
    shop.silence(4);
    let said = shop.complete(&[]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.has_line("waiting ", "ago  'acme corp' payout p3"), "{said:?}");
    assert!(said.has_line("left ", "ago  'acme corp' payout 'p 1'"), "{said:?}");
    assert!(said.has_line("in doubt ", "ago  'acme corp' payout p2"), "{said:?}");
    assert!(said.has_line("left ", "ship s1") && said.out.contains("1 in doubt: see"), "{said:?}");
    let said = shop.complete(&["--operation", "ship"]);
    assert_eq!((said.code, said.out.lines().count()), (1, 1), "{said:?}");
    shop.silence(4);
}

#[test]
fn a_service_that_is_told_finishes_each_once_and_no_doubt_is_touched() {
    let shop = Shop::open();
    for number in 0..20 {
        shop.leave("payout", &format!("p{number}"), OnUnknown::Retry);
    }
    shop.leave("payout", "doubtful", OnUnknown::Hold);
    shop.leave("payout", "broken", OnUnknown::Retry);
    shop.leave("ship", "s1", OnUnknown::Retry);
    shop.enqueue("payout", "enqueued");
    shop.silence(24);
    let to = shop.listen();
    // Two side by side, of which neither knows of the other.
    let words = ["--operation", "payout", "--to", &to, "--once", "--grace", "0"];
    let start = || shop.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let both = [start(), start()].map(|child| Said::from(child.wait_with_output().unwrap()));
    for said in &both {
        assert_eq!((said.code, said.err.as_str()), (1, ""), "one is in doubt: {said:?}");
    }
    for number in 0..20 {
        assert_eq!(shop.effects(&format!("p{number}")), 1);
        let line = format!("'acme corp' payout p{number}");
        assert!(both.iter().any(|said| said.has_line("finished", &line)), "{both:?}");
    }
    assert_eq!((shop.effects("enqueued"), shop.effects("doubtful"), shop.effects("s1")), (1, 0, 0));
    // What is left is what nobody may touch, nobody here has code for, or does not work.
    shop.silence(3);
    let said = shop.complete(&words);
    assert!(said.code == 1 && said.out.lines().count() == 1, "{said:?}");
    assert!(said.has_line("waiting", "payout broken: 503 Service Unavailable"), "{said:?}");
}

#[test]
fn a_command_is_told_by_its_environment_and_the_receipt_is_what_counts() {
    let shop = Shop::open();
    shop.leave("payout", "it's \"p1\" $HOME", OnUnknown::Retry);
    shop.silence(1);
    let told = shop.file("told");
    let script = format!(
        r#"printf '%s|%s|%s|%s\n' "$ONCEWARD_SCOPE" "$ONCEWARD_OPERATION" "$ONCEWARD_KEY" "$ONCEWARD_FENCE" >>{}"#,
        told.display()
    );
    let exec =
        |script: &str| shop.complete(&["--operation", "payout", "--exec", script, "--once", "--grace", "0"]);
    // That it went well is not enough: the receipt says that nothing was done.
    let said = exec(&script);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.starts_with("left "), "{said:?}");
    let line = std::fs::read_to_string(&told).unwrap();
    let parts: Vec<&str> = line.trim_end().split('|').collect();
    assert_eq!(parts[..3], ["acme corp", "payout", "it's \"p1\" $HOME"]);
    assert!(parts[3].parse::<u64>().unwrap() > 0);
    let said = exec("exit 3");
    assert!(said.code == 1 && said.out.contains("exit status: 3"), "{said:?}");
    shop.silence(1);
}

#[test]
fn who_cannot_be_helped_is_told_about_less_and_less_often() {
    let shop = Shop::open();
    shop.leave("payout", "broken", OnUnknown::Retry);
    shop.silence(1);
    let told = shop.file("told");
    let script = format!("date +%s%N >>{}; exit 1", told.display());
    let words = ["--operation", "payout", "--exec", &script, "--pause", "1", "--grace", "0"];
    let mut child = shop.command(&words).stdout(Stdio::null()).spawn().unwrap();
    let times = eventually("it is told twice", || {
        let times = std::fs::read_to_string(&told).unwrap_or_default();
        let times: Vec<u128> = times.lines().filter_map(|line| line.parse().ok()).collect();
        (times.len() >= 2).then_some(times)
    });
    assert!(times[1] - times[0] >= 5_000_000_000, "{times:?}");
    let end = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(end.success() && child.wait().unwrap().success());
}

#[test]
fn what_stands_in_the_way_is_said() {
    let shop = Shop::open();
    for (words, part) in [
        (vec!["--to", "http://127.0.0.1:1/"], "--operation"),
        (vec!["--operation", "x", "--to", "ftp://there"], "http://"),
        (vec!["--operation", "x", "--to", "http://h/", "--exec", "true"], "cannot be used with"),
    ] {
        let said = shop.complete(&words);
        assert!(said.code == 2 && said.err.contains(part), "{said:?}");
    }
    let said = Said::from(onceward(&["complete", "--store", "nosuch:x"]).output().unwrap());
    assert!(said.code == 2 && said.err.contains("no store is known"), "{said:?}");
    shop.leave("payout", "p1", OnUnknown::Retry);
    shop.silence(1);
    let nobody = ["--operation", "payout", "--to", "http://127.0.0.1:1/", "--once", "--grace", "0"];
    let said = shop.complete(&nobody);
    assert!(said.code == 1 && said.out.starts_with("left "), "{said:?}");
}
