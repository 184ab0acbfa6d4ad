//! TLS to databases: real servers, with certificates that are right, of another authority, of another host, expired.

use onceward::{Error, ErrorKind};
use onceward_stores::open_with_metrics;

use crate::servers::{Certificates, Etcd, MariaDb, Postgres, Redis};

const LATER: &str = "21000101000000Z";
const LONG_AGO: &str = "20210101000000Z";

/// Whether a connection of ours is encrypted, and the name that the client has shown.
const SEEN: &str = "SELECT s.ssl || ' ' || coalesce(s.client_dn, '') FROM pg_stat_ssl s JOIN pg_stat_activity a \
    USING (pid) WHERE a.application_name = 'onceward' LIMIT 1";

/// An authority that has signed a server, an expired server and a client; and another one.
struct Authorities {
    ours: Certificates,
    others: Certificates,
}

impl Authorities {
    fn new(user: &str) -> Self {
        let (ours, others) = (Certificates::new(user), Certificates::new(user));
        ours.sign("server", LATER);
        ours.sign("expired", LONG_AGO);
        ours.sign("client", LATER);
        Self { ours, others }
    }

    fn client(&self) -> String {
        format!("sslcert={}&sslkey={}", self.ours.path("client.pem"), self.ours.path("client.key"))
    }
}

async fn opened(url: &str) {
    if let Err(error) = open_with_metrics(url).await {
        panic!("{url}: {error}");
    }
}

async fn refused(url: &str, kind: ErrorKind, words: &[&str]) -> Error {
    let error = open_with_metrics(url).await.err().unwrap_or_else(|| panic!("{url} opened"));
    assert_eq!(error.kind(), kind, "{url}: {error}");
    for word in words {
        assert!(error.to_string().contains(word), "{url}: {error}");
    }
    error
}

/// The cases that all databases share. `at` makes the address of a host with these parameters.
async fn checks(at: impl Fn(&str, &str) -> String, authorities: &Authorities, verify_full: &str) {
    let (ours, others) = (authorities.ours.path("ca.pem"), authorities.others.path("ca.pem"));
    opened(&at("localhost", &format!("{verify_full}sslrootcert={ours}"))).await;
    opened(&at("localhost", &format!("{verify_full}sslrootcert={ours}&{}", authorities.client()))).await;
    let other_name = at("127.0.0.1", &format!("{verify_full}sslrootcert={ours}"));
    refused(&other_name, ErrorKind::Unavailable, &["not valid for", "127.0.0.1"]).await;
    let wrong_authority = at("localhost", &format!("{verify_full}sslrootcert={others}"));
    refused(&wrong_authority, ErrorKind::Unavailable, &["UnknownIssuer", "localhost"]).await;
    let no_file = at("localhost", &format!("{verify_full}sslrootcert=/nowhere/ca.pem"));
    refused(&no_file, ErrorKind::Invalid, &["sslrootcert", "/nowhere/ca.pem"]).await;
    let no_key = at("localhost", &format!("{verify_full}sslrootcert={ours}&sslcert={ours}&sslkey={ours}"));
    refused(&no_key, ErrorKind::Invalid, &["sslkey"]).await;
}

