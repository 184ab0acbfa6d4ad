//! Draws the overload as SVG: requests that arrive, those answered in time, and the limit.

use std::fmt::Write;

use super::overload_test::{Overload, SECONDS, STORM};

const WIDTH: usize = 760;
const PANEL: usize = 150;
const LEFT: usize = 60;
const TOP: usize = 40;
const GAP: usize = 50;
const RIGHT: usize = 20;

const WITH: &str = "#1b7f5c";
const WITHOUT: &str = "#c0392b";

pub(super) fn draw(with: &Overload, without: &Overload) -> String {
    let height = TOP + 3 * (PANEL + GAP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<title>An overload at ten times the capacity, with and without shedding</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"16\" fill=\"{WITH}\">with shedding</text>\
         <text x=\"{}\" y=\"16\" fill=\"{WITHOUT}\">without</text>\
         <text x=\"{}\" y=\"16\" fill=\"#555\">grey: twenty seconds in which ten times the capacity arrives</text>\n",
        LEFT + 110,
        LEFT + 180
    );
    let top = |number: usize| TOP + number * (PANEL + GAP);
    let series = |values| [(values, WITH)];
    panel(
        &mut svg,
        top(0),
        "requests per second, retries included",
        &[(&with.arrived, WITH), (&without.arrived, WITHOUT)],
    );
    panel(
        &mut svg,
        top(1),
        "answered in time, per second",
        &[(&with.answered, WITH), (&without.answered, WITHOUT)],
    );
    panel(&mut svg, top(2), "limit of work in flight", &series(&with.limit));
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">seconds</text>",
        WIDTH - RIGHT,
        height - 6
    );
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, top: usize, title: &str, series: &[(&Vec<u32>, &str)]) {
    let most = series.iter().flat_map(|(values, _)| values.iter()).copied().max().unwrap_or(1) as usize;
    let step = [10, 50, 100, 500, 1_000, 5_000].into_iter().find(|step| most / step < 6).unwrap_or(10_000);
    let most = most.next_multiple_of(step).max(step);
    let across = |second: usize| LEFT + (WIDTH - LEFT - RIGHT) * second / SECONDS;
    let up = |value: usize| top + PANEL - PANEL * value / most;
    let (from, to) = (across(STORM.start), across(STORM.end));
    let _ = writeln!(
        svg,
        "<rect x=\"{from}\" y=\"{top}\" width=\"{}\" height=\"{PANEL}\" fill=\"#eee\"/>\
         <text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{title}</text>",
        to - from,
        top - 6
    );
    for value in (0..=most).step_by(step) {
        let y = up(value);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{value}</text>",
            WIDTH - RIGHT,
            LEFT - 6,
            y + 4
        );
    }
    for second in (0..=SECONDS).step_by(10) {
        let (x, y) = (across(second), top + PANEL + 16);
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{second}</text>");
    }
    for (values, colour) in series {
        let points: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(second, value)| format!("{},{}", across(second), up(*value as usize)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
            points.join(" ")
        );
    }
}
