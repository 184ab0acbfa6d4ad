//! A gateway with another secret than its store was written with would run everything again.

use std::process::Stdio;

use onceward::{Ask, Fingerprint, Id, Onceward, Outcome, Policy};

use super::stage::{Gateway, Home, Service};
use crate::process::{Answer, onceward};

const ONE: &str = "one-secret-of-at-least-32-characters";
const TWO: &str = "two-secret-of-at-least-32-characters";

fn store(home: &Home) -> String {
    format!("embedded:{}", home.folder.path().join("receipts").display())
}

fn start(home: &Home, service: &Service, secret: Option<&str>, flags: &[&str]) -> Gateway {
    let variables: Vec<_> = secret.map(|secret| ("ONCEWARD_SECRET", secret)).into_iter().collect();
    Gateway::start_on(&store(home), &service.url(), &home.config(), flags, &variables)
}

/// A charge by a caller with a credential: its scope is hashed with the secret.
fn charge(gateway: &Gateway) -> Answer {
    gateway.post("/charges", &[("Idempotency-Key", "k"), ("Authorization", "Bearer one")], "{}")
}

/// What it says when it does not start.
fn refused(home: &Home, service: &Service, secret: &str) -> String {
    let mut command = onceward(&["proxy", "--upstream", &service.url(), "--store", &store(home)]);
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]).env("ONCEWARD_SECRET", secret);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_wrong_secret_does_not_start() {
    let (home, service) = (Home::new(), Service::charging());
    let gateway = start(&home, &service, Some(ONE), &[]);
    assert_eq!(charge(&gateway).status, 201);
    gateway.kill();
    let error = refused(&home, &service, TWO);
    assert!(error.contains("another secret") && error.contains("--accept-new-secret"), "{error}");
    assert!(!error.contains(ONE) && !error.contains(TWO), "{error}");
    // A rotation is no mistake.
    for secrets in [format!("{ONE},{TWO}"), format!("{TWO},{ONE}")] {
        let gateway = start(&home, &service, Some(&secrets), &[]);
        assert_eq!(charge(&gateway).field("idempotent-replayed"), Some("true"), "{secrets}");
        gateway.kill();
    }
    start(&home, &service, Some(TWO), &[]).kill();
    assert_eq!(service.effects(), 1);
}

/// The folder has a secret of its own, and the environment names another.
#[test]
fn a_folder_with_a_secret_of_its_own_is_not_opened_with_another() {
    let (home, service) = (Home::new(), Service::charging());
    let gateway = start(&home, &service, None, &[]);
    assert_eq!(charge(&gateway).status, 201);
    gateway.kill();
    assert!(refused(&home, &service, ONE).contains("another secret"));
    let gateway = start(&home, &service, Some(ONE), &["--accept-new-secret"]);
    assert_eq!(charge(&gateway).field("idempotent-replayed"), None, "given up on purpose");
    assert_eq!(service.effects(), 2);
}

/// Receipts that were written by something that keeps no check value: any secret might be the wrong one.
#[test]
fn a_store_with_receipts_and_no_check_value_is_not_opened_with_any_secret() {
    let (home, service) = (Home::new(), Service::charging());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let onceward = Onceward::new(onceward_stores::open(&store(&home)).await.unwrap()).unwrap();
        let id = Id::new("scope", "POST /charges", "k").unwrap();
        let ask = Ask::new(id, Fingerprint::of(b""), Policy::http());
        onceward.run(ask, async |_| Ok(Outcome::succeeded(""))).await.unwrap();
    });
    for secret in [ONE, TWO] {
        let error = refused(&home, &service, secret);
        assert!(error.contains("does not know with which secret"), "{error}");
        assert!(error.contains("--accept-new-secret"), "{error}");
    }
    start(&home, &service, Some(ONE), &["--accept-new-secret"]).kill();
    // From now on it is known.
    start(&home, &service, Some(ONE), &[]).kill();
    assert!(refused(&home, &service, TWO).contains("another secret"));
}
