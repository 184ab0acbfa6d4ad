//! Renews the leases of this process. One task walks all of them every sixth of the shortest lease and
//! renews each that is a third through, all in one batch. It ends when no lease is held.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;

use super::acquire::check_input_bytes;
use super::group_commit::{SwapReply, Urgency};
use super::in_flight::{Flight, Renewal, RunningLease};
use super::inner::Inner;
use super::oneshot::{Receiver, Sender, oneshot};
use super::sealed::{open_any, seal};
use super::sync::Mutex;
use super::timeout::within;
use crate::error::{Error, ErrorKind, Result};
use crate::policy::{LEASE_MIN, OnUnknown};
use crate::receipt::{Job, Receipt, Status};
use crate::runtime::Runtime;
use crate::store::{Seen, Swap, Swapped};

/// Starts and wakes the task that renews leases.
pub(crate) struct LeaseRenewer {
    state: Mutex<RenewerState>,
}

struct RenewerState {
    awake: bool,
    /// The shortest lease that came since the last round.
    lease_min: Duration,
    /// When the current pause ends, and the sender that cuts it short.
    pause: Option<(Duration, Sender<()>)>,
}

impl RenewerState {
    fn asleep() -> Self {
        Self { awake: false, lease_min: Duration::MAX, pause: None }
    }
}

impl LeaseRenewer {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(RenewerState::asleep()) }
    }

    /// Ensures that a lease of this length is renewed in time.
    pub(crate) fn watch(&self, inner: &Arc<Inner>, lease: Duration) {
        let mut state = self.state.lock();
        if lease < state.lease_min {
            state.lease_min = lease;
            // The task may be in a pause that suited longer leases.
            let too_long =
                |(ends_at, _): &mut (Duration, _)| *ends_at > inner.now() + lease / ROUNDS_PER_LEASE;
            drop(state.pause.take_if(too_long));
        }
        if !std::mem::replace(&mut state.awake, true) {
            drop(state);
            inner.runtime.spawn(Box::pin(renew_leases(Arc::downgrade(inner), inner.runtime.clone())));
        }
    }

    /// How long the next pause is, and what cuts it short.
    fn pause(&self, held_min: Duration, now: Duration) -> (Duration, Receiver<()>) {
        let mut state = self.state.lock();
        let pause = held_min.min(state.lease_min) / ROUNDS_PER_LEASE;
        let (nudge, nudged) = oneshot();
        state.pause = Some((now + pause, nudge));
        (pause, nudged)
    }
}

/// Rounds in one lease.
const ROUNDS_PER_LEASE: u32 = 6;

/// Between rounds it does not keep the engine alive: after the last handle of an engine is dropped, its store can be
/// opened again at once.
async fn renew_leases(inner: Weak<Inner>, runtime: Arc<dyn Runtime>) {
    let mut held_min = Duration::MAX;
    loop {
        let Some((pause, nudged)) =
            inner.upgrade().map(|inner| inner.lease_renewer.pause(held_min, runtime.now()))
        else {
            return;
        };
        if within(&*runtime, pause, nudged).await.is_some() {
            continue;
        }
        let Some(inner) = inner.upgrade() else { return };
        // Before the leases are looked at: one that comes later counts for the next round.
        inner.lease_renewer.state.lock().lease_min = Duration::MAX;
        let held = inner.flights.running();
        if held.is_empty() {
            let mut state = inner.lease_renewer.state.lock();
            // Asked again under the lock: a lease that comes now is either seen here or starts a new task.
            if inner.flights.running().is_empty() {
                *state = RenewerState::asleep();
                return;
            }
        }
        held_min = held.iter().map(|flight| flight.policy.lease()).min().unwrap_or(LEASE_MIN);
        let now = inner.now();
        let round: Vec<_> = held.into_iter().filter_map(|flight| renewal_due(&inner, flight, now)).collect();
        if !round.is_empty() {
            // Beside the pace, so that a store that hangs does not delay other leases.
            inner.runtime.spawn(Box::pin(renew(inner.clone(), round)));
        }
    }
}

/// What it takes to renew a lease, if it is time.
fn renewal_due(inner: &Inner, flight: Arc<Flight>, now: Duration) -> Option<(Arc<Flight>, Swap)> {
    let (running, due, over) = flight.with_running(|running| {
        let over = now >= running.lease_ends;
        let due = running.renewal == Renewal::Due && now >= running.renew_at;
        if due {
            running.renewal = Renewal::InProgress;
        }
        (running.clone(), due, over)
    })?;
    if over && flight.policy.on_unknown() == OnUnknown::Retry {
        // Another owner may be running it by now. Work under `Hold` goes on instead: nobody else
        // will run it, and an outcome from its owner is better than an unknown one.
        lose(inner, &flight, None);
        return None;
    }
    due.then(|| {
        let renewed = inner.hold(running.held, &flight.policy);
        let swap = seal(&flight.id, Seen::Version(running.version), Some(&renewed));
        (flight, swap)
    })
}

