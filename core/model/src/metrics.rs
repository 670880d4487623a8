//! How far values are spread: the imbalance of a program.

use serde::{Deserialize, Serialize};

/// Least, mean and greatest of a set of values, and how far the greatest is above the mean.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Spread {
    /// The least of the values.
    pub min: f64,
    /// The mean of the values.
    pub mean: f64,
    /// The greatest of the values.
    pub max: f64,
}

impl Spread {
    /// Of some values; None where there is none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let (mut n, mut sum, mut min, mut max) = (0u64, 0.0, f64::INFINITY, f64::NEG_INFINITY);
        for v in values {
            n += 1;
            sum += v;
            min = min.min(v);
            max = max.max(v);
        }
        (n > 0).then(|| Self { min, mean: sum / n as f64, max })
    }

    /// Imbalance: max / mean - 1. 0 is perfect balance; 0 as well where the mean is 0.
    #[must_use]
    pub fn imbalance(&self) -> f64 {
        if self.mean > 0.0 { self.max / self.mean - 1.0 } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_known_values() {
        let s = Spread::of([1.0, 2.0, 3.0]).unwrap();
        assert_eq!((s.min, s.mean, s.max), (1.0, 2.0, 3.0));
        assert!((s.imbalance() - 0.5).abs() < 1e-12);
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([0.0]).unwrap().imbalance(), 0.0);
    }
}
