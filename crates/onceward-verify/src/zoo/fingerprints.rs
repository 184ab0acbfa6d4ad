//! Services that compare requests wrongly.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::Value;

use super::careful::Habits;
use super::charges::Charges;
use super::receipt_map::{Receipt, ReceiptMap};
use super::server::{Answering, Ask, Reply, Service};

/// Nobody compares bodies.
pub(super) struct Ignored;

impl Habits for Ignored {
    fn fingerprint(&self, _: &Ask) -> String {
        String::new()
    }
}

/// Bodies are compared with what is done. One that comes while the first is running waits for its answer, and
/// takes it as its own.
pub(super) struct OnlyWhenDone;

impl Habits for OnlyWhenDone {
    fn compares_while_running(&self) -> bool {
        false
    }
}

/// The body is a part of what is looked up, so another body is another request.
pub(super) struct PartOfTheKey;

impl Habits for PartOfTheKey {
    fn id(&self, ask: &Ask, key: &str) -> String {
        format!("{} {} {key} {:?}", ask.tenant, ask.path, ask.body)
    }
}

/// Only the length is compared: somebody took `Content-Length` for a fingerprint.
pub(super) struct LengthOnly;

impl Habits for LengthOnly {
    fn fingerprint(&self, ask: &Ask) -> String {
        ask.body.len().to_string()
    }
}

/// Another body under a key that is done runs before anybody compares it. Its receipt then clashes with the first one, and the
/// claim that it made is left behind: the key is stuck, after a second effect.
#[derive(Default)]
pub(super) struct ComparedTooLate {
    receipt_map: ReceiptMap,
    /// What was asked first, by id.
    asked: Mutex<HashMap<String, Value>>,
}

impl ComparedTooLate {
    /// Whether this is what was asked under this id; the first to ask decides.
    fn is_asked(&self, id: &str, ask: &Ask) -> bool {
        let body: Value = serde_json::from_slice(&ask.body).unwrap_or_default();
        let mut asked = self.asked.lock().expect("nobody panics with it in hand");
        *asked.entry(id.to_owned()).or_insert_with(|| body.clone()) == body
    }

    async fn answer(&self, ask: Ask, charges: &Charges) -> Reply {
        let id = match ReceiptMap::id(&ask) {
            Ok(id) => id,
            Err(refusal) => return refusal,
        };
        if !self.is_asked(&id, &ask) {
            if matches!(self.receipt_map.receipt_of(&id), Some(Receipt::Done(_))) {
                self.receipt_map.free(&id);
                let _ = self.receipt_map.claim(&id);
                charges.charge(&ask).await;
                return Reply::plain(500, "duplicate key value violates unique constraint");
            }
            return Reply::key_reused();
        }
        match self.receipt_map.claim(&id) {
            Ok(()) => {}
            Err(Receipt::Done(reply)) => return reply,
            Err(Receipt::Held) => return Reply::in_progress(),
        }
        let reply = charges.charge(&ask).await;
        if reply.status >= 500 && ask.fails_after.is_none() {
            self.receipt_map.free(&id);
            return reply;
        }
        self.receipt_map.done(&id, reply)
    }
}

impl Service for ComparedTooLate {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        Box::pin(self.answer(ask, charges))
    }
}
