//! Many tasks on many cores, and little time: `nuco+` finds groups all the same.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_cluster::{Cluster, CoreIndex};
use evenly_model::stats::Random;
use evenly_model::{Edge, Nanos, Task, TaskGraph};
use evenly_nuco::map::{Alpha, Options, Request, mapper, plus};

/// A square grid of tasks, on cores by lot.
fn grid(side: u64, cores: usize) -> (TaskGraph, Vec<CoreIndex>) {
    let mut random = Random::new(7);
    let mut task = |id| {
        let load_s = 0.05 + 0.15 * random.unit();
        Task { id, load_s, size_bytes: 0.0, core: None, movable: true }
    };
    let tasks = (0..side * side).map(&mut task).collect();
    let edge = |from, to| Edge { from, to, messages: 1.0, bytes: 0.0 };
    let right = (0..side * side).filter(|t| t % side != 0).map(|t| edge(t, t - 1));
    let below = (side..side * side).map(|t| edge(t, t - side));
    let graph = TaskGraph::new(tasks, &right.chain(below).collect::<Vec<_>>()).unwrap();
    let by_lot = (0..side * side).map(|_| (random.unit() * cores as f64) as CoreIndex).collect();
    (graph, by_lot)
}

/// Without a bound on imbalance, too, where halving takes too long: it was 3 % worse by its own J than `treematch`.
#[test]
fn issue_35_little_time_without_a_bound_is_enough_for_groups() {
    let cluster = Cluster::even(60, 8, 1.0).unwrap();
    let (graph, present) = grid(140, 480);
    let options = Options {
        alpha: Alpha::Auto,
        received_in_loads: false,
        time_limit: Nanos::from_millis(130),
        ..Options::default()
    };
    let request = Request::timeless(&graph, &cluster, &present, &options);
    let [ours, theirs] = ["nuco+", "treematch"]
        .map(|name| plus::objective_s(&request, &(mapper(name).unwrap().map)(&request)));
    assert!(ours < 1.01 * theirs, "{ours} and {theirs}");
}
