//! A database that hangs, takes no writes or crashes under load, and a gateway that is killed while its secrets and its
//! scopes change: nothing runs twice, nothing acknowledged is lost, and nothing that never ran is unknown.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::stage::{Gateway, Home, Reply, Service, rounds};
use crate::process::{Answer, eventually, onceward, send, try_send};
use crate::servers::Postgres;

const ONE: &str = "one-secret-of-at-least-32-characters";
const TWO: &str = "two-secret-of-at-least-32-characters";
const THREE: &str = "three-secret-of-at-least-32-characters";
const CLIENTS: usize = 8;

fn start(database: &str, service: &Service, home: &Home, secrets: &str) -> Gateway {
    let variables = [("ONCEWARD_SECRET", secrets)];
    Gateway::start_on(database, &service.url(), &home.config(), &[], &variables)
}

/// A charge by a caller whose scope is hashed with the secret.
fn charge(gateway: &Gateway, key: &str) -> Answer {
    gateway.post("/charges", &[("Idempotency-Key", key), ("Authorization", "Bearer one")], "{}")
}

#[test]
fn a_hung_database_runs_nothing_and_leaves_nothing_unknown() {
    let Some(server) = Postgres::start() else { return };
    let (home, service) = (Home::new(), Service::charging());
    home.write_config("[defaults]\nlease = \"500ms\"\nwait_at_most = \"2s\"");
    let gateway = start(&server.database("receipts"), &service, &home, ONE);
    assert_eq!(charge(&gateway, "before").status, 201);
    for round in 0..rounds(1, 10) {
        server.freeze();
        thread::scope(|scope| {
            let asked: Vec<_> = (0..4)
                .map(|n| {
                    scope.spawn({
                        let gateway = &gateway;
                        move || charge(gateway, &format!("hung{round}-{n}"))
                    })
                })
                .collect();
            eventually("it is not ready", || {
                (send(gateway.admin, "GET", "/readyz", &[], "").status == 503).then_some(())
            });
            for answer in asked {
                let answer = answer.join().unwrap();
                assert_eq!(answer.problem(), (503, "store-unavailable".into()));
            }
        });
        assert_eq!(service.effects(), 1 + 4 * round, "no claim, no run");
        server.thaw();
        for n in 0..4 {
            let key = format!("hung{round}-{n}");
            let answer = eventually("the key runs", || {
                let answer = charge(&gateway, &key);
                // A claim whose answer was lost is released as soon as the database answers again.
                assert!(!answer.is_problem("outcome-unknown"), "{key} never ran");
                (answer.status == 201).then_some(answer)
            });
            assert_eq!(answer.field("idempotent-replayed"), None);
        }
        assert_eq!(service.effects(), 5 + 4 * round);
    }
}

#[test]
fn a_read_only_database_is_not_ready_and_goes_on_by_itself() {
    let Some(server) = Postgres::start() else { return };
    let (home, service) = (Home::new(), Service::charging());
    let gateway = start(&server.database("receipts"), &service, &home, ONE);
    assert_eq!(charge(&gateway, "a").status, 201);
    let read_only = |value: &str| {
        server
            .sql("postgres", &format!("ALTER DATABASE receipts SET default_transaction_read_only = {value}"));
        // Open connections keep the setting that they began with.
        server.sql(
            "postgres",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'receipts'",
        );
    };
    for round in 0..rounds(1, 10) {
        let key = format!("b{round}");
        read_only("on");
        eventually("it is not ready", || {
            (send(gateway.admin, "GET", "/readyz", &[], "").status == 503).then_some(())
        });
        assert_eq!(charge(&gateway, &key).problem(), (503, "store-unavailable".into()));
        assert_eq!(service.effects(), 1 + round);
        read_only("off");
        eventually("it goes on", || (charge(&gateway, &key).status == 201).then_some(()));
        assert_eq!(charge(&gateway, "a").field("idempotent-replayed"), Some("true"));
        assert_eq!(service.effects(), 2 + round);
    }
}

/// What a client was told at the end about each key.
type Told = BTreeMap<String, FinalAnswer>;

#[derive(PartialEq, Eq)]
enum FinalAnswer {
    Done(String),
    Unknown,
}

/// Clients that send one key after the other, each until it has a final answer.
fn clients(here: &Arc<Mutex<std::net::SocketAddr>>, over: &Arc<AtomicBool>) -> Vec<thread::JoinHandle<Told>> {
    (0..CLIENTS)
        .map(|client| {
            let (here, over) = (here.clone(), over.clone());
            thread::spawn(move || {
                let mut told = Told::new();
                for number in 0.. {
                    let key = format!("c{client}-{number}");
                    let Some(answer) = until_final(&here, &over, &key) else { return told };
                    told.insert(key, answer);
                }
                unreachable!("the loop has no end of its own")
            })
        })
        .collect()
}

/// The final answer; `None` if the test was over first.
fn until_final(here: &Mutex<std::net::SocketAddr>, over: &AtomicBool, key: &str) -> Option<FinalAnswer> {
    let fields = [
        ("Idempotency-Key", key),
        ("Authorization", "Bearer one"),
        ("Content-Type", "application/json"),
        ("Host", "pay.example"),
    ];
    while !over.load(Ordering::SeqCst) {
        let address = *here.lock().unwrap();
        match try_send(address, "POST", "/charges", &fields, "{}") {
            Ok(answer) if answer.status == 201 => return Some(FinalAnswer::Done(answer.body)),
            Ok(answer) if answer.is_problem("outcome-unknown") => return Some(FinalAnswer::Unknown),
            // The gateway or its database is down, or the first copy is running.
            _ => thread::sleep(Duration::from_millis(10)),
        }
    }
    None
}

