//! Renders the report as a table for a terminal.

use super::{Ending, Report, Row, Side, Unit, figure};

const HEAD: [&str; 6] = ["what", "ours", "other", "ratio", "goal", "ok"];

pub(super) fn render(report: &Report) -> String {
    let mut lines = Vec::new();
    for entry in &report.entries {
        match &entry.ending {
            Ending::Measured(findings) => {
                lines.push(Line::Title(entry.name));
                lines.extend(findings.rows.iter().map(|row| Line::Cells(cells(row))));
            }
            Ending::Missing(why) => lines.push(Line::Loud(format!("{}: NOT RUN, {why}", entry.name))),
            Ending::Failed(why) => lines.push(Line::Loud(format!("{}: FAILED, {why}", entry.name))),
        }
    }
    let mut widths = HEAD.map(|text| text.chars().count());
    for line in &lines {
        if let Line::Cells(cells) = line {
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
    }
    let mut text = aligned(&HEAD.map(str::to_owned), widths);
    text += &"─".repeat(widths.iter().sum::<usize>() + 3 * (widths.len() - 1));
    text.push('\n');
    let lines = lines.into_iter().map(|line| match line {
        Line::Title(name) => format!("{name}\n"),
        Line::Cells(cells) => aligned(&cells, widths),
        Line::Loud(words) => format!("!! {words}\n"),
    });
    text + &lines.collect::<String>()
}

enum Line {
    Title(&'static str),
    Cells([String; 6]),
    Loud(String),
}

fn cells(row: &Row) -> [String; 6] {
    let other = row.other.as_ref().map(|other| side(other, row.unit)).unwrap_or_default();
    let what = format!("  {}", row.what);
    [what, side(&row.ours, row.unit), other, row.judged_text(), row.goal_text(), row.mark().to_owned()]
}

/// The median round, and half the spread of the rounds in percent of it.
fn side(side: &Side, unit: Unit) -> String {
    let (least, most) = side.spread();
    let apart = (most - least) / 2.0 / side.median().abs() * 100.0;
    let value = figure(side.median(), unit);
    if apart >= 0.5 { format!("{value} ±{apart:.0}%") } else { value }
}

fn aligned(cells: &[String; 6], widths: [usize; 6]) -> String {
    let padded = cells.iter().zip(widths).enumerate().map(|(at, (cell, width))| {
        // Words are aligned left, numbers right.
        if at == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    });
    format!("{}\n", padded.collect::<Vec<_>>().join(" │ ").trim_end())
}
