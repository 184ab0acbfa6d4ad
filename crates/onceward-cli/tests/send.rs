//! `onceward send`: its arguments, output and exit codes.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::Mutex;

/// A server that gives these replies in turn, then always the last one, and records the requests.
struct Server {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(replies: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/charges", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (seen, replies): (_, Vec<String>) =
            (requests.clone(), replies.iter().map(|reply| (*reply).into()).collect());
        std::thread::spawn(move || {
            for (number, socket) in listener.incoming().enumerate() {
                let mut socket = socket.unwrap();
                let request = read(&mut socket);
                seen.lock().unwrap().push(request);
                let reply = &replies[number.min(replies.len() - 1)];
                let _ = socket.write_all(reply.as_bytes());
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn read(socket: &mut impl Read) -> String {
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok())
                .unwrap_or(0_usize);
            if body.len() >= length {
                return text;
            }
        }
        let length = socket.read(&mut buffer).unwrap_or(0);
        if length == 0 {
            return text;
        }
        text.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
}

const PAID: &str =
    "HTTP/1.1 201 Created\r\nX-Charge: 1\r\nContent-Length: 4\r\nConnection: close\r\n\r\npaid";
const BUSY: &str = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const DECLINED: &str = "HTTP/1.1 402 No\r\nContent-Length: 8\r\nConnection: close\r\n\r\ndeclined";
const UNKNOWN: &str = "HTTP/1.1 410 Gone\r\nContent-Type: application/problem+json\r\nContent-Length: 43\r\n\
                       Connection: close\r\n\r\n{\"type\":\"urn:onceward:problem:key-expired\"}\n";

fn onceward(arguments: &[&str]) -> Output {
    let binary = env!("CARGO_BIN_EXE_onceward");
    Command::new(binary).arg("send").args(arguments).env_remove("ONCEWARD_JOURNAL").output().unwrap()
}

fn send(server: &Server, journal: &Path, more: &[&str]) -> Output {
    let journal = journal.to_str().unwrap();
    let mut arguments = vec!["--url", &server.url, "--body", r#"{"amount":12}"#, "--journal", journal];
    arguments.extend(more);
    onceward(&arguments)
}

#[track_caller]
fn check(output: &Output, code: i32, stdout: &str, stderr: &str) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    assert_eq!(out, stdout, "{err}");
    assert!(err.contains(stderr), "{err}");
}

#[test]
fn the_second_run_prints_the_recorded_answer_and_sends_nothing() {
    let (server, folder) = (Server::start(&[BUSY, PAID]), tempfile::tempdir().unwrap());
    check(&send(&server, folder.path(), &["--intent", "order-7", "-v"]), 0, "paid", "2 tries");
    check(&send(&server, folder.path(), &["--intent", "order-7", "-v"]), 0, "paid", "nothing was sent");
    check(
        &send(&server, folder.path(), &["--intent", "order-7", "--method", "PUT"]),
        2,
        "",
        "use another name",
    );
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    let key =
        |request: &str| request.lines().find(|line| line.starts_with("idempotency-key")).unwrap().to_owned();
    assert_eq!(key(&requests[0]), key(&requests[1]));
    assert!(requests[0].contains("content-type: application/json"), "{}", requests[0]);
    assert!(requests[1].contains("onceward-try: 2"), "{}", requests[1]);
}

#[test]
fn a_refusal_is_an_answer_with_its_own_code() {
    let (server, folder) = (Server::start(&[DECLINED]), tempfile::tempdir().unwrap());
    for _ in 0..2 {
        check(&send(&server, folder.path(), &["--intent", "order-7"]), 1, "declined", "");
    }
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn unfinished_intents_are_resumed_and_unknown_ones_are_not() {
    let (server, folder) = (Server::start(&[BUSY, UNKNOWN]), tempfile::tempdir().unwrap());
    check(&send(&server, folder.path(), &["--intent", "a", "--tries", "1"]), 3, "", "given up for now");
    let journal = folder.path().to_str().unwrap();
    let open = onceward(&["--resume", "--journal", journal]);
    let before = server.requests().len();
    assert_eq!(open.status.code(), Some(4), "{open:?}");
    assert!(String::from_utf8_lossy(&open.stdout).starts_with("a\tthe outcome is unknown"), "{open:?}");
    check(&send(&server, folder.path(), &["--intent", "a"]), 4, "", "is unknown");
    assert_eq!(server.requests().len(), before, "nothing was sent again");
}

/// An intent that is unknown, because the server has forgotten its key.
fn unknown(server: &Server, folder: &Path) {
    check(&send(server, folder, &["--intent", "a"]), 4, "", "is unknown");
}

fn settle(folder: &Path, more: &[&str]) -> Output {
    let mut arguments = vec!["--journal", folder.to_str().unwrap(), "--settle"];
    arguments.extend(more);
    onceward(&arguments)
}

#[test]
fn an_unknown_intent_that_happened_is_settled_with_its_answer() {
    let (server, folder) = (Server::start(&[UNKNOWN]), tempfile::tempdir().unwrap());
    unknown(&server, folder.path());
    let done = ["done", "--intent", "a", "--status", "201", "--body", "paid", "-H", "X-Charge: 1"];
    check(&settle(folder.path(), &done), 2, "", "add --yes");
    let done = [&done[..], &["--yes"]].concat();
    for _ in 0..2 {
        check(&settle(folder.path(), &done), 0, "", "");
    }
    check(
        &send(&server, folder.path(), &["--intent", "a", "-i"]),
        0,
        "HTTP 201 Created\nx-charge: 1\n\npaid",
        "",
    );
    check(&onceward(&["--resume", "--journal", folder.path().to_str().unwrap()]), 0, "", "");
    assert_eq!(server.requests().len(), 1, "nothing was sent again");
    check(&settle(folder.path(), &["not-done", "--intent", "a", "--yes"]), 2, "", "it has an answer");
}

#[test]
fn an_unknown_intent_settled_as_not_done_is_sent_again() {
    let (server, folder) = (Server::start(&[UNKNOWN, PAID]), tempfile::tempdir().unwrap());
    unknown(&server, folder.path());
    check(&settle(folder.path(), &["not-done", "--intent", "a", "--yes"]), 0, "", "");
    check(&send(&server, folder.path(), &["--intent", "a"]), 0, "paid", "");
    let keys: std::collections::BTreeSet<String> = server
        .requests()
        .iter()
        .map(|request| request.lines().find(|line| line.starts_with("idempotency-key")).unwrap().to_owned())
        .collect();
    assert_eq!(keys.len(), 2, "a new intent with a key of its own");
}

#[test]
fn only_an_unknown_intent_can_be_settled_and_only_with_valid_arguments() {
    let (server, folder) = (Server::start(&[PAID]), tempfile::tempdir().unwrap());
    check(&send(&server, folder.path(), &["--intent", "a"]), 0, "paid", "");
    for (arguments, says) in [
        (vec!["not-done", "--intent", "a", "--yes"], "it has an answer"),
        (vec!["not-done", "--intent", "b", "--yes"], "no intent of that name"),
        (vec!["done", "--intent", "a", "--yes"], "needs --status"),
        (vec!["not-done", "--intent", "a", "--body", "x", "--yes"], "takes no answer"),
        (vec!["not-done", "--yes"], "--intent"),
        (vec!["perhaps", "--intent", "a"], "not-done"),
    ] {
        check(&settle(folder.path(), &arguments), 2, "", says);
    }
}

#[test]
fn an_open_intent_is_finished_by_resume() {
    let folder = tempfile::tempdir().unwrap();
    // A reserved port without a listener.
    let port = tokio::net::TcpSocket::new_v4().unwrap();
    port.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/charges", port.local_addr().unwrap());
    let journal = folder.path().to_str().unwrap();
    let down = onceward(&["--url", &url, "--journal", journal, "--intent", "a", "--at-most", "1"]);
    check(&down, 3, "", "did not take effect");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(async { port.listen(1).unwrap().into_std().unwrap() });
    listener.set_nonblocking(false).unwrap();
    let served = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        read(&mut socket);
        socket.write_all(PAID.as_bytes()).unwrap();
    });
    check(&onceward(&["--resume", "--journal", journal]), 0, "a\t201\n", "");
    served.join().unwrap();
    check(&onceward(&["--resume", "--journal", journal]), 0, "", "");
}

#[test]
fn bodies_and_fields_are_read_from_files_and_secrets_stay_out_of_the_journal() {
    let (server, folder) = (Server::start(&[PAID]), tempfile::tempdir().unwrap());
    let (body, fields) = (folder.path().join("body"), folder.path().join("fields"));
    std::fs::write(&body, "not json").unwrap();
    std::fs::write(&fields, "Authorization: Bearer s3cr3t\nX-Shop: 7\n").unwrap();
    let journal = folder.path().join("journal");
    let output = onceward(&[
        "--url",
        &server.url,
        "--body",
        &format!("@{}", body.display()),
        "-H",
        &format!("@{}", fields.display()),
        "--journal",
        journal.to_str().unwrap(),
        "--include",
    ]);
    check(&output, 0, "HTTP 201 Created\nx-charge: 1\ncontent-length: 4\nconnection: close\n\npaid", "");
    let request = &server.requests()[0];
    assert!(request.contains("authorization: Bearer s3cr3t") && request.contains("x-shop: 7"), "{request}");
    assert!(request.ends_with("\r\n\r\nnot json") && !request.contains("application/json"), "{request}");
}

#[test]
fn a_bad_command_sends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a-file");
    std::fs::write(&file, "mine").unwrap();
    let file = file.to_str().unwrap();
    for (arguments, says) in [
        (vec!["--url", "nonsense"], "is no URL"),
        (vec!["--url", "http://127.0.0.1:1/", "--intent", "a"], "--journal"),
        (vec!["--url", "http://127.0.0.1:1/", "--body", "@/nowhere/at/all"], "/nowhere/at/all"),
        (vec!["--url", "http://127.0.0.1:1/", "-H", "no colon"], "Name: value"),
        (vec!["--url", "http://127.0.0.1:1/", "--journal", file], "a-file"),
        (vec!["--resume"], "--journal"),
        (vec![], "--url"),
    ] {
        check(&onceward(&arguments), 2, "", says);
    }
}

const RECORDED: &str = "HTTP/1.1 500 Failed\r\nIdempotency-Expires: Fri, 01 Jan 2100 00:00:00 GMT\r\n\
                        Content-Length: 6\r\nConnection: close\r\n\r\nfailed";

#[test]
fn a_failure_that_the_server_has_recorded_is_the_answer() {
    let (server, folder) = (Server::start(&[RECORDED]), tempfile::tempdir().unwrap());
    for _ in 0..2 {
        check(&send(&server, folder.path(), &["--intent", "a"]), 1, "failed", "");
    }
    assert_eq!(server.requests().len(), 1, "not retried, and recorded in the journal");
}

/// The retry budget allows three retries in ten seconds. The fourth waits for it: `--at-most` says how long.
#[test]
fn it_keeps_trying_until_its_time_is_up() {
    let (server, folder) =
        (Server::start(&[BUSY, BUSY, BUSY, BUSY, BUSY, PAID]), tempfile::tempdir().unwrap());
    check(&send(&server, folder.path(), &["--at-most", "60", "-v"]), 0, "paid", "6 tries");
    let (server, began) = (Server::start(&[BUSY]), std::time::Instant::now());
    let gave_up = send(&server, folder.path(), &["--at-most", "2"]);
    check(&gave_up, 3, "", "its time is up");
    assert!(began.elapsed() < std::time::Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn the_journal_is_listed_and_nothing_is_sent() {
    let (server, folder) = (Server::start(&[BUSY, PAID, UNKNOWN]), tempfile::tempdir().unwrap());
    check(&send(&server, folder.path(), &["--intent", "open", "--tries", "1"]), 3, "", "given up");
    check(&send(&server, folder.path(), &["--intent", "paid"]), 0, "paid", "");
    check(&send(&server, folder.path(), &["--intent", "unknown"]), 4, "", "is unknown");
    let journal = folder.path().to_str().unwrap();
    let lines = |arguments: &[&str]| {
        let listed = onceward(&[arguments, &["--journal", journal]].concat());
        assert_eq!(listed.status.code(), Some(0), "{listed:?}");
        String::from_utf8(listed.stdout).unwrap()
    };
    let columns = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split('\t').take(2).collect::<Vec<_>>().join(" ")).collect()
    };
    let unfinished = lines(&["--list"]);
    assert_eq!(columns(&unfinished), ["open open", "unknown unknown"], "{unfinished}");
    assert!(unfinished.contains(&format!("POST {}", server.url)), "{unfinished}");
    assert_eq!(columns(&lines(&["--list", "all"])), ["open open", "unknown unknown", "paid answered 201"]);
    assert_eq!(server.requests().len(), 3);
}

/// What is a credential by its name, or was given as one, is sent, is in no file, and is needed again.
#[test]
fn credentials_of_every_kind_stay_out_of_the_journal_and_are_needed_again() {
    let (server, folder) = (Server::start(&[BUSY, PAID]), tempfile::tempdir().unwrap());
    let secrets =
        ["-H", "X-Api-Key: s3cr3t-1", "-H", "X-Shop-Token: s3cr3t-2", "--credential", "X-Gate: s3cr3t-3"];
    let sent = send(&server, folder.path(), &[&secrets[..], &["--intent", "a", "--tries", "1"]].concat());
    check(&sent, 3, "", "given up");
    assert!(!String::from_utf8_lossy(&sent.stderr).contains("s3cr3t"), "{sent:?}");
    let request = server.requests()[0].clone();
    for secret in ["x-api-key: s3cr3t-1", "x-shop-token: s3cr3t-2", "x-gate: s3cr3t-3"] {
        assert!(request.contains(secret), "{request}");
    }
    let journal = folder.path().to_str().unwrap();
    assert!(holds(folder.path(), "x-api-key") && !holds(folder.path(), "s3cr3t"));
    let without = onceward(&["--resume", "--journal", journal]);
    assert_eq!(without.status.code(), Some(2), "{without:?}");
    let text = String::from_utf8_lossy(&without.stdout);
    assert!(text.contains("was sent with") && text.contains("nothing was sent"), "{text}");
    assert_eq!(server.requests().len(), 1);
    check(&onceward(&[&["--resume", "--journal", journal], &secrets[..]].concat()), 0, "a\t201\n", "");
    assert!(!holds(folder.path(), "s3cr3t"));
}

fn holds(folder: &Path, needle: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return holds(&path, needle);
        }
        std::fs::read(&path).unwrap().windows(needle.len()).any(|window| window == needle.as_bytes())
    })
}

/// A server without TLS: the handshake fails, so no part of the request was sent.
#[test]
fn https_is_supported() {
    let server = Server::start(&["no TLS here"]);
    let url = server.url.replace("http:", "https:");
    check(&onceward(&["--url", &url, "--body", "s3cr3t", "--at-most", "1"]), 3, "", "did not take effect");
    assert!(server.requests().iter().all(|request| !request.contains("s3cr3t")));
}

/// A try that has no time would be cut off somewhere: with luck before, without it after the request has left.
#[test]
fn no_time_and_no_tries_are_refused_before_anything_is_sent() {
    let (server, folder) = (Server::start(&[PAID]), tempfile::tempdir().unwrap());
    check(&send(&server, folder.path(), &["--at-most", "0"]), 2, "", "--at-most");
    check(&send(&server, folder.path(), &["--tries", "0"]), 2, "", "--tries");
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn the_help_documents_every_exit_code() {
    let help = onceward(&["--help"]);
    let text = String::from_utf8_lossy(&help.stdout);
    for code in 0..=5 {
        assert!(text.contains(&format!("\n  {code}  ")), "{text}");
    }
}
