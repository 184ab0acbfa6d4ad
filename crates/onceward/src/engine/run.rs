//! One ask with its work, from claim to ending.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use super::answer::{Answer, Ran, Recorded};
use super::conclude::{Concluded, Ending, bounded};
use super::inner::Inner;
use super::lead::{Led, lead, look};
use super::lease::Lease;
use super::owner::Owner;
use crate::ask::Ask;
use crate::error::{Error, ErrorKind, Result};
use crate::outcome::{Effect, Outcome, Stopped, Verdict};
use crate::policy::OnFailure;
use crate::receipt::{Doubt, Fence};

type Panic = Box<dyn std::any::Any + Send>;

/// How the work ended.
pub(crate) enum Worked {
    Finished(Result<Outcome, Stopped>),
    Panicked(Panic),
    LeaseLost,
}

// An async fn keeps every argument twice, and whoever runs an intent carries them along.
#[expect(clippy::manual_async_fn, reason = "see above")]
pub(crate) fn run<F, W>(
    inner: Arc<Inner>,
    mut ask: Ask,
    work: F,
) -> impl Future<Output = Result<Answer>> + use<F, W>
where
    F: FnOnce(Lease) -> W,
    W: Future<Output = Result<Outcome, Stopped>>,
{
    async move {
        let (mut owner, fence) = match lead(&inner, &mut ask).await? {
            Led::Run(owner, claim) => (owner, claim.fence),
            Led::Answer(answer) => return Ok(answer),
        };
        let lease = Lease::new(inner.clone(), owner.flight.clone(), fence, ask.fingerprint);
        owner.begin_work();
        let worked = work_under(&owner, lease, work).await;
        finish(&inner, &ask, &mut owner, fence, worked).await
    }
}

/// Does the work, unless the lease is lost meanwhile.
#[expect(clippy::manual_async_fn, reason = "as above")]
pub(crate) fn work_under<F, W>(owner: &Owner, lease: Lease, work: F) -> impl Future<Output = Worked>
where
    F: FnOnce(Lease) -> W,
    W: Future<Output = Result<Outcome, Stopped>>,
{
    async move {
        let made = match catch_unwind(AssertUnwindSafe(|| work(lease))) {
            Ok(made) => made,
            Err(panic) => return Worked::Panicked(panic),
        };
        let mut made = pin!(made);
        poll_fn(|cx| {
            match catch_unwind(AssertUnwindSafe(|| made.as_mut().poll(cx))) {
                Ok(Poll::Ready(finished)) => return Poll::Ready(Worked::Finished(finished)),
                Ok(Poll::Pending) => {}
                Err(panic) => return Poll::Ready(Worked::Panicked(panic)),
            }
            owner.flight.poll_lost(cx).map(|()| Worked::LeaseLost)
        })
        .await
    }
}

pub(crate) async fn finish(
    inner: &Arc<Inner>,
    ask: &Ask,
    owner: &mut Owner,
    fence: Fence,
    worked: Worked,
) -> Result<Answer> {
    match worked {
        Worked::LeaseLost => {
            owner.hand_over();
            Box::pin(look(inner, ask)).await
        }
        Worked::Panicked(panic) => {
            owner.conclude(Ending::in_doubt(&ask.policy, Doubt::Panicked)).await;
            resume_unwind(panic)
        }
        Worked::Finished(Err(stopped)) => {
            let (ending, applied) = match stopped.effect() {
                Effect::None => (Ending::Release(Effect::None), false),
                Effect::Maybe => (Ending::in_doubt(&ask.policy, Doubt::Reported), true),
            };
            owner.conclude(ending).await;
            let error =
                Error::new(ErrorKind::Stopped, format!("the work ended without an outcome: {stopped}"));
            Err(if applied { error.maybe_applied() } else { error })
        }
        Worked::Finished(Ok(outcome)) => {
            let retry = outcome.verdict() == Verdict::Failed && ask.policy.failure_rule() == OnFailure::Retry;
            let ending =
                if retry { Ending::Release(Effect::None) } else { Ending::Done(bounded(inner, &outcome)) };
            let recorded = match owner.conclude(ending).await {
                // Everyone gets the same answer: the one that is on record.
                Concluded::FencedOff if !retry => return Box::pin(look(inner, ask)).await,
                Concluded::Delayed => Recorded::NotYet,
                _ if retry => Recorded::Released,
                _ => Recorded::Yes,
            };
            let expires_in = match recorded {
                Recorded::Released => None,
                _ => ask.policy.retention_of(&outcome).duration(),
            };
            Ok(Answer::Ran(Ran { outcome, replayed: false, fence, recorded, expires_in }))
        }
    }
}
