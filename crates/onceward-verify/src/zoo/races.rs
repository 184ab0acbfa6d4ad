//! Services with race conditions between reading and writing a receipt.

use std::time::Duration;

use super::careful::LOOK_EVERY;
use super::charges::Charges;
use super::receipt_map::{Receipt, ReceiptMap};
use super::server::{Answering, Ask, Reply, Service};

/// A round trip to the database.
const ROUND_TRIP: Duration = Duration::from_millis(5);

/// Which mistake is made.
#[derive(Clone, Copy)]
pub(super) enum Race {
    /// Reads, and then writes: another request can come between the two.
    CheckThenWrite,
    /// The same, and the lock is left behind: later requests are told to come again, forever.
    StaysLocked,
    /// Writes nothing before the work is done.
    ClaimAfterEffect,
    /// A request that waited for the first runs when that is done, instead of replaying its answer.
    WaiterRunsAgain,
    /// A request that has waited for a while runs without a claim.
    WaiterLosesPatience,
    /// The unique index does its work, and its error goes to the client.
    DuplicateFails,
    /// What a duplicate was told, 409, is recorded as the answer.
    ConflictRecorded,
    /// The work is dropped with the client's connection, after the effect, and its claim with it.
    HangUpFrees,
}

pub(super) struct Racy {
    race: Race,
    receipt_map: ReceiptMap,
}

impl Racy {
    pub(super) fn new(race: Race) -> Self {
        Self { race, receipt_map: ReceiptMap::default() }
    }

    async fn answer(&self, ask: Ask, charges: &Charges) -> Reply {
        let id = match ReceiptMap::id(&ask) {
            Ok(id) => id,
            Err(refusal) => return refusal,
        };
        match self.race {
            Race::CheckThenWrite => {
                if let Some(reply) = self.found(&id).await {
                    return reply;
                }
                tokio::time::sleep(ROUND_TRIP).await;
                let _ = self.receipt_map.claim(&id);
            }
            Race::StaysLocked => {
                if self.receipt_map.look(&id).is_some() {
                    return Reply::in_progress();
                }
                tokio::time::sleep(ROUND_TRIP).await;
                let _ = self.receipt_map.claim(&id);
                return charges.charge(&ask).await;
            }
            Race::ClaimAfterEffect => {
                if let Some(Receipt::Done(reply)) = self.receipt_map.look(&id) {
                    return reply;
                }
            }
            Race::WaiterRunsAgain => match self.receipt_map.claim(&id) {
                Ok(()) => {}
                Err(Receipt::Done(reply)) => return reply,
                Err(Receipt::Held) => {
                    self.found(&id).await;
                }
            },
            Race::WaiterLosesPatience => {
                let waited = tokio::time::timeout(ask.work / 10, self.receipt_map.claim_or_wait(&ask)).await;
                if let Ok(Err(reply)) = waited {
                    return reply;
                }
            }
            Race::DuplicateFails => match self.receipt_map.claim(&id) {
                Ok(()) => {}
                Err(Receipt::Done(reply)) => return reply,
                Err(Receipt::Held) => {
                    return Reply::plain(500, "duplicate key value violates unique constraint");
                }
            },
            Race::ConflictRecorded => match self.receipt_map.claim(&id) {
                Ok(()) => {}
                Err(Receipt::Done(reply)) => return reply,
                Err(Receipt::Held) => return self.receipt_map.done(&id, Reply::in_progress()),
            },
            Race::HangUpFrees => return self.hang_up_frees(&ask, charges).await,
        }
        let reply = charges.charge(&ask).await;
        if reply.status >= 500 {
            self.receipt_map.free(&id);
            return reply;
        }
        match (self.race, self.receipt_map.look(&id)) {
            // The answer of the duplicate is there already, and is left there.
            (Race::ConflictRecorded, Some(Receipt::Done(_))) => reply,
            _ => self.receipt_map.done(&id, reply),
        }
    }

    /// The answer, once nobody is running; none if there never was a claim.
    async fn found(&self, id: &str) -> Option<Reply> {
        loop {
            match self.receipt_map.look(id)? {
                Receipt::Done(reply) => return Some(reply),
                Receipt::Held => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    async fn hang_up_frees(&self, ask: &Ask, charges: &Charges) -> Reply {
        let id = match self.receipt_map.claim_or_wait(ask).await {
            Ok(id) => id,
            Err(answer) => return answer,
        };
        let claim = FreedOnDrop { receipt_map: &self.receipt_map, id: Some(id) };
        if let Err(failure) = charges.work(ask).await {
            return failure;
        }
        charges.effect("");
        // What comes after the effect takes its time, too: a mail, a log, a slow template.
        tokio::time::sleep(ask.work).await;
        claim.done(charges.receipt(ask))
    }
}

/// A claim that is freed unless it was completed.
struct FreedOnDrop<'a> {
    receipt_map: &'a ReceiptMap,
    id: Option<String>,
}

impl FreedOnDrop<'_> {
    fn done(mut self, reply: Reply) -> Reply {
        self.receipt_map.done(&self.id.take().expect("completed once"), reply)
    }
}

impl Drop for FreedOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            self.receipt_map.free(id);
        }
    }
}

impl Service for Racy {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        Box::pin(self.answer(ask, charges))
    }

    fn is_dropped_on_hang_up(&self) -> bool {
        matches!(self.race, Race::HangUpFrees)
    }
}

/// No layer at all: every request runs.
pub(super) struct Plain;

impl Service for Plain {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        Box::pin(async move { charges.charge(&ask).await })
    }
}
