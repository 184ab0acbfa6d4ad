//! The store as the journal's engine sees it: the request of an intent rides along with the claim, in
//! the same batch, so that both are durable after one sync instead of two, one behind the other.
//!
//! ```text
//! call ──▶ seat(request) ──▶ engine: claim ──▶ batch [claim, claim, …] + requests of their intents ──▶ store
//!                                                                             │
//!          the work asks its seat what became of its request ◀────────────────┘
//! ```
//!
//! Each of the two swaps is judged by itself, and whoever finds another request in place lives with
//! that one, as if it had looked a moment later. If the claim loses and the request does not,
//! `contest.rs` finds out whose the name is. Nothing rides where that could be a nuisance:
//!
//! * with a claim for another request of the same name;
//! * on a store that other processes use too, where the two swaps of one batch may be seen apart;
//! * to an intent that has a receipt already, which is looked up first unless its name is random;
//! * beyond a bound, so that no store has to split the batch.
//!
//! What did not ride is put down under the claim, by a write of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward::receipt::Claim;
use onceward::{
    Attempt, Caps, Due, Fingerprint, Found, Fut, Id, Page, Record, Result, Scan, Seen, State, Store, Swap,
    Swapped, Version, codec,
};

/// Bytes of requests that ride in one batch.
const RIDERS_BYTES_MAX: usize = 2 << 20;

pub(crate) struct Riding {
    store: Arc<dyn Store>,
    riders: Mutex<HashMap<Id, Rider>>,
}

/// Who an intent's name was chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// By the caller, who may have used it before.
    Given,
    /// By chance: there is no receipt of that name yet.
    Random,
}

/// A request that waits for a claim to ride with.
struct Rider {
    /// Whose it is: a seat may be given up and taken again while its rider is under way.
    attempt: Attempt,
    /// What it asks for: it rides with no claim for anything else.
    fingerprint: Fingerprint,
    name: Name,
    request: Swap,
    way: Way,
}

enum Way {
    Waits,
    Left,
    Arrived(Arrived),
}

/// What became of a request that rode.
pub(crate) struct Arrived {
    pub(crate) swapped: Result<Swapped>,
    /// What became of the claim that it rode with.
    pub(crate) claim: Rode,
}

/// Whether a request arrived under the claim that it was put down for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rode {
    /// It did: nobody else can have had a word about it since.
    Won,
    /// The claim was lost, or nobody knows: the one that was won later found this request in place.
    Apart,
}

/// The place of one request; given up when it is dropped.
pub(crate) struct Seat {
    taken: Option<(Arc<Riding>, Id, Attempt)>,
}

