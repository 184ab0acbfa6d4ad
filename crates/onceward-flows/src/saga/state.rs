//! Reads what is recorded of a saga: receipts become the [`Progress`] that the decision is made of.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use onceward::receipt::{End, Status};
use onceward::{Due, Id, Onceward, Prior, Receipt, Refusal, Result};

use super::decide::Progress;
use super::result::Ended;

/// Receipts read at a time.
const PAGE: usize = 256;

/// What a receipt says of one direction of a step, with its result or the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) progress: Progress,
    pub(crate) value: Option<Bytes>,
    pub(crate) reason: String,
    /// Whether it was recorded before it was asked for.
    pub(crate) is_replayed: bool,
}

impl Recorded {
    pub(crate) fn new(progress: Progress, reason: impl Into<String>) -> Self {
        Self { progress, value: None, reason: reason.into(), is_replayed: false }
    }

    pub(crate) fn not_begun() -> Self {
        Self::new(Progress::NotBegun, "")
    }

    /// Of a receipt, or of none.
    pub(crate) fn of(receipt: Option<&Receipt>) -> Self {
        let Some(receipt) = receipt else { return Self::not_begun() };
        let left = match receipt.due {
            Due::In(left) => left,
            Due::Over(_) | Due::Never => Duration::ZERO,
        };
        let note = receipt.status.note();
        match &receipt.status {
            Status::Gone(_) => Self::not_begun(),
            Status::Waiting(waiting) => {
                let unknown = waiting.prior == Prior::Unknown;
                Self::new(Progress::Waiting { due: left, unknown }, note)
            }
            // A lease that has ended: to begin is then to take over, or to be told that it is unknown.
            Status::Held(_) if receipt.due.is_over() => {
                Self::new(Progress::Waiting { due: Duration::ZERO, unknown: true }, note)
            }
            Status::Held(_) => Self::new(Progress::Running { lease: left }, note),
            Status::Unknown(_) => Self::new(Progress::Unknown, note),
            Status::Dead(_) => Self::new(Progress::Dead, note),
            Status::Done(done) => match &done.end {
                End::Closed(why) => Self::new(Progress::Closed, format!("it was closed: {why}")),
                End::Outcome(outcome) => Self::of_end(Ended::of_outcome(outcome)),
            },
        }
    }

    pub(crate) fn of_end(ended: Option<Ended>) -> Self {
        match ended {
            Some(Ended::Succeeded(value)) => {
                Self { value: Some(value), ..Self::new(Progress::Succeeded, "") }
            }
            Some(Ended::Refused(reason)) => Self::new(Progress::Refused, reason),
            Some(Ended::Failed(reason)) => Self::new(Progress::Failed, reason),
            // Erased, or of somebody else: whether it has to be undone is for a person.
            Some(Ended::Undone(_)) | None => Self::new(Progress::Unknown, "its outcome cannot be read"),
        }
    }

    pub(crate) fn of_refusal(refusal: &Refusal) -> Self {
        let progress = match refusal {
            Refusal::InProgress { retry_after } => Progress::Running { lease: *retry_after },
            Refusal::Dead { .. } => Progress::Dead,
            Refusal::Closed(_) => Progress::Closed,
            _ => Progress::Unknown,
        };
        Self::new(progress, refusal.to_string())
    }
}

/// All receipts of the steps of a saga, by the name of the step as it is in the id.
pub(crate) async fn load_steps(onceward: &Onceward, saga: &Id) -> Result<BTreeMap<String, Receipt>> {
    let (mut steps, mut after) = (BTreeMap::new(), None);
    loop {
        let page = onceward.steps(saga, after.take(), PAGE).await?;
        if let Some((_, unreadable)) = page.unreadable.into_iter().next() {
            return Err(unreadable.error);
        }
        for (id, receipt) in page.found {
            if let Some((_, name)) = id.operation().rsplit_once('#') {
                steps.insert(name.to_owned(), receipt);
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(steps);
        }
    }
}
