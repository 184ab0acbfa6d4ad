//! The end of a run: outcome, release or doubt, written against the version of the lease, and
//! insisted on until it is written, overtaken, or the lease has ended.

use std::sync::Arc;
use std::time::Duration;

use super::flight::{Flight, Running};
use super::group::{Swapping, Trip, Urgency};
use super::inner::Inner;
use super::reply::Sender;
use crate::codec;
use crate::error::Result;
use crate::outcome::{Effect, Outcome, Snapshot, Verdict};
use crate::policy::{OnExpired, OnUnknown, Policy};
use crate::receipt::{Claim, Done, Doubt, Receipt, Status, Unknown};
use crate::store::{Due, Found, Seen, Swapped, Version};

/// How a run ends.
#[derive(Clone, Debug)]
pub(crate) enum Ending {
    /// With an outcome to keep.
    Done(Outcome),
    /// Without one: the next ask runs. Whether the effect may have happened all the same.
    Release(Effect),
    /// Nobody can tell.
    Unknown(Doubt),
}

/// What became of an ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concluded {
    /// It is in the store.
    Recorded,
    /// The store failed; it is being insisted on in the background.
    Delayed,
    /// Somebody else has the receipt now; nothing was changed.
    FencedOff,
}

impl Ending {
    /// The ending of work whose effect is in doubt.
    pub(crate) fn in_doubt(policy: &Policy, doubt: Doubt) -> Self {
        match policy.unknown_rule() {
            OnUnknown::Hold => Self::Unknown(doubt),
            OnUnknown::Retry => Self::Release(Effect::Maybe),
        }
    }

    fn status(&self, claim: &Claim, policy: &Policy) -> Option<(Status, Option<Duration>)> {
        match self {
            Self::Done(outcome) => Some(done(*claim, outcome.clone(), policy)),
            Self::Unknown(doubt) => Some((Status::Unknown(Unknown { claim: *claim, doubt: *doubt }), None)),
            Self::Release(_) => None,
        }
    }
}

/// A done status under a policy, and when its retention ends.
pub(crate) fn done(claim: Claim, outcome: Outcome, policy: &Policy) -> (Status, Option<Duration>) {
    let tombstone = match policy.expired_rule() {
        OnExpired::Refuse(keep) => Some(keep),
        OnExpired::Run => None,
    };
    let due_in = policy.retention_of(&outcome).duration();
    (Status::Done(Done { claim, outcome, tombstone }), due_in)
}

/// The outcome as it may be stored: a body over the bound is left out, and said to be.
pub(crate) fn bounded(inner: &Inner, outcome: &Outcome) -> Outcome {
    match outcome.snapshot() {
        Snapshot::Kept(body) if body.len() > inner.limits.body_bytes_max => {
            inner.counters.bodies_omitted.one();
            let note =
                format!("{} bytes, {} are the most that is stored", body.len(), inner.limits.body_bytes_max);
            outcome.without_body(note)
        }
        _ => outcome.clone(),
    }
}

pub(crate) fn submit(
    inner: &Inner,
    flight: &Flight,
    running: &Running,
    ending: &Ending,
    version: Version,
) -> Swapping {
    let status = ending.status(&running.claim, &flight.policy);
    inner.swap(&flight.id, Seen::Version(version), status, Urgency::Must)
}

/// The ending was just written, as `version`: tell everyone who waits here.
pub(crate) fn written(
    inner: &Inner,
    flight: &Arc<Flight>,
    claim: &Claim,
    ending: &Ending,
    version: Version,
    sent_at: Duration,
) {
    count(inner, ending);
    inner.flights.end_awaited(flight, || {
        let (status, due_in) = ending.status(claim, &flight.policy)?;
        let receipt = Receipt { version, due: due_in.map_or(Due::Never, Due::In), status };
        lasting(receipt, sent_at, inner.now())
    });
}

/// What those who wait may be given, whenever they began to: by the time an answer is back, a failure may
/// have been taken over by somebody whose contract says to try again.
fn lasting(receipt: Receipt, sent_at: Duration, now: Duration) -> Option<Receipt> {
    match &receipt.status {
        Status::Done(done) if done.outcome.verdict() == Verdict::Failed => None,
        _ => receipt.aged(sent_at, now),
    }
}

fn count(inner: &Inner, ending: &Ending) {
    match ending {
        Ending::Done(_) => inner.counters.completions.one(),
        Ending::Release(_) => inner.counters.releases.one(),
        Ending::Unknown(_) => inner.counters.unknowns.one(),
    }
}

