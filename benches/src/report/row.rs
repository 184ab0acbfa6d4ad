//! One line of the table: our side, usually another side, and a goal.

use serde::Serialize;

use super::unit::{Rounded, Unit, figure};
use crate::latency::Latency;
use crate::turns::median;

/// One line of the table: our side, usually another side, and a goal.
pub struct Row {
    /// What was measured.
    pub what: String,
    /// The unit of both sides.
    pub unit: Unit,
    /// Ours.
    pub ours: Side,
    /// What it is compared with.
    pub other: Option<Side>,
    pub(super) judged: Judged,
    /// The goal, if there is one.
    pub goal: Option<Goal>,
}

/// One side of a comparison: its rounds, and how long its calls took.
#[derive(Clone, Serialize)]
pub struct Side {
    /// The name of the side.
    pub name: String,
    /// A value for each round.
    pub rounds: Vec<f64>,
    /// The median of all rounds, where calls were timed.
    pub latency: Option<Latency>,
}

/// The number that the goal applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Judged {
    /// Ours divided by the other.
    Ratio,
    /// Ours less the other.
    Excess,
    /// Ours as it is.
    Ours,
}

/// A bound on the judged number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// Less than this.
    Below(f64),
}

impl Side {
    /// A side by the values of its rounds.
    pub fn new(name: &str, rounds: Vec<f64>) -> Self {
        Self { name: name.to_owned(), rounds, latency: None }
    }

    /// The same rounds with each value mapped.
    pub fn map(&self, by: impl Fn(f64) -> f64) -> Self {
        Self { rounds: self.rounds.iter().map(|&value| by(value)).collect(), ..self.clone() }
    }

    /// The median round.
    pub fn median(&self) -> f64 {
        median(&self.rounds)
    }

    /// The smallest and the largest round.
    pub fn spread(&self) -> (f64, f64) {
        let least = self.rounds.iter().copied().fold(f64::INFINITY, f64::min);
        (least, self.rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    }
}

impl Row {
    /// Ours divided by the other.
    pub fn ratio(what: impl Into<String>, unit: Unit, ours: &Side, other: &Side) -> Self {
        Self::new(what, unit, ours, Some(other), Judged::Ratio)
    }

    /// What ours costs beyond the other.
    pub fn excess(what: impl Into<String>, unit: Unit, ours: &Side, other: &Side) -> Self {
        Self::new(what, unit, ours, Some(other), Judged::Excess)
    }

    /// Ours as it is, with the other beside it.
    pub fn beside(what: impl Into<String>, unit: Unit, ours: &Side, other: &Side) -> Self {
        Self::new(what, unit, ours, Some(other), Judged::Ours)
    }

    /// Ours, compared with nothing.
    pub fn alone(what: impl Into<String>, unit: Unit, ours: &Side) -> Self {
        Self::new(what, unit, ours, None, Judged::Ours)
    }

    fn new(what: impl Into<String>, unit: Unit, ours: &Side, other: Option<&Side>, judged: Judged) -> Self {
        let what = what.into();
        assert!(!ours.rounds.is_empty(), "{what}: no round was measured");
        if let Some(other) = other {
            assert_eq!(ours.rounds.len(), other.rounds.len(), "{what}: the sides take turns");
        }
        Self { what, unit, ours: ours.clone(), other: other.cloned(), judged, goal: None }
    }

    /// Sets the goal.
    pub fn goal(mut self, goal: Goal) -> Self {
        self.goal = Some(goal);
        self
    }

    /// The number that is judged, round by round: both sides of a round ran under the same load.
    pub fn judged(&self) -> Side {
        let Some(other) = &self.other else { return self.ours.clone() };
        let pairs = self.ours.rounds.iter().zip(&other.rounds);
        let rounds = match self.judged {
            Judged::Ratio => pairs.map(|(ours, other)| ours / other).collect(),
            Judged::Excess => pairs.map(|(ours, other)| ours - other).collect(),
            Judged::Ours => self.ours.rounds.clone(),
        };
        Side::new("judged", rounds)
    }

    /// Whether the goal is met; `None` without one.
    pub fn met(&self) -> Option<bool> {
        let measured = self.judged().median();
        Some(match self.goal? {
            Goal::AtLeast(goal) => measured >= goal,
            Goal::AtMost(goal) => measured <= goal,
            Goal::Below(goal) => measured < goal,
        })
    }

    /// The judged number as text, with its spread; empty for a row without another side.
    pub(super) fn judged_text(&self) -> String {
        let judged = self.judged();
        let (least, most) = judged.spread();
        match self.judged {
            Judged::Ratio if most >= 10.0 => format!("{:.0} ({least:.0}–{most:.0})", judged.median()),
            Judged::Ratio => format!("{:.2} ({least:.2}–{most:.2})", judged.median()),
            Judged::Excess => format!("{:+}{}", Rounded(judged.median()), self.unit.suffix()),
            Judged::Ours => String::new(),
        }
    }

    pub(super) fn goal_text(&self) -> String {
        let value = |goal: f64| match self.judged {
            Judged::Ratio => format!("{goal}"),
            Judged::Excess => format!("+{}", figure(goal, self.unit)),
            Judged::Ours => figure(goal, self.unit),
        };
        match self.goal {
            None => String::new(),
            Some(Goal::AtLeast(goal)) => format!("≥ {}", value(goal)),
            Some(Goal::AtMost(goal)) => format!("≤ {}", value(goal)),
            Some(Goal::Below(goal)) => format!("< {}", value(goal)),
        }
    }

    pub(super) fn mark(&self) -> &'static str {
        match self.met() {
            None => "",
            Some(true) => "yes",
            Some(false) => "NO",
        }
    }
}

#[cfg(test)]
#[path = "row_test.rs"]
mod tests;
