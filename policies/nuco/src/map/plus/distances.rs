//! How far cores are from each other, as one number for each pair.

use super::model::Model;
use evenly_cluster::CoreIndex;

/// What communication between two cores costs over what it costs at factor 1: the mean of both directions, for as
/// many bytes a message as there are in all. Where there are too many nodes to know it of each pair, all are equally
/// far.
pub(super) struct Distances {
    /// Of each core its row in the table: that of its node, or its own.
    row_of: Vec<u32>,
    rows: usize,
    table: Vec<f64>,
    /// On the same core.
    same: f64,
}

impl Distances {
    /// Rows of the table, at most.
    const MOST: usize = 1024;

    pub(super) fn new(model: &Model<'_>) -> Self {
        let cluster = model.cluster;
        let (cores, nodes) = (cluster.cores().len(), cluster.nodes().len());
        // Without caches all cores of a node are equally far.
        let by_node = cluster.caches().is_empty() || cores > Self::MOST;
        let row_of = |c: CoreIndex| if by_node { cluster.cores()[c].node } else { c };
        let rows = if by_node { nodes } else { cores };
        // A core of each row, and another.
        let mut some: Vec<[Option<CoreIndex>; 2]> = vec![[None; 2]; rows];
        for c in 0..cores {
            let [one, other] = &mut some[row_of(c)];
            if one.is_some() {
                *other = Some(c);
            } else {
                *one = Some(c);
            }
        }
        let all = |c: super::model::Cost| c.of(model.graph.messages(), model.graph.bytes());
        let one = all(model.costs.one);
        let over_one = |cost_s: f64| if one > 0.0 { cost_s / one } else { 1.0 };
        let cost = |a, b| (all(model.costs.between(a, b)) + all(model.costs.between(b, a))) / 2.0;
        let between = |k: usize| {
            let (a, b) = (some[k / rows], some[k % rows]);
            match (a[0], if k / rows == k % rows { b[1] } else { b[0] }) {
                (Some(a), Some(b)) => over_one(cost(a, b)),
                // Nothing is ever there.
                _ => 1.0,
            }
        };
        let known = if rows <= Self::MOST { rows * rows } else { 0 };
        Self {
            row_of: (0..cores).map(|c| row_of(c) as u32).collect(),
            rows,
            table: (0..known).map(between).collect(),
            same: over_one(cost(0, 0)),
        }
    }

    /// Between two cores, which may be the same one.
    pub(super) fn between(&self, a: u32, b: u32) -> f64 {
        if a == b {
            return self.same;
        }
        let row = self.row_of[a as usize] as usize * self.rows;
        self.table.get(row + self.row_of[b as usize] as usize).copied().unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Options, Request};
    use super::*;
    use evenly_cluster::{Cluster, Core};
    use evenly_model::{CacheLevel, Edge, Task, TaskGraph};

    #[test]
    fn distances_are_the_costs_between_cores() {
        let even = Cluster::even(3, 4, 2.0).unwrap();
        let factors: Vec<f64> =
            (0..9).map(|k| if k / 3 == k % 3 { 1.0 } else { 1.0 + k as f64 }).collect();
        let in_caches = |c: &Core| Core { caches: vec![c.id / 2], ..c.clone() };
        let l2 = CacheLevel { name: "L2".into(), factor: 0.3 };
        for caches in [false, true] {
            let cores = even.cores().iter().map(|c| if caches { in_caches(c) } else { c.clone() });
            let levels = if caches { vec![l2.clone()] } else { Vec::new() };
            let nodes = even.nodes().to_vec();
            let cluster = Cluster::new(cores.collect(), nodes, levels, factors.clone()).unwrap();
            let task = |id| Task { id, load_s: 9.0, size_bytes: 0.0, core: None, movable: true };
            let edge = Edge { from: 0, to: 1, messages: 5.0, bytes: 0.0 };
            let graph = TaskGraph::new(vec![task(0), task(1)], &[edge]).unwrap();
            let options = Options { same_core: 2.0, ..Options::default() };
            let request = Request::timeless(&graph, &cluster, &[0, 0], &options);
            let distances = Distances::new(&Model::new(&request));
            for (a, b) in (0..144).map(|k| (k / 12, k % 12)).filter(|(a, b)| a != b) {
                let mean = (cluster.cost(a, b) + cluster.cost(b, a)) / 2.0;
                let found = distances.between(a as u32, b as u32);
                assert!((found - mean).abs() < 1e-12, "{a} {b}: {found}, not {mean}");
            }
            assert!((distances.between(5, 5) - 2.0).abs() < 1e-12);
        }
    }
}
