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

/// Words of [`Tasks::to_words`].
pub const TASK_WORDS: usize = 6;

/// The iterations of one instance of a loop, in tasks: of so many units each that they differ by one at most. Of larger tasks of one
/// size the last would be smaller, and with it the share of whoever has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tasks {
    iterations: u64,
    /// Iterations of a unit; units of the whole, and tasks that these are divided into. At most 2^32 each.
    unit: u64,
    units: u64,
    all: u64,
    /// Of the whole the first tasks, and iterations, that are not among these.
    first: u64,
    before: u64,
}

impl Tasks {
    /// For so many processors: [`TASKS_PER_PROCESSOR`] for each, or fewer ([`Self::at_most`]).
    #[must_use]
    pub fn new(iterations: u64, smallest: u64, lead: u64, processors: usize) -> Self {
        Self::at_most(iterations, smallest, lead, processors.max(1) as u64 * TASKS_PER_PROCESSOR)
    }

    /// So many, or fewer, in multiples of the smallest task; the first is shorter where it does not begin a unit ([`lead`]).
    #[must_use]
    pub fn at_most(iterations: u64, smallest: u64, lead: u64, most: u64) -> Self {
        let (smallest, most) = (smallest.max(1), most.clamp(1, u64::from(u32::MAX)));
        let before = lead % smallest;
        let whole = u128::from(iterations) + u128::from(before);
        // Larger ones where 32 bits do not suffice for their number.
        let times = whole.div_ceil(u128::from(smallest) << 32).max(1) as u64;
        let unit = smallest.saturating_mul(times);
        let units = whole.div_ceil(u128::from(unit)).max(1) as u64;
        Self { iterations, unit, units, all: most.min(units), first: 0, before }
    }

    /// The same tasks for so many iterations, of which the first is this one: what is left of them.
    #[must_use]
    pub fn part(&self, from: u64, iterations: u64) -> Self {
        let first = self.first + self.task_of(from) as u64;
        Self { iterations, first, before: self.before.saturating_add(from), ..*self }
    }

    /// As words, and back. Words that belong to several are tasks of some kind.
    #[must_use]
    pub fn to_words(&self) -> [u64; TASK_WORDS] {
        [self.iterations, self.unit, self.units, self.all, self.first, self.before]
    }

    /// See [`Self::to_words`].
    #[must_use]
    pub fn from_words([iterations, unit, units, all, first, before]: [u64; TASK_WORDS]) -> Self {
        let units = units.max(1);
        Self { iterations, unit: unit.max(1), units, all: all.clamp(1, units), first, before }
    }

    /// The iterations of all.
    #[must_use]
    pub fn iterations(&self) -> u64 {
        self.iterations
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        if self.iterations == 0 { 0 } else { self.task_of(self.iterations - 1) + 1 }
    }

    /// Iterations of the largest, at most.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.units.div_ceil(self.all).saturating_mul(self.unit)
    }

    /// The task of an iteration.
    #[must_use]
    pub fn task_of(&self, iteration: u64) -> usize {
        let unit = (u128::from(iteration) + u128::from(self.before)) / u128::from(self.unit);
        let unit = unit.min(u128::from(self.units) - 1) as u64;
        let of_whole = ((unit + 1).saturating_mul(self.all) - 1) / self.units;
        of_whole.saturating_sub(self.first) as usize
    }

    /// The iterations of one.
    #[must_use]
    pub fn bounds(&self, task: usize) -> Range<u64> {
        self.begin(task as u64)..self.begin((task as u64).saturating_add(1))
    }

    fn begin(&self, task: u64) -> u64 {
        let of_whole = self.first.saturating_add(task);
        if of_whole >= self.all {
            return self.iterations;
        }
        let unit = of_whole.saturating_mul(self.units) / self.all;
        let begin = u128::from(unit) * u128::from(self.unit);
        begin.saturating_sub(self.before.into()).min(self.iterations.into()) as u64
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
                prop_assert!([bounds.start, bounds.end - 1].iter().all(|&i| tasks.task_of(i) == task));
                next = bounds.end;
            }
            prop_assert_eq!(next, iterations);
            prop_assert!(tasks.count() as u64 <= TASKS_PER_PROCESSOR * processors.max(1) as u64);
            prop_assert!(tasks.bounds(tasks.count()).is_empty());
            prop_assert_eq!(Tasks::from_words(tasks.to_words()), tasks);
        }

        /// Would catch: 1,000 rows of which one of two threads has 512, as tasks of 32 are all alike but the last.
        #[test]
        fn processors_that_are_equally_fast_have_as_much(
            iterations in 0..2_000_000_u64,
            smallest in 1..100_u64,
            processors in 1..300_usize,
        ) {
            let tasks = Tasks::new(iterations, smallest, 0, processors);
            let counts: Vec<u64> = (0..tasks.count()).map(|t| {
                let own = tasks.bounds(t);
                own.end - own.start
            }).collect();
            if tasks.count() as u64 == TASKS_PER_PROCESSOR * processors as u64 {
                let own: Vec<u64> = counts.chunks(TASKS_PER_PROCESSOR as usize).map(|c| c.iter().sum()).collect();
                let (least, most) = (own.iter().min().unwrap_or(&0), own.iter().max().unwrap_or(&0));
                // The last unit may be a part of one.
                prop_assert!(most - least < 2 * smallest, "{own:?}");
            }
        }

        /// Would catch: rows that go to another task where a loop begins at a later one.
        #[test]
        fn a_part_has_the_tasks_of_the_whole(
            iterations in 1..100_000_u64,
            smallest in 1..50_u64,
            lead in 0..50_u64,
            processors in 1..20_usize,
            parts in prop::array::uniform2(0.0..1.0_f64),
        ) {
            let whole = Tasks::new(iterations, smallest, lead, processors);
            let from = (parts[0] * iterations as f64) as u64;
            let length = (parts[1] * (iterations - from) as f64) as u64;
            let (part, first) = (whole.part(from, length), whole.task_of(from));
            let mut next = 0;
            for task in 0..part.count() {
                let own = part.bounds(task);
                prop_assert!(own.start == next && !own.is_empty());
                prop_assert!([own.start, own.end - 1].iter().all(|i| whole.task_of(from + i) == first + task));
                next = own.end;
            }
            prop_assert_eq!(next, length);
        }
    }
}
