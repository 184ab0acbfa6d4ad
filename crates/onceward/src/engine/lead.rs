//! From an ask to the right to run, or to an answer: through the cache, the flights of this process,
//! and the store.

use std::sync::Arc;
use std::time::Duration;

use super::answer::Answer;
use super::flight::{Flight, Joined, Named, Renewal, Running, View};
use super::group::{Trip, Urgency};
use super::inner::Inner;
use super::owner::Owner;
use super::race::within;
use crate::ask::Ask;
use crate::codec::{self, FENCE_IS_VERSION};
use crate::decide::{Decision, Refusal, Takeover};
use crate::error::{Applied, Error, ErrorKind, Result, Sight};
use crate::receipt::{Attempt, Claim, Doubt, Fence, Held, Receipt, Status, Unknown};
use crate::store::{Due, Seen, Swapped};

/// What an ask leads to.
pub(crate) enum Led {
    /// The lease is ours; the work may begin.
    Run(Owner, Claim),
    /// There is an answer already.
    Answer(Answer),
}

/// Each round that does not settle an ask means that somebody else made progress on the same id in
/// between. This many in a row mean that something is broken.
pub(crate) const ROUNDS_MAX: usize = 1_000;

/// Gets an ask to the point where its work may begin, or to its answer. Dropping this gives back
/// whatever it had claimed.
///
/// Here and below, what is rarely waited for is boxed: every run carries the largest of its waits along.
pub(crate) async fn lead(inner: &Arc<Inner>, ask: &mut Ask) -> Result<Led> {
    let named = if ask.attempt.is_some() { Named::ByCaller } else { Named::ByEngine };
    let attempt = *ask.attempt.get_or_insert_with(|| Attempt(inner.world.random()));
    let mut patience = Patience::default();
    for _ in 0..ROUNDS_MAX {
        if let Some(answer) = recall(inner, ask) {
            return Ok(Led::Answer(answer));
        }
        match inner.flights.join(&ask.id, &ask.policy, attempt, named) {
            Joined::Leader(flight) => {
                let mut owner = Owner::new(inner.clone(), flight);
                return match ask_store(inner, ask, &mut owner, &mut patience).await {
                    Ok(Asked::Run(running)) => {
                        owner.claimed(running);
                        Ok(Led::Run(owner, running.claim))
                    }
                    Ok(Asked::Answer(answer, receipt)) => {
                        owner.end(receipt);
                        Ok(Led::Answer(answer))
                    }
                    Err(error) => Err(owner.fail(error)),
                };
            }
            Joined::Waiter(flight) => {
                let waiting = Box::pin(wait_here(inner, ask, &flight, &mut patience));
                if let Some(answer) = waiting.await? {
                    return Ok(Led::Answer(answer));
                }
            }
        }
    }
    Err(contended())
}

/// The answer that is at hand in this process, if there is one.
pub(crate) fn recall(inner: &Inner, ask: &Ask) -> Option<Answer> {
    let receipt = inner.cache.load(&ask.id, &*inner.world)?;
    let answer = answer_from(inner, ask, Some(&receipt))?;
    inner.counters.replays_cached.one();
    Some(answer)
}

/// Finds an answer without ever running: for work that has been used up by a run that lost its lease.
pub(crate) async fn look(inner: &Arc<Inner>, ask: &Ask) -> Result<Answer> {
    let mut patience = Patience::default();
    for _ in 0..ROUNDS_MAX {
        match look_once(inner, ask, &mut patience).await? {
            Looked::Answer(answer) => return Ok(answer),
            Looked::Waited => {}
            Looked::Free => {
                let detail =
                    "the lease was lost while the work ran, and no other run has finished; ask again";
                return Err(Error::new(ErrorKind::LeaseLost, detail).maybe_applied());
            }
        }
    }
    Err(contended())
}

