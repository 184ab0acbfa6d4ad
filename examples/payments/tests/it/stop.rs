//! Tells the service to stop while a payout is under way: it ends by itself, in order, and leaves nothing to be taken over.

use std::time::{Duration, Instant};

use onceward::{Id, Onceward, Receipt, State};

use crate::service::{Service, book, post};

/// Each way to the provider: long enough to be stopped on the way.
const PROVIDER: Duration = Duration::from_millis(300);
const WAIT_MAX: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_told_to_stop_finishes_what_it_does() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("payments.db").display());
    let service = Service::start_with(&url, 0, PROVIDER).await;
    let answer = post(service.address, "/payouts", "one", r#"{"account":"a","amount":7}"#).await;
    assert_eq!(answer.map(|answer| answer.status), Some(202));
    let onceward = Onceward::new(onceward_stores::open(&url).await.unwrap()).unwrap();
    let (_, begun) = until(&onceward, State::Held).await;
    assert_eq!(begun.status.job().map(|job| job.started), Some(1));
    assert!(service.terminate().await, "it did not end in order");
    // Nobody is left who could finish it, and no lease has to end.
    let (id, receipt) = payout(&onceward).await.expect("it was accepted");
    assert_eq!(receipt.status.state(), State::Done, "{id:?}: {receipt:?}");
    let transfers = std::fs::read_to_string(book(&url)).expect("the provider has a book");
    assert_eq!(transfers.lines().count(), 1, "{transfers}");
}

async fn until(onceward: &Onceward, state: State) -> (Id, Receipt) {
    let start = Instant::now();
    loop {
        if let Some(found) = payout(onceward).await.filter(|(_, found)| found.status.state() == state) {
            return found;
        }
        assert!(start.elapsed() < WAIT_MAX, "the payout was never {state}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The task of the only payout.
async fn payout(onceward: &Onceward) -> Option<(Id, Receipt)> {
    let filter = onceward::Filter::default().with_operation(onceward::TextMatch::Is("saga:payout".into()));
    let scan = onceward::Scan::new(onceward::ScanTarget::Matching(filter), 100);
    let page = onceward.list(&scan).await.expect("the database is there");
    let (id, _) = page.found.into_iter().find(|(id, _)| !id.is_step())?;
    let receipt = onceward.receipt(&id).await.expect("the database is there")?;
    Some((id, receipt))
}
