//! Gets what waits by taking it: the store reads due records and writes their claims in one step, so that workers
//! do not meet at the same records. The outcomes that the worker has not sent yet are written in the same step.
//!
//! ```text
//! take ─▶ claims won ─▶ work ─▶ outcomes wait ─┐
//!   ▲                                          │ in one batch with the next claims
//!   └──────────────────────────────────────────┘
//! ```

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::future_set::FutureSet;
use super::group_commit::{Queued, SendWhen};
use super::inner::Inner;
use super::lease::Lease;
use super::resume::{Prepared, Resumption};
use super::sealed::open;
use super::timeout::within;
use super::worker::{LookBy, PAUSE_MIN, STATES, Stop, WorkedOn, Worker, WorkerLook};
use super::worker_operations::{Operations, Work};
use super::worker_report::WorkerCounts;
use crate::error::Result;
use crate::id::Id;
use crate::store::{Page, State};

/// What was taken.
struct Taken {
    begun: Vec<(Id, Box<Resumption>, Work, Working)>,
    /// What is to be left to others.
    left: WorkerCounts,
    /// Whether a record was not begun, for whatever reason: a step, too, waits for its intent. It would be the first of
    /// every later take.
    any_left: bool,
}

/// One of the intents that are worked on at the same time.
struct Working(Arc<AtomicUsize>);

impl Working {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Worker {
    /// Takes as much of what waits as may be worked on at once.
    pub(super) async fn take<'a, S: Future<Output = ()>>(
        &'a self,
        running: &mut FutureSet<'a, WorkedOn>,
        stop: &mut Stop<'_, S>,
    ) -> Result<WorkerLook> {
        self.until_half_have_ended(running).await;
        if stop.is_set().await {
            running.flush();
            return Ok(WorkerLook::Begun);
        }
        let limit = self.concurrency().saturating_sub(self.working.load(Ordering::Relaxed)).max(1);
        let inner = self.onceward.inner.clone();
        let (operations, working) = (self.operations.clone(), self.working.clone());
        let choose = move |page| choose(&inner, &operations, &working, page);
        let taking = self.onceward.inner.group_commit.take(State::Waiting, limit, choose);
        let taken = running.beside_unsent(taking).await;
        // Where nothing was taken, nothing was sent either.
        running.flush();
        self.count(running.ready());
        let Some(Taken { begun, left, any_left }) = taken? else {
            self.state().by = LookBy::Scanning;
            return Ok(WorkerLook::Contended);
        };
        if stop.is_set().await {
            // What was taken is released: its work has not begun.
            return Ok(WorkerLook::Begun);
        }
        let any = !begun.is_empty();
        let stopping = self.stopping();
        for (id, resumption, work, working) in begun {
            let stopping = stopping.clone();
            running.add(async move {
                let work = |lease: Lease| work(lease.stopped_by(stopping));
                let worked = resumption.run(work, move || drop(working)).await;
                (id, worked)
            });
        }
        if any_left {
            self.state().by = LookBy::Scanning;
            return if any {
                Ok(WorkerLook::MoreToBegin)
            } else {
                self.search(&STATES[1..], running, stop).await
            };
        }
        self.state().left[1] = left;
        Ok(if any { WorkerLook::MoreToBegin } else { WorkerLook::Nothing })
    }

    /// Waits until half of what may run at once has ended, so that the next take is worth its price; but not for
    /// long, if there is capacity for one. What has ended is written with that take.
    async fn until_half_have_ended<'a>(&'a self, running: &mut FutureSet<'a, WorkedOn>) {
        let working = || self.working.load(Ordering::Relaxed);
        running.until(|| working() < self.concurrency()).await;
        let half = self.concurrency() / 2;
        within(&*self.onceward.inner.runtime, PAUSE_MIN, running.until(|| working() <= half)).await;
        self.count(running.ready());
    }
}

/// Submits a claim for each record that this worker may begin.
fn choose(
    inner: &Arc<Inner>,
    operations: &Operations,
    working: &Arc<AtomicUsize>,
    page: Page,
) -> (Vec<Queued>, Taken) {
    let mut left = WorkerCounts { unreadable: page.unreadable.len() as u64, ..WorkerCounts::default() };
    let seen = page.found.len() + page.unreadable.len();
    let (mut claims, mut begun) =
        (Vec::with_capacity(page.found.len()), Vec::with_capacity(page.found.len()));
    for (id, found) in page.found {
        let receipt = match open(&found) {
            Ok(receipt) => receipt,
            Err(error) => {
                left.unreadable += 1;
                tracing::error!(?id, %error, "a receipt that is due cannot be read");
                continue;
            }
        };
        let Some(operation) = operations.chosen(&id, &receipt, &mut left) else { continue };
        let submit = |claim| {
            let (queued, swapping) = Queued::new(claim);
            claims.push(queued);
            swapping
        };
        let policy = operation.policy.clone();
        let prepared = Resumption::prepare(inner, &id, &receipt, policy, SendWhen::OnFlush, submit);
        if let Prepared::Claim(resumption) = prepared {
            begun.push((id, resumption, operation.work.clone(), Working::new(working)));
        }
    }
    let any_left = begun.len() < seen;
    (claims, Taken { begun, left, any_left })
}
