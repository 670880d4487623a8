//! Even distribution: counts of threads on CPUs that differ by at most one.
//!
//! Invariant: where masks and threads that may not be moved stand in the way, the counts are the
//! most even that they permit: no chain of moves is left that takes a thread from one CPU and
//! brings one to another that holds at least two fewer (a semi-matching without cost-reducing
//! path; Harvey, Ladner, Lovasz, Tamir: Semi-matchings for bipartite graphs, 2006).

use evenly_model::{CpuIndex, Plan, Reason, Snapshot, ThreadIndex};
use std::collections::{BTreeSet, VecDeque};

/// Plans the moves that bring the counts of threads per CPU to within one of each other, or as
/// near to that as masks permit. Where the masks permit all, only threads on CPUs with too many are
/// moved, those that are behind first, because the CPU that they go to holds fewer threads.
/// Threads that may not be moved count where they are; threads that are on none of the CPUs
/// (theirs went away) are brought in. No thread is moved twice. Returns whether anything was
/// planned.
///
/// Where the counts differ by one, at the first placement the surplus goes to those CPUs on which
/// other balancers place fewer threads.
///
/// O(n + m) where the counts are even already; O((n + m) log (n + m)) where all threads may go
/// everywhere; else in the worst case O((n + m) * masks) for each thread that is misplaced.
pub fn spread(snapshot: &Snapshot, plan: &mut Plan) -> bool {
    let m = snapshot.cpus.len();
    if m == 0 || snapshot.threads.is_empty() {
        return false;
    }
    let mut s = Spreading::new(snapshot);
    let crowded = snapshot.point == 0 && snapshot.taken.len() == m;
    if s.even() && !s.any_outside() && !crowded {
        return false;
    }
    s.bring_in();
    s.move_directly();
    if !s.even() {
        s.move_in_chains();
    }
    if crowded {
        s.make_way();
    }
    let before = plan.moves.len();
    for (t, &to) in s.at.iter().enumerate() {
        let from = snapshot.threads[t].cpu;
        if to != from && to < m {
            plan.push(t, to, if from < m { Reason::Spread } else { Reason::Evicted });
        }
    }
    plan.moves.len() > before
}

struct Spreading<'a> {
    snapshot: &'a Snapshot,
    /// Where each thread is to be; m or more where it is on none of the CPUs.
    at: Vec<CpuIndex>,
    counts: Vec<usize>,
}

