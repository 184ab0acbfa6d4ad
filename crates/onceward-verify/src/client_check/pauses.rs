//! What the pauses between tries say: whether they grow, and whether they have jitter.

use std::time::Duration;

/// Pauses that were shorter than this are taken for none.
const NONE: Duration = Duration::from_millis(10);
/// Pauses are told apart by this part of them, and this much more: what a busy machine adds is no jitter.
const ALIKE_PART: f64 = 0.02;
const ALIKE: f64 = 0.002;
/// Growth of the pauses, at least. Of eight runs with full jitter whose bound doubles, two in a thousand stay below it; of
/// eight that pause between half and all of one time, and meet a busy machine now and then, fewer exceed it.
const GROWTH: f64 = 1.5;

/// The pauses of several runs that all failed to the end: one list for each run.
#[derive(Debug)]
pub(super) struct Pauses(pub(super) Vec<Vec<Duration>>);

impl Pauses {
    /// How many pauses there are in every run.
    pub(super) fn common(&self) -> usize {
        self.0.iter().map(Vec::len).min().unwrap_or_default()
    }

    /// Whether there are no pauses worth the name.
    pub(super) fn are_none(&self) -> bool {
        self.0.iter().flatten().all(|pause| *pause < NONE)
    }

    /// Whether later pauses are longer than the first, on average over the runs: a single one may be longer because the
    /// machine was busy. None where there are too few: with full jitter a second pause can be shorter than the first by
    /// chance.
    pub(super) fn grow(&self) -> Option<bool> {
        // Every run has these, so sums compare as averages do.
        let sum = |index: usize| -> f64 {
            self.0.iter().filter_map(|run| run.get(index)).map(Duration::as_secs_f64).sum()
        };
        let later = (2..self.common()).map(sum).reduce(f64::max)?;
        Some(later > sum(0) * GROWTH)
    }

    /// Whether runs that are at the same try pause for different times. Only the longer half of the pauses is looked at,
    /// where chance of the machine counts least.
    pub(super) fn have_jitter(&self) -> Option<bool> {
        let common = self.common();
        if common == 0 || self.0.len() < 2 {
            return None;
        }
        Some((common / 2..common).any(|index| {
            let pauses: Vec<f64> = self.0.iter().map(|run| run[index].as_secs_f64()).collect();
            let (mut alike, mut pairs) = (0, 0);
            for (number, one) in pauses.iter().enumerate() {
                for other in &pauses[number + 1..] {
                    pairs += 1;
                    alike += u32::from((one - other).abs() <= one.min(*other) * ALIKE_PART + ALIKE);
                }
            }
            alike * 2 < pairs
        }))
    }
}

#[cfg(test)]
#[path = "pauses_test.rs"]
mod tests;
