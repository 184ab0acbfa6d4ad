//! Guards a claim from the first write to the last. However the ask ends (it returns, is dropped, panics), the write
//! that its stage requires is made:
//!
//! ```text
//! stage        if it ends here
//! Asking       a claim that is or may be in the store is released, with retries (`owed_releases.rs`)
//! Claimed      released: the work has not begun
//! Working      unknown outcome: by policy held for settlement, or to be run again
//! Finishing    the ending is written by a task of its own (`finish.rs`)
//! Over         nothing
//! ```

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::acquire::Claimant;
use super::answer::Recorded;
use super::finish;
use super::group_commit::{SendWhen, SwapReply, Swapping, Urgency};
use super::in_flight::{AttemptSource, Flight, RunningLease};
use super::inner::Inner;
use super::oneshot::oneshot;
use super::owed_releases::{OwedRelease, ReleaseTarget, release_in_background};
use crate::error::{Applied, Error};
use crate::join::Fault;
use crate::outcome::Outcome;
use crate::receipt::{Fence, Owner, Receipt, UnknownReason};
use crate::store::{Swap, Swapped};
use crate::transition::Finish;

pub(crate) struct ClaimGuard {
    pub(crate) inner: Arc<Inner>,
    pub(crate) flight: Arc<Flight>,
    stage: GuardStage,
    /// How the run ends, from when that is submitted. Beside the stage, which is moved.
    ending: Option<Finish>,
    /// Whether a claim of ours may be in the store although we do not hold its lease: its
    /// answer was lost, or came too late. A write whose answer was lost can still arrive after we have
    /// looked and found nothing, so this never becomes untrue again.
    claim_may_exist: bool,
    /// Whether the answer to a claim was lost.
    answer_lost: bool,
    owner: Owner,
    /// The fence of the claim, once it was won.
    fence: Fence,
    /// When the ending is sent to the store.
    send_when: SendWhen,
}

enum GuardStage {
    Asking(Option<Swapping>),
    Claimed,
    Working,
    Finishing(Swapping),
    Over,
}

// The futures below hold a reference to the guard and nothing twice: they are part of the future of every run,
// and an async fn would keep its arguments in two places.
impl ClaimGuard {
    pub(crate) fn new(inner: Arc<Inner>, flight: Arc<Flight>, owner: Owner) -> Self {
        Self {
            inner,
            flight,
            stage: GuardStage::Asking(None),
            ending: None,
            claim_may_exist: false,
            answer_lost: false,
            owner,
            fence: Fence(0),
            send_when: SendWhen::Now,
        }
    }

    /// Sets when the ending is sent to the store.
    pub(crate) fn with_send_when(mut self, send_when: SendWhen) -> Self {
        self.send_when = send_when;
        self
    }

    /// Guards a claim that was submitted.
    pub(crate) fn submitted(&mut self, swapping: Swapping) {
        self.stage = GuardStage::Asking(Some(swapping));
    }

    /// Waits for the answer to the claim that was submitted, in a way that survives being dropped.
    #[expect(clippy::manual_async_fn, reason = "see above")]
    pub(crate) fn reply(&mut self) -> impl Future<Output = SwapReply> {
        async move {
            let reply = poll_fn(|cx| match &mut self.stage {
                GuardStage::Asking(Some(swapping)) => Pin::new(swapping).poll(cx),
                _ => unreachable!("a claim was submitted"),
            })
            .await;
            self.stage = GuardStage::Asking(None);
            match &reply.result {
                Ok(Swapped::Won(_)) => self.claim_may_exist = true,
                Ok(Swapped::Lost(_)) => {}
                Ok(Swapped::Failed(error)) | Err(error) => {
                    self.answer_lost |= error.applied() == Applied::Maybe;
                    self.claim_may_exist |= self.answer_lost;
                }
            }
            reply
        }
    }

    /// The claim was won, perhaps over another one.
    pub(crate) fn claimed(&mut self, running: RunningLease, took_over: bool) {
        self.stage = GuardStage::Claimed;
        self.fence = running.held.claim.fence;
        // A claim whose answer was lost may still arrive: when this run has ended and the key is free again.
        if self.answer_lost && self.flight.attempt_source == AttemptSource::ByEngine {
            release_in_background(&self.inner, self.owed_release(Some(self.fence)), None, true);
        }
        self.flight.run(running);
        self.inner.counters.claimed(took_over);
        self.inner.lease_renewer.watch(&self.inner, self.flight.policy.lease());
    }

    /// The fence of the claim that was won.
    pub(crate) fn fence(&self) -> Fence {
        self.fence
    }

    /// From here on the effect may happen.
    pub(crate) fn begin_work(&mut self) {
        self.stage = GuardStage::Working;
    }

    /// Ends the guard and writes nothing: the lease belongs to a ticket now, or to the run that took it over.
    pub(crate) fn detach(&mut self) {
        self.stage = GuardStage::Over;
        self.inner.flights.end(&self.flight, None);
    }

