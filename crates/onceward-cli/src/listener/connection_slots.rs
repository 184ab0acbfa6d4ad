//! Limits the connections of a listener, in all and for each address. A connection that is doing nothing gives way to a
//! new one, so silent connections never keep a client out.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::Notify;

use super::address_share::{AddressGroup, Networks};
use super::connection_watch::{Closed, ConnectionTimeouts, ConnectionWatch, NeverUsed};

/// The longest wait after a failed accept, so that the loop is not busy.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How many connections a listener has at once.
#[derive(Clone, Debug)]
pub struct SlotLimits {
    pub connections_max: usize,
    /// For each [`AddressGroup`].
    pub per_address_max: usize,
    /// The limit for each address does not apply to these.
    pub exempt: Networks,
    pub timeouts: ConnectionTimeouts,
}

/// The connections of a listener.
#[derive(Debug)]
pub struct ConnectionSlots {
    limits: SlotLimits,
    open: Mutex<OpenConnections>,
    freed: Notify,
    refused: AtomicU64,
    closed: [AtomicU64; Closed::ALL.len()],
}

#[derive(Debug, Default)]
struct OpenConnections {
    /// In the order in which they were accepted.
    list: BTreeMap<u64, OpenConnection>,
    by_address: HashMap<AddressGroup, usize>,
    next_number: u64,
}

#[derive(Debug)]
struct OpenConnection {
    address: AddressGroup,
    watch: Arc<ConnectionWatch>,
}

/// The place of one connection; dropping it frees the place.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<ConnectionSlots>,
    number: u64,
    watch: Arc<ConnectionWatch>,
}

enum Taken {
    Slot(Slot),
    /// Every connection is in use.
    Full,
    /// This address has its share, and all of it is in use.
    ShareUsed,
}

impl ConnectionSlots {
    pub fn new(limits: SlotLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            open: Mutex::default(),
            freed: Notify::new(),
            refused: AtomicU64::new(0),
            closed: Default::default(),
        })
    }

    /// A slot for a new connection; waits while every connection is in use. `None` if its address has its share already.
    pub async fn take(self: &Arc<Self>, peer: IpAddr) -> Option<Slot> {
        loop {
            let freed = self.freed.notified();
            match self.try_take(peer) {
                Taken::Slot(slot) => return Some(slot),
                Taken::ShareUsed => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    return None;
                }
                Taken::Full => freed.await,
            }
        }
    }

    /// Waits a moment after a failed accept. If no file descriptor was left, closes the oldest idle connection, and waits
    /// only until one has ended.
    pub async fn make_space(&self, error: &io::Error) {
        let no_descriptors = [Errno::MFILE, Errno::NFILE].map(|error| Some(error.raw_os_error()));
        if !no_descriptors.contains(&error.raw_os_error()) {
            return tokio::time::sleep(ACCEPT_PAUSE).await;
        }
        let freed = self.freed.notified();
        self.lock().evict(|_| true);
        let _ = tokio::time::timeout(ACCEPT_PAUSE, freed).await;
    }

    fn try_take(self: &Arc<Self>, peer: IpAddr) -> Taken {
        let address = AddressGroup::of(peer);
        let mut open = self.lock();
        let of_address = open.by_address.get(&address).copied().unwrap_or(0);
        if of_address >= self.limits.per_address_max && !self.limits.exempt.contains(peer) {
            if !open.evict(|connection| connection.address == address) {
                return Taken::ShareUsed;
            }
        } else if open.list.len() >= self.limits.connections_max && !open.evict(|_| true) {
            return Taken::Full;
        }
        let watch = Arc::new(ConnectionWatch::new(self.limits.timeouts));
        let number = open.next_number;
        open.next_number += 1;
        *open.by_address.entry(address).or_default() += 1;
        open.list.insert(number, OpenConnection { address, watch: watch.clone() });
        Taken::Slot(Slot { slots: self.clone(), number, watch })
    }

    /// Drives a connection until it ends or is overdue. An overdue connection is dropped.
    pub async fn drive<T>(
        &self,
        watch: &ConnectionWatch,
        connection: impl Future<Output = T>,
    ) -> Result<T, Closed> {
        tokio::select! {
            ended = connection => Ok(ended),
            closed = watch.overdue() => {
                self.closed[closed as usize].fetch_add(1, Ordering::Relaxed);
                Err(closed)
            }
        }
    }

    /// Writes the metrics of this listener in the Prometheus format.
    pub fn write_metrics(&self, out: &mut String) {
        let (open, refused) = (self.lock().list.len(), self.refused.load(Ordering::Relaxed));
        let _ = writeln!(out, "# TYPE onceward_connections gauge\nonceward_connections {open}");
        let _ = writeln!(
            out,
            "# TYPE onceward_connections_refused_total counter\nonceward_connections_refused_total {refused}"
        );
        out.push_str("# TYPE onceward_connections_closed_total counter\n");
        for closed in Closed::ALL {
            let count = self.closed[closed as usize].load(Ordering::Relaxed);
            let _ =
                writeln!(out, "onceward_connections_closed_total{{reason=\"{}\"}} {count}", closed.name());
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    /// Closes the oldest idle connection that matches, one without any request first. Its place counts as free from
    /// now on.
    fn evict(&mut self, matches: impl Fn(&OpenConnection) -> bool) -> bool {
        let mut idle = None;
        for (number, connection) in &self.list {
            if !matches(connection) {
                continue;
            }
            match connection.watch.idle() {
                Some(NeverUsed(true)) => {
                    idle = Some(*number);
                    break;
                }
                Some(NeverUsed(false)) => idle = idle.or(Some(*number)),
                None => {}
            }
        }
        let Some(number) = idle else { return false };
        if let Some(connection) = self.remove(number) {
            connection.watch.evict();
        }
        true
    }

    fn remove(&mut self, number: u64) -> Option<OpenConnection> {
        let connection = self.list.remove(&number)?;
        if let Some(count) = self.by_address.get_mut(&connection.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&connection.address);
            }
        }
        Some(connection)
    }
}

impl Slot {
    pub fn watch(&self) -> &Arc<ConnectionWatch> {
        &self.watch
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // An evicted connection has been removed already.
        self.slots.lock().remove(self.number);
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
#[path = "connection_slots_test.rs"]
mod tests;