impl<'a> Spreading<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        let mut counts = vec![0; snapshot.cpus.len()];
        let at: Vec<CpuIndex> = snapshot.threads.iter().map(|t| t.cpu).collect();
        for &c in &at {
            if let Some(count) = counts.get_mut(c) {
                *count += 1;
            }
        }
        Self { snapshot, at, counts }
    }

    fn even(&self) -> bool {
        let (mut least, mut most) = (usize::MAX, 0);
        for &c in &self.counts {
            (least, most) = (least.min(c), most.max(c));
        }
        most <= least.saturating_add(1)
    }

    fn outside(&self, t: ThreadIndex) -> bool {
        self.at[t] >= self.counts.len()
    }

    fn any_outside(&self) -> bool {
        (0..self.at.len()).any(|t| self.outside(t))
    }

    /// CPUs by how many threads they hold.
    fn by_count(&self) -> BTreeSet<(usize, CpuIndex)> {
        self.counts.iter().enumerate().map(|(c, &k)| (k, c)).collect()
    }

    fn go(&mut self, t: ThreadIndex, to: CpuIndex) {
        if let Some(count) = self.counts.get_mut(self.at[t]) {
            *count -= 1;
        }
        self.at[t] = to;
        self.counts[to] += 1;
    }

    fn sort(&self, threads: &mut [ThreadIndex]) {
        threads.sort_by_key(|&t| self.snapshot.threads[t].progress);
    }

    /// Threads that are nowhere go where fewest are.
    fn bring_in(&mut self) {
        let mut nowhere: Vec<ThreadIndex> = (0..self.at.len())
            .filter(|&t| self.outside(t) && self.snapshot.threads[t].movable)
            .collect();
        if nowhere.is_empty() {
            return;
        }
        self.sort(&mut nowhere);
        let mut by_count = self.by_count();
        for t in nowhere {
            let found = by_count.iter().copied().find(|&(_, c)| self.snapshot.allows(t, c));
            if let Some((k, c)) = found {
                by_count.remove(&(k, c));
                by_count.insert((k + 1, c));
                self.go(t, c);
            }
        }
    }

    /// From CPUs that hold too many straight to those that hold at least two fewer.
    fn move_directly(&mut self) {
        let (m, n) = (self.counts.len(), self.counts.iter().sum::<usize>());
        // The fewest moves keep the extra thread on the CPUs that hold most threads already.
        let mut order: Vec<CpuIndex> = (0..m).collect();
        order.sort_by_key(|&c| std::cmp::Reverse(self.counts[c]));
        let mut target = vec![n / m; m];
        for &c in &order[..n % m] {
            target[c] += 1;
        }
        let mut leaving: Vec<ThreadIndex> = (0..self.at.len())
            .filter(|&t| {
                let c = self.at[t];
                self.snapshot.threads[t].movable && c < m && self.counts[c] > target[c]
            })
            .collect();
        self.sort(&mut leaving);
        let mut by_count = self.by_count();
        for t in leaving {
            let from = self.at[t];
            let held = self.counts[from];
            if held <= target[from] {
                continue;
            }
            let found = by_count
                .iter()
                .copied()
                .take_while(|&(k, _)| k + 2 <= held)
                .find(|&(_, c)| self.snapshot.allows(t, c));
            if let Some((k, c)) = found {
                by_count.remove(&(k, c));
                by_count.insert((k + 1, c));
                by_count.remove(&(held, from));
                by_count.insert((held - 1, from));
                self.go(t, c);
            }
        }
    }

    /// The surplus threads leave CPUs of which others have more. Counts are only exchanged.
    fn make_way(&mut self) {
        let taken = &self.snapshot.taken;
        let mut cpus: Vec<CpuIndex> = (0..self.counts.len()).collect();
        cpus.sort_by_key(|&c| taken[c]);
        for t in 0..self.at.len() {
            let from = self.at[t];
            if self.outside(t) || !self.snapshot.threads[t].movable {
                continue;
            }
            let to = cpus.iter().copied().find(|&c| {
                taken[c] < taken[from]
                    && self.counts[c] + 1 == self.counts[from]
                    && self.snapshot.allows(t, c)
            });
            if let Some(to) = to {
                self.go(t, to);
            }
        }
    }

    /// Where no direct move is left: a thread makes room on a CPU that another can go to.
    fn move_in_chains(&mut self) {
        // Each chain makes the sum of the squared counts smaller, so that this ends.
        loop {
            let least = self.counts.iter().min().copied().unwrap_or(0);
            let mut full: Vec<CpuIndex> =
                (0..self.counts.len()).filter(|&c| self.counts[c] >= least + 2).collect();
            full.sort_by_key(|&c| std::cmp::Reverse(self.counts[c]));
            if !full.into_iter().any(|c| self.chain_from(c)) {
                return;
            }
        }
    }

    /// The movable threads of each CPU, one for each mask: the one that is furthest behind.
    fn movers(&self) -> Vec<Vec<(usize, ThreadIndex)>> {
        let mut movers: Vec<Vec<(usize, ThreadIndex)>> = vec![Vec::new(); self.counts.len()];
        for (t, view) in self.snapshot.threads.iter().enumerate() {
            let Some(list) = movers.get_mut(self.at[t]).filter(|_| view.movable) else { continue };
            match list.iter_mut().find(|(mask, _)| *mask == view.mask) {
                Some((_, best)) => {
                    if view.progress < self.snapshot.threads[*best].progress {
                        *best = t;
                    }
                }
                None => list.push((view.mask, t)),
            }
        }
        movers
    }

    /// Searches the shortest chain of moves from a CPU to one with at least two fewer threads, and
    /// makes it.
    fn chain_from(&mut self, start: CpuIndex) -> bool {
        let movers = self.movers();
        let mut reached_by: Vec<Option<ThreadIndex>> = vec![None; self.counts.len()];
        let mut spent_masks = vec![false; self.snapshot.masks.len()];
        let mut open = VecDeque::from([start]);
        while let Some(cpu) = open.pop_front() {
            for &(mask, t) in &movers[cpu] {
                // All that a mask permits is reached when it is met first.
                if spent_masks.get(mask).copied().unwrap_or(true) {
                    continue;
                }
                spent_masks[mask] = true;
                for c in 0..self.counts.len() {
                    if c == start || reached_by[c].is_some() || !self.snapshot.allows(t, c) {
                        continue;
                    }
                    reached_by[c] = Some(t);
                    if self.counts[c] + 2 <= self.counts[start] {
                        let mut to = c;
                        while let Some(t) = reached_by[to] {
                            let from = self.at[t];
                            self.go(t, to);
                            to = from;
                        }
                        return true;
                    }
                    open.push_back(c);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::{CpuId, CpuView, Nanos, ThreadId, ThreadView, Tid};

    /// Threads per CPU after spreading, where others have taken what they have.
    fn counts(on: &[usize], m: usize, taken: &[u32], point: u64, movable: bool) -> Vec<usize> {
        let threads: Vec<ThreadView> = (on.iter().enumerate())
            .map(|(i, &cpu)| ThreadView {
                id: ThreadId { tid: Tid(i as i32 + 1), start: 1 },
                cpu,
                progress: 0,
                ran: Nanos::ZERO,
                waited: Nanos::ZERO,
                blocked: Nanos::ZERO,
                movable,
                mask: 0,
            })
            .collect();
        let cpus = (0..m).map(|c| CpuView {
            id: CpuId(c as u32),
            threads: on.iter().filter(|&&o| o == c).count() as u32,
            speed: None,
            paper_speed: None,
        });
        let snapshot = Snapshot {
            point,
            cpus: cpus.collect(),
            masks: vec![vec![true; m]],
            taken: taken.to_vec(),
            threads,
            ..Snapshot::default()
        };
        let mut plan = Plan::default();
        spread(&snapshot, &mut plan);
        let mut at = on.to_vec();
        for m in &plan.moves {
            at[m.thread] = m.to;
        }
        (0..m).map(|c| at.iter().filter(|&&a| a == c).count()).collect()
    }

    #[test]
    fn surplus_threads_go_where_others_have_fewer() {
        assert_eq!(counts(&[0, 0, 1], 2, &[2, 1], 0, true), [1, 2]);
        assert_eq!(counts(&[0, 1, 1], 2, &[2, 1], 0, true), [1, 2]);
        assert_eq!(counts(&[0, 0, 0], 2, &[2, 1], 0, true), [1, 2]);
        assert_eq!(counts(&[0, 0, 1, 1, 2], 3, &[3, 1, 0], 0, true), [1, 2, 2]);
        // No more than evenly, however much others have.
        assert_eq!(counts(&[0, 0, 1, 1], 2, &[9, 0], 0, true), [2, 2]);
        // Only when threads are placed first, and only those that may be moved.
        assert_eq!(counts(&[0, 0, 1], 2, &[2, 1], 1, true), [2, 1]);
        assert_eq!(counts(&[0, 0, 1], 2, &[2, 1], 0, false), [2, 1]);
        assert_eq!(counts(&[0, 0, 1], 2, &[], 0, true), [2, 1]);
    }
}
