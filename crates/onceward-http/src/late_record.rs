//! What becomes of an answer whose receipt could not be written at once, because the store was away at that moment.
//!
//! ```text
//! hold   no other process may run it, and the engine writes the outcome for as long as the process lives:
//!        the answer waits `record_wait`, then it is sent with `Onceward-Recorded: not-yet` and without an expiry
//! retry  another process may run it once the lease has ended: the answer is withheld until it is recorded; if the
//!        lease ends before that, the client gets `outcome-unknown`
//! ```

use onceward::{Answer, Ask, Completed, Fingerprint, Id, OnDuplicate, OnUnknown, Refusal};

use crate::layer::LayerState;

/// What is known of the receipt after the wait.
pub(crate) enum LateRecord {
    /// It is written, and says what was answered.
    Recorded(Completed),
    /// It says something else: it was settled, or another run has taken over.
    Other(Answer),
    /// It is not written yet, and will be for as long as this process lives.
    NotYet,
    /// It was given up: another run may begin.
    GivenUp,
}

/// Waits for the receipt of a run that has ended with this answer.
pub(crate) async fn wait(
    shared: &LayerState,
    id: &Id,
    fingerprint: Fingerprint,
    completed: &Completed,
) -> LateRecord {
    let (route, policy) = (&shared.route, &shared.route.policy);
    let holds = policy.on_unknown() == OnUnknown::Hold;
    let at_most = if holds { route.record_wait } else { policy.lease() };
    let waiting = policy.to_builder().with_on_duplicate(OnDuplicate::Wait(at_most)).build();
    let otherwise = || if holds { LateRecord::NotYet } else { LateRecord::GivenUp };
    let Ok(waiting) = waiting else { return otherwise() };
    shared.metrics.recorded_late.one();
    // As a duplicate in this process, which waits for the run that is being written.
    let ask = Ask::new(id.clone(), fingerprint, waiting);
    match shared.onceward.answer_without_running(&ask).await {
        Ok(Some(Answer::Completed(recorded))) if recorded.outcome == completed.outcome => {
            LateRecord::Recorded(recorded)
        }
        // The body was left out, because too much waited for the store.
        Ok(Some(Answer::Refused(Refusal::ResponseNotStored { .. }))) => {
            LateRecord::Recorded(completed.clone())
        }
        Ok(Some(Answer::Refused(Refusal::InProgress { .. } | Refusal::OutcomeUnknown)) | None) | Err(_) => {
            otherwise()
        }
        Ok(Some(other)) => LateRecord::Other(other),
    }
}
