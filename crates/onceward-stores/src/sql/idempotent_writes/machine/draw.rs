//! Draws a machine for the documentation of the service: as a Mermaid diagram, and as an SVG.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Machine;

/// Sizes of the drawing, in its own units.
const BOX_HEIGHT: usize = 36;
const CHARACTER_WIDTH: usize = 8;
const COLUMN_GAP: usize = 64;
const ROW_GAP: usize = 28;
const MARGIN: usize = 40;
/// What one arrow more below the boxes needs.
const DIP: usize = 14;

/// Where a state is drawn.
#[derive(Clone, Copy, Debug)]
struct Place {
    column: usize,
    left: usize,
    top: usize,
    width: usize,
}

impl Place {
    fn right(self) -> usize {
        self.left + self.width
    }

    fn middle(self) -> (usize, usize) {
        (self.left + self.width / 2, self.top + BOX_HEIGHT / 2)
    }

    fn bottom(self) -> usize {
        self.top + BOX_HEIGHT
    }
}

impl Machine {
    /// The machine as a Mermaid diagram, for the documentation of the service.
    pub fn mermaid(&self) -> String {
        let numbers: BTreeMap<&str, usize> = self.states().into_iter().zip(1..).collect();
        let mut lines = vec!["stateDiagram-v2".to_owned()];
        // Names of states may have characters that the format does not take in an identifier.
        lines.extend(
            numbers.iter().map(|(state, number)| format!("    s{number} : {}", state.replace(':', "#58;"))),
        );
        lines
            .extend(self.initial.iter().map(|initial| format!("    [*] --> s{}", numbers[initial.as_str()])));
        for (from, followers) in &self.allowed {
            lines.extend(
                followers
                    .iter()
                    .map(|to| format!("    s{} --> s{}", numbers[from.as_str()], numbers[to.as_str()])),
            );
        }
        let is_final = |state: &&&str| self.allowed(state).is_empty();
        lines.extend(numbers.keys().filter(is_final).map(|state| format!("    s{} --> [*]", numbers[state])));
        lines.join("\n") + "\n"
    }

    /// The machine as an SVG, for places that cannot draw Mermaid. Each column is one change further from the first state.
    /// A state that nothing follows has a double border.
    pub fn svg(&self) -> String {
        let places = self.places();
        let lowest = places.values().map(|place| place.bottom()).max().unwrap_or_default();
        let width = places.values().map(|place| place.right()).max().unwrap_or_default() + MARGIN;
        let (mut arrows, mut dips) = (String::new(), 0);
        if let Some(first) = self.initial.as_deref().map(|initial| places[initial]) {
            let (y, end) = (first.middle().1, first.left);
            let _ = writeln!(arrows, r#"<circle cx="{}" cy="{y}" r="5"/>"#, end - 28);
            let _ = writeln!(arrows, r#"<path class="arrow" d="M{},{y} L{end},{y}"/>"#, end - 28);
        }
        for (from, followers) in &self.allowed {
            for to in followers {
                let (from, to) = (places[from.as_str()], places[to.as_str()]);
                let path = if to.column == from.column + 1 {
                    let ((_, y1), (_, y2)) = (from.middle(), to.middle());
                    let (x1, x2) = (from.right(), to.left);
                    let between = usize::midpoint(x1, x2);
                    format!("M{x1},{y1} C{between},{y1} {between},{y2} {x2},{y2}")
                } else {
                    // Below all boxes: it leads back, or over other columns.
                    dips += 1;
                    let depth = lowest + dips * DIP;
                    let ((x1, _), (x2, _)) = (from.middle(), to.middle());
                    let (x1, x2) = if x1 == x2 { (x1 + DIP, x2 - DIP) } else { (x1, x2) };
                    let (y1, y2) = (from.bottom(), to.bottom());
                    format!("M{x1},{y1} C{x1},{depth} {x2},{depth} {x2},{y2}")
                };
                let _ = writeln!(arrows, r#"<path class="arrow" d="{path}"/>"#);
            }
        }
        let mut boxes = String::new();
        for (state, place) in &places {
            let Place { left, top, width, .. } = *place;
            let _ = writeln!(
                boxes,
                r#"<rect class="state" x="{left}" y="{top}" width="{width}" height="{BOX_HEIGHT}" rx="8"/>"#
            );
            if self.allowed(state).is_empty() {
                let (left, top, width, height) = (left + 3, top + 3, width - 6, BOX_HEIGHT - 6);
                let _ = writeln!(
                    boxes,
                    r#"<rect class="state" x="{left}" y="{top}" width="{width}" height="{height}" rx="6"/>"#
                );
            }
            let (x, y) = place.middle();
            let _ = writeln!(boxes, r#"<text x="{x}" y="{}">{}</text>"#, y + 5, escaped(state));
        }
        let height = lowest + dips * DIP + MARGIN;
        let name = escaped(&self.table);
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="sans-serif" font-size="13">
<title>The states of {name}</title>
<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>
<style>.state {{ fill: #fff; stroke: #333 }} .arrow {{ fill: none; stroke: #333; marker-end: url(#head) }} text {{ text-anchor: middle }}</style>
<rect width="{width}" height="{height}" fill="#fff"/>
{boxes}{arrows}</svg>
"##
        )
    }

    /// Where each state is drawn: in columns, by how many changes it takes to get there.
    fn places(&self) -> BTreeMap<&str, Place> {
        let mut columns: Vec<Vec<&str>> = Vec::new();
        let mut left = self.states();
        while !left.is_empty() {
            let next: Vec<&str> = match columns.last() {
                Some(before) => {
                    let follows = |state: &&str| {
                        before.iter().any(|from| self.allowed(from).iter().any(|to| to == state))
                    };
                    left.iter().copied().filter(follows).collect()
                }
                None => Vec::new(),
            };
            // The first column, or one that cannot be reached from those before.
            let next = if next.is_empty() { vec![self.first_of(&left)] } else { next };
            left.retain(|state| !next.contains(state));
            columns.push(next);
        }
        let mut places = BTreeMap::new();
        let mut x = MARGIN;
        for (column, states) in columns.iter().enumerate() {
            let longest = states.iter().map(|state| state.len()).max().unwrap_or_default();
            let width = longest * CHARACTER_WIDTH + 24;
            for (row, state) in states.iter().enumerate() {
                let top = MARGIN / 2 + row * (BOX_HEIGHT + ROW_GAP);
                places.insert(*state, Place { column, left: x, top, width });
            }
            x += width + COLUMN_GAP;
        }
        places
    }

    /// The state to begin with: the initial one, else one that follows no other.
    fn first_of<'a>(&'a self, states: &[&'a str]) -> &'a str {
        let is_begin = |state: &&&str| {
            self.initial.as_deref() == Some(**state)
                || !self.allowed.values().flatten().any(|to| to == **state)
        };
        states.iter().find(is_begin).unwrap_or(&states[0])
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
