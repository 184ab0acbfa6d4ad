//! Two gateways on one database, and a database that goes away.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use super::stage::{Gateway, Home, Service};
use crate::process::{eventually, send};
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

/// Copies of one request, and rounds of them.
fn copies_and_rounds() -> (usize, usize) {
    if std::env::var_os("ONCEWARD_LONG").is_some() { (200, 50) } else { (40, 8) }
}

/// The front is flushed after half of the rounds.
#[test]
fn three_gateways_with_a_front_have_one_effect_a_round() {
    let Some(server) = Postgres::start() else { return };
    let Some(redis) = Redis::start_with(&[]) else { return };
    let database = format!("{}?front=redis://127.0.0.1:{}/0", server.database("receipts"), redis.port());
    let (home, service) = (Home::new(), Service::charging());
    let gateways: Vec<Gateway> = (0..3).map(|_| start(&home, &service, &database)).collect();
    let (copies, rounds) = copies_and_rounds();
    for round in 0..rounds {
        if round == rounds / 2 {
            redis.cli(&["FLUSHALL"]);
        }
        let key = format!("k{round}");
        let answers: Vec<_> = std::thread::scope(|scope| {
            let copies = (0..copies).map(|copy| {
                let (gateway, key) = (&gateways[copy % gateways.len()], &key);
                scope.spawn(move || gateway.charge(key, "{}"))
            });
            let copies: Vec<_> = copies.collect();
            copies.into_iter().map(|copy| copy.join().unwrap()).collect()
        });
        for answer in &answers {
            assert_eq!((answer.status, &answer.body), (201, &answers[0].body), "{answer:?}");
        }
        assert_eq!(service.effects(), round + 1, "round {round} had another number of effects than one");
    }
    // A gateway that has not seen them replays from the front, once it has read whose front it is.
    let late = start(&home, &service, &database);
    let mut effects = rounds;
    eventually("the front is used", || {
        assert_eq!(late.charge(&format!("fresh{effects}"), "{}").status, 201);
        effects += 1;
        (late.metric("onceward_front_misses_total") > 0.0).then_some(())
    });
    for round in rounds / 2..rounds {
        assert_eq!(late.charge(&format!("k{round}"), "{}").field("idempotent-replayed"), Some("true"));
    }
    assert!(late.metric("onceward_front_hits_total") > 0.0);
    assert_eq!(service.effects(), effects);
    // Without it everything is as before.
    drop(redis);
    let again = late.charge("k1", "{}");
    assert_eq!((again.status, again.field("idempotent-replayed")), (201, Some("true")));
    assert_eq!(send(late.admin, "GET", "/readyz", &[], "").status, 200);
    assert_eq!(service.effects(), effects);
}

/// As after a restore: what is in the front may be of a time that the database does not know.
#[test]
fn a_new_identity_makes_all_entries_of_a_front_foreign() {
    let Some(server) = Postgres::start() else { return };
    let Some(redis) = Redis::start_with(&[]) else { return };
    let database = format!("{}?front=redis://127.0.0.1:{}/0", server.database("receipts"), redis.port());
    let (home, service) = (Home::new(), Service::charging());
    let one = start(&home, &service, &database);
    let mut effects = 0;
    let mut until_used = |gateway: &Gateway| {
        eventually("the front is used", || {
            assert_eq!(gateway.charge(&format!("fresh{effects}"), "{}").status, 201);
            effects += 1;
            (gateway.metric("onceward_front_misses_total") > 0.0).then_some(())
        });
    };
    until_used(&one);
    assert_eq!(one.charge("k", "{}").status, 201);
    let renewed =
        crate::process::onceward(&["migrate", "--store", &database, "--new-identity"]).output().unwrap();
    let said = String::from_utf8_lossy(&renewed.stdout);
    assert!(renewed.status.success() && said.contains("the database has a new identity"), "{renewed:?}");
    let late = start(&home, &service, &database);
    until_used(&late);
    assert_eq!(late.charge("k", "{}").field("idempotent-replayed"), Some("true"));
    assert!(late.metric("onceward_front_hits_total") < 1.0, "an entry of the former identity was believed");
    assert_eq!(service.effects(), effects + 1);
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

/// Three processes, each at another node of the cluster first, and many copies of each request spread over them.
#[cfg(feature = "etcd")]
#[test]
fn three_gateways_on_one_etcd_cluster_run_once() {
    let Some(nodes) = crate::servers::Etcd::start_cluster() else { return };
    let is_long = std::env::var_os("ONCEWARD_LONG").is_some();
    let (rounds, copies) = if is_long { (50, 200) } else { (5, 60) };
    let (home, service) = (Home::new(), Service::charging());
    let gateways: Vec<Gateway> = (0..nodes.len())
        .map(|first| {
            let host = |at: usize| format!("127.0.0.1:{}", nodes[(first + at) % nodes.len()].port());
            let hosts = [host(0), host(1), host(2)].join(",");
            start(&home, &service, &format!("etcd://{hosts}?prefix=gateways/"))
        })
        .collect();
    for round in 0..rounds {
        let key = format!("k{round}");
        let bodies: Vec<String> = std::thread::scope(|scope| {
            let copies: Vec<_> = (0..copies)
                .map(|copy| {
                    let (gateway, key) = (&gateways[copy % gateways.len()], &key);
                    scope.spawn(move || charged(gateway, key))
                })
                .collect();
            copies.into_iter().map(|copy| copy.join().unwrap()).collect()
        });
        assert!(bodies.iter().all(|body| *body == bodies[0]), "round {round}");
        assert_eq!(service.effects(), round + 1);
    }
}

/// The answer to a charge, asked for until there is one.
#[cfg(feature = "etcd")]
fn charged(gateway: &Gateway, key: &str) -> String {
    eventually("the charge is answered", || {
        let answer = gateway.charge(key, "{}");
        assert!([201, 409, 429, 503].contains(&answer.status), "{answer:?}");
        (answer.status == 201).then_some(answer.body)
    })
}

/// The default build has no heavy backends, and says which feature has them.
#[cfg(not(feature = "dynamodb"))]
#[ignore = "tests of the whole workspace build every store; ./check runs this one by itself"]
#[test]
fn a_store_that_is_not_in_this_build_is_not_migrated() {
    let url = "dynamodb://receipts?region=eu-central-1";
    let output = crate::process::onceward(&["migrate", "--store", url]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("not part of this build") && said.contains("`dynamodb`"), "{said}");
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
