//! Builds a worker: the code of its operations, and its options.

use std::future::Future;
use std::sync::Arc;

use super::Onceward;
use super::lease::Lease;
use super::pattern::Pattern;
use super::worker::Worker;
use super::worker_operations::{Operation, WorkFuture};
use super::worker_report::WorkerOptions;
use crate::error::Result;
use crate::outcome::{Outcome, Stopped};
use crate::policy::Policy;

/// Builds a [`Worker`].
#[must_use = "a builder makes nothing until `build` is called"]
pub struct WorkerBuilder {
    onceward: Onceward,
    operations: Vec<(String, Operation)>,
    options: WorkerOptions,
}

impl WorkerBuilder {
    pub(super) fn new(onceward: Onceward) -> Self {
        Self { onceward, operations: Vec::new(), options: WorkerOptions::default() }
    }

    /// Registers the code of an operation, and the policy it runs under. A pattern is a name (`payout`), a prefix
    /// (`payout*`) or a route (`POST /orders/{id}/pay`); the first that matches counts.
    ///
    /// Under [`OnUnknown::Hold`](crate::OnUnknown::Hold) only what waits is begun. What a previous owner left
    /// unfinished has to be settled first.
    pub fn with_operation<F, W>(mut self, pattern: &str, policy: impl Into<Arc<Policy>>, work: F) -> Self
    where
        F: Fn(Lease) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Outcome, Stopped>> + Send + 'static,
    {
        let work = Arc::new(move |lease| Box::pin(work(lease)) as WorkFuture);
        self.operations.push((pattern.to_owned(), Operation { policy: policy.into(), work }));
        self
    }

    /// Sets how many intents it runs at a time, and how often it looks for more.
    pub fn with_options(mut self, options: WorkerOptions) -> Self {
        self.options = options;
        self
    }

    /// Builds the worker. Fails if a pattern is not one.
    pub fn build(self) -> Result<Worker> {
        let parsed = self.operations.into_iter();
        let parsed = parsed.map(|(pattern, operation)| Ok((Pattern::parse(&pattern)?, operation)));
        Ok(Worker::new(self.onceward, parsed.collect::<Result<_>>()?, self.options))
    }
}

impl std::fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let patterns: Vec<_> = self.operations.iter().map(|(pattern, _)| pattern).collect();
        f.debug_struct("WorkerBuilder").field("operations", &patterns).finish_non_exhaustive()
    }
}
