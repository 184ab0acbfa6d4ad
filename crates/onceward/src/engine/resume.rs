//! Going on with a run whose owner fell silent, on behalf of nobody who asks.
//!
//! The takeover is a swap on the very receipt that was found, so nothing is ever begun that is not there
//! any more. And where no outcome is reached (an error, a panic, being dropped), the receipt stays as it
//! is and its lease ends by itself, exactly as after a crash: given back, it would be forgotten half done.

use std::future::Future;
use std::sync::Arc;

use super::abandoned::Abandoned;
use super::answer::Answer;
use super::flight::{Joined, Named, Running};
use super::group::{Trip, Urgency};
use super::inner::Inner;
use super::lease::Lease;
use super::owner::{Owner, Unfinished};
use super::run::{Worked, finish, work_under};
use crate::ask::Ask;
use crate::codec::FENCE_IS_VERSION;
use crate::decide::{Decision, Takeover};
use crate::error::Result;
use crate::outcome::{Outcome, Stopped, Verdict};
use crate::policy::{OnFailure, Policy};
use crate::receipt::{Attempt, Claim, Fence, Held, Status};
use crate::store::{Seen, Swapped};

/// What became of an abandoned run.
#[derive(Debug)]
pub(crate) enum Resumed {
    /// It has an outcome, for everyone who asks.
    Finished,
    /// The code did not get to an outcome that is kept. Its words.
    Failed(String),
    /// Somebody else has it, or had it meanwhile.
    Elsewhere,
}

/// Goes on with it, if it is still as it was found and the rules let it be run again.
pub(crate) async fn resume<F, W>(
    inner: Arc<Inner>,
    left: &Abandoned,
    policy: Arc<Policy>,
    work: F,
) -> Result<Resumed>
where
    F: FnOnce(Lease) -> W,
    W: Future<Output = Result<Outcome, Stopped>>,
{
    let attempt = Attempt(inner.world.random());
    let ask = Ask::new(left.id.clone(), left.fingerprint, policy).attempt(attempt);
    if inner.decide(&ask, Some(&left.receipt)) != Decision::Run(Takeover::Lapsed) {
        return Ok(Resumed::Elsewhere);
    }
    // Named by its caller, so that no claim is given back if this is dropped while it asks.
    let flight = match inner.flights.join(&ask.id, &ask.policy, attempt, Named::ByCaller) {
        Joined::Leader(flight) => flight,
        Joined::Waiter(_) => return Ok(Resumed::Elsewhere),
    };
    let mut owner = Owner::new(inner.clone(), flight);
    owner.unfinished = Unfinished::Lapses;
    let lease = ask.policy.lease_duration();
    let claim = Claim { fingerprint: ask.fingerprint, attempt, fence: FENCE_IS_VERSION };
    let held = Status::Held(Held { claim, on_unknown: ask.policy.unknown_rule() });
    let seen = Seen::Version(left.receipt.version);
    let swapping = inner.swap(&ask.id, seen, Some((held, Some(lease))), Urgency::CanWait);
    let Trip { sent_at, result } = owner.claim(swapping).await;
    let version = match result {
        Ok(Swapped::Won(version)) => version,
        Ok(Swapped::Lost(_)) => {
            owner.end(None);
            return Ok(Resumed::Elsewhere);
        }
        Err(error) => return Err(owner.fail(error)),
    };
    let fence = Fence(version.0);
    let running = Running::new(Claim { fence, ..claim }, version, sent_at, lease);
    if inner.now() >= running.lease_ends {
        // The answer took so long that the lease may be over: no work begins under such a one.
        owner.end(None);
        return Ok(Resumed::Elsewhere);
    }
    inner.counters.takeovers.one();
    owner.claimed(running);
    owner.begin_work();
    let lease = Lease::new(inner.clone(), owner.flight.clone(), fence, ask.fingerprint);
    match work_under(&owner, lease, work).await {
        Worked::Finished(Ok(outcome)) if is_kept(&outcome, &ask.policy) => {
            let answer = finish(&inner, &ask, &mut owner, fence, Worked::Finished(Ok(outcome))).await?;
            Ok(if matches!(answer, Answer::Ran(_)) { Resumed::Finished } else { Resumed::Elsewhere })
        }
        Worked::Finished(Ok(_)) => {
            owner.hand_over();
            Ok(Resumed::Failed("it failed, and its policy says that a failure may be tried again".into()))
        }
        Worked::Finished(Err(stopped)) => {
            owner.hand_over();
            Ok(Resumed::Failed(stopped.to_string()))
        }
        Worked::Panicked(_) => {
            owner.hand_over();
            Ok(Resumed::Failed("it panicked".into()))
        }
        Worked::LeaseLost => {
            owner.hand_over();
            Ok(Resumed::Elsewhere)
        }
    }
}

fn is_kept(outcome: &Outcome, policy: &Policy) -> bool {
    outcome.verdict() == Verdict::Succeeded || policy.failure_rule() == OnFailure::Replay
}
