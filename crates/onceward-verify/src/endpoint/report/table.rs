//! Puts several reports into one table: a column for each endpoint, a row for each scenario, with as many seeds as there are
//! reports of one name.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;

use super::super::error::{Error, Result};
use super::Report;
use super::date;
use super::markdown::cell;

/// What a table needs of a report: also of one that was written as JSON and read again.
#[derive(Clone, Debug, Deserialize)]
struct Summary {
    url: String,
    method: String,
    version: String,
    seed: u64,
    /// Not in reports that are older than the field.
    #[serde(default)]
    started_unix_s: Option<u64>,
    requests: u64,
    took_ms: u64,
    findings: Vec<SummaryFinding>,
}

#[derive(Clone, Debug, Deserialize)]
struct SummaryFinding {
    scenario: String,
    verdict: String,
    fault: Option<String>,
    same_cause_as: Option<String>,
    why: String,
}

/// A table of several reports.
#[derive(Clone, Debug, Default)]
pub struct Table {
    columns: Vec<(String, Vec<Summary>)>,
}

impl Table {
    /// Adds a report: to the column of this name, as another seed, or as a new column.
    pub fn add(&mut self, name: &str, report: &Report) {
        self.add_json(name, &report.json()).expect("a report can be read");
    }

    /// The same with a report that was written as JSON, several in an array, or those of a description. Without a name its
    /// URL is one.
    pub fn add_json(&mut self, name: &str, json: &str) -> Result<()> {
        let wrong = |error: serde_json::Error| {
            Error::invalid(format!("this is no report of onceward verify: {error}"))
        };
        let value: serde_json::Value = serde_json::from_str(json).map_err(wrong)?;
        let value = if value["reports"].is_array() { value["reports"].clone() } else { value };
        let reports = if value.is_array() { value } else { serde_json::Value::Array(vec![value]) };
        for report in serde_json::from_value::<Vec<Summary>>(reports).map_err(wrong)? {
            let name =
                if name.is_empty() { format!("{} {}", report.method, report.url) } else { name.to_owned() };
            match self.columns.iter_mut().find(|(other, _)| *other == name) {
                Some((_, reports)) => reports.push(report),
                None => self.columns.push((name, vec![report])),
            }
        }
        Ok(())
    }

    /// For a page of documentation: the table, and under it what is behind the violations.
    pub fn markdown(&self) -> String {
        let mut out = String::from(
            "H holds · held: held for a person · **V** violated, with a cause of its own · v violated, with the same cause \
             as a **V** of its column · vac vacuous: nothing is deduplicated · ? inconclusive · – not applicable; 2/3: in \
             two of three seeds\n\n| scenario |",
        );
        for (name, _) in &self.columns {
            let _ = write!(out, " {} |", cell(name));
        }
        let _ = writeln!(out, "\n|---|{}", "---|".repeat(self.columns.len()));
        for scenario in self.scenarios() {
            let _ = write!(out, "| {scenario} |");
            for (_, reports) in &self.columns {
                let _ = write!(out, " {} |", verdicts(reports, scenario));
            }
            out.push('\n');
        }
        for (name, reports) in &self.columns {
            column(&mut out, name, reports);
        }
        out
    }

    /// All that apply anywhere, in the order in which they were played.
    fn scenarios(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        let findings =
            self.columns.iter().flat_map(|(_, reports)| reports).flat_map(|report| &report.findings);
        for finding in findings.filter(|finding| finding.verdict != "not-applicable") {
            if !names.contains(&finding.scenario.as_str()) {
                names.push(&finding.scenario);
            }
        }
        // A column that misses some must not move them to the end.
        let order: Vec<&str> = super::super::scenario::all().iter().map(|scenario| scenario.name).collect();
        names.sort_by_key(|name| order.iter().position(|other| other == name));
        names
    }
}

