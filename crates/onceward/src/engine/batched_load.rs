//! Loads of background tasks, in batches: while one is under way, those that come meanwhile gather for the next one. After an
//! outage of the store there may be as many as there were callers.

use std::sync::Arc;

use super::inner::Inner;
use super::oneshot::{Receiver, Sender, oneshot};
use super::sync::Mutex;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Id;
use crate::store::{Found, Loaded};

pub(crate) struct BatchedLoad(Mutex<LoadState>);

impl BatchedLoad {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(LoadState::default()))
    }
}

/// Invariant: unless a batch is under way, nothing is queued.
#[derive(Default)]
struct LoadState {
    queue: Vec<(Id, Sender<Loaded>)>,
    under_way: bool,
}

/// Reads one record as it is now, together with what others ask for at the time.
pub(crate) async fn load_batched(inner: &Arc<Inner>, id: &Id) -> Result<Option<Found>> {
    let (answer, answered) = oneshot();
    let begins = {
        let mut state = inner.batched_load.0.lock();
        state.queue.push((id.clone(), answer));
        !std::mem::replace(&mut state.under_way, true)
    };
    if begins {
        let permit = LoadPermit { inner: inner.clone(), returned: false };
        inner.runtime.spawn(Box::pin(async move { permit.load_all().await }));
    }
    told(answered).await
}

async fn told(answered: Receiver<Loaded>) -> Result<Option<Found>> {
    answered.await.unwrap_or_else(|| {
        Err(Error::new(ErrorKind::Unavailable, "the task that read from the store ended without an answer"))
    })
}

/// The right to load. Giving it back lets the next caller begin, also after a panic in the store; what was queued by then gets
/// an error.
struct LoadPermit {
    inner: Arc<Inner>,
    returned: bool,
}

impl LoadPermit {
    async fn load_all(mut self) {
        let inner = self.inner.clone();
        loop {
            let batch = {
                let mut state = inner.batched_load.0.lock();
                if state.queue.is_empty() {
                    (state.under_way, self.returned) = (false, true);
                    return;
                }
                let count = state.queue.len().min(inner.limits.batch_swaps_max);
                state.queue.drain(..count).collect::<Vec<_>>()
            };
            let (ids, answers): (Vec<Id>, Vec<_>) = batch.into_iter().unzip();
            match inner.load_all(&ids).await {
                Ok(loaded) => {
                    for (answer, loaded) in answers.into_iter().zip(loaded) {
                        answer.send(loaded);
                    }
                }
                Err(error) => {
                    for answer in answers {
                        answer.send(Err(error.clone()));
                    }
                }
            }
        }
    }
}

impl Drop for LoadPermit {
    fn drop(&mut self) {
        if self.returned {
            return;
        }
        let left = {
            let mut state = self.inner.batched_load.0.lock();
            state.under_way = false;
            std::mem::take(&mut state.queue)
        };
        // (Dropped outside the lock: each wakes its caller.)
        drop(left);
    }
}
