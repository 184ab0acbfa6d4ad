//! Draws the retry storm as SVG: requests sent to the server, and requests answered in time.

use std::fmt::Write;
use std::ops::Range;

use crate::storm::Storm;

const WIDTH: u32 = 760;
const PANEL: u32 = 190;
const LEFT: u32 = 60;
const TOP: u32 = 40;
const GAP: u32 = 60;
const RIGHT: u32 = 20;

const WITH: &str = "#1b7f5c";
const WITHOUT: &str = "#c0392b";

pub fn draw(with: &Storm, without: &Storm, slow: &Range<usize>) -> String {
    let height = TOP + PANEL + GAP + PANEL + 40;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>A retry storm, with and without a retry budget</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    let legend = format!(
        "<text x=\"{LEFT}\" y=\"16\" fill=\"{WITH}\">with the budget</text>\
         <text x=\"{}\" y=\"16\" fill=\"{WITHOUT}\">without</text>\
         <text x=\"{}\" y=\"16\" fill=\"#555\">grey: the ten seconds in which the server is slow</text>\n",
        LEFT + 110,
        LEFT + 180
    );
    svg.push_str(&legend);
    panel(&mut svg, TOP, "tries sent per second", [&with.tries, &without.tries], slow);
    panel(
        &mut svg,
        TOP + PANEL + GAP,
        "answered in time, per second",
        [&with.answered, &without.answered],
        slow,
    );
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">seconds</text>",
        WIDTH - RIGHT,
        height - 6
    );
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, top: u32, title: &str, series: [&Vec<u32>; 2], slow: &Range<usize>) {
    let seconds = u32::try_from(series[0].len()).unwrap();
    let most = series.iter().flat_map(|values| values.iter()).max().unwrap().next_multiple_of(5_000);
    let across = |second: u32| LEFT + (WIDTH - LEFT - RIGHT) * second / seconds;
    let up = |value: u32| top + PANEL - PANEL * value / most;
    let (from, to) = (across(u32::try_from(slow.start).unwrap()), across(u32::try_from(slow.end).unwrap()));
    let _ = writeln!(
        svg,
        "<rect x=\"{from}\" y=\"{top}\" width=\"{}\" height=\"{PANEL}\" fill=\"#eee\"/>",
        to - from
    );
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{title}</text>", top - 6);
    let step = if most > 20_000 { 10_000 } else { 5_000 };
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
    for second in (0..=seconds).step_by(10) {
        let (x, y) = (across(second), top + PANEL + 16);
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{second}</text>");
    }
    for (values, colour) in series.into_iter().zip([WITH, WITHOUT]) {
        let points: Vec<String> =
            (0..).zip(values).map(|(second, value)| format!("{},{}", across(second), up(*value))).collect();
        let _ = writeln!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
            points.join(" ")
        );
    }
}
