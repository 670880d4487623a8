//! Where the data of arrays are: by the loop that divided them last (section 2.4).

use crate::Processor;
use crate::division::Owners;
use crate::region::{ArrayId, Section};
use crate::tasks::Tasks;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The owners of an array's parts.
#[derive(Debug, Clone, PartialEq)]
struct Current {
    /// By which loop: what it uses, and its iterations in tasks.
    section: Section,
    iterations: Range<u64>,
    tasks: Tasks,
    owners: Owners,
    /// Said as the so manieth of all arrays.
    stamp: u64,
    /// What they follow: how often powers had changed.
    changes: u64,
}

impl Current {
    /// Where the parts are that are divided.
    fn bytes(&self) -> Range<i128> {
        self.section.bytes(&self.iterations)
    }

    /// Whoever has this byte; the nearest, where nobody has.
    fn owner(&self, byte: i128) -> Option<usize> {
        let bytes = self.bytes();
        let each = i128::from(self.section.bytes_per_iteration()).max(1);
        let backwards = self.section.coefficient < 0;
        let from = if backwards { bytes.end.saturating_sub(byte + 1) } else { byte - bytes.start };
        let length = self.iterations.end.saturating_sub(self.iterations.start);
        let iteration = (from / each).clamp(0, i128::from(length.saturating_sub(1))) as u64;
        self.owners.get(self.tasks.task_of(iteration)).or(self.owners.last()).copied()
    }
}

/// How each array is divided at present. A loop that goes through about the same part of an array is divided in the same way,
/// so that each processor finds its data where it left them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Partitions {
    arrays: BTreeMap<ArrayId, Current>,
    stamp: u64,
}

impl Partitions {
    /// How a loop that uses this part of an array is to be divided; None where nothing is known of the array, or another part
    /// of it is divided: then data move, whatever is done. Where iterations are dealt out in turn (`in_turn`), a part of at least
    /// a quarter is divided as well as the whole.
    #[must_use]
    pub fn find(
        &self,
        section: &Section,
        tasks: Tasks,
        iterations: &Range<u64>,
        in_turn: bool,
    ) -> Option<Owners> {
        let current = self.arrays.get(&section.array)?;
        let (bytes, known) = (section.bytes(iterations), current.bytes());
        let task = i128::from(section.bytes_per_iteration()).saturating_mul(tasks.size().into());
        let is_near = |a: i128, b: i128| a.saturating_sub(b).saturating_abs() <= task;
        let is_same = is_near(bytes.start, known.start) && is_near(bytes.end, known.end);
        let [part, whole] = [&bytes, &known].map(|b| b.end.saturating_sub(b.start));
        let is_part = bytes.start >= known.start && bytes.end <= known.end && part >= whole / 4;
        if whole <= 0 || !(is_same || in_turn && is_part) {
            return None;
        }
        // Whoever has the middle of a task's data.
        let owner = |task: usize| {
            let bounds = tasks.bounds(task);
            let at = |i: u64| iterations.start.saturating_add(i);
            let own = section.bytes(&(at(bounds.start)..at(bounds.end)));
            current.owner(own.start.midpoint(own.end))
        };
        (0..tasks.count()).map(owner).collect()
    }

    /// So many iterations in the tasks by which the array is divided at present, for a loop that goes through a part of it, an
    /// iteration less each time, say. Tasks that were counted from its own begin would have parts of two others each. None where
    /// nothing is known of the array, or iterations are others.
    #[must_use]
    pub fn tasks(&self, section: &Section, iterations: u64) -> Option<Tasks> {
        let current = self.arrays.get(&section.array)?;
        let stride = |s: &Section| (s.element_bytes, s.coefficient);
        if stride(section) != stride(&current.section) || section.coefficient <= 0 {
            return None;
        }
        let from = |s: &Section| s.bytes(&(0..1)).start;
        let known = current.bytes();
        let bytes = section.bytes(&(0..iterations));
        let each = i128::from(section.bytes_per_iteration());
        let apart = from(section).saturating_sub(known.start);
        if apart % each != 0 || bytes.start < known.start || bytes.end > known.end {
            return None;
        }
        Some(current.tasks.part(u64::try_from(apart / each).ok()?, iterations))
    }

