//! The simulated store's own signal of changes. It is a hint only, so it is as bad as one may be: signals come late, doubled
//! or not at all, and some say what is not so.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use onceward::{Id, Signals};

use super::executor::{Process, lock};
use super::store::SimStore;

/// Longest time from one signal to the next.
const SIGNAL_US_MAX: u64 = 40_000;

/// What one process is told of changes.
pub(super) struct SimSignals {
    pub(super) store: Arc<SimStore>,
    pub(super) process: Process,
    /// The changes before this one were told, or lost.
    pub(super) told: usize,
}

impl Signals for SimSignals {
    fn changed(&mut self) -> Pin<Box<dyn Future<Output = Option<Id>> + Send + '_>> {
        Box::pin(async move {
            let executor = Arc::clone(&self.store.executor);
            loop {
                let (wait, chance, any) = executor.draw(|random| {
                    (random.micros(100, SIGNAL_US_MAX), random.below(10), random.below(1_000))
                });
                executor.sleep(self.process, wait).await;
                let changes = lock(&self.store.changes);
                match chance {
                    // False: of something that changed at another time, or of nothing in particular.
                    0 => return changes.get(any % changes.len().max(1)).cloned(),
                    // Lost.
                    1 => self.told = changes.len(),
                    _ => {
                        let Some(next) = changes.get(self.told) else { continue };
                        // Or doubled.
                        self.told += usize::from(chance != 2);
                        return Some(next.clone());
                    }
                }
            }
        })
    }
}
