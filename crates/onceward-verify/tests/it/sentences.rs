//! What findings say, and how they look: the sentences and colours that a reader decides by.

use std::path::Path;

use onceward_verify::endpoint::report::{Finding, Report, ScenarioVerdict, Tone};
use onceward_verify::endpoint::{Check, Effects, FaultKind};
use onceward_verify::zoo::start::{RunningService, check_of_process};
use onceward_verify::zoo::table;

/// One scenario of a service of the zoo in this process.
async fn judged(name: &str, scenario: &str, change: impl FnOnce(&mut Check)) -> Report {
    let mut running = RunningService::start(table::named(name).unwrap()).await.unwrap();
    running.check.scenarios = vec![scenario.to_owned()];
    change(&mut running.check);
    running.check.run().await.unwrap()
}

fn violated(report: &Report) -> &Finding {
    let finding = &report.findings[0];
    assert_eq!(finding.verdict, ScenarioVerdict::Violated, "{}", report.text());
    finding
}

fn tones(report: &Report) -> Vec<Tone> {
    let timeline = violated(report).timeline.as_ref().expect("a violation has one");
    timeline.lanes.iter().map(|lane| lane.tone).collect()
}

/// A server that repeats its open work when it starts has two effects before anybody retries, and the sentence does not
/// blame the retry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effects_of_the_restart_are_not_blamed_on_the_retry() {
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_onceward-verify"));
    let service = table::named("reruns-on-start").unwrap();
    let mut check = check_of_process(service, program, folder.path()).unwrap();
    check.scenarios = vec!["crash".into()];
    let report = check.run().await.unwrap();
    let finding = violated(&report);
    assert_eq!(finding.fault, Some(FaultKind::DoubleEffect));
    assert!(finding.why.contains("2 effects before the retry, and 2 effects after it"), "{}", finding.why);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_freed_with_its_lease_is_found_after_the_lease() {
    let report = judged("frees-after-the-lease", "failed-after-effect", |_| {}).await;
    let finding = violated(&report);
    assert_eq!(finding.fault, Some(FaultKind::DoubleEffect));
    assert!(finding.why.contains("a retry after the lease ran: 2 effects in all"), "{}", finding.why);
}

/// A second effect is counted before the key that it leaves stuck is reported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_effect_of_another_body_is_not_reported_as_a_stuck_key() {
    let report = judged("compared-too-late", "other-body-after", |_| {}).await;
    let finding = violated(&report);
    assert_eq!(finding.fault, Some(FaultKind::DoubleEffect), "{}", finding.why);
    assert!(finding.why.contains("2 sendings of one key had 2 effects"), "{}", finding.why);
}

/// Only a slow request shows an instance that waits for another for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn races_are_run_against_slow_requests_too() {
    let report = judged("patient-only-at-home", "several-instances", |_| {}).await;
    assert_eq!(violated(&report).fault, Some(FaultKind::DoubleEffect));
    // Each of them has a slow round, which a sound service passes.
    for scenario in [
        "retry-after-hang-up",
        "other-body-during",
        "several-instances",
        "key-squatting",
        "failed-first",
        "lost-update",
        "redelivered-webhook",
    ] {
        let report = judged("waits", scenario, |_| {}).await;
        report.assert_holds();
        assert!(report.findings[0].took_ms >= 800, "{scenario}: {} ms", report.findings[0].took_ms);
    }
}

/// What loses patience only with slow work is caught by the slow round, and by nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_events_and_slow_changes_have_rounds_of_their_own() {
    for (name, scenario) in
        [("event-waiter-loses-patience", "redelivered-webhook"), ("version-before-slow-work", "lost-update")]
    {
        let report = judged(name, scenario, |_| {}).await;
        violated(&report);
        judged(name, scenario, |check| check.slow_header = None).await.assert_holds();
    }
}

/// The sentence names the statuses that the changes which lost got.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_of_changes_that_lost_are_counted() {
    let report = judged("versions-with-409", "lost-update", |_| {}).await;
    report.assert_holds();
    let finding = &report.findings[0];
    assert!(finding.why.contains("the others got 409, and its retry"), "{}", finding.why);
    assert!(
        finding.notes[0].starts_with("25 of 25 changes of a version that is gone got 409"),
        "{:?}",
        finding.notes
    );
    let report = judged("waits", "lost-update", |_| {}).await;
    assert!(report.findings[0].why.contains("the others got 412, and its retry"), "{}", report.text());
    assert!(report.findings[0].notes.is_empty(), "{}", report.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_a_command_does_not_print_has_the_hint_of_commands() {
    let running = RunningService::start(table::named("waits").unwrap()).await.unwrap();
    let mut check = running.check.clone();
    check.effects = Effects::Command("echo '{\"count\":7}'".into());
    let error = check.run().await.unwrap_err().to_string();
    assert!(error.contains("(the command must print nothing else)"), "{error}");
    assert!(!error.contains("--effects-pointer"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_of_come_again_are_in_the_sentence() {
    let report = judged("conflicts", "retry-while-running", |_| {}).await;
    report.assert_holds();
    let why = &report.findings[0].why;
    assert!(why.contains("told to come again with 409; one effect each"), "{why}");
}

/// Where quotes are letters two quotes are a key, and only an empty field is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_quotes_are_a_key_where_quotes_are_letters() {
    let report = judged("quotes-are-letters", "malformed-keys", |_| {}).await;
    report.assert_holds();
    assert!(report.key_form.contains("raw, it is another key"), "{}", report.key_form);
    let why = &report.findings[0].why;
    assert!(why.contains("1 empty one runs like no key") && why.contains("6 honoured"), "{why}");
}

/// Green alone would hide the fault.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_done_and_must_not_have_been_is_red() {
    let report = judged("stale-writes", "lost-update", |_| {}).await;
    assert!(tones(&report).contains(&Tone::Another), "{:?}", tones(&report));
    for name in ["case-folded-keys", "dashless-keys"] {
        let report = judged(name, "distinct-keys", |_| {}).await;
        assert_eq!(tones(&report), [Tone::Done, Tone::Another], "{name}");
    }
    let report = judged("short-keys", "distinct-keys", |_| {}).await;
    assert!(tones(&report).contains(&Tone::Another), "{:?}", tones(&report));
    // Two effects behind answers that are all alike: a mark counts them.
    let report = judged("waiter-gives-up-late", "long-running-duplicates", |_| {}).await;
    let marks = &violated(&report).timeline.as_ref().unwrap().marks;
    let is_counted = marks.iter().any(|mark| mark.text.ends_with(" effects"));
    assert!(is_counted && report.html().contains("class=\"marked\""), "{marks:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_has_its_date_its_version_and_a_summary() {
    let report = judged("waits", "retry-after-success", |_| {}).await;
    let (page, date) = (report.html(), report.started());
    assert!(date.ends_with(" UTC") && date.starts_with("20"), "{date}");
    let version = format!("onceward verify {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(page.matches(&date).count(), 2, "at the top and at the end: {page}");
    assert!(page.contains(&version) && page.contains(&format!("seed {}", report.seed)), "{page}");
    assert!(page.contains(&report.summary()), "{page}");
}