/// The verdicts of all seeds on one scenario.
fn verdicts(reports: &[Summary], scenario: &str) -> String {
    let found: Vec<&SummaryFinding> = reports
        .iter()
        .filter_map(|report| report.findings.iter().find(|finding| finding.scenario == scenario))
        .collect();
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for verdict in found.iter().map(|finding| short(finding)) {
        match counted.iter_mut().find(|(other, _)| *other == verdict) {
            Some((_, count)) => *count += 1,
            None => counted.push((verdict, 1)),
        }
    }
    counted.sort_by_key(|(verdict, _)| badness(verdict));
    match &counted[..] {
        [] => String::new(),
        [(verdict, _)] => (*verdict).to_owned(),
        [(verdict, count), ..] => format!("{verdict} {count}/{}", found.len()),
    }
}

/// A verdict as the table has it.
fn short(finding: &SummaryFinding) -> &'static str {
    match finding.verdict.as_str() {
        "holds" => "H",
        "held" => "held",
        "violated" if finding.same_cause_as.is_some() => "v",
        "violated" => "**V**",
        "vacuous" => "vac",
        "inconclusive" => "?",
        _ => "–",
    }
}

/// Verdicts of a table with their names, the worst first.
const VERDICTS: [(&str, &str); 7] = [
    ("**V**", "violated"),
    ("v", "violated with the same cause"),
    ("held", "held"),
    ("?", "inconclusive"),
    ("vac", "vacuous"),
    ("H", "holds"),
    ("–", "not applicable"),
];

fn badness(verdict: &str) -> usize {
    VERDICTS.iter().position(|(other, _)| *other == verdict).unwrap_or(VERDICTS.len())
}

/// How many scenarios of a column came to which verdict, each by its worst seed.
fn summary(reports: &[Summary]) -> String {
    let mut worst: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in reports.iter().flat_map(|report| &report.findings) {
        let badness = badness(short(finding));
        let known = worst.entry(&finding.scenario).or_insert(badness);
        *known = badness.min(*known);
    }
    let count = |index: usize| worst.values().filter(|other| **other == index).count();
    let parts = VERDICTS.iter().enumerate().map(|(index, (_, name))| (count(index), name));
    let parts: Vec<String> =
        parts.filter(|(count, _)| *count > 0).map(|(count, name)| format!("{count} {name}")).collect();
    let by = if reports.len() > 1 { " (each scenario by its worst seed)" } else { "" };
    format!("{}{by}", parts.join(", "))
}

/// What was found in one column.
fn column(out: &mut String, name: &str, reports: &[Summary]) {
    let seeds: Vec<String> = reports.iter().map(|report| report.seed.to_string()).collect();
    let requests: u64 = reports.iter().map(|report| report.requests).sum();
    let took_s = reports.iter().map(|report| report.took_ms).sum::<u64>().div_ceil(1000);
    let version = reports.first().map(|report| report.version.as_str()).unwrap_or_default();
    let plural = if seeds.len() == 1 { "seed" } else { "seeds" };
    let started = reports.iter().filter_map(|report| report.started_unix_s).min();
    let started = started.map(|unix_s| format!("{}, ", date::utc(unix_s))).unwrap_or_default();
    let _ = write!(
        out,
        "\n### {name}\n\n{}.\n\n{requests} requests in {took_s} s, {plural} {}, {started}onceward verify {version}.\n\n",
        summary(reports),
        seeds.join(", ")
    );
    let mut said: Vec<&str> = Vec::new();
    for report in reports {
        for finding in &report.findings {
            let is_main = finding.verdict == "violated" && finding.same_cause_as.is_none();
            if !(is_main || finding.verdict == "held") || said.contains(&finding.scenario.as_str()) {
                continue;
            }
            said.push(&finding.scenario);
            let kind = finding.fault.as_deref().unwrap_or("held").replace('-', " ");
            let same: Vec<&str> = report
                .findings
                .iter()
                .filter(|other| other.same_cause_as.as_deref() == Some(&finding.scenario))
                .map(|other| other.scenario.as_str())
                .collect();
            let same =
                if same.is_empty() { String::new() } else { format!(". Same cause: {}", same.join(", ")) };
            let _ = writeln!(out, "* {} ({kind}): {}{same}", finding.scenario, cell(&finding.why));
        }
    }
    if said.is_empty() {
        out.push_str("Nothing was violated.\n");
    }
}

#[cfg(test)]
#[path = "table_test.rs"]
mod tests;
