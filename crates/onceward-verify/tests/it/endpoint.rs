//! Tests of the endpoint verifier: its plan, its limits, both versions of HTTP, its verdicts without an oracle, and how
//! close together it sends requests.

use std::path::Path;
use std::time::Duration;

use onceward_verify::endpoint::report::{Report, ScenarioVerdict, Tone};
use onceward_verify::endpoint::{Check, Effects, ErrorKind, FaultKind, HttpVersion, Scheme};
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
    (right.check.version, right.check.clients) = (HttpVersion::Http2, 150);
    only(&mut right.check, &scenarios);
    let report = right.check.run().await.unwrap();
    report.assert_holds();
    assert_eq!(report.spread.requests_max, 150);
    let mut broken = start("check-then-write").await;
    broken.check.version = HttpVersion::Http2;
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
    unfailing.fail_headers = vec![("X-Nothing".into(), "1".into())];
    only(&mut unfailing, &["failed-first"]);
    let report = unfailing.run().await.unwrap();
    assert_eq!((report.exit_code(), report.findings[0].verdict), (2, ScenarioVerdict::Inconclusive));
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
    assert_eq!((report.exit_code(), finding.verdict), (0, ScenarioVerdict::Held), "{}", report.text());
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
    assert_eq!(found, [("distinct-keys", ScenarioVerdict::Violated)]);
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
    let report = thousand(HttpVersion::Http2).await;
    assert!(report.spread.best_us < 5_000, "apart by {} µs at best", report.spread.best_us);
}

/// The same with a connection each, which takes a thousand writes of about ten microseconds. How far apart they
/// are depends on what else the machine has to do, so it is printed and not judged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections_are_released_together() {
    println!("{}", thousand(HttpVersion::Http1).await.text());
}

async fn thousand(version: HttpVersion) -> Report {
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

async fn check_process(name: &str, scenarios: &[&str], change: impl FnOnce(&mut Check)) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_onceward-verify"));
    let mut check = check_of_process(table::named(name).unwrap(), program, folder.path()).unwrap();
    only(&mut check, scenarios);
    change(&mut check);
    check.run().await.unwrap()
}

/// What our own kills make a server forget is the finding of the crash, and not of the late retry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_retry_is_not_blamed_for_our_kills() {
    let report = check_process("memory-only", &["crash", "late-retry"], |_| {}).await;
    assert_eq!(report.finding("crash").unwrap().fault, Some(FaultKind::DoubleEffect), "{}", report.text());
    assert_eq!(report.finding("late-retry").unwrap().verdict, ScenarioVerdict::Holds, "{}", report.text());
}

/// Where bodies are not compared at all, no sentence says that they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_nobody_compares_are_not_called_compared() {
    let mut broken = start("body-ignored").await;
    only(&mut broken.check, &["reordered-json", "other-body-after"]);
    let report = broken.check.run().await.unwrap();
    assert_eq!(report.finding("reordered-json").unwrap().why, "replayed; no second effect");
    let finding = report.finding("other-body-after").unwrap();
    assert_eq!(finding.fault, Some(FaultKind::WrongAnswer));
    let tones: Vec<Tone> = finding.timeline.as_ref().unwrap().lanes.iter().map(|lane| lane.tone).collect();
    assert_eq!(tones, [Tone::Done, Tone::Another], "the second bar is the fault");
}

/// A service without any layer has one mistake, and what it cannot get wrong says nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_deduplicated_is_one_finding_and_the_rest_is_vacuous() {
    let mut plain = start("plain").await;
    only(
        &mut plain.check,
        &[
            "simultaneous-duplicates",
            "retry-after-success",
            "other-tenant",
            "distinct-keys",
            "malformed-keys",
        ],
    );
    let report = plain.check.run().await.unwrap();
    assert!(!report.deduplicates);
    let mains: Vec<&str> = report.main_findings().iter().map(|finding| finding.scenario).collect();
    assert_eq!(mains, ["simultaneous-duplicates"], "{}", report.text());
    for scenario in ["other-tenant", "distinct-keys"] {
        assert_eq!(report.finding(scenario).unwrap().verdict, ScenarioVerdict::Vacuous, "{}", report.text());
    }
    assert!(
        report.summary().contains("worst: double effect (simultaneous-duplicates)"),
        "{}",
        report.summary()
    );
}

