//! Limits the number of running intents and the memory for request bodies. Replays and duplicates do not count as
//! running.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
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
/// * Bytes of request bodies of one [`ClientAddress`], if a bound is set: a body over it is refused with
///   `quota-exceeded`. Small bodies do not count.
#[derive(Debug)]
pub struct Admission {
    running_max: usize,
    running_per_scope_max: Option<usize>,
    body_bytes_max: usize,
    body_bytes_per_address_max: Option<usize>,
    running: AtomicUsize,
    body_bytes: AtomicUsize,
    scopes: Mutex<HashMap<Box<str>, usize>>,
    addresses: Mutex<HashMap<IpAddr, usize>>,
}

/// Among the extensions of a request: the client that its body is charged to
/// ([`Admission::with_body_bytes_per_address_max`]). The server that accepts connections inserts it; requests without it
/// have no limit of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// A body up to this size is not charged to its client: the number of requests in flight bounds those.
const UNCHARGED_BYTES: usize = 8 << 10;

impl Default for Admission {
    /// Up to 16,384 intents and 256 MiB of request bodies, without a limit per scope.
    fn default() -> Self {
        Self {
            running_max: 16_384,
            running_per_scope_max: None,
            body_bytes_max: 256 << 20,
            body_bytes_per_address_max: None,
            running: AtomicUsize::new(0),
            body_bytes: AtomicUsize::new(0),
            scopes: Mutex::default(),
            addresses: Mutex::default(),
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

    /// Sets how many bytes of request bodies of one [`ClientAddress`] may be in memory at once.
    pub fn with_body_bytes_per_address_max(mut self, bytes: usize) -> Self {
        self.body_bytes_per_address_max = Some(bytes);
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

    /// Reserves memory for bytes of a body. A refusal reserves nothing.
    pub(crate) fn take_bytes(&self, reserved: &mut ReservedBytes, bytes: usize) -> Result<(), Problem> {
        let before = self.body_bytes.fetch_add(bytes, Ordering::Relaxed);
        let taken = if before.saturating_add(bytes) > self.body_bytes_max {
            Err(Problem::Overloaded)
        } else {
            self.charge(reserved, bytes)
        };
        match taken {
            Ok(()) => reserved.bytes += bytes,
            Err(_) => drop(self.body_bytes.fetch_sub(bytes, Ordering::Relaxed)),
        }
        taken
    }

    /// Charges bytes to the client whose body they belong to.
    fn charge(&self, reserved: &mut ReservedBytes, bytes: usize) -> Result<(), Problem> {
        let Some(max) = self.body_bytes_per_address_max else { return Ok(()) };
        let Some(ClientAddress(address)) = reserved.client else { return Ok(()) };
        let bytes = reserved.bytes + bytes;
        if bytes <= UNCHARGED_BYTES {
            return Ok(());
        }
        let mut addresses = self.addresses();
        let before = addresses.get(&address).copied().unwrap_or(0);
        let after = before + (bytes - reserved.charged);
        if after > max {
            return Err(quota_exceeded());
        }
        addresses.insert(address, after);
        reserved.charged = bytes;
        Ok(())
    }

    /// Frees the memory of a body.
    pub(crate) fn give_bytes(&self, reserved: &ReservedBytes) {
        self.body_bytes.fetch_sub(reserved.bytes, Ordering::Relaxed);
        if let (1.., Some(ClientAddress(address))) = (reserved.charged, reserved.client)
            && let Entry::Occupied(mut of_address) = self.addresses().entry(address)
        {
            *of_address.get_mut() -= reserved.charged;
            if *of_address.get() == 0 {
                of_address.remove();
            }
        }
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn scopes(&self) -> std::sync::MutexGuard<'_, HashMap<Box<str>, usize>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn quota_exceeded() -> Problem {
    Problem::QuotaExceeded { retry_after: SOON }
}

/// The memory that one request has reserved for its body.
#[derive(Debug, Default)]
pub(crate) struct ReservedBytes {
    client: Option<ClientAddress>,
    bytes: usize,
    /// How many of them are charged to the client.
    charged: usize,
}

impl ReservedBytes {
    pub(crate) fn of(client: Option<ClientAddress>) -> Self {
        Self { client, bytes: 0, charged: 0 }
    }
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
