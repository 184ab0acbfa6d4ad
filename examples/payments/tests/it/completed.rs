//! Payouts whose service is killed in the middle of them, and that nobody asks for again: the next service
//! finishes them by itself, and the provider transfers each once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use onceward::{Onceward, Scan, ScanOf, State};

use crate::servers::{MariaDb, Postgres};
use crate::service::{Service, book, post};
use crate::usual_or_long;

const PAYOUTS: usize = 6;
/// Each way to the provider: long enough for a kill before, between and after.
const PROVIDER: Duration = Duration::from_millis(40);
/// How long it may take until all are completed, on a loaded machine.
const COMPLETED_MAX: Duration = Duration::from_secs(120);

/// Each payout and what became of a part of it, as its receipt says.
async fn states(onceward: &Onceward, operation: &str) -> BTreeMap<String, State> {
    let of = ScanOf::Matching { scope: None, operation: Some(operation.into()), state: None };
    let mut scan = Scan { of, after: None, limit: 100 };
    let mut states = BTreeMap::new();
    loop {
        let page = onceward.list(&scan).await.expect("the database is up");
        states.extend(page.found.into_iter().map(|(id, found)| (id.key().to_owned(), found.state)));
        scan.after = page.next;
        if scan.after.is_none() {
            return states;
        }
    }
}

async fn payouts(onceward: &Onceward) -> BTreeMap<String, State> {
    states(onceward, "POST /payouts").await
}

/// Payouts that were begun and are not done: the first phase was finished, so that the others have to be. Who did
/// not get so far has begun nothing, and what was asked is known to its client alone.
async fn left(onceward: &Onceward) -> Vec<String> {
    let (reserved, payouts) = (states(onceward, "POST /payouts#reserve").await, payouts(onceward).await);
    let open = |key: &String| payouts.get(key).is_some_and(|state| *state != State::Done);
    reserved
        .into_iter()
        .filter(|(key, state)| *state == State::Done && open(key))
        .map(|(key, _)| key)
        .collect()
}

async fn are_completed(url: &str) {
    let mut service = Service::start_with(url, 0, PROVIDER).await;
    let address = service.address;
    let onceward = Onceward::new(onceward_stores::open(url).await.unwrap()).unwrap();
    let rounds = usual_or_long(4, 40);
    let mut in_the_middle = BTreeSet::new();
    for round in 0..rounds {
        let asked: Vec<_> = (0..PAYOUTS)
            .map(|number| {
                tokio::spawn(async move {
                    let key = format!("{round}-{number}");
                    post(address, "/payouts", &key, &format!(r#"{{"account":"a","amount":{number}}}"#)).await
                })
            })
            .collect();
        // Until the first one is claimed; then from the reservation to the confirmation, each time a bit later.
        while !payouts(&onceward).await.keys().any(|key| key.starts_with(&format!("{round}-"))) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(PROVIDER * round * 3 / rounds).await;
        service.kill().await;
        for one in asked {
            // Whoever has an answer has it; nobody asks again.
            let _ = one.await.unwrap();
        }
        in_the_middle.extend(left(&onceward).await);
        service = Service::start_with(url, address.port(), PROVIDER).await;
    }
    assert!(!in_the_middle.is_empty(), "no kill came in the middle of a payout");
    let start = Instant::now();
    while !left(&onceward).await.is_empty() {
        assert!(start.elapsed() < COMPLETED_MAX, "never completed: {:?}", left(&onceward).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    audit(url, &onceward, &service).await;
    println!("{rounds} kills, {} payouts in the middle, all completed", in_the_middle.len());
}

/// One transfer for each payout that is done, none for any other, and the answer is there for who asks at last.
async fn audit(url: &str, onceward: &Onceward, service: &Service) {
    let transfers = std::fs::read_to_string(book(url)).expect("the provider has a book");
    let mut done = 0;
    for (key, state) in payouts(onceward).await {
        if state != State::Done {
            continue;
        }
        done += 1;
        let number = key.split_once('-').expect("round and number").1;
        let body = format!(r#"{{"account":"a","amount":{number}}}"#);
        let answer = post(service.address, "/payouts", &key, &body).await.expect("the service is up");
        assert_eq!(answer.status, 201, "{key}: {answer:?}");
        assert_eq!(
            transfers.lines().filter(|line| *line == answer.body).count(),
            1,
            "{key}: {}",
            answer.body
        );
    }
    assert!(done > 0);
    assert_eq!(transfers.lines().count(), done, "transfers without a payout:\n{transfers}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payouts_that_nobody_asks_for_again_are_finished_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    are_completed(&format!("sqlite:{}", folder.path().join("payments.db").display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payouts_that_nobody_asks_for_again_are_finished_postgres() {
    let Some(server) = Postgres::shared() else { return };
    are_completed(&server.url(&server.fresh())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payouts_that_nobody_asks_for_again_are_finished_mariadb() {
    let Some(server) = MariaDb::shared() else { return };
    are_completed(&server.url(&server.fresh())).await;
}
