//! The result of a check as plain data. Each file in `report/` renders it in one format.

pub(super) mod date;
mod html;
mod junit;
mod markdown;
mod picture;
mod table;
mod text;

use std::time::Duration;

use serde::Serialize;

use super::fault::{FaultKind, rank};
use super::secrets::Secrets;
pub use table::Table;

pub use super::trace::{Lane, Mark, Timeline, Tone};

/// The verdict of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ScenarioVerdict {
    /// Nothing spoke against the promise, and it was put to the test.
    Holds,
    /// Nothing ran twice, but for some keys the outcome is unknown and held until an operator settles it.
    Held,
    /// The promise was broken; the finding shows how.
    Violated,
    /// Nothing spoke against it, but nothing is deduplicated here, so it says nothing.
    Vacuous,
    /// It could not be put to the test here.
    Inconclusive,
    /// It was not asked for, or something that it needs was not given.
    NotApplicable,
}

impl ScenarioVerdict {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Held => "held",
            Self::Violated => "violated",
            Self::Vacuous => "vacuous",
            Self::Inconclusive => "inconclusive",
            Self::NotApplicable => "not applicable",
        }
    }
}

/// The finding of one scenario.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Which scenario.
    pub scenario: &'static str,
    /// The promise.
    pub promise: &'static str,
    /// Its result.
    pub verdict: ScenarioVerdict,
    /// The kind of the fault, if it is violated.
    pub fault: Option<FaultKind>,
    /// The scenario whose finding shows the same mistake, if this is not the finding to look at first.
    pub same_cause_as: Option<&'static str>,
    /// Why, in a sentence.
    pub why: String,
    /// Further notes.
    pub notes: Vec<String>,
    /// Requests that it took.
    pub requests: u64,
    /// How long it took.
    pub took_ms: u64,
    /// The command that does it again.
    pub reproduce: String,
    /// The events of the round that broke the promise.
    pub timeline: Option<Timeline>,
}

/// How far apart the last bytes of simultaneous requests left.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Spread {
    /// Volleys that were measured.
    pub volleys: usize,
    /// Requests in the largest of them.
    pub requests_max: usize,
    /// From the first last byte to the last one, in the best volley of that size.
    pub best_us: u64,
    /// From the first last byte to the last one: half of the volleys were closer together.
    pub median_us: u64,
    /// From the first last byte to the last one, in the worst volley.
    pub worst_us: u64,
    /// How many last bytes left how long after the first one, in bins of equal width.
    pub bins: Vec<usize>,
    /// The width of a bin.
    pub bin_us: u64,
}

/// Bins of a histogram of the spread.
const BINS: usize = 24;

impl Spread {
    pub(super) fn of(volleys: &[Vec<Duration>]) -> Self {
        let micros = |duration: &Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let mut widths: Vec<u64> =
            volleys.iter().filter_map(|volley| volley.iter().max()).map(micros).collect();
        widths.sort_unstable();
        let Some(worst_us) = widths.last().copied() else { return Self::default() };
        let bin_us = worst_us / BINS as u64 + 1;
        let mut bins = vec![0; BINS];
        for offset in volleys.iter().flatten() {
            let bin = usize::try_from(micros(offset) / bin_us).unwrap_or(BINS);
            bins[bin.min(BINS - 1)] += 1;
        }
        let requests_max = volleys.iter().map(Vec::len).max().unwrap_or_default();
        let largest = volleys.iter().filter(|volley| volley.len() == requests_max);
        Self {
            volleys: widths.len(),
            requests_max,
            best_us: largest.filter_map(|volley| volley.iter().max()).map(micros).min().unwrap_or_default(),
            median_us: widths[widths.len() / 2],
            worst_us,
            bins,
            bin_us,
        }
    }
}

