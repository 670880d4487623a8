//! How large arrays are, and whether a loop stays within them.

use crate::bounds::Bounds;
use crate::region::Section;
use std::fmt;

/// The dimensions of an array, in elements; in which order they are said matters to nobody but who reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    sizes: Vec<u64>,
    bytes: i64,
}

impl Extent {
    /// So many elements in each dimension, of so many bytes. None where there is no dimension, or more bytes than any memory has.
    #[must_use]
    pub fn new(sizes: &[u64], element_bytes: u64) -> Option<Self> {
        let times = |bytes: u64, size: &u64| bytes.checked_mul(*size);
        // Where one is 0 the others do not matter.
        let is_empty = sizes.contains(&0);
        let bytes = if is_empty { Some(0) } else { sizes.iter().try_fold(element_bytes, times) };
        let bytes = i64::try_from(bytes?).ok()?;
        (!sizes.is_empty()).then(|| Self { sizes: sizes.to_vec(), bytes })
    }

    /// The first iteration whose element `A[a*i + b]` is not in the array, and that element; None where all are. How far an iteration
    /// goes on from there is not asked: the next one begins within the array, or there is none.
    #[must_use]
    pub fn leaves(&self, bounds: &Bounds, section: &Section) -> Option<Outside> {
        let count = bounds.count().filter(|count| *count > 0)?;
        let section = bounds.section(section);
        let element = |i: u64| {
            let places = i128::from(section.coefficient).saturating_mul(i.into());
            places.saturating_add(section.constant.into())
        };
        let is_outside = |i: u64| {
            let from = element(i).saturating_mul(section.element_bytes.into());
            from < 0 || from.saturating_add(section.element_bytes.into()) > self.bytes.into()
        };
        // Elements only go up, or only down.
        let last = count - 1;
        let first = if is_outside(0) { 0 } else { first_of(last, is_outside)? };
        Some(Outside { iteration: bounds.part(first..count).lower, element: element(first) })
    }
}

/// The first number up to this one that is so, where those that are so follow those that are not; None where none is.
fn first_of(last: u64, is_so: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut not, mut so) = (0, Some(last).filter(|last| is_so(*last))?);
    while so - not > 1 {
        let middle = not.midpoint(so);
        *(if is_so(middle) { &mut so } else { &mut not }) = middle;
    }
    Some(so)
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.sizes.iter().map(u64::to_string).collect();
        f.write_str(&sizes.join(" x "))
    }
}

/// What a loop would use that is not in its array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outside {
    /// The variable of the loop.
    pub iteration: i64,
    /// The element, which is counted from 0 on.
    pub element: i128,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::region::{ArrayId, Use};
    use proptest::prelude::*;

    fn section(coefficient: i64, constant: i64) -> Section {
        let (array, used) = (ArrayId(0), Use::Writes);
        Section { array, used, element_bytes: 8, coefficient, constant }
    }

    fn bounds(lower: i64, upper: i64, stride: i64) -> Bounds {
        Bounds { lower, upper, stride }
    }

    #[test]
    fn a_loop_over_rows_stays_within_them() {
        let grid = Extent::new(&[64, 100], 8).unwrap();
        assert_eq!(grid.to_string(), "64 x 100");
        let leaves = |lower, upper, stride, a, b| {
            let outside = grid.leaves(&bounds(lower, upper, stride), &section(a, b));
            outside.map(|o| (o.iteration, o.element))
        };
        assert_eq!(leaves(0, 64, 1, 100, 0), None);
        // From the second column on: what follows the last element of a row is not asked for.
        assert_eq!(leaves(0, 64, 1, 100, 1), None);
        assert_eq!(leaves(0, 65, 1, 100, 0), Some((64, 6_400)));
        assert_eq!(leaves(1, 2_000, 1, 100, 0), Some((64, 6_400)));
        assert_eq!(leaves(0, 64, 1, 100, -100), Some((0, -100)));
        assert_eq!(leaves(63, -1, -1, 100, 0), None);
        assert_eq!(leaves(63, -3, -2, 100, 0), Some((-1, -100)));
        assert_eq!(leaves(0, 64, 1, -100, 6_300), None);
        assert_eq!(leaves(5, 5, 1, 100, 1 << 40), None);
        assert_eq!(leaves(i64::MIN, i64::MAX, 1, i64::MAX, i64::MAX).unwrap().0, i64::MIN);
        // All use the same element.
        assert_eq!(
            (leaves(0, 9, 1, 0, 6_399), leaves(0, 9, 1, 0, 6_400)),
            (None, Some((0, 6_400)))
        );
    }

    #[test]
    fn what_no_memory_holds_is_no_array() {
        for (sizes, bytes, exists) in [
            (&[3_u64, 4][..], 8, true),
            (&[], 8, false),
            (&[0, u64::MAX, 2], 8, true),
            (&[u64::MAX, 2], 8, false),
            (&[1 << 62], 4, false),
            (&[4], u64::MAX, false),
        ] {
            assert_eq!(Extent::new(sizes, bytes).is_some(), exists, "{sizes:?} {bytes}");
        }
        let empty = Extent::new(&[0, 5], 8).unwrap();
        assert!(empty.leaves(&bounds(0, 1, 1), &section(5, 0)).is_some());
        assert!(empty.leaves(&bounds(0, 0, 1), &section(5, 0)).is_none());
    }

    proptest! {
        /// As one iteration after the other says.
        #[test]
        fn the_first_that_leaves_is_found(
            lower in -40..40_i64, length in 0..60_i64, stride in -5..6_i64, a in -7..8_i64, b in -50..300_i64,
            elements in 0..250_u64,
        ) {
            prop_assume!(stride != 0);
            let all = bounds(lower, if stride > 0 { lower + length } else { lower - length }, stride);
            let element = |i: i64| i128::from(a * i + b);
            let expected = all.values().find(|i| !(0..i128::from(elements)).contains(&element(*i)));
            let found = Extent::new(&[elements], 8).unwrap().leaves(&all, &section(a, b));
            prop_assert_eq!(found.map(|o| (o.iteration, o.element)), expected.map(|i| (i, element(i))));
        }
    }
}
