//! Signals and timers. A signal is a receipt of a step that another caller writes: the first one counts, the same one
//! again changes nothing, another one under the same name is refused. A timer is the age of a receipt, by the clock of
//! the store.

use std::time::Duration;

use bytes::Bytes;
use onceward::receipt::Status;
use onceward::{Answer, Ask, Changed, Error, ErrorKind, Fingerprint, Id, Onceward, Receipt, Refusal, Result};

use super::decide::Progress;
use super::definition::Definition;
use super::result::Ended;
use super::state::Recorded;

/// How long a saga that waits for a signal sleeps at most.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// A saga that is running when its signal comes may have looked already: how long it is woken again.
const WAKE_FOR: Duration = Duration::from_secs(2);
const WAKE_PAUSE: Duration = Duration::from_millis(20);

/// The result of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signalled {
    /// It is recorded, and its saga is there.
    Delivered,
    /// It is recorded, and there is no such saga yet: it is kept for a bounded time.
    Early,
    /// The same signal was recorded before.
    Repeated,
}

/// The name of the step whose receipt is a signal.
pub(crate) fn step_name(signal: &str) -> String {
    format!("signal:{signal}")
}

/// The name of the step whose receipt says that a timer has ended, or was closed before.
pub(crate) fn fired_name(timer: &str) -> String {
    format!("timer:{timer}/fired")
}

pub(crate) async fn send(
    onceward: &Onceward,
    definition: &Definition,
    saga: &Id,
    name: &str,
    payload: Bytes,
) -> Result<Signalled> {
    let bytes_max = onceward.body_bytes_max();
    if payload.len() >= bytes_max {
        let detail = format!("a signal of {} bytes; at most {} fit", payload.len(), bytes_max - 1);
        return Err(Error::new(ErrorKind::Invalid, detail));
    }
    let fingerprint = Fingerprint::of(&payload);
    let outcome = Ended::Succeeded(payload).to_outcome(bytes_max);
    let ask = Ask::new(saga.step(&step_name(name))?, fingerprint, definition.signal_policy.clone());
    let is_repeated = match onceward.run(ask, async |_| Ok(outcome)).await? {
        Answer::Completed(completed) => completed.replayed,
        Answer::Refused(Refusal::KeyReused) => {
            return Err(conflict(format!("the signal `{name}` was sent before, with another payload")));
        }
        Answer::Refused(Refusal::Closed(_)) => {
            return Err(conflict(format!(
                "the signal `{name}` comes too late: the saga has stopped waiting for it"
            )));
        }
        Answer::Refused(refusal) => return Err(conflict(refusal.to_string())),
    };
    let is_there = wake(onceward, saga).await?.is_some();
    Ok(match (is_repeated, is_there) {
        (true, _) => Signalled::Repeated,
        (false, true) => Signalled::Delivered,
        (false, false) => Signalled::Early,
    })
}

/// Has a saga looked at now: by a worker's next look, or, if it is running, by the next one after that.
pub(crate) async fn wake(onceward: &Onceward, saga: &Id) -> Result<Option<Receipt>> {
    let until = tokio::time::Instant::now() + WAKE_FOR;
    loop {
        let found = match onceward.start_now(saga).await? {
            Changed::Applied => return onceward.receipt(saga).await,
            Changed::NotOwner(found) => found,
        };
        let is_running = matches!(found.as_ref().map(|found| &found.status), Some(Status::Held(_)));
        if !is_running || tokio::time::Instant::now() >= until {
            return Ok(found);
        }
        tokio::time::sleep(WAKE_PAUSE).await;
    }
}

/// What a saga finds that waits for a signal.
pub(crate) async fn read_signal(
    onceward: &Onceward,
    definition: &Definition,
    saga: &Id,
    name: &str,
    within: Option<Duration>,
) -> Result<Recorded> {
    let id = saga.step(&step_name(name))?;
    let found = onceward.receipt(&id).await?;
    let there = recorded(found.as_ref(), within);
    if there.progress != Progress::NotBegun {
        return Ok(there);
    }
    let Some(within) = within else { return Ok(waiting(SLEEP_MAX)) };
    let left = left_of(onceward, definition, saga, &format!("wait:{name}"), within).await?;
    if !left.is_zero() {
        return Ok(waiting(left.min(SLEEP_MAX)));
    }
    // Either the signal comes first, or nobody can send it any more.
    match onceward.close_found(&id, found.as_ref(), &definition.policy).await? {
        Changed::Applied => Ok(none_came(Some(within))),
        Changed::NotOwner(now) => Ok(recorded(now.as_ref(), Some(within))),
    }
}

/// What the receipt of a signal says, or none.
pub(crate) fn recorded(receipt: Option<&Receipt>, within: Option<Duration>) -> Recorded {
    match Recorded::of(receipt) {
        Recorded { progress: Progress::Closed, .. } => none_came(within),
        recorded => recorded,
    }
}

fn none_came(within: Option<Duration>) -> Recorded {
    let within = within.map(|within| format!(" within {within:?}")).unwrap_or_default();
    Recorded::new(Progress::Refused, format!("no signal came{within}"))
}

/// What a saga finds that waits for a timer.
pub(crate) async fn timer(
    onceward: &Onceward,
    definition: &Definition,
    saga: &Id,
    name: &str,
    duration: Duration,
) -> Result<Recorded> {
    let left = left_of(onceward, definition, saga, &format!("timer:{name}"), duration).await?;
    if !left.is_zero() {
        return Ok(waiting(left));
    }
    // One receipt says whether it ended or was closed before: two drivers cannot disagree.
    let fired = fired_name(name);
    match mark(onceward, definition, saga, &fired).await? {
        Answer::Completed(_) => Ok(Recorded::new(Progress::Succeeded, "")),
        Answer::Refused(refusal) => Ok(Recorded::of_refusal(&refusal)),
    }
}

/// Writes a receipt that says no more than that it is there.
async fn mark(onceward: &Onceward, definition: &Definition, saga: &Id, name: &str) -> Result<Answer> {
    let ask = Ask::new(saga.step(name)?, Fingerprint::of(name.as_bytes()), definition.mark_policy.clone());
    let outcome = Ended::Succeeded(Bytes::new()).to_outcome(onceward.body_bytes_max());
    onceward.run(ask, async |_| Ok(outcome)).await
}

fn waiting(due: Duration) -> Recorded {
    Recorded::new(Progress::Waiting { due, unknown: false }, "")
}

/// What is left of a time that begins with the first call.
async fn left_of(
    onceward: &Onceward,
    definition: &Definition,
    saga: &Id,
    name: &str,
    duration: Duration,
) -> Result<Duration> {
    let id = saga.step(name)?;
    if let Some(receipt) = onceward.receipt(&id).await? {
        return Ok(duration.saturating_sub(receipt.age.created));
    }
    mark(onceward, definition, saga, name).await?;
    Ok(duration)
}

fn conflict(detail: String) -> Error {
    Error::new(ErrorKind::Conflict, detail)
}
