//! Broken runtimes: clocks, tasks and randomness that do not keep the contract of [`Runtime`].

use std::sync::Arc;
use std::time::Duration;

use onceward::{Runtime, Task};

/// A flaw of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeFlaw {
    /// Nothing.
    None,
    /// The clock stands still: no lease and no retention ever ends here.
    ClockStands,
    /// The clock runs at half the speed: everything that goes by it is late.
    ClockLags,
    /// The clock is set back now and then, as a wall clock is.
    ClockSetBack,
    /// Every attempt has the same number, so every claim looks like the asker's own.
    AttemptsAlike,
    /// Spawned tasks never run.
    TasksVanish,
}

impl RuntimeFlaw {
    /// The runtime with this flaw.
    pub fn break_it(self, inner: Arc<dyn Runtime>) -> Arc<dyn Runtime> {
        if self == Self::None { inner } else { Arc::new(BrokenRuntime { inner, flaw: self }) }
    }
}

/// How far the clock is set back. About as long as simulated leases last.
const SET_BACK: Duration = Duration::from_millis(80);

struct BrokenRuntime {
    inner: Arc<dyn Runtime>,
    flaw: RuntimeFlaw,
}

impl Runtime for BrokenRuntime {
    fn now(&self) -> Duration {
        let now = self.inner.now();
        match self.flaw {
            RuntimeFlaw::ClockStands => Duration::from_secs(1),
            RuntimeFlaw::ClockLags => now / 2,
            RuntimeFlaw::ClockSetBack if now.subsec_millis() % 200 > 100 => now.saturating_sub(SET_BACK),
            _ => now,
        }
    }

    fn sleep(&self, duration: Duration) -> Task {
        self.inner.sleep(duration)
    }

    fn spawn(&self, task: Task) {
        if self.flaw != RuntimeFlaw::TasksVanish {
            self.inner.spawn(task);
        }
    }

    fn random(&self) -> u128 {
        if self.flaw == RuntimeFlaw::AttemptsAlike { 7 } else { self.inner.random() }
    }
}
