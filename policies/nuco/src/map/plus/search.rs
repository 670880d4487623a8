//! Simulated annealing over moves and swaps.
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

use super::model::{Judged, Model, Value};
use evenly_cluster::CoreIndex;
use evenly_model::TaskIndex;
use evenly_model::stats::Random;

/// The best mapping so far.
pub(super) struct Best<'m, 'a> {
    model: &'m Model<'a>,
    pub(super) mapping: Vec<CoreIndex>,
    value: Value,
    /// What all its communication costs, and when its slowest core ends.
    pub(super) communication_s: f64,
    pub(super) slowest_s: f64,
}

impl<'m, 'a> Best<'m, 'a> {
    pub(super) fn new(model: &'m Model<'a>, mapping: &[CoreIndex]) -> Self {
        let judged = model.judge(mapping);
        Self {
            model,
            mapping: mapping.to_vec(),
            value: judged.value,
            communication_s: judged.communication_s,
            slowest_s: judged.slowest_s,
        }
    }

    /// Takes it if it is better; what it is worth.
    pub(super) fn offer(&mut self, mapping: &[CoreIndex]) -> Value {
        self.offer_and_judge(mapping).value
    }

    /// The same, and all that is known of it then.
    pub(super) fn offer_and_judge(&mut self, mapping: &[CoreIndex]) -> Judged {
        let judged = self.model.judge(mapping);
        if judged.value < self.value {
            self.value = judged.value;
            self.communication_s = judged.communication_s;
            self.slowest_s = judged.slowest_s;
            self.mapping.clear();
            self.mapping.extend_from_slice(mapping);
        }
        judged
    }
}

/// Which tasks are on a core, or away from home, with each task's place in the list.
#[derive(Default, Clone)]
pub(super) struct List(pub(super) Vec<TaskIndex>);

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

    pub(super) fn any(&self, random: &mut Random) -> Option<TaskIndex> {
        self.0.get(random.below(self.0.len())).copied()
    }
}

/// What J consists of, but for the slowest core, and what exceeds the bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sums {
    pub(super) communication_s: f64,
    pub(super) moving_s: f64,
    pub(super) over_s: f64,
    pub(super) migrations: usize,
}

/// A step that has been taken but can be undone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    task: TaskIndex,
    from: CoreIndex,
    to: CoreIndex,
    /// How long [`Draft::changed`] was before it.
    mark: usize,
}

/// One or two moves.
pub(super) type Step = [Option<(TaskIndex, CoreIndex)>; 2];

/// A mapping that is being improved.
pub(super) struct Draft<'m, 'a> {
    pub(super) model: &'m Model<'a>,
    pub(super) tasks: &'m [TaskIndex],
    pub(super) at: Vec<CoreIndex>,
    /// How long each core takes: its load, and where that counts there, what its tasks receive.
    pub(super) time: Vec<f64>,
    pub(super) bound_s: f64,
    pub(super) sums: Sums,
    /// The movable tasks of each core.
    pub(super) on: Vec<List>,
    on_place: Vec<usize>,
    /// Those that have been migrated.
    pub(super) away: List,
    away_place: Vec<usize>,
    pub(super) of_node: Vec<Vec<CoreIndex>>,
    /// Cores whose time steps that can still be undone have changed, and what it was.
    changed: Vec<(CoreIndex, f64)>,
}

impl<'m, 'a> Draft<'m, 'a> {
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
            time: Vec::new(),
            bound_s,
            sums,
            on: vec![List::default(); cores.len()],
            on_place: vec![0; from.len()],
            away: List::default(),
            away_place: vec![0; from.len()],
            of_node,
            changed: Vec::new(),
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
    pub(super) fn sum_up(&mut self) {
        let m = self.model;
        self.time = m.computing_s(&self.at);
        let all_s = m.receive(&self.at, &mut self.time);
        self.changed.clear();
        self.sums = Sums {
            communication_s: all_s * m.per_core,
            moving_s: self.tasks.iter().map(|&t| m.migration_s(t, self.at[t])).sum(),
            over_s: self.time.iter().map(|&l| self.over(l)).sum(),
            migrations: self.away.0.len(),
        };
    }

    pub(super) fn over(&self, time_s: f64) -> f64 {
        (time_s - self.bound_s).max(0.0)
    }

    pub(super) fn slowest_s(&self) -> f64 {
        self.time.iter().copied().fold(0.0, f64::max)
    }

