//! What a mapping is worth, by every measure that is reported.
//!
//! Invariant: the measures depend on graph, cluster and mappings only, never on the mapper or its
//! options, so that mappings of different origin can be compared.

use super::{core_loads, mean_load_s};
use evenly_cluster::{Cluster, CoreIndex};
use evenly_model::TaskGraph;
use serde::Serialize;

/// What a mapping is worth. Smaller is better throughout, but for `mean_load_s`, which no mapping
/// changes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Objectives {
    /// What the core with the most has to compute, in seconds: the loads of its tasks over its
    /// speed.
    pub makespan_s: f64,
    /// What each core would have to compute, in seconds, if all had to compute equally long: all
    /// load over the speeds of all cores.
    pub mean_load_s: f64,
    /// Makespan over mean load, less 1. 0 where there is no load.
    pub imbalance: f64,
    /// Bytes, each times the hops that it goes ([`Cluster::hops`]; section VII, after Bhatele et
    /// al.).
    pub hop_bytes: f64,
    /// Messages, each times what it costs: nothing on a core, 1 within a NUMA node, else the NUCO
    /// factor of the receiver's node reading from the sender's (section III-A). Caches are not
    /// looked at.
    pub nuco_messages: f64,
    /// Messages between different NUMA nodes.
    pub remote_messages: f64,
    /// Messages between different NUMA nodes, over all messages; 0 where there is none.
    pub remote_share: f64,
    /// Tasks that are not where they were.
    pub migrations: usize,
    /// Their sizes together, in bytes.
    pub migrated_bytes: f64,
}

/// What rounding makes of an imbalance that is just at its bound.
const ROUNDING: f64 = 1e-9;

/// Whether an imbalance is within a bound on it, as shares of the mean load.
#[must_use]
pub fn is_within(reached: f64, bound: f64) -> bool {
    reached <= bound + ROUNDING * (1.0 + bound)
}

/// Judges a mapping.
///
/// # Panics
/// Where a mapping names a core that is not there, or none for a task.
#[must_use]
pub fn objectives(
    graph: &TaskGraph,
    cluster: &Cluster,
    present: &[CoreIndex],
    mapping: &[CoreIndex],
) -> Objectives {
    assert!(present.len() == graph.len() && mapping.len() == graph.len(), "a core for each task");
    let makespan_s = core_loads(graph, cluster, mapping).into_iter().fold(0.0, f64::max);
    let mean_load_s = mean_load_s(graph, cluster);
    let imbalance = if mean_load_s > 0.0 { makespan_s / mean_load_s - 1.0 } else { 0.0 };
    let (mut hop_bytes, mut nuco_messages, mut remote_messages) = (0.0, 0.0, 0.0);
    for (t, &to) in mapping.iter().enumerate() {
        for link in graph.links(t) {
            let from = mapping[link.with];
            let (there, here) = (cluster.cores()[from].node, cluster.cores()[to].node);
            if to != from {
                // 1 in the diagonal.
                nuco_messages += link.received * cluster.factor(here, there);
            }
            if here != there {
                remote_messages += link.received;
            }
            hop_bytes += link.received_bytes * f64::from(cluster.hops(to, from));
        }
    }
    let all = graph.messages();
    let remote_share = if all > 0.0 { remote_messages / all } else { 0.0 };
    let moved = || (0..graph.len()).filter(|&t| mapping[t] != present[t]);
    Objectives {
        makespan_s,
        mean_load_s,
        imbalance,
        hop_bytes,
        nuco_messages,
        remote_messages,
        remote_share,
        migrations: moved().count(),
        // A sum of none would be -0.
        migrated_bytes: moved().map(|t| graph.tasks()[t].size_bytes).fold(0.0, |a, b| a + b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_cluster::{Core, Node};
    use evenly_model::{Edge, Task};

    #[test]
    fn by_hand() {
        let core = |id, node, speed| Core { id, cpu: id, node, speed, caches: Vec::new() };
        let nodes = vec![Node { id: 0, host: 0 }, Node { id: 1, host: 0 }, Node { id: 0, host: 1 }];
        let factors = vec![1.0, 1.5, 4.0, 2.0, 1.0, 4.0, 5.0, 5.0, 1.0];
        let cores = vec![core(0, 0, 1.0), core(1, 0, 1.0), core(2, 1, 1.0), core(3, 2, 0.5)];
        let cluster = Cluster::new(cores, nodes, Vec::new(), factors).unwrap();
        let task = |id, load_s| Task { id, load_s, size_bytes: 10.0, core: None, movable: true };
        let edge = |from, to, messages| Edge { from, to, messages, bytes: 100.0 * messages };
        let tasks = vec![task(0, 1.0), task(1, 2.0), task(2, 3.0), task(3, 1.0)];
        let edges = [
            edge(0, 1, 1.0), // same core, below
            edge(0, 2, 2.0), // from node 0 to node 1: 2.0 each
            edge(2, 0, 3.0), // from node 1 to node 0: 1.5 each
            edge(3, 0, 4.0), // from the other host: 4.0 each
        ];
        let graph = TaskGraph::new(tasks, &edges).unwrap();
        let o = objectives(&graph, &cluster, &[0, 1, 2, 3], &[0, 0, 2, 3]);
        assert_eq!((o.makespan_s, o.mean_load_s, o.imbalance), (3.0, 2.0, 0.5));
        assert_eq!(o.nuco_messages, 2.0 * 2.0 + 3.0 * 1.5 + 4.0 * 4.0);
        assert_eq!((o.remote_messages, o.remote_share), (9.0, 0.9));
        assert_eq!(o.hop_bytes, 200.0 * 2.0 + 300.0 * 2.0 + 400.0 * 3.0);
        assert_eq!((o.migrations, o.migrated_bytes), (1, 10.0));
        // On different cores of one node a message counts 1 and a hop, on a core nothing.
        let o = objectives(&graph, &cluster, &[0, 1, 0, 0], &[0, 1, 0, 0]);
        assert_eq!((o.nuco_messages, o.hop_bytes, o.remote_share), (1.0, 100.0, 0.0));
        // A slow core computes longer.
        let o = objectives(&graph, &cluster, &[3; 4], &[3; 4]);
        assert_eq!((o.makespan_s, o.imbalance, o.migrations), (14.0, 6.0, 0));
    }
}
