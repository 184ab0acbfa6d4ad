//! Renders the report as one self-contained HTML page: tables and charts, no script, nothing fetched.

use std::fmt::Write;

use super::lines::{Axis, Line, Plot};
use super::{Ending, Findings, Growth, Report, Row, Side, Unit, bars, figure};

const STYLE: &str = include_str!("report.css");

pub(super) fn render(report: &Report) -> String {
    let mut page = String::new();
    let (scale, machine) = (report.scale, escaped(&report.machine));
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Onceward, side by side</title><style>{STYLE}</style></head><body>\n\
         <h1>Onceward, side by side</h1>\n<p>A {scale} run on {machine}. Sides took turns; a value is the median \
         round, a ratio the median of the rounds' ratios, and brackets and whiskers show the whole \
         spread.</p>\n"
    );
    for entry in &report.entries {
        let (name, about) = (entry.name, escaped(entry.about));
        let _ = writeln!(page, "<section id=\"{name}\"><h2>{name}</h2><p>{about}</p>");
        match &entry.ending {
            Ending::Measured(findings) => measured(&mut page, findings),
            Ending::Missing(why) => {
                let _ = writeln!(page, "<p class=\"loud\">NOT RUN: {}</p>", escaped(why));
            }
            Ending::Failed(why) => {
                let _ = writeln!(page, "<p class=\"loud\">FAILED: {}</p>", escaped(why));
            }
        }
        page.push_str("</section>\n");
    }
    page.push_str("</body></html>\n");
    page
}

fn measured(page: &mut String, findings: &Findings) {
    page.push_str("<table><tr><th>what<th>ours<th>other<th>ratio<th>goal<th>ok</tr>\n");
    for row in &findings.rows {
        let other = row.other.as_ref().map(|other| side(other, row.unit)).unwrap_or_default();
        let class = if row.met() == Some(false) { " class=\"missed\"" } else { "" };
        let (what, ours) = (escaped(&row.what), side(&row.ours, row.unit));
        let (judged, goal, mark) = (row.judged_text(), escaped(&row.goal_text()), row.mark());
        let _ =
            writeln!(page, "<tr{class}><td>{what}<td>{ours}<td>{other}<td>{judged}<td>{goal}<td>{mark}</tr>");
    }
    page.push_str("</table>\n");
    let compared: Vec<&Row> = findings.rows.iter().filter(|row| row.unit == Unit::PerSecond).collect();
    if !compared.is_empty() {
        page.push_str(&bars::draw(&compared));
    }
    page.push_str("<div class=\"plots\">\n");
    for row in &findings.rows {
        page.push_str(&latencies(row).unwrap_or_default());
    }
    for growth in &findings.growths {
        page.push_str(&grown(growth));
    }
    page.push_str("</div>\n");
}

fn side(side: &Side, unit: Unit) -> String {
    let (least, most) = side.spread();
    let (least, most) = (figure(least, unit), figure(most, unit));
    let (name, middle) = (escaped(&side.name), figure(side.median(), unit));
    format!("<b>{middle}</b><small>{name}, {least} to {most}</small>")
}

fn latencies(row: &Row) -> Option<String> {
    let sides = [Some(&row.ours), row.other.as_ref()];
    let lines: Vec<Line> = sides
        .into_iter()
        .flatten()
        .filter_map(|side| {
            let points = side.latency.as_ref()?.points().map(|(quantile, micros)| (quantile, micros / 1e3));
            Some(Line { name: side.name.clone(), points: points.collect() })
        })
        .collect();
    // Ours alone, where the other was not timed, is in another row's picture.
    if lines.len() <= usize::from(row.other.is_some()) {
        return None;
    }
    let (x, y) = (Axis::quantiles(), Axis::logarithmic("ms a call", &lines));
    Some(Plot { title: row.what.clone(), x, y, lines }.draw())
}

fn grown(growth: &Growth) -> String {
    let lines: Vec<Line> = growth
        .curves
        .iter()
        .map(|(name, points)| Line { name: name.clone(), points: points.clone() })
        .collect();
    let unit = growth.unit.suffix().trim();
    let (x, y) = (Axis::along(growth.over, &lines), Axis::from_zero(unit, &lines));
    Plot { title: growth.what.clone(), x, y, lines }.draw()
}

/// Text as it may stand in a page.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
