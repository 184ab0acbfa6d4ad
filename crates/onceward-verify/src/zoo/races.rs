//! Services with race conditions between reading and writing a receipt.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::careful::LOOK_EVERY;
use super::charges::Charges;
use super::events::Events;
use super::receipt_map::{Receipt, ReceiptMap};
use super::server::{Answering, Ask, Reply, Service};

/// A round trip to the database.
const ROUND_TRIP: Duration = Duration::from_millis(5);

/// How long one who waits is patient.
const GIVES_UP_AFTER: Duration = Duration::from_millis(400);

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
    /// The same after a time that most requests do not take.
    WaiterGivesUpLate,
    /// The unique index does its work, and its error goes to the client.
    DuplicateFails,
    /// What a duplicate was told, 409, is recorded as the answer.
    ConflictRecorded,
    /// The work is dropped with the client's connection, after the effect, and its claim with it.
    HangUpFrees,
    /// The same, and the claim is left behind: who asks again waits forever.
    HangUpStrands,
    /// The lock is gone before the receipt is written, and replays lack a field.
    UnlocksBeforeWriting,
}

/// What it takes to write a receipt.
const WRITING: Duration = Duration::from_millis(8);

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
                if self.receipt_map.receipt_of(&id).is_some() {
                    return Reply::in_progress();
                }
                tokio::time::sleep(ROUND_TRIP).await;
                let _ = self.receipt_map.claim(&id);
                return charges.charge(&ask).await;
            }
            Race::ClaimAfterEffect => {
                if let Some(Receipt::Done(reply)) = self.receipt_map.receipt_of(&id) {
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
            Race::WaiterGivesUpLate => {
                let waited = tokio::time::timeout(GIVES_UP_AFTER, self.receipt_map.claim_or_wait(&ask)).await;
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
            Race::HangUpStrands => {
                let id = match self.receipt_map.claim_or_wait(&ask).await {
                    Ok(id) => id,
                    Err(answer) => return answer,
                };
                // What is dropped here is the work, not the claim.
                let reply = charges.charge(&ask).await;
                if reply.status >= 500 && ask.fails_after.is_none() {
                    self.receipt_map.free(&id);
                    return reply;
                }
                return self.receipt_map.done(&id, reply);
            }
            Race::UnlocksBeforeWriting => match self.receipt_map.claim(&id) {
                Ok(()) => {
                    let reply = charges.charge(&ask).await;
                    self.receipt_map.free(&id);
                    if reply.status < 500 || ask.fails_after.is_some() {
                        tokio::time::sleep(WRITING).await;
                        self.receipt_map.done(&id, reply.clone());
                    }
                    return reply;
                }
                Err(Receipt::Done(mut reply)) => {
                    reply.fields.retain(|(name, _)| *name != "location");
                    return reply;
                }
                Err(Receipt::Held) => return Reply::in_progress(),
            },
        }
        let reply = charges.charge(&ask).await;
        if reply.status >= 500 && ask.fails_after.is_none() {
            self.receipt_map.free(&id);
            return reply;
        }
        match (self.race, self.receipt_map.receipt_of(&id)) {
            // The answer of the duplicate is there already, and is left there.
            (Race::ConflictRecorded, Some(Receipt::Done(_))) => reply,
            _ => self.receipt_map.done(&id, reply),
        }
    }

    /// The answer, once nobody is running; none if there never was a claim.
    async fn found(&self, id: &str) -> Option<Reply> {
        loop {
            match self.receipt_map.receipt_of(id)? {
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
        matches!(self.race, Race::HangUpFrees | Race::HangUpStrands)
    }
}

/// No layer at all: every request runs. Events may be known all the same.
pub(super) struct Plain(pub(super) Events);

impl Service for Plain {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        Box::pin(async move { charges.charge(&ask).await })
    }

    fn events(&self) -> Events {
        self.0
    }
}

/// Instances share their receipts. One who waits where the first runs waits for its end; at another instance, only for a
/// while.
pub(super) struct PatientOnlyAtHome {
    receipt_map: Arc<ReceiptMap>,
    /// Ids that were claimed here.
    own: Mutex<HashSet<String>>,
}

impl PatientOnlyAtHome {
    /// Two instances.
    pub(super) fn pair() -> [Self; 2] {
        let receipt_map = Arc::<ReceiptMap>::default();
        [(); 2].map(|()| Self { receipt_map: receipt_map.clone(), own: Mutex::default() })
    }

    async fn answer(&self, ask: Ask, charges: &Charges) -> Reply {
        let id = match ReceiptMap::id(&ask) {
            Ok(id) => id,
            Err(refusal) => return refusal,
        };
        // One step: nobody may see a claim of this instance and take it for another's.
        let (claimed, is_own) = {
            let mut own = self.own.lock().expect("nobody panics with it in hand");
            let claimed = self.receipt_map.claim(&id);
            let is_own = if claimed.is_ok() { !own.insert(id.clone()) } else { own.contains(&id) };
            (claimed, is_own)
        };
        match claimed {
            Ok(()) => {}
            Err(Receipt::Done(reply)) => return reply,
            Err(Receipt::Held) if is_own => {
                if let Err(reply) = self.receipt_map.claim_or_wait(&ask).await {
                    return reply;
                }
            }
            Err(Receipt::Held) => {
                let waited = tokio::time::timeout(GIVES_UP_AFTER, self.receipt_map.claim_or_wait(&ask)).await;
                match waited {
                    Ok(Err(reply)) => return reply,
                    // The first one failed, and this one has its claim.
                    Ok(Ok(_)) => {
                        self.own.lock().expect("nobody panics with it in hand").insert(id.clone());
                    }
                    Err(_) => {}
                }
            }
        }
        let reply = charges.charge(&ask).await;
        if reply.status >= 500 && ask.fails_after.is_none() {
            self.receipt_map.free(&id);
            return reply;
        }
        self.receipt_map.done(&id, reply)
    }
}

impl Service for PatientOnlyAtHome {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        Box::pin(self.answer(ask, charges))
    }
}
