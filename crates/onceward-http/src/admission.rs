//! Limits the number of running intents and the memory for request bodies. Replays and duplicates do not count as
//! running; they have bounds of their own, far above, and what runs does not count in those.

mod builder;

pub use builder::AdmissionBuilder;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onceward::Id;
use tokio::time::Instant;

use crate::answer::SOON;
use crate::drain_rate::{DrainRate, chance};
use crate::new_keys::{Charged, NewKeys};
use crate::problem::Problem;

/// The limits that all layers of one process share, and what is in use.
///
/// * Intents running at once: one more is refused with `overloaded`. Each may hold a response of up to
///   [`Route::response_bytes_max`](crate::Route::response_bytes_max), so this bounds their memory too.
/// * Intents of one scope running at once, if a bound is set: one more is refused with `quota-exceeded`.
/// * Intents of one [`ClientAddress`] running at once, if a bound is set: one more is refused with `quota-exceeded`. A
///   scope is what a client says of itself; an address is not.
/// * Requests at once that wait for a run or are looked up in the store: one more does not wait. If its intent runs already it
///   is refused with `in-progress`; if not, it runs or is replayed as always, so that waiting duplicates never block new
///   work. By default four times as many as may run. In the upper half, one scope and one [`ClientAddress`] may each have
///   at most a quarter of the bound.
/// * Requests that are looked up in the store without waiting, because of that bound: as many again. One more is refused
///   with `overloaded` before the store is asked, unless the process has its answer in memory.
/// * Bytes of request bodies in memory, of everything that is guarded: a body over the limit is refused with
///   `overloaded`.
/// * Bytes of request bodies of one [`ClientAddress`], if a bound is set: a body over it is refused with
///   `quota-exceeded`. Small bodies do not count.
/// * New keys of one [`ClientAddress`] and of one scope within a time, if a bound is set: one more is refused with
///   `quota-exceeded` before anything is claimed. Each new key is a receipt until its retention ends. Replays, duplicates and
///   retries of a key that has a receipt do not count, and a key that its run frees does not either.
///
/// A limit of requests or intents is at least 1: see [`AdmissionBuilder::build`].
#[derive(Debug)]
pub struct Admission {
    running_max: usize,
    running_per_scope_max: Option<usize>,
    running_per_address_max: Option<usize>,
    answering_max: Option<usize>,
    body_bytes_max: usize,
    body_bytes_per_address_max: Option<usize>,
    running: AtomicUsize,
    waiting: AtomicUsize,
    /// What is looked up without waiting.
    at_once: AtomicUsize,
    waiting_by_scope: Mutex<HashMap<Box<str>, usize>>,
    waiting_by_address: Mutex<HashMap<IpAddr, usize>>,
    body_bytes: AtomicUsize,
    scopes: Mutex<HashMap<Box<str>, usize>>,
    running_by_address: Mutex<HashMap<IpAddr, usize>>,
    addresses: Mutex<HashMap<IpAddr, usize>>,
    new_keys_per_scope: Option<NewKeys>,
    new_keys_per_address: Option<NewKeys>,
    drain: DrainRate,
    began: Instant,
}

/// Among the extensions of a request: the client that its body and its run are charged to
/// ([`AdmissionBuilder::with_body_bytes_per_address_max`],
/// [`AdmissionBuilder::with_running_per_address_max`]). The server that accepts connections inserts it; requests without it
/// have no limit of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

/// How many requests may wait or be looked up in the store for each one that may run.
const ANSWERING_PER_RUNNING: usize = 4;

/// Where it is crowded, one scope or address may have this part of the places of waiting requests: a quarter.
const SHARE_OF_WAITING: usize = 4;

/// A body up to this size is not charged to its client: the number of requests in flight bounds those.
const UNCHARGED_BYTES: usize = 8 << 10;

