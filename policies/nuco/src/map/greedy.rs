//! `greedy`: longest processing time first (Graham 1969).
//!
//! Invariant: present places are not looked at, but for tasks that are not movable: these are
//! placed before all others. Equal speeds: makespan at most 4/3 - 1/(3m) of the best one's.

use super::{Effort, Hurry, MapperInfo, Request, heaviest_first};
use evenly_cluster::{Cluster, CoreIndex};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// `greedy`: heaviest task first, to the core that ends it first.
pub(super) const GREEDY: MapperInfo = MapperInfo {
    name: "greedy",
    about: "heaviest task first, to the core that ends it first (LPT)",
    effort: Effort::EveryTask,
    map: greedy,
};

fn greedy(request: &Request<'_>) -> Vec<CoreIndex> {
    let Request { graph, cluster, present, stop, .. } = *request;
    let hurry = Hurry::new(stop);
    let mut mapping = present.to_vec();
    let mut cores = Ends::new(cluster);
    for (t, task) in graph.tasks().iter().enumerate().filter(|(_, task)| !task.movable) {
        cores.add(mapping[t], task.load_s);
    }
    let mut order = Order::new(&cores);
    for t in heaviest_first(graph) {
        if hurry.after(1) {
            break;
        }
        let load_s = graph.tasks()[t].load_s;
        let to = order.first(&cores, load_s);
        cores.add(to, load_s);
        order.put(&cores, to);
        mapping[t] = to;
    }
    mapping
}

/// When each core ends what it has been given.
pub(super) struct Ends {
    speed: Vec<f64>,
    load_s: Vec<f64>,
    tasks: Vec<usize>,
}

impl Ends {
    pub(super) fn new(cluster: &Cluster) -> Self {
        let cores = cluster.cores();
        let speed = cores.iter().map(|c| c.speed).collect();
        Self { speed, load_s: vec![0.0; cores.len()], tasks: vec![0; cores.len()] }
    }

    pub(super) fn add(&mut self, core: CoreIndex, load_s: f64) {
        self.load_s[core] += load_s / self.speed[core];
        self.tasks[core] += 1;
    }

    /// A core has more to do, of the tasks that it has.
    pub(super) fn add_messages(&mut self, core: CoreIndex, takes_s: f64) {
        self.load_s[core] += takes_s / self.speed[core];
    }

    /// When a core would end a task more: in seconds, then the count of its tasks, then its place.
    pub(super) fn after(&self, core: CoreIndex, load_s: f64) -> End {
        let at = self.load_s[core] + load_s / self.speed[core];
        // Numbers that are not negative are in the order of their bits.
        (at.max(0.0).to_bits(), self.tasks[core], core)
    }
}

/// In the order of ending.
pub(super) type End = (u64, usize, CoreIndex);

/// Cores by when they end what they have, apart for each speed: of one speed, the one that ends
/// first also ends a task more first.
pub(super) struct Order(BTreeMap<u64, BinaryHeap<Reverse<End>>>);

impl Order {
    pub(super) fn new(cores: &Ends) -> Self {
        let mut order = Self(BTreeMap::new());
        for c in 0..cores.speed.len() {
            order.put(cores, c);
        }
        order
    }

    /// Says that a core's load has grown.
    pub(super) fn put(&mut self, cores: &Ends, core: CoreIndex) {
        let heap = self.0.entry(cores.speed[core].to_bits()).or_default();
        heap.push(Reverse(cores.after(core, 0.0)));
    }

    /// The core that ends a task first.
    pub(super) fn first(&mut self, cores: &Ends, load_s: f64) -> CoreIndex {
        let mut first: Option<End> = None;
        for heap in self.0.values_mut() {
            // What was put before a core's load grew is out of date.
            while let Some(&Reverse(end)) = heap.peek() {
                if end == cores.after(end.2, 0.0) {
                    let end = cores.after(end.2, load_s);
                    first = Some(first.map_or(end, |f| f.min(end)));
                    break;
                }
                heap.pop();
            }
        }
        // A cluster has a core, and each is in the heap of its speed.
        first.map_or(0, |f| f.2)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Options, objectives};
    use super::*;
    use evenly_cluster::Node;
    use evenly_model::{Task, TaskGraph};

    fn map(loads: &[f64], speeds: &[f64], fixed: &[bool]) -> (Vec<CoreIndex>, f64) {
        let task = |(id, &load_s): (usize, &f64)| {
            let movable = !fixed.get(id).copied().unwrap_or(false);
            Task { id: id as u64, load_s, size_bytes: 0.0, core: None, movable }
        };
        let graph = TaskGraph::new(loads.iter().enumerate().map(task).collect(), &[]).unwrap();
        let mut cores = Cluster::even(1, speeds.len() as u32, 1.0).unwrap().cores().to_vec();
        for (c, &speed) in cores.iter_mut().zip(speeds) {
            c.speed = speed;
        }
        let nodes = vec![Node { id: 0, host: 0 }];
        let cluster = Cluster::new(cores, nodes, Vec::new(), vec![1.0]).unwrap();
        let present = vec![0; graph.len()];
        let options = Options::default();
        let mapping = greedy(&Request::timeless(&graph, &cluster, &present, &options));
        let makespan = objectives(&graph, &cluster, &present, &mapping).makespan_s;
        (mapping, makespan)
    }

    #[test]
    fn longest_first() {
        // Graham's example: 4/3 - 1/(3m) of the best (9) is reached.
        let (mapping, makespan) = map(&[5.0, 5.0, 4.0, 4.0, 3.0, 3.0, 3.0], &[1.0; 3], &[]);
        assert_eq!((&mapping[..3], makespan), (&[0, 1, 2][..], 11.0));
    }

    #[test]
    fn a_fast_core_gets_more_and_tasks_without_load_are_spread() {
        assert_eq!(map(&[2.0, 2.0, 2.0], &[0.5, 1.0], &[]).0, [1, 0, 1]);
        assert_eq!(map(&[0.0; 4], &[1.0; 4], &[]).0, [0, 1, 2, 3]);
    }

    #[test]
    fn what_may_not_be_moved_counts_where_it_is() {
        assert_eq!(map(&[1.0, 3.0], &[1.0; 2], &[false, true]).0, [1, 0]);
    }
}