    /// Who has data that these iterations use; None where nothing is known of the array, or not of this part of it.
    #[must_use]
    pub fn holders(
        &self,
        section: &Section,
        iterations: &Range<u64>,
    ) -> Option<BTreeSet<Processor>> {
        let current = self.arrays.get(&section.array)?;
        let known = current.bytes();
        let bytes = section.bytes(iterations);
        if bytes.is_empty() || bytes.start < known.start || bytes.end > known.end {
            return None;
        }
        let owners = (0..current.tasks.count()).filter_map(|task| {
            let own = current.tasks.bounds(task);
            let at = |i: u64| current.iterations.start.saturating_add(i);
            let own = current.section.bytes(&(at(own.start)..at(own.end)));
            let is_used = own.start < bytes.end && own.end > bytes.start;
            current.owners.get(task).copied().filter(|_| is_used)
        });
        Some(owners.collect())
    }

    /// Whether more of the array is divided than what these iterations use, which is among it.
    #[must_use]
    pub fn has_more_than(&self, section: &Section, iterations: &Range<u64>) -> bool {
        let Some(current) = self.arrays.get(&section.array) else { return false };
        let known = current.bytes();
        let bytes = section.bytes(iterations);
        let task = i128::from(current.section.bytes_per_iteration())
            .saturating_mul(current.tasks.size().into());
        let above = |a: i128, b: i128| a.saturating_sub(b).max(0);
        let more = above(bytes.start, known.start).saturating_add(above(known.end, bytes.end));
        bytes.start >= known.start.saturating_sub(task)
            && bytes.end <= known.end.saturating_add(task)
            && more > task.saturating_mul(2)
    }

    /// From now on this part of the array is divided so, by powers that had changed so often.
    pub fn set(
        &mut self,
        section: &Section,
        tasks: Tasks,
        iterations: &Range<u64>,
        owners: &[Processor],
        changes: u64,
    ) {
        self.stamp += 1;
        let (section, iterations, owners) = (*section, iterations.clone(), owners.to_vec());
        let current = Current { section, iterations, tasks, owners, stamp: self.stamp, changes };
        self.arrays.insert(section.array, current);
    }