impl Default for Admission {
    /// Up to 16,384 intents and 256 MiB of request bodies, without a limit per scope.
    fn default() -> Self {
        Self {
            running_max: 16_384,
            running_per_scope_max: None,
            running_per_address_max: None,
            answering_max: None,
            body_bytes_max: 256 << 20,
            body_bytes_per_address_max: None,
            running: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            at_once: AtomicUsize::new(0),
            waiting_by_scope: Mutex::default(),
            waiting_by_address: Mutex::default(),
            body_bytes: AtomicUsize::new(0),
            scopes: Mutex::default(),
            running_by_address: Mutex::default(),
            addresses: Mutex::default(),
            new_keys_per_scope: None,
            new_keys_per_address: None,
            drain: DrainRate::default(),
            began: Instant::now(),
        }
    }
}

impl Admission {
    /// The default limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// A builder that begins with the default limits.
    pub fn builder() -> AdmissionBuilder {
        AdmissionBuilder::new()
    }

    /// Of the bounds on new keys that are set: its name (`scope` or `address`), how much of it the caller has taken that has
    /// taken the most, and how many keys were refused.
    pub fn new_keys(&self) -> impl Iterator<Item = (&'static str, u64, u64)> {
        let now = self.began.elapsed();
        self.new_key_bounds().map(move |(name, bound)| (name, bound.taken_most(now), bound.refused()))
    }

    /// How many intents are running now.
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// How many bytes of request bodies are in memory now.
    pub fn body_bytes(&self) -> usize {
        self.body_bytes.load(Ordering::Relaxed)
    }

    /// How many guarded requests wait for a run or are looked up in the store now.
    pub fn answering(&self) -> usize {
        self.waiting.load(Ordering::Relaxed) + self.at_once.load(Ordering::Relaxed)
    }

    /// Whether one more intent of this scope and client could run now. This reserves nothing.
    pub(crate) fn check(&self, id: &Id, client: Option<ClientAddress>) -> Result<(), Problem> {
        if self.running() >= self.running_max {
            return Err(self.overloaded());
        }
        if let Some(max) = self.running_per_scope_max
            && self.scopes().get(id.scope()).is_some_and(|running| *running >= max)
        {
            return Err(self.quota_exceeded());
        }
        if let (Some(max), Some(ClientAddress(address))) = (self.running_per_address_max, client)
            && self.running_by_address().get(&address).is_some_and(|running| *running >= max)
        {
            return Err(self.quota_exceeded());
        }
        Ok(())
    }