#[tokio::test]
async fn postgres() {
    let authorities = Authorities::new("postgres");
    let ours = authorities.ours.path("ca.pem");
    let settings = |name: &str| {
        let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
        [
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", authorities.ours.path(&cert)),
            format!("ssl_key_file={}", authorities.ours.path(&key)),
            format!("ssl_ca_file={ours}"),
        ]
    };
    let start = |name: &str| {
        let settings = settings(name);
        Postgres::start_with(&settings.each_ref().map(String::as_str))
    };
    let Some(server) = start("server") else { return };
    let at = |host: &str, parameters: &str| {
        format!("postgres://postgres@{host}:{}/postgres?{parameters}", server.port())
    };
    checks(at, &authorities, "sslmode=verify-full&").await;
    // Encrypted, and not asked who it is; the authority alone; an authority that is given counts.
    opened(&at("127.0.0.1", "sslmode=require")).await;
    opened(&at("127.0.0.1", &format!("sslmode=verify-ca&sslrootcert={ours}"))).await;
    let others = authorities.others.path("ca.pem");
    let other_authority = at("127.0.0.1", &format!("sslmode=require&sslrootcert={others}"));
    refused(&other_authority, ErrorKind::Unavailable, &["UnknownIssuer"]).await;
    refused(&at("127.0.0.1", "sslmode=verify"), ErrorKind::Invalid, &["verify-full"]).await;

    // The server sees what it is: encrypted unless it was switched off, and with the client's name.
    for (parameters, seen) in [
        ("sslmode=disable".to_owned(), "false "),
        ("sslmode=prefer".to_owned(), "true "),
        (String::new(), "true "),
        (format!("sslmode=verify-full&sslrootcert={ours}&{}", authorities.client()), "true /CN=client"),
    ] {
        let database = server.fresh();
        let url = at("localhost", &parameters).replace("/postgres?", &format!("/{database}?"));
        let store = open_with_metrics(&url).await.unwrap();
        let there =
            server.sql("postgres", &SEEN.replace("LIMIT", &format!("AND a.datname = '{database}' LIMIT")));
        assert_eq!(there, seen.trim(), "{parameters}");
        drop(store);
    }
    drop(server);

    let Some(server) = start("expired") else { return };
    let at =
        |parameters: &str| format!("postgres://postgres@localhost:{}/postgres?{parameters}", server.port());
    let expired = at(&format!("sslmode=verify-full&sslrootcert={ours}"));
    refused(&expired, ErrorKind::Unavailable, &["expired", "localhost"]).await;
    opened(&at("sslmode=require")).await;
}

#[tokio::test]
async fn mysql() {
    let authorities = Authorities::new("mysql");
    let ours = authorities.ours.path("ca.pem");
    let start = |name: &str| {
        let (cert, key) = (format!("{name}.pem"), format!("{name}.key"));
        let options = [
            format!("--ssl-cert={}", authorities.ours.path(&cert)),
            format!("--ssl-key={}", authorities.ours.path(&key)),
            format!("--ssl-ca={ours}"),
        ];
        MariaDb::start_with(&options.each_ref().map(String::as_str))
    };
    let Some(server) = start("server") else { return };
    let database = server.fresh();
    let at = |host: &str, parameters: &str| {
        format!("{}?{parameters}", server.url(&database).replace("127.0.0.1", host))
    };
    checks(at, &authorities, "sslmode=verify-full&").await;
    opened(&at("127.0.0.1", "sslmode=require")).await;
    for mode in ["verify-ca", "require"] {
        let without_name = at("127.0.0.1", &format!("sslmode={mode}&sslrootcert={ours}"));
        refused(&without_name, ErrorKind::Invalid, &["verify-full"]).await;
    }
    // A user that has to show a certificate.
    server.sql("mysql", "CREATE USER shop REQUIRE X509; GRANT ALL ON *.* TO shop");
    let shop = |parameters: &str| at("localhost", parameters).replace("root@", "shop@");
    let shown = format!("sslmode=verify-full&sslrootcert={ours}");
    refused(&shop(&shown), ErrorKind::Invalid, &["does not let this user in"]).await;
    opened(&shop(&format!("{shown}&{}", authorities.client()))).await;
    drop(server);

    let Some(server) = start("expired") else { return };
    let url = server.url(&server.fresh()).replace("127.0.0.1", "localhost");
    let expired = format!("{url}?sslmode=verify-full&sslrootcert={ours}");
    refused(&expired, ErrorKind::Unavailable, &["expired", "localhost"]).await;
}