fn effects_by_key(service: &Service) -> BTreeMap<String, usize> {
    let mut effects = BTreeMap::new();
    for request in service.received() {
        *effects.entry(request.key().to_owned()).or_default() += 1;
    }
    effects
}

fn slow_service() -> Service {
    let calls = AtomicU64::new(0);
    Service::start(move |request| {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(call * 7 % 13));
        Reply::created(format!("{{\"call\":{call},\"key\":\"{}\"}}", request.key()))
    })
}

#[test]
fn after_crashes_of_the_database_no_key_that_never_ran_is_unknown() {
    let Some(mut server) = Postgres::start() else { return };
    let database = server.database("receipts");
    let (home, service) = (Home::new(), slow_service());
    let gateway = start(&database, &service, &home, ONE);
    let here = Arc::new(Mutex::new(gateway.address));
    let over = Arc::new(AtomicBool::new(false));
    let clients = clients(&here, &over);
    for _ in 0..rounds(3, 20) {
        let before = service.effects();
        eventually("the gateway works", || (service.effects() > before + 50).then_some(()));
        server.kill();
        thread::sleep(Duration::from_millis(200));
        server.up();
    }
    let before = service.effects();
    eventually("the gateway works", || (service.effects() > before + 50).then_some(()));
    over.store(true, Ordering::SeqCst);
    let told: Told = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    let effects = effects_by_key(&service);
    for (key, answer) in &told {
        let count = effects.get(key).copied().unwrap_or(0);
        assert!(count <= 1, "{key} ran {count} times");
        match answer {
            FinalAnswer::Done(body) => {
                let again = eventually("it is replayed", || {
                    Some(charge(&gateway, key)).filter(|answer| answer.status != 503)
                });
                assert_eq!((again.status, &again.body), (201, body), "{key}");
            }
            FinalAnswer::Unknown => {
                assert_eq!(count, 1, "{key} never reached the service, and is said to be unknown");
            }
        }
    }
    println!(
        "{} keys, {} unknown",
        told.len(),
        told.values().filter(|answer| **answer == FinalAnswer::Unknown).count()
    );
}

/// Every start has other secrets or another scope than the one before, and some starts are mistakes.
#[test]
fn kills_during_rotations_and_changes_of_scope_run_nothing_twice() {
    let (home, service) = (Home::new(), slow_service());
    let store = format!("embedded:{}", home.folder.path().join("receipts").display());
    let plain = "[defaults]\nlease = \"1s\"\nwait_at_most = \"5s\"\n";
    let with_host = format!("{plain}scope = [\"auto\", \"host\"]\n");
    let secrets = [ONE.to_owned(), format!("{TWO},{ONE}"), format!("{ONE},{TWO}")];
    home.write_config(plain);
    let mut gateway = start(&store, &service, &home, &secrets[0]);
    let here = Arc::new(Mutex::new(gateway.address));
    let over = Arc::new(AtomicBool::new(false));
    let clients = clients(&here, &over);
    for kill in 0..rounds(8, 100) {
        let before = service.effects();
        eventually("the gateway works", || (service.effects() > before + 20).then_some(()));
        home.write_config(if kill % 2 == 0 { &with_host } else { plain });
        // Half of the changes are loaded by the running process first.
        if kill % 4 < 2 {
            gateway.signal("-HUP");
        }
        gateway.kill();
        refused_with_another_secret(&store, &service, &home);
        gateway = start(&store, &service, &home, &secrets[(kill + 1) % secrets.len()]);
        *here.lock().unwrap() = gateway.address;
    }
    over.store(true, Ordering::SeqCst);
    let told: Told = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    let effects = effects_by_key(&service);
    for (key, answer) in &told {
        let count = effects.get(key).copied().unwrap_or(0);
        assert!(count <= 1, "{key} ran {count} times");
        let again = charge(&gateway, key);
        match answer {
            FinalAnswer::Done(body) => {
                assert_eq!((again.status, &again.body), (201, body), "{key} was acknowledged");
            }
            FinalAnswer::Unknown => {
                assert_eq!(again.problem(), (409, "outcome-unknown".into()), "{key} was said to be unknown");
                assert_eq!(states_on_record(&gateway, key), ["unknown"], "{key}");
            }
        }
    }
    let unknown = told.values().filter(|answer| **answer == FinalAnswer::Unknown).count();
    println!("{} keys, {unknown} unknown", told.len());
    assert!(told.len() > 50, "only {} keys came to an end", told.len());
}

/// The states of the receipts of a key, under whatever secret and scope.
fn states_on_record(gateway: &Gateway, key: &str) -> Vec<String> {
    let listed = send(gateway.admin, "GET", &format!("/v1/receipts?key={key}"), &[], "");
    assert_eq!(listed.status, 200, "{listed:?}");
    let page: serde_json::Value = serde_json::from_str(&listed.body).unwrap();
    let receipts = page["receipts"].as_array().unwrap();
    let mut states: Vec<_> =
        receipts.iter().map(|receipt| receipt["state"].as_str().unwrap().to_owned()).collect();
    states.sort();
    states.dedup();
    states
}

fn refused_with_another_secret(store: &str, service: &Service, home: &Home) {
    let mut command = onceward(&["proxy", "--upstream", &service.url(), "--store", store]);
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config"]).arg(home.config());
    let output = command.env("ONCEWARD_SECRET", THREE).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