/// All that was found.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The endpoint.
    pub url: String,
    /// The method.
    pub method: String,
    /// The version of the verifier.
    pub version: &'static str,
    /// The name of this run in its keys.
    pub run: String,
    /// The seed of all random decisions.
    pub seed: u64,
    /// When it began, in seconds since 1970.
    pub started_unix_s: u64,
    /// How long it took.
    pub took_ms: u64,
    /// Requests that were sent, the baseline's included.
    pub requests: u64,
    /// Requests of a volley.
    pub clients: usize,
    /// Whether effects were counted. Where they were not, what holds only holds for the answers.
    pub effects_seen: bool,
    /// How long a plain request took.
    pub request_took_us: u64,
    /// How the key is written: which forms the endpoint takes, and whether they are one key.
    pub key_form: String,
    /// Whether a plain retry has no effect.
    pub deduplicates: bool,
    /// How far apart simultaneous requests were.
    pub spread: Spread,
    /// The findings, scenario by scenario.
    pub findings: Vec<Finding>,
}

/// What a reader must know of a verdict that was reached without an oracle.
pub(super) const WEAKER: &str = "No effects were counted: what holds only holds for the answers. An endpoint that \
     runs twice and answers once would pass. Give --effects-url or --effects-cmd.";

impl Report {
    /// How many scenarios came to this verdict.
    pub fn count(&self, verdict: ScenarioVerdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// The finding of this scenario, if it was played.
    pub fn finding(&self, scenario: &str) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.scenario == scenario)
    }

    /// Scenarios that were violated.
    pub fn violated(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.verdict == ScenarioVerdict::Violated)
    }

    /// Violated scenarios with a cause of their own, the worst first.
    pub fn main_findings(&self) -> Vec<&Finding> {
        let mut found: Vec<(usize, &Finding)> = self.findings.iter().enumerate().collect();
        found.retain(|(_, finding)| {
            finding.verdict == ScenarioVerdict::Violated && finding.same_cause_as.is_none()
        });
        found.sort_by_key(|(index, finding)| rank(finding, *index));
        found.into_iter().map(|(_, finding)| finding).collect()
    }

    /// The verdict on the whole, in a line to paste.
    pub fn summary(&self) -> String {
        text::summary(self)
    }

    /// When it began, as a date and time in UTC.
    pub fn started(&self) -> String {
        date::utc(self.started_unix_s)
    }

    /// Takes these secrets out of every text.
    pub(super) fn conceal(&mut self, secrets: &Secrets) {
        let findings = self.findings.iter_mut().flat_map(|finding| {
            let lanes = finding.timeline.iter_mut().flat_map(|timeline| &mut timeline.lanes);
            let texts = lanes.flat_map(|lane| [&mut lane.label, &mut lane.ending]);
            texts.chain(&mut finding.notes).chain([&mut finding.why, &mut finding.reproduce])
        });
        findings.chain([&mut self.url, &mut self.key_form]).for_each(|text| secrets.conceal(text));
    }

    /// Returns the exit code of a command: 0 if all that was asked holds, 1 if something is violated, 2 if something
    /// could not be checked.
    pub fn exit_code(&self) -> u8 {
        if self.count(ScenarioVerdict::Violated) > 0 {
            1
        } else if self.count(ScenarioVerdict::Inconclusive) > 0
            || self.count(ScenarioVerdict::Holds) + self.count(ScenarioVerdict::Held) == 0
        {
            2
        } else {
            0
        }
    }

    /// For a test: panics with the whole report unless all that was asked holds.
    #[track_caller]
    pub fn assert_holds(&self) {
        assert!(self.exit_code() == 0, "{}", self.text());
    }

    /// For a person at a terminal.
    pub fn text(&self) -> String {
        text::text(self)
    }

    /// For a program.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data can be written")
    }

    /// For a build server.
    pub fn junit(&self) -> String {
        junit::junit(self)
    }

    /// For a pull request or a page of documentation: a summary and a table.
    pub fn markdown(&self) -> String {
        markdown::markdown(self)
    }

    /// For a person with a browser: one page that needs nothing else.
    pub fn html(&self) -> String {
        html::html(self)
    }
}