#[tokio::test]
async fn redis() {
    let authorities = Authorities::new("redis");
    let ours = authorities.ours.path("ca.pem");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let start = |name: &str, clients: &str| {
        let (cert, key) =
            (authorities.ours.path(&format!("{name}.pem")), authorities.ours.path(&format!("{name}.key")));
        let (port, cert, key) = (port.to_string(), cert.as_str(), key.as_str());
        let files = ["--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", &ours];
        Redis::start_with(&[&["--tls-port", &port, "--tls-auth-clients", clients], &files[..]].concat())
    };
    let Some(server) = start("server", "optional") else { return };
    let at = |host: &str, parameters: &str| format!("rediss://{host}:{port}/0?accept=volatile&{parameters}");
    checks(at, &authorities, "").await;
    checks(at, &authorities, "sslmode=verify-full&").await;
    // Encrypted, and not asked who it is; the authority alone; an authority that is given counts.
    opened(&at("127.0.0.1", "sslmode=require")).await;
    opened(&at("127.0.0.1", &format!("sslmode=verify-ca&sslrootcert={ours}"))).await;
    opened(&at("127.0.0.1", &format!("sslmode=require&sslrootcert={ours}"))).await;
    let others = authorities.others.path("ca.pem");
    for mode in ["require", "verify-ca"] {
        let other_authority = at("127.0.0.1", &format!("sslmode={mode}&sslrootcert={others}"));
        refused(&other_authority, ErrorKind::Unavailable, &["UnknownIssuer"]).await;
    }
    for mode in ["disable", "prefer"] {
        refused(&at("localhost", &format!("sslmode={mode}")), ErrorKind::Invalid, &["rediss://"]).await;
    }
    let unchecked = format!("rediss://localhost:{port}/0#insecure?accept=volatile");
    refused(&unchecked, ErrorKind::Invalid, &["`#`"]).await;
    let plain = at("localhost", &format!("sslrootcert={ours}")).replace("rediss:", "redis:");
    refused(&plain, ErrorKind::Invalid, &["rediss://"]).await;
    drop(server);

    let Some(server) = start("server", "yes") else { return };
    opened(&at("localhost", &format!("sslrootcert={ours}&{}", authorities.client()))).await;
    refused(&at("localhost", &format!("sslrootcert={ours}")), ErrorKind::Unavailable, &["localhost"]).await;
    drop(server);

    let Some(_server) = start("expired", "no") else { return };
    refused(&at("localhost", &format!("sslrootcert={ours}")), ErrorKind::Unavailable, &["expired"]).await;
}

#[tokio::test]
async fn etcd() {
    let authorities = Authorities::new("nobody");
    let ours = authorities.ours.path("ca.pem");
    let start = |name: &str| {
        let files = ["pem", "key"].map(|kind| authorities.ours.path(&format!("{name}.{kind}")));
        Etcd::start_with_tls(&files[0], &files[1], &[])
    };
    let Some((server, port)) = start("server") else { return };
    let at = |host: &str, parameters: &str| format!("etcds://{host}:{port}?{parameters}");
    checks(at, &authorities, "").await;
    refused(&at("localhost", "sslmode=require"), ErrorKind::Invalid, &["etcds://"]).await;
    // Unencrypted where TLS is spoken, and the other way round.
    let plain = format!("etcd://localhost:{port}");
    refused(&plain, ErrorKind::Unavailable, &["localhost"]).await;
    let encrypted = format!("etcds://localhost:{}?sslrootcert={ours}", server.port());
    refused(&encrypted, ErrorKind::Unavailable, &["localhost"]).await;
    drop(server);

    let Some((_server, port)) = start("expired") else { return };
    let expired = format!("etcds://localhost:{port}?sslrootcert={ours}");
    refused(&expired, ErrorKind::Unavailable, &["expired"]).await;
}

/// A server that asks each client for its certificate.
#[tokio::test]
async fn etcd_with_client_certificates() {
    let authorities = Authorities::new("nobody");
    let ours = authorities.ours.path("ca.pem");
    let files = ["pem", "key"].map(|kind| authorities.ours.path(&format!("server.{kind}")));
    let asks = ["--client-cert-auth", "--trusted-ca-file", &ours];
    let Some((_server, port)) = Etcd::start_with_tls(&files[0], &files[1], &asks) else { return };
    let at = |parameters: &str| format!("etcds://localhost:{port}?sslrootcert={ours}{parameters}");
    opened(&at(&format!("&{}", authorities.client()))).await;
    refused(&at(""), ErrorKind::Unavailable, &["localhost"]).await;
}
