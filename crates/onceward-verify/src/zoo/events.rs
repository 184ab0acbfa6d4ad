//! An endpoint for signed events, in every scheme that the verifier speaks.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use http::HeaderMap;
use serde_json::Value;

use super::careful::LOOK_EVERY;
use super::charges::Charges;
use super::server::{Reply, WEBHOOK_SECRET};
use crate::endpoint::{Scheme, Webhook};

/// By what a service knows an event again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Events {
    /// By its id, from the start of the work on.
    #[default]
    Right,
    /// By its signature, which is another in each delivery where the time is signed.
    BySignature,
    /// By its id, once the work is done.
    WhenDone,
    /// By its id. A delivery that comes during the work waits for its end, and after a while works itself.
    WaiterLosesPatience,
}

/// Longer than the work usually takes, and shorter than slow work.
const WAITS_FOR: Duration = Duration::from_millis(400);

/// Events that are known.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    known: Mutex<HashSet<String>>,
    done: Mutex<HashSet<String>>,
}

impl Inbox {
    /// Takes an event whose work takes this long.
    pub(super) async fn take(
        &self,
        how: Events,
        fields: &HeaderMap,
        body: &[u8],
        work: Duration,
        charges: &Charges,
    ) -> Reply {
        let Some(signed) = Signed::read(fields, body) else {
            return Reply::plain(400, "a bad signature");
        };
        let id = if how == Events::BySignature { signed.signature } else { signed.id };
        let is_new = match how {
            Events::WhenDone => !set(&self.done).contains(&id),
            _ => set(&self.known).insert(id.clone()),
        };
        if is_new || how == Events::WaiterLosesPatience && !self.is_done_soon(&id).await {
            tokio::time::sleep(work).await;
            charges.effect("");
            set(&self.done).insert(id);
        }
        Reply::plain(200, "taken")
    }

    async fn is_done_soon(&self, id: &str) -> bool {
        let start = Instant::now();
        while !set(&self.done).contains(id) {
            if start.elapsed() > WAITS_FOR {
                return false;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        true
    }
}

fn set(of: &Mutex<HashSet<String>>) -> MutexGuard<'_, HashSet<String>> {
    of.lock().expect("nobody panics with it in hand")
}

/// What a delivery says of itself, once its signature was checked.
struct Signed {
    id: String,
    signature: String,
}

impl Signed {
    fn read(fields: &HeaderMap, body: &[u8]) -> Option<Self> {
        let field = |name: &str| Some(fields.get(name)?.to_str().ok()?.to_owned());
        let (scheme, signature, id, unix_s) = if let Some(signature) = field("stripe-signature") {
            let event: Value = serde_json::from_slice(body).unwrap_or_default();
            let unix_s = signature.strip_prefix("t=")?.split(',').next()?.to_owned();
            (Scheme::Stripe, signature, event["id"].to_string(), unix_s)
        } else if let Some(signature) = field("x-hub-signature-256") {
            (Scheme::GitHub, signature, field("x-github-delivery")?, String::from("0"))
        } else if let Some(signature) = field("x-shopify-hmac-sha256") {
            (Scheme::Shopify, signature, field("x-shopify-webhook-id")?, String::from("0"))
        } else {
            let signature = field("webhook-signature")?;
            (Scheme::Standard, signature, field("webhook-id")?, field("webhook-timestamp")?)
        };
        let expected = Webhook::new("", scheme, WEBHOOK_SECRET).fields(&id, body, unix_s.parse().ok()?);
        expected.iter().any(|(_, value)| *value == signature).then_some(Self { id, signature })
    }
}
