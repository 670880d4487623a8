//! `treematch`: tasks grouped by communication down the tree of the machine (after Jeannot and
//! Mercier, "Near-Optimal Placement of MPI Processes on Hierarchical NUMA Architectures", Euro-Par
//! 2010).
//!
//! Invariant: at each vertex of the tree (hosts, nodes, caches, cores) the vertex's tasks are
//! shared out to its children in proportion to the children's speed, each child's share within one
//! task of that. Present places are not looked at, but for tasks that are not movable.
//!
//! TreeMatch groups from the leaves up, equally many processes to a group, and tries many groups.
//! Here groups grow from the root down and by load: a group starts with the task that has the most
//! to do with those already placed, at the rim of the graph at first, and takes the task that has
//! the most to do with it, until its share is reached. So it is O((n + e) log n) a level, and a
//! core gets a share of the load, not of the tasks.

use super::{Effort, Hurry, MapperInfo, Request, movable, tree};
use evenly_cluster::{Cluster, CoreIndex};
use evenly_model::{TaskGraph, TaskIndex};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};

/// `treematch`: groups tasks by communication, level by level of the machine.
pub(super) const TREEMATCH: MapperInfo = MapperInfo {
    name: "treematch",
    about: "tasks grouped by communication, down the tree of nodes, caches and cores",
    effort: Effort::EveryCore,
    map: treematch,
};

/// No group, or not looked at.
const NONE: usize = usize::MAX;

/// Groups; see the module.
pub(super) fn treematch(request: &Request<'_>) -> Vec<CoreIndex> {
    let Request { graph, cluster, present, stop, .. } = *request;
    // Tasks without load count a little, so that they are shared out too.
    let least = graph.load_s() / graph.len() as f64 * 1e-3;
    let least = if least > 0.0 { least } else { 1.0 };
    let mut grouping = Grouping {
        hurry: Hurry::new(stop),
        graph,
        cluster,
        weights: graph.tasks().iter().map(|t| t.load_s.max(least)).collect(),
        mapping: present.to_vec(),
        vertex: vec![0; graph.len()],
        vertices: 0,
        group: vec![NONE; graph.len()],
    };
    let fixed = (0..graph.len()).filter(|&t| !graph.tasks()[t].movable).collect();
    let cores: Vec<CoreIndex> = (0..cluster.cores().len()).collect();
    grouping.share_out(&movable(graph), fixed, &cores, 0);
    grouping.mapping
}

struct Grouping<'a> {
    hurry: Hurry<'a>,
    graph: &'a TaskGraph,
    cluster: &'a Cluster,
    weights: Vec<f64>,
    mapping: Vec<CoreIndex>,
    /// The vertex whose tasks a task was last among.
    vertex: Vec<usize>,
    vertices: usize,
    /// The child that a task goes to.
    group: Vec<usize>,
}

