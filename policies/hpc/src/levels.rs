//! Equal counts at each level of a machine (HPCSched, section IV-A): of threads that fewer CPUs would hold
//! evenly, no node, cache or core has more than its part while another one beside it has less.
//!
//! Invariants: how many threads each CPU has is exchanged between CPUs and nothing else, so what
//! [`evenly_policy::Spreader`] has made even stays so; a machine whose levels are even plans no moves.

use evenly_model::hpc::Levels;
use evenly_model::{CpuIndex, CpuSet, Plan, Reason, Snapshot, ThreadIndex};

/// Exchanges of counts at a point at most: what is left then follows at the next one, so that a point of many
/// threads on many CPUs stays short.
const EXCHANGES: usize = 64;

/// Evens out counts, and keeps what it has found even from point to point: there nothing is looked for, and
/// nothing allocated.
#[derive(Debug, Clone, Default)]
pub(super) struct EvenCounts {
    /// CPU and mask of each thread where nothing was left to be done.
    even: Vec<(CpuIndex, usize)>,
    masks: Vec<Vec<bool>>,
}

impl EvenCounts {
    /// The levels are other ones.
    pub(super) fn forget(&mut self) {
        self.even.clear();
    }

    /// As [`even_out`], where anything has changed since nothing was to be done.
    pub(super) fn even_out(&mut self, s: &Snapshot, levels: &Levels, plan: &mut Plan) {
        if levels.is_empty() {
            return;
        }
        let threads = || s.threads.iter().map(|t| (t.cpu, t.mask));
        if plan.moves.is_empty() && self.masks == s.masks && threads().eq(self.even.iter().copied())
        {
            return;
        }
        even_out(s, levels, plan);
        self.even.clear();
        if plan.moves.is_empty() {
            self.even.extend(threads());
            self.masks.clone_from(&s.masks);
        }
    }
}

/// Plans moves after which counts are even at each level, as far as masks permit. `at` is where threads are
/// with what is planned already; those that have a place from the plan are moved on by it.
fn even_out(s: &Snapshot, levels: &[Vec<CpuSet>], plan: &mut Plan) {
    let m = s.cpus.len();
    let mut at: Vec<CpuIndex> = s.threads.iter().map(|t| t.cpu).collect();
    for planned in &plan.moves {
        if let Some(cpu) = at.get_mut(planned.thread) {
            *cpu = planned.to;
        }
    }
    let mut counts = vec![0usize; m];
    for &cpu in &at {
        if let Some(count) = counts.get_mut(cpu) {
            *count += 1;
        }
    }
    // The part of the level above that each CPU is in: groups are evened out within it only.
    let mut above = vec![0usize; m];
    let mut left = EXCHANGES;
    for level in levels {
        let of = |cpu: CpuIndex| level.iter().position(|g| g.contains(s.cpus[cpu].id));
        // CPUs of no group are groups of their own.
        let group: Vec<usize> = (0..m).map(|c| of(c).unwrap_or(level.len() + c)).collect();
        // Each part of this level by its first CPU, so that what is beside each other has the same above it.
        let part: Vec<usize> = (0..m)
            .map(|c| {
                (0..=c).position(|d| (above[d], group[d]) == (above[c], group[c])).unwrap_or(c)
            })
            .collect();
        while left > 0 {
            let Some((thread, to)) = exchange(s, &at, &counts, &part, &above) else { break };
            counts[at[thread]] -= 1;
            counts[to] += 1;
            at[thread] = to;
            left -= 1;
        }
        above = part;
    }
    plan.moves.retain(|planned| at[planned.thread] == planned.to);
    let mut is_planned = vec![false; s.threads.len()];
    plan.moves.iter().for_each(|planned| is_planned[planned.thread] = true);
    for (t, (thread, &to)) in s.threads.iter().zip(&at).enumerate() {
        if thread.cpu != to && !is_planned[t] {
            plan.push(t, to, Reason::Spread);
        }
    }
}