impl Riding {
    pub(crate) fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { store, riders: Mutex::default() })
    }

    /// Lets a request ride with the next claim of the intent `id`. A second request for the same intent
    /// gets no seat: the first one is about to be sent.
    pub(crate) fn seat(self: &Arc<Self>, id: &Id, request: Swap, claim: &Claim, name: Name) -> Seat {
        if self.store.caps().shared || bytes(&request) > RIDERS_BYTES_MAX {
            return Seat { taken: None };
        }
        let mut riders = self.riders();
        if riders.contains_key(id) {
            return Seat { taken: None };
        }
        let Claim { attempt, fingerprint, .. } = *claim;
        riders.insert(id.clone(), Rider { attempt, fingerprint, name, request, way: Way::Waits });
        Seat { taken: Some((self.clone(), id.clone(), attempt)) }
    }

    /// The requests that ride with this batch, each with the id of its intent.
    fn board(&self, batch: &[Swap]) -> Vec<Boarded> {
        let mut riders = self.riders();
        let (mut boarded, mut total) = (Vec::new(), 0);
        if riders.is_empty() {
            return boarded;
        }
        for swap in batch.iter().filter(|swap| is_claim(swap)) {
            if let Some(rider) = riders.get_mut(&swap.id)
                && matches!(rider.way, Way::Waits)
                && rider.goes_with(swap)
                && total + bytes(&rider.request) <= RIDERS_BYTES_MAX
            {
                total += bytes(&rider.request);
                rider.way = Way::Left;
                let (id, request) = (swap.id.clone(), rider.request.clone());
                boarded.push(Boarded { id, request, attempt: rider.attempt, name: rider.name });
            }
        }
        boarded
    }

    async fn swap_with(&self, batch: &[Swap], mut boarded: Vec<Boarded>) -> Result<Vec<Swapped>> {
        self.leave_behind_the_answered(&mut boarded).await?;
        boarded.sort_by(|one, next| one.request.id.cmp(&next.request.id));
        let mut whole = Vec::with_capacity(batch.len() + boarded.len());
        whole.extend_from_slice(batch);
        whole.extend(boarded.iter().map(|boarded| boarded.request.clone()));
        debug_assert!(
            whole.is_sorted_by(|one, next| one.id < next.id),
            "the operation of a request is longer than that of its claim, so its id sorts behind"
        );
        let swapped = self.store.swap(&whole).await;
        let mut riders = self.riders();
        let mut arrive = |boarded: Boarded, swapped, claim| {
            if let Some(rider) = riders.get_mut(&boarded.id)
                && rider.attempt == boarded.attempt
            {
                rider.way = Way::Arrived(Arrived { swapped, claim });
            }
        };
        match swapped {
            Ok(mut swapped) => {
                let of_riders = swapped.split_off(batch.len().min(swapped.len()));
                for (boarded, of_rider) in boarded.into_iter().zip(of_riders) {
                    let claim = batch.binary_search_by(|claim| claim.id.cmp(&boarded.id)).ok();
                    let won = claim.is_some_and(|at| matches!(swapped.get(at), Some(Swapped::Won(_))));
                    arrive(boarded, Ok(of_rider), if won { Rode::Won } else { Rode::Apart });
                }
                Ok(swapped)
            }
            Err(error) => {
                for boarded in boarded {
                    arrive(boarded, Err(error.clone()), Rode::Apart);
                }
                Err(error)
            }
        }
    }

    /// Where there is a receipt already, the claim will lose, and the request would lie there for
    /// nothing.
    async fn leave_behind_the_answered(&self, boarded: &mut Vec<Boarded>) -> Result<()> {
        let given = |boarded: &&Boarded| boarded.name == Name::Given;
        let mut ids: Vec<Id> = boarded.iter().filter(given).map(|boarded| boarded.id.clone()).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let mut found = self.store.load(&ids).await?.into_iter();
        ids.retain(|_| found.next().flatten().is_some());
        boarded.retain(|boarded| !ids.contains(&boarded.id));
        Ok(())
    }

    fn riders(&self) -> MutexGuard<'_, HashMap<Id, Rider>> {
        self.riders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rider {
    /// Whether a claim is for what it asks for. A random name has no other.
    fn goes_with(&self, claim: &Swap) -> bool {
        self.name == Name::Random || fingerprint(claim) == Some(self.fingerprint)
    }
}

struct Boarded {
    id: Id,
    request: Swap,
    attempt: Attempt,
    name: Name,
}

impl Seat {
    /// What became of the request, told once; nothing if it did not ride.
    pub(crate) fn arrived(&mut self) -> Option<Arrived> {
        match self.give_up()? {
            Way::Arrived(arrived) => Some(arrived),
            Way::Waits | Way::Left => None,
        }
    }

    fn give_up(&mut self) -> Option<Way> {
        let (riding, id, attempt) = self.taken.take()?;
        let mut riders = riding.riders();
        let own = riders.get(&id).is_some_and(|rider| rider.attempt == attempt);
        if own { riders.remove(&id).map(|rider| rider.way) } else { None }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Store for Riding {
    fn swap<'a>(&'a self, batch: &'a [Swap]) -> Fut<'a, Vec<Swapped>> {
        let boarded = self.board(batch);
        if boarded.is_empty() {
            return self.store.swap(batch);
        }
        Box::pin(self.swap_with(batch, boarded))
    }

    fn load<'a>(&'a self, ids: &'a [Id]) -> Fut<'a, Vec<Option<Found>>> {
        self.store.load(ids)
    }

    fn scan<'a>(&'a self, query: &'a Scan) -> Fut<'a, Page> {
        self.store.scan(query)
    }

    fn caps(&self) -> Caps {
        self.store.caps()
    }
}

fn is_claim(swap: &Swap) -> bool {
    swap.seen == Seen::Absent && swap.new.as_ref().is_some_and(|new| new.state == State::Held)
}

/// What a claim is for.
fn fingerprint(claim: &Swap) -> Option<Fingerprint> {
    let Record { state, bytes, .. } = claim.new.clone()?;
    let found = Found { version: Version(0), state, due: Due::Never, bytes };
    codec::decode(&found).ok()?.status.claim().map(|claim| claim.fingerprint)
}

fn bytes(swap: &Swap) -> usize {
    swap.new.as_ref().map_or(0, |new| new.bytes.len())
}

#[cfg(test)]
#[path = "riding_test.rs"]
mod tests;
