//! The retry budget and the circuit breaker of each host, shared by all calls to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use super::breaker::{Breaker, BreakerDecision};
use super::budget::Budget;
use super::retry_config::RetryConfig;

/// Maximum number of hosts in memory. A host that was removed starts again with a new budget and breaker.
const HOSTS_MAX: usize = 4_096;

/// All hosts of one client or layer.
#[derive(Debug)]
pub(crate) struct Hosts {
    config: RetryConfig,
    known: RwLock<HashMap<String, Arc<Host>>>,
}

/// The budget and breaker of one host.
#[derive(Debug)]
pub(crate) struct Host {
    state: Mutex<HostState>,
}

#[derive(Debug)]
struct HostState {
    budget: Budget,
    breaker: Breaker,
}

impl Hosts {
    pub(crate) fn new(config: RetryConfig) -> Self {
        Self { config, known: RwLock::default() }
    }

    /// The host of this name and port.
    pub(crate) fn host(&self, authority: &str) -> Arc<Host> {
        if let Some(host) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(authority) {
            return host.clone();
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= HOSTS_MAX && !known.contains_key(authority) {
            // A host that a call is using stays.
            known.retain(|_, host| Arc::strong_count(host) > 1);
        }
        known.entry(authority.to_owned()).or_insert_with(|| Arc::new(Host::new(self.config))).clone()
    }
}

impl Host {
    fn new(config: RetryConfig) -> Self {
        let state = HostState { budget: Budget::new(config.budget), breaker: Breaker::new(config.breaker) };
        Self { state: Mutex::new(state) }
    }

    /// Asks to send a first try, or a retry that the budget has allowed.
    pub(crate) fn ask(&self, now: Duration, number: u32) -> BreakerDecision {
        let mut state = self.state();
        let decision = state.breaker.ask(now);
        if number == 1 && !matches!(decision, BreakerDecision::Shut { .. }) {
            state.budget.request(now);
        }
        decision
    }

    /// Asks the budget for a retry. If it is used up: when to ask again.
    pub(crate) fn retry(&self, now: Duration) -> Result<(), Duration> {
        let mut state = self.state();
        if state.budget.retry(now) { Ok(()) } else { Err(state.budget.retry_in(now)) }
    }

    /// Reports the result of a try.
    pub(crate) fn tell(&self, now: Duration, decision: BreakerDecision, well: bool) {
        self.state().breaker.tell(now, decision, well);
    }

    fn state(&self) -> MutexGuard<'_, HostState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
