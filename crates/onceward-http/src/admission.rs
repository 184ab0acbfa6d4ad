//! Limits the number of running intents and the memory for request bodies. Replays and duplicates do not count as
//! running.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use onceward::Id;

use crate::answer::SOON;
use crate::problem::Problem;

/// The limits that all layers of one process share, and what is in use.
///
/// * Intents running at once: one more is refused with `overloaded`. Each may hold a response of up to
///   [`Route::response_bytes_max`](crate::Route::response_bytes_max), so this bounds their memory too.
/// * Intents of one scope running at once, if a bound is set: one more is refused with `quota-exceeded`.
/// * Bytes of request bodies in memory, of everything that is guarded: a body over the limit is refused with
///   `overloaded`.
#[derive(Debug)]
pub struct Admission {
    running_max: usize,
    running_per_scope_max: Option<usize>,
    body_bytes_max: usize,
    running: AtomicUsize,
    body_bytes: AtomicUsize,
    scopes: Mutex<HashMap<Box<str>, usize>>,
}

impl Default for Admission {
    /// Up to 16,384 intents and 256 MiB of request bodies, without a limit per scope.
    fn default() -> Self {
        Self {
            running_max: 16_384,
            running_per_scope_max: None,
            body_bytes_max: 256 << 20,
            running: AtomicUsize::new(0),
            body_bytes: AtomicUsize::new(0),
            scopes: Mutex::default(),
        }
    }
}

impl Admission {
    /// The default limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many intents may run at once.
    pub fn with_running_max(mut self, intents: usize) -> Self {
        self.running_max = intents;
        self
    }

    /// Sets how many intents of one scope may run at once.
    pub fn with_running_per_scope_max(mut self, intents: usize) -> Self {
        self.running_per_scope_max = Some(intents);
        self
    }

    /// Sets how many bytes of request bodies may be in memory at once.
    pub fn with_body_bytes_max(mut self, bytes: usize) -> Self {
        self.body_bytes_max = bytes;
        self
    }

    /// How many intents are running now.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// How many bytes of request bodies are in memory now.
    pub fn body_bytes(&self) -> usize {
        self.body_bytes.load(Ordering::Relaxed)
    }

    /// Whether one more intent of this scope could run now. This reserves nothing.
    pub(crate) fn check(&self, id: &Id) -> Result<(), Problem> {
        if self.running() >= self.running_max {
            return Err(Problem::Overloaded);
        }
        match self.running_per_scope_max {
            Some(max) if self.scopes().get(id.scope()).is_some_and(|running| *running >= max) => {
                Err(quota_exceeded())
            }
            _ => Ok(()),
        }
    }

    /// Counts one more running intent until the permit is dropped.
    pub(crate) fn enter(&self, id: &Id) -> Result<RunPermit<'_>, Problem> {
        let mut permit = RunPermit { admission: self, scope: None };
        if self.running.fetch_add(1, Ordering::Relaxed) >= self.running_max {
            return Err(Problem::Overloaded);
        }
        if let Some(max) = self.running_per_scope_max {
            let mut scopes = self.scopes();
            let running = scopes.entry(id.scope().into()).or_default();
            if *running >= max {
                return Err(quota_exceeded());
            }
            *running += 1;
            permit.scope = Some(id.clone());
        }
        Ok(permit)
    }

    /// Reserves memory for bytes of a body. Returns whether there was enough.
    pub(crate) fn take_bytes(&self, bytes: usize) -> bool {
        let before = self.body_bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.body_bytes_max;
        if !fits {
            self.give_bytes(bytes);
        }
        fits
    }

    pub(crate) fn give_bytes(&self, bytes: usize) {
        self.body_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn scopes(&self) -> std::sync::MutexGuard<'_, HashMap<Box<str>, usize>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn quota_exceeded() -> Problem {
    Problem::QuotaExceeded { retry_after: SOON }
}

/// The permit of one running intent.
pub(crate) struct RunPermit<'a> {
    admission: &'a Admission,
    scope: Option<Id>,
}

impl Drop for RunPermit<'_> {
    fn drop(&mut self) {
        self.admission.running.fetch_sub(1, Ordering::Relaxed);
        if let Some(id) = &self.scope
            && let Entry::Occupied(mut running) = self.admission.scopes().entry(id.scope().into())
        {
            *running.get_mut() -= 1;
            if *running.get() == 0 {
                running.remove();
            }
        }
    }
}

#[cfg(test)]
#[path = "admission_test.rs"]
mod tests;
