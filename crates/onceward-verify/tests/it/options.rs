//! Options of the endpoint verifier that change what is sent, end to end: what the service then receives, and what is killed.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use onceward_verify::endpoint::report::ScenarioVerdict;
use onceward_verify::endpoint::{Check, Effects, FaultKind};
use onceward_verify::zoo::start::{check_of_process, free_port};
use onceward_verify::zoo::table;
use tokio::net::{TcpListener, TcpStream};

/// What a service received.
#[derive(Clone, Debug)]
struct Received {
    key: String,
    fields: HeaderMap,
    body: Bytes,
}

/// A service that answers each key once. `X-Fail-Cleanly` fails before the effect; `X-Fail-Badly` too, and burns the key.
/// `X-Fail-Late` fails after the effect, and keeps the failure as the answer; `X-Fail-Late-Badly` too, and frees the key.
#[derive(Clone, Default)]
struct Recorder {
    received: Arc<Mutex<Vec<Received>>>,
    answers: Arc<Mutex<HashMap<String, (StatusCode, String)>>>,
    effects: Arc<Mutex<u64>>,
}

impl Recorder {
    fn charge(&self, fields: &HeaderMap, body: Bytes) -> Response {
        let key =
            fields.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned();
        let failed = (StatusCode::INTERNAL_SERVER_ERROR, "failed before the effect".to_owned());
        let mut received = self.received.lock().unwrap();
        let number = received.len();
        received.push(Received { key: key.clone(), fields: fields.clone(), body });
        let mut answers = self.answers.lock().unwrap();
        if let Some(answer) = answers.get(&key) {
            return answer.clone().into_response();
        }
        if fields.contains_key("x-fail-cleanly") {
            return failed.into_response();
        }
        let created = (StatusCode::CREATED, format!("charge {number}"));
        let answer = if fields.contains_key("x-fail-badly") { failed } else { created };
        *self.effects.lock().unwrap() += u64::from(answer.0 == StatusCode::CREATED);
        let failed_late = (StatusCode::BAD_GATEWAY, "failed after the effect".to_owned());
        if fields.contains_key("x-fail-late-badly") {
            return failed_late.into_response();
        }
        let answer = if fields.contains_key("x-fail-late") { failed_late } else { answer };
        answers.insert(key, answer.clone());
        answer.into_response()
    }

    /// Lets it listen, and gives a check of it.
    async fn serve(&self) -> Check {
        let service = self.clone();
        let handler =
            post(move |fields: HeaderMap, body: Bytes| async move { service.charge(&fields, body) });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let effects = self.effects.clone();
        let count = get(move || async move { effects.lock().unwrap().to_string() });
        let app = Router::new().route("/charges", handler).route("/count", count);
        tokio::spawn(async move { axum::serve(listener, app).await });
        let mut check = Check::new(format!("http://{address}/charges"));
        (check.clients, check.rounds) = (4, 2);
        check
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_field_is_new_in_every_sending_of_one_key() {
    let recorder = Recorder::default();
    let mut check = recorder.serve().await;
    check.fresh_fields =
        vec![("X-Nonce".into(), "{uuid}".into()), ("X-At".into(), "t={unix_ms};n={count}".into())];
    check.scenarios = vec!["retry-after-success".into(), "simultaneous-duplicates".into()];
    check.run().await.unwrap().assert_holds();
    let received = recorder.received();
    let keys: HashSet<&str> = received.iter().map(|one| one.key.as_str()).collect();
    assert!(keys.len() < received.len(), "some keys were sent more than once");
    for name in ["x-nonce", "x-at"] {
        let values: HashSet<&[u8]> = received.iter().map(|one| one.fields[name].as_bytes()).collect();
        assert_eq!(values.len(), received.len(), "{name} is never the same");
        assert!(values.iter().all(|value| !value.contains(&b'{')), "{name} is filled in");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_not_text_arrives_as_it_is() {
    let recorder = Recorder::default();
    let mut check = recorder.serve().await;
    check.body = Bytes::from_static(&[0xff, 0x00, 0x80, b'\r', b'\n', 0xfe]);
    check.scenarios = vec!["retry-after-success".into(), "distinct-keys".into()];
    check.run().await.unwrap().assert_holds();
    let received = recorder.received();
    assert!(received.len() > 6, "{} requests", received.len());
    for one in received {
        assert_eq!(one.body, check.body);
        assert!(!one.fields.contains_key("content-type"), "it is not called JSON");
    }
}

/// A mistake that only the second way to fail shows is found, although the first way is sound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_fail_is_tried() {
    let hook = |name: &str| (name.to_owned(), "1".to_owned());
    for (hooks, verdict) in [
        (vec![hook("X-Fail-Cleanly")], ScenarioVerdict::Holds),
        (vec![hook("X-Fail-Cleanly"), hook("X-Fail-Badly")], ScenarioVerdict::Violated),
    ] {
        let recorder = Recorder::default();
        let mut check = recorder.serve().await;
        check.fail_headers = hooks;
        check.scenarios = vec!["failed-first".into()];
        let report = check.run().await.unwrap();
        let finding = &report.findings[0];
        assert_eq!(finding.verdict, verdict, "{}", report.text());
        if verdict == ScenarioVerdict::Violated {
            assert_eq!(finding.fault, Some(FaultKind::Wedged));
            assert!(finding.why.contains("the failure is replayed forever"), "{}", finding.why);
        }
    }
}

/// The same of failures after the effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_fail_after_the_effect_is_tried() {
    let hook = |name: &str| (name.to_owned(), "1".to_owned());
    for (hooks, verdict) in [
        (vec![hook("X-Fail-Late")], ScenarioVerdict::Holds),
        (vec![hook("X-Fail-Late"), hook("X-Fail-Late-Badly")], ScenarioVerdict::Violated),
    ] {
        let recorder = Recorder::default();
        let mut check = recorder.serve().await;
        check.effects = Effects::url(check.url.replace("/charges", "/count"));
        check.lease = Duration::from_millis(300);
        check.fail_after_effect_headers = hooks;
        check.scenarios = vec!["failed-after-effect".into()];
        let report = check.run().await.unwrap();
        let finding = &report.findings[0];
        assert_eq!(finding.verdict, verdict, "{}", report.text());
        let hooks = finding.reproduce.matches("--fail-after-effect-header ").count();
        assert_eq!(hooks, check.fail_after_effect_headers.len(), "{}", finding.reproduce);
        assert_eq!(finding.fault, (verdict == ScenarioVerdict::Violated).then_some(FaultKind::DoubleEffect));
    }
}

/// A process between the verifier and the service, which is never killed.
async fn forward_to(service: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                // While the service is down the client is hung up on.
                if let Ok(mut behind) = TcpStream::connect(service).await {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut behind).await;
                }
            });
        }
    });
    address
}

