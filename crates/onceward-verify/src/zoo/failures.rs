//! Services that handle failed attempts wrongly.

use std::sync::Arc;
use std::time::Duration;

use super::careful::{AfterFailure, Habits};
use super::charges::Charges;
use super::receipt_map::{Receipt, ReceiptMap};
use super::server::{Answering, Ask, Reply, Service};

/// Whatever was answered is replayed, a failure too.
pub(super) struct Cached;

impl Habits for Cached {
    fn after_failure(&self) -> AfterFailure {
        AfterFailure::Keep
    }
}

/// Every 5xx frees the key, also one that comes after the effect.
pub(super) struct FreesAfterEffect;

impl Habits for FreesAfterEffect {
    fn frees_after_effect(&self) -> bool {
        true
    }
}

/// A failure after the effect leaves the claim behind: later requests are told to come again, forever.
pub(super) struct StuckAfterEffect;

impl Habits for StuckAfterEffect {
    fn waits(&self) -> bool {
        false
    }

    fn keeps_claim_after_effect(&self) -> bool {
        true
    }
}

/// Nobody frees the key of an attempt that failed.
pub(super) struct Burned;

impl Habits for Burned {
    fn waits(&self) -> bool {
        false
    }

    fn after_failure(&self) -> AfterFailure {
        AfterFailure::Forget
    }
}

/// The effect comes first, and when what follows fails the key is freed as if nothing had happened.
#[derive(Default)]
pub(super) struct AfterTheEffect(ReceiptMap);

impl AfterTheEffect {
    async fn answer(&self, ask: Ask, charges: &Charges) -> Reply {
        let id = match self.0.claim_or_wait(&ask).await {
            Ok(id) => id,
            Err(answer) => return answer,
        };
        charges.effect("");
        if let Err(failure) = charges.work(&ask).await {
            self.0.free(&id);
            return failure;
        }
        self.0.done(&id, charges.receipt(&ask))
    }
}

impl Service for AfterTheEffect {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        Box::pin(self.answer(ask, charges))
    }
}

/// A failed attempt frees its key, and its delayed cleanup frees the key again, although another attempt may hold it
/// by then.
#[derive(Default)]
pub(super) struct FreesTheSuccessor(Arc<ReceiptMap>);

/// How long after the answer the cleaning up comes.
const CLEANED_UP_AFTER: Duration = Duration::from_millis(8);

impl FreesTheSuccessor {
    async fn answer(&self, ask: Ask, charges: &Charges) -> Reply {
        let id = match self.0.claim_or_wait(&ask).await {
            Ok(id) => id,
            Err(answer) => return answer,
        };
        let reply = charges.charge(&ask).await;
        if reply.status < 500 || ask.fails_after.is_some() {
            return self.0.done(&id, reply);
        }
        self.0.free(&id);
        let receipts = self.0.clone();
        tokio::spawn(async move {
            tokio::time::sleep(CLEANED_UP_AFTER).await;
            receipts.free(&id);
        });
        reply
    }
}

impl Service for FreesTheSuccessor {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        Box::pin(self.answer(ask, charges))
    }
}

/// A failure after the effect leaves the claim to its lease; when that is over, the key is free, as if nothing had happened.
#[derive(Default)]
pub(super) struct FreesAfterTheLease(Arc<ReceiptMap>);

/// How long a claim lasts that nobody ends.
const LEASE: Duration = Duration::from_millis(250);

impl FreesAfterTheLease {
    async fn answer(&self, ask: Ask, charges: &Charges) -> Reply {
        let id = match ReceiptMap::id(&ask) {
            Ok(id) => id,
            Err(refusal) => return refusal,
        };
        match self.0.claim(&id) {
            Ok(()) => {}
            Err(Receipt::Done(reply)) => return reply,
            Err(Receipt::Held) => return Reply::in_progress(),
        }
        let reply = charges.charge(&ask).await;
        if ask.fails_after.is_some() {
            let receipts = self.0.clone();
            tokio::spawn(async move {
                tokio::time::sleep(LEASE).await;
                receipts.free(&id);
            });
            return reply;
        }
        if reply.status >= 500 {
            self.0.free(&id);
            return reply;
        }
        self.0.done(&id, reply)
    }
}

impl Service for FreesAfterTheLease {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        Box::pin(self.answer(ask, charges))
    }
}