impl Grouping<'_> {
    /// Places tasks on the cores of a vertex, whose children are those of `level`. `fixed` are
    /// there already.
    fn share_out(
        &mut self,
        tasks: &[TaskIndex],
        fixed: Vec<TaskIndex>,
        cores: &[CoreIndex],
        level: usize,
    ) {
        if let [core] = *cores {
            for &t in tasks {
                self.mapping[t] = core;
            }
            return;
        }
        let children = tree::children(self.cluster, cores, level);
        if children.len() == 1 {
            return self.share_out(tasks, fixed, cores, level + 1);
        }
        self.split(tasks, &fixed, &children);
        if self.hurry.after(0) {
            return;
        }
        let mut parts = vec![(Vec::new(), Vec::new()); children.len()];
        for &t in tasks {
            parts[self.group[t]].0.push(t);
        }
        for t in fixed {
            parts[self.group[t]].1.push(t);
        }
        for (cores, (tasks, fixed)) in children.iter().zip(parts) {
            self.share_out(&tasks, fixed, cores, level + 1);
        }
    }

    /// Sets the group of each task; not of all where it is to stop.
    fn split(&mut self, tasks: &[TaskIndex], fixed: &[TaskIndex], children: &[Vec<CoreIndex>]) {
        self.vertices += 1;
        let here = self.vertices;
        let mut child_of = vec![NONE; self.cluster.cores().len()];
        for (g, cores) in children.iter().enumerate() {
            for &c in cores {
                child_of[c] = g;
            }
        }
        let speed =
            |cores: &Vec<CoreIndex>| cores.iter().map(|&c| self.cluster.cores()[c].speed).sum();
        let speeds: Vec<f64> = children.iter().map(speed).collect();
        let mut filled = vec![0.0; children.len()];
        for &t in tasks {
            (self.vertex[t], self.group[t]) = (here, NONE);
        }
        for &t in fixed {
            (self.vertex[t], self.group[t]) = (here, child_of[self.mapping[t]]);
            filled[self.group[t]] += self.weights[t];
        }
        if self.hurry.after(child_of.len() + 2 * tasks.len()) {
            return;
        }
        let order = self.rim_first(tasks, here);
        let mut next = order.iter().copied();
        // How much each task has to do with those that have a group.
        let mut rim = Frontier::default();
        let mut fixed_of = vec![Vec::new(); children.len()];
        for &t in fixed {
            self.grow(t, here, &mut rim);
            fixed_of[self.group[t]].push(t);
        }
        let mut left: f64 = tasks.iter().chain(fixed).map(|&t| self.weights[t]).sum();
        let mut speed_left: f64 = speeds.iter().sum();
        // Those with fixed tasks first, or others would take the tasks that belong to these.
        let mut turns: Vec<usize> = (0..children.len()).collect();
        turns.sort_by(|&a, &b| filled[b].total_cmp(&filled[a]));
        for (turn, &g) in turns.iter().enumerate() {
            let share = left * speeds[g] / speed_left;
            let mut near = Frontier::default();
            for &t in &fixed_of[g] {
                self.grow(t, here, &mut near);
            }
            loop {
                // Hash maps and heaps are dear.
                if self.hurry.after(16) {
                    return;
                }
                let open = |t: TaskIndex| self.group[t] == NONE;
                let t = near.most(open).or_else(|| rim.most(open));
                let Some(t) = t.or_else(|| next.find(|&t| open(t))) else { break };
                // The last takes what is left; the others stop where a task more would take them
                // further from their share than they are.
                let last = turn + 1 == children.len();
                if !last && filled[g] + self.weights[t] / 2.0 > share {
                    rim.put_back(t);
                    break;
                }
                self.group[t] = g;
                filled[g] += self.weights[t];
                self.grow(t, here, &mut near);
                self.grow(t, here, &mut rim);
            }
            left -= filled[g];
            speed_left -= speeds[g];
        }
    }

    /// Updates the neighbours of a task that has got a group.
    fn grow(&self, t: TaskIndex, here: usize, frontier: &mut Frontier) {
        for link in self.graph.links(t) {
            if self.vertex[link.with] == here && self.group[link.with] == NONE {
                frontier.add(link.with, link.received + link.sent);
            }
        }
    }

    /// The tasks of a vertex in breadth-first order from one that is far from others: what such a
    /// search from the first task finds last.
    fn rim_first(&self, tasks: &[TaskIndex], here: usize) -> Vec<TaskIndex> {
        let mut back = self.breadth_first(tasks, here);
        back.reverse();
        self.breadth_first(&back, here)
    }

    fn breadth_first(&self, starts: &[TaskIndex], here: usize) -> Vec<TaskIndex> {
        let mut seen = HashSet::with_capacity(starts.len());
        let mut order = Vec::with_capacity(starts.len());
        let mut queue = VecDeque::new();
        for &start in starts {
            if seen.insert(start) {
                queue.push_back(start);
            }
            while let Some(t) = queue.pop_front() {
                order.push(t);
                let links = self.graph.links(t).len();
                if self.hurry.after(4 * (1 + links)) {
                    return order;
                }
                for link in self.graph.links(t) {
                    let u = link.with;
                    let inside = self.vertex[u] == here && self.group[u] == NONE;
                    if inside && seen.insert(u) {
                        queue.push_back(u);
                    }
                }
            }
        }
        order
    }
}

