//! Renders the report as one self-contained HTML page: no script, font or picture is fetched.

use std::fmt::Write;

use super::junit::escape;
use super::text::{also, micros, summary};
use super::{Finding, Report, ScenarioVerdict, WEAKER, picture};

const STYLE: &str = include_str!("page.css");

pub(super) fn html(report: &Report) -> String {
    let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    out.push_str("<meta name=\"color-scheme\" content=\"light dark\">\n");
    let _ = write!(
        out,
        "<title>{} – onceward verify</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
        headline(report)
    );
    head(&mut out, report);
    if report.count(ScenarioVerdict::Violated) > 0 {
        out.push_str("<h2>What went wrong</h2>\n");
        out.push_str(
            "<p class=\"soft\">Each bar is a request, from its last byte to its answer: green for the first answer \
             that its key got, red for another one, one that is not its own, or none, yellow for “not now”, grey for a refusal.</p>\n",
        );
        report.main_findings().into_iter().for_each(|finding| violation(&mut out, report, finding));
    }
    out.push_str("<h2>Scenarios</h2>\n<table>\n");
    report.findings.iter().for_each(|finding| row(&mut out, finding, report.effects_seen));
    out.push_str("</table>\n");
    spread(&mut out, report);
    let _ = write!(
        out,
        "<footer>onceward verify {} · {} · seed {} · run {}</footer>\n</main>\n</body>\n</html>\n",
        report.version,
        report.started(),
        report.seed,
        report.run
    );
    out
}

fn headline(report: &Report) -> &'static str {
    match report.exit_code() {
        0 if report.effects_seen => "Safe to retry, as far as was asked",
        0 => "The answers are safe to retry",
        1 => "Not safe to retry",
        _ => "Not everything could be judged",
    }
}

fn head(out: &mut String, report: &Report) {
    let _ = write!(
        out,
        "<h1>{}</h1>\n<div class=\"endpoint\"><code>{} {}</code></div>\n<p class=\"soft\">{} · onceward verify {} · {}</p>\n<div class=\"facts\">\n",
        headline(report),
        escape(&report.method),
        escape(&report.url),
        report.started(),
        report.version,
        escape(&summary(report))
    );
    for (value, what) in [
        (report.count(ScenarioVerdict::Holds).to_string(), "hold"),
        (report.count(ScenarioVerdict::Held).to_string(), "held"),
        (report.count(ScenarioVerdict::Violated).to_string(), "violated"),
        (report.count(ScenarioVerdict::Inconclusive).to_string(), "inconclusive"),
        (report.requests.to_string(), "requests"),
        (micros(report.took_ms * 1000), "in all"),
        (micros(report.request_took_us), "a plain request"),
    ] {
        let _ = writeln!(out, "<div><b>{value}</b><span>{what}</span></div>");
    }
    out.push_str("</div>\n");
    if !report.effects_seen {
        let _ = writeln!(out, "<p class=\"warning\">{WEAKER}</p>");
    }
}

fn violation(out: &mut String, report: &Report, finding: &Finding) {
    let kind = finding.fault.map_or("fault", super::super::fault::FaultKind::name);
    let _ = writeln!(
        out,
        "<section class=\"card\" id=\"{0}\">\n<h3>{0} <span class=\"pill violated\">{kind}</span></h3>\n<p class=\"why\">{1}</p>\n<p class=\"soft\">{2}</p>",
        finding.scenario,
        escape(&finding.why),
        escape(finding.promise)
    );
    if let Some(timeline) = &finding.timeline {
        out.push_str(&picture::timeline(timeline));
    }
    let same = also(report, finding);
    if !same.is_empty() {
        let _ = writeln!(out, "<p class=\"soft\">The same cause: {same}</p>");
    }
    let _ = writeln!(out, "<pre><code>{}</code></pre>\n</section>", escape(&finding.reproduce));
}

fn row(out: &mut String, finding: &Finding, effects_seen: bool) {
    let name = finding.verdict.name();
    let weaker = if finding.verdict == ScenarioVerdict::Holds && !effects_seen { " *" } else { "" };
    let muted = if finding.verdict == ScenarioVerdict::NotApplicable { " class=\"muted\"" } else { "" };
    let _ = write!(
        out,
        "<tr{muted}><td><span class=\"pill {}\">{name}{weaker}</span></td><td title=\"{}\">{}</td><td>{}",
        name.replace(' ', "-"),
        escape(finding.promise),
        finding.scenario,
        escape(&finding.why)
    );
    if let Some(other) = finding.same_cause_as {
        let _ = write!(out, "<span class=\"note\">same cause as <a href=\"#{other}\">{other}</a></span>");
    }
    for note in &finding.notes {
        let _ = write!(out, "<span class=\"note\">{}</span>", escape(note));
    }
    out.push_str("</td></tr>\n");
}

fn spread(out: &mut String, report: &Report) {
    let spread = &report.spread;
    if spread.volleys == 0 {
        return;
    }
    let _ = writeln!(
        out,
        "<h2>How simultaneous it was</h2>\n<p class=\"soft\">The last bytes of {} volleys of up to {} requests left within {} of each other in the median, and within {} at worst.</p>\n<div class=\"card\">{}</div>",
        spread.volleys,
        spread.requests_max,
        micros(spread.median_us),
        micros(spread.worst_us),
        picture::histogram(spread)
    );
}
