//! Moves by gain, from buckets: the local search of Fiduccia and Mattheyses ("A linear-time heuristic for
//! improving network partitions", 1982) for many cores of unequal distance.
//!
//! ```text
//! every task's best move -> bucket of its gain
//! repeat: the task of the highest bucket moves, also where that is a loss, and is locked; its partners'
//!         best moves, and so their buckets, are brought up to date
//! until no task is left, or nothing was gained for long; then back to where it was best
//! ```
//!
//! Invariant: a pass ends with less above the bounds than it began with, or as much and no more of the
//! rest of J: what came after the best moment is undone. No step of it adds to what is above the bounds.
//!
//! Buckets are an eighth of an octave wide, as gains are no whole numbers here and differ by orders of
//! magnitude. Of a task's moves those to the cores that it has most to do with, to the least core of their
//! nodes, home, and, from a core above its bound, to the least core of all, are looked at. Where a move would
//! take its core above the bound, a task of that core that is not locked comes back in exchange.

use super::search::{Draft, Step};
use evenly_cluster::CoreIndex;
use evenly_model::stats::Random;
use evenly_model::{Link, TaskIndex};

/// Buckets of gains, and as many of losses.
const SIDE: usize = 320;
/// The least gain that is distinguished from none, as a part of the greatest.
const LEAST: f64 = 1.0 / (1_u64 << 39) as f64;
/// Steps by lot before a pass that begins with them, at most.
const KICKED: usize = 6;
/// Steps without a gain after which such a pass ends.
const PATIENCE: usize = 24;
/// Cores that a task has most to do with: more are not looked at.
const PARTNERS: usize = 6;
/// Tasks that are tried in exchange.
const EXCHANGED: usize = 24;
/// What a second above the bound is worth, in seconds of the rest.
const ABOVE: f64 = 4.0;

/// Tasks in buckets by what moving them gains, best first.
struct Buckets {
    lists: Vec<Vec<TaskIndex>>,
    /// Of each task: its bucket and its place there, where it is in one.
    at: Vec<Option<(u16, u32)>>,
    highest: usize,
    /// The least gain that is one, in seconds.
    unit: f64,
}

impl Buckets {
    fn new(tasks: usize, unit: f64) -> Self {
        let unit = unit.max(f64::MIN_POSITIVE);
        Self { lists: vec![Vec::new(); 2 * SIDE + 1], at: vec![None; tasks], highest: 0, unit }
    }

    fn of(&self, gain_s: f64) -> usize {
        let ratio = gain_s.abs() / self.unit;
        if ratio < 1.0 {
            return SIDE;
        }
        // The exponent and the first three digits of the mantissa: an order that needs no logarithm.
        let step = (ratio.to_bits() >> 49) - (1.0_f64.to_bits() >> 49);
        let step = usize::try_from(step).unwrap_or(SIDE).min(SIDE - 1) + 1;
        if gain_s > 0.0 { SIDE + step } else { SIDE - step }
    }

    fn put(&mut self, t: TaskIndex, bucket: usize) {
        self.take_out(t);
        self.at[t] = Some((bucket as u16, self.lists[bucket].len() as u32));
        self.lists[bucket].push(t);
        self.highest = self.highest.max(bucket);
    }

    fn take_out(&mut self, t: TaskIndex) {
        let Some((bucket, place)) = self.at[t].take() else { return };
        let list = &mut self.lists[usize::from(bucket)];
        list.swap_remove(place as usize);
        if let Some(&moved) = list.get(place as usize) {
            self.at[moved] = Some((bucket, place));
        }
    }

    fn clear(&mut self) {
        while self.pop().is_some() {}
    }

    /// The task that gains most, and its bucket. It is in none then.
    fn pop(&mut self) -> Option<(TaskIndex, usize)> {
        while self.lists[self.highest].is_empty() {
            self.highest = self.highest.checked_sub(1)?;
        }
        let t = *self.lists[self.highest].last()?;
        self.take_out(t);
        Some((t, self.highest))
    }
}