    /// From now on cores are above the bound that are above this one.
    pub(super) fn bind(&mut self, bound_s: f64) {
        self.bound_s = bound_s;
        self.sums.over_s = self.time.iter().map(|&l| self.over(l)).sum();
    }

    fn add(&mut self, core: CoreIndex, time_s: f64) {
        let before = self.time[core];
        self.changed.push((core, before));
        let now = before + time_s;
        self.time[core] = now;
        self.sums.over_s += self.over(now) - self.over(before);
    }

    fn shift(&mut self, task: TaskIndex, to: CoreIndex) -> Taken {
        let m = self.model;
        let from = self.at[task];
        let mark = self.changed.len();
        let (cores, load_s) = (m.cluster.cores(), m.computes_s[task]);
        let (mut gone, mut come, mut change) = (0.0, 0.0, 0.0);
        for l in m.graph.links(task) {
            let other = self.at[l.with];
            gone += m.costs.between(from, other).of(l.received, l.received_bytes);
            come += m.costs.between(to, other).of(l.received, l.received_bytes);
            if l.sent > 0.0 || l.sent_bytes > 0.0 {
                let sent = m.costs.between(other, to).less(m.costs.between(other, from));
                let sent_s = sent.of(l.sent, l.sent_bytes);
                change += sent_s;
                if m.communication_on_cores && sent_s != 0.0 {
                    self.add(other, sent_s);
                }
            }
        }
        change += come - gone;
        let on_cores = f64::from(u8::from(m.communication_on_cores));
        self.add(from, -load_s / cores[from].speed - on_cores * gone);
        self.add(to, load_s / cores[to].speed + on_cores * come);
        let home = m.present[task];
        let s = &mut self.sums;
        s.communication_s += change * m.per_core;
        s.moving_s += m.migration_s(task, to) - m.migration_s(task, from);
        s.migrations = s.migrations + usize::from(to != home) - usize::from(from != home);
        self.at[task] = to;
        Taken { task, from, to, mark }
    }

    /// Takes a step; what it was, in order.
    pub(super) fn take(&mut self, step: Step) -> [Option<Taken>; 2] {
        step.map(|s| s.map(|(t, to)| self.shift(t, to)))
    }

    pub(super) fn undo(&mut self, taken: [Option<Taken>; 2], sums: Sums) {
        for t in taken.into_iter().rev().flatten() {
            self.at[t.task] = t.from;
            while self.changed.len() > t.mark
                && let Some((core, time_s)) = self.changed.pop()
            {
                self.time[core] = time_s;
            }
        }
        self.sums = sums;
    }

