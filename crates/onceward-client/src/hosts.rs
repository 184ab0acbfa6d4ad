//! What is remembered per host, shared by all calls to it: its budget and its breaker.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use super::breaker::{Breaker, Passage};
use super::budget::Budget;
use super::terms::Terms;

/// Most hosts remembered at once. One that is forgotten starts again from nothing; a client of that many
/// hosts sends each of them too little to harm it.
const HOSTS_MAX: usize = 4_096;

/// All hosts of one client or layer.
#[derive(Debug)]
pub(crate) struct Hosts {
    terms: Terms,
    known: RwLock<HashMap<String, Arc<Host>>>,
}

/// One host.
#[derive(Debug)]
pub(crate) struct Host {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    budget: Budget,
    breaker: Breaker,
}

impl Hosts {
    pub(crate) fn new(terms: Terms) -> Self {
        Self { terms, known: RwLock::default() }
    }

    /// The host of this name and port.
    pub(crate) fn host(&self, authority: &str) -> Arc<Host> {
        if let Some(host) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(authority) {
            return host.clone();
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= HOSTS_MAX && !known.contains_key(authority) {
            // A host in use by a call stays, and with it what that call counts on.
            known.retain(|_, host| Arc::strong_count(host) > 1);
        }
        known.entry(authority.to_owned()).or_insert_with(|| Arc::new(Host::new(self.terms))).clone()
    }
}

impl Host {
    fn new(terms: Terms) -> Self {
        let state = State { budget: Budget::new(terms.budget), breaker: Breaker::new(terms.breaker) };
        Self { state: Mutex::new(state) }
    }

    /// Asks to send: a first try, or a retry that the budget has let pass.
    pub(crate) fn ask(&self, now: Duration, number: u32) -> Passage {
        let mut state = self.state();
        let passage = state.breaker.ask(now);
        if number == 1 && !matches!(passage, Passage::Shut { .. }) {
            state.budget.request(now);
        }
        passage
    }

    /// Asks the budget for a retry.
    pub(crate) fn retry(&self, now: Duration) -> bool {
        self.state().budget.retry(now)
    }

    /// Tells how a try went.
    pub(crate) fn tell(&self, now: Duration, passage: Passage, well: bool) {
        self.state().breaker.tell(now, passage, well);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
