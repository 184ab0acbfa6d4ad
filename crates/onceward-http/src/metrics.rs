//! The counters of the HTTP layer. All routes share them, and they survive a reload of the configuration.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::problem::Problem;

/// Counters of the HTTP layer. [`Metrics::each`] reads them all.
#[derive(Debug, Default)]
pub struct Metrics {
    pub(crate) guarded: Gauge,
    pub(crate) keyless: Gauge,
    pub(crate) unguarded_methods: Gauge,
    pub(crate) passed_unguarded: Gauge,
    pub(crate) reconciles: Gauge,
    pub(crate) recorded_late: Gauge,
    pub(crate) sent_unrecorded: Gauge,
    pub(crate) slow_clients_cut_off: Gauge,
    pub(crate) same_request_other_key: Gauge,
    pub(crate) same_request_other_scope: Gauge,
    pub(crate) events_other_body: Gauge,
    pub(crate) in_flight: Gauge,
    refusals: [Gauge; Problem::NAMES.len()],
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a refusal. The layer counts its own; this is for other code that answers with a [`Problem`].
    pub fn refused(&self, problem: &Problem) {
        self.refusals[problem.index()].one();
    }

    /// Guarded requests that are under way now, those whose clients have hung up included.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.read()
    }

    /// Every gauge: its name, a label and its value where one name has several, and the number. All only
    /// ever grow, except `in_flight`, which is what is in flight now.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, Option<(&'static str, &'static str)>, u64)> {
        let plain = [
            ("requests_guarded", &self.guarded),
            ("requests_keyless", &self.keyless),
            ("requests_other_methods", &self.unguarded_methods),
            ("requests_passed_unguarded", &self.passed_unguarded),
            ("reconciles", &self.reconciles),
            ("answers_recorded_late", &self.recorded_late),
            ("answers_sent_unrecorded", &self.sent_unrecorded),
            ("slow_clients_cut_off", &self.slow_clients_cut_off),
            ("same_requests_other_key", &self.same_request_other_key),
            ("same_requests_other_scope", &self.same_request_other_scope),
            ("webhook_events_other_body", &self.events_other_body),
            ("in_flight", &self.in_flight),
        ];
        let refusals = Problem::NAMES.iter().zip(&self.refusals);
        plain
            .into_iter()
            .map(|(name, gauge)| (name, None, gauge.read()))
            .chain(refusals.map(|(name, gauge)| ("refusals", Some(("problem", *name)), gauge.read())))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    pub(crate) fn one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn one_less(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