    /// Steps that were taken before cannot be undone any more.
    pub(super) fn keep(&mut self, taken: [Option<Taken>; 2]) {
        self.changed.clear();
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
    pub(super) fn too_many(&self, sums: &Sums) -> f64 {
        sums.migrations.saturating_sub(self.model.max_migrations) as f64
    }

    /// What J has changed by since `before`, but for the slowest core.
    pub(super) fn change_s(&self, before: &Sums) -> f64 {
        (self.sums.communication_s - before.communication_s)
            + (self.sums.moving_s - before.moving_s)
    }

    /// A step by lot. None where it would change nothing.
    pub(super) fn any_step(&self, random: &mut Random) -> Option<Step> {
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
            random.below(self.time.len())
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
        let any_core = random.below(self.time.len());
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
    pub(super) fn scale_s(&mut self, random: &mut Random) -> f64 {
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

    /// Anneals what is above the bounds alone, until they are kept: where they are tight, it takes all
    /// steps to keep them, and none are left for the rest.
    pub(super) fn anneal_bounds(
        &mut self,
        sweeps: usize,
        random: &mut Random,
        late: &dyn Fn() -> bool,
    ) {
        let m = self.model;
        for sweep in 0..sweeps {
            if self.keeps_bounds() {
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

    /// What is above the bounds. A migration too many counts as all load: none is worth any balance.
    fn above(&self, sums: &Sums) -> f64 {
        let all_s = (self.model.mean_s / self.model.per_core).max(f64::MIN_POSITIVE);
        sums.over_s + all_s * self.too_many(sums)
    }

    /// Whether nothing is above the bounds, but for rounding.
    pub(super) fn keeps_bounds(&self) -> bool {
        self.above(&self.sums) <= 1e-12 * self.model.mean_s
    }

    /// Tries as many steps as there are tasks; `cost` gets the sums before each step that was taken.
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

    /// Whether no core is above the bound, but for rounding.
    pub(super) fn is_below_bound(&self) -> bool {
        self.sums.over_s <= 1e-12 * self.model.mean_s
    }

    /// Offers the mapping where it seems to be better.
    pub(super) fn claim(&self, best: &mut Best<'_, '_>) {
        let m = self.model;
        let slowest_s = self.slowest_s();
        let s = &self.sums;
        // Loads alone are not known where communication is among them; they decide hardly anything then.
        let makespan_s = slowest_s;
        let seems = m.value_of(makespan_s, slowest_s, s.communication_s, s.moving_s, s.migrations);
        if seems < best.value {
            best.offer(&self.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Alpha, Options, Request};
    use super::super::buckets::Spent;
    use super::*;
    use evenly_cluster::Cluster;
    use evenly_model::{Edge, Task, TaskGraph};

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
        let request = Request::timeless(&graph, &cluster, &present, &options);
        f(&Model::new(&request), &crate::map::movable(&graph));
    }

    #[test]
    fn what_steps_change_is_kept_up_to_date() {
        with_model(|model, tasks| {
            let mut state = Draft::new(model, tasks, model.present, 15.0);
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
                let (kept, load, at) = (state.sums, state.time.clone(), state.at.clone());
                state.sum_up();
                let anew = state.sums;
                let change = kept.communication_s - anew.communication_s;
                assert!(change.abs() < 1e-9 * anew.communication_s, "{change}");
                assert!((kept.over_s - anew.over_s).abs() < 1e-9);
                assert!((kept.moving_s - anew.moving_s).abs() < 1e-9);
                assert_eq!(kept.migrations, anew.migrations);
                let away = (0..40).filter(|&t| at[t] != model.present[t]).count();
                assert_eq!(anew.migrations, away);
                assert!(load.iter().zip(&state.time).all(|(a, b)| (a - b).abs() < 1e-9));
                for (c, list) in state.on.iter().enumerate() {
                    assert!(list.0.iter().all(|&t| at[t] == c));
                }
                assert_eq!(state.on.iter().map(|l| l.0.len()).sum::<usize>(), tasks.len());
            }
            assert!(kept > 100, "{kept}");
        });
    }

    fn by_gain(state: &mut Draft<'_, '_>) {
        let mut spent = Spent { looks: 0, limit: usize::MAX, late: &|| false };
        let mut scratch = state.scratch(1.0);
        state.pass_by_gain(&mut scratch, &mut spent);
        assert!(spent.looks > 0);
    }

    /// What a kick does not gain by is undone, whatever it was.
    #[test]
    fn kicks_never_lose() {
        with_model(|model, tasks| {
            let mut state = Draft::new(model, tasks, model.present, 1.6 * model.mean_s);
            by_gain(&mut state);
            let mut random = Random::new(9);
            let mut scratch = state.scratch(1.0);
            let mut spent = Spent { looks: 0, limit: usize::MAX, late: &|| false };
            let worth =
                |s: &Draft<'_, '_>| (s.sums.over_s, s.sums.communication_s + s.sums.moving_s);
            for _ in 0..300 {
                state.sum_up();
                let (before, at) = (worth(&state), state.at.clone());
                let gained = state.kick(&mut random, &mut scratch, &mut spent);
                state.sum_up();
                let after = worth(&state);
                assert!(after.0 <= before.0 + 1e-9, "{before:?} {after:?}");
                assert!(after.0 < before.0 || after.1 <= before.1 + 1e-9);
                assert!(gained || state.at == at, "undone");
            }
        });
    }

    #[test]
    fn passes_end_below_the_bound_and_within_the_migrations() {
        with_model(|model, tasks| {
            let mean = model.mean_s;
            let mut state = Draft::new(model, tasks, model.present, 1.6 * mean);
            by_gain(&mut state);
            // Nine cores, of which four have everything: six migrations cannot even that out.
            assert_eq!(state.sums.migrations, 6);
            let mut free = Model { max_migrations: usize::MAX, ..with_costs_of(model) };
            free.worth_s = 0.0;
            let mut state = Draft::new(&free, tasks, model.present, 1.6 * mean);
            by_gain(&mut state);
            assert_eq!(state.sums.over_s, 0.0, "{:?}", state.time);
        });
    }

    fn with_costs_of<'a>(m: &Model<'a>) -> Model<'a> {
        Model {
            costs: super::super::model::Costs::new(
                m.cluster,
                [m.costs.one.message_s, m.costs.one.byte_s],
                0.0,
            ),
            computes_s: m.computes_s.clone(),
            ..*m
        }
    }
}
