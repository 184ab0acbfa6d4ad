//! Two gateways on one database, and a database that goes away.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use super::stage::{Gateway, Home, Service};
use crate::process::eventually;
use crate::servers::{Postgres, Redis};

/// The same on both gateways, or they would not find each other's receipts.
const SECRET: (&str, &str) = ("ONCEWARD_SECRET", "0123456789abcdef0123456789abcdef");

fn start(home: &Home, service: &Service, database: &str) -> Gateway {
    Gateway::start_on(database, &service.url(), &home.config(), &[], &[SECRET])
}

#[test]
fn two_gateways_on_one_database_share_receipts() {
    let Some(server) = Postgres::start() else { return };
    two_gateways_share_receipts(&server.database("receipts"));
}

#[test]
fn two_gateways_on_one_redis_share_receipts() {
    let Some(server) = Redis::start() else { return };
    two_gateways_share_receipts(&format!("{}&accept=volatile", server.url()));
}

fn two_gateways_share_receipts(database: &str) {
    let (home, service) = (Home::new(), Service::charging());
    let (one, two) = (start(&home, &service, database), start(&home, &service, database));
    for round in 0..20 {
        let key = format!("k{round}");
        let (first, second) = std::thread::scope(|scope| {
            let first = scope.spawn(|| one.charge(&key, "{}"));
            let second = scope.spawn(|| two.charge(&key, "{}"));
            (first.join().unwrap(), second.join().unwrap())
        });
        assert_eq!((first.status, &first.body), (201, &second.body), "{first:?} {second:?}");
        assert_eq!(service.effects(), round + 1);
    }
}

#[test]
fn without_its_store_a_gateway_refuses_or_marks_unguarded_requests() {
    let Some(mut server) = Postgres::start() else { return };
    let database = server.database("receipts");
    let (home, service) = (Home::new(), Service::charging());
    home.write_config("[[route]]\npath = \"/open\"\nfail_open = true");
    let gateway = start(&home, &service, &database);
    let open = |key: &str| gateway.post("/open", &[("Idempotency-Key", key)], "{}");
    assert_eq!(gateway.charge("before", "{}").status, 201);
    assert_eq!(open("before").field("onceward-unguarded"), None);
    server.kill();
    let refused = eventually("the store is missed", || {
        let answer = gateway.charge("new", "{}");
        (answer.status != 201).then_some(answer)
    });
    assert_eq!(refused.problem(), (503, "store-unavailable".into()));
    assert!(refused.field("retry-after").is_some());
    let passed = eventually("the route acts without a guard", || {
        let answer = open("new");
        (answer.status == 201).then_some(answer)
    });
    assert_eq!(passed.field("onceward-unguarded"), Some("store-unavailable"));
    assert!(gateway.metric("onceward_http_requests_passed_unguarded_total") >= 1.0);
    server.up();
    let again = eventually("the store is back", || {
        let answer = gateway.charge("before", "{}");
        (answer.status == 201).then_some(answer)
    });
    assert_eq!(again.field("idempotent-replayed"), Some("true"));
}

#[test]
fn a_shared_store_without_a_shared_secret_is_refused() {
    let Some(server) = Postgres::start() else { return };
    let database = server.database("receipts");
    let output =
        crate::process::onceward(&["proxy", "--upstream", "http://127.0.0.1:1", "--store", &database])
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .env_remove(SECRET.0)
            .current_dir(Path::new("/"))
            .output()
            .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains(SECRET.0));
}

/// Not by default, and not in silence.
#[test]
fn what_redis_can_lose_is_accepted_and_said() {
    let Some(server) = Redis::start_with(&[]) else { return };
    let start = |store: &str| {
        let mut command =
            crate::process::onceward(&["proxy", "--upstream", "http://127.0.0.1:1", "--store", store]);
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]).env(SECRET.0, SECRET.1);
        command.current_dir(Path::new("/")).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    };
    let output = start(&server.url()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("accept=volatile") && said.contains("appendonly is not yes"), "{said}");

    let mut gateway = start(&format!("{}&accept=volatile", server.url())).spawn().unwrap();
    let lines = BufReader::new(gateway.stderr.take().unwrap()).lines();
    let said = lines.map_while(Result::ok).find(|line| line.contains("can lose"));
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    let said = said.expect("what can be lost is said at the start");
    assert!(said.contains("WARN") && said.contains("runs again"), "{said}");
}
