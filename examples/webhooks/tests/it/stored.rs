//! Events that are stored first: acknowledged at once, in the order of their invoice, and never backwards.

use std::time::Duration;

use axum::Router;
use onceward::Onceward;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower_service::Service;
use webhooks::stored::{Invoices, app};

use super::{INVOICE, STRIPE, stripe_to};

const FINALIZED: &str = include_str!("../payloads/stripe_invoice_finalized.json");
const STUCK_AFTER: Duration = Duration::from_secs(30);

struct Stage {
    app: Router,
    invoices: Invoices,
    stop: oneshot::Sender<()>,
    handling: JoinHandle<()>,
}

impl Stage {
    async fn start(folder: &TempDir) -> Self {
        let path = folder.path().join("webhooks.db").display().to_string();
        let store = onceward_stores::open(&format!("sqlite:{path}")).await.unwrap();
        let invoices = Invoices::open(&path).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let onceward = Onceward::new(store).unwrap();
        let stopped = async { drop(stopped.await) };
        let (app, handling) = app(&onceward, [1; 32], STRIPE, invoices.clone(), stopped).unwrap();
        Self { app, invoices, stop, handling }
    }

    async fn send(&mut self, body: &str) -> u16 {
        self.app.call(stripe_to("/stripe/stored", body)).await.unwrap().status().as_u16()
    }

    /// The history, when it has this many lines.
    async fn history(&self, lines: usize) -> Vec<String> {
        let enough = async {
            loop {
                let history = self.invoices.history().await.unwrap();
                if history.len() >= lines {
                    return history;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(STUCK_AFTER, enough).await.expect("events are not handled")
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(STUCK_AFTER, self.handling).await.unwrap().unwrap();
    }
}

/// An event about another invoice, with an id of its own.
fn of_invoice(body: &str, number: u32) -> String {
    let event = body.replace("in_1PExample000000000000001", &format!("in_{number}"));
    event.replace("evt_1PExample", &format!("evt_{number}_"))
}

#[tokio::test]
async fn swapped_events_are_recognised_and_never_set_an_invoice_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut stage = Stage::start(&folder).await;
    // In order: both happened in the same second.
    let (finalized, paid) = (of_invoice(FINALIZED, 1), of_invoice(INVOICE, 1));
    assert_eq!((stage.send(&finalized).await, stage.send(&paid).await), (202, 202));
    assert_eq!(stage.history(2).await, ["in_1 is open", "in_1 is paid"]);
    // Swapped, and each of them twice.
    let (finalized, paid) = (of_invoice(FINALIZED, 2), of_invoice(INVOICE, 2));
    for event in [&paid, &finalized, &paid, &finalized] {
        assert_eq!(stage.send(event).await, 202);
    }
    assert_eq!(stage.history(4).await[2..], ["in_2 is paid", "in_2 was open before"]);
    assert_eq!(stage.invoices.status("in_1").await.unwrap(), "paid");
    assert_eq!(stage.invoices.status("in_2").await.unwrap(), "paid");

    // Events of one invoice are handled in the order in which they arrive, whatever else is handled.
    for number in 10..30 {
        assert_eq!(stage.send(&of_invoice(FINALIZED, number)).await, 202);
    }
    for number in 10..30 {
        assert_eq!(stage.send(&of_invoice(INVOICE, number)).await, 202);
    }
    let history = stage.history(44).await;
    for number in 10..30 {
        let of = format!("in_{number} ");
        let lines: Vec<_> = history.iter().filter(|line| line.starts_with(&of)).collect();
        assert_eq!(lines, [&format!("{of}is open"), &format!("{of}is paid")]);
    }
    stage.stop().await;

    // After a restart what was handled is known: nothing is handled a second time.
    let mut stage = Stage::start(&folder).await;
    assert_eq!(stage.send(&finalized).await, 202);
    assert_eq!(stage.send(&of_invoice(INVOICE, 40)).await, 202);
    assert_eq!(stage.history(45).await[44..], ["in_40 is paid"]);
    stage.stop().await;
}

#[tokio::test]
async fn an_event_with_another_signature_is_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let mut stage = Stage::start(&folder).await;
    let (parts, _) = stripe_to("/stripe/stored", INVOICE).into_parts();
    let changed = INVOICE.replace("1200", "9200");
    let request = axum::http::Request::from_parts(parts, axum::body::Body::from(changed));
    assert_eq!(stage.app.call(request).await.unwrap().status().as_u16(), 403);
    // An event of no interest is acknowledged like any other.
    let other = INVOICE.replace("\"object\": \"invoice\"", "\"object\": \"customer\"");
    assert_eq!(stage.send(&of_invoice(&other, 1)).await, 202);
    assert_eq!(stage.send(&of_invoice(INVOICE, 2)).await, 202);
    assert_eq!(stage.history(1).await, ["in_2 is paid"]);
    stage.stop().await;
}
