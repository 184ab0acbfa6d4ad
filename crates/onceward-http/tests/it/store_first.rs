//! Events that are stored first, in a service of its own: the layer, its deliveries, and code that hands events on.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::routing::post;
use onceward::{Backoff, Lease, Policy};
use onceward_http::webhook::{
    Arrivals, Deliver, Delivered, Deliveries, Receiver, Scheme, Signer, StoreFirst, StoredEvent, Verifier,
};
use onceward_http::{OncewardLayer, Route};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::stage::send_to;

const SECRET: &str = "whsec_c2VjcmV0LW9mLXRoZS1zZW5kZXItMDE=";
const STUCK_AFTER: Duration = Duration::from_secs(20);

/// Hands events on to this list. An event whose body says so fails once.
struct ToList {
    policy: Arc<Policy>,
    tries: Arc<Mutex<Vec<Try>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Try {
    event: String,
    number: u16,
    key: String,
}

impl Deliver for ToList {
    fn policy(&self, _: &StoredEvent) -> Option<Arc<Policy>> {
        Some(self.policy.clone())
    }

    fn deliver<'a>(
        &'a self,
        event: StoredEvent,
        lease: &'a Lease,
    ) -> Pin<Box<dyn Future<Output = Delivered> + Send + 'a>> {
        Box::pin(async move {
            let key = lease.child("delivery").unwrap().to_string();
            let made = Try { event: event.key.clone(), number: lease.tries(), key };
            self.tries.lock().unwrap().push(made);
            assert_eq!((event.method.as_str(), event.target.as_str()), ("POST", "/hooks"));
            let body: serde_json::Value = serde_json::from_slice(&event.body).unwrap();
            match body["fails"].as_str() {
                Some("once") if lease.tries() == 1 => return Delivered::Failed("not yet".into()),
                Some("always") => return Delivered::Final("never".into()),
                _ => {}
            }
            Delivered::Taken
        })
    }
}

/// The service behind the layer: events that are stored first do not come here.
async fn never_called() -> &'static str {
    panic!("an event that is stored first is not passed on")
}

#[tokio::test]
async fn a_service_of_its_own_stores_events_and_hands_them_on() {
    let onceward = onceward_stores::in_memory();
    let (arrivals, tries) = (Arrivals::new(), Arc::<Mutex<Vec<Try>>>::default());
    let stored = StoreFirst::new(arrivals.clone()).with_order_by("body:/object".parse().unwrap());
    let verifier = Verifier::new(Scheme::StandardWebhooks, [SECRET]).unwrap();
    let preset = Route::preset("webhook").unwrap();
    let soon = Backoff::new(Duration::from_millis(10), Duration::from_millis(10));
    let policy = preset.policy().to_builder().with_backoff(soon).build().unwrap();
    let route = preset.to_builder().with_policy(policy);
    let route = route.with_webhook(Receiver::new(verifier).with_store_first(stored)).build().unwrap();
    let deliver = Arc::new(ToList { policy: route.policy().clone(), tries: tries.clone() });
    let deliveries = Deliveries::new(onceward.clone(), arrivals);
    let counts = deliveries.counts();
    let (stop, stopped) = oneshot::channel::<()>();
    let delivering = tokio::spawn(deliveries.run_until(deliver, async { drop(stopped.await) }));

    let app =
        Router::new().route("/hooks", post(never_called)).layer(OncewardLayer::new(onceward, [7; 32], route));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });

    let send = async |id: &str, signed_id: &str, body: &str| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let signature = Signer::new(SECRET).unwrap().sign(signed_id, now, body.as_bytes());
        let time = now.to_string();
        let fields = [("webhook-id", id), ("webhook-timestamp", &*time), ("webhook-signature", &*signature)];
        send_to(address, "POST", "/hooks", &fields, body).await
    };
    let (flaky, next) = (r#"{"object":"a","fails":"once"}"#, r#"{"object":"a"}"#);
    assert_eq!(send("evt_0", "evt_1", flaky).await.problem(), "signature-refused");
    for (id, body) in [("evt_1", flaky), ("evt_2", next), ("evt_1", flaky)] {
        let answer = send(id, id, body).await;
        assert_eq!((answer.status, answer.body.as_str()), (202, ""), "{id}");
    }
    let all = async {
        while tries.lock().unwrap().len() < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(STUCK_AFTER, all).await.unwrap();
    // The last event of its object comes after everything that would be too much.
    assert_eq!(send("evt_1", "evt_1", flaky).await.status, 202);
    assert_eq!(send("evt_3", "evt_3", next).await.status, 202);
    let last = async {
        while tries.lock().unwrap().last().unwrap().event != "evt_3" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(STUCK_AFTER, last).await.unwrap();
    // A dead event that comes again is acknowledged like any other, and stays dead.
    let dead = r#"{"object":"b","fails":"always"}"#;
    let metrics = || {
        let mut metrics = String::new();
        counts.write_metrics(&mut metrics);
        metrics
    };
    assert_eq!(send("evt_4", "evt_4", dead).await.status, 202);
    let is_dead = async {
        while !metrics().contains("onceward_webhook_events_dead_total 1\n") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(STUCK_AFTER, is_dead).await.unwrap();
    for _ in 0..2 {
        let answer = send("evt_4", "evt_4", dead).await;
        assert_eq!((answer.status, answer.body.as_str()), (202, ""));
    }
    stop.send(()).unwrap();
    tokio::time::timeout(STUCK_AFTER, delivering).await.unwrap().unwrap();

    let tries = tries.lock().unwrap().clone();
    let made: Vec<_> = tries.iter().map(|made| (made.event.as_str(), made.number)).collect();
    assert_eq!(
        made,
        [("evt_1", 1), ("evt_1", 2), ("evt_2", 1), ("evt_3", 1), ("evt_4", 1)],
        "in order, until each is taken"
    );
    assert_eq!(tries[0].key, tries[1].key, "the same key on every try");
    assert!(tries[1].key != tries[2].key && tries[2].key != tries[3].key);
    let metrics = metrics();
    for line in [
        "onceward_webhook_events_delivered_total 3",
        "onceward_webhook_failed_tries_total 2",
        "onceward_webhook_events_dead_total 1",
        "onceward_webhook_events_dead_again_total 2",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
}
