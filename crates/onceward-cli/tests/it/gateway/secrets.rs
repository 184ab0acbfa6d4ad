//! A gateway with another secret than its store was written with would run everything again.

use std::path::Path;
use std::process::Stdio;

use onceward::{Ask, Fingerprint, Id, Onceward, Outcome, Policy};

use super::stage::{Gateway, Home, Service};
use crate::process::{Answer, onceward};
use crate::servers::Postgres;

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
    refused_on(&store(home), service, secret)
}

fn refused_on(store: &str, service: &Service, secret: &str) -> String {
    let mut command = onceward(&["proxy", "--upstream", &service.url(), "--store", store]);
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
    assert_eq!(service.effects(), 1);
}

/// The new secret is known, but the receipt exists only under the old one.
#[test]
fn a_rotation_that_is_ended_too_early_does_not_start() {
    let (home, service) = (Home::new(), Service::charging());
    let gateway = start(&home, &service, Some(ONE), &[]);
    assert_eq!(charge(&gateway).status, 201);
    gateway.kill();
    start(&home, &service, Some(&format!("{ONE},{TWO}")), &[]).kill();
    let error = refused(&home, &service, TWO);
    assert!(
        error.contains("not listed any more") && error.contains("safe to leave it out in 27 h"),
        "{error}"
    );
    assert!(error.contains("--accept-new-secret") && !error.contains(ONE) && !error.contains(TWO), "{error}");
    let gateway = start(&home, &service, Some(&format!("{TWO},{ONE}")), &[]);
    assert_eq!(charge(&gateway).field("idempotent-replayed"), Some("true"));
    gateway.kill();
    assert_eq!(service.effects(), 1);
    start(&home, &service, Some(TWO), &["--accept-new-secret"]).kill();
    start(&home, &service, Some(TWO), &[]).kill();
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

/// Two gateways on one database: with different secrets each would run what the other has done.
#[test]
fn beside_another_gateway_one_with_another_secret_does_not_start() {
    let Some(server) = Postgres::start() else { return };
    let (home, service) = (Home::new(), Service::charging());
    let database = server.database("receipts");
    let start = |secrets: &str| {
        let variables = [("ONCEWARD_SECRET", secrets)];
        Gateway::start_on(&database, &service.url(), &home.config(), &[], &variables)
    };
    let one = start(ONE);
    assert_eq!(charge(&one).status, 201);
    let error = refused_on(&database, &service, TWO);
    assert!(error.contains("another secret") && error.contains("--accept-new-secret"), "{error}");
    assert!(!error.contains(ONE) && !error.contains(TWO), "{error}");
    let same = start(ONE);
    assert_eq!(charge(&same).field("idempotent-replayed"), Some("true"));
    // A rotation begins while the other one still has the old secret only: what either does is done for both.
    let rotating = start(&format!("{TWO},{ONE}"));
    assert_eq!(charge(&rotating).field("idempotent-replayed"), Some("true"));
    let fields = [("Idempotency-Key", "later"), ("Authorization", "Bearer one")];
    assert_eq!(rotating.post("/charges", &fields, "{}").field("idempotent-replayed"), None);
    assert_eq!(one.post("/charges", &fields, "{}").field("idempotent-replayed"), Some("true"));
    assert_eq!(service.effects(), 2);
}

/// All bytes of the files below a folder.
fn bytes_below(folder: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(bytes_below(&path));
        } else {
            all.extend(std::fs::read(&path).unwrap());
        }
    }
    all
}

#[test]
fn neither_credentials_nor_request_bodies_are_in_the_files() {
    let (home, service) = (Home::new(), Service::charging());
    let gateway = start(&home, &service, None, &[]);
    let fields = [
        ("Idempotency-Key", "the-key-is-in-the-clear"),
        ("Authorization", "Bearer a-credential-of-its-caller"),
        ("X-Api-Key", "another-credential-of-its-caller"),
    ];
    assert_eq!(gateway.post("/charges", &fields, "\"a-body-of-its-caller\"").status, 201);
    gateway.kill();
    let files = bytes_below(home.folder.path());
    let has = |text: &str| files.windows(text.len()).any(|bytes| bytes == text.as_bytes());
    // What is kept is found like this.
    assert!(has("the-key-is-in-the-clear") && has("{\"charge\":1}"));
    for secret in ["credential-of-its-caller", "a-body-of-its-caller"] {
        assert!(!has(secret), "{secret}");
    }
}
