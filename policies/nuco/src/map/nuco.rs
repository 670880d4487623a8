//! `nuco`: NUCOLB, Algorithm 1 of the paper, and its cost function as section III-A gives it.
//!
//! Invariant: one pass over the tasks, the heaviest first; each goes to a core of least
//!
//! ```text
//! cost(c, t) = coreLoad(c)
//!            + alpha x [ r_comm(t, c) x NUCO_FACTOR(comm(t), node(c)) - l_comm(t, c) ]
//! ```
//!
//! where every other task is where it is at that moment: at its new place if it has had its turn,
//! at its present one if not.
//!
//! The terms, and what is done where the paper is silent:
//! - **l_comm(t, c)**: messages that t receives from tasks on *other* cores of the NUMA node of c.
//!   Those from tasks on c itself are neither local nor remote: so the paper's text has it, and so
//!   a core beside a partner's is a little better than the partner's own, which keeps partners from
//!   piling up.
//! - **r_comm x NUCO_FACTOR**: messages come from several nodes, each with its factor; so it is the
//!   sum over the nodes j of the senders, j not c's own, of the messages from j times the factor of
//!   c's node reading from j.
//! - **coreLoad(c)** is in seconds on c: loads over its speed. Where speeds differ, what the task
//!   itself takes longer on c than on the fastest core is added; on equal cores, which the paper
//!   has, that is 0.
//! - **Ties of tasks**: the first of the graph. **Ties of cores**: the core where the task is, then
//!   the one with the lowest place.
//! - **Tasks that are not movable** are left out of the pass, and count where they are.
//!
//! Time: O(n (m + k d) + e) for n tasks, m cores, e pairs that communicate, k nodes, d nodes that a
//! task has partners on: what the messages cost is computed once a node, and only the cores that
//! hold partners differ from the others of their node.

use super::{Alpha, Effort, Hurry, MapperInfo, Request, core_loads, heaviest_first};
use evenly_cluster::CoreIndex;
use evenly_model::NodeIndex;

/// `nuco`: the paper's list scheduling.
pub(super) const NUCO: MapperInfo = MapperInfo {
    name: "nuco",
    about: "NUCOLB (Algorithm 1): heaviest task first, to the core of least load and communication",
    effort: Effort::EveryCore,
    map: |r| nuco(r, r.options.alpha.seconds(r.graph)),
};

/// `nuco-auto`: the same, with an alpha by loads and messages.
pub(super) const NUCO_AUTO: MapperInfo = MapperInfo {
    name: "nuco-auto",
    about: "nuco with alpha scaled so that all messages weigh a tenth of all load",
    effort: Effort::EveryCore,
    map: |r| nuco(r, Alpha::Auto.seconds(r.graph)),
};

