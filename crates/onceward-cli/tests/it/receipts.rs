//! `onceward receipts`, as an operator types it.

use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::admin::api::prepare_tasks;
use crate::process::{Process, onceward};

struct Operator {
    process: Process,
    _folder: tempfile::TempDir,
}

impl Operator {
    fn open() -> Self {
        let folder = tempdir().unwrap();
        Self { process: Process::serve(folder.path()), _folder: folder }
    }

    fn admin(&self) -> String {
        format!("http://{}", self.process.address)
    }

    /// Runs `onceward receipts` with these words.
    fn say(&self, words: &[&str]) -> Said {
        let mut command = onceward(&["receipts", "--admin", &self.admin()]);
        command.args(words).stdin(Stdio::null());
        Said::from(command.output().unwrap())
    }

    /// Types a line that was shown, as it stands, into a shell.
    fn type_in(&self, line: &str) -> Said {
        let (_, words) = line.split_once("onceward receipts ").expect(line);
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("\"$BINARY\" receipts --admin {} {words}", self.admin()));
        Said::from(shell.env("BINARY", env!("CARGO_BIN_EXE_onceward")).output().unwrap())
    }

    /// A claim of this operation that ended in doubt, as after a crash.
    fn doubt(&self, operation: &str, key: &str) -> u64 {
        let claim = json!({"scope": "acme corp", "operation": operation, "key": key});
        let claim = self.process.post("/v1/claim", &claim).json();
        assert_eq!(self.process.post("/v1/doubt", &json!({"ticket": claim["ticket"]})).status, 204);
        claim["fence"].as_u64().unwrap()
    }

    fn shown(&self, operation: &str, key: &str) -> Value {
        let said = self.say(&["show", "acme corp", operation, key, "--json"]);
        serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"))
    }
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

#[test]
fn a_list_says_what_is_in_doubt_and_where_to_begin() {
    let operator = Operator::open();
    assert_eq!(operator.say(&["list"]).out, "No receipts.\n");
    let claim = json!({"scope": "acme", "operation": "ship", "key": "k1"});
    assert_eq!(operator.process.post("/v1/claim", &claim).status, 201);
    operator.doubt("POST /charges", "order-81");
    let said = operator.say(&["list"]);
    assert_eq!(said.code, 0);
    let lines: Vec<&str> = said.out.lines().collect();
    assert!(lines[0].starts_with("STATE"), "{}", said.out);
    assert!(lines.iter().any(|line| line.starts_with("held ") && line.contains(" k1 ")), "{}", said.out);
    assert!(said.out.contains("1 in doubt"), "{}", said.out);
    assert!(said.out.contains("onceward receipts show 'acme corp' 'POST /charges' order-81"), "{}", said.out);

    let unknown = operator.say(&["list", "--state", "unknown", "--json"]);
    let unknown: Value = serde_json::from_str(&unknown.out).unwrap();
    assert_eq!(unknown.as_array().unwrap().len(), 1);
    assert_eq!(unknown[0]["key"], "order-81");
    assert_eq!(operator.say(&["list", "--operation", "ship", "--state", "unknown"]).out, "No receipts.\n");
    assert!(operator.say(&["list", "--limit", "1"]).out.contains("There are more"));
}

#[test]
fn what_is_shown_can_be_typed_as_it_stands() {
    let operator = Operator::open();
    let key = "--yes it's; order \"81\" $HOME";
    operator.doubt("POST /charges", key);
    let list = operator.say(&["list"]).out;
    let said = operator.type_in(list.lines().last().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("may or may not have taken effect"), "{}", said.out);
    assert!(said.out.contains("If you cannot tell, leave it"), "{}", said.out);
    let line = said.out.lines().find(|line| line.contains("--not-done")).expect("it says how to settle");
    let said = operator.type_in(&line.replace("--not-done", "--not-done --yes"));
    assert_eq!(said.code, 0, "{line}: {said:?}");
    let list = operator.say(&["list"]).out;
    assert!(list.lines().nth(1).is_some_and(|line| line.starts_with("waiting ")), "{list}");
}

