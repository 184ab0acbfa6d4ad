//! Adaptive shedding: refuses new work of a route early, before it is claimed, when its service takes too long.
//!
//! ```text
//! in flight   0 ──────────────────── 0.8 × limit ─────────── limit
//!             everything is admitted │ first tries of callers │ 503 overloaded
//!                                    │ below their share      │
//! ```
//!
//! The limit comes from [`limit`]: additive increase and multiplicative decrease (AIMD) over measured latency, against
//! a latency that the operator names. The alternative, a gradient over the latency of the idle service, needs no such
//! number, but must guess that latency: on a route with mixed work the guess is too low, and healthy traffic is shed.
//!
//! Requests without a key are work like any other: they are counted and refused in the same way, for as long as the service
//! takes to answer. Replays and waiting duplicates are no new work: a request that is refused here still gets the answer of an earlier
//! run, and [`Admission`](crate::Admission) bounds them by themselves.

mod limit;
#[cfg(test)]
mod overload_plot_test;
#[cfg(test)]
mod overload_test;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use onceward::{Error, ErrorKind, Id, Result};
use tokio::time::Instant;

use crate::drain_rate::{DrainRate, chance};
use crate::headers::ONCEWARD_TRY;
use crate::problem::Problem;
use limit::{AdaptiveLimit, Begun, Load};

/// The last part of the limit, which is kept for first tries of callers below their share: one fifth.
const RESERVED_PART: usize = 5;
/// The least limit, unless it is set.
const IN_FLIGHT_MIN: usize = 4;
/// The longest latency that can be set.
const LATENCY_MAX: Duration = Duration::from_hours(1);

/// When a route sheds load: see [`RouteBuilder::with_shedding`](crate::RouteBuilder::with_shedding).
///
/// The number of intents of the route that may run at once adapts to how long the service takes to answer: it falls when
/// more than a tenth of the answers take longer than `latency`, and grows while the service keeps up. Choose a latency
/// well above that of the healthy service, and below the patience of its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shedding {
    latency: Duration,
    in_flight_min: usize,
}

impl Shedding {
    /// Sheds new work when answers take longer than this.
    pub fn new(latency: Duration) -> Self {
        Self { latency, in_flight_min: IN_FLIGHT_MIN }
    }

    /// Sets how many intents may always run at once, however slow the service is. The default is 4.
    pub fn with_in_flight_min(mut self, intents: usize) -> Self {
        self.in_flight_min = intents;
        self
    }

    /// The latency above which work is shed.
    pub fn latency(&self) -> Duration {
        self.latency
    }

    /// How many intents may always run at once.
    pub fn in_flight_min(&self) -> usize {
        self.in_flight_min
    }

    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |why: &str| Err(Error::new(ErrorKind::Invalid, format!("shedding: {why}")));
        if self.latency.is_zero() || self.latency > LATENCY_MAX {
            return wrong("the latency must be longer than zero and at most 1 hour");
        }
        if self.in_flight_min == 0 {
            return wrong("in_flight_min must be at least 1: a limit of zero would refuse everything");
        }
        Ok(())
    }
}

/// Which try of an intent a request is, by its own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Try {
    /// Also if it does not say.
    First,
    Again,
}

impl Try {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let number = headers.get(ONCEWARD_TRY).and_then(|number| number.to_str().ok()?.parse::<u32>().ok());
        if number.is_some_and(|number| number > 1) { Self::Again } else { Self::First }
    }
}

/// Why new work is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// There is too much of it.
    Full,
    /// This caller has its share already.
    Share,
}

/// The work of a route that is in flight, and its limit. It reads no clock.
#[derive(Debug)]
struct Work {
    limit: AdaptiveLimit,
    in_flight: usize,
    scopes: HashMap<Box<str>, usize>,
}

impl Work {
    fn new(shedding: Shedding) -> Self {
        let limit = AdaptiveLimit::new(shedding.latency, shedding.in_flight_min);
        Self { limit, in_flight: 0, scopes: HashMap::new() }
    }

