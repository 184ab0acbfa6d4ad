//! Clients that retry until they are answered, while the service or its database is being killed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::servers::{MariaDb, Postgres};
use crate::service::{Answer, Service, get, post};
use crate::usual_or_long;

const CLIENTS: usize = 8;

/// Clients at work. Each makes one charge after the other, each with a key of its own, and sends it again
/// until it is acknowledged; every now and then also after that.
struct Load {
    clients: Vec<tokio::task::JoinHandle<HashMap<String, Answer>>>,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
}

impl Load {
    fn start(address: SocketAddr) -> Self {
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let clients = (0..CLIENTS)
            .map(|client| {
                let (stop, acknowledged) = (Arc::clone(&stop), Arc::clone(&acknowledged));
                tokio::spawn(async move {
                    let mut answers = HashMap::new();
                    for number in 0.. {
                        // Only between two keys: at the end, what was asked was also acknowledged.
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let key = format!("{client}-{number}");
                        let answer = retry_until_acknowledged(address, &key).await;
                        if number % 7 == 0 {
                            assert_eq!(
                                retry_until_acknowledged(address, &key).await,
                                answer,
                                "another answer for {key}"
                            );
                        }
                        answers.insert(key, answer);
                        acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                    answers
                })
            })
            .collect();
        Self { clients, stop, acknowledged }
    }

    /// Waits until this many more were acknowledged: proof that the service is back.
    async fn until_more(&self, more: usize) {
        let (goal, start) = (self.acknowledged.load(Ordering::Relaxed) + more, Instant::now());
        while self.acknowledged.load(Ordering::Relaxed) < goal {
            assert!(start.elapsed() < Duration::from_secs(120), "nothing is acknowledged any more");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn end(self) -> HashMap<String, Answer> {
        self.stop.store(true, Ordering::Relaxed);
        let mut answers = HashMap::new();
        for client in self.clients {
            answers.extend(client.await.expect("no client fails"));
        }
        answers
    }
}

/// Sends a charge until it is acknowledged.
async fn retry_until_acknowledged(address: SocketAddr, key: &str) -> Answer {
    let body = format!(r#"{{"account":"{key}","amount":12}}"#);
    let start = Instant::now();
    loop {
        match post(address, "/charges", key, &body).await {
            Some(answer) if answer.status == 201 => return answer,
            // An unknown outcome is impossible here: the charge was committed, or it was not.
            Some(answer) if answer.body.contains("outcome-unknown") => panic!("{key}: {answer:?}"),
            // On its way, or the database is away: what a client retries.
            Some(Answer { status: 409 | 500 | 503, .. }) | None => {}
            Some(answer) => panic!("{key}: {answer:?}"),
        }
        assert!(start.elapsed() < Duration::from_secs(120), "{key} is never acknowledged");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The promise: one charge for each key that was acknowledged, none for any other, and every answer again.
async fn audit(address: SocketAddr, answers: &HashMap<String, Answer>) {
    let list = get(address, "/charges").await.expect("the service is up").body;
    let charges: Vec<serde_json::Value> = serde_json::from_str(&list).expect("a list of charges");
    let mut by_key: HashMap<&str, usize> = HashMap::new();
    for charge in &charges {
        *by_key.entry(charge["idempotency_key"].as_str().expect("a key")).or_default() += 1;
    }
    for key in answers.keys() {
        assert_eq!(by_key.get(key.as_str()), Some(&1), "charges for {key}");
    }
    assert_eq!(charges.len(), answers.len(), "charges without an acknowledgement");
    for (key, answer) in answers {
        assert_eq!(&retry_until_acknowledged(address, key).await, answer, "another answer for {key}");
    }
    println!("{} charges for {} keys, all replayed", charges.len(), answers.len());
}

/// Kills the service again and again at random moments.
async fn kill_service(url: &str, kills: usize) {
    let service = Service::start(url, 0).await;
    let address = service.address;
    let load = Load::start(address);
    let mut service = Some(service);
    for kill in 0..kills {
        load.until_more(3).await;
        // At any point of a request, spread over a few milliseconds.
        tokio::time::sleep(Duration::from_micros(u64::try_from(kill).unwrap() * 7919 % 20_000)).await;
        service.take().expect("it runs").kill().await;
        service = Some(Service::start(url, address.port()).await);
    }
    load.until_more(20).await;
    let answers = load.end().await;
    println!("{kills} kills of the service");
    audit(address, &answers).await;
}

/// Kills the database again and again under a service that stays.
async fn kill_database<S: Send + 'static>(mut server: S, url: &str, kill: fn(&mut S)) {
    let service = Service::start(url, 0).await;
    let load = Load::start(service.address);
    let kills = usual_or_long(3, 20);
    for _ in 0..kills {
        load.until_more(50).await;
        let killing = tokio::task::spawn_blocking(move || {
            kill(&mut server);
            server
        });
        server = killing.await.unwrap();
    }
    load.until_more(50).await;
    let answers = load.end().await;
    println!("{kills} kills of the database");
    audit(service.address, &answers).await;
}

/// The same database, with the transactions of sqlx.
fn with_sqlx(url: &str) -> String {
    format!("sqlx+{url}")
}

/// `SQLite` has no server: to kill the process is to kill the database, whatever it is writing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_killed_charges_once_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("payments.db").display());
    kill_service(&url, usual_or_long(10, 200)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_killed_charges_once_postgres() {
    let Some(server) = Postgres::shared() else { return };
    kill_service(&server.url(&server.fresh()), usual_or_long(10, 200)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_killed_charges_once_mariadb() {
    let Some(server) = MariaDb::shared() else { return };
    kill_service(&server.url(&server.fresh()), usual_or_long(10, 200)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_killed_charges_once_sqlx_postgres() {
    let Some(server) = Postgres::shared() else { return };
    kill_service(&with_sqlx(&server.url(&server.fresh())), usual_or_long(10, 200)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_killed_charges_once_sqlx_mariadb() {
    let Some(server) = MariaDb::shared() else { return };
    kill_service(&with_sqlx(&server.url(&server.fresh())), usual_or_long(10, 200)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_killed_loses_nothing_postgres() {
    let Some(server) = Postgres::start() else { return };
    let url = server.url("postgres");
    let kill = |server: &mut Postgres| {
        server.kill();
        server.up();
    };
    kill_database(server, &url, kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_killed_loses_nothing_mariadb() {
    let Some(server) = MariaDb::start() else { return };
    let url = server.database("payments");
    let kill = |server: &mut MariaDb| {
        server.kill();
        server.up();
    };
    kill_database(server, &url, kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_takes_over_without_loss() {
    let settings = ["synchronous_standby_names=second", "wal_level=replica", "max_wal_senders=4"];
    let Some(first) = Postgres::start_with(&settings) else { return };
    let second = first.standby("second");
    let both = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?connect_timeout=2",
        first.port(),
        second.port()
    );
    let service = Service::start(&both, 0).await;
    let load = Load::start(service.address);
    load.until_more(100).await;
    // The primary is gone for good; what it acknowledged is on the standby.
    let second = tokio::task::spawn_blocking(move || {
        drop(first);
        second.promote();
        second
    })
    .await
    .unwrap();
    load.until_more(100).await;
    let answers = load.end().await;
    audit(service.address, &answers).await;
    drop(second);
}

/// The rest of the example: an order is confirmed once, and a payout is transferred once.
async fn orders_and_payouts(url: &str) {
    let service = Service::start(url, 0).await;
    let send = async |path: &str, key: &str, body: &str| {
        let answer = post(service.address, path, key, body).await.expect("an answer");
        (answer.status, answer.body)
    };
    let order = r#"{"order":"o-1"}"#;
    assert_eq!(send("/orders", "k1", order).await, (201, "placed".into()));
    assert_eq!(send("/orders", "k1", order).await, (201, "placed".into()));
    assert_eq!(send("/orders", "k2", order).await, (201, "was placed before".into()));
    assert_eq!(send("/orders", "k8", r#"{"order":"O-1"}"#).await, (201, "placed".into()));
    assert_eq!(send("/orders/o-1/pay", "k3", "{}").await, (200, "paid".into()));
    assert_eq!(send("/orders/o-1/pay", "k3", "{}").await, (200, "paid".into()));
    assert_eq!(send("/orders/o-1/pay", "k4", "{}").await, (200, "was paid before".into()));
    assert_eq!(send("/orders/o-2/pay", "k5", "{}").await, (409, "illegal".into()));
    let shown = get(service.address, "/orders/o-1").await.unwrap();
    assert_eq!(shown.body, r#"["paid",1]"#);

    let payout = r#"{"account":"a","amount":5}"#;
    for _ in 0..2 {
        assert_eq!(send("/payouts", "k6", payout).await, (202, "/payouts/k6".into()));
    }
    let start = Instant::now();
    let transfer = loop {
        let shown = get(service.address, "/payouts/k6").await.unwrap();
        assert_eq!(shown.status, 200, "{shown:?}");
        if !shown.body.is_empty() {
            break shown.body;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it is never paid out");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(transfer.ends_with(" of 5"), "{transfer}");
    assert_eq!(send("/charges", "k7", r#"{"account":"a","amount":0}"#).await.0, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_and_payouts_happen_once_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    orders_and_payouts(&format!("sqlite:{}", folder.path().join("payments.db").display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_and_payouts_happen_once_postgres() {
    let Some(server) = Postgres::shared() else { return };
    orders_and_payouts(&server.url(&server.fresh())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_and_payouts_happen_once_mariadb() {
    let Some(server) = MariaDb::shared() else { return };
    orders_and_payouts(&server.url(&server.fresh())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_and_payouts_happen_once_sqlx_postgres() {
    let Some(server) = Postgres::shared() else { return };
    orders_and_payouts(&with_sqlx(&server.url(&server.fresh()))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_and_payouts_happen_once_sqlx_mariadb() {
    let Some(server) = MariaDb::shared() else { return };
    orders_and_payouts(&with_sqlx(&server.url(&server.fresh()))).await;
}
