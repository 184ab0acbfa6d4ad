//! Checks one service of the zoo, and compares the verifier's findings with what they must be.

use std::path::Path;

use super::start::{RunningService, check_of_process};
use super::table::ZooService;
use crate::endpoint::report::{Report, Verdict};
use crate::endpoint::{Check, Error};

/// What the verifier found about a service.
#[derive(Debug)]
pub struct CheckedService {
    caught_by: Option<&'static str>,
    seed: u64,
    result: Result<Report, Error>,
}

/// Checks a service: a broken one with the scenario that must catch it, a right one with all. One
/// that is to be killed is served by `program`.
pub async fn check_service(service: &ZooService, program: &Path, seed: u64) -> CheckedService {
    let folder =
        std::env::temp_dir().join(format!("onceward-zoo-{}-{}-{seed}", std::process::id(), service.name));
    let result = look(service, program, &folder, seed).await;
    if service.is_durable {
        let _ = std::fs::remove_dir_all(&folder);
    }
    CheckedService { caught_by: service.caught_by, seed, result }
}

async fn look(service: &ZooService, program: &Path, folder: &Path, seed: u64) -> Result<Report, Error> {
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
    check.scenarios = service.caught_by.map(str::to_owned).into_iter().collect();
    check.run().await
}

fn not_started(error: &std::io::Error) -> Error {
    Error::invalid(error.to_string())
}

impl CheckedService {
    /// Whether the verifier was right: the scenario that must catch it did, or, where there is nothing to
    /// catch, nothing was violated and nothing was left open.
    pub fn is_right(&self) -> bool {
        let Ok(report) = &self.result else { return false };
        match self.caught_by {
            Some(scenario) => {
                report.finding(scenario).is_some_and(|finding| finding.verdict == Verdict::Violated)
            }
            None => {
                let left_out = report.count(Verdict::NotApplicable);
                report.exit_code() == 0 && left_out <= LEFT_OUT_MAX
            }
        }
    }

    /// What was result.
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

/// Of those in memory all is asked but a crash, of one in a process all but several instances.
const LEFT_OUT_MAX: usize = 1;
