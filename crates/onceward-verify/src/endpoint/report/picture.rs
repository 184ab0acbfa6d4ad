//! Draws the charts of the HTML page as SVG. They take their colours from the page, also in dark mode.

use std::fmt::Write;

use super::junit::escape;
use super::text::micros;
use super::{Lane, Spread, Timeline, Tone};

/// The drawing is this wide; the page scales it.
const WIDTH: u64 = 900;

/// How many last bytes left how long after the first.
pub(super) fn histogram(spread: &Spread) -> String {
    const HEIGHT: u64 = 120;
    let bins = spread.bins.len().max(1) as u64;
    let most = spread.bins.iter().copied().max().unwrap_or_default().max(1) as u64;
    let (step, base) = (WIDTH / bins, HEIGHT + 8);
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"Histogram of the last bytes\">",
        base + 24
    );
    for (number, count) in spread.bins.iter().enumerate() {
        let (count, x) = (*count as u64, number as u64 * step);
        let height = (count * HEIGHT).div_ceil(most);
        let _ = write!(
            out,
            "<rect class=\"bin\" x=\"{x}\" y=\"{}\" width=\"{}\" height=\"{height}\" rx=\"2\"><title>{count} within {} to {}</title></rect>",
            base - height,
            step - 3,
            micros(spread.bin_us * number as u64),
            micros(spread.bin_us * (number as u64 + 1)),
        );
    }
    let _ = write!(out, "<line class=\"axis\" x1=\"0\" y1=\"{base}\" x2=\"{WIDTH}\" y2=\"{base}\"/>");
    for quarter in 0..=4 {
        let x = step * bins * quarter / 4;
        let anchor =
            ["start", "middle", "middle", "middle", "end"][usize::try_from(quarter).unwrap_or_default()];
        let at = micros(spread.bin_us * bins * quarter / 4);
        let _ = write!(
            out,
            "<text class=\"tick\" x=\"{x}\" y=\"{}\" text-anchor=\"{anchor}\">{at}</text>",
            base + 18
        );
    }
    out.push_str("</svg>");
    out
}

/// Which request got what, and when.
pub(super) fn timeline(timeline: &Timeline) -> String {
    const LANE: u64 = 30;
    const LABELS: u64 = 170;
    const ENDINGS: u64 = 330;
    let lanes = &timeline.lanes;
    let marks = || timeline.marks.iter().map(|mark| mark.at_us);
    let first = lanes.iter().map(|lane| lane.sent_us).chain(marks()).min().unwrap_or_default();
    let last = lanes.iter().map(|lane| lane.ended_us).chain(marks()).max().unwrap_or_default();
    let (span, width) = ((last - first).max(1), WIDTH - LABELS - ENDINGS);
    let place = |at: u64| LABELS + (at - first) * width / span;
    let bottom = lanes.len() as u64 * LANE + 26;
    let mut out =
        format!("<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"Timeline\">", bottom + 22);
    for quarter in 0..=4 {
        let at = first + span * quarter / 4;
        let x = place(at);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{x}\" y1=\"20\" x2=\"{x}\" y2=\"{bottom}\"/><text class=\"tick\" x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 16,
            micros(at - first)
        );
    }
    for (number, lane) in lanes.iter().enumerate() {
        let y = 24 + number as u64 * LANE;
        let (from, to) = (place(lane.sent_us), place(lane.ended_us));
        let _ = write!(
            out,
            "<text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect class=\"lane {}\" x=\"{from}\" y=\"{}\" width=\"{}\" height=\"14\" rx=\"3\"/><text class=\"ending {}\" x=\"{}\" y=\"{}\">{}</text>",
            LABELS - 14,
            y + 16,
            escape(&lane.label),
            class(lane.tone),
            y + 5,
            (to - from).max(4),
            class(lane.tone),
            LABELS + width + 16,
            y + 16,
            escape(&ending(lane)),
        );
    }
    for (number, mark) in timeline.marks.iter().enumerate() {
        let x = place(mark.at_us);
        // Two that are close together do not run into one another.
        let (anchor, text_x) = if number % 2 == 0 { ("end", x + 2) } else { ("start", x - 2) };
        let _ = write!(
            out,
            "<line class=\"mark\" x1=\"{x}\" y1=\"16\" x2=\"{x}\" y2=\"{bottom}\"/><text class=\"marked\" x=\"{text_x}\" y=\"12\" text-anchor=\"{anchor}\">{}</text>",
            escape(&mark.text)
        );
    }
    out.push_str("</svg>");
    out
}

/// The ending, cut to the width of its column.
fn ending(lane: &Lane) -> String {
    const CHARS: usize = 42;
    let more = if lane.more > 0 { format!(" (+{})", lane.more) } else { String::new() };
    let chars_max = CHARS - more.len();
    match lane.ending.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…{more}", &lane.ending[..end]),
        None => format!("{}{more}", lane.ending),
    }
}

fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Done => "done",
        Tone::Another => "another",
        Tone::Later => "later",
        Tone::Refused => "refused",
        Tone::Failed => "failed",
    }
}
