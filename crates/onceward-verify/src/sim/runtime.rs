//! The engine's runtime in a simulated process: its clock, its tasks, its randomness.

use std::sync::Arc;
use std::time::Duration;

use onceward::{Runtime, Task};

use super::executor::{Executor, Process};

/// The runtime of one life of one process.
pub struct ProcessRuntime {
    executor: Arc<Executor>,
    process: Process,
}

impl ProcessRuntime {
    /// The runtime of this process.
    pub fn new(executor: &Arc<Executor>, process: Process) -> Arc<Self> {
        Arc::new(Self { executor: Arc::clone(executor), process })
    }
}

impl Runtime for ProcessRuntime {
    fn now(&self) -> Duration {
        self.executor.clock(self.process)
    }

    fn sleep(&self, duration: Duration) -> Task {
        Box::pin(self.executor.sleep(self.process, duration))
    }

    fn spawn(&self, task: Task) {
        self.executor.spawn_boxed(self.process, task);
    }

    fn random(&self) -> u128 {
        self.executor.draw(|random| (u128::from(random.number()) << 64) | u128::from(random.number()))
    }
}