/// Shortest and longest pause between two tries to reach a store that fails.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Goes on from a first answer until the ending is written, overtaken, or the lease has ended. `tell` learns the first thing that is certain.
pub(crate) async fn insist(
    inner: Arc<Inner>,
    flight: Arc<Flight>,
    ending: Ending,
    first: Trip,
    mut tell: Option<Sender<Concluded>>,
) {
    let mut trip = first;
    let mut pause = PAUSE_MIN;
    let mut say = |concluded| {
        if let Some(tell) = tell.take() {
            tell.send(concluded);
        }
    };
    loop {
        let Some(running) = flight.conclude() else { return say(Concluded::FencedOff) };
        let sent_at = trip.sent_at;
        let next = match trip.result {
            Ok(Swapped::Won(version)) => {
                written(&inner, &flight, &running.claim, &ending, version, sent_at);
                return say(Concluded::Recorded);
            }
            // The keeper found the lease lost meanwhile, and counted it: one try is all it gets.
            _ if flight.running().is_none() => return say(Concluded::FencedOff),
            Ok(Swapped::Lost(found)) => match judge(&running, &ending, found) {
                Ok(next) => next,
                Err(error) => {
                    tracing::error!(id = ?flight.id, %error, "a receipt cannot be read, its ending is not written");
                    inner.flights.end(&flight, None);
                    return say(Concluded::FencedOff);
                }
            },
            Err(error) => {
                if pause == PAUSE_MIN {
                    inner.counters.completions_delayed.one();
                    tracing::warn!(id = ?flight.id, %error, "the end of a run could not be recorded, trying on");
                }
                say(Concluded::Delayed);
                Next::Look
            }
        };
        trip = match next {
            Next::Swap(version) => submit(&inner, &flight, &running, &ending, version).await,
            Next::Recorded(receipt) => {
                count(&inner, &ending);
                inner
                    .flights
                    .end(&flight, receipt.and_then(|receipt| lasting(*receipt, sent_at, inner.now())));
                return say(Concluded::Recorded);
            }
            Next::FencedOff(receipt) => {
                inner.counters.fenced_off.one();
                tracing::warn!(id = ?flight.id, fence = running.claim.fence.0, "a former owner came too late");
                inner.flights.end(&flight, receipt.and_then(|receipt| receipt.aged(sent_at, inner.now())));
                return say(Concluded::FencedOff);
            }
            Next::Look => {
                if inner.now() >= running.lease_ends {
                    inner.counters.completions_given_up.one();
                    tracing::error!(id = ?flight.id, "the lease ended before the end of a run could be recorded");
                    inner.flights.end(&flight, None);
                    return;
                }
                inner.world.sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
                let sent_at = inner.now();
                let found = inner.load_all(std::slice::from_ref(&flight.id)).await;
                Trip { sent_at, result: found.map(|mut found| Swapped::Lost(found.pop().flatten())) }
            }
        };
    }
}

enum Next {
    /// Still ours, under this version: write again.
    Swap(Version),
    /// An earlier write of ours did happen.
    Recorded(Option<Box<Receipt>>),
    FencedOff(Option<Box<Receipt>>),
    Look,
}

/// What a lost swap means. Pure, like `decide`, but from the owner's side.
fn judge(running: &Running, ending: &Ending, found: Option<Found>) -> Result<Next> {
    let Some(found) = found else {
        return Ok(match ending {
            // Gone, by an earlier try of ours or without us: all that a release wants.
            Ending::Release(_) => Next::Recorded(None),
            _ => Next::FencedOff(None),
        });
    };
    let receipt = codec::decode(&found)?;
    let ours = receipt
        .status
        .claim()
        .is_some_and(|claim| claim.attempt == running.claim.attempt && claim.fence == running.claim.fence);
    Ok(match (&receipt.status, ending) {
        // A renewal of ours moved the version on.
        (Status::Held(_), _) if ours => Next::Swap(receipt.version),
        // An earlier write of ours did happen. (Another outcome would be somebody's settlement: that
        // one stands, and everyone gets it.)
        (Status::Done(done), Ending::Done(outcome)) if ours && done.outcome == *outcome => {
            Next::Recorded(Some(Box::new(receipt)))
        }
        (Status::Unknown(_), Ending::Unknown(_)) if ours => Next::Recorded(Some(Box::new(receipt))),
        // Somebody put our run in doubt while we were silent. Whoever did the work can end the doubt,
        // but not with another doubt.
        (Status::Unknown(_), Ending::Done(_) | Ending::Release(Effect::None)) if ours => {
            Next::Swap(receipt.version)
        }
        _ => Next::FencedOff(Some(Box::new(receipt))),
    })
}
