//! `onceward receipts`, run from a shell.

use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::admin::api::{prepare_steps, prepare_tasks};
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
    fn say(&self, words: &[&str]) -> Printed {
        let mut command = onceward(&["receipts", "--admin", &self.admin()]);
        command.args(words).stdin(Stdio::null());
        Printed::from(command.output().unwrap())
    }

    /// Runs a line that was printed, unchanged, in a shell.
    fn type_in(&self, line: &str) -> Printed {
        let (_, words) = line.split_once("onceward receipts ").expect(line);
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("\"$BINARY\" receipts --admin {} {words}", self.admin()));
        Printed::from(shell.env("BINARY", env!("CARGO_BIN_EXE_onceward")).output().unwrap())
    }

    /// Claims a key and reports an unknown outcome. Returns the fence.
    fn make_unknown(&self, operation: &str, key: &str) -> u64 {
        let policy = json!({"late_effect_max_ms": 0});
        let claim = json!({"scope": "acme corp", "operation": operation, "key": key, "policy": policy});
        let claim = self.process.post("/v1/claim", &claim).json();
        assert_eq!(self.process.post("/v1/unknown", &json!({"ticket": claim["ticket"]})).status, 204);
        claim["fence"].as_u64().unwrap()
    }

    fn shown(&self, operation: &str, key: &str) -> Value {
        let printed = self.say(&["show", "acme corp", operation, key, "--json"]);
        serde_json::from_str(&printed.out).unwrap_or_else(|_| panic!("{printed:?}"))
    }
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

#[test]
fn a_list_counts_unknown_outcomes_and_says_where_to_begin() {
    let operator = Operator::open();
    assert_eq!(operator.say(&["list"]).out, "No receipts.\n");
    let claim = json!({"scope": "acme", "operation": "ship", "key": "k1"});
    assert_eq!(operator.process.post("/v1/claim", &claim).status, 201);
    operator.make_unknown("POST /charges", "order-81");
    let printed = operator.say(&["list"]);
    assert_eq!(printed.code, 0);
    let lines: Vec<&str> = printed.out.lines().collect();
    assert!(lines[0].starts_with("STATE"), "{}", printed.out);
    assert!(lines.iter().any(|line| line.starts_with("held ") && line.contains(" k1 ")), "{}", printed.out);
    assert!(printed.out.contains("1 unknown"), "{}", printed.out);
    assert!(
        printed.out.contains("onceward receipts show 'acme corp' 'POST /charges' order-81"),
        "{}",
        printed.out
    );

    let unknown = operator.say(&["list", "--state", "unknown", "--json"]);
    let unknown: Value = serde_json::from_str(&unknown.out).unwrap();
    assert_eq!(unknown.as_array().unwrap().len(), 1);
    assert_eq!(unknown[0]["key"], "order-81");
    assert_eq!(operator.say(&["list", "--operation", "ship", "--state", "unknown"]).out, "No receipts.\n");
    assert!(operator.say(&["list", "--limit", "1"]).out.contains("There are more"));
}

#[test]
fn a_printed_command_can_be_run_unchanged() {
    let operator = Operator::open();
    let key = "--yes it's; order \"81\" $HOME";
    operator.make_unknown("POST /charges", key);
    let list = operator.say(&["list"]).out;
    let printed = operator.type_in(list.lines().last().unwrap());
    assert_eq!(printed.code, 0, "{printed:?}");
    assert!(printed.out.contains("may or may not have taken effect"), "{}", printed.out);
    assert!(printed.out.contains("If you cannot tell, leave it"), "{}", printed.out);
    let line = printed.out.lines().find(|line| line.contains("--not-done")).expect("it says how to settle");
    let printed = operator.type_in(&line.replace("--not-done", "--not-done --yes"));
    assert_eq!(printed.code, 0, "{line}: {printed:?}");
    let list = operator.say(&["list"]).out;
    assert!(list.lines().nth(1).is_some_and(|line| line.starts_with("waiting ")), "{list}");
}

