//! The one who leads a flight, and what is owed to the store at each stage of it. Whatever way the
//! leader ends (returns, is dropped, panics), the debt of its stage is paid:
//!
//! ```text
//! stage        if it ends here
//! Asking       a claim under way, should it win, is released; one that may stand is looked up first
//! Claimed      released: the work has not begun
//! Working      unknown: by policy held for settlement, or released for another run
//! Concluding   the ending is written by a task of its own
//! Over         nothing
//! ```
//!
//! Who goes on with what somebody else has left owes no release: see [`Unfinished`].

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;

use super::conclude::{self, Concluded, Ending};
use super::flight::{Flight, Named, Running};
use super::group::{Swapping, Trip, Urgency};
use super::inner::Inner;
use super::reply::reply;
use crate::error::{Applied, Error};
use crate::outcome::Effect;
use crate::receipt::{Doubt, Receipt, Status};
use crate::store::{Seen, Swapped, Version};

pub(crate) struct Owner {
    pub(crate) inner: Arc<Inner>,
    pub(crate) flight: Arc<Flight>,
    stage: Stage,
    /// Whether a claim of ours may stand in the store although we have no lease to show for it: its
    /// answer was lost, or came too late. A write whose answer was lost can still arrive after we have
    /// looked and found nothing, so this never becomes untrue again.
    pub(crate) may_stand: bool,
    pub(crate) unfinished: Unfinished,
}

/// What becomes of a lease whose work ends without an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// What the stage and the policy say.
    Concludes,
    /// It ends by itself, and the receipt stays: the intent must not be forgotten.
    Lapses,
}

enum Stage {
    Asking(Option<Swapping>),
    Claimed,
    Working,
    Concluding(Ending, Swapping),
    Over,
}

// What is awaited holds a reference to the owner and nothing twice: whoever runs an intent carries it along,
// and an async fn would keep its arguments in two places.
impl Owner {
    pub(crate) fn new(inner: Arc<Inner>, flight: Arc<Flight>) -> Self {
        Self {
            inner,
            flight,
            stage: Stage::Asking(None),
            may_stand: false,
            unfinished: Unfinished::Concludes,
        }
    }

    /// Waits for the answer to a claim, in a way that survives being dropped.
    pub(crate) fn claim(&mut self, swapping: Swapping) -> impl Future<Output = Trip> {
        self.stage = Stage::Asking(Some(swapping));
        async move {
            let trip = poll_fn(|cx| match &mut self.stage {
                Stage::Asking(Some(swapping)) => Pin::new(swapping).poll(cx),
                _ => unreachable!("set above"),
            })
            .await;
            self.stage = Stage::Asking(None);
            self.may_stand |= match &trip.result {
                Ok(Swapped::Won(_)) => true,
                Ok(Swapped::Lost(_)) => false,
                Err(error) => error.applied() == Applied::Maybe,
            };
            trip
        }
    }

    /// The claim was won.
    pub(crate) fn claimed(&mut self, running: Running) {
        self.stage = Stage::Claimed;
        self.flight.run(running);
        self.inner.counters.claims.one();
        self.inner.keeper.watch(&self.inner, self.flight.policy.lease_duration());
    }

    /// From here on the effect may happen.
    pub(crate) fn begin_work(&mut self) {
        self.stage = Stage::Working;
    }

    /// The lease is somebody else's business now: of a ticket, or of whoever took it.
    pub(crate) fn hand_over(&mut self) {
        self.stage = Stage::Over;
        self.inner.flights.end(&self.flight, None);
    }

    /// Ends the flight with what the store holds; nothing is owed.
    pub(crate) fn end(mut self, receipt: Option<Receipt>) {
        self.stage = Stage::Over;
        self.inner.flights.end(&self.flight, receipt);
    }

    /// Ends the flight with a failure of the store. What is owed is paid as for any other end.
    pub(crate) fn fail(self, error: Error) -> Error {
        self.inner.flights.fail(&self.flight, error.clone());
        error
    }

