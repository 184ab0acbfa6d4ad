//! What all parts of one engine share, and the few things all of them do to the store.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::batched_load::BatchedLoad;
use super::cache::Cache;
use super::counts::Counters;
use super::front::EngineFront;
use super::group_commit::{GroupCommit, Swapping, Urgency};
use super::in_flight::Flights;
use super::lease_renewal::LeaseRenewer;
use super::limits::Limits;
use super::owed_releases::OwedReleases;
use super::poller::Poller;
use super::sealed::{open_any, seal};
use super::signal::Signal;
use super::sync::Mutex;
use crate::ask::Ask;
use crate::decide::Decision;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Id;
use crate::policy::Policy;
use crate::receipt::{Held, Receipt};
use crate::runtime::Runtime;
use crate::store::{Cursor, Loaded, Page, Scan, Seen, Store};
use crate::transition::{self, Write};

/// The shape of `decide`. The engine takes it as a value so that the verifier can show
/// that wrong rules are caught.
pub type Rules = fn(&Ask, Option<&Receipt>) -> Decision;

pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) rules: Rules,
    /// How much the clocks may differ that the store's due times go by.
    pub(crate) clock_margin: Duration,
    pub(crate) limits: Limits,
    /// Bytes of a body and an input that the store takes in one record.
    pub(crate) content_bytes_max: usize,
    pub(crate) counters: Arc<Counters>,
    pub(crate) group_commit: Arc<GroupCommit>,
    pub(crate) flights: Flights,
    pub(crate) cache: Cache,
    pub(crate) front: Option<Arc<EngineFront>>,
    pub(crate) lease_renewer: LeaseRenewer,
    pub(crate) poller: Poller,
    pub(crate) owed_releases: OwedReleases,
    pub(crate) batched_load: BatchedLoad,
    /// Something may have come for the workers of this process.
    pub(crate) enqueued: Arc<Signal>,
    /// Bytes of outcomes that were reached and could not be written yet.
    pub(crate) unrecorded_bytes: AtomicUsize,
    /// Where the next sweep continues, if the last one did not reach the end.
    pub(crate) sweep_from: Mutex<Option<Cursor>>,
    /// The same for unknown outcomes that are never settled.
    pub(crate) given_up_from: Mutex<Option<Cursor>>,
}

impl Inner {
    pub(crate) fn now(&self) -> Duration {
        self.runtime.now()
    }

    pub(crate) fn decide(&self, ask: &Ask, receipt: Option<&Receipt>) -> Decision {
        (self.rules)(ask, receipt)
    }

    /// How long the store is to keep a claim for its owner. Where each process has a clock of its own, the one that is
    /// ahead sees its end early, by the margin at most: not before the owner does, who counts from when it asked.
    pub(crate) fn lease_in_store(&self, policy: &Policy) -> Duration {
        policy.lease() + self.clock_margin
    }

    /// A claim, for as long as a lease.
    pub(crate) fn hold(&self, held: Held, policy: &Policy) -> Write {
        let write = transition::hold(held, policy);
        Write { due_in: write.due_in.map(|lease| lease + self.clock_margin), ..write }
    }

    /// Submits the change from what was seen; `None` removes.
    pub(crate) fn swap(&self, id: &Id, seen: Seen, write: Option<&Write>, urgency: Urgency) -> Swapping {
        self.group_commit.swap(seal(id, seen, write), urgency)
    }

    /// Reads one receipt as it is now.
    pub(crate) async fn load(&self, id: &Id) -> Result<Option<Receipt>> {
        let mut found = self.load_all(std::slice::from_ref(id)).await?;
        open_any(found.pop().expect("as many answers as ids, checked")?.as_ref())
    }

    /// Reads records as they are now.
    pub(crate) async fn load_all(&self, ids: &[Id]) -> Result<Vec<Loaded>> {
        self.counters.store_loads.one();
        let found = self.store.load(ids).await.inspect_err(|_| self.counters.store_errors.one())?;
        if found.len() != ids.len() {
            let detail = format!("the store gave {} answers to {} ids", found.len(), ids.len());
            return Err(Error::new(ErrorKind::Damaged, detail));
        }
        Ok(found)
    }

    /// Reads one page.
    pub(crate) async fn scan(&self, scan: &Scan) -> Result<Page> {
        self.store.scan(scan).await.inspect_err(|_| self.counters.store_errors.one())
    }
}
