//! Local searches at the borders between cores, for groups that are there (`kway`).
//!
//! Three things are done, each with the place of a vertex that has the greatest gain of those that have room: the
//! cores that it has to do with are looked at, and no others, so that what is inside a core takes no time.
//!
//! - **evening out**: cores above the bound give away what loses least for its load, and where none beside them has
//!   room for any of it, exchange it for less;
//! - **climbing**: the highest gain first, as long as there is one (the greedy refinement of Karypis and Kumar,
//!   "Multilevel k-way partitioning scheme for irregular graphs", 1998);
//! - **local searches**: from a vertex at the border, by lot, to those near it, also where that loses; what came after
//!   the best moment is undone (Sanders and Schulz, "Engineering multilevel graph partitioning algorithms", 2011).
//!
//! Invariant: climbing and local searches make the cost of communication and migrations no more, and no core goes
//! above the bound but those that take from one that is further above it.

use super::buckets::Spent;
use super::distances::Distances;
use super::graph::{Graph, NONE};
use super::model::Model;
use super::multilevel::in_order;
use evenly_model::stats::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Rounds in which cores above the bound give something away, at most.
const EVENING: usize = 12;
/// The part of all cores that may be above the bound then, so that exchanges take them below it: with few tasks a core
/// there are many, and passes over all tasks that take these below it gain more.
const FEW: f64 = 0.01;
/// Rounds of climbing, and of local searches, at most.
const CLIMBING: usize = 4;
const SEARCHING: usize = 3;
/// The gain below which no other round is made, as a part of what communication between cores costs.
const LEAST_GAIN: f64 = 5e-3;
/// Moves without a gain after which a local search ends.
const PATIENCE: usize = 10;

/// Where a vertex is at home: the core where all of its tasks are at present, or [`NONE`], and what it costs to be
/// elsewhere.
pub(super) type Home = (u32, f64);

/// Groups that are being made better.
pub(super) struct Borders<'l, 'm> {
    model: &'l Model<'m>,
    distances: &'l Distances,
    graph: &'l Graph,
    homes: &'l [Home],
    pub(super) at: Vec<u32>,
    /// How long each core takes.
    time: Vec<f64>,
    bound_s: f64,
    /// What the vertex at hand has to do with each core, and of each core its place there, where its stamp is the
    /// present one.
    near: Vec<(u32, f64)>,
    place: Vec<(u32, u32)>,
    stamp: u32,
    /// The round in which each vertex was moved last.
    moved_in: Vec<u32>,
    round: u32,
    heap: BinaryHeap<(i64, Reverse<u32>)>,
}

