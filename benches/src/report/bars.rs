//! Throughput as bars: ours and the other of each row, with the spread of the rounds as whiskers.

use std::fmt::Write;

use super::html::escaped;
use super::{Row, figure};

const WIDTH: f64 = 760.0;
const LEFT: f64 = 330.0;
const RIGHT: f64 = 110.0;
const BAR: f64 = 16.0;
const GAP: f64 = 14.0;

pub(super) fn draw(rows: &[&Row]) -> String {
    let sides = |row: &Row| [Some(row.ours.clone()), row.other.clone()].into_iter().flatten();
    let most = rows.iter().flat_map(|row| sides(row)).map(|side| side.spread().1).fold(1.0, f64::max);
    let place = |value: f64| LEFT + (WIDTH - LEFT - RIGHT) * value / most;
    let (mut picture, mut y) = (String::new(), 4.0);
    for row in rows {
        for (at, side) in sides(row).enumerate() {
            let (least, most) = side.spread();
            let (text, value) = (y + BAR * 0.75, side.median());
            let label = if at == 0 { format!("{}: {}", row.what, side.name) } else { side.name.clone() };
            let _ = writeln!(
                picture,
                "<text x=\"{:.0}\" y=\"{text:.0}\" text-anchor=\"end\">{}</text>\
                 <rect class=\"fill{at}\" x=\"{LEFT}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"{:.0}\"/>\
                 <line class=\"whisker\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
                 <text x=\"{:.0}\" y=\"{text:.0}\">{}</text>",
                LEFT - 6.0,
                escaped(&label),
                place(value) - LEFT,
                BAR - 3.0,
                place(least),
                place(most),
                y + BAR / 2.0 - 1.5,
                y + BAR / 2.0 - 1.5,
                place(most) + 6.0,
                figure(value, row.unit),
            );
            y += BAR;
        }
        y += GAP;
    }
    format!("<svg viewBox=\"0 0 {WIDTH} {y:.0}\" width=\"{WIDTH}\" role=\"img\">\n{picture}</svg>\n")
}