/// What a task exchanges with those on a core.
#[derive(Debug, Clone, Copy)]
struct Near {
    core: CoreIndex,
    received: f64,
    received_bytes: f64,
    sent: f64,
    sent_bytes: f64,
}

/// What is used again from task to task and from pass to pass.
pub(super) struct Scratch {
    near: Vec<Near>,
    /// Of each core its place in `near`, where its stamp is the present one.
    place: Vec<(u64, usize)>,
    stamp: u64,
    to: Vec<CoreIndex>,
    buckets: Buckets,
    locked: Vec<bool>,
    /// Where tasks were that have moved in this pass, in order.
    log: Vec<(TaskIndex, CoreIndex)>,
}

/// What has been spent.
pub(super) struct Spent<'a> {
    pub(super) looks: usize,
    pub(super) limit: usize,
    pub(super) late: &'a dyn Fn() -> bool,
}

impl Spent<'_> {
    /// Looks that lie beside each other take less than others.
    fn on(&mut self, looks: usize) {
        self.looks = self.looks.saturating_add(looks * 3 / 4);
    }

    pub(super) fn all(&self) -> bool {
        self.looks >= self.limit || (self.late)()
    }
}

/// What is above the bounds, as a part of the mean load and in migrations, and the rest of J.
type Score = (f64, f64);

impl Draft<'_, '_> {
    /// What passes need. `scale_s` is what a move changes, about.
    pub(super) fn scratch(&self, scale_s: f64) -> Scratch {
        Scratch {
            near: Vec::new(),
            place: vec![(0, 0); self.time.len()],
            stamp: 0,
            to: Vec::new(),
            buckets: Buckets::new(self.at.len(), scale_s * LEAST),
            locked: vec![false; self.at.len()],
            log: Vec::new(),
        }
    }

    /// Passes over all tasks until one gains nothing, or all that may be spent is.
    pub(super) fn pass_by_gain(&mut self, scratch: &mut Scratch, spent: &mut Spent<'_>) {
        loop {
            self.sum_up();
            for (i, &t) in self.tasks.iter().enumerate() {
                if i % 256 == 255 && spent.all() {
                    scratch.buckets.clear();
                    return;
                }
                self.put(t, scratch, spent);
            }
            let before = self.score();
            let patience = 64 + self.tasks.len() / 32;
            if !self.pass(before, patience, scratch, spent) || spent.all() {
                return;
            }
        }
    }

    /// Passes over the tasks of cores above the bound, and those that they have to do with, until one
    /// gains nothing, or all that may be spent is.
    pub(super) fn pass_of_slow_cores(&mut self, scratch: &mut Scratch, spent: &mut Spent<'_>) {
        loop {
            for c in 0..self.time.len() {
                if self.over(self.time[c]) > 0.0 {
                    for i in 0..self.on[c].0.len() {
                        self.put(self.on[c].0[i], scratch, spent);
                    }
                }
            }
            if !self.pass(self.score(), PATIENCE, scratch, spent) || spent.all() {
                return;
            }
        }
    }

    /// A task and some near it are moved by lot, and then those near them by gain; all of it is undone
    /// where it gains nothing. Whether it did.
    pub(super) fn kick(
        &mut self,
        random: &mut Random,
        scratch: &mut Scratch,
        spent: &mut Spent<'_>,
    ) -> bool {
        spent.on(super::LOOKS_PER_TRIAL);
        let before = self.score();
        let mut kicked = Vec::with_capacity(2 * KICKED);
        let steps = 1 + random.below(KICKED);
        // Every other time a task of the slowest core is the first.
        let slowest = (0..self.time.len()).max_by(|&a, &b| self.time[a].total_cmp(&self.time[b]));
        let slow = slowest.filter(|_| random.below(2) == 0);
        let mut near = slow.and_then(|c| self.on[c].any(random));
        for _ in 0..steps {
            // Beside those before it.
            let Some(step) = self.step_near(near, random) else { continue };
            for (task, _) in step.into_iter().flatten() {
                scratch.log.push((task, self.at[task]));
                kicked.push(task);
            }
            near = step[0].map(|s| s.0).or(near);
            let taken = self.take(step);
            self.keep(taken);
        }
        for &task in &kicked {
            self.put(task, scratch, spent);
            for link in self.model.graph.links(task) {
                self.put(link.with, scratch, spent);
            }
        }
        self.pass(before, PATIENCE, scratch, spent)
    }

