//! Checks one service of the zoo, and compares the verifier's findings with what they must be.

use std::path::Path;

use super::start::{RunningService, check_of_process};
use super::table::ZooService;
use crate::endpoint::report::{Report, ScenarioVerdict, Timeline, Tone};
use crate::endpoint::{Check, Error};

/// What the verifier found about a service.
#[derive(Debug)]
pub struct CheckedService {
    caught_by: Option<&'static str>,
    or_caught_by: &'static [&'static str],
    also_found_by: &'static [&'static str],
    left_out_max: usize,
    seed: u64,
    result: Result<Report, Error>,
}

/// Checks a service with all scenarios. One that is to be killed is served by `program`.
pub async fn check_service(service: &ZooService, program: &Path, seed: u64) -> CheckedService {
    let folder =
        std::env::temp_dir().join(format!("onceward-zoo-{}-{}-{seed}", std::process::id(), service.name));
    let result = check_once(service, program, &folder, seed).await;
    if service.is_durable {
        let _ = std::fs::remove_dir_all(&folder);
    }
    // The same JSON in other bytes has its key elsewhere, where that is in the body; a query has no odd forms.
    let is_elsewhere = service.key_pointer.or(service.key_parameter).is_some();
    let left_out_max = LEFT_OUT_MAX + usize::from(is_elsewhere);
    let ZooService { caught_by, or_caught_by, also_found_by, .. } = *service;
    CheckedService { caught_by, or_caught_by, also_found_by, left_out_max, seed, result }
}

async fn check_once(service: &ZooService, program: &Path, folder: &Path, seed: u64) -> Result<Report, Error> {
    let running;
    let mut check: Check = if service.is_durable {
        std::fs::create_dir_all(folder)
            .and_then(|()| check_of_process(service, program, folder))
            .map_err(|error| not_started(&error))?
    } else {
        running = RunningService::start(service).await.map_err(|error| not_started(&error))?;
        running.check.clone()
    };
    check.seed = seed;
    check.run().await
}

fn not_started(error: &std::io::Error) -> Error {
    Error::invalid(error.to_string())
}

impl CheckedService {
    /// Returns whether the verifier was right: what is reported first is what the scenario that must catch it found, or
    /// has the same cause, and is the only finding; or, where there is nothing to catch, nothing was violated and nothing was left
    /// open.
    pub fn is_right(&self) -> bool {
        let Ok(report) = &self.result else { return false };
        match self.caught_by {
            Some(scenario) => std::iter::once(scenario)
                .chain(self.or_caught_by.iter().copied())
                .any(|scenario| self.is_caught(report, scenario)),
            None => {
                let left_out = report.count(ScenarioVerdict::NotApplicable);
                report.exit_code() == 0 && left_out <= self.left_out_max
            }
        }
    }

    /// Whether this scenario has caught it, and no other one has found anything else.
    fn is_caught(&self, report: &Report, scenario: &str) -> bool {
        let Some(finding) = report.finding(scenario) else { return false };
        let mains = report.main_findings();
        let shown = finding.same_cause_as.unwrap_or(finding.scenario);
        let [main, more @ ..] = &mains[..] else { return false };
        finding.verdict == ScenarioVerdict::Violated
            && main.scenario == shown
            && more.iter().all(|other| self.also_found_by.contains(&other.scenario))
            && mains.iter().all(|main| main.timeline.as_ref().is_some_and(shows_a_fault))
    }

    /// Returns the report as text, or why there is none.
    pub fn describe(&self) -> String {
        match &self.result {
            Ok(report) => format!("seed {}\n{}", self.seed, report.text()),
            Err(error) => format!("seed {}: {error}", self.seed),
        }
    }

    /// The report, if there is one.
    pub fn report(&self) -> Option<&Report> {
        self.result.as_ref().ok()
    }
}

/// Whether a picture of this has a colour for what went wrong, and not only for what was done: a bar, or a mark that counts
/// effects.
fn shows_a_fault(timeline: &Timeline) -> bool {
    timeline.lanes.iter().any(|lane| lane.tone != Tone::Done)
        || timeline.marks.iter().any(|mark| mark.text.contains("effect"))
}

/// Of those in memory all is asked but a crash, of one in a process all but several instances.
const LEFT_OUT_MAX: usize = 1;
