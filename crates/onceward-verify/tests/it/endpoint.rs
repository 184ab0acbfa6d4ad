//! Tests of the endpoint verifier: its plan, its limits, both versions of HTTP, its verdicts without an oracle, and how
//! close together it sends requests.

use std::path::Path;
use std::time::Duration;

use onceward_verify::endpoint::report::{Report, Verdict};
use onceward_verify::endpoint::{Check, Effects, ErrorKind, Version};
use onceward_verify::zoo::start::{RunningService, check_of_process, free_port};
use onceward_verify::zoo::table;

async fn start(name: &str) -> RunningService {
    RunningService::start(table::named(name).expect("it is in the zoo")).await.expect("it can listen")
}

fn only(check: &mut Check, scenarios: &[&str]) {
    check.scenarios = scenarios.iter().map(|name| (*name).to_owned()).collect();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_is_sent_than_planned() {
    let mut running = start("conflicts").await;
    only(
        &mut running.check,
        &["simultaneous-duplicates", "retry-after-success", "other-body-during", "malformed-keys"],
    );
    let planned = running.check.plan().unwrap();
    let report = running.check.run().await.unwrap();
    report.assert_holds();
    assert_eq!(planned.len(), report.findings.len() + 1, "the baseline, and each scenario");
    for (planned, finding) in planned[1..].iter().zip(&report.findings) {
        assert_eq!(planned.name, finding.scenario);
        assert!(finding.requests <= planned.requests_max, "{}: {}", finding.scenario, finding.requests);
        assert!(finding.requests > 0, "{} sent nothing", finding.scenario);
    }
    assert!(report.requests <= planned.iter().map(|planned| planned.requests_max).sum());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_is_judged_the_same() {
    let scenarios =
        ["simultaneous-duplicates", "retry-after-success", "retry-after-hang-up", "other-body-during"];
    let mut right = start("waits").await;
    (right.check.version, right.check.clients) = (Version::Http2, 150);
    only(&mut right.check, &scenarios);
    let report = right.check.run().await.unwrap();
    report.assert_holds();
    assert_eq!(report.spread.requests_max, 150);
    let mut broken = start("check-then-write").await;
    broken.check.version = Version::Http2;
    only(&mut broken.check, &scenarios[..1]);
    assert_eq!(broken.check.run().await.unwrap().exit_code(), 1);
}

/// Without an oracle the answers still tell two runs apart; and that less is known is said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_oracle_answers_are_compared() {
    let mut broken = start("check-then-write").await;
    broken.check.effects = Effects::Unseen;
    only(&mut broken.check, &["simultaneous-duplicates"]);
    let report = broken.check.run().await.unwrap();
    assert_eq!(report.exit_code(), 1);
    assert!(report.text().contains("two answers"), "{}", report.text());
    let mut right = start("waits").await;
    right.check.effects = Effects::Unseen;
    only(&mut right.check, &["simultaneous-duplicates", "distinct-keys", "other-tenant"]);
    let report = right.check.run().await.unwrap();
    report.assert_holds();
    assert!(report.text().contains("holds *") && report.text().contains("No effects were counted"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_judged_is_said() {
    let running = start("waits").await;
    let mut gone = running.check.clone();
    gone.url = "http://127.0.0.1:9/charges".into();
    assert_eq!(gone.run().await.unwrap_err().kind(), ErrorKind::Unreachable);
    let mut miscounted = running.check.clone();
    miscounted.effects = Effects::Command("echo 7".into());
    let error = miscounted.run().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unfit, "{error}");
    let mut refused = running.check.clone();
    refused.key_header = "X-Other".into();
    let error = refused.run().await.unwrap_err();
    assert!(error.to_string().contains("400"), "{error}");
    let mut unfailing = running.check.clone();
    unfailing.fail_header = Some(("X-Nothing".into(), "1".into()));
    only(&mut unfailing, &["failed-first"]);
    let report = unfailing.run().await.unwrap();
    assert_eq!((report.exit_code(), report.findings[0].verdict), (2, Verdict::Inconclusive));
}

/// A claim that is held for a person is neither wedged nor done, and the sentence says how many there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_is_a_verdict_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_onceward-verify"));
    let service = table::named("holds").unwrap();
    let mut check = check_of_process(service, program, folder.path()).unwrap();
    only(&mut check, &["crash"]);
    let report = check.run().await.unwrap();
    let finding = report.finding("crash").unwrap();
    assert_eq!((report.exit_code(), finding.verdict), (0, Verdict::Held), "{}", report.text());
    assert!(finding.why.contains("of 10 keys are held as unknown"), "{}", finding.why);
    assert!(report.markdown().contains("| crash | held |"), "{}", report.markdown());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_start_is_quoted() {
    let mut check = start("waits").await.check.clone();
    check.url = format!("http://127.0.0.1:{}/charges", free_port().unwrap());
    check.start_command = Some("echo 'no database at 10.0.0.7' >&2; exit 3".into());
    let error = check.run().await.unwrap_err().to_string();
    assert!(error.contains("exit status: 3") && error.contains("no database at 10.0.0.7"), "{error}");
}

/// Keys that differ only at their end are taken for one: nothing else can be measured, and that is the finding.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_taken_for_one_are_a_finding_and_not_an_error() {
    let broken = start("short-keys").await;
    let report = broken.check.run().await.unwrap();
    assert_eq!(report.exit_code(), 1);
    let found: Vec<_> = report.findings.iter().map(|finding| (finding.scenario, finding.verdict)).collect();
    assert_eq!(found, [("distinct-keys", Verdict::Violated)]);
    assert!(report.text().contains("different keys are taken for one"), "{}", report.text());
}

/// All odd keys are tried, whatever becomes of the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_odd_key_that_goes_wrong_is_named() {
    let mut broken = start("plain").await;
    only(&mut broken.check, &["malformed-keys"]);
    let report = broken.check.run().await.unwrap();
    let why = &report.findings[0].why;
    assert!(why.contains("two keys in two lines") && why.contains("a key of 3000 characters"), "{why}");
}

/// The forms of a report say the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_form_of_a_report_names_the_violation() {
    let mut running = start("check-then-write").await;
    only(&mut running.check, &["simultaneous-duplicates", "retry-after-success", "crash"]);
    let report = running.check.run().await.unwrap();
    assert_eq!(report.exit_code(), 1);
    let why = &report.finding("simultaneous-duplicates").unwrap().why;
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(json["findings"][0]["verdict"], "violated");
    assert_eq!(json["findings"][0]["why"], why.as_str());
    assert!(json["findings"][0]["timeline"]["lanes"].as_array().unwrap().len() > 1);
    assert_eq!(json["findings"][2]["verdict"], "not-applicable");
    let junit = report.junit();
    assert!(junit.contains(r#"tests="3" failures="1" errors="0" skipped="1""#), "{junit}");
    let html = report.html();
    for form in [report.text(), junit, html.clone(), report.markdown()] {
        assert!(form.contains(why), "{form}");
    }
    assert!(
        html.contains("<svg") && !html.contains("http-equiv") && !html.contains("src="),
        "it needs nothing else"
    );
}

/// A thousand clients on loopback, over HTTP/2: ten connections, ten writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_last_bytes_leave_together() {
    let report = thousand(Version::Http2).await;
    assert!(report.spread.best_us < 5_000, "apart by {} µs at best", report.spread.best_us);
}

/// The same with a connection each, which takes a thousand writes of about ten microseconds. How far apart they
/// are depends on what else the machine has to do, so it is printed and not judged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections_are_released_together() {
    println!("{}", thousand(Version::Http1).await.text());
}

async fn thousand(version: Version) -> Report {
    let mut running = start("waits").await;
    (running.check.clients, running.check.rounds, running.check.version) = (1_000, 6, version);
    running.check.timeout = Duration::from_secs(120);
    only(&mut running.check, &["simultaneous-duplicates"]);
    let report = running.check.run().await.unwrap();
    report.assert_holds();
    assert_eq!(report.spread.requests_max, 1_000);
    report
}

/// The worst finding is the one that is reported: not that the key is stuck, which it is too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_effect_is_not_reported_as_a_stuck_key() {
    let mut broken = start("stays-locked").await;
    only(&mut broken.check, &["simultaneous-duplicates"]);
    let report = broken.check.run().await.unwrap();
    let text = report.text();
    assert_eq!(report.exit_code(), 1, "{text}");
    assert!(text.contains("sendings of one key had") && !text.contains("wedged"), "{text}");
}