    fn step_near(&self, near: Option<TaskIndex>, random: &mut Random) -> Option<Step> {
        let any = self.any_step(random);
        let links = near.map_or(&[][..], |t| self.model.graph.links(t));
        if links.is_empty() {
            return any;
        }
        let t = links[random.below(links.len())].with;
        if !self.model.graph.tasks()[t].movable {
            return any;
        }
        // To the core of a task that it communicates with, or to a random one.
        let its = self.model.graph.links(t);
        let partner = its.get(random.below(its.len().max(1))).map(|l| self.at[l.with]);
        let to = partner.filter(|&c| c != self.at[t]).or(any?[0].map(|s| s.1))?;
        (to != self.at[t]).then_some([Some((t, to)), None])
    }

    fn score(&self) -> Score {
        let above = self.sums.over_s / self.model.mean_s.max(1e-300) + self.too_many(&self.sums);
        (above, self.sums.communication_s + self.sums.moving_s)
    }

    /// Puts a task into its bucket, or out of all where it has no move.
    fn put(&self, t: TaskIndex, scratch: &mut Scratch, spent: &mut Spent<'_>) {
        if scratch.locked[t] || !self.model.graph.tasks()[t].movable {
            return;
        }
        match self.best_move(t, scratch, spent) {
            Some((gain_s, _)) => scratch.buckets.put(t, scratch.buckets.of(gain_s)),
            None => scratch.buckets.take_out(t),
        }
    }

    /// One pass, with those that are in buckets and the partners of those that move. Whether the score is
    /// less than before; where it is not, all that is in the log is undone.
    fn pass(
        &mut self,
        before: Score,
        patience: usize,
        scratch: &mut Scratch,
        spent: &mut Spent<'_>,
    ) -> bool {
        let m = self.model;
        let tiny = 1e-12 * (self.sums.communication_s.abs() + self.sums.moving_s.abs()).max(1e-300);
        let tiny_above = 1e-12 * (1.0 + m.mean_s);
        let is_less = |a: Score, b: Score| {
            a.0 < b.0 - tiny_above || (a.0 <= b.0 + tiny_above && a.1 < b.1 - tiny)
        };
        let (mut best, mut best_length) = (before, 0);
        let reached = self.score();
        if is_less(reached, best) {
            (best, best_length) = (reached, scratch.log.len());
        }
        let mut in_vain = 0;
        let mut turns = 0_usize;
        let mut was_locked = Vec::new();
        while let Some((t, bucket)) = scratch.buckets.pop() {
            turns += 1;
            if turns.is_multiple_of(64) && spent.all() {
                break;
            }
            let Some((gain_s, to)) = self.best_move(t, scratch, spent) else { continue };
            // Cores have filled meanwhile.
            let now = scratch.buckets.of(gain_s);
            if now < bucket {
                scratch.buckets.put(t, now);
                continue;
            }
            let Some(step) = self.that_fits(t, to, &scratch.locked, spent) else { continue };
            for (task, _) in step.into_iter().flatten() {
                scratch.log.push((task, self.at[task]));
                scratch.locked[task] = true;
                was_locked.push(task);
                scratch.buckets.take_out(task);
            }
            let taken = self.take(step);
            self.keep(taken);
            let reached = self.score();
            if is_less(reached, best) {
                (best, best_length, in_vain) = (reached, scratch.log.len(), 0);
            } else {
                in_vain += 1;
                if in_vain > patience {
                    break;
                }
            }
            for (task, _) in step.into_iter().flatten() {
                for link in m.graph.links(task) {
                    self.put(link.with, scratch, spent);
                }
            }
        }
        while scratch.log.len() > best_length
            && let Some((t, from)) = scratch.log.pop()
        {
            if from != self.at[t] {
                let taken = self.take([Some((t, from)), None]);
                self.keep(taken);
            }
        }
        scratch.log.clear();
        scratch.buckets.clear();
        for t in was_locked {
            scratch.locked[t] = false;
        }
        is_less(best, before)
    }

