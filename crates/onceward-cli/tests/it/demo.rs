//! `onceward demo`, run with its processes and its kill.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::tempdir;

use crate::process::{eventually, onceward, send};

/// The address after `word` in the diagram at the beginning.
fn address(diagram: &str, word: &str) -> SocketAddr {
    let mut words = diagram.split_whitespace().skip_while(|found| *found != word);
    words.nth(1).unwrap_or_else(|| panic!("no {word} in {diagram}")).parse().unwrap()
}

fn is_empty(folder: &Path) -> bool {
    folder.read_dir().unwrap().next().is_none()
}

#[test]
fn every_scenario_passes_and_no_process_or_file_remains() {
    let folder = tempdir().unwrap();
    let ended = onceward(&["demo", "--exit"]).env("TMPDIR", folder.path()).output().unwrap();
    let printed = String::from_utf8(ended.stdout).unwrap();
    let errors = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{printed}\n{errors}");
    assert_eq!(printed.matches('✓').count(), 6, "{printed}");
    assert!(!printed.contains('✗') && !printed.contains('\x1b'), "{printed}");
    assert!(printed.contains("4 payments were requested, 4 charges were made."), "{printed}");
    assert_eq!(errors, "");
    assert!(is_empty(folder.path()));
    for word in ["onceward", "payments"] {
        let address = address(&printed, word);
        eventually("its processes end", || TcpStream::connect(address).is_err().then_some(()));
    }
}

#[test]
fn it_keeps_running_until_it_is_stopped() {
    let folder = tempdir().unwrap();
    let mut demo = onceward(&["demo"]).env("TMPDIR", folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said: Vec<String> = lines.by_ref().take_while(|line| !line.contains("receipts list")).collect();
    said.retain(|line| line.trim_start().starts_with("curl "));
    assert_eq!(said.len(), 3, "{said:?}");

    // As curl would send the first two.
    let url = said[0].split_whitespace().find_map(|word| word.strip_prefix("http://")).unwrap();
    let (address, path) = url.split_once('/').unwrap();
    let address: SocketAddr = address.parse().unwrap();
    let fields = [("Idempotency-Key", "\"mine\""), ("Content-Type", "application/json")];
    let pay = |amount: &str| {
        assert!(said.iter().any(|line| line.contains(amount)), "{amount} in {said:?}");
        send(address, "POST", &format!("/{path}"), &fields, amount)
    };
    let first = pay(r#"{"amount":7}"#);
    let again = pay(r#"{"amount":7}"#);
    assert_eq!((first.status, again.status, &first.body), (201, 201, &again.body));
    assert_eq!(again.field("idempotent-replayed"), Some("true"));
    assert_eq!(pay(r#"{"amount":5}"#).problem(), (422, "key-reused".into()));
    assert_eq!(send(address, "GET", "/ledger", &[], "").json()["charges"], 5);

    let told = Command::new("sh").arg("-c").arg(format!("kill -TERM {}", demo.id())).status().unwrap();
    assert!(told.success());
    assert_eq!(demo.wait().unwrap().code(), Some(0));
    eventually("its processes end", || TcpStream::connect(address).is_err().then_some(()));
    assert!(is_empty(folder.path()));
}
