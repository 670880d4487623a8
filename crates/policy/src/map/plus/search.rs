//! Simulated annealing and descent over moves and swaps.
//!
//! Invariant: what a step changes (communication, what moving costs, migrations, loads and what of
//! them exceeds the bound) is kept up to date from the links of the tasks that are moved, and is
//! what summing up anew would give, but for rounding; every sweep ends with sums taken anew where a
//! better mapping is claimed.
//!
//! A step is one of
//! - a task to a core that one of its partners is on, to another core of such a node, home to where
//!   it is at present, or to any core;
//! - the same, and a task of that core comes back in exchange (a swap);
//! - the same, and a task that has been migrated goes home, where no more may be migrated;
//! - there, too: a migrated task to any core, in exchange for another migrated task, or home for
//!   another task of the core that it came from.

use super::{Model, Value};
use crate::map::core_loads;
use evenly_model::stats::Random;
use evenly_model::{CoreIndex, TaskIndex};
use std::collections::VecDeque;

/// The best mapping so far.
pub(super) struct Best<'m, 'a> {
    model: &'m Model<'a>,
    pub(super) mapping: Vec<CoreIndex>,
    value: Value,
}

impl<'m, 'a> Best<'m, 'a> {
    pub(super) fn new(model: &'m Model<'a>, mapping: &[CoreIndex]) -> Self {
        Self { model, mapping: mapping.to_vec(), value: model.value(mapping) }
    }

    pub(super) fn offer(&mut self, mapping: &[CoreIndex]) {
        let value = self.model.value(mapping);
        if value < self.value {
            self.value = value;
            self.mapping.clear();
            self.mapping.extend_from_slice(mapping);
        }
    }
}

/// Who is on a core, or away from home, with each task's place in the list.
#[derive(Default, Clone)]
struct List(Vec<TaskIndex>);

impl List {
    fn insert(&mut self, t: TaskIndex, places: &mut [usize]) {
        places[t] = self.0.len();
        self.0.push(t);
    }

    fn remove(&mut self, t: TaskIndex, places: &mut [usize]) {
        self.0.swap_remove(places[t]);
        if let Some(&moved) = self.0.get(places[t]) {
            places[moved] = places[t];
        }
    }

    fn any(&self, random: &mut Random) -> Option<TaskIndex> {
        self.0.get(random.below(self.0.len())).copied()
    }
}

/// What J consists of, but for the makespan, and what exceeds the bounds.
#[derive(Debug, Clone, Copy)]
struct Sums {
    communication_s: f64,
    moving_s: f64,
    over_s: f64,
    migrations: usize,
}

/// A step that has been taken but can be undone.
#[derive(Debug, Clone, Copy)]
struct Taken {
    task: TaskIndex,
    from: CoreIndex,
    to: CoreIndex,
    from_load: f64,
    to_load: f64,
}

/// One or two moves.
type Step = [Option<(TaskIndex, CoreIndex)>; 2];

/// A mapping that is being improved.
pub(super) struct State<'m, 'a> {
    model: &'m Model<'a>,
    tasks: &'m [TaskIndex],
    pub(super) at: Vec<CoreIndex>,
    load: Vec<f64>,
    bound_s: f64,
    sums: Sums,
    /// The movable tasks of each core.
    on: Vec<List>,
    on_place: Vec<usize>,
    /// Those that have been migrated.
    away: List,
    away_place: Vec<usize>,
    of_node: Vec<Vec<CoreIndex>>,
}

impl<'m, 'a> State<'m, 'a> {
    pub(super) fn new(
        model: &'m Model<'a>,
        tasks: &'m [TaskIndex],
        from: &[CoreIndex],
        bound_s: f64,
    ) -> Self {
        let cores = model.cluster.cores();
        let mut of_node = vec![Vec::new(); model.cluster.nodes().len()];
        for (c, core) in cores.iter().enumerate() {
            of_node[core.node].push(c);
        }
        let sums = Sums { communication_s: 0.0, moving_s: 0.0, over_s: 0.0, migrations: 0 };
        let mut state = Self {
            model,
            tasks,
            at: from.to_vec(),
            load: Vec::new(),
            bound_s,
            sums,
            on: vec![List::default(); cores.len()],
            on_place: vec![0; from.len()],
            away: List::default(),
            away_place: vec![0; from.len()],
            of_node,
        };
        for &t in tasks {
            state.on[from[t]].insert(t, &mut state.on_place);
            if from[t] != model.present[t] {
                state.away.insert(t, &mut state.away_place);
            }
        }
        state.sum_up();
        state
    }

