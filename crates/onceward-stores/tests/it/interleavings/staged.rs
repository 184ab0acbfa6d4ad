//! A wrapper around transactions that makes the first one fail at a chosen moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::{Error, ErrorKind, Fault, Id, Swap, Swapped, Transactions, Version};
use tokio::sync::Notify;

/// What goes wrong with the first transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// It has begun and claimed, and is undone; the caller gets an error.
    Claim,
    /// It is committed; the caller gets no answer.
    Answer,
    /// It is undone; the caller gets no answer.
    Commit,
    /// The caller gets no answer while it is still open; it is committed later.
    LateCommit,
    /// The caller gets no answer while it is still open; it is undone later.
    LateRollback,
}

/// Transactions, the first of which goes wrong; what comes after that waits until it is told to go on.
pub(super) struct Staged<T> {
    inner: T,
    loss: Loss,
    begun: AtomicUsize,
    commits: AtomicUsize,
    /// The first one has its claim.
    pub(super) claimed: Notify,
    /// It has failed.
    pub(super) reached: Notify,
    /// Its outcome is being looked up.
    pub(super) begun_again: Notify,
    pub(super) go_on: Arc<Notify>,
}

impl<T> Staged<T> {
    pub(super) fn new(inner: T, loss: Loss) -> Self {
        let (begun, commits) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (claimed, reached, begun_again) = (Notify::new(), Notify::new(), Notify::new());
        Self { inner, loss, begun, commits, claimed, reached, begun_again, go_on: Arc::default() }
    }
}

/// What a transaction commits with.
enum Last {
    Completion(Swap),
    Written(Id, Version),
}

async fn commit<T: Transactions>(inner: &T, tx: T::Tx, last: &Last) -> Result<(), Fault> {
    match last {
        Last::Completion(completion) => inner.commit(tx, completion).await,
        Last::Written(id, version) => inner.commit_written(tx, id, *version).await,
    }
}

impl<T: Transactions<Tx: Send + Sync> + Clone + 'static> Staged<T> {
    async fn end(&self, tx: T::Tx, last: Last) -> Result<(), Fault> {
        if self.commits.fetch_add(1, Ordering::SeqCst) > 0 {
            return commit(&self.inner, tx, &last).await;
        }
        let (inner, go_on) = (self.inner.clone(), Arc::clone(&self.go_on));
        match self.loss {
            Loss::Claim => unreachable!("it does not get here"),
            Loss::Answer => {
                commit(&inner, tx, &last).await?;
                self.reached.notify_one();
                go_on.notified().await;
            }
            Loss::Commit => {
                inner.rollback(tx).await;
                self.reached.notify_one();
                go_on.notified().await;
            }
            Loss::LateCommit => {
                tokio::spawn(async move {
                    go_on.notified().await;
                    commit(&inner, tx, &last).await.expect("a late commit is a commit");
                });
                self.reached.notify_one();
            }
            Loss::LateRollback => {
                tokio::spawn(async move {
                    go_on.notified().await;
                    inner.rollback(tx).await;
                });
                self.reached.notify_one();
            }
        }
        Err(Fault::Failed(Error::new(ErrorKind::Unavailable, "the wire broke").maybe_applied()))
    }
}

impl<T: Transactions<Tx: Send + Sync> + Clone + 'static> Transactions for Staged<T> {
    type Tx = T::Tx;

    async fn begin<'a>(
        &'a self,
        claim: &'a Swap,
        retention: Option<Duration>,
        patience: Duration,
    ) -> Result<(T::Tx, Swapped), Fault> {
        if self.begun.fetch_add(1, Ordering::SeqCst) == 1 {
            self.begun_again.notify_one();
        }
        let begun = self.inner.begin(claim, retention, patience).await?;
        if self.loss == Loss::Claim {
            self.inner.rollback(begun.0).await;
            return Err(Fault::Failed(Error::new(ErrorKind::Unavailable, "the wire broke")));
        }
        self.claimed.notify_one();
        Ok(begun)
    }

    async fn begin_bare(&self, patience: Duration) -> Result<T::Tx, Fault> {
        self.inner.begin_bare(patience).await
    }

    async fn commit<'a>(&'a self, tx: T::Tx, completion: &'a Swap) -> Result<(), Fault> {
        self.end(tx, Last::Completion(completion.clone())).await
    }

    async fn commit_written<'a>(&'a self, tx: T::Tx, id: &'a Id, written: Version) -> Result<(), Fault> {
        self.end(tx, Last::Written(id.clone(), written)).await
    }

    async fn rollback(&self, tx: T::Tx) {
        self.inner.rollback(tx).await;
    }

    fn is_worth_repeating(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.inner.is_worth_repeating(error)
    }
}
