//! `greedy-comm`: greedy that counts messages, on a machine without distances, as Charm++'s GreedyCommLB does
//! (`src/ck-ldb/GreedyCommLB.C`; paper, section V-C).
//!
//! # The model
//! A message between two cores takes CPU time of both, [`CommCost::message`], and so does each of its bytes,
//! [`CommCost::byte_s`]. What a core has to do is the loads of its tasks, and what messages to and from tasks
//! on other cores take; only tasks that have been placed count. One in the list after the other, the heaviest
//! first, goes to the core that has least to do with it; of equal ones to the one with fewest tasks, then the
//! lowest. The cores of its partners have more to do from then on.
//!
//! Invariant: present places are not looked at, but for tasks that are not movable.
//!
//! Where it departs from Charm++: cores may differ in speed, which what a core has to do is divided by; ties go
//! to cores with fewer tasks (there to the next in the ring of cores); and of tasks that may not be moved both ends
//! pay for their messages (there the one that comes first in the list).
//!
//! Time: O((n + e) log m), as only the core that has least to do and those of partners are looked at: on all
//! others a task costs the same.

use super::greedy::{Ends, Order};
use super::{Alpha, Effort, Hurry, MapperInfo, Request, heaviest_first};
use evenly_cluster::CoreIndex;
use evenly_model::{Link, TaskGraph};

/// `greedy-comm`: as `greedy`, with what messages cost.
pub(super) const GREEDY_COMM: MapperInfo = MapperInfo {
    name: "greedy-comm",
    about: "heaviest task first, to the core of least load and messages from other cores",
    effort: Effort::EveryTask,
    map: greedy_comm,
};

/// CPU time that Charm++ charges for a message, in seconds (`PER_MESSAGE_SEND_OVERHEAD_DEFAULT`; its option
/// `+LBAlpha`).
const MESSAGE_S: f64 = 3.5e-5;
/// And for a byte (`PER_BYTE_SEND_OVERHEAD_DEFAULT`; `+LBBeta`).
const BYTE_S: f64 = 8.5e-9;

/// What messages between cores take under `greedy-comm`, at either end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CommCost {
    /// A message. Default 35 us, as in Charm++.
    pub message: Alpha,
    /// A byte, in seconds. Default 8.5 ns, as in Charm++. Where messages are scaled ([`Alpha::Auto`]) it keeps
    /// its proportion to one of 35 us. Less than 0 and not-a-number are 0.
    pub byte_s: f64,
}

impl Default for CommCost {
    fn default() -> Self {
        Self { message: Alpha::Fixed(MESSAGE_S), byte_s: BYTE_S }
    }
}

impl CommCost {
    /// Seconds a message and seconds a byte, for this graph.
    fn seconds(&self, graph: &TaskGraph) -> (f64, f64) {
        let message_s = self.message.seconds(graph);
        let byte_s = if self.byte_s.is_finite() { self.byte_s.max(0.0) } else { 0.0 };
        match self.message {
            Alpha::Auto => (message_s, byte_s * message_s / MESSAGE_S),
            Alpha::Fixed(_) => (message_s, byte_s),
        }
    }
}

