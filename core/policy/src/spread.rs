//! Even distribution: counts of threads on CPUs that differ by at most one.
//!
//! Invariant: where masks and threads that may not be moved stand in the way, the counts are the
//! most even that they permit: no chain of moves is left that takes a thread from one CPU and
//! brings one to another that holds at least two fewer (a semi-matching without cost-reducing
//! path; Harvey, Ladner, Lovasz, Tamir: Semi-matchings for bipartite graphs, 2006).

use evenly_model::{CpuIndex, Plan, Reason, Snapshot, ThreadIndex};
use std::cmp::Reverse;
use std::collections::VecDeque;

/// Plans an even distribution once; see [`Spreader::spread`].
pub fn spread(snapshot: &Snapshot, plan: &mut Plan) -> bool {
    Spreader::default().spread(snapshot, plan)
}

/// Spreads threads evenly, and keeps its work space from point to point.
#[derive(Debug, Clone, Default)]
pub struct Spreader {
    /// Where each thread is to be; the number of CPUs or more where it is on none of them.
    at: Vec<CpuIndex>,
    counts: Vec<usize>,
    target: Vec<usize>,
    /// For each mask, how far its CPUs have been filled.
    levels: Vec<Level>,
    threads: Vec<ThreadIndex>,
    cpus: Vec<CpuIndex>,
    chains: Chains,
}

/// How far the CPUs of a mask have been filled: every CPU of the mask with its count of threads is
/// at (`count`, `next`) or after it, in the order of counts and then of CPUs. Filling goes round
/// and round over the CPUs, one count higher each time, so that all of it takes as many steps as
/// there are CPUs and threads.
#[derive(Debug, Clone, Copy)]
struct Level {
    count: usize,
    next: CpuIndex,
    /// No CPU that was passed in this round holds fewer.
    above: usize,
}

impl Level {
    const START: Self = Self { count: 0, next: 0, above: usize::MAX };

    /// The CPU of the mask with the fewest threads; of several the first.
    fn least(&mut self, mask: &[bool], counts: &[usize]) -> Option<(usize, CpuIndex)> {
        loop {
            for (c, &count) in counts.iter().enumerate().skip(self.next) {
                if !mask.get(c).copied().unwrap_or(false) {
                    continue;
                }
                if count <= self.count {
                    self.next = c;
                    return Some((count, c));
                }
                self.above = self.above.min(count);
            }
            if self.above == usize::MAX {
                return None;
            }
            *self = Self { count: self.above, ..Self::START };
        }
    }

    /// A CPU has come to hold one thread fewer: `count`.
    fn lowered(&mut self, count: usize, cpu: CpuIndex) {
        if count < self.count {
            *self = Self { count, next: cpu, above: self.count };
        } else if cpu < self.next {
            if count == self.count {
                self.next = cpu;
            } else {
                self.above = self.above.min(count);
            }
        }
    }
}

/// Work space of the search for chains.
#[derive(Debug, Clone, Default)]
struct Chains {
    movers: Vec<Vec<(usize, ThreadIndex)>>,
    reached_by: Vec<Option<ThreadIndex>>,
    spent_masks: Vec<bool>,
    open: VecDeque<CpuIndex>,
}

/// Threads on each CPU for which the surplus makes way.
fn make_way_for(snapshot: &Snapshot) -> &[u32] {
    if snapshot.others.is_empty() { &snapshot.taken } else { &snapshot.others }
}

impl Spreader {
    /// Plans the moves that bring the counts of threads per CPU to within one of each other, or as
    /// near to that as masks permit. Where the masks permit all, only threads on CPUs with too many
    /// are moved, those that are behind first, because the CPU that they go to holds fewer threads.
    /// Threads that may not be moved count where they are; threads that are on none of the CPUs
    /// (theirs went away) are brought in. No thread is moved twice. Returns whether anything was
    /// planned.
    ///
    /// Threads of programs without evenly that are to be counted ([`Snapshot::others`]) are such as may not be moved.
    ///
    /// Where the counts differ by one, the surplus goes to those CPUs on which fewer of those are; where none are, at the
    /// first placement to those on which other balancers place fewer threads.
    ///
    /// O(n + m) where the counts are even already; else O(n + m) for each mask and O(k log k) for
    /// the k threads on CPUs that hold too many; in the worst case, where masks stand in the way,
    /// O((n + m) * masks) for each thread that is misplaced. Making way for other balancers takes
    /// O(n * m), once.
    pub fn spread(&mut self, snapshot: &Snapshot, plan: &mut Plan) -> bool {
        let m = snapshot.cpus.len();
        if m == 0 || snapshot.threads.is_empty() {
            return false;
        }
        self.begin(snapshot);
        let anew = snapshot.point == 0 || !snapshot.others.is_empty();
        let crowded = anew && make_way_for(snapshot).len() == m;
        if self.even() && !self.any_outside() && !crowded {
            return false;
        }
        self.bring_in(snapshot);
        self.move_directly(snapshot);
        if !self.even() {
            self.move_in_chains(snapshot);
        }
        if crowded {
            self.make_way(snapshot);
        }
        let before = plan.moves.len();
        for (t, &to) in self.at.iter().enumerate() {
            let from = snapshot.threads[t].cpu;
            if to != from && to < m {
                plan.push(t, to, if from < m { Reason::Spread } else { Reason::Evicted });
            }
        }
        plan.moves.len() > before
    }