    /// Takes all sums anew.
    fn sum_up(&mut self) {
        let m = self.model;
        self.load = core_loads(m.graph, m.cluster, &self.at);
        self.sums = Sums {
            communication_s: m.all_communication_s(&self.at),
            moving_s: self.tasks.iter().map(|&t| m.migration_s(t, self.at[t])).sum(),
            over_s: self.load.iter().map(|&l| self.over(l)).sum(),
            migrations: self.away.0.len(),
        };
    }

    fn over(&self, load_s: f64) -> f64 {
        (load_s - self.bound_s).max(0.0)
    }

    fn shift(&mut self, task: TaskIndex, to: CoreIndex) -> Taken {
        let m = self.model;
        let from = self.at[task];
        let mut change = 0.0;
        for l in m.graph.links(task) {
            let other = self.at[l.with];
            let received = m.costs.between(to, other).less(m.costs.between(from, other));
            let sent = m.costs.between(other, to).less(m.costs.between(other, from));
            change += received.of(l.received, l.received_bytes) + sent.of(l.sent, l.sent_bytes);
        }
        let taken = Taken { task, from, to, from_load: self.load[from], to_load: self.load[to] };
        let (cores, load_s) = (m.cluster.cores(), m.graph.tasks()[task].load_s);
        self.load[from] -= load_s / cores[from].speed;
        self.load[to] += load_s / cores[to].speed;
        let over = self.over(self.load[from]) - self.over(taken.from_load)
            + self.over(self.load[to])
            - self.over(taken.to_load);
        let home = m.present[task];
        let s = &mut self.sums;
        s.communication_s += change;
        s.over_s += over;
        s.moving_s += m.migration_s(task, to) - m.migration_s(task, from);
        s.migrations = s.migrations + usize::from(to != home) - usize::from(from != home);
        self.at[task] = to;
        taken
    }

    /// Takes a step; what it was, in order.
    fn take(&mut self, step: Step) -> [Option<Taken>; 2] {
        step.map(|s| s.map(|(t, to)| self.shift(t, to)))
    }

    fn undo(&mut self, taken: [Option<Taken>; 2], sums: Sums) {
        for t in taken.into_iter().rev().flatten() {
            self.at[t.task] = t.from;
            self.load[t.from] = t.from_load;
            self.load[t.to] = t.to_load;
        }
        self.sums = sums;
    }

    fn keep(&mut self, taken: [Option<Taken>; 2]) {
        for Taken { task, from, to, .. } in taken.into_iter().flatten() {
            let home = self.model.present[task];
            self.on[from].remove(task, &mut self.on_place);
            self.on[to].insert(task, &mut self.on_place);
            if from == home {
                self.away.insert(task, &mut self.away_place);
            } else if to == home {
                self.away.remove(task, &mut self.away_place);
            }
        }
    }

    /// Migrations above what is allowed.
    fn too_many(&self, sums: &Sums) -> f64 {
        sums.migrations.saturating_sub(self.model.max_migrations) as f64
    }

    /// What J has changed by since `before`, but for the makespan.
    fn change_s(&self, before: &Sums) -> f64 {
        (self.sums.communication_s - before.communication_s)
            + (self.sums.moving_s - before.moving_s)
    }

    /// A step by lot. None where it would change nothing.
    fn any_step(&self, random: &mut Random) -> Option<Step> {
        let m = self.model;
        let full = self.sums.migrations >= m.max_migrations;
        if full
            && random.unit() < 0.7
            && let Some(away) = self.away.any(random)
        {
            return self.step_when_full(away, random);
        }
        let t = self.tasks[random.below(self.tasks.len())];
        let (from, links) = (self.at[t], m.graph.links(t));
        let way = random.unit();
        let to = if way < 0.65 && !links.is_empty() {
            let partner = self.at[links[random.below(links.len())].with];
            if way < 0.4 {
                partner
            } else {
                let near = &self.of_node[m.cluster.cores()[partner].node];
                near[random.below(near.len())]
            }
        } else if way < 0.75 {
            m.present[t]
        } else {
            random.below(self.load.len())
        };
        if to == from {
            return None;
        }
        let lot = random.unit();
        let second = if full && lot < 0.4 {
            self.away.any(random).map(|u| (u, m.present[u]))
        } else if lot < 0.7 {
            self.on[to].any(random).map(|u| (u, from))
        } else {
            None
        };
        // The same task twice is one move.
        Some([Some((t, to)), second.filter(|s| s.0 != t)])
    }