    /// Ends the flight with what the store holds.
    pub(crate) fn end(mut self, receipt: Option<Receipt>) {
        self.stage = GuardStage::Over;
        self.inner.flights.end(&self.flight, receipt);
        // A claim whose answer was lost may still arrive.
        if self.claim_may_exist && self.flight.attempt_source == AttemptSource::ByEngine {
            release_in_background(&self.inner, self.owed_release(None), None, true);
        }
    }

    /// Ends the flight with a failure of the store. A claim that must be released is released as for any other end.
    pub(crate) fn fail(self, error: Error) -> Error {
        self.inner.flights.fail(&self.flight, error.clone());
        error
    }

    /// Writes the ending, which [`take_outcome`](Self::take_outcome) gives back. `None` if another owner has the receipt now:
    /// nothing was changed. Dropping this does not stop the writing.
    pub(crate) fn finish(&mut self, ending: Finish) -> impl Future<Output = Option<Recorded>> {
        let ending = self.ending.insert(ending);
        self.stage = match finish::submit(&self.inner, &self.flight, ending, self.send_when) {
            None => GuardStage::Over,
            Some(swapping) => GuardStage::Finishing(swapping),
        };
        async move {
            if let GuardStage::Over = self.stage {
                return None;
            }
            let answer = poll_fn(|cx| match &mut self.stage {
                GuardStage::Finishing(swapping) => Pin::new(swapping).poll(cx),
                _ => unreachable!("set above"),
            })
            .await;
            self.stage = GuardStage::Over;
            let ending = self.ending.as_ref().expect("set above");
            if let Ok(Swapped::Won(version)) = answer.result {
                finish::written(&self.inner, &self.flight, ending, version, answer.sent_at);
                return Some(Recorded::Yes);
            }
            Box::pin(self.finish_later(ending.clone(), answer)).await
        }
    }

    /// The same after an answer that was not the expected one: it is written on by a task of its own.
    async fn finish_later(&self, ending: Finish, answer: SwapReply) -> Option<Recorded> {
        let (report_to, reported) = oneshot();
        finish::write_until_settled(&self.inner, self.flight.clone(), ending, answer, Some(report_to));
        reported.await.unwrap_or(Some(Recorded::NotYet))
    }

    /// The outcome that the run has ended with.
    pub(crate) fn take_outcome(&mut self) -> Option<Outcome> {
        match self.ending.take()? {
            Finish::Done(outcome) => Some(outcome),
            Finish::Release(_) | Finish::Unknown(..) | Finish::Suspend(_) => None,
        }
    }

    /// The claims of this attempt, except the one under which work began.
    fn owed_release(&self, began: Option<Fence>) -> OwedRelease {
        let Flight { id, attempt, policy, .. } = &*self.flight;
        OwedRelease {
            id: id.clone(),
            target: ReleaseTarget { attempt: *attempt, began },
            policy: policy.clone(),
        }
    }
}

impl Claimant for ClaimGuard {
    const IS_LEASE: bool = true;

    // No `async fn`: see above.
    fn write(&mut self, claim: Swap) -> impl Future<Output = (Duration, Result<Swapped, Fault>)> {
        let swapping = self.inner.group_commit.swap(claim, Urgency::Refusable);
        self.submitted(swapping);
        let claiming = self.reply();
        async move {
            let SwapReply { sent_at, result } = claiming.await;
            (sent_at, result.map_err(Fault::Failed))
        }
    }

    async fn abort_write(&mut self) {}

    fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }

    fn claim_may_exist(&self) -> bool {
        self.claim_may_exist
    }

    fn found_own(&mut self) {
        self.claim_may_exist = true;
    }

    fn owner(&self) -> Owner {
        self.owner
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut self.stage, GuardStage::Over);
        match stage {
            GuardStage::Over => {}
            GuardStage::Asking(claim) => {
                // The caller that named the attempt may be asking again with it at this moment, and find this
                // claim to be its own, so it is not released.
                if self.flight.attempt_source == AttemptSource::ByEngine
                    && (claim.is_some() || self.claim_may_exist)
                {
                    release_in_background(&self.inner, self.owed_release(None), claim, self.claim_may_exist);
                }
                self.inner.flights.end(&self.flight, None);
            }
            GuardStage::Claimed => self.finish_in_background(Finish::Suspend(Duration::ZERO)),
            GuardStage::Working => {
                self.finish_in_background(Finish::Unknown(UnknownReason::Dropped, "it was dropped".into()));
            }
            GuardStage::Finishing(swapping) => {
                let ending = self.ending.take().expect("it was submitted");
                finish::write_left_behind(&self.inner, self.flight.clone(), ending, swapping);
            }
        }
    }
}

impl ClaimGuard {
    /// Writes an ending that no caller waits for.
    fn finish_in_background(&self, mut ending: Finish) {
        let submitted = finish::submit(&self.inner, &self.flight, &mut ending, SendWhen::Now);
        let Some(swapping) = submitted else { return };
        finish::write_left_behind(&self.inner, self.flight.clone(), ending, swapping);
    }
}
