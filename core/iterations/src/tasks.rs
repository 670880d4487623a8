//! How many iterations go together: so many that what they write fills units of coherence, and few enough that they can be
//! divided by powers (section 2.4). Where iterations fill units, and the place of the first is known ([`lead`]), no two tasks
//! write to the same one.

use crate::region::{Region, Use};
use num_integer::gcd;
use std::ops::Range;

/// Tasks of a loop for each processor. The paper has a fixed number, and does not say which. With so many a share is right to
/// within a sixteenth of an equal one, or an eighth where tasks are rounded up.
pub const TASKS_PER_PROCESSOR: u64 = 16;

/// Iterations of the smallest task: what they write is a multiple of the unit of coherence (a cache line within a machine, a
/// page between machines), in each array that the loop writes.
#[must_use]
pub fn smallest_task(region: &Region, unit_bytes: u64) -> u64 {
    let unit_bytes = unit_bytes.max(1);
    let written = region.sections.iter().filter(|s| s.used == Use::Writes);
    let each = written.map(|s| s.bytes_per_iteration()).filter(|&bytes| bytes > 0);
    // The least common multiple of bytes and unit, as iterations; and that of all arrays.
    each.map(|bytes| unit_bytes / gcd(unit_bytes, bytes))
        .fold(1, |all: u64, one| (all / gcd(all, one)).saturating_mul(one))
}

/// How many iterations the first task has to be shorter by, so that the next ones begin where units do. `first_byte` is where
/// the first iteration writes, and `smallest` the iterations of the smallest task. 0 where the first begins a unit, or none does.
#[must_use]
pub fn lead(first_byte: u64, bytes_per_iteration: u64, smallest: u64, unit_bytes: u64) -> u64 {
    let unit_bytes = unit_bytes.max(1);
    let until = |lead: u64| u128::from(smallest - lead) * u128::from(bytes_per_iteration);
    let begins = |&lead: &u64| (u128::from(first_byte) + until(lead)) % u128::from(unit_bytes) == 0;
    (0..smallest).find(begins).unwrap_or(0)
}

/// The iterations of one instance of a loop, in tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tasks {
    iterations: u64,
    size: u64,
    /// The first task has so many iterations less.
    lead: u64,
}

impl Tasks {
    /// For so many processors, in multiples of the smallest task: [`TASKS_PER_PROCESSOR`] for each, or fewer; and one more where
    /// the first does not begin a unit ([`lead`]).
    #[must_use]
    pub fn new(iterations: u64, smallest: u64, lead: u64, processors: usize) -> Self {
        let (smallest, most) = (smallest.max(1), processors.max(1) as u64 * TASKS_PER_PROCESSOR);
        let size = iterations.div_ceil(most).max(1).div_ceil(smallest).saturating_mul(smallest);
        Self::of_size(iterations, size, lead % smallest)
    }

    /// Of so many iterations each, the last of what is left; `lead` iterations less in the first.
    #[must_use]
    pub fn of_size(iterations: u64, size: u64, lead: u64) -> Self {
        let size = size.max(1);
        Self { iterations, size, lead: lead % size }
    }

    /// The iterations of all.
    #[must_use]
    pub fn iterations(&self) -> u64 {
        self.iterations
    }

    /// How many iterations the first has less.
    #[must_use]
    pub fn lead(&self) -> u64 {
        self.lead
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        let all = u128::from(self.iterations) + u128::from(self.lead);
        if self.iterations == 0 { 0 } else { all.div_ceil(self.size.into()) as usize }
    }

    /// Iterations of each but the first and the last.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The iterations of one.
    #[must_use]
    pub fn bounds(&self, task: usize) -> Range<u64> {
        let at = |task: u64| {
            task.saturating_mul(self.size).saturating_sub(self.lead).min(self.iterations)
        };
        at(task as u64)..at((task as u64).saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{ArrayId, Section};
    use proptest::prelude::*;

    fn writes(bytes: &[u64]) -> Region {
        let section = |&element_bytes| Section {
            array: ArrayId(0),
            used: Use::Writes,
            element_bytes,
            coefficient: 1,
            constant: 0,
        };
        Region { sections: bytes.iter().map(section).collect(), ..Region::default() }
    }

    #[test]
    fn the_smallest_task_fills_units_of_coherence() {
        assert_eq!(smallest_task(&writes(&[8]), 64), 8);
        assert_eq!(smallest_task(&writes(&[8_192]), 64), 1);
        // A molecule of Water, in cache lines and in pages.
        assert_eq!(smallest_task(&writes(&[672]), 64), 2);
        assert_eq!(smallest_task(&writes(&[672]), 4_096), 128);
        assert_eq!(smallest_task(&writes(&[8, 4, 672]), 64), 16);
        assert_eq!(smallest_task(&writes(&[]), 64), 1);
        assert_eq!(smallest_task(&writes(&[0]), 64), 1);
        assert_eq!(smallest_task(&writes(&[8]), 0), 1);
        let mut reads = writes(&[8]);
        reads.sections[0].used = Use::Reads;
        assert_eq!(smallest_task(&reads, 64), 1);
    }

    /// Would catch: two processors that write to one cache line, because the array begins within one.
    #[test]
    fn tasks_begin_where_units_do() {
        for (first_byte, expected) in [(0, 0), (64, 0), (8, 1), (56, 7), (4_096 + 24, 3), (4, 0)] {
            assert_eq!(lead(first_byte, 8, 8, 64), expected, "{first_byte}");
        }
        // Each second molecule of ten lines and a half begins one.
        assert_eq!((lead(1_344, 672, 2, 64), lead(2_016, 672, 2, 64)), (0, 1));
        let tasks = Tasks::new(1_000, 8, lead(4_096 + 24, 8, 8, 64), 4);
        for task in 1..tasks.count() {
            assert_eq!((4_096 + 24 + 8 * tasks.bounds(task).start) % 64, 0);
        }
    }

    proptest! {
        #[test]
        fn each_iteration_is_in_one_task(
            iterations in 0..2_000_000_u64,
            smallest in 0..5_000_u64,
            lead in 0..5_000_u64,
            processors in 0..300_usize,
        ) {
            let tasks = Tasks::new(iterations, smallest, lead, processors);
            let mut next = 0;
            for task in 0..tasks.count() {
                let bounds = tasks.bounds(task);
                prop_assert_eq!(bounds.start, next);
                prop_assert!(bounds.end > bounds.start);
                let in_grid = if task == 0 { 0 } else { bounds.start + lead % smallest.max(1) };
                prop_assert_eq!(in_grid % smallest.max(1), 0);
                next = bounds.end;
            }
            prop_assert_eq!(next, iterations);
            prop_assert!(tasks.count() as u64 <= TASKS_PER_PROCESSOR * processors.max(1) as u64 + 1);
            prop_assert!(tasks.bounds(tasks.count()).is_empty());
        }
    }
}