/// The thread that goes from the fullest part to one with more room beside it, and its CPU there; it has one
/// thread fewer than the one that it comes from.
fn exchange(
    s: &Snapshot,
    at: &[CpuIndex],
    counts: &[usize],
    part: &[usize],
    above: &[usize],
) -> Option<(ThreadIndex, CpuIndex)> {
    // Threads and CPUs of each part, where its first CPU is.
    let mut filled = vec![(0usize, 0usize); counts.len()];
    for (c, &count) in counts.iter().enumerate() {
        let (threads, cpus) = filled[part[c]];
        filled[part[c]] = (threads + count, cpus + 1);
    }
    let per = |threads: usize, cpus: usize| threads as f64 / cpus as f64;
    let mut best: Option<(f64, ThreadIndex, CpuIndex)> = None;
    for (t, &from) in at.iter().enumerate().filter(|(t, _)| s.threads[*t].movable) {
        if from >= counts.len() {
            continue;
        }
        for to in (0..counts.len()).filter(|&to| above[to] == above[from] && part[to] != part[from])
        {
            if counts[from] != counts[to] + 1 || !s.allows(t, to) {
                continue;
            }
            let ((full, cpus), (room, others)) = (filled[part[from]], filled[part[to]]);
            let gain = per(full, cpus) - per(room + 1, others);
            if gain > 1e-9 && best.is_none_or(|(most, ..)| gain > most) {
                best = Some((gain, t, to));
            }
        }
    }
    best.map(|(_, t, to)| (t, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::ThreadView;
    use evenly_policy::Spreader;
    use evenly_testing::snapshots;
    use proptest::prelude::*;

    fn snapshot(at: &[CpuIndex], cpus: usize, masks: Vec<Vec<bool>>, of: &[usize]) -> Snapshot {
        let mask = |i: usize, t: &mut ThreadView| t.mask = of.get(i).copied().unwrap_or(0);
        Snapshot { masks, ..snapshots::snapshot(at.len(), cpus, |i| at[i], mask) }
    }

    fn levels(text: &[&[&str]]) -> Levels {
        let level = |l: &&[&str]| l.iter().map(|cpus| cpus.parse().unwrap()).collect();
        text.iter().map(level).collect()
    }

    /// Threads on each CPU after spreading and evening out; and that nothing is left to be done then.
    fn counts(at: &[CpuIndex], cpus: usize, levels: &Levels) -> Vec<usize> {
        let mut s = snapshot(at, cpus, vec![vec![true; cpus]], &[]);
        let mut plan = Plan::default();
        Spreader::default().spread(&s, &mut plan);
        even_out(&s, levels, &mut plan);
        for m in &plan.moves {
            s.threads[m.thread].cpu = m.to;
        }
        let mut again = Plan::default();
        even_out(&s, levels, &mut again);
        assert!(again.moves.is_empty(), "{again:?}");
        let count = |c| s.threads.iter().filter(|t| t.cpu == c).count();
        (0..cpus).map(count).collect()
    }

    /// Two chips of two cores of two contexts each, as a POWER5 has them.
    fn power5() -> Levels {
        levels(&[&["0-3", "4-7"], &["0-1", "2-3", "4-5", "6-7"]])
    }

    #[test]
    fn each_chip_and_core_has_as_many_as_the_next() {
        // Two go to two chips, four to four cores.
        assert_eq!(counts(&[0, 1], 8, &power5()), [0, 1, 0, 0, 1, 0, 0, 0]);
        let four = counts(&[0, 1, 2, 3], 8, &power5());
        assert!(four.chunks(2).all(|core| core.iter().sum::<usize>() == 1), "{four:?}");
        // 12 on 8: three to a core.
        let twelve: Vec<CpuIndex> = (0..12).map(|i| i % 8).collect();
        let twelve = counts(&twelve, 8, &power5());
        assert!(twelve.chunks(2).all(|core| core.iter().sum::<usize>() == 3), "{twelve:?}");
        // Without levels each CPU counts by itself, and that is even already.
        assert_eq!(counts(&[0, 1], 8, &Levels::new()), [1, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn masks_are_kept_to() {
        let mask = vec![true, true, false, false];
        let s = snapshot(&[0, 1], 4, vec![mask, vec![true; 4]], &[0, 1]);
        let mut plan = Plan::default();
        even_out(&s, &levels(&[&["0-1", "2-3"]]), &mut plan);
        let moves: Vec<_> = plan.moves.iter().map(|m| (m.thread, m.to)).collect();
        assert_eq!(moves, [(1, 2)]);
    }

    proptest! {
        /// With as many CPUs in each group no group has two threads more than another of the same part.
        #[test]
        fn groups_differ_by_one_at_most(at in proptest::collection::vec(0usize..8, 0..30)) {
            let found = counts(&at, 8, &power5());
            let (least, most) = (found.iter().min().unwrap(), found.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{found:?}");
            let chips: Vec<usize> = found.chunks(4).map(|c| c.iter().sum()).collect();
            prop_assert!(chips[0].abs_diff(chips[1]) <= 1, "{found:?}");
            for chip in found.chunks(4) {
                let cores: Vec<usize> = chip.chunks(2).map(|c| c.iter().sum()).collect();
                prop_assert!(cores[0].abs_diff(cores[1]) <= 1, "{found:?}");
            }
        }
    }
}
