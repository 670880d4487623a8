//! Mappings that look at neither load nor communication: what programs start with, and what the
//! others must beat.
//!
//! Invariant: but for `random`, counts of movable tasks on cores differ by at most one.

use super::{Effort, MapperInfo, Request, movable, tree};
use evenly_cluster::CoreIndex;
use evenly_model::stats::Random;

/// `round-robin`: one task after the other to one core after the other.
pub(super) const ROUND_ROBIN: MapperInfo = MapperInfo {
    name: "round-robin",
    about: "tasks dealt to the cores in the order of their numbers",
    effort: Effort::EveryTask,
    map: |r| {
        let order: Vec<CoreIndex> = (0..r.cluster.cores().len()).collect();
        deal(r, |i, _| order[i % order.len()])
    },
};

/// `compact`: fills the cores of a node before those of the next.
pub(super) const COMPACT: MapperInfo = MapperInfo {
    name: "compact",
    about: "blocks of consecutive tasks, on cores that are close to each other",
    effort: Effort::EveryTask,
    map: |r| {
        let order = tree::compact(r.cluster);
        // Fewer tasks than cores are kept together, on the first cores.
        deal(r, |i, n| order[if n < order.len() { i } else { i * order.len() / n }])
    },
};

/// `scatter`: goes round the nodes.
pub(super) const SCATTER: MapperInfo = MapperInfo {
    name: "scatter",
    about: "tasks dealt in turn to hosts, nodes, caches, cores: as far apart as can be",
    effort: Effort::EveryTask,
    map: |r| {
        let order = tree::scatter(r.cluster);
        deal(r, |i, _| order[i % order.len()])
    },
};

/// `random`: every task on a random core.
pub(super) const RANDOM: MapperInfo = MapperInfo {
    name: "random",
    about: "every task on a core drawn by lot (seeded)",
    effort: Effort::EveryTask,
    map: |r| {
        let mut random = Random::new(r.options.seed);
        let cores = r.cluster.cores().len();
        deal(r, |_, _| random.below(cores))
    },
};

/// Puts the i-th of n movable tasks on the core `to(i, n)`.
fn deal(request: &Request<'_>, mut to: impl FnMut(usize, usize) -> CoreIndex) -> Vec<CoreIndex> {
    let mut mapping = request.present.to_vec();
    let tasks = movable(request.graph);
    for (i, &t) in tasks.iter().enumerate() {
        mapping[t] = to(i, tasks.len());
    }
    mapping
}

#[cfg(test)]
mod tests {
    use super::super::{Options, mapper};
    use super::*;
    use evenly_cluster::Cluster;
    use evenly_model::{Task, TaskGraph};

    fn map(name: &str, tasks: u64) -> Vec<CoreIndex> {
        let task = |id| Task { id, load_s: 1.0, size_bytes: 0.0, core: None, movable: id != 1 };
        let graph = TaskGraph::new((0..tasks).map(task).collect(), &[]).unwrap();
        let cluster = Cluster::even(2, 2, 2.0).unwrap();
        let present = vec![3; graph.len()];
        let options = Options::default();
        let request = Request::timeless(&graph, &cluster, &present, &options);
        (mapper(name).unwrap().map)(&request)
    }

    #[test]
    fn tasks_are_dealt_and_the_one_that_is_not_movable_stays() {
        assert_eq!(map("round-robin", 7), [0, 3, 1, 2, 3, 0, 1]);
        assert_eq!(map("compact", 9), [0, 3, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(map("compact", 3), [0, 3, 1]);
        assert_eq!(map("scatter", 6), [0, 3, 2, 1, 3, 0]);
        let at = map("random", 400);
        assert_eq!(at[1], 3);
        for c in 0..4 {
            let count = at.iter().filter(|&&x| x == c).count();
            assert!((60..=140).contains(&count), "{count} on core {c}");
        }
    }
}