fn greedy_comm(request: &Request<'_>) -> Vec<CoreIndex> {
    let Request { graph, cluster, present, options, stop, .. } = *request;
    let hurry = Hurry::new(stop);
    let (message_s, byte_s) = options.greedy_comm.seconds(graph);
    let takes =
        |l: &Link| message_s * (l.received + l.sent) + byte_s * (l.received_bytes + l.sent_bytes);
    let fixed: Vec<bool> = graph.tasks().iter().map(|t| !t.movable).collect();
    let mut mapping = present.to_vec();
    let mut cores = Ends::new(cluster);
    for (t, task) in graph.tasks().iter().enumerate().filter(|&(t, _)| fixed[t]) {
        let apart = |l: &&Link| fixed[l.with] && mapping[l.with] != mapping[t];
        let messages_s: f64 = graph.links(t).iter().filter(apart).map(takes).sum();
        cores.add(mapping[t], task.load_s + messages_s);
    }
    let mut placed = fixed;
    let mut order = Order::new(&cores);
    // What messages between the task at hand and each core take, and which cores these are.
    let mut with_core = vec![0.0; cluster.cores().len()];
    let mut candidates: Vec<CoreIndex> = Vec::new();
    for t in heaviest_first(graph) {
        if hurry.after(1 + graph.links(t).len()) {
            break;
        }
        let mut all = graph.tasks()[t].load_s;
        for link in graph.links(t).iter().filter(|l| placed[l.with]) {
            let at = mapping[link.with];
            with_core[at] += takes(link);
            all += takes(link);
            candidates.push(at);
        }
        candidates.push(order.first(&cores, all));
        let adds = |c: CoreIndex| (all - with_core[c]).max(0.0);
        // There is a candidate: the core that ends it first, were all of its partners elsewhere.
        let best = candidates.iter().map(|&c| cores.after(c, adds(c))).min();
        let to = best.map_or(present[t], |end| end.2);
        cores.add(to, adds(to));
        for c in candidates.drain(..) {
            with_core[c] = 0.0;
        }
        for link in graph.links(t).iter().filter(|l| placed[l.with] && mapping[l.with] != to) {
            cores.add_messages(mapping[link.with], takes(link));
            order.put(&cores, mapping[link.with]);
        }
        order.put(&cores, to);
        mapping[t] = to;
        placed[t] = true;
    }
    mapping
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::*;
    use evenly_cluster::Cluster;
    use evenly_model::stats::Random;
    use evenly_model::{Edge, Task};

    fn task(id: u64, load_s: f64) -> Task {
        Task { id, load_s, size_bytes: 0.0, core: None, movable: true }
    }

    fn map(graph: &TaskGraph, cluster: &Cluster, cost: CommCost) -> Vec<CoreIndex> {
        let options = Options { greedy_comm: cost, ..Options::default() };
        greedy_comm(&Request::timeless(graph, cluster, &vec![0; graph.len()], &options))
    }

    #[test]
    fn a_partner_attracts_as_much_as_messages_and_bytes_take() {
        let edge = |from, to| Edge { from, to, messages: 100.0, bytes: 1e8 };
        let tasks = (0..4).map(|id| task(id, 1.0)).collect();
        let graph = TaskGraph::new(tasks, &[edge(0, 2), edge(3, 1)]).unwrap();
        let cluster = Cluster::even(4, 1, 2.0).unwrap();
        let map = |message_s, byte_s| {
            map(&graph, &cluster, CommCost { message: Alpha::Fixed(message_s), byte_s })
        };
        // On its partner's core a task ends a second later, and saves 100 messages and 100 MB.
        assert_eq!(map(0.009, 0.0), [0, 1, 2, 3]);
        assert_eq!(map(0.011, 0.0), [0, 1, 0, 1]);
        assert_eq!(map(0.0, 9e-9), [0, 1, 2, 3]);
        assert_eq!(map(0.0, 11e-9), [0, 1, 0, 1]);
        assert_eq!(map(0.005, 6e-9), [0, 1, 0, 1]);
        assert_eq!(map(f64::NAN, -1.0), [0, 1, 2, 3]);
    }

    #[test]
    fn messages_are_load_of_both_cores() {
        let loads = [1.0, 0.95, 0.9, 0.3, 0.29];
        let tasks = (0..).zip(loads).map(|(id, load_s)| task(id, load_s)).collect();
        let edge = Edge { from: 0, to: 1, messages: 30.0, bytes: 0.0 };
        let graph = TaskGraph::new(tasks, &[edge]).unwrap();
        let cluster = Cluster::even(1, 3, 1.0).unwrap();
        let map = |message_s| {
            map(&graph, &cluster, CommCost { message: Alpha::Fixed(message_s), byte_s: 0.0 })
        };
        // The first two cores have 1.0 and 0.95 s, or 1.3 and 1.25 s with their messages.
        assert_eq!(map(0.0), [0, 1, 2, 2, 1]);
        assert_eq!(map(0.01), [0, 1, 2, 2, 2]);
    }

    #[test]
    fn costs_are_those_of_charm_and_scale() {
        let edge = Edge { from: 0, to: 1, messages: 10.0, bytes: 0.0 };
        let graph = TaskGraph::new(vec![task(0, 1.0), task(1, 1.0)], &[edge]).unwrap();
        assert_eq!(CommCost::default().seconds(&graph), (35e-6, 8.5e-9));
        // All messages together are a tenth of all load.
        let scaled = CommCost { message: Alpha::Auto, ..CommCost::default() };
        let (message_s, byte_s) = scaled.seconds(&graph);
        assert!((message_s - 0.02).abs() < 1e-12);
        assert!((byte_s / message_s - 8.5e-9 / 35e-6).abs() < 1e-12);
    }

    /// The model as it is written down, with a look at every core for every task.
    fn simply(graph: &TaskGraph, cluster: &Cluster, cost: CommCost) -> Vec<CoreIndex> {
        let (message_s, byte_s) = cost.seconds(graph);
        let takes = |l: &Link| {
            message_s * (l.received + l.sent) + byte_s * (l.received_bytes + l.sent_bytes)
        };
        let (cores, mut at) = (cluster.cores(), vec![None::<CoreIndex>; graph.len()]);
        let mut todo: Vec<(f64, usize)> = vec![(0.0, 0); cores.len()];
        for t in heaviest_first(graph) {
            let links = || graph.links(t).iter().filter_map(|l| Some((at[l.with]?, takes(l))));
            let adds = |c: CoreIndex| -> f64 {
                graph.tasks()[t].load_s + links().filter(|l| l.0 != c).map(|l| l.1).sum::<f64>()
            };
            let end = |c: CoreIndex| (todo[c].0 + adds(c)) / cores[c].speed;
            let order = |a: &CoreIndex, b: &CoreIndex| {
                end(*a).total_cmp(&end(*b)).then((todo[*a].1, a).cmp(&(todo[*b].1, b)))
            };
            let to = (0..cores.len()).min_by(order).unwrap();
            let (more, others): (f64, Vec<_>) = (adds(to), links().filter(|l| l.0 != to).collect());
            todo[to] = (todo[to].0 + more, todo[to].1 + 1);
            others.into_iter().for_each(|(c, takes)| todo[c].0 += takes);
            at[t] = Some(to);
        }
        at.into_iter().map(Option::unwrap).collect()
    }

    /// Amounts are halves and quarters, so that sums are the same in whatever order.
    #[test]
    fn it_is_the_model() {
        let mut random = Random::new(9);
        for _ in 0..200 {
            let n = 2 + random.below(40);
            let tasks = (0..n).map(|t| task(t as u64, random.below(16) as f64 / 4.0)).collect();
            let edges: Vec<Edge> = (0..2 * n)
                .map(|_| (random.below(n) as u64, random.below(n) as u64, random.below(4)))
                .filter(|e| e.0 != e.1)
                .map(|(from, to, k)| Edge { from, to, messages: k as f64, bytes: 2.0 * k as f64 })
                .collect();
            let graph = TaskGraph::new(tasks, &edges).unwrap();
            let even = Cluster::even(1, 1 + random.below(8) as u32, 1.0).unwrap();
            let cost = CommCost { message: Alpha::Fixed(0.25), byte_s: 0.125 };
            assert_eq!(map(&graph, &even, cost), simply(&graph, &even, cost));
        }
    }
}
