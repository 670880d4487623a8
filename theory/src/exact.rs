//! Exact time.
//!
//! Invariant: nothing is ever rounded. Numerator and denominator grow as they must.

use evenly_model::Nanos;
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, ToPrimitive, Zero};
use std::fmt;
use std::ops::{Add, Sub};

/// A span of time as an exact fraction of nanoseconds. Unlike [`Nanos`] it can be negative.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExactTime(BigRational);

/// `num / den` as an exact number. `den` must not be 0.
pub(super) fn ratio(num: impl Into<BigInt>, den: impl Into<BigInt>) -> BigRational {
    let den = den.into();
    assert!(!den.is_zero(), "a fraction has a denominator");
    BigRational::new(num.into(), den)
}

impl ExactTime {
    /// A time of zero.
    #[must_use]
    pub fn zero() -> Self {
        Self(BigRational::zero())
    }

    /// `num / den` nanoseconds. `den` must not be 0.
    #[must_use]
    pub fn fraction(num: u128, den: u128) -> Self {
        Self(ratio(num, den))
    }

    /// In nanoseconds, to the nearest number that an f64 holds.
    #[must_use]
    pub fn nanos(&self) -> f64 {
        self.0.to_f64().unwrap_or(f64::INFINITY)
    }

    /// In seconds, to the nearest number that an f64 holds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.nanos() / 1e9
    }

    /// This over another, exact up to the last division. Not a number where the other is zero.
    #[must_use]
    pub fn over(&self, other: &Self) -> f64 {
        if other.0.is_zero() {
            return f64::NAN;
        }
        (&self.0 / &other.0).to_f64().unwrap_or(f64::INFINITY)
    }

    /// Times `num / den`, exactly. `den` must not be 0.
    #[must_use]
    pub fn times(&self, num: u64, den: u64) -> Self {
        Self(&self.0 * ratio(num, den))
    }

    pub(super) fn by(&self, factor: &BigRational) -> Self {
        Self(&self.0 * factor)
    }

    /// This over another, exactly. The other must not be zero.
    pub(super) fn part_of(&self, other: &Self) -> BigRational {
        &self.0 / &other.0
    }

    /// 2 to the power of -k of it.
    pub(super) fn halved(&self, k: u32) -> Self {
        Self(&self.0 / BigRational::from_integer(BigInt::one() << k))
    }

    /// How often the other fits in as a whole. The other must be longer than zero.
    pub(super) fn fits(&self, other: &Self) -> BigInt {
        (&self.0 / &other.0).floor().to_integer()
    }

    /// Whether the other fits in without a rest.
    pub(super) fn is_multiple_of(&self, other: &Self) -> bool {
        (&self.0 / &other.0).is_integer()
    }
}

impl fmt::Display for ExactTime {
    /// As [`Nanos`], to the nearest nanosecond; in seconds where those do not hold it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos().round();
        if (0.0..1e18).contains(&nanos) {
            Nanos(nanos as u64).fmt(f)
        } else {
            write!(f, "{:.2} s", nanos / 1e9)
        }
    }
}

impl From<Nanos> for ExactTime {
    fn from(n: Nanos) -> Self {
        Self(BigRational::from_integer(BigInt::from(n.0)))
    }
}

impl Add for ExactTime {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for ExactTime {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_rounded() {
        let third = ExactTime::from(Nanos(1)).times(1, 3);
        assert_eq!(third.clone() + third.clone() + third.clone(), ExactTime::from(Nanos(1)));
        assert_eq!(third.times(3, 1).over(&ExactTime::from(Nanos(4))), 0.25);
        assert_eq!((third.clone() - third).nanos(), 0.0);
        let long = ExactTime::from(Nanos(u64::MAX)).times(u64::MAX, 1).times(1, u64::MAX);
        assert_eq!(long, ExactTime::from(Nanos(u64::MAX)));
        assert_eq!(long.to_string(), "18446744073.71 s");
        assert_eq!(ExactTime::from(Nanos(3_000_000)).times(1, 2).to_string(), "1.5 ms");
        assert!(ExactTime::zero().over(&ExactTime::zero()).is_nan());
    }
}