/// The service behind another process is killed and started again: a sound one holds, and one that forgets is caught.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_behind_another_process_is_killed() {
    for (name, verdict) in
        [("journal", ScenarioVerdict::Holds), ("effect-before-receipt", ScenarioVerdict::Violated)]
    {
        let folder = tempfile::tempdir().unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_onceward-verify"));
        let mut check = check_of_process(table::named(name).unwrap(), program, folder.path()).unwrap();
        let place = check.url.strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
        let front = forward_to(place.parse().unwrap()).await;
        check.start_url = Some(std::mem::replace(&mut check.url, format!("http://{front}/charges")));
        check.scenarios = vec!["crash".into()];
        let report = check.run().await.unwrap();
        let finding = &report.findings[0];
        assert_eq!(finding.verdict, verdict, "{name}: {}", report.text());
        if verdict == ScenarioVerdict::Holds {
            assert!(
                finding.why.starts_with("10 kills, ") && !finding.why.contains(" 0 before"),
                "{}",
                finding.why
            );
        }
    }
}

/// What a login prints is in no report and no error: not the first one's fields, and not a line that is no field.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_login_prints_is_concealed_from_the_start() {
    let recorder = Recorder::default();
    let mut check = recorder.serve().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let shown = file.path().display().to_string();
    check.ready_command = Some(format!("cat '{shown}'"));
    for printed in ["s3cr3t-bare-token", "Authorization Bearer s3cr3t", "X-Fine: 1\nBad Name: s3cr3t"] {
        std::fs::write(file.path(), printed).unwrap();
        let error = check.run().await.unwrap_err().to_string();
        assert!(error.contains("printed a line that is no header field (line "), "{error}");
        assert!(!error.contains("s3cr3t"), "{error}");
    }
    // An error of the baseline, before the first scenario, quotes what was printed.
    std::fs::write(file.path(), "X-Visitor: s3cr3t-visitor\n").unwrap();
    check.effects = Effects::Command(format!("cat '{shown}' >&2; false"));
    let error = check.run().await.unwrap_err().to_string();
    assert!(error.contains("X-Visitor: …") && !error.contains("s3cr3t"), "{error}");
    check.url = format!("http://anna:s3cr3t@127.0.0.1:{}", free_port().unwrap());
    assert_eq!(check.concealed_url(), check.url.replace("s3cr3t", "…"));
    check.url = check.url.replace("http:", "gopher:");
    let error = check.plan().unwrap_err().to_string();
    assert!(error.contains("anna:…@") && !error.contains("s3cr3t"), "{error}");
}
