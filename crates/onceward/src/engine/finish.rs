//! Writes the end of a run (outcome, release or unknown) against the version of the lease, and retries until it is
//! written or another owner has replaced it. Under `Hold` no other process may run the intent, so its outcome is
//! written for as long as the process lives; under `Retry` until the lease has ended.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::answer::Recorded;
use super::batched_load::load_batched;
use super::front::put_ended;
use super::group_commit::{SendWhen, SwapReply, Swapping, Urgency};
use super::in_flight::{Flight, RunningLease};
use super::inner::Inner;
use super::oneshot::Sender;
use super::sealed::{open_any, seal};
use super::unknown_log;
use crate::error::{Applied, Error, ErrorKind};
use crate::outcome::{Outcome, Snapshot};
use crate::policy::OnUnknown;
use crate::receipt::Receipt;
use crate::runtime::Runtime;
use crate::store::{Age, Due, Seen, Swap, Swapped, Version};
use crate::transition::{self, AfterLoss, Finish, Write};

/// The outcome as it may be stored together with an input of this length: a body over the bound is left out, and said
/// to be.
pub(crate) fn bounded(inner: &Inner, outcome: &Outcome, input_bytes: usize) -> Outcome {
    shortened(inner, outcome, input_bytes).unwrap_or_else(|| outcome.clone())
}

/// The same; `None` if the outcome may be stored as it is.
pub(crate) fn shortened(inner: &Inner, outcome: &Outcome, input_bytes: usize) -> Option<Outcome> {
    let bytes_max = inner.limits.body_bytes_max.min(inner.content_bytes_max.saturating_sub(input_bytes));
    match outcome.snapshot() {
        Snapshot::Kept(body) if body.len() > bytes_max => {
            inner.counters.bodies_omitted.one();
            let note = format!("{} bytes, {bytes_max} are the most that is stored", body.len());
            Some(outcome.without_body(note))
        }
        _ => None,
    }
}

/// Submits the ending of a run. `None` if there is no lease to end.
pub(crate) fn submit(
    inner: &Inner,
    flight: &Flight,
    ending: &mut Finish,
    send_when: SendWhen,
) -> Option<Swapping> {
    let swap = flight.finish_with(|running| {
        let seen = Seen::Version(running.version);
        let sealed = |write: Option<&Write>| seal(&flight.id, seen, write);
        transition::look_at_end(&flight.id, &running.held, ending, &flight.policy, sealed)
    })?;
    if matches!(ending, Finish::Done(_)) {
        flight.set_unrecorded();
    }
    Some(inner.group_commit.swap_with(swap, Urgency::Required, send_when))
}

fn ending_of(flight: &Flight, running: &RunningLease, ending: &Finish, version: Version) -> Swap {
    let write = transition::end(&flight.id, &running.held, ending, &flight.policy);
    seal(&flight.id, Seen::Version(version), write.as_ref())
}

/// The ending was just written, as `version`: wakes the asks of this process that wait for it.
pub(crate) fn written(
    inner: &Inner,
    flight: &Arc<Flight>,
    ending: &Finish,
    version: Version,
    sent_at: Duration,
) {
    count(inner, ending);
    unknown_log::ended(&flight.id, ending, &flight.policy);
    put_ended(inner, flight, ending, version, sent_at);
    inner.flights.end_awaited(flight, |held| {
        let write = transition::end(&flight.id, held, ending, &flight.policy)?;
        let due = write.due_in.map_or(Due::Never, Due::In);
        let receipt = Receipt { version, due, age: Age::default(), status: write.status };
        receipt.aged(sent_at, inner.now())
    });
}

fn count(inner: &Inner, ending: &Finish) {
    match ending {
        Finish::Done(_) => inner.counters.completions.one(),
        Finish::Release(_) | Finish::Suspend(_) => inner.counters.releases.one(),
        Finish::Unknown(..) => inner.counters.unknowns.one(),
    }
}

/// Shortest and longest pause between two tries to reach a store that fails.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Continues after a first answer, in its own task. `report_to` gets the first result that is certain: whether it is in the
/// store, or `None` if another owner has the receipt now and nothing was changed.
pub(crate) fn write_until_settled(
    inner: &Arc<Inner>,
    flight: Arc<Flight>,
    ending: Finish,
    first: SwapReply,
    report_to: Option<Sender<Option<Recorded>>>,
) {
    let pending = PendingEnding::new(inner, flight, ending, report_to);
    inner.runtime.spawn(Box::pin(async move { pending.write(first).await }));
}

/// The same for an ending whose owner has gone, before its first answer.
pub(crate) fn write_left_behind(inner: &Arc<Inner>, flight: Arc<Flight>, ending: Finish, swapping: Swapping) {
    let pending = PendingEnding::new(inner, flight, ending, None);
    inner.runtime.spawn(Box::pin(async move { pending.write(swapping.await).await }));
}

/// An ending that is not in the store yet.
struct PendingEnding {
    /// Weak, so that between tries the engine is not kept alive: after the last handle is dropped, the store is free.
    inner: Weak<Inner>,
    runtime: Arc<dyn Runtime>,
    flight: Arc<Flight>,
    ending: Finish,
    report_to: Option<Sender<Option<Recorded>>>,
    /// Bytes of the outcome that count against the bound on what could not be written yet.
    counted_bytes: usize,
    /// Somebody has settled the run otherwise, which is counted once.
    contradicted: bool,
}

/// What is to be done next about an ending.
enum NextStep {
    Over(Option<Recorded>),
    Swap(Version),
    /// The store failed.
    Pause(Error),
    /// The store will never take it as it is.
    LeaveOut(Error),
}