impl<'l, 'm> Borders<'l, 'm> {
    pub(super) fn new(
        (model, distances): (&'l Model<'m>, &'l Distances),
        (graph, homes): (&'l Graph, &'l [Home]),
        at: Vec<u32>,
        bound_s: f64,
    ) -> Self {
        let cores = model.cluster.cores();
        let mut time = vec![0.0; cores.len()];
        for (load, &c) in graph.loads.iter().zip(&at) {
            time[c as usize] += load / cores[c as usize].speed;
        }
        Self {
            model,
            distances,
            graph,
            homes,
            at,
            time,
            bound_s,
            near: Vec::new(),
            place: vec![(0, 0); cores.len()],
            stamp: 0,
            moved_in: vec![0; graph.len()],
            round: 0,
            heap: BinaryHeap::new(),
        }
    }

    fn time_of(&self, core: u32) -> f64 {
        self.time[core as usize]
    }

    fn is_over(&self, core: u32) -> bool {
        self.time_of(core) > self.bound_s
    }

    /// Whether a vertex has to do with another core than its own.
    fn is_border(&self, v: usize) -> bool {
        let own = self.at[v];
        self.graph.links(v).iter().any(|l| self.at[l.0 as usize] != own)
    }

    /// What a vertex has to do with its own core, which is the first, and with others.
    fn look_near(&mut self, v: usize) {
        let own = self.at[v];
        self.near.clear();
        self.near.push((own, 0.0));
        self.stamp += 1;
        self.place[own as usize] = (self.stamp, 0);
        for &(u, weight) in self.graph.links(v) {
            let core = self.at[u as usize];
            let place = &mut self.place[core as usize];
            if place.0 != self.stamp {
                *place = (self.stamp, self.near.len() as u32);
                self.near.push((core, 0.0));
            }
            self.near[place.1 as usize].1 += weight;
        }
    }

    /// What the vertex that was looked near costs on a core.
    fn cost_s(&self, v: usize, core: u32) -> f64 {
        let near = self.near.iter();
        let far: f64 = near.map(|n| n.1 * self.distances.between(core, n.0)).sum();
        let (home, leaves_s) = self.homes[v];
        far * self.model.per_core + if core == home { 0.0 } else { leaves_s }
    }

    /// The core where a vertex gains most, also where that is a loss, of those that it has to do with and that have
    /// room, or less than its own, if that is above the bound.
    fn best_move(&mut self, v: u32, spent: &mut Spent<'_>) -> Option<(f64, u32)> {
        let v = v as usize;
        if self.graph.fixed[v] != NONE {
            return None;
        }
        // Most are inside a core: these are told first, without sums.
        if !self.is_border(v) {
            spent.looks += self.graph.links(v).len() + 1;
            return None;
        }
        self.look_near(v);
        spent.looks += self.graph.links(v).len() + self.near.len();
        let own = self.at[v];
        let here_s = self.cost_s(v, own);
        let mut best: Option<(f64, u32)> = None;
        for &(core, _) in &self.near[1..] {
            let then_s = self.time_of(core) + self.takes_s(v, core);
            let is_less = self.is_over(own) && then_s < self.time_of(own);
            if then_s > self.bound_s && !is_less {
                continue;
            }
            let gain_s = here_s - self.cost_s(v, core);
            let is_better = |b: (f64, u32)| {
                gain_s > b.0 || gain_s == b.0 && self.time_of(core) < self.time_of(b.1)
            };
            if best.is_none_or(is_better) {
                best = Some((gain_s, core));
            }
        }
        best
    }

    fn takes_s(&self, v: usize, core: u32) -> f64 {
        self.graph.loads[v] / self.model.cluster.cores()[core as usize].speed
    }

    fn shift(&mut self, v: u32, to: u32) {
        let v = v as usize;
        let from = self.at[v];
        self.time[from as usize] -= self.takes_s(v, from);
        self.time[to as usize] += self.takes_s(v, to);
        self.at[v] = to;
    }

    /// Cores above the bound give away what loses least for its load.
    pub(super) fn even_out(&mut self, spent: &mut Spent<'_>) {
        for _ in 0..EVENING {
            self.heap.clear();
            for v in 0..self.at.len() as u32 {
                self.put_for_load(v, spent);
            }
            let mut has_moved = false;
            while let Some((key, Reverse(v))) = self.heap.pop() {
                if !self.is_over(self.at[v as usize]) {
                    continue;
                }
                let Some((gain_s, to)) = self.best_move(v, spent) else { continue };
                let now = in_order(gain_s / self.graph.loads[v as usize]);
                if now < key {
                    self.heap.push((now, Reverse(v)));
                    continue;
                }
                self.shift(v, to);
                has_moved = true;
                let graph = self.graph;
                for &(u, _) in graph.links(v as usize) {
                    self.put_for_load(u, spent);
                }
            }
            if !has_moved {
                break;
            }
        }
        self.exchange(spent);
    }

    /// Cores that are above the bound by less than what any of their vertices takes, among such as have no room for
    /// one, exchange vertices.
    fn exchange(&mut self, spent: &mut Spent<'_>) {
        let above: Vec<u32> = (0..self.time.len() as u32).filter(|&c| self.is_over(c)).collect();
        if above.is_empty() || above.len() as f64 > FEW * self.time.len() as f64 {
            return;
        }
        let mut on = vec![Vec::new(); self.time.len()];
        for (v, &c) in self.at.iter().enumerate() {
            if self.graph.fixed[v] == NONE {
                on[c as usize].push(v as u32);
            }
        }
        for &core in &above {
            for _ in 0..EVENING {
                if !self.is_over(core) {
                    break;
                }
                let Some((v, u)) = self.best_exchange(core, &on, spent) else { break };
                let to = self.at[u as usize];
                self.shift(v, to);
                self.shift(u, core);
                on[core as usize].retain(|&w| w != v);
                on[to as usize].retain(|&w| w != u);
                on[core as usize].push(u);
                on[to as usize].push(v);
            }
        }
    }

    /// What a core above the bound gives and takes so that it is the least above it, and of that what loses least,
    /// while the other stays below it.
    fn best_exchange(
        &mut self,
        core: u32,
        on: &[Vec<u32>],
        spent: &mut Spent<'_>,
    ) -> Option<(u32, u32)> {
        let mut given: Vec<(u32, u32, f64)> = Vec::new();
        for &v in &on[core as usize] {
            self.look_near(v as usize);
            spent.looks += self.graph.links(v as usize).len() + self.near.len();
            let here_s = self.cost_s(v as usize, core);
            for &(to, _) in &self.near[1..] {
                given.push((to, v, here_s - self.cost_s(v as usize, to)));
            }
        }
        given.sort_by_key(|g| g.0);
        let mut best: Option<((f64, f64), (u32, u32))> = None;
        for given in given.chunk_by(|a, b| a.0 == b.0) {
            let with = given[0].0;
            for &u in &on[with as usize] {
                self.look_near(u as usize);
                spent.looks += self.graph.links(u as usize).len() + self.near.len() + given.len();
                let gain_s = self.cost_s(u as usize, with) - self.cost_s(u as usize, core);
                for &(_, v, gives_s) in given {
                    let takes_s =
                        |core| self.takes_s(u as usize, core) - self.takes_s(v as usize, core);
                    let here_s = self.time_of(core) + takes_s(core);
                    if takes_s(core) >= 0.0 || self.time_of(with) - takes_s(with) > self.bound_s {
                        continue;
                    }
                    let worth = ((here_s - self.bound_s).max(0.0), -gain_s - gives_s);
                    if best.is_none_or(|b| worth < b.0) {
                        best = Some((worth, (v, u)));
                    }
                }
            }
        }
        best.map(|b| b.1)
    }

    fn put_for_load(&mut self, v: u32, spent: &mut Spent<'_>) {
        if self.is_over(self.at[v as usize])
            && let Some((gain_s, _)) = self.best_move(v, spent)
        {
            let key = in_order(gain_s / self.graph.loads[v as usize]);
            self.heap.push((key, Reverse(v)));
        }
    }

    /// Climbs, and then searches from all borders, until there is little to gain.
    pub(super) fn improve(&mut self, random: &mut Random, spent: &mut Spent<'_>) {
        for _ in 0..CLIMBING {
            if spent.all() || self.climb(spent) < self.least_s() {
                break;
            }
        }
        for _ in 0..SEARCHING {
            if spent.all() || self.search(random, spent) < self.least_s() {
                break;
            }
        }
    }

    /// The least gain that is worth a round.
    fn least_s(&self) -> f64 {
        let of = |v: usize| {
            let links = self.graph.links(v).iter();
            links.filter(|l| self.at[l.0 as usize] != self.at[v]).map(|l| l.1).sum::<f64>()
        };
        let cut: f64 = (0..self.graph.len()).map(of).sum();
        LEAST_GAIN * cut / 2.0 * self.model.per_core
    }

    /// The highest gain first, and of moves without any those to cores that have less; each vertex once. What was
    /// gained.
    fn climb(&mut self, spent: &mut Spent<'_>) -> f64 {
        self.round += 1;
        self.heap.clear();
        for v in 0..self.at.len() as u32 {
            self.put(v, 0.0, spent);
        }
        let mut gained_s = 0.0;
        while let Some((key, Reverse(v))) = self.heap.pop() {
            if self.moved_in[v as usize] == self.round {
                continue;
            }
            let Some((gain_s, to)) = self.best_move(v, spent) else { continue };
            if in_order(gain_s) < key {
                if gain_s >= 0.0 {
                    self.heap.push((in_order(gain_s), Reverse(v)));
                }
                continue;
            }
            let then_s = self.time_of(to) + self.takes_s(v as usize, to);
            if gain_s <= 0.0 && then_s >= self.time_of(self.at[v as usize]) {
                continue;
            }
            self.move_with_others(v, to, 0.0, spent);
            gained_s += gain_s;
        }
        gained_s
    }

    /// Searches from all that is at a border, by lot; what they gained.
    fn search(&mut self, random: &mut Random, spent: &mut Spent<'_>) -> f64 {
        self.round += 1;
        let all = 0..self.at.len() as u32;
        let mut border: Vec<u32> = all.filter(|&v| self.is_border(v as usize)).collect();
        spent.looks += self.graph.looks() / 2;
        random.shuffle(&mut border);
        let mut gained_s = 0.0;
        for (i, &v) in border.iter().enumerate() {
            if i % 64 == 63 && spent.all() {
                break;
            }
            gained_s += self.search_from(v, spent);
        }
        gained_s
    }

    fn search_from(&mut self, seed: u32, spent: &mut Spent<'_>) -> f64 {
        self.heap.clear();
        self.put(seed, f64::NEG_INFINITY, spent);
        let (mut gained_s, mut best_s, mut best_length) = (0.0, 0.0, 0);
        // Where vertices were that have been moved, in order.
        let mut log: Vec<(u32, u32)> = Vec::new();
        while let Some((key, Reverse(v))) = self.heap.pop() {
            if self.moved_in[v as usize] == self.round {
                continue;
            }
            let Some((gain_s, to)) = self.best_move(v, spent) else { continue };
            if in_order(gain_s) < key {
                self.heap.push((in_order(gain_s), Reverse(v)));
                continue;
            }
            log.push((v, self.at[v as usize]));
            self.move_with_others(v, to, f64::NEG_INFINITY, spent);
            gained_s += gain_s;
            if gained_s > best_s {
                (best_s, best_length) = (gained_s, log.len());
            } else if log.len() - best_length >= PATIENCE {
                break;
            }
        }
        for &(v, was) in log[best_length..].iter().rev() {
            self.shift(v, was);
        }
        best_s
    }

    /// Moves a vertex, and puts those beside it where they gain as much now.
    fn move_with_others(&mut self, v: u32, to: u32, least_s: f64, spent: &mut Spent<'_>) {
        self.moved_in[v as usize] = self.round;
        self.shift(v, to);
        let graph = self.graph;
        for &(u, _) in graph.links(v as usize) {
            self.put(u, least_s, spent);
        }
    }

    /// Puts a vertex where its gain is in order, unless it is less than this, or has been moved in this round.
    fn put(&mut self, v: u32, least_s: f64, spent: &mut Spent<'_>) {
        if self.moved_in[v as usize] != self.round
            && let Some((gain_s, _)) = self.best_move(v, spent)
            && gain_s >= least_s
        {
            self.heap.push((in_order(gain_s), Reverse(v)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Options, Request};
    use super::super::multilevel::least_load;
    use super::*;
    use evenly_cluster::Cluster;
    use evenly_model::{Edge, Task, TaskGraph};

    /// One core of a hundred is above the bound by less than any task, and the one beside it has room for none.
    #[test]
    fn what_has_no_room_is_exchanged() {
        let loads = [1.0, 1.0, 1.2, 1.0, 1.0, 0.9];
        let task = |(id, &load_s)| Task {
            id: id as u64,
            load_s,
            size_bytes: 0.0,
            core: None,
            movable: true,
        };
        let tasks = loads.iter().enumerate().map(task).collect();
        let edge = |from| Edge { from, to: (from + 1) % 6, messages: 1.0, bytes: 0.0 };
        let graph = TaskGraph::new(tasks, &(0..6).map(edge).collect::<Vec<_>>()).unwrap();
        let cluster = Cluster::even(1, 100, 1.0).unwrap();
        let options = Options { received_in_loads: false, ..Options::default() };
        let present = [0, 0, 0, 1, 1, 1];
        let model = Model::new(&Request::timeless(&graph, &cluster, &present, &options));
        let (distances, graph) = (Distances::new(&model), Graph::of(&model, least_load(&model)));
        let homes = [(NONE, 0.0); 6];
        let at = vec![0, 0, 0, 1, 1, 1];
        let mut borders = Borders::new((&model, &distances), (&graph, &homes), at, 3.15);
        borders.even_out(&mut Spent { looks: 0, limit: usize::MAX, late: &|| false });
        let time = [borders.time_of(0), borders.time_of(1)];
        assert!(time.iter().all(|&t| t <= 3.15), "{time:?}");
        assert!(borders.at.iter().all(|&c| c < 2), "{:?}", borders.at);
    }
}
