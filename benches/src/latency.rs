//! Latency distributions as quantiles.

use serde::Serialize;

use crate::turns::median;

/// The quantiles that are kept.
pub const QUANTILES: [f64; 11] = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999];

/// A latency distribution: one duration for each of [`QUANTILES`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latency {
    micros: Vec<f64>,
}

impl Latency {
    /// From one duration in microseconds for each of [`QUANTILES`].
    pub fn from_quantiles(micros: Vec<f64>) -> Self {
        assert_eq!(micros.len(), QUANTILES.len());
        Self { micros }
    }

    /// From the duration of every call, in microseconds; `None` without any.
    pub fn from_samples(mut samples: Vec<f32>) -> Option<Self> {
        samples.sort_unstable_by(f32::total_cmp);
        let last = samples.len().checked_sub(1)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the samples")]
        let at = |quantile: f64| samples[(quantile * last as f64).round() as usize];
        Some(Self { micros: QUANTILES.iter().map(|&quantile| f64::from(at(quantile))).collect() })
    }

    /// The median of several distributions, quantile by quantile; `None` without any.
    pub fn median_of(rounds: &[Self]) -> Option<Self> {
        if rounds.is_empty() {
            return None;
        }
        let median_at = |at: usize| median(&rounds.iter().map(|round| round.micros[at]).collect::<Vec<_>>());
        Some(Self { micros: (0..QUANTILES.len()).map(median_at).collect() })
    }

    /// The duration in microseconds at one of [`QUANTILES`].
    pub fn at(&self, quantile: f64) -> f64 {
        let place = QUANTILES.iter().position(|&kept| kept >= quantile).expect("it is one of those kept");
        self.micros[place]
    }

    /// Every quantile with its duration in microseconds.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        QUANTILES.into_iter().zip(self.micros.iter().copied())
    }
}

#[cfg(test)]
#[path = "latency_test.rs"]
mod tests;
