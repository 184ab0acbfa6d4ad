//! Runs the work of one ask, from claim to ending.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use super::acquire::{Acquired, acquire};
use super::answer::{Answer, Completed, Recorded};
use super::answer_without_run::answer_of_others;
use super::claim_guard::ClaimGuard;
use super::finish::shortened;
use super::inner::Inner;
use super::lease::Lease;
use crate::ask::Ask;
use crate::error::{Error, ErrorKind, Result};
use crate::outcome::{Effect, Outcome, Stopped};
use crate::receipt::{Owner, UnknownReason};
use crate::transition::Finish;

type Panic = Box<dyn std::any::Any + Send>;

/// How the work ended.
pub(crate) enum WorkEnd {
    Finished(Result<Outcome, Stopped>),
    Panicked(Panic),
    LeaseLost,
}

// An async fn keeps every argument twice, which would make every run larger.
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
        let mut guard = match acquire(&inner, &mut ask, Owner::Run).await? {
            Acquired::Run(guard) => guard,
            Acquired::Answer(answer) => return Ok(answer),
        };
        let lease = Lease::of(&guard, ask.fingerprint);
        guard.begin_work();
        let worked = work_under(&guard, pin!(async move { work(lease).await })).await;
        finish(&inner, &ask, &mut guard, worked).await
    }
}

/// Does the work, unless the lease is lost meanwhile. The work comes as a future that calls it when it is first polled: it
/// is then made in its place, and a panic of the call is one of the work. It is large, and is not moved.
pub(crate) fn work_under<W>(guard: &ClaimGuard, mut work: Pin<&mut W>) -> impl Future<Output = WorkEnd>
where
    W: Future<Output = Result<Outcome, Stopped>>,
{
    poll_fn(move |cx| {
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Ready(finished)) => return Poll::Ready(WorkEnd::Finished(finished)),
            Ok(Poll::Pending) => {}
            Err(panic) => return Poll::Ready(WorkEnd::Panicked(panic)),
        }
        guard.flight.poll_lost(cx).map(|()| WorkEnd::LeaseLost)
    })
}

/// Writes the end of the work, and makes the answer of it.
pub(crate) async fn finish(
    inner: &Arc<Inner>,
    ask: &Ask,
    guard: &mut ClaimGuard,
    worked: WorkEnd,
) -> Result<Answer> {
    if let Some(completed) = guard.flight.committed() {
        // Whatever the work said after that: what was committed is the answer.
        if let WorkEnd::Panicked(panic) = worked {
            resume_unwind(panic)
        }
        return Ok(Answer::Completed(completed));
    }
    match worked {
        WorkEnd::Finished(Err(_)) if guard.flight.is_taken() => {
            guard.detach();
            Box::pin(answer_of_others(inner, ask)).await
        }
        WorkEnd::LeaseLost => {
            guard.detach();
            Box::pin(answer_of_others(inner, ask)).await
        }
        WorkEnd::Panicked(panic) => {
            guard.finish(Finish::Unknown(UnknownReason::Panicked, "it panicked".into())).await;
            resume_unwind(panic)
        }
        WorkEnd::Finished(Err(stopped)) => {
            guard.finish(Finish::of_stopped(&stopped)).await;
            let error =
                Error::new(ErrorKind::Stopped, format!("the work ended without an outcome: {stopped}"));
            Err(if stopped.effect() == Effect::Maybe { error.maybe_applied() } else { error })
        }
        WorkEnd::Finished(Ok(outcome)) => {
            let fence = guard.fence();
            let input_bytes = guard.flight.kept_input_bytes();
            let retry = Finish::frees_key(&outcome, &ask.policy);
            // A body is not copied for every run: the guard gives it back.
            let (ending, kept) = match shortened(inner, &outcome, input_bytes) {
                None if !retry => (Finish::Done(outcome), None),
                short => (Finish::of(short.unwrap_or_else(|| outcome.clone()), &ask.policy), Some(outcome)),
            };
            let recorded = match guard.finish(ending).await {
                // It is not meant to be recorded, however late the release reaches the store.
                _ if retry => Recorded::Released,
                // Every caller gets the same answer: the recorded one.
                None => return Box::pin(answer_of_others(inner, ask)).await,
                Some(recorded) => recorded,
            };
            let outcome = kept.or_else(|| guard.take_outcome()).expect("an ending that took it has it");
            let expires_in = match recorded {
                Recorded::Released => None,
                _ => ask.policy.retention_of(&outcome).duration(),
            };
            Ok(Answer::Completed(Completed { outcome, replayed: false, fence, recorded, expires_in }))
        }
    }
}
