//! Services with leases that end while the owner still works.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::careful::LOOK_EVERY;
use super::charges::Charges;
use super::receipt_map::ReceiptMap;
use super::server::{Answering, Ask, Reply, Service};

/// How long a claim lasts.
const LEASE: Duration = Duration::from_millis(250);

/// Which mistake is made, if any.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    /// None: a claim is renewed while its owner works, and effect and answer are written together, if the
    /// claim is still held.
    Sound,
    /// The claim ends, but the work continues: every run that finishes has its effect.
    ExpiresWhileRunning,
    /// The effect is guarded, but a late owner writes its answer over its successor's.
    CompletesWithoutFence,
    /// None: nobody runs when a claim has ended; who asks is told that an operator has to look.
    HoldsWhenExpired,
}

struct Claim {
    fence: u64,
    body: Bytes,
    until: Instant,
    had_effect: bool,
    reply: Option<Reply>,
}

pub(super) struct Leased {
    flaw: Flaw,
    claims: Mutex<HashMap<String, Claim>>,
    fences: AtomicU64,
}

impl Leased {
    pub(super) fn new(flaw: Flaw) -> Self {
        Self { flaw, claims: Mutex::default(), fences: AtomicU64::new(0) }
    }

    async fn answer(&self, ask: Ask, charges: &Charges) -> Reply {
        let id = match ReceiptMap::id(&ask) {
            Ok(id) => id,
            Err(refusal) => return refusal,
        };
        // A request that lost its claim meanwhile tries again and finds the current owner.
        loop {
            let fence = match self.claim_or_wait(&id, &ask).await {
                Ok(fence) => fence,
                Err(reply) => return reply,
            };
            let worked = tokio::select! {
                worked = charges.work(&ask) => worked,
                never = self.renew(&id, fence) => never,
            };
            if let Err(failure) = worked {
                self.release(&id, fence);
                return failure;
            }
            if let Some(reply) = self.complete(&id, fence, &ask, charges) {
                return reply;
            }
        }
    }

    async fn claim_or_wait(&self, id: &str, ask: &Ask) -> Result<u64, Reply> {
        loop {
            {
                let mut claims = self.claims.lock().expect("nobody panics with it in hand");
                let fence = self.fences.fetch_add(1, Ordering::SeqCst);
                let (until, body) = (Instant::now() + LEASE, ask.body.clone());
                let fresh = Claim { fence, body, until, had_effect: false, reply: None };
                let claim = claims.entry(id.to_owned()).or_insert(fresh);
                if claim.body != ask.body {
                    return Err(Reply::key_reused());
                }
                if let Some(reply) = &claim.reply {
                    return Err(reply.clone());
                }
                if claim.until < Instant::now() && self.flaw == Flaw::HoldsWhenExpired {
                    return Err(Reply::outcome_unknown());
                }
                if claim.fence == fence || claim.until < Instant::now() {
                    (claim.fence, claim.until) = (fence, until);
                    return Ok(fence);
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Renews the claim for as long as it is polled.
    async fn renew(&self, id: &str, fence: u64) -> Result<(), Reply> {
        loop {
            tokio::time::sleep(LEASE / 5).await;
            let mut claims = self.claims.lock().expect("nobody panics with it in hand");
            if let Some(claim) = claims.get_mut(id)
                && claim.fence == fence
                && self.flaw == Flaw::Sound
            {
                claim.until = Instant::now() + LEASE;
            }
        }
    }

    /// The effect and the answer, in one step as in a transaction. None if the claim is somebody else's.
    fn complete(&self, id: &str, fence: u64, ask: &Ask, charges: &Charges) -> Option<Reply> {
        let mut claims = self.claims.lock().expect("nobody panics with it in hand");
        let claim = claims.get_mut(id)?;
        match self.flaw {
            Flaw::Sound if claim.fence != fence => return None,
            // The database refuses the second effect of an id.
            Flaw::CompletesWithoutFence if claim.had_effect => {}
            _ => charges.effect(""),
        }
        claim.had_effect = true;
        let reply = charges.receipt(ask);
        claim.reply = Some(reply.clone());
        Some(reply)
    }

    fn release(&self, id: &str, fence: u64) {
        let mut claims = self.claims.lock().expect("nobody panics with it in hand");
        if claims.get(id).is_some_and(|claim| claim.fence == fence && claim.reply.is_none()) {
            claims.remove(id);
        }
    }
}

impl Service for Leased {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        Box::pin(self.answer(ask, charges))
    }
}