    /// A step that leaves the number of migrations as it is: a migrated task goes to another core, or
    /// changes places with another migrated one, or goes home for another task of the core that it
    /// came from.
    fn step_when_full(&self, away: TaskIndex, random: &mut Random) -> Option<Step> {
        let (at, home) = (self.at[away], self.model.present[away]);
        let any_core = random.below(self.load.len());
        let way = random.unit();
        if way < 0.4 {
            let other = self.away.any(random)?;
            let there = self.at[other];
            (there != at).then_some([Some((away, there)), Some((other, at))])
        } else if way < 0.6 {
            (any_core != at).then_some([Some((away, any_core)), None])
        } else {
            let instead = self.on[home].any(random)?;
            let to = if way < 0.8 { at } else { any_core };
            (to != home).then_some([Some((instead, to)), Some((away, home))])
        }
    }

    /// What a move by lot changes, on the average, of what it does change.
    fn scale_s(&mut self, random: &mut Random) -> f64 {
        let (mut sum, mut count) = (0.0, 0);
        for _ in 0..512 {
            if let Some(step) = self.any_step(random) {
                let before = self.sums;
                let taken = self.take(step);
                let change = self.change_s(&before).abs();
                self.undo(taken, before);
                if change > 0.0 {
                    sum += change;
                    count += 1;
                }
            }
        }
        if count > 0 { sum / f64::from(count) } else { 0.0 }
    }

    /// Anneals: every sweep tries as many steps as there are tasks, and a step that costs x seconds
    /// is taken with probability exp(-x / temperature). What is above the bounds has prices, which
    /// rise after a sweep that ends with some, and fall after one that ends with none.
    pub(super) fn anneal(
        &mut self,
        sweeps: usize,
        heat: f64,
        random: &mut Random,
        best: &mut Best<'_, '_>,
        late: &dyn Fn() -> bool,
    ) {
        const COLDEST: f64 = 1e-3;
        let m = self.model;
        let scale = self.scale_s(random);
        // Where no step changes communication or what moving costs, only the bounds count.
        let scale = if scale > 0.0 { scale } else { m.mean_s.max(1e-9) * 0.01 };
        let first_load_price = if m.mean_s > 0.0 { scale / (0.02 * m.mean_s) } else { 0.0 };
        let mut load_price = first_load_price;
        let mut migration_price = scale;
        for sweep in 0..sweeps {
            let done = sweep as f64 / sweeps as f64;
            // A start that is warmer cools down to the same.
            let temperature = scale * heat * (COLDEST / heat).min(1.0).powf(done);
            let cost = |s: &Self, before: &Sums| {
                s.change_s(before)
                    + load_price * (s.sums.over_s - before.over_s)
                    + migration_price * (s.too_many(&s.sums) - s.too_many(before))
            };
            if !self.sweep(temperature, random, late, cost) {
                return;
            }
            // Sums drift by rounding.
            if sweep % 16 == 15 {
                self.sum_up();
            }
            let ending = done > 0.8;
            // Prices have limits: what is charged for without end freezes where it is.
            let adapt = |price: &mut f64, first: f64, above: bool| match above {
                true => *price = (*price * 1.1).min(first * 1e3),
                false if !ending => *price = (*price * 0.95).max(first * 1e-2),
                false => {}
            };
            adapt(&mut load_price, first_load_price, self.sums.over_s > 1e-12 * m.mean_s);
            adapt(&mut migration_price, scale, self.too_many(&self.sums) > 0.0);
            self.claim(best);
        }
    }

    /// Anneals what is above the bounds alone, until nothing is: where they are tight, it takes all
    /// steps to keep them, and none are left for the rest.
    pub(super) fn level(&mut self, sweeps: usize, random: &mut Random, late: &dyn Fn() -> bool) {
        let m = self.model;
        for sweep in 0..sweeps {
            if self.is_level() {
                return;
            }
            let temperature = 0.02 * m.mean_s * 1e-3_f64.powf(sweep as f64 / sweeps as f64);
            let cost = |s: &Self, before: &Sums| s.above(&s.sums) - s.above(before);
            if !self.sweep(temperature, random, late, cost) {
                return;
            }
            if sweep % 16 == 15 {
                self.sum_up();
            }
        }
    }

    /// What is above the bounds. A migration too many counts as half a core's load.
    fn above(&self, sums: &Sums) -> f64 {
        sums.over_s + 0.5 * self.model.mean_s * self.too_many(sums)
    }

    /// Whether nothing is, but for rounding.
    pub(super) fn is_level(&self) -> bool {
        self.above(&self.sums) <= 1e-12 * self.model.mean_s
    }

