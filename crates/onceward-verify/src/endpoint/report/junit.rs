//! Renders the report as `JUnit` XML, as common build servers read it.

use std::fmt::Write;

use super::{Report, ScenarioVerdict, WEAKER};

pub(super) fn junit(report: &Report) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        out,
        "<testsuites>\n<testsuite name=\"onceward verify {} {}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{}\">",
        escape(&report.method),
        escape(&report.url),
        report.findings.len(),
        report.count(ScenarioVerdict::Violated),
        report.count(ScenarioVerdict::Inconclusive),
        report.count(ScenarioVerdict::NotApplicable) + report.count(ScenarioVerdict::Vacuous),
        seconds(report.took_ms),
    );
    for finding in &report.findings {
        let _ = writeln!(
            out,
            "<testcase classname=\"onceward.verify\" name=\"{}\" time=\"{}\">",
            finding.scenario,
            seconds(finding.took_ms)
        );
        let (why, again) = (escape(&finding.why), escape(&finding.reproduce));
        let promise = escape(finding.promise);
        let _ = match finding.verdict {
            ScenarioVerdict::Holds => writeln!(out, "<system-out>{why}</system-out>"),
            ScenarioVerdict::Vacuous => writeln!(out, "<skipped message=\"vacuous: {why}\"/>"),
            ScenarioVerdict::Held => writeln!(out, "<system-out>held: {why}</system-out>"),
            ScenarioVerdict::Violated => {
                let kind = finding.fault.map_or("fault", super::super::fault::FaultKind::name);
                let same =
                    finding.same_cause_as.map(|other| format!("\nsame cause as {other}")).unwrap_or_default();
                writeln!(
                    out,
                    "<failure type=\"{kind}\" message=\"{why}\">promised: {promise}{same}\nagain: {again}</failure>"
                )
            }
            ScenarioVerdict::Inconclusive => writeln!(out, "<error message=\"{why}\">again: {again}</error>"),
            ScenarioVerdict::NotApplicable => writeln!(out, "<skipped message=\"{why}\"/>"),
        };
        out.push_str("</testcase>\n");
    }
    if !report.effects_seen {
        let _ = writeln!(out, "<system-out>{}</system-out>", escape(WEAKER));
    }
    out.push_str("</testsuite>\n</testsuites>\n");
    out
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

/// For text and attributes, of XML and of HTML. Control characters, which XML has no way to say, become a
/// mark of their own.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