    /// Counts one more running intent until the permit is dropped.
    pub(crate) fn enter(&self, id: &Id, client: Option<ClientAddress>) -> Result<RunPermit<'_>, Problem> {
        let mut permit = RunPermit { admission: self, scope: None, client: None };
        if self.running.fetch_add(1, Ordering::Relaxed) >= self.running_max {
            return Err(self.overloaded());
        }
        if let Some(max) = self.running_per_scope_max {
            let mut scopes = self.scopes();
            let running = scopes.entry(id.scope().into()).or_default();
            if *running >= max {
                return Err(self.quota_exceeded());
            }
            *running += 1;
            permit.scope = Some(id.clone());
        }
        if let (Some(max), Some(ClientAddress(address))) = (self.running_per_address_max, client) {
            let mut addresses = self.running_by_address();
            let running = addresses.entry(address).or_default();
            if *running >= max {
                // The permit, which gives back the rest, must not wait for this lock.
                drop(addresses);
                return Err(self.quota_exceeded());
            }
            *running += 1;
            permit.client = Some(address);
        }
        Ok(permit)
    }

    /// Whether this scope and client may begin one more key. This takes nothing.
    #[inline]
    pub(crate) fn check_new_key(
        &self,
        id: &Id,
        client: Option<ClientAddress>,
    ) -> Result<(), NewKeyRefusal<'_>> {
        if self.new_keys_per_scope.is_none() && self.new_keys_per_address.is_none() {
            return Ok(());
        }
        let now = self.began.elapsed();
        if let (Some(bound), Some(ClientAddress(address))) = (&self.new_keys_per_address, client) {
            bound.check(address, now).map_err(|wait| NewKeyRefusal { bound, wait })?;
        }
        if let Some(bound) = &self.new_keys_per_scope {
            bound.check(id.scope(), now).map_err(|wait| NewKeyRefusal { bound, wait })?;
        }
        Ok(())
    }

    /// Charges a key that is begun to its scope and client; `None` if there is no bound.
    #[inline]
    pub(crate) fn begin_key(
        &self,
        id: &Id,
        client: Option<ClientAddress>,
    ) -> Result<Option<Box<ChargedKey>>, Problem> {
        if self.new_keys_per_scope.is_none() && self.new_keys_per_address.is_none() {
            return Ok(None);
        }
        let now = self.began.elapsed();
        let mut charged = ChargedKey::default();
        if let (Some(bound), Some(ClientAddress(address))) = (&self.new_keys_per_address, client) {
            charged.address =
                Some(bound.take(address, now).map_err(|wait| NewKeyRefusal { bound, wait }.refuse())?);
        }
        if let Some(bound) = &self.new_keys_per_scope {
            charged.scope = Some(bound.take(id.scope(), now).map_err(|wait| {
                self.give_key(&charged);
                NewKeyRefusal { bound, wait }.refuse()
            })?);
        }
        Ok(Some(Box::new(charged)))
    }

    /// The key is free again: no receipt of it is kept.
    pub(crate) fn give_key(&self, charged: &ChargedKey) {
        let bounds =
            [(&self.new_keys_per_scope, charged.scope), (&self.new_keys_per_address, charged.address)];
        for (bound, charged) in bounds {
            if let (Some(bound), Some(charged)) = (bound, charged) {
                bound.give_back(charged);
            }
        }
    }

    fn new_key_bounds(&self) -> impl Iterator<Item = (&'static str, &NewKeys)> {
        let bounds = [("scope", &self.new_keys_per_scope), ("address", &self.new_keys_per_address)];
        bounds.into_iter().filter_map(|(name, bound)| Some((name, bound.as_ref()?)))
    }

    /// Counts one more request that waits or is looked up in the store, until [`Self::end_answering`].
    pub(crate) fn begin_answering(
        &self,
        id: &Id,
        client: Option<ClientAddress>,
    ) -> Result<AnsweringPlace, Problem> {
        let max = self.answering_max.unwrap_or(self.running_max.saturating_mul(ANSWERING_PER_RUNNING));
        if let Some(place) = self.begin_waiting(id, client, max) {
            return Ok(place);
        }
        // Counted by themselves: they take no place from those that may wait.
        let place = AnsweringPlace { is_at_once: true, ..AnsweringPlace::default() };
        if self.at_once.fetch_add(1, Ordering::Relaxed) >= max {
            self.end_answering(&place);
            return Err(self.overloaded());
        }
        Ok(place)
    }

    /// A place to wait in. `None` if it must not wait.
    fn begin_waiting(&self, id: &Id, client: Option<ClientAddress>, max: usize) -> Option<AnsweringPlace> {
        let place = AnsweringPlace::default();
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        if before >= max {
            self.end_answering(&place);
            return None;
        }
        // Until then no scope and no address can have more than half of the bound, and nothing need be looked up.
        if before < max / 2 {
            return Some(place);
        }
        let share = (max / SHARE_OF_WAITING).max(1);
        let address = client.map(|ClientAddress(address)| address);
        let charged = charge_one(&self.waiting_by_scope, id.scope().into(), share).is_some_and(|()| {
            let fits = address.is_none_or(|at| charge_one(&self.waiting_by_address, at, share).is_some());
            if !fits {
                give_one(&self.waiting_by_scope, id.scope());
            }
            fits
        });
        if !charged {
            self.end_answering(&place);
            return None;
        }
        Some(AnsweringPlace { charged: Some(Box::new((id.clone(), address))), ..place })
    }

    /// Gives back a place; a second time changes nothing.
    pub(crate) fn end_answering(&self, place: &AnsweringPlace) {
        if place.ended.swap(true, Ordering::Relaxed) {
            return;
        }
        let count = if place.is_at_once { &self.at_once } else { &self.waiting };
        count.fetch_sub(1, Ordering::Relaxed);
        if let Some(charged) = &place.charged {
            let (id, address) = &**charged;
            give_one(&self.waiting_by_scope, id.scope());
            if let Some(address) = address {
                give_one(&self.waiting_by_address, address);
            }
        }
    }

    /// Reserves memory for bytes of a body. A refusal reserves nothing.
    pub(crate) fn take_bytes(&self, reserved: &mut ReservedBytes, bytes: usize) -> Result<(), Problem> {
        let before = self.body_bytes.fetch_add(bytes, Ordering::Relaxed);
        let taken = if before.saturating_add(bytes) > self.body_bytes_max {
            Err(self.overloaded())
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
            return Err(self.quota_exceeded());
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

    fn overloaded(&self) -> Problem {
        Problem::Overloaded { retry_after: self.retry_after() }
    }

    fn quota_exceeded(&self) -> Problem {
        Problem::QuotaExceeded { retry_after: self.retry_after() }
    }

    fn retry_after(&self) -> Duration {
        self.drain.retry_after(self.began.elapsed(), self.running(), chance())
    }

    fn running_by_address(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.running_by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn scopes(&self) -> std::sync::MutexGuard<'_, HashMap<Box<str>, usize>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A refusal by a bound on new keys, unless the key turns out to be no new one.
pub(crate) struct NewKeyRefusal<'a> {
    bound: &'a NewKeys,
    wait: Duration,
}

impl NewKeyRefusal<'_> {
    /// Refuses it, and counts that. With jitter, so that those refused together do not come back together.
    pub(crate) fn refuse(self) -> Problem {
        self.bound.refuse();
        Problem::QuotaExceeded { retry_after: self.wait.max(SOON).mul_f64(1.0 + chance() / 2.0) }
    }
}

/// Whom a new key was charged to.
#[derive(Debug, Default)]
pub(crate) struct ChargedKey {
    scope: Option<Charged>,
    address: Option<Charged>,
}

/// The place of a request that waits or is looked up in the store.
#[derive(Debug, Default)]
pub(crate) struct AnsweringPlace {
    is_at_once: bool,
    /// Whom it is charged to, if it was crowded, which is rare.
    charged: Option<Box<(Id, Option<IpAddr>)>>,
    ended: AtomicBool,
}

impl AnsweringPlace {
    /// Whether it may wait.
    pub(crate) fn waits(&self) -> bool {
        !self.is_at_once
    }
}

/// Counts one more of this key, if there are fewer than `max`.
fn charge_one<K: Hash + Eq>(counts: &Mutex<HashMap<K, usize>>, key: K, max: usize) -> Option<()> {
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    // The bound is at least one, so no entry is left at zero.
    let count = counts.entry(key).or_default();
    (*count < max).then(|| *count += 1)
}

fn give_one<K, Q>(counts: &Mutex<HashMap<K, usize>>, key: &Q)
where
    K: Hash + Eq + Borrow<Q>,
    Q: Hash + Eq + ?Sized,
{
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
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
    client: Option<IpAddr>,
}

impl Drop for RunPermit<'_> {
    fn drop(&mut self) {
        self.admission.running.fetch_sub(1, Ordering::Relaxed);
        self.admission.drain.finished();
        if let Some(address) = self.client
            && let Entry::Occupied(mut running) = self.admission.running_by_address().entry(address)
        {
            *running.get_mut() -= 1;
            if *running.get() == 0 {
                running.remove();
            }
        }
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
