//! Answers that need no run of our own: cached in this process, recorded, or awaited from the current run of the
//! intent.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::ROUNDS_MAX;
use super::answer::Answer;
use super::front::answer_from_front;
use super::in_flight::{Flight, FlightView};
use super::inner::Inner;
use super::timeout::within;
use crate::ask::Ask;
use crate::decide::{Decision, Refusal};
use crate::error::{Error, ErrorKind, Result};
use crate::receipt::Receipt;
use crate::store::Due;

/// The answer from the cache of this process, if there is one.
pub(crate) fn cached_answer(inner: &Inner, ask: &Ask) -> Option<Answer> {
    let receipt = inner.cache.load(&ask.id, &*inner.runtime)?;
    let answer = match inner.decide(ask, Some(&receipt)) {
        // Nearly always. A receipt is large, and is not moved more often than need be.
        Decision::Replay => {
            inner.counters.replays.one();
            Answer::replay(receipt)
        }
        decision => answer(inner, Some(receipt), decision)?,
    };
    inner.counters.replays_cached.one();
    Some(answer)
}

/// Finds an answer without ever running: for work that has been used up by a run that lost its lease.
pub(crate) async fn answer_of_others(inner: &Arc<Inner>, ask: &Ask) -> Result<Answer> {
    let mut deadline = WaitDeadline::default();
    for _ in 0..ROUNDS_MAX {
        match look_once(inner, ask, &mut deadline).await? {
            LookResult::Answer(answer) => return Ok(answer),
            LookResult::Waited => {}
            LookResult::Free => {
                let detail =
                    "the lease was lost while the work ran, and no other run has finished; ask again";
                return Err(Error::new(ErrorKind::LeaseLost, detail).maybe_applied());
            }
        }
    }
    Err(contended())
}

/// Finds an answer that does not need a run of our own: recorded, or awaited from the run that has it now.
/// `None` if nobody does.
pub(crate) async fn answer_without_running(inner: &Arc<Inner>, ask: &Ask) -> Result<Option<Answer>> {
    let mut deadline = WaitDeadline::default();
    for _ in 0..ROUNDS_MAX {
        if let Some(answer) = cached_answer(inner, ask) {
            return Ok(Some(answer));
        }
        if let Some(flight) = inner.flights.find(&ask.id) {
            if let Some(answer) = wait_here(inner, ask, &flight, &mut deadline).await? {
                return Ok(Some(answer));
            }
            continue;
        }
        if inner.front.is_some()
            && let Some((answer, _)) = Box::pin(answer_from_front(inner, ask, &mut deadline)).await
        {
            return Ok(Some(answer));
        }
        match look_once(inner, ask, &mut deadline).await? {
            LookResult::Answer(answer) => return Ok(Some(answer)),
            LookResult::Waited => {}
            LookResult::Free => return Ok(None),
        }
    }
    Err(contended())
}

enum LookResult {
    Answer(Answer),
    /// It is running elsewhere; a pause has passed.
    Waited,
    /// A run would begin.
    Free,
}

async fn look_once(inner: &Arc<Inner>, ask: &Ask, deadline: &mut WaitDeadline) -> Result<LookResult> {
    let asked_at = inner.now();
    let receipt = inner.load(&ask.id).await?;
    if let Some(front) = &inner.front {
        front.learn(receipt.is_none());
    }
    if let Some(receipt) = &receipt {
        inner.cache.keep(&ask.id, receipt, asked_at);
    }
    Ok(match inner.decide(ask, receipt.as_ref()) {
        Decision::Wait { at_most } => {
            let receipt = receipt.as_ref().expect("only a receipt can be waited for");
            match deadline.remaining(inner.now(), at_most) {
                None => LookResult::Answer(refuse(inner, Refusal::in_progress(receipt.due))),
                Some(remaining) => {
                    // No flight of this process watches this id, so the wait is a plain pause.
                    inner.runtime.sleep(remaining.min(LOOK_PAUSE)).await;
                    LookResult::Waited
                }
            }
        }
        Decision::Run(_) => LookResult::Free,
        decision => {
            LookResult::Answer(answer(inner, receipt, decision).expect("replays and refusals are answers"))
        }
    })
}

const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Waits for the flight of another ask in this process. `None` means: look again.
pub(crate) async fn wait_here(
    inner: &Inner,
    ask: &Ask,
    flight: &Arc<Flight>,
    deadline: &mut WaitDeadline,
) -> Result<Option<Answer>> {
    let permit = inner.flights.waiter_permit();
    let mut counted = false;
    loop {
        let now = inner.now();
        let (view, epoch) = flight.view(now);
        let receipt = match view {
            // This takes no longer than a store round trip of our own.
            FlightView::Unsettled if permit.is_some() => {
                flight.changed_since(epoch).await;
                continue;
            }
            FlightView::Unsettled => return Ok(Some(refuse(inner, Refusal::in_progress(Due::Never)))),
            FlightView::Ended(receipt) => {
                return Ok(receipt.and_then(|receipt| {
                    let decision = inner.decide(ask, Some(&receipt));
                    answer(inner, Some(receipt), decision)
                }));
            }
            FlightView::Failed(error) => return Err(error),
            FlightView::Held(receipt) => receipt,
        };
        let at_most = match inner.decide(ask, Some(&receipt)) {
            Decision::Wait { at_most } if permit.is_some() => at_most,
            Decision::Refuse(refusal) => return Ok(Some(refuse(inner, refusal))),
            _ => return Ok(Some(refuse(inner, Refusal::in_progress(receipt.due)))),
        };
        if !std::mem::replace(&mut counted, true) {
            inner.counters.waits_local.one();
        }
        let changed = match deadline.remaining(now, at_most) {
            Some(remaining) => within(&*inner.runtime, remaining, flight.changed_since(epoch)).await,
            None => None,
        };
        if changed.is_none() {
            return Ok(Some(refuse(inner, Refusal::in_progress(receipt.due))));
        }
    }
}

/// The answer that a decision about a receipt leads to, if it leads to one.
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

/// How long one ask continues waiting, over all its waits together.
#[derive(Default)]
pub(crate) struct WaitDeadline {
    ends_at: Option<Duration>,
}

impl WaitDeadline {
    pub(crate) fn remaining(&mut self, now: Duration, at_most: Duration) -> Option<Duration> {
        let ends_at = *self.ends_at.get_or_insert(now + at_most);
        Some(ends_at.saturating_sub(now)).filter(|remaining| !remaining.is_zero())
    }
}
