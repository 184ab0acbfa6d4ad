//! Renewal. One task for all leases of this process walks them at a sixth of the shortest lease and
//! renews each that is a third through, all in one batch. It ends when nothing is held.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::flight::{Flight, Renewal, Running};
use super::group::Trip;
use super::inner::{Inner, change};
use super::race::within;
use super::reply::{Receiver, Sender, reply};
use super::sync::Mutex;
use crate::codec;
use crate::policy::{LEASE_MIN, OnUnknown};
use crate::receipt::{Held, Receipt, Status};
use crate::store::{Seen, Swap, Swapped};
use crate::world::World;

pub(crate) struct Keeper {
    state: Mutex<State>,
}

struct State {
    awake: bool,
    /// The shortest lease that came since the last round.
    lease_min: Duration,
    /// When the pause under way ends, and what cuts it short.
    pause: Option<(Duration, Sender<()>)>,
}

impl State {
    fn asleep() -> Self {
        Self { awake: false, lease_min: Duration::MAX, pause: None }
    }
}

impl Keeper {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State::asleep()) }
    }

    /// Sees to it that a lease of this length is renewed in time.
    pub(crate) fn watch(&self, inner: &Arc<Inner>, lease: Duration) {
        let mut state = self.state.lock();
        if lease < state.lease_min {
            state.lease_min = lease;
            // The keeper may be in a pause that suited longer leases.
            let too_long = |(ends_at, _): &mut (Duration, _)| *ends_at > inner.now() + lease / PACE;
            drop(state.pause.take_if(too_long));
        }
        if !std::mem::replace(&mut state.awake, true) {
            drop(state);
            inner.world.spawn(Box::pin(keep(Arc::downgrade(inner), inner.world.clone())));
        }
    }

    /// How long the next pause is, and what cuts it short.
    fn pause(&self, held_min: Duration, now: Duration) -> (Duration, Receiver<()>) {
        let mut state = self.state.lock();
        let pause = held_min.min(state.lease_min) / PACE;
        let (nudge, nudged) = reply();
        state.pause = Some((now + pause, nudge));
        (pause, nudged)
    }
}

/// Rounds in one lease.
const PACE: u32 = 6;

/// Between rounds it does not keep the engine alive: whoever drops the last handle of an engine can
/// open its store again at once.
async fn keep(inner: Weak<Inner>, world: Arc<dyn World>) {
    let mut held_min = Duration::MAX;
    loop {
        let Some((pause, nudged)) = inner.upgrade().map(|inner| inner.keeper.pause(held_min, world.now()))
        else {
            return;
        };
        if within(&*world, pause, nudged).await.is_some() {
            continue;
        }
        let Some(inner) = inner.upgrade() else { return };
        // Before the leases are looked at: one that comes later counts for the next round.
        inner.keeper.state.lock().lease_min = Duration::MAX;
        let held = inner.flights.running();
        if held.is_empty() {
            let mut state = inner.keeper.state.lock();
            // Asked again under the lock: a lease that comes now is either seen here or wakes a new keeper.
            if inner.flights.running().is_empty() {
                *state = State::asleep();
                return;
            }
        }
        held_min = held.iter().map(|flight| flight.policy.lease_duration()).min().unwrap_or(LEASE_MIN);
        let now = inner.now();
        let round: Vec<_> = held.into_iter().filter_map(|flight| renewal(&inner, flight, now)).collect();
        if !round.is_empty() {
            // Beside the pace, so that a store that hangs does not keep other leases from being seen to.
            inner.world.spawn(Box::pin(renew(inner.clone(), round)));
        }
    }
}

/// What it takes to renew a lease, if it is time.
fn renewal(inner: &Inner, flight: Arc<Flight>, now: Duration) -> Option<(Arc<Flight>, Swap)> {
    let lease = flight.policy.lease_duration();
    let (running, due, over) = flight.with_running(|running| {
        let over = now >= running.lease_ends;
        let due = running.renewal == Renewal::Due && now >= running.renew_at;
        if due {
            running.renewal = Renewal::UnderWay;
        }
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

async fn renew(inner: Arc<Inner>, round: Vec<(Arc<Flight>, Swap)>) {
    let (flights, swaps): (Vec<_>, Vec<_>) = round.into_iter().unzip();
    let answers = inner.group.swap_all(swaps);
    for (flight, answer) in flights.into_iter().zip(answers) {
        let Trip { sent_at, result } = answer.await;
        let Some(running) = flight.running() else { continue };
        match result {
            Ok(Swapped::Won(version)) => {
                inner.counters.renewals.one();
                flight.with_running(|running| {
                    let renewed =
                        Running::new(running.claim, version, sent_at, flight.policy.lease_duration());
                    *running = Running { renewal: running.renewal, ..renewed };
                    running.renewed();
                });
            }
            Ok(Swapped::Lost(found)) => match found.as_ref().map(codec::decode).transpose() {
                Ok(Some(receipt)) if is_ours(&receipt.status, &running) => {
                    still_ours(&flight, &receipt, sent_at);
                }
                found => {
                    let found = found.ok().flatten();
                    lose(&inner, &flight, found.and_then(|receipt| receipt.aged(sent_at, inner.now())));
                }
            },
            Err(error) => {
                tracing::warn!(id = ?flight.id, %error, "a lease could not be renewed, trying on");
                flight.with_running(Running::renewed);
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
            running.renewed();
        }
        // We were silent for too long and somebody put our run in doubt. There is no lease left to
        // renew, but our word can still end the doubt, unless somebody settles it first.
        Status::Unknown(_) => {
            running.renew_at = sent_at + flight.policy.lease_duration() / 3;
            running.renewed();
        }
        // Our own ending, which is about to be reported.
        Status::Done(_) | Status::Gone(_) => {}
    });
}

fn lose(inner: &Inner, flight: &Arc<Flight>, found: Option<Receipt>) {
    inner.counters.leases_lost.one();
    tracing::warn!(id = ?flight.id, "the lease was lost, its work is cancelled");
    inner.flights.lose(flight, found);
}
