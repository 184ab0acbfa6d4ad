//! The circuit breaker of one host: after too many failures nothing is sent for a while, then single probes.
//!
//! ```text
//!            most fail                    the pause is over
//!  CLOSED ───────────────▶ OPEN ────────────────────────────▶ HALF OPEN: one probe at a time
//!    ▲                      ▲  the pause doubles                │  │
//!    │                      └───────── the probe fails ─────────┘  │
//!    └──────────────────────────────── enough probes succeed ──────┘
//! ```

use std::time::Duration;

/// When a breaker opens, and how it closes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BreakerConfig {
    /// It opens when this many of a hundred tries of the last ten seconds failed …
    pub failures_percent: u32,
    /// … of at least this many.
    pub tries_min: u32,
    /// How long it stays open the first time; doubled each time a probe fails.
    pub open_for: Duration,
    /// The longest it stays open.
    pub open_for_max: Duration,
    /// Probes in a row that must succeed before it closes.
    pub probes: u32,
    /// What becomes of a call that finds it open.
    pub when_open: WhenOpen,
}

/// What becomes of a call that finds the breaker of its host open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenOpen {
    /// It ends at once, with an error that says when to come back. For services: callers that wait hold memory and
    /// connections for a host that fails most of what it is sent.
    #[default]
    EndCall,
    /// It waits until a probe may be sent, or until its deadline. For a process that has nothing else to do.
    Wait,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failures_percent: 50,
            tries_min: 20,
            open_for: Duration::from_secs(1),
            open_for_max: Duration::from_secs(60),
            probes: 2,
            when_open: WhenOpen::EndCall,
        }
    }
}

impl BreakerConfig {
    /// Never opens.
    pub const OFF: Self = Self {
        failures_percent: 101,
        tries_min: u32::MAX,
        open_for: Duration::ZERO,
        open_for_max: Duration::ZERO,
        probes: 1,
        when_open: WhenOpen::EndCall,
    };

    /// Sets how many tries in a hundred must fail for it to open: 1 to 100.
    pub fn with_failures_percent(mut self, percent: u32) -> Self {
        self.failures_percent = percent;
        self
    }

    /// Sets the number of tries in ten seconds below which it does not open.
    pub fn with_tries_min(mut self, tries: u32) -> Self {
        self.tries_min = tries;
        self
    }

    /// Sets how long it stays open the first time.
    pub fn with_open_for(mut self, open_for: Duration) -> Self {
        self.open_for = open_for;
        self
    }

    /// Sets the longest that it stays open.
    pub fn with_open_for_max(mut self, max: Duration) -> Self {
        self.open_for_max = max;
        self
    }

    /// Sets the number of probes in a row that must succeed before it closes.
    pub fn with_probes(mut self, probes: u32) -> Self {
        self.probes = probes;
        self
    }

    /// Sets what becomes of a call that finds it open.
    pub fn with_when_open(mut self, when_open: WhenOpen) -> Self {
        self.when_open = when_open;
        self
    }

    /// What cannot work in these settings.
    pub(crate) fn wrong(&self) -> Option<&'static str> {
        if self.failures_percent == 0 {
            Some("the breaker's failures_percent is 0: it would open after successes")
        } else if self.probes == 0 {
            Some("the breaker's probes is 0: it needs at least one to close again")
        } else if self.open_for > self.open_for_max {
            Some("the breaker's open_for is longer than its open_for_max")
        } else {
            None
        }
    }
}

/// Whether a try may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerDecision {
    /// It may.
    Free,
    /// It may, as a probe: its result decides whether the breaker closes.
    Probe,
    /// It may not, for this long at least.
    Shut {
        /// When it makes sense to ask again.
        retry_in: Duration,
    },
}

const SLOTS: usize = 10;