    /// Tries as many steps as there are tasks; `cost` is told the sums before a step that was taken.
    /// Returns false when it has become late.
    fn sweep(
        &mut self,
        temperature: f64,
        random: &mut Random,
        late: &dyn Fn() -> bool,
        cost: impl Fn(&Self, &Sums) -> f64,
    ) -> bool {
        for trial in 0..self.tasks.len() {
            if trial % 1024 == 0 && late() {
                return false;
            }
            let Some(step) = self.any_step(random) else { continue };
            let before = self.sums;
            let taken = self.take(step);
            let cost = cost(self, &before);
            if cost <= 0.0 || random.unit() < (-cost / temperature).exp() {
                self.keep(taken);
            } else {
                self.undo(taken, before);
            }
        }
        true
    }

    /// Offers the mapping where it seems to be better.
    pub(super) fn claim(&self, best: &mut Best<'_, '_>) {
        let m = self.model;
        let makespan_s = self.load.iter().copied().fold(0.0, f64::max);
        let s = &self.sums;
        let seems = m.value_of(makespan_s, s.communication_s, s.moving_s, s.migrations);
        if seems < best.value {
            best.offer(&self.at);
        }
    }

    /// Takes steps that lessen what is above the bounds, or where that stays, the rest of J, until
    /// there is none, `looks` have been spent, or it is late. Tasks are tried again only when
    /// something that they see has changed: a partner, or the load of a core that they or their
    /// partners are on.
    pub(super) fn descend(&mut self, mut looks: usize, late: &dyn Fn() -> bool) {
        self.sum_up();
        let mut queue: VecDeque<TaskIndex> = self.tasks.iter().copied().collect();
        let mut queued = vec![false; self.at.len()];
        for &t in self.tasks {
            queued[t] = true;
        }
        while let Some(t) = queue.pop_front() {
            queued[t] = false;
            if looks == 0 || late() {
                return;
            }
            let Some(step) = self.best_step(t, &mut looks, late) else { continue };
            let taken = self.take(step);
            self.keep(taken);
            let mut again = |t: TaskIndex| {
                if self.model.graph.tasks()[t].movable && !queued[t] {
                    queued[t] = true;
                    queue.push_back(t);
                }
            };
            for Taken { task, from, to, .. } in taken.into_iter().flatten() {
                again(task);
                for link in self.model.graph.links(task) {
                    again(link.with);
                }
                for &near in self.on[from].0.iter().chain(&self.on[to].0) {
                    again(near);
                }
            }
        }
    }

    /// The best of a task's moves, alone or in exchange, to its partners' cores, home, or to the
    /// core with the least load if its own is above the bound. None where none is any good.
    fn best_step(
        &mut self,
        t: TaskIndex,
        looks: &mut usize,
        late: &dyn Fn() -> bool,
    ) -> Option<Step> {
        let m = self.model;
        let from = self.at[t];
        let mut to: Vec<CoreIndex> = m.graph.links(t).iter().map(|l| self.at[l.with]).collect();
        to.push(m.present[t]);
        if self.over(self.load[from]) > 0.0 {
            let least = (0..self.load.len()).min_by(|&a, &b| self.load[a].total_cmp(&self.load[b]));
            to.extend(least);
        }
        to.sort_unstable();
        to.dedup();
        let mut best: Option<(f64, f64, Step)> = None;
        // What rounding makes of nothing is no gain.
        let least_over = 1e-12 * (1.0 + m.mean_s);
        let least_gain =
            1e-12 * (self.sums.communication_s.abs() + self.sums.moving_s.abs()).max(1e-300);
        for to in to.into_iter().filter(|&to| to != from) {
            let partners: Vec<TaskIndex> = self.on[to].0.clone();
            let swaps = partners.into_iter().map(|u| Some((u, from)));
            let others = if self.sums.migrations >= m.max_migrations {
                self.away.0.iter().map(|&u| Some((u, m.present[u]))).collect()
            } else {
                Vec::new()
            };
            for (i, second) in std::iter::once(None).chain(swaps).chain(others).enumerate() {
                if second.is_some_and(|s| s.0 == t) {
                    continue;
                }
                let cost = super::LOOKS_PER_TRIAL + m.graph.links(t).len();
                *looks = looks.saturating_sub(cost);
                if *looks == 0 || (i % 1024 == 1023 && late()) {
                    break;
                }
                let step = [Some((t, to)), second];
                let before = self.sums;
                let taken = self.take(step);
                let above = (self.sums.over_s - before.over_s) / m.mean_s.max(1e-300)
                    + self.too_many(&self.sums)
                    - self.too_many(&before);
                let change = self.change_s(&before);
                self.undo(taken, before);
                let above = if above.abs() <= least_over { 0.0 } else { above };
                let good = above < 0.0 || (above == 0.0 && change < -least_gain);
                if good && best.is_none_or(|b| (above, change) < (b.0, b.1)) {
                    best = Some((above, change, step));
                }
            }
        }
        best.map(|b| b.2)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Alpha, Options, Request, no_stop};
    use super::*;
    use evenly_model::{Cluster, Edge, Nanos, Task, TaskGraph};