/// No form of a report, and no error, has a secret in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_form_of_a_report_has_a_secret_in_it() {
    let mut running = start("check-then-write").await;
    only(&mut running.check, &["simultaneous-duplicates", "retry-after-success"]);
    running.check.url = running.check.url.replace("http://", "http://anna:s3cr3t-1@");
    running.check.headers = vec![("X-Api-Key".into(), "s3cr3t-2".into())];
    running.check.fail_headers = vec![("X-Fail-Token".into(), "s3cr3t-3".into())];
    let report = running.check.run().await.unwrap();
    for form in [report.text(), report.json(), report.junit(), report.html(), report.markdown()] {
        assert!(!form.contains("s3cr3t"), "{form}");
        assert!(form.contains("anna:…@"), "{form}");
    }
    running.check.effects = Effects::Command("PASSWORD=s3cr3t-4 false".into());
    let error = running.check.run().await.unwrap_err().to_string();
    assert!(!error.contains("s3cr3t"), "{error}");
}

/// The form of keys is found out, and the command that repeats a finding has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_form_of_keys_is_found_out() {
    let mut raw = start("raw-keys-only").await;
    only(&mut raw.check, &["retry-after-success"]);
    let report = raw.check.run().await.unwrap();
    report.assert_holds();
    assert!(report.key_form.starts_with("raw (the other form is refused)"), "{}", report.key_form);
    assert!(report.findings[0].reproduce.contains("--raw-key"), "{}", report.findings[0].reproduce);
    let mut both = start("waits").await;
    only(&mut both.check, &["retry-after-success"]);
    assert_eq!(both.check.run().await.unwrap().key_form, "quoted; raw, it is the same key");
}

/// Kills are aimed at the time between effect and answer, and the sentence says how many fell there. The effect comes 200 ms
/// after the request and the answer 20 ms later: of kills that are spread evenly over the request, one in eleven falls there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_fall_between_effect_and_answer() {
    let report = check_process("journal", &["crash"], |check| {
        check.headers = vec![("X-Work-Ms".into(), "200".into())];
        check.kills = 20;
    })
    .await;
    let why = &report.finding("crash").unwrap().why;
    let between: usize = why
        .split(" of them between effect and answer")
        .next()
        .and_then(|before| before.rsplit(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("{why}"));
    println!("{why}");
    // Half of them are aimed, so that ten are to fall there. Twenty that are spread evenly, 11 ms apart, could not be more
    // than two in a window of 20 ms.
    assert!(between >= 4, "{why}");
}

/// Where no kill fell between effect and answer, half as many more are aimed at it. The answer comes microseconds after the
/// effect here, which a kill hardly ever hits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_kills_are_aimed_where_none_fell_between_effect_and_answer() {
    let report = check_process("journal", &["crash"], |check| check.kills = 4).await;
    let why = &report.finding("crash").unwrap().why;
    let is_missed = why.contains(", 0 of them between effect and answer");
    assert!(!is_missed || why.starts_with("6 kills, "), "{why}");
}

/// A login after each start gives the fields of all requests after it, and a login that fails is quoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_comes_after_each_start() {
    let report = check_process("journal", &["crash", "late-retry"], |check| {
        check.kills = 2;
        check.tenants = Vec::new();
        check.ready_command = Some("echo 'Authorization: Bearer of-the-login.1'".into());
    })
    .await;
    report.assert_holds();
    assert!(!report.json().contains("of-the-login"), "what a login printed is a secret");
    let mut refused = start("waits").await;
    refused.check.ready_command = Some("echo no such user >&2; exit 4".into());
    let error = refused.check.run().await.unwrap_err().to_string();
    assert!(error.contains("no such user"), "{error}");
}

/// The oracle asks a database without a shell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_cannot_be_asked_is_said() {
    let mut running = start("waits").await;
    running.check.effects =
        Effects::Sql { url: "postgres://anna:s3cr3t@127.0.0.1:9/x".into(), query: "select 1".into() };
    let error = running.check.run().await.unwrap_err().to_string();
    assert!(error.contains("psql") && !error.contains("s3cr3t"), "{error}");
}

