//! Payouts whose service is killed in the middle of them, and that nobody asks for again: the next service
//! finishes them by itself, and the provider transfers each once.

use std::collections::BTreeMap;
use std::time::Duration;

use onceward::{Onceward, Scan, ScanOf, State};

use crate::servers::{MariaDb, Postgres};
use crate::service::{Service, book, post};
use crate::usual_or_long;

const PAYOUTS: usize = 6;
/// Each way to the provider: long enough for a kill before, between and after.
const PROVIDER: Duration = Duration::from_millis(40);

/// Each payout and what became of it, as its receipt says.
async fn payouts(onceward: &Onceward) -> BTreeMap<String, State> {
    let of = ScanOf::Matching { scope: None, operation: Some("POST /payouts".into()), state: None };
    let page = onceward.list(&Scan { of, after: None, limit: 1_000 }).await.expect("the database is up");
    page.found.into_iter().map(|(id, found)| (id.key().to_owned(), found.state)).collect()
}

/// Whether the first phase of a payout was finished.
async fn is_reserved(onceward: &Onceward, key: &str) -> bool {
    let of = ScanOf::Matching { scope: None, operation: Some("POST /payouts#reserve".into()), state: None };
    let page = onceward.list(&Scan { of, after: None, limit: 1_000 }).await.expect("the database is up");
    page.found.iter().any(|(id, found)| id.key() == key && found.state == State::Done)
}

async fn are_completed(url: &str) {
    let mut service = Service::start_with(url, 0, PROVIDER).await;
    let address = service.address;
    let onceward = Onceward::new(onceward_stores::open(url).await.unwrap()).unwrap();
    let rounds = usual_or_long(4, 40);
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
        service = Service::start_with(url, address.port(), PROVIDER).await;
    }
    let mut completed = 0;
    for (key, state) in payouts(&onceward).await {
        if state == State::Done {
            continue;
        }
        if !is_reserved(&onceward, &key).await {
            // Nothing was begun, and what was asked is known to its client alone.
            continue;
        }
        while payouts(&onceward).await[&key] != State::Done {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        completed += 1;
    }
    audit(url, &onceward, &service).await;
    println!(
        "{completed} of {} payouts were open after the last kill, and completed",
        payouts(&onceward).await.len()
    );
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
