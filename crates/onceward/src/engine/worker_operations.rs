//! The code of a worker's operations, and which of the intents that are due it may be given.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::lease::Lease;
use super::pattern::Pattern;
use super::worker_report::WorkerCounts;
use crate::error::Result;
use crate::id::Id;
use crate::outcome::{Outcome, Stopped};
use crate::policy::{OnUnknown, Policy};
use crate::receipt::{Prior, Receipt, Status};
use crate::store::Due;

pub(super) type WorkFuture = Pin<Box<dyn Future<Output = Result<Outcome, Stopped>> + Send>>;

/// The code of an operation.
pub(super) type Work = Arc<dyn Fn(Lease) -> WorkFuture + Send + Sync>;

pub(super) struct Operation {
    pub(super) policy: Arc<Policy>,
    pub(super) work: Work,
}

/// The operations of a worker.
pub(super) struct Operations {
    operations: Vec<(Pattern, Operation)>,
    grace: Duration,
}

impl Operations {
    pub(super) fn new(operations: Vec<(Pattern, Operation)>, grace: Duration) -> Self {
        Self { operations, grace }
    }

    pub(super) fn code(&self, id: &Id) -> Option<&Operation> {
        let fitting = self.operations.iter().find(|(pattern, _)| pattern.matches(id.operation()));
        fitting.map(|(_, operation)| operation)
    }

    /// The code of an intent that may be worked on now; for the others, the reason is counted.
    pub(super) fn chosen(&self, id: &Id, receipt: &Receipt, seen: &mut WorkerCounts) -> Option<&Operation> {
        let Some(operation) = self.code(id) else {
            seen.no_code += u64::from(!id.is_step());
            return None;
        };
        if is_held_when_unknown(receipt, &operation.policy) {
            seen.needs_settlement += 1;
            return None;
        }
        match (&receipt.status, receipt.due) {
            (Status::Waiting(waiting), _) => waiting.job.is_some().then_some(operation),
            (Status::Held(_), Due::Over(ago)) if ago >= self.grace => Some(operation),
            _ => {
                seen.in_grace += 1;
                None
            }
        }
    }
}

/// An intent that may have had its effect is run again only if the policies of both its last run and this worker allow
/// it.
pub(super) fn is_held_when_unknown(receipt: &Receipt, policy: &Policy) -> bool {
    match &receipt.status {
        Status::Held(held) => held.on_unknown == OnUnknown::Hold || policy.on_unknown() == OnUnknown::Hold,
        Status::Waiting(waiting) => waiting.prior == Prior::Unknown && policy.on_unknown() == OnUnknown::Hold,
        _ => false,
    }
}

impl std::fmt::Debug for Operations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.operations.iter().map(|(pattern, _)| pattern)).finish()
    }
}