/// A default run of a fast service must stay under ten seconds. Its waits and requests are bounded here, not its time: a busy
/// machine is no fault of the verifier.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_default_run_sends_no_more_than_it_can_send_in_ten_seconds() {
    let running = start("waits").await;
    let mut check = Check::new(running.check.url.clone());
    check.effects = running.check.effects.clone();
    check.body = running.check.body.clone();
    let report = check.run().await.unwrap();
    report.assert_holds();
    println!("a default run: {} requests in {} ms", report.requests, report.took_ms);
    assert!(report.requests < 4_000, "{} requests", report.requests);
    // A debug build on a busy machine says nothing of the time; a release build does.
    if !cfg!(debug_assertions) {
        assert!(report.took_ms < 10_000, "{} ms", report.took_ms);
    }
}

/// Where nobody counts effects and all answers look the same, nothing can be said of keys that are nearly the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_can_see_is_not_claimed() {
    let mut alike = start("alike").await;
    alike.check.effects = Effects::Unseen;
    let inconclusive = ["distinct-keys", "key-squatting", "other-tenant", "other-path"];
    only(&mut alike.check, &[&inconclusive[..], &["failed-after-effect"]].concat());
    let report = alike.check.run().await.unwrap();
    for scenario in inconclusive {
        let verdict = report.finding(scenario).unwrap().verdict;
        assert_eq!(verdict, ScenarioVerdict::Inconclusive, "{scenario}: {}", report.text());
    }
    let verdict = report.finding("failed-after-effect").unwrap().verdict;
    assert_eq!(verdict, ScenarioVerdict::NotApplicable, "{}", report.text());
}

/// A refusal with 409 is told from "come again" soon after the key is done, not after the whole lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_409_that_refuses_is_not_waited_out() {
    let mut sound = start("refuses-with-409").await;
    only(&mut sound.check, &["other-body-after", "other-body-during", "other-path", "reordered-json"]);
    sound.check.lease = Duration::from_secs(600);
    let report = sound.check.run().await.unwrap();
    report.assert_holds();
    assert!(report.took_ms < 60_000, "{} ms", report.took_ms);
    for scenario in ["reordered-json", "other-path"] {
        assert!(report.finding(scenario).unwrap().why.contains("refused with 409"), "{}", report.text());
    }
}

/// A key that is held is neither done nor wrong, in whichever scenario it shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_is_held_in_every_scenario() {
    let mut sound = start("holds-expired").await;
    only(&mut sound.check, &["slow-owner", "retry-after-success"]);
    let report = sound.check.run().await.unwrap();
    let finding = report.finding("slow-owner").unwrap();
    assert_eq!((report.exit_code(), finding.verdict), (0, ScenarioVerdict::Held), "{}", report.text());
    assert!(finding.why.starts_with("2 keys are held as unknown"), "{}", finding.why);
}

/// Events are known by their ids, not by keys: what an endpoint does with keys says nothing about them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_judged_where_no_key_is_known() {
    for (name, verdict) in
        [("plain", ScenarioVerdict::Holds), ("plain-with-events-when-done", ScenarioVerdict::Violated)]
    {
        let mut plain = start(name).await;
        only(&mut plain.check, &["simultaneous-duplicates", "redelivered-webhook"]);
        let report = plain.check.run().await.unwrap();
        assert!(!report.deduplicates);
        let finding = report.finding("redelivered-webhook").unwrap();
        assert_eq!((finding.verdict, finding.same_cause_as), (verdict, None), "{}", report.text());
    }
}

/// Every scheme is signed as its receivers check it, and a delivery again is told from a new event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_every_scheme_are_judged() {
    for scheme in [Scheme::Stripe, Scheme::GitHub, Scheme::Standard, Scheme::Shopify] {
        for (name, verdict) in
            [("waits", ScenarioVerdict::Holds), ("events-when-done", ScenarioVerdict::Violated)]
        {
            let mut running = start(name).await;
            only(&mut running.check, &["redelivered-webhook"]);
            running.check.webhook.as_mut().unwrap().scheme = scheme;
            let report = running.check.run().await.unwrap();
            assert_eq!(report.findings[0].verdict, verdict, "{}: {}", scheme.name(), report.text());
            let reproduce = &report.findings[0].reproduce;
            assert!(reproduce.contains(&format!("--webhook-scheme {} ", scheme.name())), "{reproduce}");
        }
    }
}