/// The breaker of one host. `now` is any clock that does not go back.
#[derive(Clone, Debug)]
pub struct Breaker {
    config: BreakerConfig,
    state: BreakerState,
    newest: u64,
    slots: [Slot; SLOTS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BreakerState {
    Closed,
    Open {
        until: Duration,
        lasted: Duration,
    },
    /// A probe whose result is never reported (its caller was dropped) is given up at `probe_until`.
    HalfOpen {
        probe_until: Option<Duration>,
        succeeded: u32,
        lasted: Duration,
    },
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    tries: u64,
    failures: u64,
}

impl Breaker {
    /// A closed breaker.
    pub fn new(config: BreakerConfig) -> Self {
        Self { config, state: BreakerState::Closed, newest: 0, slots: [Slot::default(); SLOTS] }
    }

    /// Asks whether a try may be sent. If so, the caller reports its result with [`Self::tell`].
    pub fn ask(&mut self, now: Duration) -> BreakerDecision {
        match self.state {
            BreakerState::Closed => BreakerDecision::Free,
            BreakerState::Open { until, .. } if now < until => shut(until, now),
            BreakerState::Open { lasted, .. } => self.probe(now, 0, lasted),
            BreakerState::HalfOpen { probe_until: Some(until), .. } if now < until => shut(until, now),
            BreakerState::HalfOpen { succeeded, lasted, .. } => self.probe(now, succeeded, lasted),
        }
    }

    /// Reports the result of a try that was allowed by `decision`.
    pub fn tell(&mut self, now: Duration, decision: BreakerDecision, well: bool) {
        match (self.state, decision) {
            (BreakerState::Closed, _) => self.count(now, well),
            (BreakerState::HalfOpen { lasted, .. }, BreakerDecision::Probe) if !well => {
                self.open(now, lasted.saturating_mul(2));
            }
            (BreakerState::HalfOpen { succeeded, lasted, .. }, BreakerDecision::Probe) => {
                let succeeded = succeeded + 1;
                self.state = if succeeded >= self.config.probes {
                    self.slots = [Slot::default(); SLOTS];
                    BreakerState::Closed
                } else {
                    BreakerState::HalfOpen { probe_until: None, succeeded, lasted }
                };
            }
            // Sent before the breaker opened: no longer relevant.
            (BreakerState::Open { .. } | BreakerState::HalfOpen { .. }, _) => {}
        }
    }

    /// Returns whether it allows every try.
    pub fn is_closed(&self) -> bool {
        self.state == BreakerState::Closed
    }

    fn probe(&mut self, now: Duration, succeeded: u32, lasted: Duration) -> BreakerDecision {
        let probe_until = Some(now.saturating_add(lasted));
        self.state = BreakerState::HalfOpen { probe_until, succeeded, lasted };
        BreakerDecision::Probe
    }

    fn open(&mut self, now: Duration, lasted: Duration) {
        let lasted = lasted.min(self.config.open_for_max);
        self.state = BreakerState::Open { until: now.saturating_add(lasted), lasted };
    }

    fn count(&mut self, now: Duration, well: bool) {
        let number = now.as_secs();
        while self.newest < number {
            self.newest = (self.newest + 1).max(number.saturating_sub(SLOTS as u64));
            self.slots[index(self.newest)] = Slot::default();
        }
        let slot = &mut self.slots[index(self.newest)];
        slot.tries += 1;
        if well {
            return;
        }
        slot.failures += 1;
        let tries: u64 = self.slots.iter().map(|slot| slot.tries).sum();
        let failures: u64 = self.slots.iter().map(|slot| slot.failures).sum();
        let most = failures * 100 >= tries * u64::from(self.config.failures_percent);
        if most && tries >= u64::from(self.config.tries_min) {
            self.open(now, self.config.open_for);
        }
    }
}

fn shut(until: Duration, now: Duration) -> BreakerDecision {
    BreakerDecision::Shut { retry_in: until.saturating_sub(now) }
}

fn index(number: u64) -> usize {
    usize::try_from(number % SLOTS as u64).expect("a remainder of ten")
}

#[cfg(test)]
#[path = "breaker_test.rs"]
mod tests;