    fn begin(&mut self, snapshot: &Snapshot) {
        self.counts.clear();
        self.counts.extend(snapshot.others.iter().map(|&k| k as usize));
        self.counts.resize(snapshot.cpus.len(), 0);
        self.at.clear();
        self.at.extend(snapshot.threads.iter().map(|t| t.cpu));
        for &c in &self.at {
            if let Some(count) = self.counts.get_mut(c) {
                *count += 1;
            }
        }
        self.levels.clear();
        self.levels.resize(snapshot.masks.len(), Level::START);
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

    /// The CPU with the fewest threads where this one may run.
    fn least(&mut self, snapshot: &Snapshot, t: ThreadIndex) -> Option<(usize, CpuIndex)> {
        let number = snapshot.threads[t].mask;
        let (level, mask) = (self.levels.get_mut(number)?, snapshot.masks.get(number)?);
        level.least(mask, &self.counts)
    }

    fn go(&mut self, t: ThreadIndex, to: CpuIndex) {
        let from = self.at[t];
        if let Some(count) = self.counts.get_mut(from) {
            *count -= 1;
            let count = *count;
            for level in &mut self.levels {
                level.lowered(count, from);
            }
        }
        self.at[t] = to;
        self.counts[to] += 1;
    }

    /// Threads that are nowhere go where fewest are.
    fn bring_in(&mut self, snapshot: &Snapshot) {
        let mut nowhere = std::mem::take(&mut self.threads);
        nowhere.clear();
        let is_nowhere = |&t: &ThreadIndex| self.outside(t) && snapshot.threads[t].movable;
        nowhere.extend((0..self.at.len()).filter(is_nowhere));
        nowhere.sort_unstable_by_key(|&t| (snapshot.threads[t].progress, t));
        for &t in &nowhere {
            if let Some((_, c)) = self.least(snapshot, t) {
                self.go(t, c);
            }
        }
        self.threads = nowhere;
    }

    /// From CPUs that hold too many straight to those that hold at least two fewer.
    fn move_directly(&mut self, snapshot: &Snapshot) {
        let (m, n) = (self.counts.len(), self.counts.iter().sum::<usize>());
        // The fewest moves keep the extra thread on the CPUs that hold most threads already.
        self.target.clear();
        self.target.resize(m, n / m);
        if let Some(last) = (n % m).checked_sub(1) {
            self.cpus.clear();
            self.cpus.extend(0..m);
            let counts = &self.counts;
            self.cpus.select_nth_unstable_by_key(last, |&c| (Reverse(counts[c]), c));
            for &c in &self.cpus[..=last] {
                self.target[c] += 1;
            }
        }
        let mut leaving = std::mem::take(&mut self.threads);
        leaving.clear();
        leaving.extend((0..self.at.len()).filter(|&t| {
            let c = self.at[t];
            snapshot.threads[t].movable && c < m && self.counts[c] > self.target[c]
        }));
        leaving.sort_unstable_by_key(|&t| (snapshot.threads[t].progress, t));
        for &t in &leaving {
            let from = self.at[t];
            let held = self.counts[from];
            if held <= self.target[from] {
                continue;
            }
            if let Some((k, c)) = self.least(snapshot, t)
                && k + 2 <= held
            {
                self.go(t, c);
            }
        }
        self.threads = leaving;
    }

    /// The surplus threads leave CPUs of which others have more. Counts are only exchanged.
    fn make_way(&mut self, snapshot: &Snapshot) {
        let taken = make_way_for(snapshot);
        let mut cpus = std::mem::take(&mut self.cpus);
        cpus.clear();
        cpus.extend(0..self.counts.len());
        cpus.sort_unstable_by_key(|&c| (taken[c], c));
        for t in 0..self.at.len() {
            let from = self.at[t];
            if self.outside(t) || !snapshot.threads[t].movable {
                continue;
            }
            let to = cpus.iter().copied().find(|&c| {
                taken[c] < taken[from]
                    && self.counts[c] + 1 == self.counts[from]
                    && snapshot.allows(t, c)
            });
            if let Some(to) = to {
                self.go(t, to);
            }
        }
        self.cpus = cpus;
    }

    /// Where no direct move is left: a thread makes room on a CPU that another can go to.
    fn move_in_chains(&mut self, snapshot: &Snapshot) {
        let mut full = std::mem::take(&mut self.cpus);
        // Each chain makes the sum of the squared counts smaller, so that this ends.
        loop {
            let least = self.counts.iter().min().copied().unwrap_or(0);
            full.clear();
            full.extend((0..self.counts.len()).filter(|&c| self.counts[c] >= least + 2));
            full.sort_unstable_by_key(|&c| (Reverse(self.counts[c]), c));
            if !full.iter().any(|&c| self.chain_from(snapshot, c)) {
                break;
            }
        }
        self.cpus = full;
    }

    /// The movable threads of each CPU, one for each mask: the one that is furthest behind.
    fn find_movers(&mut self, snapshot: &Snapshot) {
        let movers = &mut self.chains.movers;
        for list in movers.iter_mut() {
            list.clear();
        }
        movers.resize_with(self.counts.len(), Vec::new);
        for (t, view) in snapshot.threads.iter().enumerate() {
            let Some(list) = movers.get_mut(self.at[t]).filter(|_| view.movable) else { continue };
            match list.iter_mut().find(|(mask, _)| *mask == view.mask) {
                Some((_, best)) => {
                    if view.progress < snapshot.threads[*best].progress {
                        *best = t;
                    }
                }
                None => list.push((view.mask, t)),
            }
        }
    }

    /// Searches the shortest chain of moves from a CPU to one with at least two fewer threads, and
    /// makes it.
    fn chain_from(&mut self, snapshot: &Snapshot, start: CpuIndex) -> bool {
        self.find_movers(snapshot);
        let Chains { movers, reached_by, spent_masks, open } = &mut self.chains;
        reached_by.clear();
        reached_by.resize(self.counts.len(), None);
        spent_masks.clear();
        spent_masks.resize(snapshot.masks.len(), false);
        open.clear();
        open.push_back(start);
        while let Some(cpu) = open.pop_front() {
            for &(mask, t) in &movers[cpu] {
                // All that a mask permits is reached when it is met first.
                if spent_masks.get(mask).copied().unwrap_or(true) {
                    continue;
                }
                spent_masks[mask] = true;
                for (c, by) in reached_by.iter_mut().enumerate() {
                    if c == start || by.is_some() || !snapshot.allows(t, c) {
                        continue;
                    }
                    *by = Some(t);
                    if self.counts[c] + 2 <= self.counts[start] {
                        self.follow(c);
                        return true;
                    }
                    open.push_back(c);
                }
            }
        }
        false
    }

    /// Makes the moves of the chain that ends at a CPU.
    fn follow(&mut self, end: CpuIndex) {
        let mut to = end;
        while let Some(t) = self.chains.reached_by[to] {
            let from = self.at[t];
            self.go(t, to);
            to = from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::{CpuId, CpuView, FULL_CAPACITY, Nanos, ThreadId, ThreadView, Tid};
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn thread(i: usize, cpu: CpuIndex) -> ThreadView {
        ThreadView {
            id: ThreadId { tid: Tid(i as i32 + 1), start: 1 },
            cpu,
            progress: 0,
            ran: Nanos::ZERO,
            waited: Nanos::ZERO,
            blocked: Nanos::ZERO,
            spinning: Nanos::ZERO,
            turns: None,
            movable: true,
            mask: 0,
        }
    }

    /// Threads per CPU after spreading, where others have taken what they have.
    fn counts(on: &[usize], m: usize, taken: &[u32], point: u64, movable: bool) -> Vec<usize> {
        spread_out(on, m, |s| {
            (s.taken, s.point) = (taken.to_vec(), point);
            s.threads.iter_mut().for_each(|t| t.movable = movable);
        })
    }

    /// Threads per CPU after spreading, of such that are on these CPUs.
    fn spread_out(on: &[usize], m: usize, change: impl FnOnce(&mut Snapshot)) -> Vec<usize> {
        let threads = on.iter().enumerate().map(|(i, &cpu)| thread(i, cpu)).collect();
        let cpus = (0..m).map(|c| CpuView {
            id: CpuId(c as u32),
            capacity: FULL_CAPACITY,
            threads: on.iter().filter(|&&o| o == c).count() as u32,
            speed: None,
        });
        let mut snapshot = Snapshot {
            cpus: cpus.collect(),
            masks: vec![vec![true; m]],
            threads,
            ..Snapshot::default()
        };
        change(&mut snapshot);
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

    /// Would catch: threads that are as many on the CPU on which others compute as on the one on which they do not; ones that
    /// change places at each point.
    #[test]
    fn those_of_others_count_where_they_are() {
        let beside = |on: &[usize], others: &[u32], point| {
            spread_out(on, others.len(), |s| (s.others, s.point) = (others.to_vec(), point))
        };
        assert_eq!(beside(&[0, 0, 1, 1], &[0, 1], 0), [3, 1]);
        assert_eq!(beside(&[0, 0, 1, 1], &[1, 0], 0), [1, 3]);
        assert_eq!(beside(&[0, 0, 0, 1, 1], &[1, 0], 0), [2, 3]);
        assert_eq!(beside(&[0, 0, 0, 0, 0], &[0, 1], 7), [3, 2]);
        assert_eq!(beside(&[0, 0, 0, 1], &[0, 1], 7), [3, 1]);
        // A pause has ended, in which the kernel had put them so.
        assert_eq!(beside(&[0, 0, 1, 1], &[0, 1], 7), [3, 1]);
        assert_eq!(beside(&[0, 1, 2, 3, 0, 1, 2, 3, 3, 3], &[0, 0, 0, 1], 0), [3, 3, 3, 1]);
    }

    /// What [`Spreader::bring_in`] and [`Spreader::move_directly`] are to do, thread by thread, each
    /// time with a look at all CPUs.
    fn simply(s: &Snapshot) -> Vec<CpuIndex> {
        let (n, m) = (s.threads.len(), s.cpus.len());
        let mut at: Vec<CpuIndex> = s.threads.iter().map(|t| t.cpu).collect();
        let on = |at: &[CpuIndex], c| at.iter().filter(|&&a| a == c).count();
        let least =
            |at: &[CpuIndex], t| (0..m).filter(|&c| s.allows(t, c)).map(|c| (on(at, c), c)).min();
        let mut order: Vec<ThreadIndex> = (0..n).filter(|&t| s.threads[t].movable).collect();
        order.sort_by_key(|&t| s.threads[t].progress);
        for &t in order.iter().filter(|&&t| s.threads[t].cpu >= m) {
            at[t] = least(&at, t).map_or(at[t], |(_, c)| c);
        }
        let inside = at.iter().filter(|&&c| c < m).count();
        let mut cpus: Vec<CpuIndex> = (0..m).collect();
        cpus.sort_by_key(|&c| Reverse(on(&at, c)));
        let mut target = vec![inside / m; m];
        for &c in &cpus[..inside % m] {
            target[c] += 1;
        }
        order.retain(|&t| at[t] < m && on(&at, at[t]) > target[at[t]]);
        for &t in &order {
            let held = on(&at, at[t]);
            if held > target[at[t]]
                && let Some((_, c)) = least(&at, t).filter(|&(k, _)| k + 2 <= held)
            {
                at[t] = c;
            }
        }
        at
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn direct_moves_are_those_of_the_simple_method(
            threads in vec((0..12usize, -9..9i64, 0..8u8, 0..4usize), 1..60),
            masks in vec(vec(any::<bool>(), 11), 4),
            free in any::<bool>(),
            m in 1..11usize,
            pile in 1..12usize,
        ) {
            let masks: Vec<Vec<bool>> =
                masks.iter().map(|k| k[..m].iter().map(|&b| b || free).collect()).collect();
            let threads: Vec<ThreadView> = threads
                .into_iter()
                .enumerate()
                .map(|(i, (cpu, progress, movable, mask))| ThreadView {
                    progress,
                    movable: movable > 0,
                    mask,
                    ..thread(i, cpu % pile)
                })
                .collect();
            let cpus = (0..m as u32).map(|c| CpuView {
                id: CpuId(c), capacity: FULL_CAPACITY,
                threads: 0,
                speed: None,
            });
            let s = Snapshot { cpus: cpus.collect(), masks, threads, ..Snapshot::default() };
            let mut spreader = Spreader::default();
            // What an earlier point has left in the work space does not matter.
            for _ in 0..2 {
                spreader.begin(&s);
                spreader.bring_in(&s);
                spreader.move_directly(&s);
                prop_assert_eq!(&spreader.at, &simply(&s));
            }
        }
    }
}