/// Finds an answer that does not need a run of our own: recorded, or awaited from whoever runs it now.
/// `None` if nobody does.
pub(crate) async fn attend(inner: &Arc<Inner>, ask: &Ask) -> Result<Option<Answer>> {
    let mut patience = Patience::default();
    for _ in 0..ROUNDS_MAX {
        if let Some(answer) = recall(inner, ask) {
            return Ok(Some(answer));
        }
        if let Some(flight) = inner.flights.find(&ask.id) {
            if let Some(answer) = wait_here(inner, ask, &flight, &mut patience).await? {
                return Ok(Some(answer));
            }
            continue;
        }
        match look_once(inner, ask, &mut patience).await? {
            Looked::Answer(answer) => return Ok(Some(answer)),
            Looked::Waited => {}
            Looked::Free => return Ok(None),
        }
    }
    Err(contended())
}

enum Looked {
    Answer(Answer),
    /// Somebody is running it; a pause has passed.
    Waited,
    /// A run would begin.
    Free,
}

async fn look_once(inner: &Arc<Inner>, ask: &Ask, patience: &mut Patience) -> Result<Looked> {
    let asked_at = inner.now();
    let receipt = inner.load(&ask.id).await?;
    if let Some(receipt) = &receipt {
        inner.cache.keep(&ask.id, receipt, asked_at);
    }
    Ok(match inner.decide(ask, receipt.as_ref()) {
        Decision::Wait { at_most } => {
            let receipt = receipt.as_ref().expect("only a receipt can be waited for");
            match patience.remaining(inner.now(), at_most) {
                None => Looked::Answer(refuse(inner, Refusal::in_progress(receipt.due))),
                Some(remaining) => {
                    // Nobody here leads this id on our behalf, so the wait is a plain pause.
                    inner.world.sleep(remaining.min(LOOK_PAUSE)).await;
                    Looked::Waited
                }
            }
        }
        Decision::Run(_) => Looked::Free,
        decision => {
            Looked::Answer(answer(inner, receipt, decision).expect("replays and refusals are answers"))
        }
    })
}

const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Waits for the flight of another ask in this process. `None` means: look again.
pub(crate) async fn wait_here(
    inner: &Inner,
    ask: &Ask,
    flight: &Arc<Flight>,
    patience: &mut Patience,
) -> Result<Option<Answer>> {
    let place = inner.flights.place();
    let mut counted = false;
    loop {
        let now = inner.now();
        let (view, epoch) = flight.view(now);
        let receipt = match view {
            // As long as this takes, the store trip of our own would have taken.
            View::Unsettled if place.is_some() => {
                flight.changed_since(epoch).await;
                continue;
            }
            View::Unsettled => return Ok(Some(refuse(inner, Refusal::in_progress(Due::Never)))),
            View::Ended(receipt) => {
                return Ok(receipt.and_then(|receipt| answer_from(inner, ask, Some(&receipt))));
            }
            View::Failed(error) => return Err(error),
            View::Held(receipt) => receipt,
        };
        let at_most = match inner.decide(ask, Some(&receipt)) {
            Decision::Wait { at_most } if place.is_some() => at_most,
            Decision::Refuse(refusal) => return Ok(Some(refuse(inner, refusal))),
            _ => return Ok(Some(refuse(inner, Refusal::in_progress(receipt.due)))),
        };
        if !std::mem::replace(&mut counted, true) {
            inner.counters.waits_local.one();
        }
        let changed = match patience.remaining(now, at_most) {
            Some(remaining) => within(&*inner.world, remaining, flight.changed_since(epoch)).await,
            None => None,
        };
        if changed.is_none() {
            return Ok(Some(refuse(inner, Refusal::in_progress(receipt.due))));
        }
    }
}

/// What the store says to the leader of a flight.
enum Asked {
    Run(Running),
    /// The answer, and the receipt behind it for all who wait.
    Answer(Answer, Option<Receipt>),
}

