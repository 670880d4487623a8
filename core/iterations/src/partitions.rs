//! Where the data of arrays are: by the loop that divided them last (section 2.4).

use crate::division::Owners;
use crate::region::{ArrayId, Section};
use crate::tasks::Tasks;
use std::collections::BTreeMap;
use std::ops::Range;

/// The owners of an array's parts.
#[derive(Debug, Clone, PartialEq)]
struct Current {
    /// Bytes that are divided.
    bytes: Range<i128>,
    owners: Owners,
    version: u64,
}

/// How each array is divided at present. A loop that goes through about the same part of an array is divided in the same way,
/// so that each processor finds its data where it left them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Partitions(BTreeMap<ArrayId, Current>);

impl Partitions {
    /// How a loop that uses this part of an array is to be divided; None where nothing is known of the array, or another part
    /// of it is divided: then data move, whatever is done.
    #[must_use]
    pub fn find(&self, section: &Section, tasks: Tasks, iterations: &Range<u64>) -> Option<Owners> {
        let current = self.0.get(&section.array)?;
        let (bytes, known) = (section.bytes(iterations), &current.bytes);
        let task = i128::from(section.bytes_per_iteration()).saturating_mul(tasks.size().into());
        let is_near = |a: i128, b: i128| a.saturating_sub(b).saturating_abs() <= task;
        let length = known.end.saturating_sub(known.start);
        if !is_near(bytes.start, known.start) || !is_near(bytes.end, known.end) || length <= 0 {
            return None;
        }
        // Whoever has the middle of a task's data.
        let last = current.owners.len().checked_sub(1)?;
        let owner = |task: usize| {
            let bounds = tasks.bounds(task);
            let at = |i: u64| iterations.start.saturating_add(i);
            let own = section.bytes(&(at(bounds.start)..at(bounds.end)));
            let middle = own.start.midpoint(own.end).saturating_sub(known.start).clamp(0, length);
            let place = middle as f64 / length as f64 * current.owners.len() as f64;
            current.owners[(place as usize).min(last)]
        };
        Some((0..tasks.count()).map(owner).collect())
    }

    /// From now on this part of the array is divided so.
    pub fn set(&mut self, section: &Section, iterations: &Range<u64>, owners: &Owners) {
        let bytes = section.bytes(iterations);
        let version = self.version(section.array) + 1;
        self.0.insert(section.array, Current { bytes, owners: owners.clone(), version });
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
        assert_eq!(partitions.find(&rows, tasks, &all), None);
        partitions.set(&rows, &all, &owners);
        assert_eq!(partitions.find(&rows, tasks, &all), Some(owners.clone()));
        // Without the borders.
        let inner = Tasks::new(2_046, 1, 0, 4);
        assert_eq!(partitions.find(&rows, inner, &(1..2_047)), Some(owners.clone()));
        // With borders, which gives tasks of other sizes: but for one at each boundary it is the same.
        let outer = Tasks::new(2_050, 1, 0, 4);
        assert_ne!(outer.count(), tasks.count());
        let more = Section { constant: -2_048, ..rows };
        let found = partitions.find(&more, outer, &(0..2_050)).unwrap();
        let owner = |row: u64| owners[(row / tasks.size()) as usize];
        let stays = |task: &usize| {
            let middle = outer.bounds(*task).start.midpoint(outer.bounds(*task).end);
            found[*task] == owner(middle.saturating_sub(1).min(2_047))
        };
        assert!((0..outer.count()).filter(stays).count() >= outer.count() - 3);
        // The half of it, and another array.
        assert_eq!(partitions.find(&rows, tasks, &(0..1_024)), None);
        let other = Section { array: ArrayId(4), ..rows };
        assert_eq!(partitions.find(&other, tasks, &all), None);
        // What divided it last counts.
        let alone: Owners = vec![0; tasks.count()];
        partitions.set(&rows, &all, &alone);
        assert_eq!((partitions.version(rows.array), partitions.version(other.array)), (2, 0));
        assert_eq!(partitions.find(&rows, tasks, &all), Some(alone));
    }
}
