//! The list of scenarios. Each is a file with its promise, what it needs, its plan, and how it reaches a verdict.

mod crash;
mod distinct_keys;
mod expiry;
mod failed_after_effect;
mod failed_first;
mod hang_up;
mod instances;
mod key_squatting;
mod late_retry;
mod long_running;
mod lost_update;
mod malformed_keys;
mod missing_key;
mod other_body_after;
mod other_body_during;
mod other_path;
mod other_tenant;
mod redelivered_webhook;
mod refreshed_credential;
mod reordered_json;
mod retry_after_success;
mod simultaneous;
mod slow_owner;
mod while_running;

use std::future::Future;
use std::pin::Pin;

use super::error::{Error, Result};
use super::fault::{Cause, Fault, FaultKind};
use super::scenario_context::ScenarioContext;
use super::setup::Setup;

/// Something that a retry-safe endpoint must bear.
#[derive(Debug)]
pub struct Scenario {
    /// The name, on the command line and in reports.
    pub name: &'static str,
    /// The promise that holds if it passes.
    pub promise: &'static str,
    /// Whether it is about requests that are known again by their key. What is known by something else says nothing about
    /// keys, and keys that are not known say nothing about it.
    pub(super) by_key: bool,
    /// What has to be given for it, if it is not.
    pub(super) lacks: fn(&Setup) -> Option<&'static str>,
    /// What it does, and how many requests it takes at most.
    pub(super) plan: fn(&Setup) -> Plan,
    /// Does it. Says why it holds, or stops with what speaks against it.
    pub(super) run: for<'a> fn(&'a mut ScenarioContext<'_>) -> ScenarioFuture<'a>,
}

/// A scenario on its way to a verdict.
pub(super) type ScenarioFuture<'a> =
    Pin<Box<dyn Future<Output = std::result::Result<String, Stop>> + Send + 'a>>;

/// What a scenario is going to do.
pub(super) struct Plan {
    pub(super) requests_max: u64,
    pub(super) what: String,
}

impl Plan {
    pub(super) fn new(requests_max: impl TryInto<u64>, what: impl Into<String>) -> Self {
        Self { requests_max: requests_max.try_into().unwrap_or(u64::MAX), what: what.into() }
    }
}

/// Why a scenario ends without holding.
#[derive(Debug)]
pub(crate) enum Stop {
    Violated(Fault),
    /// Nothing ran twice, but some outcomes are held for an operator.
    Held(String),
    Inconclusive(String),
    NotApplicable(String),
}

impl Stop {
    pub(crate) fn violated(kind: FaultKind, why: impl Into<String>) -> Self {
        Self::Violated(Fault::new(kind, why))
    }

    /// The same, with something that it may come from and that other scenarios can meet too.
    pub(crate) fn or_from(self, cause: Cause) -> Self {
        match self {
            Self::Violated(fault) => Self::Violated(fault.or_from(cause)),
            other => other,
        }
    }

    pub(crate) fn inconclusive(why: impl Into<String>) -> Self {
        Self::Inconclusive(why.into())
    }
}

/// All scenarios, in the order in which they are played: the late retry last, since it is to be late.
pub fn all() -> &'static [Scenario] {
    &ALL
}

static ALL: [Scenario; 24] = [
    simultaneous::SCENARIO,
    retry_after_success::SCENARIO,
    while_running::SCENARIO,
    hang_up::SCENARIO,
    other_body_after::SCENARIO,
    other_body_during::SCENARIO,
    reordered_json::SCENARIO,
    other_tenant::SCENARIO,
    key_squatting::SCENARIO,
    refreshed_credential::SCENARIO,
    other_path::SCENARIO,
    missing_key::SCENARIO,
    malformed_keys::SCENARIO,
    distinct_keys::SCENARIO,
    failed_first::SCENARIO,
    failed_after_effect::SCENARIO,
    instances::SCENARIO,
    slow_owner::SCENARIO,
    long_running::SCENARIO,
    lost_update::SCENARIO,
    redelivered_webhook::SCENARIO,
    crash::SCENARIO,
    expiry::SCENARIO,
    late_retry::SCENARIO,
];

/// The one that different keys stay apart.
pub(super) fn distinct_keys() -> &'static Scenario {
    &distinct_keys::SCENARIO
}

/// Those of these names, or all if none is named.
pub(super) fn named(names: &[String]) -> Result<Vec<&'static Scenario>> {
    if let Some(unknown) = names.iter().find(|name| ALL.iter().all(|scenario| scenario.name != **name)) {
        let known: Vec<&str> = ALL.iter().map(|scenario| scenario.name).collect();
        return Err(Error::invalid(format!(
            "there is no scenario `{unknown}`; there are {}",
            known.join(", ")
        )));
    }
    let is_meant = |scenario: &&Scenario| names.is_empty() || names.iter().any(|name| name == scenario.name);
    Ok(ALL.iter().filter(is_meant).collect())
}

/// For a scenario that needs nothing but the endpoint.
fn nothing(_: &Setup) -> Option<&'static str> {
    None
}