/// Asks the store for all in this process who want the same.
async fn ask_store(
    inner: &Arc<Inner>,
    ask: &Ask,
    owner: &mut Owner,
    patience: &mut Patience,
) -> Result<Asked> {
    let mut takeover = Takeover::Absent;
    let mut seen = Seen::Absent;
    // Of a claim that is already ours and only has to be renewed before the work may begin.
    let mut fence = FENCE_IS_VERSION;
    let mut sight = Sight::Nothing;
    for _ in 0..ROUNDS_MAX {
        let claim = Claim { fingerprint: ask.fingerprint, attempt: owner.flight.attempt, fence };
        let held = Held { claim, on_unknown: ask.policy.unknown_rule() };
        let new = Some((Status::Held(held), Some(ask.policy.lease_duration())));
        let swapping = inner.swap(&ask.id, seen, new, Urgency::CanWait);
        let Trip { sent_at, result } = owner.claim(swapping).await;
        let mut receipt = match result {
            Ok(Swapped::Won(version)) => {
                if !matches!(takeover, Takeover::Absent | Takeover::Own) {
                    inner.counters.takeovers.one();
                }
                if fence == FENCE_IS_VERSION {
                    fence = Fence(version.0);
                }
                let claim = Claim { fence, ..claim };
                let running = Running::new(claim, version, sent_at, ask.policy.lease_duration());
                if inner.now() < running.lease_ends {
                    return Ok(Asked::Run(running));
                }
                // The answer took so long that the lease may be over: no work begins under such a one.
                (takeover, seen) = (Takeover::Own, Seen::Version(version));
                continue;
            }
            Ok(Swapped::Lost(found)) => found.as_ref().map(codec::decode).transpose()?,
            // Never blindly again: what is there now tells whether it was us.
            Err(error) if error.applied() == Applied::Maybe => {
                Box::pin(inner.load(&ask.id)).await.map_err(|_| error)?
            }
            // A claim of ours that was to be renewed, or whose answer was lost before, may stand.
            Err(error) => {
                let error = if owner.may_stand { error.maybe_applied() } else { error };
                return Err(if sight == Sight::Receipt { error.after_sight() } else { error });
            }
        };
        // Until it is worth claiming again.
        (takeover, seen) = loop {
            if let Some(receipt) = &receipt {
                sight = Sight::Receipt;
                inner.cache.keep(&ask.id, receipt, sent_at);
            }
            match (inner.decide(ask, receipt.as_ref()), receipt) {
                (Decision::Run(Takeover::Own), Some(found))
                    if let Some(running) = own(&found, sent_at, inner.now()) =>
                {
                    return Ok(Asked::Run(running));
                }
                (Decision::Run(takeover), found) => {
                    fence = match (&takeover, &found) {
                        (Takeover::Own, Some(found)) => found.status.fence(),
                        _ => FENCE_IS_VERSION,
                    };
                    owner.may_stand |= takeover == Takeover::Own;
                    break (takeover, found.map_or(Seen::Absent, |found| Seen::Version(found.version)));
                }
                (Decision::Wait { at_most }, Some(found)) => {
                    match Box::pin(follow(ask, owner, found, patience, at_most)).await? {
                        Followed::Now(now) => receipt = now,
                        Followed::TimeOut(refusal) => {
                            return Ok(Asked::Answer(refuse(inner, refusal), None));
                        }
                    }
                }
                (Decision::Refuse(Refusal::OutcomeUnknown), Some(found)) if is_held(&found) => {
                    match Box::pin(put_in_doubt(inner, ask, found)).await {
                        Ok(now) => receipt = now,
                        // The refusal stands without it, for this asker: the next one will write it down.
                        Err(_) => return Ok(Asked::Answer(refuse(inner, Refusal::OutcomeUnknown), None)),
                    }
                }
                (decision, found) => {
                    let answer =
                        answer(inner, found.clone(), decision).expect("replays and refusals are answers");
                    return Ok(Asked::Answer(
                        answer,
                        found.and_then(|found| found.aged(sent_at, inner.now())),
                    ));
                }
            }
        };
    }
    Err(contended())
}

