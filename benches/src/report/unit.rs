//! Units of measured numbers, and how each is formatted.

use serde::Serialize;

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "they say it themselves")]
pub enum Unit {
    PerSecond,
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Leases,
    Megabytes,
    MegabytesPerMinute,
    Bytes,
    Allocations,
    Instructions,
    Trips,
    Rows,
}

impl Unit {
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::PerSecond => "/s",
            Self::Nanoseconds => " ns",
            Self::Microseconds => " µs",
            Self::Milliseconds => " ms",
            Self::Leases => " leases",
            Self::Megabytes => " MB",
            Self::MegabytesPerMinute => " MB/min",
            Self::Bytes => " bytes",
            Self::Allocations => "",
            Self::Instructions => "",
            Self::Trips => "",
            Self::Rows => "",
        }
    }
}

/// A number with its unit, with as many digits as are significant.
pub fn figure(value: f64, unit: Unit) -> String {
    format!("{}{}", Rounded(value), unit.suffix())
}

/// A number of receipts or copies, as one says it.
pub fn many(count: u64) -> String {
    match count {
        1_000_000.. => format!("{} M", Rounded(count as f64 / 1e6)),
        100_000.. => format!("{} k", Rounded(count as f64 / 1e3)),
        _ => Rounded(count as f64).to_string(),
    }
}

pub(super) struct Rounded(pub f64);

impl std::fmt::Display for Rounded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let decimals = match self.0.abs() {
            100.0.. => 0,
            10.0.. => 1,
            _ => 2,
        };
        let text = format!("{:.decimals$}", self.0.abs());
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        f.write_str(if self.0 < 0.0 {
            "-"
        } else if f.sign_plus() {
            "+"
        } else {
            ""
        })?;
        for (at, digit) in whole.char_indices() {
            if at > 0 && (whole.len() - at).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        let fraction = fraction.trim_end_matches('0');
        if fraction.is_empty() { Ok(()) } else { write!(f, ".{fraction}") }
    }
}

#[cfg(test)]
#[path = "unit_test.rs"]
mod tests;