/// Algorithm 1, with alpha in seconds a message.
fn nuco(request: &Request<'_>, alpha: f64) -> Vec<CoreIndex> {
    let Request { graph, cluster, present, stop, .. } = *request;
    let hurry = Hurry::new(stop);
    let cores = cluster.cores();
    let nodes = cluster.nodes().len();
    let node: Vec<NodeIndex> = cores.iter().map(|c| c.node).collect();
    let fastest = cores.iter().map(|c| c.speed).fold(0.0, f64::max);
    let slower: Vec<f64> = cores.iter().map(|c| 1.0 / c.speed - 1.0 / fastest).collect();

    let mut mapping = present.to_vec();
    let mut load = core_loads(graph, cluster, present);
    // What the task at hand receives: from each core, from each node, and which these are.
    let mut from_core = vec![0.0; cores.len()];
    let mut from_node = vec![0.0; nodes];
    let mut senders: Vec<NodeIndex> = Vec::new();
    // Of the task at hand, for each node: messages from others, each times its factor.
    let mut remote = vec![0.0; nodes];

    for t in heaviest_first(graph) {
        if hurry.after(cores.len() + graph.links(t).len()) {
            break;
        }
        let task = graph.tasks()[t];
        let now = mapping[t];
        load[now] -= task.load_s / cores[now].speed;

        senders.clear();
        for link in graph.links(t).iter().filter(|l| l.received > 0.0) {
            let at = mapping[link.with];
            if from_node[node[at]] == 0.0 {
                senders.push(node[at]);
            }
            from_core[at] += link.received;
            from_node[node[at]] += link.received;
        }
        for (k, remote) in remote.iter_mut().enumerate() {
            let others = senders.iter().filter(|&&j| j != k);
            *remote = others.map(|&j| from_node[j] * cluster.factor(k, j)).sum();
        }

        let cost = |c: CoreIndex| {
            let k = node[c];
            let local = from_node[k] - from_core[c];
            load[c] + task.load_s * slower[c] + alpha * (remote[k] - local)
        };
        let mut best = (cost(now), now);
        for c in 0..cores.len() {
            let cost = cost(c);
            if cost < best.0 {
                best = (cost, c);
            }
        }

        for link in graph.links(t) {
            let at = mapping[link.with];
            from_core[at] = 0.0;
            from_node[node[at]] = 0.0;
        }
        let to = best.1;
        load[to] += task.load_s / cores[to].speed;
        mapping[t] = to;
    }
    mapping
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::*;
    use evenly_cluster::Cluster;
    use evenly_model::{Edge, Task, TaskGraph};

    fn nuco(
        graph: &TaskGraph,
        cluster: &Cluster,
        present: &[CoreIndex],
        alpha: f64,
    ) -> Vec<CoreIndex> {
        let options = Options::default();
        super::nuco(&Request::timeless(graph, cluster, present, &options), alpha)
    }

    fn graph(loads: &[f64], edges: &[(u64, u64, f64)]) -> TaskGraph {
        let task = |(id, &load_s)| Task { id, load_s, size_bytes: 0.0, core: None, movable: true };
        let edge = |&(from, to, messages)| Edge { from, to, messages, bytes: 0.0 };
        let tasks = (0..).zip(loads).map(task).collect();
        TaskGraph::new(tasks, &edges.iter().map(edge).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn balanced_tasks_stay() {
        // On an empty core the cost is the same: the present core wins (the paper: subtracting the
        // load first avoids unnecessary migrations).
        let g = graph(&[1.0, 1.0], &[]);
        let c = Cluster::even(2, 2, 2.0).unwrap();
        assert_eq!(nuco(&g, &c, &[3, 1], 1e-5), [3, 1]);
    }

    #[test]
    fn of_two_equal_tasks_on_a_core_the_first_goes_to_the_lowest_idle_core() {
        let g = graph(&[1.0, 1.0], &[]);
        let c = Cluster::even(2, 2, 2.0).unwrap();
        assert_eq!(nuco(&g, &c, &[2, 2], 1e-5), [0, 2]);
    }

    #[test]
    fn a_task_goes_beside_the_one_that_it_receives_from() {
        // Task 0 must leave core 0; task 2 on core 3 sends to it, so of cores 1, 2, 3 it is 2: the
        // same node, and not the same core.
        let g = graph(&[2.0, 1.9, 1.8], &[(2, 0, 1000.0)]);
        let c = Cluster::even(2, 2, 2.0).unwrap();
        assert_eq!(nuco(&g, &c, &[0, 0, 3], 1e-5), [2, 0, 3]);
        // What it sends does not count (r_comm and l_comm are messages received).
        let g = graph(&[2.0, 1.9, 1.8], &[(0, 2, 1000.0)]);
        assert_eq!(nuco(&g, &c, &[0, 0, 3], 1e-5), [1, 0, 3]);
    }

    #[test]
    fn a_slower_core_costs_what_the_task_takes_longer_there() {
        let g = graph(&[1.0], &[]);
        let mut cores = Cluster::even(1, 3, 1.0).unwrap().cores().to_vec();
        cores[0].speed = 0.5;
        cores[2].speed = 0.8;
        let nodes = vec![evenly_cluster::Node { id: 0, host: 0 }];
        let c = Cluster::new(cores, nodes, Vec::new(), vec![1.0]).unwrap();
        assert_eq!(nuco(&g, &c, &[0], 0.0), [1]);
    }
}
