//! An endpoint for signed events.

use std::collections::HashSet;
use std::sync::Mutex;

use serde_json::Value;

use super::charges::{Charges, WORK};
use super::server::{Reply, WEBHOOK_SECRET};
use crate::endpoint::{Scheme, Webhook};

/// By what a service knows an event again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Events {
    /// By its id, from the start of the work on.
    #[default]
    Right,
    /// By its signature, which is another in each delivery.
    BySignature,
    /// By its id, once the work is done.
    WhenDone,
}

/// Events that are known.
#[derive(Debug, Default)]
pub(super) struct Inbox(Mutex<HashSet<String>>);

impl Inbox {
    pub(super) async fn take(&self, how: Events, signature: &str, body: &[u8], charges: &Charges) -> Reply {
        let unix_s = signature.strip_prefix("t=").and_then(|rest| rest.split(',').next()?.parse().ok());
        let expected = Webhook::new("", Scheme::Stripe, WEBHOOK_SECRET).fields("", body, unix_s.unwrap_or(0));
        if expected[0].1 != signature {
            return Reply::plain(400, "a bad signature");
        }
        let event: Value = serde_json::from_slice(body).unwrap_or_default();
        let id = match how {
            Events::BySignature => signature.to_owned(),
            Events::Right | Events::WhenDone => event["id"].to_string(),
        };
        let is_new = {
            let mut known = self.0.lock().expect("nobody panics with it in hand");
            if how == Events::WhenDone { !known.contains(&id) } else { known.insert(id.clone()) }
        };
        if is_new {
            tokio::time::sleep(WORK).await;
            charges.effect("");
            self.0.lock().expect("nobody panics with it in hand").insert(id);
        }
        Reply::plain(200, "taken")
    }
}