impl PendingEnding {
    fn new(
        inner: &Arc<Inner>,
        flight: Arc<Flight>,
        ending: Finish,
        report_to: Option<Sender<Option<Recorded>>>,
    ) -> Self {
        let (weak, runtime) = (Arc::downgrade(inner), inner.runtime.clone());
        Self { inner: weak, runtime, flight, ending, report_to, counted_bytes: 0, contradicted: false }
    }

    async fn write(mut self, first: SwapReply) {
        let mut reply = first;
        let mut pause = PAUSE_MIN;
        loop {
            let (Some(inner), Some(running)) = (self.inner.upgrade(), self.flight.finish()) else {
                return self.report(None);
            };
            let sent_at = reply.sent_at;
            reply = match self.after(&inner, &running, reply) {
                NextStep::Over(finished) => return self.report(finished),
                NextStep::Swap(version) => {
                    let swap = ending_of(&self.flight, &running, &self.ending, version);
                    inner.group_commit.swap(swap, Urgency::Required).await
                }
                NextStep::LeaveOut(error) => {
                    if !self.leave_body_out(&inner, &error) {
                        self.report(Some(Recorded::NotYet));
                        return;
                    }
                    drop(inner);
                    self.read_current(sent_at).await
                }
                NextStep::Pause(error) => {
                    if pause == PAUSE_MIN {
                        inner.counters.completions_delayed.one();
                        tracing::warn!(id = ?self.flight.id, %error, "the end of a run could not be recorded, retrying");
                        self.bound_bytes(&inner);
                    }
                    self.report(Some(Recorded::NotYet));
                    if self.is_too_late(&inner, &running) {
                        return;
                    }
                    drop(inner);
                    self.runtime.sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                    self.read_current(sent_at).await
                }
            };
        }
    }

    /// What an answer of the store means.
    fn after(&mut self, inner: &Inner, running: &RunningLease, reply: SwapReply) -> NextStep {
        let flight = &self.flight;
        let found = match reply.result {
            Ok(Swapped::Won(version)) => {
                written(inner, flight, &self.ending, version, reply.sent_at);
                return NextStep::Over(Some(Recorded::Yes));
            }
            // The lease renewer found the lease lost meanwhile, and counted it: it is not tried again.
            _ if !flight.is_running() => {
                if matches!(self.ending, Finish::Done(_)) {
                    inner.counters.completions_given_up.one();
                }
                return NextStep::Over(None);
            }
            Ok(Swapped::Lost(found)) => found,
            Ok(Swapped::Failed(error)) | Err(error) => {
                let never = error.kind() == ErrorKind::Invalid && error.applied() == Applied::No;
                return if never { NextStep::LeaveOut(error) } else { NextStep::Pause(error) };
            }
        };
        match open_any(found.as_ref()) {
            Ok(receipt) => self.after_loss(inner, running, receipt, reply.sent_at),
            Err(error) => {
                tracing::error!(id = ?flight.id, %error, "a receipt cannot be read, its ending is not written");
                inner.flights.end(flight, None);
                NextStep::Over(None)
            }
        }
    }

    fn after_loss(
        &mut self,
        inner: &Inner,
        running: &RunningLease,
        found: Option<Receipt>,
        sent_at: Duration,
    ) -> NextStep {
        let flight = &self.flight;
        let claim = &running.held.claim;
        let settled_otherwise =
            found.as_ref().filter(|found| transition::is_settled_otherwise(claim, &self.ending, found));
        if let Some(found) = settled_otherwise
            && !std::mem::replace(&mut self.contradicted, true)
        {
            inner.counters.settlements_contradicted.one();
            unknown_log::settled_otherwise(&flight.id, claim.fence, found);
        }
        let after =
            transition::after_loss(&flight.id, &running.held, &self.ending, &flight.policy, found.as_ref());
        match after {
            AfterLoss::WriteAgain(version) => return NextStep::Swap(version),
            AfterLoss::Recorded => count(inner, &self.ending),
            AfterLoss::FencedOff => {
                inner.counters.fenced_off.one();
                if !self.contradicted {
                    unknown_log::too_late(&flight.id, claim.fence);
                }
            }
        }
        inner.flights.end(flight, found.and_then(|receipt| receipt.aged(sent_at, inner.now())));
        NextStep::Over(match after {
            AfterLoss::Recorded => Some(Recorded::Yes),
            _ => None,
        })
    }

    /// What is there now, as the answer to a write that was not made.
    async fn read_current(&self, before: Duration) -> SwapReply {
        let Some(inner) = self.inner.upgrade() else {
            return SwapReply { sent_at: before, result: Ok(Swapped::Lost(None)) };
        };
        let sent_at = inner.now();
        let found = load_batched(&inner, &self.flight.id).await;
        SwapReply { sent_at, result: found.map(Swapped::Lost) }
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
        let Finish::Done(outcome) = &mut self.ending else { return };
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

    /// Leaves out the body of an outcome that the store refuses. If it refuses that too, the ending cannot be recorded:
    /// the lease will end, and the outcome is unknown by then.
    fn leave_body_out(&mut self, inner: &Inner, error: &Error) -> bool {
        let id = &self.flight.id;
        if let Finish::Done(outcome) = &mut self.ending
            && matches!(outcome.snapshot(), Snapshot::Kept(_))
        {
            tracing::error!(?id, %error, "the store refuses an outcome, its body is not stored");
            inner.counters.bodies_omitted.one();
            *outcome = outcome.without_body("not stored: the store refused it");
            return true;
        }
        tracing::error!(?id, %error, "the store refuses the end of a run, it is not recorded");
        inner.counters.completions_given_up.one();
        inner.flights.end(&self.flight, None);
        false
    }

    fn report(&mut self, finished: Option<Recorded>) {
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
