//! A gateway that is restarted with other identity terms (scope, operation) knows every intent by another id. It must
//! still find the receipts from before.

use std::process::Stdio;

use super::stage::{Gateway, Home, Service};
use crate::process::{Answer, onceward};
use crate::servers::Postgres;

const SECRET: (&str, &str) = ("ONCEWARD_SECRET", "0123456789abcdef0123456789abcdef");

fn charge(gateway: &Gateway, key: &str) -> Answer {
    let fields = [("Idempotency-Key", key), ("Authorization", "Bearer one"), ("X-Tenant", "acme")];
    gateway.post("/charges", &fields, "{}")
}

fn is_replayed(answer: &Answer) -> bool {
    answer.status == 201 && answer.field("idempotent-replayed") == Some("true")
}

/// Restarts with one configuration after the other; each must find all receipts from before, and none runs twice.
fn restart_with_other_terms(store: &str) {
    let (home, service) = (Home::new(), Service::charging());
    let start = |flags: &[&str]| Gateway::start_on(store, &service.url(), &home.config(), flags, &[SECRET]);
    home.write_config("");
    let gateway = start(&[]);
    assert_eq!(charge(&gateway, "k0").status, 201);
    gateway.kill();
    for (number, config) in [
        "[defaults]\nscope = \"header:X-Tenant\"",
        "[[route]]\npath = \"/charges\"\nscope = \"header:X-Tenant\"\noperation = \"charge\"",
        "[defaults]\nscope = \"shared\"",
        // A route that is taken out has its paths under the defaults again.
        "[[route]]\npath = \"/other\"\noperation = \"other\"",
    ]
    .into_iter()
    .enumerate()
    {
        home.write_config(config);
        let gateway = start(&[]);
        for key in 0..=number {
            let answer = charge(&gateway, &format!("k{key}"));
            assert!(is_replayed(&answer), "{config}: k{key}: {answer:?}");
        }
        let new = format!("k{}", number + 1);
        assert_eq!(charge(&gateway, &new).field("idempotent-replayed"), None, "{config}");
        assert!(is_replayed(&charge(&gateway, &new)), "{config}");
        gateway.kill();
    }
    assert_eq!(service.effects(), 5);
    // Given up on purpose.
    home.write_config("[defaults]\nscope = \"host\"");
    let gateway = start(&["--accept-new-identity"]);
    assert_eq!(charge(&gateway, "k0").field("idempotent-replayed"), None);
    assert_eq!(service.effects(), 6);
}

#[test]
fn a_restart_with_other_terms_runs_nothing_again() {
    let home = Home::new();
    restart_with_other_terms(&format!("embedded:{}", home.folder.path().join("receipts").display()));
}

#[test]
fn a_restart_with_other_terms_runs_nothing_again_on_postgres() {
    let Some(server) = Postgres::start() else { return };
    restart_with_other_terms(&server.database("receipts"));
}

/// One gateway has the new terms, another still the old ones, as during a deployment.
#[test]
fn gateways_with_different_terms_exclude_each_other() {
    let Some(server) = Postgres::start() else { return };
    let database = server.database("receipts");
    let (before, after, service) = (Home::new(), Home::new(), Service::charging());
    before.write_config("");
    after.write_config("[defaults]\nscope = \"header:X-Tenant\"\noperation = \"charge\"");
    let start = |home: &Home| Gateway::start_on(&database, &service.url(), &home.config(), &[], &[SECRET]);
    let old = start(&before);
    let new = start(&after);
    for number in 0..10 {
        let key = format!("k{number}");
        let (first, second) = if number % 2 == 0 { (&old, &new) } else { (&new, &old) };
        assert_eq!(charge(first, &key).field("idempotent-replayed"), None);
        assert!(is_replayed(&charge(second, &key)), "{key}");
    }
    assert_eq!(service.effects(), 10);
}

/// The remedy for refreshed tokens: what was named by the whole token is named by one of its claims now.
#[test]
fn a_change_to_a_claim_of_the_token_runs_nothing_again() {
    let (home, service) = (Home::new(), Service::charging());
    let key_file = home.folder.path().join("jwt.key");
    std::fs::write(&key_file, super::tokens::SECRET).unwrap();
    let key_file = key_file.display().to_string();
    let token = super::tokens::bearer("alice");
    let send = |gateway: &Gateway, key: &str| {
        gateway.post("/charges", &[("Idempotency-Key", key), ("Authorization", &token)], "{}")
    };
    home.write_config("");
    let gateway = home.start(&service.url());
    assert_eq!(send(&gateway, "a").status, 201);
    gateway.kill();
    for (config, key) in [("[defaults]\nscope = \"jwt:sub\"", "b"), ("[defaults]\nscope = \"jwt:exp\"", "c")]
    {
        home.write_config(config);
        let gateway = home.start_with(&service.url(), &["--jwt-key", &key_file]);
        for earlier in ["a", "b", "c"].iter().take_while(|earlier| **earlier != key) {
            assert!(is_replayed(&send(&gateway, earlier)), "{config}: {earlier}");
        }
        assert_eq!(send(&gateway, key).field("idempotent-replayed"), None);
        gateway.kill();
    }
    assert_eq!(service.effects(), 3);
    // Without the key nobody could tell whose the receipts are.
    home.write_config("");
    let store = format!("embedded:{}", home.folder.path().join("receipts").display());
    let mut command = onceward(&["proxy", "--upstream", &service.url(), "--store", &store]);
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config"]).arg(home.config());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("jwt_key") && error.contains("--accept-new-identity"), "{error}");
}
