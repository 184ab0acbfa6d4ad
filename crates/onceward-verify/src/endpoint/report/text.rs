//! Renders the report for a terminal.

use std::fmt::Write;

use super::{Finding, Report, ScenarioVerdict, Spread, Timeline, Tone, WEAKER};

/// How wide a bar of the histogram or a lane of a timeline is at most.
const BAR_CHARS: u64 = 40;

pub(super) fn text(report: &Report) -> String {
    let mut out = String::new();
    head(&mut out, report);
    let width = report.findings.iter().map(|finding| finding.scenario.len()).max().unwrap_or_default();
    for finding in &report.findings {
        let weaker = finding.verdict == ScenarioVerdict::Holds && !report.effects_seen;
        let verdict = format!("{}{}", finding.verdict.name(), if weaker { " *" } else { "" });
        let _ = writeln!(
            out,
            "  {} {verdict:<14}  {:<width$}  {}",
            sign(finding.verdict),
            finding.scenario,
            finding.why
        );
        if let Some(other) = finding.same_cause_as {
            let _ = writeln!(out, "    {:<14}  {:<width$}  same cause as {other}", "", "");
        }
        for note in &finding.notes {
            let _ = writeln!(out, "    {:<14}  {:<width$}  note: {note}", "", "");
        }
    }
    if !report.effects_seen {
        let _ = writeln!(out, "\n  * {WEAKER}");
    }
    report.main_findings().into_iter().for_each(|finding| violation(&mut out, report, finding));
    spread(&mut out, &report.spread);
    let _ = writeln!(out, "\n{}", summary(report));
    out
}

/// The verdict on the whole, in a line.
pub(super) fn summary(report: &Report) -> String {
    let counted = [
        ScenarioVerdict::Holds,
        ScenarioVerdict::Held,
        ScenarioVerdict::Violated,
        ScenarioVerdict::Vacuous,
        ScenarioVerdict::Inconclusive,
        ScenarioVerdict::NotApplicable,
    ]
    .map(|verdict| (verdict, report.count(verdict)));
    let parts: Vec<String> = counted
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(verdict, count)| format!("{count} {}", verdict.name()))
        .collect();
    let mains = report.main_findings();
    let worst = match &mains[..] {
        [] => String::new(),
        [worst, rest @ ..] => {
            let more = match rest.len() {
                0 => String::new(),
                1 => ", and 1 more cause".to_owned(),
                more => format!(", and {more} more causes"),
            };
            let kind = worst.fault.map_or("fault", super::super::fault::FaultKind::name);
            format!("; worst: {kind} ({}){more}", worst.scenario)
        }
    };
    format!("{}{worst}", parts.join(", "))
}

fn head(out: &mut String, report: &Report) {
    let _ = writeln!(out, "{} {}", report.method, report.url);
    let _ = writeln!(
        out,
        "{} requests in {}; a plain one takes {}; keys: {}; seed {}, run {}, {}, version {}\n",
        report.requests,
        micros(report.took_ms * 1000),
        micros(report.request_took_us),
        report.key_form,
        report.seed,
        report.run,
        report.started(),
        report.version
    );
}

fn sign(verdict: ScenarioVerdict) -> char {
    match verdict {
        ScenarioVerdict::Holds => '✔',
        ScenarioVerdict::Held => '⏸',
        ScenarioVerdict::Violated => '✘',
        ScenarioVerdict::Vacuous => '○',
        ScenarioVerdict::Inconclusive => '?',
        ScenarioVerdict::NotApplicable => '·',
    }
}

fn violation(out: &mut String, report: &Report, finding: &Finding) {
    let kind = finding.fault.map_or("fault", super::super::fault::FaultKind::name);
    let _ = writeln!(out, "\n✘ {} ({kind}): {}", finding.scenario, finding.why);
    let _ = writeln!(out, "  promised: {}", finding.promise);
    if let Some(timeline) = &finding.timeline {
        lanes(out, timeline);
    }
    let same = also(report, finding);
    if !same.is_empty() {
        let _ = writeln!(out, "  same cause: {same}");
    }
    let _ = writeln!(out, "  again: {}", finding.reproduce);
}

/// The scenarios that show the same mistake.
pub(super) fn also(report: &Report, finding: &Finding) -> String {
    let same = report.findings.iter().filter(|other| other.same_cause_as == Some(finding.scenario));
    same.map(|other| other.scenario).collect::<Vec<_>>().join(", ")
}

/// Each request as a bar from its last byte to its answer.
fn lanes(out: &mut String, timeline: &Timeline) {
    let ends =
        timeline.lanes.iter().map(|lane| lane.ended_us).chain(timeline.marks.iter().map(|mark| mark.at_us));
    let starts =
        timeline.lanes.iter().map(|lane| lane.sent_us).chain(timeline.marks.iter().map(|mark| mark.at_us));
    let (first, last) = (starts.min().unwrap_or_default(), ends.max().unwrap_or_default());
    let place =
        |at: u64| usize::try_from((at - first) * BAR_CHARS / (last - first).max(1)).unwrap_or_default();
    let width = timeline.lanes.iter().map(|lane| lane.label.chars().count()).max().unwrap_or_default();
    for lane in &timeline.lanes {
        let fill = match lane.tone {
            Tone::Done => '█',
            Tone::Another => '▓',
            Tone::Later => '░',
            Tone::Refused | Tone::Failed => '▒',
        };
        let (from, to) = (place(lane.sent_us), place(lane.ended_us).max(place(lane.sent_us) + 1));
        let mut bar = " ".repeat(from);
        bar.extend(std::iter::repeat_n(fill, to - from));
        let more = if lane.more > 0 { format!("  (and {} more like it)", lane.more) } else { String::new() };
        let _ = writeln!(
            out,
            "  {:>8}  {:<width$}  {bar:<bars$}  {}{more}",
            micros(lane.sent_us - first),
            lane.label,
            lane.ending,
            bars = usize::try_from(BAR_CHARS).unwrap_or_default() + 1,
        );
    }
    for mark in &timeline.marks {
        let _ = writeln!(
            out,
            "  {:>8}  {:<width$}  {}↑",
            micros(mark.at_us - first),
            mark.text,
            " ".repeat(place(mark.at_us))
        );
    }
}

fn spread(out: &mut String, spread: &Spread) {
    if spread.volleys == 0 {
        return;
    }
    let _ = writeln!(
        out,
        "\nlast bytes of {} volleys of up to {}: apart by {} in the median, {} at worst",
        spread.volleys,
        spread.requests_max,
        micros(spread.median_us),
        micros(spread.worst_us)
    );
    let most = spread.bins.iter().copied().max().unwrap_or_default().max(1) as u64;
    // Three bins to a line: a terminal is not a page.
    for (number, bins) in spread.bins.chunks(3).enumerate() {
        let count: usize = bins.iter().sum();
        let length = usize::try_from(count as u64 * BAR_CHARS / (most * 3)).unwrap_or_default();
        let from = spread.bin_us * number as u64 * 3;
        let _ = writeln!(out, "  {:>8}  {:<8} {}", micros(from), count, "▇".repeat(length));
    }
}

/// A duration as a person reads it.
pub(super) fn micros(us: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "it is rounded anyway")]
    let us = us as f64;
    if us < 1000.0 {
        format!("{us:.0} µs")
    } else if us < 1_000_000.0 {
        format!("{:.1} ms", us / 1000.0)
    } else {
        format!("{:.1} s", us / 1_000_000.0)
    }
}
