//! Renders the report as Markdown: a summary to paste, and a table of scenarios.

use std::fmt::Write;

use super::text::summary;
use super::{Report, ScenarioVerdict, WEAKER};

pub(super) fn markdown(report: &Report) -> String {
    let mut out = format!(
        "`{} {}`: {} ({} requests, seed {}, {}, onceward verify {})\n\n",
        report.method,
        cell(&report.url),
        summary(report),
        report.requests,
        report.seed,
        report.started(),
        report.version
    );
    out.push_str("| scenario | verdict | why |\n|---|---|---|\n");
    for finding in &report.findings {
        let strong = if finding.verdict == ScenarioVerdict::Violated { "**" } else { "" };
        let same = finding.same_cause_as.map(|other| format!("; same cause as {other}")).unwrap_or_default();
        let notes: String = finding.notes.iter().fold(String::new(), |mut text, note| {
            let _ = write!(text, "; note: {note}");
            text
        });
        let _ = writeln!(
            out,
            "| {} | {strong}{}{strong} | {} |",
            finding.scenario,
            finding.verdict.name(),
            cell(&format!("{}{same}{notes}", finding.why))
        );
    }
    for finding in report.main_findings() {
        let _ = writeln!(out, "\nTo repeat `{}`:\n\n```sh\n{}\n```", finding.scenario, finding.reproduce);
    }
    if !report.effects_seen {
        let _ = writeln!(out, "\n{WEAKER}");
    }
    out
}

/// Text inside a cell of a table.
pub(super) fn cell(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace(['\n', '\r'], " ").replace('<', "&lt;")
}
