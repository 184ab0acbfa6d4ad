//! `onceward verify --client-cmd`: checks whether somebody's client retries safely.

use std::process::ExitCode;

use onceward_verify::client_check::{self, ClientCheck};

use super::Args;

impl Args {
    pub(super) async fn check_client(&self, command: &str) -> Result<ExitCode, String> {
        let mut check = ClientCheck::new(command);
        check.key_header.clone_from(&self.key_header);
        check.key_pointer.clone_from(&self.key_pointer);
        check.scenarios.clone_from(&self.scenarios);
        check.run_within = self.timeout;
        if self.dry_run {
            for scenario in client_check::scenarios() {
                println!("{:<24} {}", scenario.name, scenario.promise);
            }
            return Ok(ExitCode::SUCCESS);
        }
        let report = check.run().await.map_err(|error| error.to_string())?;
        Ok(self.write_report(&report))
    }
}