    /// Writes the ending. Dropping this does not stop the writing.
    pub(crate) fn conclude(&mut self, ending: Ending) -> impl Future<Output = Concluded> {
        let running = self.flight.conclude();
        self.stage = match &running {
            None => Stage::Over,
            Some(running) => {
                let swapping = conclude::submit(&self.inner, &self.flight, running, &ending, running.version);
                Stage::Concluding(ending, swapping)
            }
        };
        async move {
            let Some(running) = running else { return Concluded::FencedOff };
            let trip = poll_fn(|cx| match &mut self.stage {
                Stage::Concluding(_, swapping) => Pin::new(swapping).poll(cx),
                _ => unreachable!("set above"),
            })
            .await;
            let Stage::Concluding(ending, _) = std::mem::replace(&mut self.stage, Stage::Over) else {
                unreachable!("set above")
            };
            if let Ok(Swapped::Won(version)) = trip.result {
                conclude::written(&self.inner, &self.flight, &running.claim, &ending, version, trip.sent_at);
                return Concluded::Recorded;
            }
            let (tell, told) = reply();
            let task = conclude::insist(self.inner.clone(), self.flight.clone(), ending, trip, Some(tell));
            self.inner.world.spawn(Box::pin(task));
            told.await.unwrap_or(Concluded::Delayed)
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        if matches!(stage, Stage::Over) {
            return;
        }
        let (inner, flight) = (self.inner.clone(), self.flight.clone());
        match stage {
            Stage::Over => {}
            Stage::Asking(swapping) => {
                inner.flights.end(&flight, None);
                // Whoever named the attempt may be asking again with it at this moment, and find this
                // claim to be its own. It is not taken from under its feet.
                if flight.named == Named::ByEngine && (swapping.is_some() || self.may_stand) {
                    let world = inner.world.clone();
                    world.spawn(Box::pin(abandon(inner, flight, swapping, self.may_stand)));
                }
            }
            Stage::Claimed | Stage::Working if self.unfinished == Unfinished::Lapses => {
                inner.flights.end(&flight, None);
            }
            Stage::Claimed => conclude_alone(inner, flight, Ending::Release(Effect::None)),
            Stage::Working => {
                let ending = Ending::in_doubt(&flight.policy, Doubt::Dropped);
                conclude_alone(inner, flight, ending);
            }
            Stage::Concluding(ending, swapping) => insist_alone(inner, flight, ending, swapping),
        }
    }
}

/// Writes an ending for an owner that is no longer there.
fn conclude_alone(inner: Arc<Inner>, flight: Arc<Flight>, ending: Ending) {
    let Some(running) = flight.conclude() else { return };
    let swapping = conclude::submit(&inner, &flight, &running, &ending, running.version);
    insist_alone(inner, flight, ending, swapping);
}

fn insist_alone(inner: Arc<Inner>, flight: Arc<Flight>, ending: Ending, swapping: Swapping) {
    let world = inner.world.clone();
    world.spawn(Box::pin(async move {
        let trip = swapping.await;
        conclude::insist(inner, flight, ending, trip, None).await;
    }));
}

/// Gives back what an asker that went away had claimed, or may have. One try: if the store cannot be
/// reached, the lease ends by itself.
async fn abandon(inner: Arc<Inner>, flight: Arc<Flight>, swapping: Option<Swapping>, mut may_stand: bool) {
    if let Some(swapping) = swapping {
        match swapping.await.result {
            Ok(Swapped::Won(version)) => return release(&inner, &flight, version).await,
            Ok(Swapped::Lost(_)) => {}
            Err(error) => may_stand |= error.applied() == Applied::Maybe,
        }
    }
    if may_stand
        && let Ok(Some(receipt)) = inner.load(&flight.id).await
        && matches!(&receipt.status, Status::Held(held) if held.claim.attempt == flight.attempt)
    {
        release(&inner, &flight, receipt.version).await;
    }
}

async fn release(inner: &Inner, flight: &Flight, version: Version) {
    inner.counters.releases.one();
    // Whatever the answer: there is nobody left to tell.
    let _ = inner.swap(&flight.id, Seen::Version(version), None, Urgency::Must).await;
}
