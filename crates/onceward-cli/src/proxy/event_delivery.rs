//! Delivers stored webhooks to the upstream, with a derived key, the fence, the number of the try and a signature of the
//! gateway's own.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{CONTENT_LENGTH, EXPECT, HeaderValue};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt, Limited};
use onceward::{Lease, Policy};
use onceward_http::headers::{
    IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, ONCEWARD_ATTEMPT, ONCEWARD_FENCE, ONCEWARD_TRY,
};
use onceward_http::webhook::{
    Deliver, Delivered, Deliveries, StoredEvent, WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP,
};

use super::body::GatewayBody;
use super::fields;
use super::pool::SendFailure;
use super::serve::Gateway;
use crate::config::EffectiveRoute;

/// The label that the keys of deliveries are derived with.
const CHILD_LABEL: &str = "delivery";
/// What is read of an answer: nothing is kept of it, but its connection can be used again only when it has ended.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// How often a gateway that delivers nothing looks whether a reload has given it a route that does.
const ROUTE_PAUSE: Duration = Duration::from_millis(500);

/// Delivers by the routes in effect.
pub struct EventDelivery {
    gateway: Arc<Gateway>,
}

/// Delivers stored events until `stop` is ready. Begins when there is a route that stores events.
pub async fn run(gateway: Arc<Gateway>, deliveries: Deliveries, stop: impl Future<Output = ()> + Send) {
    let mut stop = std::pin::pin!(stop);
    while !gateway.table.load().stores_events() {
        tokio::select! {
            () = tokio::time::sleep(ROUTE_PAUSE) => {}
            () = &mut stop => return,
        }
    }
    deliveries.run_until(Arc::new(EventDelivery { gateway }), stop).await;
}

impl Deliver for EventDelivery {
    fn policy(&self, event: &StoredEvent) -> Option<Arc<Policy>> {
        self.route(event).map(|route| route.route.policy().clone())
    }

    fn deliver<'a>(
        &'a self,
        event: StoredEvent,
        lease: &'a Lease,
    ) -> Pin<Box<dyn Future<Output = Delivered> + Send + 'a>> {
        Box::pin(async move {
            let Some(route) = self.route(&event) else {
                return Delivered::Failed("its route was removed".into());
            };
            let request = match request(&route, event, lease) {
                Ok(request) => request,
                Err(why) => return Delivered::Failed(why),
            };
            let upstream = &self.gateway.state.upstream;
            match upstream.deliver(request, route.answer_timeout, route.upstream_reuse, lease).await {
                Ok(answer) => read(answer).await,
                Err(SendFailure::NotSent(why)) => {
                    Delivered::Failed(format!("the service cannot be reached: {why}"))
                }
                Err(SendFailure::NoAnswer(why)) => {
                    Delivered::Failed(format!("the service gave no answer: {why}"))
                }
            }
        })
    }
}

impl EventDelivery {
    fn route(&self, event: &StoredEvent) -> Option<EffectiveRoute> {
        let method = Method::try_from(event.method.as_str()).ok()?;
        let target: Uri = event.target.parse().ok()?;
        self.gateway.table.load().delivers(&method, target.path())
    }
}

fn request(
    route: &EffectiveRoute,
    event: StoredEvent,
    lease: &Lease,
) -> Result<Request<GatewayBody>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("it cannot be delivered: {error}");
    let id = lease.id().key().to_owned();
    let mut headers = event.headers;
    fields::remove_hop_by_hop(&mut headers);
    headers.remove(EXPECT);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(event.body.len()));
    let key = lease.child(CHILD_LABEL).map_err(|error| wrong(&error))?;
    let text = |text: String| HeaderValue::try_from(text).map_err(|error| wrong(&error));
    headers.insert(IDEMPOTENCY_KEY, text(format!("\"{key}\""))?);
    headers.insert(ONCEWARD_FENCE, HeaderValue::from(lease.fence().0));
    headers.insert(ONCEWARD_ATTEMPT, text(format!("{:032x}", lease.attempt().0))?);
    headers.insert(ONCEWARD_TRY, HeaderValue::from(lease.tries()));
    if let Some(signer) = &route.signer {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        headers.insert(WEBHOOK_SIGNATURE, text(signer.sign(&id, now, &event.body))?);
        headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(now));
        headers.insert(WEBHOOK_ID, text(id)?);
    }
    let mut request = Request::new(GatewayBody::from(event.body));
    *request.method_mut() = Method::try_from(event.method.as_str()).map_err(|error| wrong(&error))?;
    *request.uri_mut() = event.target.parse().map_err(|error| wrong(&error))?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Every answer but 2xx is a failed try. One that is replayed would come again on every further one.
async fn read(answer: Response<GatewayBody>) -> Delivered {
    let (parts, body) = answer.into_parts();
    if let Err(error) = Limited::new(body, ANSWER_BYTES_MAX).collect().await {
        return Delivered::Failed(format!("the answer of the service broke off: {error}"));
    }
    let status = parts.status;
    let replayed = parts.headers.get(IDEMPOTENT_REPLAYED).is_some_and(|value| value == "true");
    match (status.is_success(), replayed) {
        (true, _) => Delivered::Taken,
        (false, true) => Delivered::Final(format!("the service has decided: it replays {status}")),
        (false, false) => Delivered::Failed(format!("the service answered {status}")),
    }
}
