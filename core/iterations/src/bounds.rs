//! The iterations of a loop as its program writes them.

use crate::region::Section;
use std::ops::Range;

/// `for (i = lower; i < upper; i += stride)`, or `i > upper` where the stride is negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The value of the first iteration.
    pub lower: i64,
    /// The first value that is none any longer.
    pub upper: i64,
    /// From one iteration to the next. Not 0.
    pub stride: i64,
}

impl Bounds {
    /// How many iterations there are; None where the stride is 0, and they never end.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        let distance = i128::from(self.upper) - i128::from(self.lower);
        let stride = i128::from(self.stride);
        if stride == 0 {
            return None;
        }
        let (distance, stride) = if stride < 0 { (-distance, -stride) } else { (distance, stride) };
        // Of two ends of 64 bits each there are less than 2^64 values between.
        Some(num_integer::div_ceil(distance.max(0), stride) as u64)
    }

    /// The same loop, over these of its iterations, which are counted from 0.
    #[must_use]
    pub fn part(&self, iterations: Range<u64>) -> Self {
        let at = |i: u64| i128::from(self.lower) + i128::from(i) * i128::from(self.stride);
        let limit = |value: i128| {
            let upper = i128::from(self.upper);
            // The last step may lead past the end, and past all numbers.
            let within = if self.stride < 0 { value.max(upper) } else { value.min(upper) };
            within as i64
        };
        Self { lower: limit(at(iterations.start)), upper: limit(at(iterations.end)), ..*self }
    }

    /// The values of the variable, in order.
    pub fn values(&self) -> impl Iterator<Item = i64> + use<> {
        let bounds = *self;
        let at = move |i: u64| {
            (i128::from(bounds.lower) + i128::from(i) * i128::from(bounds.stride)) as i64
        };
        (0..self.count().unwrap_or(0)).map(at)
    }

    /// What iterations that are counted from 0 use, of a section that is declared for the variable of the loop.
    #[must_use]
    pub fn section(&self, of_variable: &Section) -> Section {
        let a = of_variable.coefficient;
        Section {
            coefficient: a.saturating_mul(self.stride),
            constant: of_variable.constant.saturating_add(a.saturating_mul(self.lower)),
            ..*of_variable
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::region::{ArrayId, Use};
    use proptest::prelude::*;

    fn bounds(lower: i64, upper: i64, stride: i64) -> Bounds {
        Bounds { lower, upper, stride }
    }

    #[test]
    fn iterations_are_counted_as_c_does() {
        for (lower, upper, stride, expected) in [
            (0, 10, 1, 10),
            (0, 10, 3, 4),
            (0, 9, 3, 3),
            (10, 0, -3, 4),
            (10, -1, -1, 11),
            (5, 5, 1, 0),
            (5, 4, 1, 0),
            (4, 5, -1, 0),
            (i64::MIN, i64::MAX, 1, u64::MAX),
            (i64::MAX, i64::MIN, -1, u64::MAX),
            (i64::MIN, i64::MAX, i64::MAX, 3),
            (i64::MAX, i64::MIN, i64::MIN, 2),
        ] {
            assert_eq!(bounds(lower, upper, stride).count(), Some(expected), "{lower} {upper}");
        }
        assert_eq!(bounds(0, 1, 0).count(), None);
    }

    #[test]
    fn a_section_follows_from_the_bounds() {
        let rows = Section {
            array: ArrayId(0),
            used: Use::Writes,
            element_bytes: 8,
            coefficient: 100,
            constant: 5,
        };
        // Rows 20, 18, 16.
        let by_iteration = bounds(20, 14, -2).section(&rows);
        assert_eq!((by_iteration.coefficient, by_iteration.constant), (-200, 2_005));
        assert_eq!(by_iteration.bytes(&(0..1)), 8 * 2_005..8 * 2_205);
    }

    proptest! {
        #[test]
        fn parts_have_all_values_in_order(
            lower in -1_000..1_000_i64, length in -50..1_000_i64, stride in -20..20_i64, cut in 0.0..1.0_f64,
            end in prop::sample::select(vec![0, i64::MAX - 2_000, i64::MIN + 2_000]),
        ) {
            prop_assume!(stride != 0);
            let whole = bounds(end + lower, end + lower + length, stride);
            let count = whole.count().unwrap();
            let mut expected = Vec::new();
            let mut i = i128::from(whole.lower);
            while if stride > 0 { i < i128::from(whole.upper) } else { i > i128::from(whole.upper) } {
                expected.push(i as i64);
                i += i128::from(stride);
            }
            let middle = (count as f64 * cut) as u64;
            let (first, second) = (whole.part(0..middle), whole.part(middle..count));
            let found: Vec<i64> = first.values().chain(second.values()).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
