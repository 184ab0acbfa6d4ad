//! The saga of a booking, and a worker that drives bookings until it is killed.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, header};
use onceward::{Backoff, Onceward};
use onceward_client::reqwest;
use onceward_flows::{Saga, Sagas, Step, StepResult};
use onceward_stores::sql::Options;
use onceward_stores::sql::postgres::PostgresStore;

const LEASE: Duration = Duration::from_millis(500);
/// More tries than any step can lose to kills.
const TRIES: u16 = 10_000;

type Call = Pin<Box<dyn Future<Output = StepResult<()>> + Send>>;

#[derive(Clone)]
struct Caller {
    client: reqwest::Client,
    gateway: Arc<str>,
}

impl Caller {
    /// A step that calls a service through its gateway; as an undo it closes `closes` there.
    fn call(
        &self,
        path: &'static str,
        closes: Option<&'static str>,
    ) -> impl Fn(Step) -> Call + Send + Sync + 'static {
        let caller = self.clone();
        move |step: Step| {
            let booking: u64 = step.saga().key().parse().unwrap();
            let url = format!("http://{}{path}", caller.gateway);
            let request = step.request(&caller.client, Method::POST, &url);
            let request = request
                .header(header::AUTHORIZATION, HeaderValue::from_static("Bearer the-bookings"))
                .json(&serde_json::json!({ "booking": booking }));
            let request = match closes {
                Some(operation) => request.closes(operation),
                None => request,
            };
            Box::pin(async move { request.send().await.map(drop) })
        }
    }
}

/// The saga of most bookings, and that of those whose charge is lost: its participant is not trusted with a second try.
pub fn sagas(gateways: [&str; 3]) -> [Saga; 2] {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::new();
    let [seats, money, mail] =
        gateways.map(|gateway| Caller { client: client.clone(), gateway: gateway.into() });
    let backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(200));
    let begin = |name: &str| {
        Saga::builder(name)
            .step("seat", seats.call("/seats", None))
            .undo(seats.call("/releases", Some("POST /seats")))
            .with_retry_unknown()
            .with_tries(TRIES, backoff)
    };
    let end = |saga: onceward_flows::SagaBuilder| {
        let saga = saga.with_tries(TRIES, backoff).step("mail", mail.call("/mails", None));
        // A mail whose sending failed may have been sent.
        let saga = saga.undo(mail.call("/retractions", Some("POST /mails")));
        saga.with_retry_unknown().with_tries(TRIES, backoff).with_lease(LEASE).build().unwrap()
    };
    let usual = begin("booking")
        .step("money", money.call("/charges", None))
        .undo(money.call("/refunds", Some("POST /charges")))
        .with_retry_unknown();
    let held = begin("held-booking")
        .step("money", money.call("/held-charges", None))
        .undo(money.call("/refunds", Some("POST /held-charges")));
    [end(usual), end(held)]
}

#[tokio::main]
pub async fn work(database: &str, gateways: [&str; 3]) {
    let store = PostgresStore::open(database, Options::default()).await.unwrap();
    let onceward = Onceward::new(Arc::new(store)).unwrap();
    let [usual, held] = sagas(gateways);
    let worker = Sagas::new().with_saga(&usual).with_saga(&held).worker(onceward).unwrap();
    worker.run_until(std::future::pending()).await;
}
