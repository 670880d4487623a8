//! Where the data of arrays are: by the loop that divided them last (section 2.4).

use crate::division::Owners;
use crate::region::{ArrayId, Section};
use crate::tasks::Tasks;
use std::collections::BTreeMap;
use std::ops::Range;

/// The owners of an array's parts.
#[derive(Debug, Clone, PartialEq)]
struct Current {
    /// By which loop: what it uses, and its iterations in tasks.
    section: Section,
    iterations: Range<u64>,
    tasks: Tasks,
    owners: Owners,
    version: u64,
}

impl Current {
    /// Whoever has this byte; the nearest, where nobody has.
    fn owner(&self, byte: i128) -> Option<usize> {
        let bytes = self.section.bytes(&self.iterations);
        let each = i128::from(self.section.bytes_per_iteration()).max(1);
        let backwards = self.section.coefficient < 0;
        let from = if backwards { bytes.end.saturating_sub(byte + 1) } else { byte - bytes.start };
        let length = self.iterations.end.saturating_sub(self.iterations.start);
        let iteration = (from / each).clamp(0, i128::from(length.saturating_sub(1))) as u64;
        let task = iteration.saturating_add(self.tasks.lead()) / self.tasks.size();
        self.owners.get(task as usize).or(self.owners.last()).copied()
    }
}

/// How each array is divided at present. A loop that goes through about the same part of an array is divided in the same way,
/// so that each processor finds its data where it left them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Partitions(BTreeMap<ArrayId, Current>);

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
        let current = self.0.get(&section.array)?;
        let (bytes, known) =
            (section.bytes(iterations), current.section.bytes(&current.iterations));
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

    /// From now on this part of the array is divided so.
    pub fn set(
        &mut self,
        section: &Section,
        tasks: Tasks,
        iterations: &Range<u64>,
        owners: &Owners,
    ) {
        let version = self.version(section.array) + 1;
        let (section, iterations, owners) = (*section, iterations.clone(), owners.clone());
        self.0.insert(section.array, Current { section, iterations, tasks, owners, version });
    }

    /// How often it was said how this array is divided.
    #[must_use]
    pub fn version(&self, array: ArrayId) -> u64 {
        self.0.get(&array).map_or(0, |current| current.version)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::region::Use;

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
        partitions.set(&rows, tasks, &all, &owners);
        assert_eq!(partitions.find(&rows, tasks, &all, false), Some(owners.clone()));
        // Without the borders.
        let inner = Tasks::new(2_046, 1, 0, 4);
        assert_eq!(partitions.find(&rows, inner, &(1..2_047), false), Some(owners.clone()));
        // With borders, which gives tasks of other sizes: but for one at each boundary it is the same.
        let outer = Tasks::new(2_050, 1, 0, 4);
        assert_ne!(outer.count(), tasks.count());
        let more = Section { constant: -2_048, ..rows };
        let found = partitions.find(&more, outer, &(0..2_050), false).unwrap();
        let owner = |row: u64| owners[(row / tasks.size()) as usize];
        let stays = |task: &usize| {
            let middle = outer.bounds(*task).start.midpoint(outer.bounds(*task).end);
            found[*task] == owner(middle.saturating_sub(1).min(2_047))
        };
        assert!((0..outer.count()).filter(stays).count() >= outer.count() - 3);
        // The half of it, and another array; the half will do where iterations are dealt out in turn.
        let half = partitions.find(&rows, Tasks::new(1_024, 1, 0, 4), &(0..1_024), true).unwrap();
        assert_eq!((half.first(), half.last()), (owners.first(), Some(&owners[31])));
        assert_eq!(partitions.find(&rows, tasks, &(0..1_024), false), None);
        let other = Section { array: ArrayId(4), ..rows };
        assert_eq!(partitions.find(&other, tasks, &all, false), None);
        // What divided it last counts.
        let alone: Owners = vec![0; tasks.count()];
        partitions.set(&rows, tasks, &all, &alone);
        assert_eq!((partitions.version(rows.array), partitions.version(other.array)), (2, 0));
        assert_eq!(partitions.find(&rows, tasks, &all, false), Some(alone));
    }
}
