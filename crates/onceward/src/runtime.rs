//! The runtime: where the engine gets time, tasks and randomness. It is a trait, so that a simulator can
//! control all three and reproduce a failing run from one seed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

/// A task without a result.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where the engine gets time, tasks and randomness from. [`TokioRuntime`] is the default.
pub trait Runtime: Send + Sync + 'static {
    /// Time since an arbitrary start; never goes back.
    fn now(&self) -> Duration;
    /// Is ready after `duration`.
    fn sleep(&self, duration: Duration) -> Task;
    /// Runs `task` concurrently with everything else, to its end.
    fn spawn(&self, task: Task);
    /// An unpredictable number, for attempts.
    fn random(&self) -> u128;
}

/// Time and tasks of the tokio runtime, randomness of the operating system.
#[derive(Debug)]
pub struct TokioRuntime {
    runtime: Option<tokio::runtime::Handle>,
    start: tokio::time::Instant,
    entropy: Mutex<Entropy>,
}

impl TokioRuntime {
    /// Uses the runtime it is called in; outside of one, whichever runtime a call is made in later.
    pub fn new() -> Self {
        Self {
            runtime: tokio::runtime::Handle::try_current().ok(),
            start: tokio::time::Instant::now(),
            entropy: Mutex::new(Entropy::new()),
        }
    }
}

impl Default for TokioRuntime {
    fn default() -> Self {
        Self::new()
    }
}

impl Runtime for TokioRuntime {
    fn now(&self) -> Duration {
        tokio::time::Instant::now().saturating_duration_since(self.start)
    }

    fn sleep(&self, duration: Duration) -> Task {
        Box::pin(tokio::time::sleep(duration))
    }

    /// A task spawned where no runtime is left (a future dropped after its runtime ended) is dropped:
    /// the lease then ends by itself, exactly as after a crash.
    fn spawn(&self, task: Task) {
        if let Ok(current) = tokio::runtime::Handle::try_current() {
            current.spawn(task);
        } else if let Some(runtime) = &self.runtime {
            runtime.spawn(task);
        }
    }

    fn random(&self) -> u128 {
        self.entropy.lock().expect("entropy is never poisoned").next()
    }
}

/// An endless stream of unpredictable bytes: BLAKE3 in its extendable mode over a seed from the
/// operating system, so that an attempt does not cost a system call, and drawn in whole blocks, so that
/// most attempts do not cost a compression either.
struct Entropy {
    stream: blake3::OutputReader,
    block: [u8; blake3::BLOCK_LEN],
    used: usize,
}

impl Entropy {
    fn new() -> Self {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).expect("the operating system has no randomness to give");
        let stream = blake3::Hasher::new_keyed(&seed).finalize_xof();
        Self { stream, block: [0; blake3::BLOCK_LEN], used: blake3::BLOCK_LEN }
    }

    fn next(&mut self) -> u128 {
        if self.used == self.block.len() {
            self.stream.fill(&mut self.block);
            self.used = 0;
        }
        let (bytes, _) = self.block[self.used..].split_first_chunk().expect("a block is whole numbers long");
        self.used += bytes.len();
        u128::from_le_bytes(*bytes)
    }
}

impl std::fmt::Debug for Entropy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entropy")
    }
}

#[cfg(test)]
#[path = "runtime_test.rs"]
mod tests;
