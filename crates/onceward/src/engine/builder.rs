//! Builds an engine, and checks that its store is fit for use.

use std::sync::Arc;
use std::time::Duration;

use super::inner::{Inner, Rules};
use super::limits::Limits;
use super::{
    Onceward, batched_load, cache, counts, front, group_commit, in_flight, lease_renewal, limits,
    owed_releases, poller, sync,
};
use crate::caps::{Caps, ClockSource};
use crate::decide::decide;
use crate::error::{Error, ErrorKind, Result};
use crate::front::Front;
use crate::runtime::{Runtime, TokioRuntime};
use crate::store::Store;

/// Builds an [`Onceward`].
#[must_use = "a builder makes nothing until `build` is called"]
pub struct OncewardBuilder {
    store: Arc<dyn Store>,
    runtime: Option<Arc<dyn Runtime>>,
    limits: Limits,
    rules: Rules,
    volatile: Volatile,
    front: Option<Front>,
    cache_age_max: Duration,
    retention_margin: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Volatile {
    Refused,
    Accepted,
}

impl OncewardBuilder {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            runtime: None,
            limits: Limits::default(),
            rules: decide,
            volatile: Volatile::Refused,
            front: None,
            cache_age_max: cache::CACHE_AGE_MAX,
            retention_margin: front::RETENTION_MARGIN,
        }
    }

    /// Sets the bounds.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets where time, tasks and randomness come from; by default, a [`TokioRuntime`].
    pub fn with_runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Accepts a store that can lose receipts: with the process, in a crash, or in a failover. A retry of an intent
    /// whose receipt was lost runs again.
    pub fn accept_volatile(mut self) -> Self {
        self.volatile = Volatile::Accepted;
        self
    }

    /// Puts a volatile front before the store: replays of other processes' runs then need no trip to the store. Whatever
    /// happens to it, only speed is lost. For stores that several processes share.
    pub fn with_front(mut self, front: Front) -> Self {
        self.front = Some(front);
        self
    }

    /// Sets how long a success is kept in memory and in the front, and how long before its retention it ends there. For
    /// the simulator, whose time is short.
    #[doc(hidden)]
    pub fn with_cache_times(mut self, age_max: Duration, retention_margin: Duration) -> Self {
        (self.cache_age_max, self.retention_margin) = (age_max, retention_margin);
        self
    }

    /// Replaces the rules of the protocol. For the verifier, which shows that wrong rules are caught.
    #[doc(hidden)]
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Builds the engine. Fails if the store does not decide races atomically, or can lose receipts and that was not
    /// accepted, or if a limit makes no sense.
    pub fn build(self) -> Result<Onceward> {
        let caps = self.store.caps();
        if !caps.promises.atomic {
            let detail = format!(
                "the {} store does not decide races atomically, so two copies could both run; use another store",
                caps.name
            );
            return Err(Error::new(ErrorKind::Unfit, detail));
        }
        if self.volatile == Volatile::Refused {
            loses_nothing(&caps)?;
        }
        if self.front.is_some() && !caps.promises.shared {
            let detail = format!(
                "a front is for a store that several processes share, and the {} store is for one; leave it out",
                caps.name
            );
            return Err(Error::new(ErrorKind::Unfit, detail));
        }
        self.limits.check()?;
        let limits = self.limits.clamped(caps.promises.record_bytes_max);
        let clock_margin = match caps.promises.clock {
            ClockSource::Store => Duration::ZERO,
            ClockSource::Process { margin } => margin,
        };
        let runtime = self.runtime.unwrap_or_else(|| Arc::new(TokioRuntime::new()));
        let counters = Arc::new(counts::Counters::default());
        let inner = Inner {
            group_commit: group_commit::GroupCommit::new(
                self.store.clone(),
                runtime.clone(),
                counters.clone(),
                limits.clone(),
            ),
            flights: in_flight::Flights::new(limits.waiters_max),
            cache: cache::Cache::new(limits.cache_bytes_max, self.cache_age_max),
            front: self.front.map(|front| {
                Arc::new(front::EngineFront::new(front, self.cache_age_max, self.retention_margin))
            }),
            owed_releases: owed_releases::OwedReleases::new(limits.owed_releases_max),
            batched_load: batched_load::BatchedLoad::new(),
            enqueued: Arc::default(),
            unrecorded_bytes: std::sync::atomic::AtomicUsize::new(0),
            lease_renewer: lease_renewal::LeaseRenewer::new(),
            poller: poller::Poller::new(),
            sweep_from: sync::Mutex::new(None),
            given_up_from: sync::Mutex::new(None),
            store: self.store,
            runtime,
            rules: self.rules,
            clock_margin,
            limits,
            content_bytes_max: limits::content_bytes_max(caps.promises.record_bytes_max),
            counters,
        };
        Ok(Onceward { inner: Arc::new(inner) })
    }
}

/// Refuses a store that can lose receipts.
fn loses_nothing(caps: &Caps) -> Result<()> {
    let loss = match (caps.promises.durable, caps.promises.failover_loss) {
        (true, false) => return Ok(()),
        (false, _) => "forgets its receipts, all or the last of them, when its process or its machine ends",
        (true, true) => "can lose acknowledged receipts in a failover",
    };
    let detail = format!(
        "the {} store {loss}, and a retry then runs again; use a durable store, or call accept_volatile() if that is meant",
        caps.name
    );
    Err(Error::new(ErrorKind::Unfit, detail))
}

impl std::fmt::Debug for OncewardBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OncewardBuilder").field("store", &self.store.caps().name).finish_non_exhaustive()
    }
}