    /// The move of a task that gains most, and what: also a loss. None where it has none.
    fn best_move(
        &self,
        t: TaskIndex,
        scratch: &mut Scratch,
        spent: &mut Spent<'_>,
    ) -> Option<(f64, CoreIndex)> {
        let m = self.model;
        let from = self.at[t];
        let links = m.graph.links(t);
        let Scratch { near, place, stamp, to, .. } = scratch;
        near.clear();
        to.clear();
        *stamp += 1;
        for &Link { with, received, sent, received_bytes, sent_bytes } in links {
            let core = self.at[with];
            if place[core].0 != *stamp {
                place[core] = (*stamp, near.len());
                near.push(Near {
                    core,
                    received: 0.0,
                    received_bytes: 0.0,
                    sent: 0.0,
                    sent_bytes: 0.0,
                });
            }
            let n = &mut near[place[core].1];
            n.received += received;
            n.received_bytes += received_bytes;
            n.sent += sent;
            n.sent_bytes += sent_bytes;
        }
        let least = |cores: &mut dyn Iterator<Item = CoreIndex>| {
            cores.min_by(|&a, &b| self.time[a].total_cmp(&self.time[b]))
        };
        let node = |c: CoreIndex| m.cluster.cores()[c].node;
        if near.len() > PARTNERS {
            let all_s =
                |n: &Near| m.costs.one.of(n.received + n.sent, n.received_bytes + n.sent_bytes);
            near.select_nth_unstable_by(PARTNERS, |a, b| all_s(b).total_cmp(&all_s(a)));
        }
        for n in near.iter().take(PARTNERS) {
            to.push(n.core);
            to.extend(least(&mut self.of_node[node(n.core)].iter().copied()));
        }
        to.push(m.present[t]);
        if self.over(self.time[from]) > 0.0 {
            to.extend(least(&mut (0..self.time.len())));
            spent.on(self.time.len());
        }
        to.sort_unstable();
        to.dedup();
        spent.on(super::LOOKS_PER_TRIAL + links.len() + to.len() * near.len());

        let cores = m.cluster.cores();
        let load_s = m.computes_s[t];
        let cost_s = |at: CoreIndex| -> (f64, f64) {
            let (mut received_s, mut sent_s) = (0.0, 0.0);
            for n in near.iter() {
                received_s += m.costs.between(at, n.core).of(n.received, n.received_bytes);
                sent_s += m.costs.between(n.core, at).of(n.sent, n.sent_bytes);
            }
            let sum_s = (received_s + sent_s) * m.per_core + m.migration_s(t, at);
            let received_s = if m.communication_on_cores { received_s } else { 0.0 };
            (sum_s, load_s / cores[at].speed + received_s)
        };
        let (here_s, takes_s) = cost_s(from);
        let less_s = self.over(self.time[from]) - self.over(self.time[from] - takes_s);
        let mut best: Option<(f64, CoreIndex)> = None;
        for &core in to.iter().filter(|&&c| c != from) {
            let (there_s, takes_s) = cost_s(core);
            let more_s = self.over(self.time[core] + takes_s) - self.over(self.time[core]);
            // What is above the bound afterwards is no reason against it: another task may come back. That
            // it is less is one for it.
            let gain_s = here_s - there_s + ABOVE * (less_s - more_s).max(0.0);
            if best.is_none_or(|b| gain_s > b.0) {
                best = Some((gain_s, core));
            }
        }
        best
    }