    /// Whether one more intent may begin.
    fn admits(&self, scope: &str, which: Try) -> std::result::Result<(), Refused> {
        let limit = self.limit.current();
        let reserved = (limit / RESERVED_PART).max(1);
        let refused = if self.in_flight >= limit {
            Some(Refused::Full)
        } else if self.in_flight < limit - reserved || self.in_flight == 0 {
            None
        } else if which == Try::Again {
            Some(Refused::Full)
        } else {
            let own = self.scopes.get(scope).copied().unwrap_or(0);
            let callers = self.scopes.len() + usize::from(own == 0);
            (callers > 1 && own >= (limit / callers).max(1)).then_some(Refused::Share)
        };
        refused.map_or(Ok(()), Err)
    }

    fn begin(&mut self, scope: &str, now: Duration) -> Begun {
        self.in_flight += 1;
        match self.scopes.get_mut(scope) {
            Some(own) => *own += 1,
            None => drop(self.scopes.insert(scope.into(), 1)),
        }
        self.limit.begin(self.in_flight, now)
    }

    fn end(&mut self, scope: &str) {
        self.in_flight -= 1;
        if let Some(own) = self.scopes.get_mut(scope) {
            *own -= 1;
            if *own == 0 {
                self.scopes.remove(scope);
            }
        }
    }
}

/// Sheds the work of one route.
#[derive(Debug)]
pub(crate) struct Shedder {
    shedding: Shedding,
    began: Instant,
    work: Mutex<Work>,
    drain: DrainRate,
}

impl Shedder {
    pub(crate) fn new(shedding: Shedding) -> Arc<Self> {
        let work = Mutex::new(Work::new(shedding));
        Arc::new(Self { shedding, began: Instant::now(), work, drain: DrainRate::default() })
    }

    pub(crate) fn shedding(&self) -> Shedding {
        self.shedding
    }

    /// How many intents may run at once now, and how many do.
    pub(crate) fn state(&self) -> (usize, usize) {
        let work = self.work();
        (work.limit.current(), work.in_flight)
    }

    /// Whether one more intent of this scope could begin now. This reserves nothing.
    pub(crate) fn check(&self, id: &Id, which: Try) -> std::result::Result<(), Problem> {
        let work = self.work();
        work.admits(id.scope(), which).map_err(|refused| self.problem(refused, work.in_flight))
    }

    /// Counts one more intent until the permit is dropped.
    pub(crate) fn enter(self: &Arc<Self>, id: &Id, which: Try) -> std::result::Result<ShedPermit, Problem> {
        let mut work = self.work();
        work.admits(id.scope(), which).map_err(|refused| self.problem(refused, work.in_flight))?;
        let begun = work.begin(id.scope(), self.now());
        Ok(ShedPermit { shedder: self.clone(), id: id.clone(), begun })
    }

    fn problem(&self, refused: Refused, in_flight: usize) -> Problem {
        let retry_after = self.drain.retry_after(self.now(), in_flight, chance());
        match refused {
            Refused::Full => Problem::Overloaded { retry_after },
            Refused::Share => Problem::QuotaExceeded { retry_after },
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The permit of one intent in flight.
#[derive(Debug)]
pub(crate) struct ShedPermit {
    shedder: Arc<Shedder>,
    id: Id,
    begun: Begun,
}

impl ShedPermit {
    /// The service has answered with this status. What follows depends on the client, too.
    pub(crate) fn answered(&self, status: StatusCode) {
        if let Some(load) = Load::of(status) {
            let now = self.shedder.now();
            self.shedder.work().limit.answered(load, self.begun, now);
        }
    }
}

impl Drop for ShedPermit {
    fn drop(&mut self) {
        self.shedder.drain.finished();
        self.shedder.work().end(self.id.scope());
    }
}

#[cfg(test)]
#[path = "shedding_test.rs"]
mod tests;
