//! Logs and traces of a running process.

use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::process::{Process, onceward};

const KEY: &str = "a-key-that-nobody-may-read";

/// Settles an unknown outcome under [`KEY`], which is logged, and returns the log.
fn logged(args: &[&str]) -> String {
    let folder = tempdir().unwrap();
    let mut command = onceward(&["serve", "--admin", "127.0.0.1:0"]);
    command.args(args).arg("--store").stderr(Stdio::piped());
    let mut process = Process::start(command, folder.path());
    let policy = json!({"late_effect_max_ms": 0});
    let claim = json!({"scope": "s", "operation": "o", "key": KEY, "policy": policy});
    let claim = process.post("/v1/claim", &claim).json();
    assert_eq!(process.post("/v1/unknown", &json!({"ticket": claim["ticket"]})).status, 204);
    let settle =
        json!({"scope": "s", "operation": "o", "key": KEY, "fence": claim["fence"], "not_done": true});
    assert_eq!(process.post("/v1/settle", &settle).status, 204);
    process.stop();
    std::io::read_to_string(process.child.stderr.take().unwrap()).unwrap()
}

#[test]
fn logs_are_text_or_json_and_contain_keys_only_as_hashes() {
    let hashed = &blake3::hash(KEY.as_bytes()).to_hex()[..12];
    let text = logged(&[]);
    assert!(text.contains("a receipt was changed by hand") && text.contains(hashed), "{text}");
    assert!(!text.contains('\x1b'), "{text}");

    let lines = logged(&["--log-format", "json", "--log", "debug"]);
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let settled = lines.iter().find(|line| line["message"] == "a receipt was changed by hand").unwrap();
    assert_eq!((&settled["level"], &settled["key"]), (&json!("WARN"), &json!(hashed)));
    assert_eq!(settled["span"]["path"], "/v1/settle", "{settled}");

    assert_eq!(logged(&["--log", "error"]), "");
    for all in [text, logged(&["--log", "trace,h2=off"])] {
        assert!(!all.contains(KEY), "{all}");
    }
}

#[cfg(not(feature = "otel"))]
#[test]
fn a_build_without_traces_does_not_offer_them() {
    let help = onceward(&["serve", "--help"]).output().unwrap();
    assert!(!String::from_utf8(help.stdout).unwrap().contains("otlp"));
    let ended = onceward(&["serve", "--otlp", "http://127.0.0.1:4318"]).output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(2));
    assert!(said.contains("unexpected argument '--otlp'"), "{said}");
}

#[cfg(feature = "otel")]
#[test]
fn every_request_is_a_span_in_the_trace_of_its_caller() {
    use std::io::{Read, Write};

    let collector = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", collector.local_addr().unwrap());
    let received = std::thread::spawn(move || {
        let (mut socket, _) = collector.accept().unwrap();
        let mut bytes = Vec::new();
        let mut some = [0; 4096];
        loop {
            let read = socket.read(&mut some).unwrap();
            bytes.extend_from_slice(&some[..read]);
            let Some(head) = bytes.windows(4).position(|end| end == b"\r\n\r\n") else { continue };
            let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
            let length = text.split("content-length: ").nth(1).unwrap().lines().next().unwrap();
            if bytes.len() == head + 4 + length.parse::<usize>().unwrap() {
                break;
            }
        }
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        bytes
    });
    let folder = tempdir().unwrap();
    let command = onceward(&["serve", "--admin", "127.0.0.1:0", "--otlp", &url, "--store"]);
    let mut process = Process::start(command, folder.path());
    let trace: u128 = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;
    let parent = format!("00-{trace:032x}-00f067aa0ba902b7-01");
    let fields = [("traceparent", parent.as_str()), ("Idempotency-Key", KEY)];
    assert_eq!(crate::process::send(process.address, "GET", "/v1/receipts", &fields, "").status, 200);
    process.stop();
    let bytes = received.join().unwrap();
    let contains = |wanted: &[u8]| bytes.windows(wanted.len()).any(|found| found == wanted);
    assert!(contains(b"POST /v1/traces HTTP/1.1"));
    assert!(contains(b"/v1/receipts") && contains(&trace.to_be_bytes()));
    assert!(contains(&blake3::hash(KEY.as_bytes()).to_hex().as_bytes()[..12]) && !contains(KEY.as_bytes()));
}