async fn renew(inner: Arc<Inner>, round: Vec<(Arc<Flight>, Swap)>) {
    let (flights, swaps): (Vec<_>, Vec<_>) = round.into_iter().unzip();
    let answers = inner.group_commit.swap_all(swaps);
    for (flight, answer) in flights.into_iter().zip(answers) {
        let SwapReply { sent_at, result } = answer.await;
        let Some(running) = flight.running() else { continue };
        match result {
            Ok(Swapped::Won(version)) => {
                inner.counters.renewals.one();
                flight.with_running(|running| {
                    let lease = flight.policy.lease();
                    running.version = version;
                    (running.lease_ends, running.renew_at) = (sent_at + lease, sent_at + lease / 3);
                    running.renewed();
                });
            }
            Ok(Swapped::Lost(found)) => match open_any(found.as_ref()) {
                Ok(Some(receipt)) if receipt.status.is_of(&running.held.claim) => {
                    still_ours(&flight, &receipt, sent_at);
                }
                found => {
                    let found = found.ok().flatten();
                    lose(&inner, &flight, found.and_then(|receipt| receipt.aged(sent_at, inner.now())));
                }
            },
            Ok(Swapped::Failed(error)) | Err(error) => {
                tracing::warn!(id = ?flight.id, %error, "a lease could not be renewed, retrying");
                flight.with_running(RunningLease::renewed);
            }
        }
    }
}

/// Rounds of one replacement against renewals of the same lease.
const REPLACE_ROUNDS_MAX: usize = 8;

/// Replaces the input of a lease that is held here, by a renewal that carries the new one. Later renewals and the
/// ending carry it too.
pub(crate) async fn replace_input(inner: &Inner, flight: &Flight, input: &Bytes) -> Result<()> {
    check_input_bytes(inner, input.len())?;
    let lost = || Error::new(ErrorKind::LeaseLost, "the lease was lost, its input is not replaced");
    let replaced = flight.with_running(|running| {
        let job = running.held.job.as_deref()?;
        running.held.job = Some(Arc::new(Job { input: input.clone(), ..job.clone() }));
        Some(())
    });
    if replaced.ok_or_else(lost)?.is_none() {
        return Err(Error::invalid("this receipt carries no input that could be replaced"));
    }
    for _ in 0..REPLACE_ROUNDS_MAX {
        let running = flight.running().ok_or_else(lost)?;
        let write = inner.hold(running.held.clone(), &flight.policy);
        let seen = Seen::Version(running.version);
        let SwapReply { sent_at, result } =
            inner.swap(&flight.id, seen, Some(&write), Urgency::Required).await;
        match result {
            Ok(Swapped::Won(version)) => {
                inner.counters.renewals.one();
                flight.with_running(|running| {
                    let lease = flight.policy.lease();
                    running.version = running.version.max(version);
                    running.lease_ends = running.lease_ends.max(sent_at + lease);
                    running.renew_at = running.renew_at.max(sent_at + lease / 3);
                });
                return Ok(());
            }
            Ok(Swapped::Lost(found)) => match open_any(found.as_ref())? {
                // A renewal came first.
                Some(receipt)
                    if receipt.status.is_of(&running.held.claim)
                        && matches!(receipt.status, Status::Held(_)) =>
                {
                    flight.with_running(|running| running.version = running.version.max(receipt.version));
                }
                _ => return Err(lost()),
            },
            Ok(Swapped::Failed(error)) | Err(error) => return Err(error),
        }
    }
    Err(Error::new(ErrorKind::Conflict, "the receipt changes all the time, its input is not replaced"))
}

/// A renewal found its own run under another version.
fn still_ours(flight: &Flight, receipt: &Receipt, sent_at: Duration) {
    flight.with_running(|running| match receipt.status {
        // An earlier renewal whose answer was lost: go on from its version, and renew again soon.
        Status::Held(_) => {
            running.version = running.version.max(receipt.version);
            running.renewed();
        }
        // The lease ended before it was renewed, and the outcome of our run became unknown. There is no lease left to
        // renew, but we can still record an outcome, unless it is settled first.
        Status::Unknown(_) => {
            running.renew_at = sent_at + flight.policy.lease() / 3;
            running.renewed();
        }
        // Our own ending, which is about to be reported.
        Status::Done(_) | Status::Gone(_) | Status::Waiting(_) | Status::Dead(_) => {}
    });
}

fn lose(inner: &Inner, flight: &Arc<Flight>, found: Option<Receipt>) {
    inner.counters.leases_lost.one();
    tracing::warn!(id = ?flight.id, "the lease was lost, its work is cancelled");
    inner.flights.lose(flight, found);
}
