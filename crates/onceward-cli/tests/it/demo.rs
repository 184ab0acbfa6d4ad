//! `onceward demo`: the whole storyline, with its real processes and its real kill.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::tempdir;

use crate::process::{eventually, onceward, send};

/// The address behind `word` in the picture at the beginning.
fn address(picture: &str, word: &str) -> SocketAddr {
    let mut words = picture.split_whitespace().skip_while(|found| *found != word);
    words.nth(1).unwrap_or_else(|| panic!("no {word} in {picture}")).parse().unwrap()
}

fn is_empty(folder: &Path) -> bool {
    folder.read_dir().unwrap().next().is_none()
}

#[test]
fn every_act_goes_as_expected_and_nothing_is_left_behind() {
    let folder = tempdir().unwrap();
    let ended = onceward(&["demo", "--exit"]).env("TMPDIR", folder.path()).output().unwrap();
    let said = String::from_utf8(ended.stdout).unwrap();
    let troubles = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(0), "{said}\n{troubles}");
    assert_eq!(said.matches('✓').count(), 6, "{said}");
    assert!(!said.contains('✗') && !said.contains('\x1b'), "{said}");
    assert!(said.contains("4 payments were asked for, 4 charges were made."), "{said}");
    assert_eq!(troubles, "");
    assert!(is_empty(folder.path()));
    for word in ["onceward", "payments"] {
        let address = address(&said, word);
        eventually("its processes end", || TcpStream::connect(address).is_err().then_some(()));
    }
}

#[test]
fn it_stays_up_to_be_tried_until_it_is_told_to_end() {
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