    /// How often it was said how an array is divided.
    #[cfg(test)]
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp
    }

    /// When it was last said how this array is divided, and how often powers had changed by then; 0 if it never was.
    #[must_use]
    pub fn last(&self, array: ArrayId) -> (u64, u64) {
        self.arrays.get(&array).map_or((0, 0), |current| (current.stamp, current.changes))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::region::Use;

    /// Would catch: Gauss, whose rows would go to and fro as there is one less each time.
    #[test]
    fn a_loop_over_a_part_has_the_tasks_of_the_whole() {
        let rows = Section {
            array: ArrayId(1),
            used: Use::Writes,
            element_bytes: 8,
            coefficient: 100,
            constant: 100,
        };
        let mut partitions = Partitions::default();
        assert_eq!(partitions.tasks(&rows, 64), None);
        let whole = Tasks::at_most(64, 2, 1, 9);
        let owners: Owners = (0..whole.count()).map(|task| task % 4).collect();
        partitions.set(&rows, whole, &(0..64), &owners, 0);
        for less in 0..64_u64 {
            let part = Section { constant: 100 + 100 * less as i64, ..rows };
            let tasks = partitions.tasks(&part, 64 - less).unwrap();
            let found = (0..tasks.count()).map(|task| {
                let own = tasks.bounds(task);
                let bytes = part.bytes(&own);
                let current = &partitions.arrays[&ArrayId(1)];
                let owner = current.owner(bytes.start);
                assert_eq!(current.owner(bytes.end - 1), owner, "{less} less, {own:?}");
                owner
            });
            assert!(found.eq(owners[owners.len() - tasks.count()..].iter().copied().map(Some)));
        }
        let others = Section { coefficient: 50, ..rows };
        assert_eq!(partitions.tasks(&others, 64), None);
        let between = Section { constant: 150, ..rows };
        assert_eq!(partitions.tasks(&between, 60), None);
        assert_eq!(partitions.tasks(&rows, 65), None);
    }

    #[test]
    fn holders_are_who_has_a_part_of_the_data() {
        let rows = |first: i64| Section {
            array: ArrayId(1),
            used: Use::Writes,
            element_bytes: 8,
            coefficient: 16,
            constant: 16 * first,
        };
        let (tasks, mut partitions) = (Tasks::at_most(64, 8, 0, 64), Partitions::default());
        // One element of a row after the other, as where a border is set.
        let along = |row: i64| Section { coefficient: 1, constant: 16 * row, ..rows(0) };
        assert_eq!(partitions.holders(&along(0), &(0..16)), None);
        partitions.set(&rows(0), tasks, &(0..64), &[0, 0, 1, 1, 2, 2, 3, 3], 0);
        let holders = |section: &Section, iterations| {
            partitions.holders(section, &iterations).map(Vec::from_iter)
        };
        assert_eq!(holders(&along(0), 0..16), Some(vec![0]));
        assert_eq!(holders(&along(63), 0..16), Some(vec![3]));
        assert_eq!(holders(&rows(0), 14..50), Some(vec![0, 1, 2, 3]));
        assert_eq!(holders(&rows(0), 16..32), Some(vec![1]));
        // It goes beyond what is known.
        assert_eq!(holders(&along(63), 0..17), None);
        assert_eq!(holders(&along(-1), 0..16), None);
    }

    #[test]
    fn a_loop_over_about_the_same_part_is_divided_in_the_same_way() {
        let rows = Section {
            array: ArrayId(3),
            used: Use::Writes,
            element_bytes: 8,
            coefficient: 2_048,
            constant: 0,
        };
        let (all, tasks) = (0..2_048, Tasks::new(2_048, 1, 0, 4));
        let owners: Owners = (0..tasks.count()).map(|task| task / 16).collect();
        let mut partitions = Partitions::default();
        assert_eq!(partitions.find(&rows, tasks, &all, false), None);
        partitions.set(&rows, tasks, &all, &owners, 0);
        assert_eq!(partitions.find(&rows, tasks, &all, false), Some(owners.clone()));
        // Without the borders.
        let inner = Tasks::new(2_046, 1, 0, 4);
        assert_eq!(partitions.find(&rows, inner, &(1..2_047), false), Some(owners.clone()));
        // With borders.
        let outer = Tasks::new(2_050, 1, 0, 4);
        let more = Section { constant: -2_048, ..rows };
        let found = partitions.find(&more, outer, &(0..2_050), false).unwrap();
        assert_eq!(found, owners);
        // The half of it, and another array; the half will do where iterations are dealt out in turn.
        let half = partitions.find(&rows, Tasks::new(1_024, 1, 0, 4), &(0..1_024), true).unwrap();
        assert_eq!((half.first(), half.last()), (owners.first(), Some(&owners[31])));
        assert_eq!(partitions.find(&rows, tasks, &(0..1_024), false), None);
        let other = Section { array: ArrayId(4), ..rows };
        assert_eq!(partitions.find(&other, tasks, &all, false), None);
        // What divided it last counts.
        let alone: Owners = vec![0; tasks.count()];
        partitions.set(&rows, tasks, &all, &alone, 7);
        assert_eq!(partitions.stamp(), 2);
        assert_eq!((partitions.last(rows.array), partitions.last(other.array)), ((2, 7), (0, 0)));
        assert_eq!(partitions.find(&rows, tasks, &all, false), Some(alone));
    }
}
