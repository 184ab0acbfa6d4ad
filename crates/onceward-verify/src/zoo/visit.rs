//! Checks one service of the zoo, and compares the verifier's findings with what they must be.

use std::path::Path;

use super::cage::{Cage, check_of_process};
use super::table::Animal;
use crate::endpoint::report::{Report, Verdict};
use crate::endpoint::{Check, Error};

/// What the verifier said of an animal.
#[derive(Debug)]
pub struct Visit {
    caught_by: Option<&'static str>,
    seed: u64,
    said: Result<Report, Error>,
}

/// Looks at an animal: at a broken one with the scenario that must catch it, at a right one with all. One
/// that is to be killed is served by `program`.
pub async fn visit(animal: &Animal, program: &Path, seed: u64) -> Visit {
    let folder =
        std::env::temp_dir().join(format!("onceward-zoo-{}-{}-{seed}", std::process::id(), animal.name));
    let said = look(animal, program, &folder, seed).await;
    if animal.is_durable {
        let _ = std::fs::remove_dir_all(&folder);
    }
    Visit { caught_by: animal.caught_by, seed, said }
}

async fn look(animal: &Animal, program: &Path, folder: &Path, seed: u64) -> Result<Report, Error> {
    let cage;
    let mut check: Check = if animal.is_durable {
        std::fs::create_dir_all(folder)
            .and_then(|()| check_of_process(animal, program, folder))
            .map_err(|error| no_cage(&error))?
    } else {
        cage = Cage::open(animal).await.map_err(|error| no_cage(&error))?;
        cage.check.clone()
    };
    check.seed = seed;
    check.scenarios = animal.caught_by.map(str::to_owned).into_iter().collect();
    check.run().await
}

fn no_cage(error: &std::io::Error) -> Error {
    Error::invalid(error.to_string())
}

impl Visit {
    /// Whether the verifier was right: the scenario that must catch it did, or, where there is nothing to
    /// catch, nothing was violated and nothing was left open.
    pub fn is_right(&self) -> bool {
        let Ok(report) = &self.said else { return false };
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

    /// What was said.
    pub fn story(&self) -> String {
        match &self.said {
            Ok(report) => format!("seed {}\n{}", self.seed, report.text()),
            Err(error) => format!("seed {}: {error}", self.seed),
        }
    }

    /// The report, if there is one.
    pub fn report(&self) -> Option<&Report> {
        self.said.as_ref().ok()
    }
}

/// Of those in memory all is asked but a crash, of one in a process all but several instances.
const LEFT_OUT_MAX: usize = 1;