    /// The move, or where it adds to what is above the bounds, the best exchange that does not.
    fn that_fits(
        &mut self,
        t: TaskIndex,
        to: CoreIndex,
        locked: &[bool],
        spent: &mut Spent<'_>,
    ) -> Option<Step> {
        let m = self.model;
        let least = 1e-12 * (1.0 + m.mean_s);
        let from = self.at[t];
        let links = m.graph.links(t).len();
        let mut try_step = |s: &mut Self, step: Step| -> (f64, f64) {
            let before = s.sums;
            let taken = s.take(step);
            let above = (s.sums.over_s - before.over_s) / m.mean_s.max(1e-300)
                + s.too_many(&s.sums)
                - s.too_many(&before);
            let change_s = s.change_s(&before);
            s.undo(taken, before);
            spent.on(links + super::LOOKS_PER_TRIAL);
            (if above.abs() <= least { 0.0 } else { above }, change_s)
        };
        let alone: Step = [Some((t, to)), None];
        if try_step(self, alone).0 <= 0.0 {
            return Some(alone);
        }
        let free = |u: &TaskIndex| *u != t && !locked[*u];
        let mut others: Vec<(TaskIndex, CoreIndex)> = Vec::new();
        others
            .extend(self.on[to].0.iter().copied().filter(free).take(EXCHANGED).map(|u| (u, from)));
        if self.sums.migrations >= m.max_migrations {
            let away = self.away.0.iter().copied().filter(free).take(EXCHANGED);
            others.extend(away.map(|u| (u, m.present[u])));
        }
        let mut best: Option<((f64, f64), Step)> = None;
        for second in others {
            let step = [Some((t, to)), Some(second)];
            let worth = try_step(self, step);
            if worth.0 <= 0.0 && best.is_none_or(|b| worth < b.0) {
                best = Some((worth, step));
            }
        }
        best.map(|b| b.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_the_order_of_gains() {
        let buckets = Buckets::new(1, 1e-6);
        let gains = [-1e9, -3.0, -1.0, -1e-5, -1e-7, 0.0, 1e-5, 0.9, 1.0, 1.2, 2.0, 1e9];
        let places: Vec<usize> = gains.iter().map(|&g| buckets.of(g)).collect();
        assert!(places.is_sorted(), "{places:?}");
        assert_eq!(buckets.of(0.0), buckets.of(1e-7), "less than the unit is none");
        assert_eq!(buckets.of(1.0) + 8, buckets.of(2.0), "eight to the octave");
        assert!(buckets.of(f64::MAX) < buckets.lists.len() && buckets.of(-f64::MAX) < SIDE);
    }

    #[test]
    fn the_highest_comes_first_whichever_was_moved_or_taken_out() {
        let mut random = Random::new(4);
        let mut buckets = Buckets::new(200, 1e-3);
        let mut gains: Vec<Option<f64>> = vec![None; 200];
        for _ in 0..2_000 {
            let t = random.below(200);
            match random.below(4) {
                0 => {
                    buckets.take_out(t);
                    gains[t] = None;
                }
                1 => {
                    let most = gains.iter().flatten().map(|&g| buckets.of(g)).max();
                    let popped = buckets.pop();
                    assert_eq!(popped.map(|p| p.1), most);
                    if let Some((t, bucket)) = popped {
                        assert_eq!(gains[t].take().map(|g| buckets.of(g)), Some(bucket));
                    }
                }
                _ => {
                    let gain = random.unit() * 100.0 - 50.0;
                    gains[t] = Some(gain);
                    buckets.put(t, buckets.of(gain));
                }
            }
        }
    }
}
