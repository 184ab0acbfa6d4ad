//! Draws throughput as bars: ours and the other of each row, with the spread of the rounds as whiskers.

use std::fmt::Write;

use super::html::escaped;
use super::{Row, figure};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 140.0;
const RIGHT: f64 = 110.0;
const BAR: f64 = 16.0;
const GAP: f64 = 12.0;

pub(super) fn draw(rows: &[&Row]) -> String {
    let sides = |row: &Row| [Some(row.ours.clone()), row.other.clone()].into_iter().flatten();
    let most = rows.iter().flat_map(|row| sides(row)).map(|side| side.spread().1).fold(1.0, f64::max);
    let place = |value: f64| LEFT + (WIDTH - LEFT - RIGHT) * value / most;
    let (mut picture, mut y) = (String::new(), 0.0);
    for row in rows {
        y += GAP;
        let _ = writeln!(picture, "<text class=\"title\" x=\"0\" y=\"{y:.0}\">{}</text>", escaped(&row.what));
        y += 6.0;
        for (at, side) in sides(row).enumerate() {
            let ((least, most), middle) = (side.spread(), y + BAR / 2.0 - 1.5);
            let (name_end, text, height) = (LEFT - 6.0, y + BAR * 0.75, BAR - 3.0);
            let (from, to, width) = (place(least), place(most), place(side.median()) - LEFT);
            let (name, value, behind) = (escaped(&side.name), figure(side.median(), row.unit), to + 6.0);
            let _ = writeln!(
                picture,
                "<text x=\"{name_end}\" y=\"{text:.0}\" text-anchor=\"end\">{name}</text>\
                 <rect class=\"fill{at}\" x=\"{LEFT}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"{height}\"/>\
                 <line class=\"whisker\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>\
                 <text x=\"{behind:.0}\" y=\"{text:.0}\">{value}</text>"
            );
            y += BAR;
        }
        y += GAP;
    }
    format!("<svg viewBox=\"0 0 {WIDTH} {y:.0}\" width=\"{WIDTH}\" role=\"img\">\n{picture}</svg>\n")
}