/// Our own claim, if its lease is sure to be alive; otherwise it is renewed first.
fn own(found: &Receipt, asked_at: Duration, now: Duration) -> Option<Running> {
    let (Due::In(remaining), Some(claim)) = (found.due, found.status.claim()) else { return None };
    let lease_ends = asked_at + remaining;
    let running = Running {
        claim: *claim,
        version: found.version,
        lease_ends,
        renew_at: asked_at,
        renewal: Renewal::Due,
    };
    (now < lease_ends).then_some(running)
}

enum Followed {
    Now(Option<Receipt>),
    TimeOut(Refusal),
}

/// Waits for a run in another process, on behalf of all who wait here.
async fn follow(
    ask: &Ask,
    owner: &Owner,
    found: Receipt,
    patience: &mut Patience,
    at_most: Duration,
) -> Result<Followed> {
    let inner = &owner.inner;
    let now = inner.now();
    inner.counters.waits_remote.one();
    let due = found.due;
    let watching = inner.poller.watch(inner, &ask.id, &found);
    owner.flight.follow(found, now);
    let Some(remaining) = patience.remaining(now, at_most) else {
        return Ok(Followed::TimeOut(Refusal::in_progress(due)));
    };
    match within(&*inner.world, remaining, watching).await {
        Some(receipt) => Ok(Followed::Now(receipt?)),
        None => Ok(Followed::TimeOut(Refusal::in_progress(due))),
    }
}

/// Writes down that a lease ended without a word. Gives what is there afterwards.
pub(crate) async fn put_in_doubt(inner: &Inner, ask: &Ask, found: Receipt) -> Result<Option<Receipt>> {
    let Some(unknown) = doubted(&found) else { return Ok(Some(found)) };
    let new = Some((unknown.status.clone(), None));
    match inner.swap(&ask.id, Seen::Version(found.version), new, Urgency::Must).await.result? {
        Swapped::Won(version) => {
            inner.counters.unknowns.one();
            Ok(Some(Receipt { version, ..unknown }))
        }
        Swapped::Lost(now) => now.as_ref().map(codec::decode).transpose(),
    }
}

/// What a held receipt becomes when its lease ended under `Hold`.
pub(crate) fn doubted(held: &Receipt) -> Option<Receipt> {
    let Status::Held(Held { claim, .. }) = held.status else { return None };
    let status = Status::Unknown(Unknown { claim, doubt: Doubt::LeaseEnded });
    Some(Receipt { version: held.version, due: Due::Never, status })
}

fn is_held(receipt: &Receipt) -> bool {
    matches!(receipt.status, Status::Held(_))
}

/// The answer that a receipt gives to an ask, if it gives one.
pub(crate) fn answer_from(inner: &Inner, ask: &Ask, receipt: Option<&Receipt>) -> Option<Answer> {
    let decision = inner.decide(ask, receipt);
    answer(inner, receipt.cloned(), decision)
}

pub(crate) fn answer(inner: &Inner, receipt: Option<Receipt>, decision: Decision) -> Option<Answer> {
    match decision {
        Decision::Replay => {
            inner.counters.replays.one();
            Some(Answer::replay(receipt.expect("only a receipt can be replayed")))
        }
        Decision::Refuse(refusal) => Some(refuse(inner, refusal)),
        Decision::Run(_) | Decision::Wait { .. } => None,
    }
}

pub(crate) fn refuse(inner: &Inner, refusal: Refusal) -> Answer {
    inner.counters.refusals.one();
    Answer::Refused(refusal)
}

pub(crate) fn contended() -> Error {
    let detail = format!("the receipt changed under {ROUNDS_MAX} tries in a row; is something rewriting it?");
    Error::new(ErrorKind::Conflict, detail)
}

/// How long one ask goes on waiting, over all its waits together.
#[derive(Default)]
pub(crate) struct Patience {
    ends_at: Option<Duration>,
}

impl Patience {
    pub(crate) fn remaining(&mut self, now: Duration, at_most: Duration) -> Option<Duration> {
        let ends_at = *self.ends_at.get_or_insert(now + at_most);
        Some(ends_at.saturating_sub(now)).filter(|remaining| !remaining.is_zero())
    }
}
