//! Renewal. One task for all leases of this process walks them at a sixth of the shortest lease and
//! renews each that is a third through, all in one batch. It ends when nothing is held.

use std::sync::Arc;
use std::time::Duration;

use super::flight::{Flight, Running};
use super::inner::{Inner, change};
use super::sync::Mutex;
use crate::codec;
use crate::error::Result;
use crate::policy::OnUnknown;
use crate::receipt::{Held, Receipt, Status};
use crate::store::{Seen, Swap, Swapped};

pub(crate) struct Keeper {
    state: Mutex<State>,
}

struct State {
    awake: bool,
    /// The shortest lease seen since it woke; it sets the pace.
    lease_min: Duration,
}

impl Keeper {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State { awake: false, lease_min: Duration::MAX }) }
    }

    /// Sees to it that a lease of this length is renewed in time.
    pub(crate) fn watch(&self, inner: &Arc<Inner>, lease: Duration) {
        let mut state = self.state.lock();
        state.lease_min = state.lease_min.min(lease);
        if !std::mem::replace(&mut state.awake, true) {
            drop(state);
            inner.world.spawn(Box::pin(keep(inner.clone())));
        }
    }
}

async fn keep(inner: Arc<Inner>) {
    loop {
        let pace = inner.keeper.state.lock().lease_min / 6;
        inner.world.sleep(pace).await;
        let held = inner.flights.running();
        if held.is_empty() {
            let mut state = inner.keeper.state.lock();
            // Asked under the lock: a claim that comes now either is seen here or wakes us again.
            if inner.flights.is_empty() {
                *state = State { awake: false, lease_min: Duration::MAX };
                return;
            }
            continue;
        }
        let now = inner.now();
        let round: Vec<_> = held.into_iter().filter_map(|flight| renewal(&inner, flight, now)).collect();
        if !round.is_empty() {
            // Beside the pace, so that a store that hangs does not keep other leases from being seen to.
            inner.world.spawn(Box::pin(renew(inner.clone(), round, now)));
        }
    }
}

/// What it takes to renew a lease, if it is time.
fn renewal(inner: &Inner, flight: Arc<Flight>, now: Duration) -> Option<(Arc<Flight>, Swap)> {
    let lease = flight.policy.lease_duration();
    let (running, due, over) = flight.with_running(|running| {
        let over = now >= running.lease_ends(&flight.policy);
        let due = !running.renewing && now >= running.renewed_at + lease / 3;
        running.renewing |= due;
        (*running, due, over)
    })?;
    if over && flight.policy.unknown_rule() == OnUnknown::Retry {
        // Somebody else may be running it by now. Work under `Hold` goes on instead: nobody else
        // will run it, and its owner's word is worth more than a doubt.
        lose(inner, &flight, None);
        return None;
    }
    due.then(|| {
        let held = Held { claim: running.claim, on_unknown: flight.policy.unknown_rule() };
        let new = Some((Status::Held(held), Some(lease)));
        let swap = change(&flight.id, Seen::Version(running.version), new);
        (flight, swap)
    })
}

async fn renew(inner: Arc<Inner>, round: Vec<(Arc<Flight>, Swap)>, sent_at: Duration) {
    let (flights, swaps): (Vec<_>, Vec<_>) = round.into_iter().unzip();
    let answers = inner.group.swap_all(swaps);
    for (flight, answer) in flights.into_iter().zip(answers) {
        let answer = answer.await;
        let Some(running) = flight.running() else { continue };
        match answer {
            Ok(Swapped::Won(version)) => {
                inner.counters.renewals.one();
                flight.with_running(|running| {
                    *running = Running { version, renewed_at: sent_at, renewing: false, ..*running };
                });
            }
            Ok(Swapped::Lost(found)) => match found.as_ref().map(codec::decode).transpose() {
                Ok(Some(receipt)) if is_ours(&receipt.status, &running) => {
                    still_ours(&flight, &receipt, sent_at);
                }
                found => lose(&inner, &flight, Some(found)),
            },
            Err(error) => {
                tracing::warn!(id = ?flight.id, %error, "a lease could not be renewed, trying on");
                flight.with_running(|running| running.renewing = false);
            }
        }
    }
}

fn is_ours(status: &Status, running: &Running) -> bool {
    let claim = status.claim();
    claim.is_some_and(|claim| claim.attempt == running.claim.attempt && claim.fence == running.claim.fence)
}

/// A renewal found its own run under another version.
fn still_ours(flight: &Flight, receipt: &Receipt, sent_at: Duration) {
    flight.with_running(|running| match receipt.status {
        // An earlier renewal whose answer was lost: go on from its version, and renew again soon.
        Status::Held(_) => {
            running.version = running.version.max(receipt.version);
            running.renewing = false;
        }
        // We were silent for too long and somebody put our run in doubt. There is no lease left to
        // renew, but our word can still end the doubt, unless somebody settles it first.
        Status::Unknown(_) => {
            running.renewed_at = sent_at;
            running.renewing = false;
        }
        // Our own ending, which is about to be reported.
        Status::Done(_) | Status::Gone(_) => {}
    });
}

fn lose(inner: &Inner, flight: &Arc<Flight>, found: Option<Result<Option<Receipt>>>) {
    inner.counters.leases_lost.one();
    tracing::warn!(id = ?flight.id, "the lease was lost, its work is cancelled");
    let receipt = found.and_then(Result::ok).flatten();
    inner.flights.lose(flight, receipt);
}