    fn graph() -> TaskGraph {
        let mut random = Random::new(3);
        let task = |id| Task {
            id,
            load_s: 1.0 + (id % 5) as f64,
            size_bytes: 100.0,
            core: None,
            movable: id % 7 != 0,
        };
        let tasks = (0..40).map(task).collect();
        let mut edge = || Edge {
            from: random.below(40) as u64,
            to: random.below(40) as u64,
            messages: 1.0 + random.below(9) as f64,
            bytes: random.below(99_999) as f64,
        };
        let edges: Vec<Edge> = (0..120).map(|_| edge()).collect();
        TaskGraph::new(tasks, &edges).unwrap()
    }

    fn with_model(f: impl FnOnce(&Model<'_>, &[TaskIndex])) {
        let graph = graph();
        let cluster = Cluster::even(3, 3, 2.5).unwrap();
        let cluster = cluster.with_bandwidths(vec![50.0; 9]).unwrap();
        let present: Vec<CoreIndex> = (0..40).map(|t| t % 4).collect();
        let options = Options { alpha: Alpha::Auto, max_migrations: Some(6), ..Options::default() };
        let clock = || Nanos::ZERO;
        let request = Request {
            graph: &graph,
            cluster: &cluster,
            present: &present,
            options: &options,
            clock: &clock,
            stop: &no_stop,
        };
        f(&Model::new(&request), &crate::map::movable(&graph));
    }

    #[test]
    fn what_steps_change_is_kept_up_to_date() {
        with_model(|model, tasks| {
            let mut state = State::new(model, tasks, model.present, 15.0);
            let mut random = Random::new(5);
            let mut kept = 0;
            for i in 0..2_000 {
                let Some(step) = state.any_step(&mut random) else { continue };
                let before = state.sums;
                let taken = state.take(step);
                if i % 3 == 0 {
                    state.keep(taken);
                    kept += 1;
                } else {
                    state.undo(taken, before);
                }
                let (kept, load, at) = (state.sums, state.load.clone(), state.at.clone());
                state.sum_up();
                let anew = state.sums;
                let change = kept.communication_s - anew.communication_s;
                assert!(change.abs() < 1e-9 * anew.communication_s, "{change}");
                assert!((kept.over_s - anew.over_s).abs() < 1e-9);
                assert!((kept.moving_s - anew.moving_s).abs() < 1e-9);
                assert_eq!(kept.migrations, anew.migrations);
                let away = (0..40).filter(|&t| at[t] != model.present[t]).count();
                assert_eq!(anew.migrations, away);
                assert!(load.iter().zip(&state.load).all(|(a, b)| (a - b).abs() < 1e-9));
                for (c, list) in state.on.iter().enumerate() {
                    assert!(list.0.iter().all(|&t| at[t] == c));
                }
                assert_eq!(state.on.iter().map(|l| l.0.len()).sum::<usize>(), tasks.len());
            }
            assert!(kept > 100, "{kept}");
        });
    }

    #[test]
    fn descent_ends_below_the_bound_and_within_the_migrations() {
        with_model(|model, tasks| {
            let mean = model.mean_s;
            let mut state = State::new(model, tasks, model.present, 1.6 * mean);
            state.descend(usize::MAX, &|| false);
            // Nine cores, of which four have everything: six tasks cannot level that.
            assert_eq!(state.sums.migrations, 6);
            let mut free = Model { max_migrations: usize::MAX, ..with_costs_of(model) };
            free.worth_s = 0.0;
            let mut state = State::new(&free, tasks, model.present, 1.2 * mean);
            state.descend(usize::MAX, &|| false);
            assert_eq!(state.sums.over_s, 0.0, "{:?}", state.load);
        });
    }

    fn with_costs_of<'a>(m: &Model<'a>) -> Model<'a> {
        Model {
            costs: super::super::Costs::new(m.cluster, [m.costs.one.message_s, m.costs.one.byte_s]),
            ..*m
        }
    }
}