#[test]
fn an_outcome_settled_as_done_is_replayed_by_the_gateway() {
    let operator = Operator::open();
    let fence = operator.make_unknown("POST /charges", "k");
    let id = ["acme corp", "POST /charges", "k"];
    let done =
        ["--done", "--status", "201", "--body", r#"{"charged":12}"#, "--header", "x-charge: 7", "--yes"];
    let printed = operator.say(&[&["settle"], &id[..], &done[..], &["--fence", "1"]].concat());
    assert_eq!(printed.code, 1);
    assert!(printed.err.contains(&format!("has fence {fence}")), "{printed:?}");
    let printed = operator.say(&[&["settle"], &id[..], &done[..]].concat());
    assert_eq!(
        (printed.code, printed.out.as_str()),
        (0, "Settled: done. Every retry gets this answer.\n"),
        "{printed:?}"
    );
    let http = &operator.shown("POST /charges", "k")["outcome"]["http"];
    let headers = json!([["content-type", "application/json"], ["x-charge", "7"]]);
    assert_eq!(*http, json!({"status": 201, "headers": headers, "body": r#"{"charged":12}"#}));
    let printed = operator.say(&[&["settle"], &id[..], &done[..]].concat());
    assert_eq!(printed.code, 1);
    assert!(printed.err.contains("nothing to settle"), "{printed:?}");
    assert!(operator.say(&["show", id[0], id[1], id[2]]).out.contains("Nothing to do."));
}

#[test]
fn an_outcome_of_the_api_is_settled_without_a_status() {
    let operator = Operator::open();
    operator.make_unknown("ship", "k");
    let printed = operator.say(&["settle", "acme corp", "ship", "k", "--done", "--body", "b", "--yes"]);
    assert_eq!(printed.code, 1);
    assert!(printed.err.contains("--verdict"), "{printed:?}");
    let printed = operator.say(&[
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
    assert_eq!(printed.code, 0, "{printed:?}");
    let outcome = &operator.shown("ship", "k")["outcome"];
    assert_eq!(*outcome, json!({"verdict": "failed", "body": "no"}));
}

#[test]
fn settling_needs_confirmation_and_a_choice() {
    let operator = Operator::open();
    operator.make_unknown("ship", "k");
    let id = ["acme corp", "ship", "k"];
    let printed = operator.say(&[&["release"], &id[..]].concat());
    assert_eq!(printed.code, 1);
    assert!(printed.err.contains("add --yes"), "{printed:?}");
    for wrong in [vec!["settle"], vec!["settle", "--done", "--not-done"]] {
        assert_eq!(operator.say(&[&wrong[..], &id[..], &["--yes"]].concat()).code, 2, "{wrong:?}");
    }
    let absent = operator.say(&["release", "acme corp", "ship", "absent", "--yes"]);
    assert!(absent.code == 1 && absent.err.contains("no such receipt"), "{absent:?}");
    assert_eq!(operator.shown("ship", "k")["state"], "unknown");
    let printed = operator.say(&[&["release"], &id[..], &["--yes"]].concat());
    assert_eq!(
        (printed.code, printed.out.as_str()),
        (0, "Settled: not done. The next retry runs.\n"),
        "{printed:?}"
    );
}

#[test]
fn dead_intents_are_listed_with_their_error_and_retried_or_discarded() {
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
    let printed = operator.type_in(&retry.replacen("dead too", "dead", 1).replace("'dead'", "dead"));
    assert_eq!((printed.code, printed.out.as_str()), (0, "It waits for its next try.\n"), "{printed:?}");
    let waiting = operator.say(&["show", "acme", "charge", "waiting"]).out;
    assert!(waiting.contains("may begin in") && waiting.contains("It has not been tried yet."), "{waiting}");
    assert!(waiting.contains("input      4 bytes"), "{waiting}");

    // Nothing is closed or erased without confirmation.
    for words in [&["dead", "discard"][..], &["cancel"][..], &["erase"][..]] {
        let printed = operator.say(&[words, &["acme", "charge", "waiting"]].concat());
        assert!(printed.code == 1 && printed.err.contains("add --yes"), "{printed:?}");
    }
    let close =
        |words: &[&str], key: &str| operator.say(&[words, &["acme", "charge", key, "--yes"]].concat());
    let refused = close(&["dead", "discard"], "waiting");
    assert!(refused.code == 1 && refused.err.contains("another state"), "{refused:?}");
    assert_eq!(close(&["dead", "discard"], "dead too").out, "Discarded. Every retry is refused.\n");
    assert_eq!(close(&["cancel"], "waiting").out, "Cancelled. Every retry is refused.\n");
    assert_eq!(operator.say(&["dead", "list"]).out, "No dead intents.\n");
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
    operator.make_unknown("ship", "k");
    let id = ["acme corp", "ship", "k"];
    let done = ["--done", "--verdict", "succeeded", "--body", "4000 1234", "--yes"];
    assert_eq!(operator.say(&[&["settle"], &id[..], &done[..]].concat()).code, 0);
    let printed = operator.say(&[&["erase"], &id[..], &["--yes", "--json"]].concat());
    assert_eq!((printed.code, printed.out.as_str()), (0, "{\"erased\":true}\n"), "{printed:?}");
    let shown = operator.say(&[&["show"], &id[..]].concat()).out;
    assert!(shown.contains("succeeded, not kept (erased)") && !shown.contains("4000"), "{shown}");
}

#[test]
fn errors_say_what_is_wrong() {
    let folder = tempdir().unwrap();
    let mut command = onceward(&["serve", "--admin", "127.0.0.1:0", "--log", "error", "--store"]);
    command.env("ONCEWARD_ADMIN_TOKEN", "0123456789abcdef");
    let process = Process::start(command, folder.path());
    let admin = format!("http://{}", process.address);
    let list = |words: &[&str]| {
        let printed = onceward(&["receipts", "list"]).args(words).output().unwrap();
        Printed::from(printed)
    };
    assert!(list(&["--admin", &admin]).err.contains("requires its admin token"));
    assert_eq!(list(&["--admin", &admin, "--token", "0123456789abcdef"]).out, "No receipts.\n");
    for wrong in ["localhost", "ftp://localhost", "http://localhost/path"] {
        assert!(list(&["--admin", wrong]).err.contains("not an address"), "{wrong}");
    }
    drop(process);
    let printed = list(&["--admin", &admin]);
    assert!(printed.code == 1 && printed.err.contains("cannot call the gateway"), "{printed:?}");
}

#[test]
fn the_steps_of_an_intent_are_reopened_with_it() {
    let folder = tempdir().unwrap();
    prepare_steps(folder.path());
    let operator = Operator { process: Process::serve(folder.path()), _folder: folder };
    let all = ["--where", "scope=acme"];
    let dry = operator.say(&[&["erase", "--reopen", "--dry-run"], &all[..]].concat());
    assert_eq!(dry.out, "1 receipts would be removed, and may run again. Nothing was changed.\n", "{dry:?}");
    let why = ["--yes", "--reason", "sent to the wrong account"];
    let printed = operator.say(&[&["erase", "--reopen"], &all[..], &why[..]].concat());
    assert_eq!(
        (printed.code, printed.out.as_str()),
        (0, "1 of 1 receipts were removed, and may run again.\n")
    );
    assert_eq!(operator.say(&["list"]).out, "No receipts.\n");
}
