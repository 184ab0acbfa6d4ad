//! What is broken, how bad it is, and which findings have one cause. One mistake of a service shows in many scenarios;
//! a reader wants to see it once.

use serde::Serialize;

use super::report::{Finding, ScenarioVerdict};

/// The kind of a broken promise, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FaultKind {
    /// Something had more than one effect.
    DoubleEffect,
    /// An answer, or the work behind it, is lost.
    LostAnswer,
    /// A request got an answer that is not its own, or one that it must not get.
    WrongAnswer,
    /// A key stays unavailable.
    Wedged,
    /// A replay differs from the first answer in its status, its fields or its bytes.
    InexactReplay,
    /// A client sends more than it should, or earlier.
    Overload,
}

impl FaultKind {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::DoubleEffect => "double effect",
            Self::LostAnswer => "lost answer",
            Self::WrongAnswer => "wrong answer",
            Self::Wedged => "wedged key",
            Self::InexactReplay => "inexact replay",
            Self::Overload => "overload",
        }
    }
}

/// What may be behind a fault, where other scenarios can meet it too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No key is deduplicated: every request runs.
    NotDeduplicated,
    /// Requests that ran at the same time.
    Race,
    /// What is stored of an answer: what its replays lack.
    Replay(String),
    /// A key that is done is answered with "not now".
    Stuck,
    /// A duplicate is answered with this status.
    Duplicate(u16),
    /// How bodies are compared.
    Body,
    /// Whose keys they are.
    Tenant,
    /// What is done is forgotten too early.
    Forgotten,
    /// A client that sends no key.
    NoKey,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// What it may come from, besides a mistake that only its scenario shows.
    pub(crate) causes: Vec<Cause>,
    pub(crate) why: String,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, why: impl Into<String>) -> Self {
        Self { kind, causes: Vec::new(), why: why.into() }
    }

    /// Another thing that it may come from.
    pub(crate) fn or_from(mut self, cause: Cause) -> Self {
        self.causes.push(cause);
        self
    }
}

/// The scenario that shows how answers are replayed, with nothing else going on.
const PLAIN_RETRY: &str = "retry-after-success";

/// Says of each finding with which worse or clearer one it shares its cause. `causes` belong to the findings, one by
/// one.
pub(crate) fn attribute(findings: &mut [Finding], causes: &[Vec<Cause>]) {
    let mut order: Vec<usize> =
        (0..findings.len()).filter(|index| findings[*index].verdict == ScenarioVerdict::Violated).collect();
    order.sort_by_key(|index| rank(&findings[*index], *index));
    let mut mains: Vec<(usize, &[Cause])> = Vec::new();
    for index in order {
        let own = causes[index].as_slice();
        let main = mains.iter().find(|(_, others)| own.iter().any(|cause| others.contains(cause)));
        match main {
            Some((main, _)) => findings[index].same_cause_as = Some(findings[*main].scenario),
            None => mains.push((index, own)),
        }
    }
}

/// The worst first; then the plain retry, where it is about an answer; then in the order of the scenarios.
pub(super) fn rank(finding: &Finding, index: usize) -> (Option<FaultKind>, bool, usize) {
    let is_plainest = finding.scenario == PLAIN_RETRY && finding.fault != Some(FaultKind::DoubleEffect);
    (finding.fault, !is_plainest, index)
}

#[cfg(test)]
#[path = "fault_test.rs"]
mod tests;