#[test]
fn settled_as_done_it_is_the_answer_that_the_gateway_replays() {
    let operator = Operator::open();
    let fence = operator.doubt("POST /charges", "k");
    let id = ["acme corp", "POST /charges", "k"];
    let done =
        ["--done", "--status", "201", "--body", r#"{"charged":12}"#, "--header", "x-charge: 7", "--yes"];
    let said = operator.say(&[&["settle"], &id[..], &done[..], &["--fence", "1"]].concat());
    assert_eq!(said.code, 1);
    assert!(said.err.contains(&format!("speaks of run {fence}")), "{said:?}");
    let said = operator.say(&[&["settle"], &id[..], &done[..]].concat());
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "Settled: done. Every retry gets this answer.\n"),
        "{said:?}"
    );
    let http = &operator.shown("POST /charges", "k")["outcome"]["http"];
    let headers = json!([["content-type", "application/json"], ["x-charge", "7"]]);
    assert_eq!(*http, json!({"status": 201, "headers": headers, "body": r#"{"charged":12}"#}));
    let said = operator.say(&[&["settle"], &id[..], &done[..]].concat());
    assert_eq!(said.code, 1);
    assert!(said.err.contains("nothing to settle"), "{said:?}");
    assert!(operator.say(&["show", id[0], id[1], id[2]]).out.contains("Nothing to do."));
}

#[test]
fn an_outcome_of_the_api_is_settled_without_a_status() {
    let operator = Operator::open();
    operator.doubt("ship", "k");
    let said = operator.say(&["settle", "acme corp", "ship", "k", "--done", "--body", "b", "--yes"]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("--verdict"), "{said:?}");
    let said = operator.say(&[
        "settle",
        "acme corp",
        "ship",
        "k",
        "--done",
        "--verdict",
        "failed",
        "--body",
        "no",
        "--yes",
    ]);
    assert_eq!(said.code, 0, "{said:?}");
    let outcome = &operator.shown("ship", "k")["outcome"];
    assert_eq!(*outcome, json!({"verdict": "failed", "body": "no"}));
}

#[test]
fn nothing_is_settled_by_a_slip() {
    let operator = Operator::open();
    operator.doubt("ship", "k");
    let id = ["acme corp", "ship", "k"];
    let said = operator.say(&[&["release"], &id[..]].concat());
    assert_eq!(said.code, 1);
    assert!(said.err.contains("add --yes"), "{said:?}");
    for wrong in [vec!["settle"], vec!["settle", "--done", "--not-done"]] {
        assert_eq!(operator.say(&[&wrong[..], &id[..], &["--yes"]].concat()).code, 2, "{wrong:?}");
    }
    let absent = operator.say(&["release", "acme corp", "ship", "absent", "--yes"]);
    assert!(absent.code == 1 && absent.err.contains("no such receipt"), "{absent:?}");
    assert_eq!(operator.shown("ship", "k")["state"], "unknown");
    let said = operator.say(&[&["release"], &id[..], &["--yes"]].concat());
    assert_eq!((said.code, said.out.as_str()), (0, "Settled: not done. The next retry runs.\n"), "{said:?}");
}

#[test]
fn what_is_dead_is_listed_with_its_reason_and_decided_about() {
    let folder = tempdir().unwrap();
    prepare_tasks(folder.path());
    let operator = Operator { process: Process::serve(folder.path()), _folder: folder };
    let listed = operator.say(&["dead", "list"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    assert!(listed.out.starts_with("SCOPE"), "{listed:?}");
    let line = listed.out.lines().find(|line| line.contains("'dead too'")).expect("it is listed");
    assert!(line.ends_with("1      no such account [2J"), "{line:?}");
    let shown = operator.type_in(listed.out.lines().last().unwrap());
    assert!(shown.out.contains("tried once; the last error: no such account [2J."), "{shown:?}");
    let retry = shown.out.lines().find(|line| line.contains("dead retry")).expect("it says how to retry");
    let said = operator.type_in(&retry.replacen("dead too", "dead", 1).replace("'dead'", "dead"));
    assert_eq!((said.code, said.out.as_str()), (0, "It waits for its next try.\n"), "{said:?}");
    let waiting = operator.say(&["show", "acme", "charge", "waiting"]).out;
    assert!(waiting.contains("may begin in") && waiting.contains("It was not tried yet."), "{waiting}");
    assert!(waiting.contains("input      4 bytes"), "{waiting}");

    // Nothing is closed or erased by a slip.
    for words in [&["dead", "discard"][..], &["cancel"][..], &["erase"][..]] {
        let said = operator.say(&[words, &["acme", "charge", "waiting"]].concat());
        assert!(said.code == 1 && said.err.contains("add --yes"), "{said:?}");
    }
    let close =
        |words: &[&str], key: &str| operator.say(&[words, &["acme", "charge", key, "--yes"]].concat());
    let refused = close(&["dead", "discard"], "waiting");
    assert!(refused.code == 1 && refused.err.contains("another state"), "{refused:?}");
    assert_eq!(close(&["dead", "discard"], "dead too").out, "Discarded. Every retry is refused.\n");
    assert_eq!(close(&["cancel"], "waiting").out, "Cancelled. Every retry is refused.\n");
    assert_eq!(operator.say(&["dead", "list"]).out, "Nothing is dead.\n");
    let list = operator.say(&["list"]).out;
    for closed in ["discarded ", "cancelled ", "waiting "] {
        assert_eq!(list.lines().filter(|line| line.starts_with(closed)).count(), 1, "{closed}: {list}");
    }
    let shown = operator.say(&["show", "acme", "charge", "waiting"]).out;
    assert!(shown.contains("It was cancelled before it began. It is not run"), "{shown}");
}

#[test]
fn an_answer_can_be_erased() {
    let operator = Operator::open();
    operator.doubt("ship", "k");
    let id = ["acme corp", "ship", "k"];
    let done = ["--done", "--verdict", "succeeded", "--body", "4000 1234", "--yes"];
    assert_eq!(operator.say(&[&["settle"], &id[..], &done[..]].concat()).code, 0);
    let said = operator.say(&[&["erase"], &id[..], &["--yes", "--json"]].concat());
    assert_eq!((said.code, said.out.as_str()), (0, "{\"erased\":true}\n"), "{said:?}");
    let shown = operator.say(&[&["show"], &id[..]].concat()).out;
    assert!(shown.contains("succeeded, not kept (erased)") && !shown.contains("4000"), "{shown}");
}

#[test]
fn what_stands_in_the_way_is_said() {
    let folder = tempdir().unwrap();
    let mut command = onceward(&["serve", "--admin", "127.0.0.1:0", "--log", "error", "--store"]);
    command.env("ONCEWARD_ADMIN_TOKEN", "0123456789abcdef");
    let process = Process::start(command, folder.path());
    let admin = format!("http://{}", process.address);
    let list = |words: &[&str]| {
        let said = onceward(&["receipts", "list"]).args(words).output().unwrap();
        Said::from(said)
    };
    assert!(list(&["--admin", &admin]).err.contains("wants its admin token"));
    assert_eq!(list(&["--admin", &admin, "--token", "0123456789abcdef"]).out, "No receipts.\n");
    for wrong in ["localhost", "ftp://localhost", "http://localhost/path"] {
        assert!(list(&["--admin", wrong]).err.contains("not an address"), "{wrong}");
    }
    drop(process);
    let said = list(&["--admin", &admin]);
    assert!(said.code == 1 && said.err.contains("cannot be asked"), "{said:?}");
}
