//! A thread whose mask may be changed, and whether what is found of its mask is explained.
//!
//! Invariant: a mask that is neither ours nor the original one, nor what a cpuset leaves of one of them,
//! is not explained: it is the program's.

use crate::journal::Slot;
use crate::restore::is_left_of;
use evenly_model::{CpuSet, Nanos, Pid};

/// A thread whose masks we may change.
pub(super) struct Managed {
    pub(super) pid: Pid,
    pub(super) original: CpuSet,
    /// The mask that it has as far as we know: what we set last, or the original one. What a cpuset
    /// leaves of it may be less.
    pub(super) set: CpuSet,
    pub(super) slot: Slot,
    /// How often the cpuset had changed when `set` was set.
    pub(super) cpuset_changes: u64,
    /// When it was last seen to be no real-time thread.
    pub(super) fair_at: Nanos,
    /// A mask that was found once and could not be explained.
    pub(super) suspect: Option<CpuSet>,
    /// The program has chosen its mask.
    pub(super) left_alone: bool,
    /// The last mask of ours that is noted in `Masks`, so that it is noted once.
    pub(super) noted: CpuSet,
}

impl Managed {
    /// Takes note of a mask that was found, if what we know explains it.
    pub(super) fn explains(&mut self, found: &CpuSet, cpuset: &CpuSet, changes: u64) -> bool {
        if !self.left_alone && is_left_of(found, &self.set, Some(cpuset)) {
            return true;
        }
        // Given back by the guardian, or by the program itself.
        if is_left_of(found, &self.original, Some(cpuset)) {
            self.set.clone_from(&self.original);
            return true;
        }
        // Kernels before 6.2 forget a mask of which a cpuset left nothing: the thread keeps all of
        // the cpuset when that grows again.
        if !self.left_alone && found == cpuset && changes != self.cpuset_changes {
            self.set.clone_from(found);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Journal, StateDir};
    use evenly_model::{ThreadId, Tid};

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    /// What a mask counts as, at each step of a story: cpuset, times that it changed, mask found.
    fn story(original: &str, set: &str, steps: &[(&str, u64, &str, bool)]) {
        let tmp = tempfile::tempdir().unwrap();
        let dir = StateDir::at(&tmp.path().join("state")).unwrap();
        let journal = Journal::create(&dir, None).unwrap();
        let id = ThreadId { tid: Tid(1), start: 1 };
        let mut m = Managed {
            pid: Pid(1),
            original: cpus(original),
            set: cpus(set),
            slot: journal.register(id, Pid(1), &cpus(original)).unwrap(),
            cpuset_changes: 0,
            fair_at: Nanos::ZERO,
            suspect: None,
            left_alone: false,
            noted: CpuSet::new(),
        };
        for (i, &(cpuset, changes, found, ours)) in steps.iter().enumerate() {
            assert_eq!(m.explains(&cpus(found), &cpus(cpuset), changes), ours, "step {i}");
        }
    }

    #[test]
    fn cpusets_that_shrink_and_grow_explain_masks() {
        // What is left, all that is left, and as it was.
        let steps = [("0-1", 1, "0-1", true), ("0-3", 2, "3", true), ("2-3", 3, "3", true)];
        story("0-7", "3", &steps);
        // Before kernel 6.2 the mask is forgotten.
        story("0-7", "3", &[("0-1", 1, "0-1", true), ("0-3", 2, "0-3", true)]);
        story("2-7", "3", &[("0-3", 1, "0-3", true)]);
        // Without a change it is the program's own mask.
        story("2-7", "3", &[("0-3", 0, "0-3", false), ("0-3", 0, "1", false)]);
        // Given back.
        story("0-3", "1", &[("0-7", 0, "0-3", true)]);
        story("0-3", "1", &[("2-7", 1, "2-3", true)]);
        story("0-3", "1", &[("0-7", 0, "0-2", false)]);
    }
}
