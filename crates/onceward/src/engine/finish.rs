//! Writes the end of a run (outcome, release or unknown) against the version of the lease, and retries until it is
//! written or another owner has replaced it. Under `Hold` nobody else may run the intent, so its outcome is written
//! for as long as the process lives; under `Retry` until the lease has ended.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::group_commit::{SendWhen, SwapReply, Swapping, Urgency};
use super::in_flight::{Flight, RunningLease};
use super::inner::Inner;
use super::oneshot::Sender;
use super::sealed::{open_any, seal};
use super::unknown_log;
use crate::error::Error;
use crate::outcome::{Outcome, Snapshot};
use crate::policy::OnUnknown;
use crate::receipt::{Done, End, Receipt, Status};
use crate::runtime::Runtime;
use crate::store::{Age, Due, Found, Seen, Swap, Swapped, Version};
use crate::transition::{self, AfterLoss, Ending};

/// What became of an ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    /// It is in the store.
    Recorded,
    /// The store failed; the write is retried in the background.
    Delayed,
    /// Another owner has the receipt now; nothing was changed.
    FencedOff,
}

/// The outcome as it may be stored: a body over the bound is left out, and said to be.
pub(crate) fn bounded(inner: &Inner, outcome: &Outcome) -> Outcome {
    let bytes_max = inner.limits.body_bytes_max;
    match outcome.snapshot() {
        Snapshot::Kept(body) if body.len() > bytes_max => {
            inner.counters.bodies_omitted.one();
            outcome.without_body(format!("{} bytes, {bytes_max} are the most that is stored", body.len()))
        }
        _ => outcome.clone(),
    }
}

/// Submits the ending of a run. `None` if there is no lease to end.
pub(crate) fn submit(
    inner: &Inner,
    flight: &Flight,
    ending: &Ending,
    send_when: SendWhen,
) -> Option<Swapping> {
    let swap = flight.finish_with(|running| ending_of(flight, running, ending, running.version))?;
    Some(inner.group_commit.swap_with(swap, Urgency::Required, send_when))
}

fn ending_of(flight: &Flight, running: &RunningLease, ending: &Ending, version: Version) -> Swap {
    let write = transition::end(&flight.id, &running.held, ending, &flight.policy);
    seal(&flight.id, Seen::Version(version), write.as_ref())
}

/// The ending was just written, as `version`: wakes the asks of this process that wait for it.
pub(crate) fn written(
    inner: &Inner,
    flight: &Arc<Flight>,
    ending: &Ending,
    version: Version,
    sent_at: Duration,
) {
    count(inner, ending);
    unknown_log::ended(&flight.id, ending, &flight.policy);
    inner.flights.end_awaited(flight, |held| {
        let write = transition::end(&flight.id, held, ending, &flight.policy)?;
        let due = write.due_in.map_or(Due::Never, Due::In);
        let receipt = Receipt { version, due, age: Age::default(), status: write.status };
        receipt.aged(sent_at, inner.now())
    });
}

fn count(inner: &Inner, ending: &Ending) {
    match ending {
        Ending::Done(_) => inner.counters.completions.one(),
        Ending::Release(_) | Ending::Suspend(_) => inner.counters.releases.one(),
        Ending::Unknown(..) => inner.counters.unknowns.one(),
    }
}

/// Shortest and longest pause between two tries to reach a store that fails.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Continues after a first answer, in its own task. `report_to` gets the first result that is certain.
pub(crate) fn write_until_settled(
    inner: &Arc<Inner>,
    flight: Arc<Flight>,
    ending: Ending,
    first: SwapReply,
    report_to: Option<Sender<Finished>>,
) {
    let pending = PendingEnding::new(inner, flight, ending, report_to);
    inner.runtime.spawn(Box::pin(async move { pending.write(first).await }));
}

/// The same for an ending whose owner has gone, before its first answer.
pub(crate) fn write_left_behind(inner: &Arc<Inner>, flight: Arc<Flight>, ending: Ending, swapping: Swapping) {
    let pending = PendingEnding::new(inner, flight, ending, None);
    inner.runtime.spawn(Box::pin(async move { pending.write(swapping.await).await }));
}

/// An ending that is not in the store yet.
struct PendingEnding {
    /// Weak, so that between tries the engine is not kept alive: after the last handle is dropped, the store is free.
    inner: Weak<Inner>,
    runtime: Arc<dyn Runtime>,
    flight: Arc<Flight>,
    ending: Ending,
    report_to: Option<Sender<Finished>>,
    /// Bytes of the outcome that count against the bound on what could not be written yet.
    counted_bytes: usize,
}

/// What is to be done next about an ending.
enum NextStep {
    Over(Finished),
    Swap(Version),
    /// The store failed.
    Pause(Error),
}

impl PendingEnding {
    fn new(
        inner: &Arc<Inner>,
        flight: Arc<Flight>,
        ending: Ending,
        report_to: Option<Sender<Finished>>,
    ) -> Self {
        let (weak, runtime) = (Arc::downgrade(inner), inner.runtime.clone());
        Self { inner: weak, runtime, flight, ending, report_to, counted_bytes: 0 }
    }

