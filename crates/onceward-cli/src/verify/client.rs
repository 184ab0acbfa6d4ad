//! `onceward verify --client-cmd`: checks whether a client retries safely.

use std::process::ExitCode;

use onceward_verify::client_check::{self, ClientCheck};

use super::Args;

impl Args {
    pub(super) async fn check_client(&self, command: &str) -> Result<ExitCode, String> {
        let check = ClientCheck::new(command)
            .with_key_header(&self.key_header)
            .with_key_pointer(self.key_pointer.clone())
            .with_scenarios(&self.scenarios)
            .with_run_within(self.timeout);
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
