//! What a gateway says when it starts: what its settings do not protect against.

use std::fs::File;

use super::stage::{Gateway, Home, Service};
use crate::process::onceward;
use crate::servers::{Certificates, Postgres};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Starts a gateway, and returns it with what it has logged until it listens.
fn start(home: &Home, service: &Service, store: &str) -> (Gateway, String) {
    let log = home.folder.path().join("log");
    let mut command = onceward(&["proxy", "--upstream", &service.url(), "--store", store]);
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--drain-delay", "0s", "--config"]);
    command.arg(home.config()).env("ONCEWARD_SECRET", SECRET);
    command.stderr(File::create(&log).unwrap());
    let gateway = Gateway::spawn(command);
    (gateway, std::fs::read_to_string(log).unwrap())
}

/// A token that is refreshed between two tries makes the retry another caller's.
#[test]
fn where_credentials_name_the_caller_refreshed_tokens_are_spoken_of() {
    let (home, service) = (Home::new(), Service::charging());
    let store = format!("embedded:{}", home.folder.path().join("receipts").display());
    for (scope, said) in [("auto", true), ("header:X-Account", false)] {
        home.write_config(&format!("[defaults]\nscope = \"{scope}\"\n"));
        let (_gateway, log) = start(&home, &service, &store);
        let line = log.lines().find(|line| line.contains("refreshed"));
        assert_eq!(line.is_some(), said, "{log}");
        assert!(line.is_none_or(|line| line.contains("jwt:sub")), "{log}");
    }
}

#[test]
fn a_database_is_reached_by_tls_and_what_is_not_encrypted_is_said() {
    let certificates = Certificates::new("postgres");
    certificates.sign("server", "21000101000000Z");
    let authority = certificates.path("ca.pem");
    let settings = [
        "ssl=on".to_owned(),
        format!("ssl_cert_file={}", certificates.path("server.pem")),
        format!("ssl_key_file={}", certificates.path("server.key")),
    ];
    let Some(server) = Postgres::start_with(&settings.each_ref().map(String::as_str)) else { return };
    server.sql("postgres", "CREATE DATABASE receipts");
    let (home, service) = (Home::new(), Service::charging());
    home.write_config("[defaults]\nlease = \"30s\"\n");
    let at = |host: &str, parameters: &str| {
        format!("postgres://postgres@{host}:{}/receipts?{parameters}", server.port())
    };
    let encrypted = "SELECT bool_and(s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
                     WHERE a.datname = 'receipts'";
    // 0.0.0.0 leads to this machine, and nobody can tell that from its name.
    let verified = format!("sslmode=verify-full&sslrootcert={authority}");
    for (host, parameters, tls) in [
        ("localhost", verified.as_str(), "t"),
        ("0.0.0.0", "sslmode=require", "t"),
        ("0.0.0.0", "sslmode=disable", "f"),
    ] {
        let (gateway, log) = start(&home, &service, &at(host, parameters));
        assert_eq!(gateway.charge("k", "{}").status, 201, "{parameters}");
        assert_eq!(server.sql("postgres", encrypted), tls, "{parameters}");
        assert_eq!(log.contains("is not encrypted"), tls == "f", "{parameters}: {log}");
    }
    assert_eq!(service.effects(), 1);
}
