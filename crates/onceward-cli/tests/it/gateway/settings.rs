//! What the gateway is told, and what it says to what it cannot use.

use std::process::Output;

use super::stage::{Home, Service};
use crate::process::onceward;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must fail to start, and returns what it said.
fn refused(args: &[&str]) -> String {
    let Output { status, stderr, stdout } = onceward(args).output().unwrap();
    assert_eq!(status.code(), Some(2), "{}", text(&stderr));
    assert!(stdout.is_empty(), "{}", text(&stdout));
    text(&stderr)
}

#[test]
fn what_cannot_be_used_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("embedded:{}", folder.path().join("receipts").display());
    let start = |more: &[&str]| {
        let mut args = vec!["proxy", "--listen", "127.0.0.1:0", "--store", &store];
        args.extend_from_slice(more);
        if !more.contains(&"--admin") {
            args.extend(["--admin", "127.0.0.1:0"]);
        }
        refused(&args)
    };
    for (flags, says) in [
        (&[][..], "--upstream"),
        (&["--upstream", "127.0.0.1:3000"], "http"),
        (&["--upstream", "ftp://a"], "not by ftp"),
        (&["--upstream", "http://127.0.0.1:1", "--config", "/nowhere.toml"], "/nowhere.toml"),
        (&["--upstream", "http://127.0.0.1:1", "--tls-cert", "/nowhere.pem"], "tls_key"),
        (&["--upstream", "http://127.0.0.1:1", "--admin", "0.0.0.0:0"], "TOKEN"),
        (&["--upstream", "http://127.0.0.1:1", "--head-timeout", "soon"], "30s"),
    ] {
        let said = start(flags);
        assert!(said.contains(says), "{flags:?}: {said}");
    }
    assert!(!folder.path().join("receipts").exists(), "nothing was started");
}

#[test]
fn a_mistake_in_the_file_names_its_line_and_starts_nothing() {
    let home = Home::new();
    home.write_config("[defaults]\n\nlaese = \"3s\"");
    let config = home.config();
    let config = config.to_str().unwrap();
    for args in [&["config", "check", config][..], &["proxy", "--upstream", "http://a", "--config", config]] {
        let said = refused(args);
        assert!(said.contains("line 3") && said.contains("laese") && said.contains("lease"), "{said}");
    }
}

#[test]
fn a_check_shows_what_holds() {
    let home = Home::new();
    home.write_config("[[route]]\npath = \"/charges\"\nkey = \"required\"\non_unknown = \"retry\"");
    let output = onceward(&["config", "check", home.config().to_str().unwrap()]).output().unwrap();
    assert!(output.status.success());
    let shown = text(&output.stdout);
    for wanted in ["/charges", "required", "retry", "Otherwise", "optional", "hold"] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
}

#[test]
fn the_file_in_the_docs_is_one() {
    let docs = include_str!("../../../../../docs/gateway.md");
    let example = docs.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0;
    let home = Home::new();
    home.write_config(example);
    let output = onceward(&["config", "check", home.config().to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("reconcile: GET /charges/by-key/{key}"),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn every_value_can_come_from_the_environment() {
    let service = Service::charging();
    let folder = tempfile::tempdir().unwrap();
    let mut command = onceward(&["proxy"]);
    command
        .env("ONCEWARD_UPSTREAM", service.url())
        .env("ONCEWARD_LISTEN", "127.0.0.1:0")
        .env("ONCEWARD_ADMIN", "127.0.0.1:0")
        .env("ONCEWARD_STORE", format!("embedded:{}", folder.path().join("r").display()))
        .env("ONCEWARD_HEAD_TIMEOUT", "never");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--head-timeout"), "{}", text(&output.stderr));
    let help = text(&onceward(&["proxy", "--help"]).output().unwrap().stdout);
    let (mut values, mut variables) = (0, 0);
    for line in help.lines() {
        values += usize::from(line.trim_start().starts_with("--") && line.contains('<'));
        variables += usize::from(line.contains("[env: "));
    }
    assert!(variables + 1 >= values, "{variables} variables for {values} values:\n{help}");
}
