//! Settings of the gateway, and its errors for invalid ones.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Output, Stdio};

use super::stage::{Home, Service};
use crate::process::{onceward, send};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must fail to start, and returns its error.
fn refused(args: &[&str]) -> String {
    let Output { status, stderr, stdout } = onceward(args).output().unwrap();
    assert_eq!(status.code(), Some(2), "{}", text(&stderr));
    assert!(stdout.is_empty(), "{}", text(&stdout));
    text(&stderr)
}

#[test]
fn invalid_settings_are_refused_with_what_to_do() {
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
        (&["--upstream", "pay.example"], "must begin with http:// or https://"),
        (&["--upstream", "ftp://a"], "not ftp"),
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

/// The engine would store the answer without its body, and without its status.
#[test]
fn a_bound_that_the_store_does_not_keep_is_refused_at_start() {
    let home = Home::new();
    home.write_config("[[route]]\npath = \"/large\"\nresponse_bytes_max = \"8MiB\"");
    let (config, store) =
        (home.config(), format!("embedded:{}", home.folder.path().join("receipts").display()));
    let args =
        ["proxy", "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let said = refused(&[&args[..], &["--store", &store, "--config", config.to_str().unwrap()]].concat());
    assert!(said.contains("/large") && said.contains("response_bytes_max"), "{said}");
}

#[test]
fn the_policy_is_published_unless_that_is_switched_off() {
    let (home, service) = (Home::new(), Service::charging());
    let path = "/.well-known/idempotency";
    assert_eq!(home.start(&service.url()).get(path).json()["field"], "idempotency-key");
    assert_eq!(service.effects(), 0);
    let home = Home::new();
    let answer = home.start_with(&service.url(), &["--publish", "false"]).get(path);
    assert_eq!((answer.status, service.effects()), (201, 1), "the path is the service's own");
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
fn a_check_shows_the_settings_in_effect() {
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
fn the_file_in_the_docs_is_valid() {
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

/// Starts a gateway, and returns the two addresses that it prints: admin and clients.
fn started(command: &mut std::process::Command) -> (KilledOnDrop, [String; 2]) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = || lines.next().map(Result::unwrap).unwrap_or_default();
    let said = [line(), line()];
    (KilledOnDrop(child), said)
}

struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_address_may_be_short() {
    let service = Service::charging();
    let port = service.address.port();
    for upstream in [format!("localhost:{port}"), format!(":{port}"), format!("127.0.0.1:{port}")] {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("embedded:{}", folder.path().join("receipts").display());
        let mut command = onceward(&["proxy", "--upstream", &upstream, "--store", &store, "--log", "error"]);
        command.args(["--listen", ":0", "--admin", "localhost:0"]);
        let (_gateway, [admin, listen]) = started(&mut command);
        assert!(admin.starts_with("admin on http://127.0.0.1:"), "{admin}");
        let port: u16 = listen.strip_prefix("listening on http://0.0.0.0:").expect(&listen).parse().unwrap();
        let clients = SocketAddr::from(([127, 0, 0, 1], port));
        let before = service.effects();
        let key = ("Idempotency-Key", "one");
        assert_eq!(send(clients, "POST", "/charges", &[key], "{}").status, 201, "{upstream}");
        assert_eq!(service.effects(), before + 1);
        let receipts = onceward(&["receipts", "list", "--admin", admin.split_once("//").unwrap().1]).output();
        assert!(text(&receipts.unwrap().stdout).contains("POST /charges"));
    }
}

#[test]
fn an_address_in_the_file_may_be_short_and_a_wrong_one_names_the_forms() {
    let home = Home::new();
    home.write_config("upstream = \"localhost:1\"\nlisten = \"localhost:0\"\nadmin = \":0\"");
    let store = format!("embedded:{}", home.folder.path().join("receipts").display());
    let config = home.config();
    let args = ["proxy", "--config", config.to_str().unwrap(), "--store", &store, "--log", "error"];
    // All interfaces: others could settle receipts.
    assert!(refused(&args).contains("ONCEWARD_ADMIN_TOKEN"));
    let (_gateway, [admin, listen]) =
        started(onceward(&args).env("ONCEWARD_ADMIN_TOKEN", "0123456789abcdef"));
    assert!(admin.starts_with("admin on http://0.0.0.0:"), "{admin}");
    assert!(listen.starts_with("listening on http://127.0.0.1:"), "{listen}");

    home.write_config("listen = \"8080\"");
    let said = refused(&args);
    assert!(
        said.contains("line 1") && said.contains("`localhost:8080`") && said.contains("`:8080`"),
        "{said}"
    );
    let said = refused(&["serve", "--admin", "everywhere:8081"]);
    assert!(said.contains("--admin") && said.contains("`:8080`"), "{said}");
}
