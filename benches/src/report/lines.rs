//! Draws curves in one chart: latency over quantiles, and values over size.

use std::fmt::Write;

use super::html::escaped;
use super::unit::Rounded;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 36.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 40.0;
/// As many as there are colours.
const COLOURS: usize = 3;

pub(super) struct Plot {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
}

pub(super) struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// One axis: where a value is on it, and which values are named.
pub(super) struct Axis {
    name: String,
    scaling: Scaling,
    least: f64,
    most: f64,
    named: Vec<(f64, String)>,
}

#[derive(Clone, Copy)]
enum Scaling {
    Linear,
    Logarithmic,
    /// As many nines as a quantile has.
    Nines,
}

impl Scaling {
    fn of(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Logarithmic => value.max(f64::MIN_POSITIVE).log10(),
            Self::Nines => -(1.0 - value).max(f64::MIN_POSITIVE).log10(),
        }
    }
}

impl Axis {
    pub(super) fn quantiles() -> Self {
        let named = [(0.01, "1 %"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %")];
        let mut named = named.map(|(value, text)| (value, text.to_owned())).to_vec();
        named.push((0.9999, "99.99 %".to_owned()));
        Self { name: "of calls".to_owned(), scaling: Scaling::Nines, least: 0.01, most: 0.9999, named }
    }

    pub(super) fn logarithmic(name: &str, lines: &[Line]) -> Self {
        let (least, most) = range(lines, |point| point.1);
        let (low, high) = (least.max(1e-6).log10().floor(), most.max(1e-6).log10().ceil());
        Self::decades(name, low, high.max(low + 1.0))
    }

    /// For sizes that are far apart, otherwise for time.
    pub(super) fn along(name: &str, lines: &[Line]) -> Self {
        let (least, most) = range(lines, |point| point.0);
        if least > 0.0 && most / least >= 10.0 {
            return Self::decades(name, least.log10().floor(), most.log10().ceil());
        }
        Self::steps(name, least, most)
    }

    pub(super) fn from_zero(name: &str, lines: &[Line]) -> Self {
        Self::steps(name, 0.0, range(lines, |point| point.1).1)
    }

    fn decades(name: &str, low: f64, high: f64) -> Self {
        let mut named = Vec::new();
        let mut exponent = low;
        while exponent <= high {
            let value = 10_f64.powf(exponent);
            named.push((value, if value < 0.01 { format!("{value}") } else { Rounded(value).to_string() }));
            exponent += 1.0;
        }
        let (least, most) = (10_f64.powf(low), 10_f64.powf(high));
        Self { name: name.to_owned(), scaling: Scaling::Logarithmic, least, most, named }
    }

    fn steps(name: &str, least: f64, most: f64) -> Self {
        let most = if most > least { most } else { least + 1.0 };
        let rough = (most - least) / 5.0;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|by| by * decade).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let mut named = Vec::new();
        let mut value = (least / step).ceil() * step;
        while value <= most + step {
            named.push((value, Rounded(value).to_string()));
            value += step;
            if value - step >= most {
                break;
            }
        }
        let most = named.last().map_or(most, |last| last.0);
        Self { name: name.to_owned(), scaling: Scaling::Linear, least, most, named }
    }

    /// From 0 at the axis' beginning to 1 at its end.
    fn place(&self, value: f64) -> f64 {
        let (least, most) = (self.scaling.of(self.least), self.scaling.of(self.most));
        (self.scaling.of(value) - least) / (most - least)
    }
}

impl Plot {
    pub(super) fn draw(&self) -> String {
        let x = |value: f64| LEFT + (WIDTH - LEFT - RIGHT) * self.x.place(value);
        let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * self.y.place(value);
        let mut picture = format!("<text class=\"title\" x=\"4\" y=\"14\">{}</text>\n", escaped(&self.title));
        for (value, text) in &self.y.named {
            let at = y(*value);
            let _ = writeln!(
                picture,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.0}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                at + 4.0,
            );
        }
        for (value, text) in &self.x.named {
            let (at, below) = (x(*value), HEIGHT - BOTTOM + 16.0);
            let _ = writeln!(
                picture,
                "<text x=\"{at:.1}\" y=\"{below:.0}\" text-anchor=\"middle\">{text}</text>"
            );
        }
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - 6.0);
        let (over, unit) = (escaped(&self.x.name), escaped(&self.y.name));
        let _ = writeln!(
            picture,
            "<text x=\"{right:.0}\" y=\"{bottom:.0}\" text-anchor=\"end\">{over}</text><text x=\"4\" y=\"32\">{unit}</text>"
        );
        let mut legend = LEFT;
        for (at, line) in self.lines.iter().enumerate() {
            let colour = at % COLOURS;
            let points = line.points.iter().map(|&(over, value)| format!("{:.1},{:.1}", x(over), y(value)));
            let points = points.collect::<Vec<_>>().join(" ");
            let _ = writeln!(
                picture,
                "<polyline class=\"stroke{colour}\" points=\"{points}\"/>\
                 <text class=\"fill{colour}\" x=\"{legend:.0}\" y=\"32\">{}</text>",
                escaped(&line.name)
            );
            legend += 16.0 + 6.5 * line.name.chars().count() as f64;
        }
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\">\n{picture}</svg>\n"
        )
    }
}

fn range(lines: &[Line], of: impl Fn(&(f64, f64)) -> f64) -> (f64, f64) {
    let values = || lines.iter().flat_map(|line| &line.points).map(&of);
    (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
}
