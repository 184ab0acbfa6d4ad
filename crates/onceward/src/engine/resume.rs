//! Resumes an intent without an ask: one that waits, or whose lease has expired. The claim is a swap on exactly the
//! receipt that was found, so nothing is begun if it has changed.

use std::future::Future;
use std::sync::Arc;

use super::acquire::count_lapse;
use super::answer::Answer;
use super::claim_guard::ClaimGuard;
use super::group_commit::{SendWhen, SwapReply, Urgency};
use super::in_flight::{AttemptSource, FlightRole, RunningLease};
use super::inner::Inner;
use super::lease::Lease;
use super::run::{WorkEnd, finish, work_under};
use super::sealed::seal;
use super::worker::Worked;
use crate::ask::Ask;
use crate::decide::{Decision, Refusal, Takeover};
use crate::error::Result;
use crate::id::Id;
use crate::outcome::{Outcome, Stopped};
use crate::policy::Policy;
use crate::receipt::{Attempt, Fence, Owner, Receipt, UnknownReason};
use crate::store::{Seen, Swapped};
use crate::transition::{self, Ending};

/// Resumes it, if it is still as it was found and the rules let it be run.
pub(crate) async fn resume<F, W>(
    inner: Arc<Inner>,
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
    let Some(claim) = found.status.claim() else { return Ok(Worked::TakenElsewhere) };
    let attempt = Attempt(inner.runtime.random());
    // A run that nobody has kept an input for becomes one that is tried again until it is done or dead.
    let mut ask = Ask::new(id.clone(), claim.fingerprint, policy).with_input(Vec::new());
    ask.attempt = Some(attempt);
    let takeover = match inner.decide(&ask, Some(found)) {
        Decision::Run(takeover @ (Takeover::Waiting | Takeover::Lapsed)) => takeover,
        Decision::Refuse(Refusal::Dead { .. }) => return mark_dead(&inner, id, found).await,
        _ => return Ok(Worked::TakenElsewhere),
    };
    let flight = match inner.flights.join(&ask.id, &ask.policy, attempt, AttemptSource::ByEngine) {
        FlightRole::Leader(flight) => flight,
        FlightRole::Waiter(_) => return Ok(Worked::TakenElsewhere),
    };
    let mut guard = ClaimGuard::new(inner.clone(), flight, Owner::Run).with_send_when(send_when);
    let mut held = transition::claim(&ask, attempt, Owner::Run, takeover, Some(found));
    let write = transition::hold(held.clone(), &ask.policy);
    let swap = seal(&ask.id, Seen::Version(found.version), Some(&write));
    let swapping = inner.group_commit.swap_with(swap, Urgency::Refusable, send_when);
    let SwapReply { sent_at, result } = guard.claim(swapping).await;
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
    inner.counters.takeovers.one();
    let last = running.held.job.as_ref().is_some_and(|job| job.started >= ask.policy.tries_max());
    guard.claimed(running);
    guard.begin_work();
    let lease = Lease::of(&guard, ask.fingerprint);
    let failed = |why: String| if last { Worked::Dead } else { Worked::Failed(why) };
    let worked = work_under(&guard, lease, work).await;
    if guard.flight.committed().is_some() {
        return Ok(Worked::Finished);
    }
    match worked {
        WorkEnd::Finished(Ok(outcome)) => {
            let kept = !Ending::of(outcome.clone(), &ask.policy).is_release();
            let answer = finish(&inner, &ask, &mut guard, WorkEnd::Finished(Ok(outcome))).await?;
            Ok(match answer {
                Answer::Completed(_) if kept => Worked::Finished,
                Answer::Completed(_) => failed("it failed, and its policy has failures tried again".into()),
                Answer::Refused(_) => Worked::TakenElsewhere,
            })
        }
        WorkEnd::Finished(Err(stopped)) => {
            guard.finish(Ending::of_stopped(&stopped)).await;
            Ok(match stopped.suspended() {
                Some(_) => Worked::Suspended,
                None => failed(stopped.to_string()),
            })
        }
        WorkEnd::Panicked(_) => {
            guard.finish(Ending::Unknown(UnknownReason::Panicked, "it panicked".into())).await;
            Ok(failed("it panicked".into()))
        }
        WorkEnd::LeaseLost => {
            guard.detach();
            Ok(Worked::TakenElsewhere)
        }
    }
}

/// Writes down that the tries of a lapsed run are used up.
async fn mark_dead(inner: &Inner, id: &Id, found: &Receipt) -> Result<Worked> {
    let Some(write) = transition::exhaust(found) else { return Ok(Worked::Dead) };
    let seen = Seen::Version(found.version);
    match inner.swap(id, seen, Some(&write), Urgency::Required).await.result? {
        Swapped::Won(_) => {
            count_lapse(inner, &write.status);
            Ok(Worked::Dead)
        }
        Swapped::Lost(_) => Ok(Worked::TakenElsewhere),
        Swapped::Failed(error) => Err(error),
    }
}
