//! Parses and prints the values of settings: `30s`, `24h`, `forever`, `2xx`, `64KiB`, `1000/1h`.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use http::StatusCode;
use onceward::Retention;
use serde::de::{Deserialize, Deserializer, Error as _};

/// A duration: a whole number and a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period(pub Duration);

/// How long something is kept: a [`Period`] or `forever`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepFor(pub Retention);

/// A number of bytes: a whole number, optionally followed by `KiB` or `MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub usize);

/// A number within a time, as in `1000/1h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub count: NonZeroU32,
    pub within: Duration,
}

/// One status, or all statuses of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusOrClass {
    /// `2xx` is 2.
    Class(u8),
    /// One status.
    Status(u16),
}

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not a duration; write a whole number and ms, s, m, h or d, as in `30s`");
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let (_, ms) = UNITS.iter().find(|(name, _)| *name == unit.trim()).ok_or_else(wrong)?;
        number.checked_mul(*ms).map(|ms| Self(Duration::from_millis(ms))).ok_or_else(wrong)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        // The largest unit that divides it. One day is printed as 24h, as people write it.
        let (unit, size) = UNITS
            .iter()
            .rev()
            .find(|(unit, size)| ms.is_multiple_of(*size) && ms > 0 && (*unit != "d" || ms >= 2 * size))
            .unwrap_or(&UNITS[0]);
        write!(f, "{}{unit}", ms / size)
    }
}

impl FromStr for KeepFor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "forever" {
            return Ok(Self(Retention::Forever));
        }
        let Period(period) = text.parse().map_err(|error| format!("{error}, or `forever`"))?;
        Ok(Self(Retention::For(period)))
    }
}

impl fmt::Display for KeepFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Retention::Forever => f.write_str("forever"),
            Retention::For(duration) => Period(duration).fmt(f),
        }
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a number of bytes; write a whole number, or one with KiB or MiB, as in `256KiB`"
            )
        };
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let number: usize = number.parse().map_err(|_| wrong())?;
        let bytes = match unit.trim() {
            "" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            _ => return Err(wrong()),
        };
        number.checked_mul(bytes).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes > 0 && bytes.is_multiple_of(1 << 20) => write!(f, "{}MiB", bytes >> 20),
            bytes if bytes > 0 && bytes.is_multiple_of(1 << 10) => write!(f, "{}KiB", bytes >> 10),
            bytes => write!(f, "{bytes}"),
        }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a number within a time; write both, neither of them zero, as in `1000/1h`"
            )
        };
        let (count, within) = text.split_once('/').ok_or_else(wrong)?;
        let count = count.trim().parse().map_err(|_| wrong())?;
        let Period(within) = within.trim().parse().map_err(|_| wrong())?;
        if within.is_zero() { Err(wrong()) } else { Ok(Self { count, within }) }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, Period(self.within))
    }
}

impl FromStr for StatusOrClass {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let [class @ b'2'..=b'5', b'x', b'x'] = text.as_bytes() {
            return Ok(Self::Class(class - b'0'));
        }
        text.parse()
            .ok()
            .filter(|status| (200..600).contains(status))
            .map(Self::Status)
            .ok_or_else(|| format!("`{text}` is neither a status such as `409` nor a class such as `5xx`"))
    }
}

impl fmt::Display for StatusOrClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class(class) => write!(f, "{class}xx"),
            Self::Status(status) => write!(f, "{status}"),
        }
    }
}

impl StatusOrClass {
    /// The status, if it is one.
    pub fn status(self) -> Option<StatusCode> {
        match self {
            Self::Class(_) => None,
            Self::Status(status) => StatusCode::from_u16(status).ok(),
        }
    }
}

/// A size may also be written as a plain number.
impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged, expecting = "a number of bytes such as 65536 or \"64KiB\"")]
        enum Written {
            Number(usize),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

macro_rules! parsed_from_text {
    ($($kind:ty),+) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )+};
}

parsed_from_text!(Period, KeepFor, Rate, StatusOrClass);

#[cfg(test)]
#[path = "values_test.rs"]
mod tests;
