//! Lets the sides of a comparison take turns, A B A B …, so that other load on the machine affects all of them
//! alike.

use crate::latency::Latency;
use crate::report::{Side, Unit, figure};

/// What one turn of one side measured.
pub struct Turn {
    value: f64,
    latency: Option<Latency>,
}

impl Turn {
    /// A value, and how long the calls behind it took.
    pub fn with_latency(value: f64, latency: Option<Latency>) -> Self {
        Self { value, latency }
    }

    /// How long the calls took, if they were timed.
    pub fn latency(&self) -> Option<&Latency> {
        self.latency.as_ref()
    }

    /// How long the calls took.
    pub fn into_latency(self) -> Option<Latency> {
        self.latency
    }

    /// The value that was measured.
    pub fn value(&self) -> f64 {
        self.value
    }
}

impl From<f64> for Turn {
    fn from(value: f64) -> Self {
        Self { value, latency: None }
    }
}

/// A side: its name, and what it does in a round.
pub type Player<'a> = (&'a str, &'a mut dyn FnMut(usize) -> Turn);

/// The number of rounds, their unit, and whether a warm-up round comes first.
pub struct Turns {
    rounds: usize,
    unit: Unit,
    warm_up: bool,
}

impl Turns {
    /// Turns with this number of rounds, whose values have this unit.
    pub fn new(rounds: usize, unit: Unit) -> Self {
        Self { rounds, unit, warm_up: false }
    }

    /// Adds a warm-up round that does not count: it opens connections and fills tables.
    pub fn after_warm_up(mut self) -> Self {
        self.warm_up = true;
        self
    }

    /// Lets all sides take their turns. Rounds are counted from 0; the warm-up round gets the highest number.
    pub fn take<const N: usize>(self, mut players: [Player<'_>; N]) -> [Side; N] {
        if self.warm_up {
            for (_, play) in &mut players {
                play(self.rounds);
            }
        }
        let mut values = vec![Vec::new(); N];
        let mut latencies = vec![Vec::new(); N];
        for round in 0..self.rounds {
            let mut line = Vec::new();
            for (at, (name, play)) in players.iter_mut().enumerate() {
                let turn = play(round);
                line.push(format!("{name} {}", figure(turn.value, self.unit)));
                values[at].push(turn.value);
                latencies[at].extend(turn.latency);
            }
            progress(&format!("round {} of {}: {}", round + 1, self.rounds, line.join(", ")));
        }
        let mut results = values.into_iter().zip(latencies);
        players.map(|(name, _)| {
            let (values, latencies) = results.next().expect("one for each side");
            Side { latency: Latency::median_of(&latencies), ..Side::new(name, values) }
        })
    }
}

/// Prints progress to standard error, apart from the results.
pub fn progress(line: &str) {
    eprintln!("   {line}");
}

/// The median.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    }
}
