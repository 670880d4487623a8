//! Time as nanoseconds in a type, and durations as users write them (`20ms`, `1.5s`).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in time or a span of time, in nanoseconds. Subtraction saturates at zero, because the
/// kernel's counters are read at slightly different moments and a span is never negative.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of this many whole milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }

    /// A span of this many whole microseconds.
    #[must_use]
    pub const fn from_micros(us: u64) -> Self {
        Self(us * 1_000)
    }

    /// From seconds; negative and not-a-number give zero.
    #[must_use]
    pub fn from_secs_f64(s: f64) -> Self {
        Self((s * 1e9).max(0.0) as u64)
    }

    /// The time in seconds, rounded to what a float can hold.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time in milliseconds, rounded to what a float can hold.
    #[must_use]
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Scaled by a factor; negative factors give zero.
    #[must_use]
    pub fn scale(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor).max(0.0) as u64)
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<Duration> for Nanos {
    fn from(d: Duration) -> Self {
        Self(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(n: Nanos) -> Self {
        Self::from_nanos(n.0)
    }
}

impl fmt::Display for Nanos {
    /// With the unit that keeps the number readable: `850 ns`, `12.3 us`, `20.0 ms`, `4.51 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} ns", self.0),
            1_000..1_000_000 => write!(f, "{:.1} us", n / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} ms", n / 1e6),
            _ => write!(f, "{:.2} s", n / 1e9),
        }
    }
}

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// No unit, or one that is not known.
    #[error("duration '{0}' needs a number and a unit: ns, us, ms, s or min (for example 20ms)")]
    Form(String),
    /// Zero, negative, or past what 64 bits of nanoseconds hold.
    #[error("duration '{0}' must be longer than 0 and at most 1000000 s")]
    Range(String),
}

/// Reads a duration with a unit: `20ms`, `1.5s`, `250us`, `2min`.
///
/// # Errors
/// [`DurationError`] where number or unit is missing, or where the span is zero or absurd.
pub fn parse_duration(text: &str) -> Result<Nanos, DurationError> {
    let (t, sign) = match text.trim().strip_prefix('-') {
        Some(rest) => (rest, -1.0),
        None => (text.trim(), 1.0),
    };
    let split = t
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .ok_or_else(|| DurationError::Form(text.to_owned()))?;
    let (number, unit) = t.split_at(split);
    let value: f64 = number.parse().map_err(|_| DurationError::Form(text.to_owned()))?;
    let factor = match unit.trim() {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        _ => return Err(DurationError::Form(text.to_owned())),
    };
    let seconds = sign * value * factor;
    if !(seconds > 0.0 && seconds <= 1e6) {
        return Err(DurationError::Range(text.to_owned()));
    }
    Ok(Nanos::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_users_write_them() {
        assert_eq!(parse_duration("20ms"), Ok(Nanos::from_millis(20)));
        assert_eq!(parse_duration(" 1.5s"), Ok(Nanos::from_millis(1500)));
        assert_eq!(parse_duration("250 us"), Ok(Nanos::from_micros(250)));
        assert_eq!(parse_duration("2min"), Ok(Nanos::from_millis(120_000)));
    }

    #[test]
    fn what_is_not_a_duration_is_refused() {
        for bad in ["", "20", "ms", "-1ms", "0ms", "1h", "1..2s", "nan s", "9999999s", "1e3s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        // Of a negative one it is not the form that is wrong.
        assert_eq!(parse_duration("-5ms"), Err(DurationError::Range("-5ms".into())));
        assert_eq!(parse_duration("--5ms"), Err(DurationError::Form("--5ms".into())));
    }

    #[test]
    fn spans_are_never_negative() {
        assert_eq!(Nanos(3) - Nanos(5), Nanos::ZERO);
    }

    #[test]
    fn display_keeps_numbers_readable() {
        let shown: Vec<String> = [850, 12_300, 20_000_000, 4_510_000_000]
            .into_iter()
            .map(|n| Nanos(n).to_string())
            .collect();
        assert_eq!(shown, ["850 ns", "12.3 us", "20.0 ms", "4.51 s"]);
    }
}