    async fn write(mut self, first: SwapReply) {
        let mut reply = first;
        let mut pause = PAUSE_MIN;
        loop {
            let (Some(inner), Some(running)) = (self.inner.upgrade(), self.flight.finish()) else {
                return self.report(Finished::FencedOff);
            };
            let sent_at = reply.sent_at;
            reply = match self.after(&inner, &running, reply) {
                NextStep::Over(finished) => return self.report(finished),
                NextStep::Swap(version) => {
                    let swap = ending_of(&self.flight, &running, &self.ending, version);
                    inner.group_commit.swap(swap, Urgency::Required).await
                }
                NextStep::Pause(error) => {
                    if pause == PAUSE_MIN {
                        inner.counters.completions_delayed.one();
                        tracing::warn!(id = ?self.flight.id, %error, "the end of a run could not be recorded, retrying");
                        self.bound_bytes(&inner);
                        if matches!(self.ending, Ending::Done(_)) {
                            self.flight.set_unrecorded();
                        }
                    }
                    self.report(Finished::Delayed);
                    if self.is_too_late(&inner, &running) {
                        return;
                    }
                    drop(inner);
                    self.runtime.sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                    self.look(sent_at).await
                }
            };
        }
    }

    /// What an answer of the store means.
    fn after(&self, inner: &Inner, running: &RunningLease, reply: SwapReply) -> NextStep {
        let flight = &self.flight;
        let found = match reply.result {
            Ok(Swapped::Won(version)) => {
                written(inner, flight, &self.ending, version, reply.sent_at);
                return NextStep::Over(Finished::Recorded);
            }
            // The lease renewer found the lease lost meanwhile, and counted it: it is not tried again.
            _ if !flight.is_running() => {
                if matches!(self.ending, Ending::Done(_)) {
                    inner.counters.completions_given_up.one();
                }
                return NextStep::Over(Finished::FencedOff);
            }
            Ok(Swapped::Lost(found)) => found,
            Ok(Swapped::Failed(error)) | Err(error) => return NextStep::Pause(error),
        };
        match open_any(found.as_ref()) {
            Ok(receipt) => self.after_loss(inner, running, receipt, reply.sent_at),
            Err(error) => {
                tracing::error!(id = ?flight.id, %error, "a receipt cannot be read, its ending is not written");
                inner.flights.end(flight, None);
                NextStep::Over(Finished::FencedOff)
            }
        }
    }

    fn after_loss(
        &self,
        inner: &Inner,
        running: &RunningLease,
        found: Option<Receipt>,
        sent_at: Duration,
    ) -> NextStep {
        let flight = &self.flight;
        let after =
            transition::after_loss(&flight.id, &running.held, &self.ending, &flight.policy, found.as_ref());
        match after {
            AfterLoss::WriteAgain(version) => return NextStep::Swap(version),
            AfterLoss::Recorded => count(inner, &self.ending),
            AfterLoss::FencedOff => {
                inner.counters.fenced_off.one();
                self.warn_of_contradiction(running, found.as_ref());
            }
        }
        inner.flights.end(flight, found.and_then(|receipt| receipt.aged(sent_at, inner.now())));
        NextStep::Over(match after {
            AfterLoss::Recorded => Finished::Recorded,
            _ => Finished::FencedOff,
        })
    }

    fn warn_of_contradiction(&self, running: &RunningLease, found: Option<&Receipt>) {
        let (id, fence) = (&self.flight.id, running.held.claim.fence.0);
        match (&self.ending, found.map(|found| &found.status)) {
            (Ending::Done(_), Some(Status::Done(Done { claim, end: End::Outcome(_), .. })))
                if claim.is_same_run(&running.held.claim) =>
            {
                tracing::warn!(
                    ?id,
                    fence,
                    "this run was settled with another outcome than it had; the settlement is kept"
                );
            }
            _ => tracing::warn!(?id, fence, "a former owner came too late"),
        }
    }

    /// What is there now, as the answer to a write that was not made.
    async fn look(&self, before: Duration) -> SwapReply {
        let Some(inner) = self.inner.upgrade() else {
            return SwapReply { sent_at: before, result: Ok(Swapped::Lost(None)) };
        };
        let sent_at = inner.now();
        let found = inner.load_all(std::slice::from_ref(&self.flight.id)).await;
        let found = found.and_then(|mut found| found.pop().expect("one answer to one id, checked"));
        SwapReply { sent_at, result: found.map(|found: Option<Found>| Swapped::Lost(found)) }
    }

    /// Under `Retry` another owner may be running it once the lease has ended.
    fn is_too_late(&self, inner: &Inner, running: &RunningLease) -> bool {
        if running.held.on_unknown == OnUnknown::Hold || inner.now() < running.lease_ends {
            return false;
        }
        inner.counters.completions_given_up.one();
        tracing::error!(id = ?self.flight.id, "the lease ended before the end of a run could be recorded");
        inner.flights.end(&self.flight, None);
        true
    }

    /// Outcomes that wait for the store are bounded in bytes. Beyond that bodies are left out, never outcomes.
    fn bound_bytes(&mut self, inner: &Inner) {
        let Ending::Done(outcome) = &mut self.ending else { return };
        let bytes = outcome.body().len();
        let before = inner.unrecorded_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > inner.limits.unrecorded_bytes_max {
            inner.unrecorded_bytes.fetch_sub(bytes, Ordering::Relaxed);
            inner.counters.bodies_omitted.one();
            *outcome = outcome.without_body("not stored: too much waited for the store at that time");
        } else {
            self.counted_bytes = bytes;
        }
    }

    fn report(&mut self, finished: Finished) {
        if let Some(report_to) = self.report_to.take() {
            report_to.send(finished);
        }
    }
}

impl Drop for PendingEnding {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            inner.unrecorded_bytes.fetch_sub(self.counted_bytes, Ordering::Relaxed);
        }
    }
}
