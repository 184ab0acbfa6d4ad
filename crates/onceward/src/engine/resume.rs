//! Resumes an intent without an ask: one that waits, or whose lease has expired. The claim is a swap on exactly the
//! receipt that was found, so nothing is begun if it has changed.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use super::acquire::count_lapse;
use super::answer::Answer;
use super::claim_guard::ClaimGuard;
use super::group_commit::{SendWhen, SwapReply, Swapping, Urgency};
use super::in_flight::{AttemptSource, FlightRole, RunningLease};
use super::inner::Inner;
use super::lease::Lease;
use super::run::{WorkEnd, finish, work_under};
use super::sealed::seal_claim;
use super::worker_report::Worked;
use crate::ask::Ask;
use crate::decide::{Decision, Refusal, Takeover};
use crate::error::Result;
use crate::id::Id;
use crate::outcome::{Outcome, Stopped};
use crate::policy::Policy;
use crate::receipt::{Attempt, Fence, Held, Owner, Receipt, UnknownReason};
use crate::store::{Seen, Swap, Swapped};
use crate::transition::{self, Finish};

/// Resumes it, if it is still as it was found and the rules let it be run.
pub(crate) async fn resume<F, W>(
    inner: &Arc<Inner>,
    id: &Id,
    found: &Receipt,
    policy: Arc<Policy>,
    send_when: SendWhen,
    work: F,
) -> Result<Worked>
where
    F: FnOnce(Lease) -> W,
    W: Future<Output = Result<Outcome, Stopped>>,
{
    let submit = |claim| inner.group_commit.swap_with(claim, Urgency::Refusable, send_when);
    match Resumption::prepare(inner, id, found, policy, send_when, submit) {
        Prepared::Claim(resumption) => resumption.run(work, || {}).await,
        Prepared::Dead => mark_dead(inner, id, found).await,
        Prepared::NotOurs => Ok(Worked::TakenElsewhere),
    }
}

/// What can be done about an intent that was found.
pub(crate) enum Prepared {
    /// Its claim was submitted.
    Claim(Box<Resumption>),
    /// Its tries are used up, which is not written down yet.
    Dead,
    /// Another run has it, or nothing is to be done.
    NotOurs,
}

/// An intent whose claim was submitted and not yet answered. Dropping it releases the claim.
pub(crate) struct Resumption {
    ask: Ask,
    held: Held,
    guard: ClaimGuard,
}

impl Resumption {
    /// Submits the claim of an intent, if the rules let it be run.
    pub(crate) fn prepare(
        inner: &Arc<Inner>,
        id: &Id,
        found: &Receipt,
        policy: Arc<Policy>,
        send_when: SendWhen,
        submit: impl FnOnce(Swap) -> Swapping,
    ) -> Prepared {
        let Some(claim) = found.status.claim() else { return Prepared::NotOurs };
        let attempt = Attempt(inner.runtime.random());
        // A run that nobody has kept an input for becomes one that is tried again until it is done or dead.
        let mut ask = Ask::new(id.clone(), claim.fingerprint, policy).with_input(Vec::new());
        ask.attempt = Some(attempt);
        let takeover = match inner.decide(&ask, Some(found)) {
            Decision::Run(takeover @ (Takeover::Waiting | Takeover::Lapsed)) => takeover,
            Decision::Refuse(Refusal::Dead { .. }) => return Prepared::Dead,
            _ => return Prepared::NotOurs,
        };
        let flight = match inner.flights.join(&ask.id, &ask.policy, attempt, AttemptSource::ByEngine) {
            FlightRole::Leader(flight) => flight,
            FlightRole::Waiter(_) => return Prepared::NotOurs,
        };
        let mut guard = ClaimGuard::new(inner.clone(), flight, Owner::Run).with_send_when(send_when);
        let held = transition::claim(&ask, attempt, Owner::Run, takeover, Some(found));
        let lease = inner.lease_in_store(&ask.policy);
        guard.submitted(submit(seal_claim(&ask.id, Seen::Version(found.version), &held, lease)));
        Prepared::Claim(Box::new(Self { ask, held, guard }))
    }

    /// Waits for the claim and does the work. `work_ended` is called when the work is over, before its end is
    /// written; and also if it never begins.
    pub(crate) async fn run<F, W>(self, work: F, work_ended: impl FnOnce()) -> Result<Worked>
    where
        F: FnOnce(Lease) -> W,
        W: Future<Output = Result<Outcome, Stopped>>,
    {
        let Self { ask, mut held, mut guard } = self;
        let work_ended = OnDrop(Some(work_ended));
        let inner = guard.inner.clone();
        let SwapReply { sent_at, result } = guard.reply().await;
        let version = match result {
            Ok(Swapped::Won(version)) => version,
            Ok(Swapped::Lost(_)) => {
                guard.end(None);
                return Ok(Worked::TakenElsewhere);
            }
            Ok(Swapped::Failed(error)) | Err(error) => return Err(guard.fail(error)),
        };
        held.claim.fence = Fence(version.0);
        let running = RunningLease::new(held, version, sent_at, ask.policy.lease());
        if inner.now() >= running.lease_ends {
            // The answer took so long that the lease may be over: no work begins under such a lease.
            drop(guard);
            return Ok(Worked::Suspended);
        }
        let last = running.held.job.as_ref().is_some_and(|job| job.started >= ask.policy.tries_max());
        guard.claimed(running, true);
        guard.begin_work();
        let lease = Lease::of(&guard, ask.fingerprint);
        let failed = |why: String| if last { Worked::Dead } else { Worked::Failed(why) };
        let worked = work_under(&guard, pin!(async move { work(lease).await })).await;
        drop(work_ended);
        if guard.flight.committed().is_some() {
            return Ok(Worked::Finished);
        }
        match worked {
            WorkEnd::Finished(Ok(outcome)) => {
                let kept = !Finish::frees_key(&outcome, &ask.policy);
                let answer = finish(&inner, &ask, &mut guard, WorkEnd::Finished(Ok(outcome))).await?;
                Ok(match answer {
                    Answer::Completed(_) if kept => Worked::Finished,
                    Answer::Completed(_) => failed("it failed, and its policy retries failures".into()),
                    Answer::Refused(_) => Worked::TakenElsewhere,
                })
            }
            WorkEnd::Finished(Err(stopped)) => {
                guard.finish(Finish::of_stopped(&stopped)).await;
                Ok(match stopped.suspended() {
                    Some(_) => Worked::Suspended,
                    None => failed(stopped.to_string()),
                })
            }
            WorkEnd::Panicked(_) => {
                guard.finish(Finish::Unknown(UnknownReason::Panicked, "it panicked".into())).await;
                Ok(failed("it panicked".into()))
            }
            WorkEnd::LeaseLost => {
                guard.detach();
                Ok(Worked::TakenElsewhere)
            }
        }
    }
}

/// Calls something once, at the latest when it is dropped.
struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}

/// Writes down that the tries of a lapsed run are used up.
async fn mark_dead(inner: &Inner, id: &Id, found: &Receipt) -> Result<Worked> {
    let Some(write) = transition::exhaust(found) else { return Ok(Worked::Dead) };
    let seen = Seen::Version(found.version);
    match inner.swap(id, seen, Some(&write), Urgency::Required).await.result? {
        Swapped::Won(_) => {
            count_lapse(inner, id, &write.status);
            Ok(Worked::Dead)
        }
        Swapped::Lost(_) => Ok(Worked::TakenElsewhere),
        Swapped::Failed(error) => Err(error),
    }
}
