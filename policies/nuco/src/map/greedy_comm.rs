//! `greedy-comm`: greedy that counts messages, on a machine without distances (after Charm++'s
//! GreedyCommLB; paper, section V-C).
//!
//! Invariant: present places are not looked at, but for tasks that are not movable. The heaviest
//! task first; of the core that would end it first and of the cores that hold tasks it has to do
//! with, it goes to the one of least end + alpha x messages, the messages being those, either way,
//! between it and tasks already placed on other cores. Of equal ones to the one that ends first,
//! then the lowest.
//!
//! Time: O((n + e) log m).

use super::greedy::{Ends, Order};
use super::{Effort, Hurry, MapperInfo, Request, heaviest_first};
use evenly_cluster::CoreIndex;

/// `greedy-comm`: as `greedy`, with what messages cost.
pub(super) const GREEDY_COMM: MapperInfo = MapperInfo {
    name: "greedy-comm",
    about: "heaviest task first, to the core of least load and messages from other cores",
    effort: Effort::EveryTask,
    map: greedy_comm,
};

fn greedy_comm(request: &Request<'_>) -> Vec<CoreIndex> {
    let Request { graph, cluster, present, options, stop, .. } = *request;
    let hurry = Hurry::new(stop);
    let alpha = options.alpha.seconds(graph);
    let mut placed: Vec<bool> = graph.tasks().iter().map(|t| !t.movable).collect();
    let mut mapping = present.to_vec();
    let mut cores = Ends::new(cluster);
    for (t, task) in graph.tasks().iter().enumerate().filter(|(_, task)| !task.movable) {
        cores.add(mapping[t], task.load_s);
    }
    let mut order = Order::new(&cores);
    // Messages between the task at hand and each core, and which cores these are.
    let mut with_core = vec![0.0; cluster.cores().len()];
    let mut candidates: Vec<CoreIndex> = Vec::new();
    for t in heaviest_first(graph) {
        if hurry.after(1 + graph.links(t).len()) {
            break;
        }
        let load_s = graph.tasks()[t].load_s;
        candidates.push(order.first(&cores, load_s));
        let mut all = 0.0;
        for link in graph.links(t).iter().filter(|l| placed[l.with]) {
            let at = mapping[link.with];
            with_core[at] += link.received + link.sent;
            all += link.received + link.sent;
            candidates.push(at);
        }
        let cost = |c: CoreIndex| {
            let end = cores.after(c, load_s);
            (f64::from_bits(end.0) + alpha * (all - with_core[c]), end)
        };
        let costs = candidates.iter().map(|&c| cost(c));
        let best = costs.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        // There is a candidate: the core that ends the task first.
        let to = best.map_or(present[t], |(_, end)| end.2);
        for c in candidates.drain(..) {
            with_core[c] = 0.0;
        }
        cores.add(to, load_s);
        order.put(&cores, to);
        mapping[t] = to;
        placed[t] = true;
    }
    mapping
}

#[cfg(test)]
mod tests {
    use super::super::{Alpha, Options};
    use super::*;
    use evenly_cluster::Cluster;
    use evenly_model::{Edge, Task, TaskGraph};

    #[test]
    fn a_partner_attracts_as_much_as_alpha_says() {
        let task = |id| Task { id, load_s: 1.0, size_bytes: 0.0, core: None, movable: true };
        let edge = |from, to| Edge { from, to, messages: 100.0, bytes: 0.0 };
        let graph = TaskGraph::new((0..4).map(task).collect(), &[edge(0, 2), edge(3, 1)]).unwrap();
        let cluster = Cluster::even(4, 1, 2.0).unwrap();
        let map = |alpha| {
            let options = Options { alpha: Alpha::Fixed(alpha), ..Options::default() };
            greedy_comm(&Request::timeless(&graph, &cluster, &[0; 4], &options))
        };
        // On its partner's core a task ends a second later, and saves 100 messages.
        assert_eq!(map(0.009), [0, 1, 2, 3]);
        assert_eq!(map(0.011), [0, 1, 0, 1]);
    }
}
