//! Kills the service while payouts are accepted and worked on, without client retries: the next process finishes
//! every accepted payout, and the provider transfers each once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use onceward::{Filter, Onceward, Scan, ScanTarget, State, TextMatch};

use crate::servers::{MariaDb, Postgres};
use crate::service::{Service, book, get, post};
use crate::usual_or_long;

const PAYOUTS: usize = 6;
/// Each way to the provider: long enough for a kill before, between and after.
const PROVIDER: Duration = Duration::from_millis(40);
/// How long it may take until all are finished, on a loaded machine.
const FINISHED_MAX: Duration = Duration::from_secs(120);

/// Each payout that was accepted, and what became of it, as the receipt of its saga says.
async fn payouts(onceward: &Onceward) -> BTreeMap<String, State> {
    let filter = Filter::default().with_operation(TextMatch::Is("saga:payout".into()));
    let mut scan = Scan::new(ScanTarget::Matching(filter), 100);
    let mut states = BTreeMap::new();
    loop {
        let page = onceward.list(&scan).await.expect("the database is up");
        states.extend(page.found.into_iter().map(|(id, found)| (id.key().to_owned(), found.status.state())));
        scan.after = page.next;
        if scan.after.is_none() {
            return states;
        }
    }
}

/// Payouts that were accepted and are not done.
async fn open(onceward: &Onceward) -> Vec<String> {
    let all = payouts(onceward).await;
    all.into_iter().filter(|(_, state)| *state != State::Done).map(|(key, _)| key).collect()
}

async fn are_finished(url: &str) {
    let mut service = Service::start_with(url, 0, PROVIDER).await;
    let address = service.address;
    let onceward = Onceward::new(onceward_stores::open(url).await.unwrap()).unwrap();
    let rounds = usual_or_long(4, 40);
    let (mut accepted, mut interrupted) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..rounds {
        let asked: Vec<_> = (0..PAYOUTS)
            .map(|number| {
                tokio::spawn(async move {
                    let key = format!("{round}-{number}");
                    let body = format!(r#"{{"account":"a","amount":{number}}}"#);
                    post(address, "/payouts", &key, &body).await.map(|answer| (key, answer))
                })
            })
            .collect();
        // Until the first one is accepted; then from its beginning to its end, each time a bit later.
        while !payouts(&onceward).await.keys().any(|key| key.starts_with(&format!("{round}-"))) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(PROVIDER * round * 3 / rounds).await;
        service.kill().await;
        for one in asked {
            // No client retries, so an accepted payout must be finished without one.
            if let Some((key, answer)) = one.await.unwrap() {
                assert_eq!((answer.status, answer.body), (202, format!("/payouts/{key}")));
                accepted.insert(key);
            }
        }
        interrupted.extend(open(&onceward).await);
        service = Service::start_with(url, address.port(), PROVIDER).await;
    }
    assert!(!interrupted.is_empty(), "no kill came while a payout was under way");
    let start = Instant::now();
    while !open(&onceward).await.is_empty() {
        assert!(start.elapsed() < FINISHED_MAX, "never finished: {:?}", payouts(&onceward).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    audit(url, &onceward, &service, &accepted).await;
    println!("{rounds} kills, {} payouts interrupted, all finished", interrupted.len());
}

/// One transfer for each payout, none without one, and nothing that was accepted is missing.
async fn audit(url: &str, onceward: &Onceward, service: &Service, accepted: &BTreeSet<String>) {
    let transfers = std::fs::read_to_string(book(url)).expect("the provider has a book");
    let all = payouts(onceward).await;
    for key in accepted {
        assert!(all.contains_key(key), "{key} was accepted and is gone");
    }
    for key in all.keys() {
        let shown = get(service.address, &format!("/payouts/{key}")).await.expect("the service is up");
        let number = key.split_once('-').expect("round and number").1;
        assert!(shown.body.ends_with(&format!(" of {number}")), "{key}: {shown:?}");
        assert_eq!(transfers.lines().filter(|line| *line == shown.body).count(), 1, "{key}: {shown:?}");
    }
    assert_eq!(transfers.lines().count(), all.len(), "transfers without a payout:\n{transfers}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payouts_that_nobody_asks_for_again_are_finished_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    are_finished(&format!("sqlite:{}", folder.path().join("payments.db").display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payouts_that_nobody_asks_for_again_are_finished_postgres() {
    let Some(server) = Postgres::shared() else { return };
    are_finished(&server.url(&server.fresh())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payouts_that_nobody_asks_for_again_are_finished_mariadb() {
    let Some(server) = MariaDb::shared() else { return };
    are_finished(&server.url(&server.fresh())).await;
}
