//! Sends a dead event again under a new key, for an operator who knows that the service will not act on the old one.

use onceward::receipt::Status;
use onceward::{Ask, Changed, Enqueued, Error, ErrorKind, Id, Onceward, Policy, Receipt, Result};

use super::stored_event::StoredEvent;
use crate::key_source::as_key;

/// Enqueues a dead event under a new key, made of the sender's id and the number of the redrive, and discards the dead
/// one. **It may take effect twice**: the service knows nothing of the new key. Returns the new id; an error of kind
/// [`Conflict`](ErrorKind::Conflict) if the intent is not a dead event.
///
/// The new one is stored first. If this is interrupted, calling it again continues: the same redrive is not stored
/// twice.
pub async fn redrive_dead(onceward: &Onceward, id: &Id) -> Result<Id> {
    let refuse = |why: &str| Error::new(ErrorKind::Conflict, why.to_owned());
    let Some(receipt) = onceward.receipt(id).await? else { return Err(refuse("there is no such event")) };
    let (Status::Dead(dead), Some(event)) = (&receipt.status, event_of(&receipt)) else {
        return Err(refuse("only a dead event that was stored first can be sent under a new key"));
    };
    let number = event.redrive + 1;
    let new = Id::new(id.scope(), id.operation(), &as_key(format!("{} redrive {number}", event.key)))?;
    let event = StoredEvent { redrive: number, ..event };
    let policy = Policy::queue();
    let ask = Ask::new(new.clone(), dead.claim.fingerprint, policy.clone()).with_input(event.encode());
    if let Enqueued::Refused(refusal) = onceward.enqueue(ask).await? {
        return Err(refuse(&refusal.to_string()));
    }
    match onceward.discard_dead(id, &policy).await? {
        Changed::Applied | Changed::NotOwner(_) => Ok(new),
    }
}

fn event_of(receipt: &Receipt) -> Option<StoredEvent> {
    StoredEvent::decode(&receipt.status.job()?.input)
}
