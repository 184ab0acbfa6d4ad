//! Several checks in one report: several endpoints, several seeds, or reports that were written before.

use std::process::ExitCode;

use onceward_verify::endpoint::Check;
use onceward_verify::endpoint::report::{Report, Table};
use serde_json::json;

use super::{Args, Format, dry_run, run_with_progress};

impl Args {
    /// Checks all of these, each with all seeds. Of a description there are also the operations that declare no key.
    pub(super) async fn check_many(
        &self,
        checks: Vec<(String, Check)>,
        without_key: Option<&[String]>,
    ) -> Result<ExitCode, String> {
        if matches!(self.format, Format::Junit | Format::Html) {
            return Err("several checks are reported as --format text, json or markdown".to_owned());
        }
        if self.dry_run {
            for (name, check) in &checks {
                println!("{name}");
                dry_run(check);
            }
            return Ok(ExitCode::SUCCESS);
        }
        let (mut reports, mut failed): (Vec<(String, Report)>, Vec<String>) = Default::default();
        for (name, check) in &checks {
            for seed in self.seed..self.seed.saturating_add(self.seeds) {
                let check = check.clone().with_seed(seed);
                match run_with_progress(&check).await {
                    Ok(report) => reports.push((name.clone(), report)),
                    // One that cannot be checked must not hide what the others showed.
                    Err(error) => failed.push(format!("{name}, seed {seed}: {error}")),
                }
            }
        }
        self.write(&self.written(&reports, without_key))?;
        for why in &failed {
            eprintln!("onceward: {why}");
        }
        let codes: Vec<u8> = reports.iter().map(|(_, report)| report.exit_code()).collect();
        Ok(ExitCode::from(match codes {
            codes if codes.contains(&1) => 1,
            codes if codes.contains(&2) || codes.is_empty() || !failed.is_empty() => 2,
            _ => 0,
        }))
    }

    fn written(&self, reports: &[(String, Report)], without_key: Option<&[String]>) -> String {
        match self.format {
            Format::Json => {
                let all: Vec<String> = reports.iter().map(|(_, report)| report.json()).collect();
                let all = format!("[{}]", all.join(",\n"));
                match without_key {
                    Some(names) => format!("{{\"without_key\":{},\"reports\":{all}}}", json!(names)),
                    None => all,
                }
            }
            Format::Markdown => {
                let mut table = Table::default();
                for (name, report) in reports {
                    table.add(name, report);
                }
                table.markdown() + &without_key.map(listed).unwrap_or_default()
            }
            Format::Text | Format::Junit | Format::Html => {
                let texts: Vec<String> = reports.iter().map(|(_, report)| report.text()).collect();
                let summaries: Vec<String> = reports
                    .iter()
                    .map(|(name, report)| format!("{name}, seed {}: {}", report.seed, report.summary()))
                    .collect();
                format!("{}\n{}", texts.join("\n"), summaries.join("\n"))
            }
        }
    }

    /// Puts reports that were written before into one table.
    pub(super) fn merge(&self) -> Result<ExitCode, String> {
        if !matches!(self.format, Format::Text | Format::Markdown) {
            return Err("reports are merged as --format markdown".to_owned());
        }
        let mut table = Table::default();
        for file in &self.merge {
            let (name, path) = file.split_once('=').unwrap_or(("", file));
            let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
            table.add_json(name, &text).map_err(|error| format!("{path}: {error}"))?;
        }
        self.write(&table.markdown())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The operations that declare no key, in Markdown.
fn listed(without_key: &[String]) -> String {
    if without_key.is_empty() {
        return String::from("\nEvery operation that changes something declares a key.\n");
    }
    let names: Vec<String> = without_key.iter().map(|name| format!("* `{name}`\n")).collect();
    format!("\n### Operations that declare no key\n\n{}", names.concat())
}
