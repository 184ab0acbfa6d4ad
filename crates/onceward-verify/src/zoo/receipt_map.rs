//! Receipts in memory, shared by several services of the zoo.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Mutex;

use super::careful::{LOOK_EVERY, strict_key};
use super::server::{Ask, Reply};

/// What is known of an id.
#[derive(Clone, Debug)]
pub(super) enum Receipt {
    Held,
    Done(Reply),
}

/// Receipts by id.
#[derive(Debug, Default)]
pub(super) struct ReceiptMap(Mutex<HashMap<String, Receipt>>);

impl ReceiptMap {
    /// The id of a request.
    pub(super) fn id(ask: &Ask) -> Result<String, Reply> {
        match strict_key(&ask.key_lines) {
            Some(key) => Ok(format!("{} {} {key}", ask.tenant, ask.path)),
            None => Err(Reply::plain(400, "a key is required, and only one")),
        }
    }

    pub(super) fn receipt_of(&self, id: &str) -> Option<Receipt> {
        self.0.lock().expect("nobody panics with it in hand").get(id).cloned()
    }

    /// Claims an id in one step, or says what is there.
    pub(super) fn claim(&self, id: &str) -> Result<(), Receipt> {
        match self.0.lock().expect("nobody panics with it in hand").entry(id.to_owned()) {
            Entry::Occupied(there) => Err(there.get().clone()),
            Entry::Vacant(place) => {
                place.insert(Receipt::Held);
                Ok(())
            }
        }
    }

    /// Claims the id of this request, or waits for its answer.
    pub(super) async fn claim_or_wait(&self, ask: &Ask) -> Result<String, Reply> {
        let id = Self::id(ask)?;
        loop {
            match self.claim(&id) {
                Ok(()) => return Ok(id),
                Err(Receipt::Done(reply)) => return Err(reply),
                Err(Receipt::Held) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    pub(super) fn free(&self, id: &str) {
        self.0.lock().expect("nobody panics with it in hand").remove(id);
    }

    /// Puts the answer there and gives it back.
    pub(super) fn done(&self, id: &str, reply: Reply) -> Reply {
        self.0
            .lock()
            .expect("nobody panics with it in hand")
            .insert(id.to_owned(), Receipt::Done(reply.clone()));
        reply
    }
}