/// Tasks by how much they have to do with a group; of equal ones the first.
#[derive(Default)]
struct Frontier {
    amount: HashMap<TaskIndex, f64>,
    heap: BinaryHeap<(u64, Reverse<TaskIndex>)>,
}

impl Frontier {
    fn add(&mut self, t: TaskIndex, messages: f64) {
        let amount = self.amount.entry(t).or_insert(0.0);
        *amount += messages;
        self.heap.push((amount.to_bits(), Reverse(t)));
    }

    /// The task with the most, which is taken off.
    fn most(&mut self, open: impl Fn(TaskIndex) -> bool) -> Option<TaskIndex> {
        while let Some((amount, Reverse(t))) = self.heap.pop() {
            if open(t) && self.amount.get(&t).is_some_and(|a| a.to_bits() == amount) {
                return Some(t);
            }
        }
        None
    }

    /// A task that was taken off is not taken after all.
    fn put_back(&mut self, t: TaskIndex) {
        self.add(t, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Options, objectives};
    use super::*;
    use evenly_model::{Edge, Task};

    fn treematch(graph: &TaskGraph, cluster: &Cluster, present: &[CoreIndex]) -> Vec<CoreIndex> {
        let options = Options::default();
        super::treematch(&Request::timeless(graph, cluster, present, &options))
    }

    /// Cliques of eight, tied to the next by one edge, their tasks numbered far apart.
    fn cliques(count: u64) -> TaskGraph {
        let id = |clique: u64, i: u64| i * count + clique;
        let task = |id| Task { id, load_s: 1.0, size_bytes: 0.0, core: None, movable: true };
        let mut edges = Vec::new();
        let edge = |from, to, messages| Edge { from, to, messages, bytes: 0.0 };
        for c in 0..count {
            for i in 0..8 {
                edges.extend((0..i).map(|j| edge(id(c, i), id(c, j), 10.0)));
            }
            edges.push(edge(id(c, 7), id((c + 1) % count, 0), 1.0));
        }
        TaskGraph::new((0..8 * count).map(task).collect(), &edges).unwrap()
    }

    #[test]
    fn tasks_that_talk_to_each_other_are_together() {
        let g = cliques(8);
        let c = Cluster::even(4, 2, 2.0).unwrap();
        let present = vec![0; g.len()];
        let o = objectives(&g, &c, &present, &treematch(&g, &c, &present));
        // Each clique on a core: only the ties between cliques are left, four of them within a
        // node.
        assert_eq!((o.imbalance, o.remote_messages, o.nuco_messages), (0.0, 4.0, 12.0));
    }

    #[test]
    fn shares_follow_the_load_and_fixed_tasks_attract() {
        let mut tasks = cliques(2).tasks().to_vec();
        for t in &mut tasks {
            // The clique of the odd ones is pinned to the last core, but for one task.
            (t.movable, t.load_s) = (t.id % 2 == 0 || t.id == 15, 2.0);
        }
        let g = cliques(2);
        let edges: Vec<Edge> = (0..g.len())
            .flat_map(|t| g.links(t).iter().map(move |l| (t, l)))
            .map(|(t, l)| Edge {
                from: l.with as u64,
                to: t as u64,
                messages: l.received,
                bytes: 0.0,
            })
            .collect();
        let g = TaskGraph::new(tasks, &edges).unwrap();
        let c = Cluster::even(2, 1, 2.0).unwrap();
        let present: Vec<CoreIndex> = (0..16).map(|t| t % 2).collect();
        assert_eq!(treematch(&g, &c, &present), present);
        // As it would be if nothing else held the odd task.
        let at = treematch(&g, &c, &[1; 16]);
        assert_eq!((at[15], at.iter().filter(|&&c| c == 0).count()), (1, 8));
    }
}
