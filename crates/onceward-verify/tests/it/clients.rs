//! Every broken client of the zoo is caught by the right scenario, and every right one passes.

use std::collections::BTreeSet;
use std::time::Duration;

use onceward_verify::client_check::{ClientCheck, scenarios};
use onceward_verify::endpoint::ErrorKind;
use onceward_verify::endpoint::report::{Report, ScenarioVerdict};
use onceward_verify::zoo::clients::{self, ZooClient};
use tokio::task::JoinSet;

/// At a time: they mostly wait, and their pauses are measured.
const AT_A_TIME: usize = 5;

fn check(name: &str, folder: &tempfile::TempDir) -> ClientCheck {
    let program = env!("CARGO_BIN_EXE_onceward-verify");
    ClientCheck::new(format!("'{program}' call {name} --folder '{}'", folder.path().display()))
        .with_run_within(Duration::from_secs(30))
}

async fn judge(client: &'static ZooClient) -> (&'static ZooClient, Report) {
    let folder = tempfile::tempdir().unwrap();
    (client, check(client.name, &folder).run().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_clients_are_caught_and_right_ones_are_not_accused() {
    let (mut running, mut waiting, mut wrong) = (JoinSet::new(), clients::all().iter(), Vec::new());
    loop {
        for client in waiting.by_ref().take(AT_A_TIME - running.len()) {
            running.spawn(judge(client));
        }
        let Some(over) = running.join_next().await else { break };
        let (client, report) = over.unwrap();
        let is_right = match client.caught_by {
            Some(scenario) => report.main_findings().first().is_some_and(|main| main.scenario == scenario),
            None => report.exit_code() == 0,
        };
        if !is_right {
            wrong.push(format!("{} ({}):\n{}", client.name, client.what, report.text()));
        }
    }
    assert!(wrong.is_empty(), "{} checks went wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_scenario_catches_a_client() {
    let catching: BTreeSet<&str> = clients::all().iter().filter_map(|client| client.caught_by).collect();
    for scenario in scenarios() {
        assert!(catching.contains(scenario.name), "{} catches nobody", scenario.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_on_a_client_shows_its_tries() {
    let folder = tempfile::tempdir().unwrap();
    let mut check = check("key-per-run", &folder);
    check.command = format!("TOKEN=s3cr3t {}", check.command);
    check.scenarios = vec!["survives-kill".into()];
    let report = check.run().await.unwrap();
    assert_eq!(report.findings[0].verdict, ScenarioVerdict::Violated, "{}", report.text());
    for form in [report.text(), report.html()] {
        assert!(form.contains("run again, try 1") && form.contains("SIGKILL"), "{form}");
        assert!(form.contains("onceward verify --client-cmd") && !form.contains("s3cr3t"), "{form}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_sends_nothing_is_no_client() {
    let error = ClientCheck::new("true").run().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unfit);
    assert!(error.to_string().contains("sent nothing (it ended with success)"), "{error}");
}

/// A client that ends before it sends anything says why, and what it says of passwords is left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_fails_at_its_start_is_quoted() {
    let command = "TOKEN=s3cr3t; echo starting; echo \"no module named pay, token $TOKEN\" >&2; exit 1";
    let error = ClientCheck::new(command).run().await.unwrap_err().to_string();
    assert!(error.contains("ended with a failure") && error.contains("no module named pay"), "{error}");
    assert!(error.contains("starting") && !error.contains("s3cr3t"), "{error}");
    // The same of a run that fails later.
    let folder = tempfile::tempdir().unwrap();
    let mut mixed = check("by-name", &folder);
    mixed.command =
        format!("case $ONCEWARD_INTENT in *-3) echo no disk >&2; exit 1;; esac; {}", mixed.command);
    mixed.scenarios = vec!["same-key".into()];
    let report = mixed.run().await.unwrap();
    assert!(report.findings[0].why.ends_with("(429); it wrote:\n    no disk"), "{}", report.findings[0].why);
}

/// A date in `Retry-After` is a time like any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_date_in_retry_after_is_waited_for() {
    for (name, is_late_enough) in [("by-name", true), ("knows-only-seconds", false)] {
        let folder = tempfile::tempdir().unwrap();
        let check = check(name, &folder).with_scenarios(["retry-after"]);
        let report = check.run().await.unwrap();
        let finding = &report.findings[0];
        let verdict = if is_late_enough { ScenarioVerdict::Holds } else { ScenarioVerdict::Violated };
        assert_eq!(finding.verdict, verdict, "{}", report.text());
        assert!(finding.why.contains("503 with a date"), "{}", finding.why);
    }
}

/// A command that is another client for one of its intents.
fn with_another(name: &str, intent: u32, other: &str, folder: &tempfile::TempDir) -> ClientCheck {
    let mut mixed = check(name, folder);
    let other = check(other, folder).command;
    mixed.command = format!("case $ONCEWARD_INTENT in *-{intent}) {other};; *) {};; esac", mixed.command);
    mixed
}

/// A run that sent nothing is not one that does not try again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_sends_nothing_leaves_the_verdict_open() {
    let folder = tempfile::tempdir().unwrap();
    let mut mixed = check("by-name", &folder);
    // The first intent is the baseline's; the others meet one fault each.
    mixed.command = format!("case $ONCEWARD_INTENT in *-3) exit 1;; esac; {}", mixed.command);
    mixed.scenarios = vec!["same-key".into(), "same-bytes".into()];
    let report = mixed.run().await.unwrap();
    for finding in &report.findings {
        assert_eq!(finding.verdict, ScenarioVerdict::Inconclusive, "{}", report.text());
        assert!(finding.why.contains("1 of 10 runs sent nothing at all (429)"), "{}", finding.why);
        assert!(finding.notes.iter().all(|note| !note.contains("429")), "{:?}", finding.notes);
    }
    assert_eq!(report.exit_code(), 2);
}

/// What has no pauses to be compared has no jitter that anybody has seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jitter_that_nobody_saw_is_not_claimed() {
    let folder = tempfile::tempdir().unwrap();
    let mut mixed = with_another("by-name", 3, "one-try", &folder);
    mixed.scenarios = vec!["back-off".into()];
    let report = mixed.run().await.unwrap();
    let finding = &report.findings[0];
    assert_eq!(finding.verdict, ScenarioVerdict::Inconclusive, "{}", report.text());
    assert!(finding.why.contains("cannot be compared"), "{}", finding.why);
}
