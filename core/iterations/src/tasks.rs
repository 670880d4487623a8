//! How many iterations go together: so many that what they write fills units of coherence, and few enough that they can be
//! divided by powers (section 2.4). Where iterations fill units, and the place of the first is known ([`lead`]), no two tasks
//! write to the same one.

use crate::region::{Region, Use};
use num_integer::gcd;
use std::ops::Range;

/// Tasks of a loop for each processor. The paper has a fixed number, and does not say which. With so many a share is right to
/// within a sixteenth of an equal one.
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
pub const TASK_WORDS: usize = 7;

/// The iterations of one instance of a loop, in tasks: of so many units each that they differ by one at most, where the first and
/// the last unit may be shorter. Of tasks of one size the last would be smaller, and with it the share of whoever has it.
/// Those that are larger are spread, for blocks of tasks; or come first, for tasks that are dealt out in turn, as one in two, say,
/// would all go to one processor.
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
    /// They are dealt out in turn.
    in_turn: bool,
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
        Self { iterations, unit, units, all: most.min(units), first: 0, before, in_turn: false }
    }

    /// To be dealt out in turn, or not.
    #[must_use]
    pub fn in_turn(self, in_turn: bool) -> Self {
        Self { in_turn, ..self }
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
        let in_turn = self.in_turn.into();
        [self.iterations, self.unit, self.units, self.all, self.first, self.before, in_turn]
    }

    /// See [`Self::to_words`].
    #[must_use]
    pub fn from_words(words: [u64; TASK_WORDS]) -> Self {
        let [iterations, unit, units, all, first, before, in_turn] = words;
        let (unit, units) = (unit.max(1), units.clamp(1, 1 << 32));
        let (all, in_turn) = (all.clamp(1, units.min(u64::from(u32::MAX))), in_turn > 0);
        Self { iterations, unit, units, all, first, before, in_turn }
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
        let of_whole = if self.in_turn {
            let (size, larger) = (self.units / self.all, self.units % self.all);
            let first = larger * (size + 1);
            if unit < first { unit / (size + 1) } else { larger + (unit - first) / size }
        } else {
            ((unit + 1) * self.all - 1) / self.units
        };
        of_whole.saturating_sub(self.first) as usize
    }

    /// The iterations of one.
    #[must_use]
    pub fn bounds(&self, task: usize) -> Range<u64> {
        self.between(task, task.saturating_add(1))
    }

    /// Those of several, up to another one.
    #[must_use]
    pub fn between(&self, first: usize, end: usize) -> Range<u64> {
        self.begin(first as u64)..self.begin(end as u64)
    }

    fn begin(&self, task: u64) -> u64 {
        let of_whole = self.first.saturating_add(task);
        if of_whole >= self.all {
            return self.iterations;
        }
        let unit = if self.in_turn {
            of_whole * (self.units / self.all) + of_whole.min(self.units % self.all)
        } else {
            of_whole * self.units / self.all
        };
        let begin = u128::from(unit) * u128::from(self.unit);
        begin.saturating_sub(self.before.into()).min(self.iterations.into()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::division::divide;
    use crate::region::{ArrayId, Load, Section};
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

    /// How many iterations each task has. None is empty, they follow one another, and each has its iterations.
    fn sizes(tasks: &Tasks) -> Vec<u64> {
        let mut next = 0;
        let each = (0..tasks.count()).map(|task| {
            let own = tasks.bounds(task);
            assert!(own.start == next && !own.is_empty(), "{tasks:?}: {own:?}");
            assert!(
                [own.start, own.end - 1].iter().all(|&i| tasks.task_of(i) == task),
                "{tasks:?}"
            );
            next = own.end;
            own.end - own.start
        });
        let sizes = each.collect();
        assert_eq!(next, tasks.iterations());
        assert!(tasks.bounds(tasks.count()).is_empty());
        sizes
    }

    /// Would catch: numbers of units that 32 bits do not hold.
    #[test]
    fn the_longest_loop_is_in_tasks() {
        for (smallest, lead, in_turn) in [(1, 0, false), (8, 3, true), (64, 63, false)] {
            let tasks = Tasks::new(u64::MAX, smallest, lead, 300).in_turn(in_turn);
            assert_eq!(sizes(&tasks).len(), 4_800);
        }
    }

    proptest! {
        #[test]
        fn each_iteration_is_in_one_task(
            iterations in 0..2_000_000_u64,
            smallest in 0..5_000_u64,
            lead in 0..5_000_u64,
            processors in 0..300_usize,
            in_turn: bool,
        ) {
            let tasks = Tasks::new(iterations, smallest, lead, processors).in_turn(in_turn);
            let most = TASKS_PER_PROCESSOR * processors.max(1) as u64;
            prop_assert!(sizes(&tasks).len() as u64 <= most);
            let smallest = smallest.max(1);
            for task in 1..tasks.count() {
                prop_assert_eq!((tasks.bounds(task).start + lead % smallest) % smallest, 0);
            }
            prop_assert_eq!(Tasks::from_words(tasks.to_words()), tasks);
        }

        /// Would catch: 1,000 rows of which one of two threads has 512, as tasks of 32 are all alike but the last; 48 rows of which it
        /// has 32, as each second task has two.
        #[test]
        fn processors_that_are_equally_fast_have_as_much(
            iterations in 0..20_000_u64,
            smallest in 1..10_u64,
            processors in 1..30_usize,
            in_turn: bool,
        ) {
            let tasks = Tasks::new(iterations, smallest, 0, processors).in_turn(in_turn);
            let load = if in_turn { Load::Variable } else { Load::Fixed };
            let region = Region { load, ..Region::default() };
            let owners = divide(&region, tasks.count(), &vec![1.0; processors]);
            let mut own = vec![0; processors];
            owners.iter().zip(sizes(&tasks)).for_each(|(&p, size)| own[p] += size);
            let (least, most) = (own.iter().min().unwrap_or(&0), own.iter().max().unwrap_or(&0));
            // Where there is a unit for each task; the last unit may be a part of one.
            let has_units = iterations >= smallest * TASKS_PER_PROCESSOR * processors as u64;
            prop_assert!(!has_units || most - least < 2 * smallest, "{own:?}");
        }

        /// Would catch: rows that go to another task where a loop begins at a later one, or one more.
        #[test]
        fn a_part_has_the_tasks_of_the_whole(
            iterations in 1..100_000_u64,
            smallest in 1..50_u64,
            lead in 0..50_u64,
            processors in 1..20_usize,
            parts in prop::array::uniform3(0.0..1.0_f64),
            in_turn: bool,
        ) {
            let whole = Tasks::new(iterations, smallest, lead, processors).in_turn(in_turn);
            let from = (parts[0] * iterations as f64) as u64;
            let further = (parts[1] * (iterations - from) as f64) as u64;
            let rest = iterations - from - further;
            let part = whole.part(from, iterations - from);
            let [last, middle] = [rest, (parts[2] * rest as f64) as u64].map(|n| part.part(further, n));
            for (part, from) in [(part, from), (last, from + further), (middle, from + further)] {
                let tasks = sizes(&part).len();
                let before = if tasks > 0 { whole.task_of(from) } else { 0 };
                let is_same = |task: usize| {
                    let own = part.bounds(task);
                    [own.start, own.end - 1].iter().all(|i| whole.task_of(from + i) == before + task)
                };
                prop_assert!((0..tasks).all(is_same));
            }
        }

        /// Would catch: a thread that is late, reads words of two plans, and ends the program.
        #[test]
        fn any_words_are_tasks(
            words in prop::array::uniform7(any::<u64>()),
            task: usize,
            iteration: u64,
        ) {
            let tasks = Tasks::from_words(words);
            let own = tasks.bounds(task);
            prop_assert!(own.start <= own.end);
            let _ = (tasks.count(), tasks.size(), tasks.task_of(iteration));
        }
    }
}
