//! Which CPUs have how many runnable tasks: with thousands of CPUs, whoever looks for an empty one or for the one with
//! most must not look at all of them.
//!
//! Invariant: each CPU is in it once, with the length of its queue.

use std::collections::BTreeSet;

/// CPUs in order of the lengths of their queues, and of their numbers among those of equal length.
#[derive(Debug, Clone)]
pub(super) struct Lengths(BTreeSet<(usize, usize)>);

impl Lengths {
    /// So many CPUs, with nothing on them.
    pub(super) fn new(cpus: usize) -> Self {
        Self((0..cpus).map(|cpu| (0, cpu)).collect())
    }

    pub(super) fn change(&mut self, cpu: usize, from: usize, to: usize) {
        let was_there = self.0.remove(&(from, cpu));
        debug_assert!(was_there, "CPU {cpu} has {from} tasks");
        self.0.insert((to, cpu));
    }

    /// The first of those that have fewest.
    pub(super) fn ascending(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().map(|&(_, cpu)| cpu)
    }

    /// Those without any, in order.
    pub(super) fn empty(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.range(..(1, 0)).map(|&(_, cpu)| cpu)
    }

    /// Those with at least two, the longest first, in order of their numbers where they are equally long.
    pub(super) fn crowded(&self) -> impl Iterator<Item = usize> + '_ {
        let longest = |below: usize| {
            self.0.range((2, 0)..(below.max(2), 0)).next_back().map(|&(length, _)| length)
        };
        let lengths = std::iter::successors(longest(usize::MAX), move |&length| longest(length));
        lengths.flat_map(|length| self.0.range((length, 0)..(length + 1, 0)).map(|&(_, cpu)| cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::stats::Random;
    use std::cmp::Reverse;

    #[test]
    fn it_finds_what_looking_at_all_finds() {
        let mut random = Random::new(3);
        let mut queues = [0_usize; 23];
        let mut lengths = Lengths::new(queues.len());
        for _ in 0..2_000 {
            let cpu = random.below(queues.len());
            let to = random.below(5);
            lengths.change(cpu, queues[cpu], to);
            queues[cpu] = to;
            let mut all: Vec<usize> = (0..queues.len()).collect();
            let empty: Vec<usize> = all.iter().copied().filter(|&c| queues[c] == 0).collect();
            assert_eq!(lengths.empty().collect::<Vec<_>>(), empty);
            all.sort_by_key(|&c| (queues[c], c));
            assert_eq!(lengths.ascending().collect::<Vec<_>>(), all);
            all.retain(|&c| queues[c] >= 2);
            all.sort_by_key(|&c| (Reverse(queues[c]), c));
            assert_eq!(lengths.crowded().collect::<Vec<_>>(), all);
        }
    }
}
