//! `nuco+` keeps its time limit, whatever it is doing when its time is up.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_cluster::{Cluster, CoreIndex};
use evenly_model::stats::Random;
use evenly_model::{Edge, Nanos, Task, TaskGraph};
use evenly_nuco::map::{Options, Request, mapper, objectives, plus};
use std::cell::Cell;

/// What is mapped, and where to.
struct Case {
    graph: TaskGraph,
    present: Vec<CoreIndex>,
    cluster: Cluster,
}

impl Case {
    fn request<'a>(&'a self, options: &'a Options, clock: &'a dyn Fn() -> Nanos) -> Request<'a> {
        let Self { graph, present, cluster } = self;
        Request { clock, ..Request::timeless(graph, cluster, present, options) }
    }
}

/// Tasks in a ring with as many other edges, all on the first core: whatever is done with them is
/// much.
fn ring(n: u64, nodes: u32, cores: u32) -> Case {
    let mut case = scattered_ring(n, nodes, cores);
    case.present.fill(0);
    case
}

/// The same, each on another core than its neighbours: `nuco+` makes groups first.
fn scattered_ring(n: u64, nodes: u32, cores: u32) -> Case {
    let mut random = Random::new(3);
    let task =
        |id| Task { id, load_s: 1.0 + (id % 7) as f64, size_bytes: 0.0, core: None, movable: true };
    let mut edges = Vec::new();
    for from in 0..n {
        let other = random.below(n as usize) as u64;
        edges.extend([(from + 1) % n, other].map(|to| Edge {
            from,
            to,
            messages: 1.0,
            bytes: 100.0,
        }));
    }
    Case {
        graph: TaskGraph::new((0..n).map(task).collect(), &edges).unwrap(),
        present: (0..n as usize).map(|t| t % (nodes * cores) as usize).collect(),
        cluster: Cluster::even(nodes, cores, 2.0).unwrap(),
    }
}

/// With so many tasks that there is no time for other mappers it is still as good as what is found in
/// no time.
#[test]
fn many_tasks_are_refined_at_least() {
    let case = ring(50_000, 4, 8);
    let clock = || Nanos::ZERO;
    let value = |name: &str, tolerance: f64| {
        let time_limit = Nanos::from_millis(10);
        let options = Options { time_limit, tolerance, ..Options::default() };
        let request = case.request(&options, &clock);
        plus::objective_s(&request, &(mapper(name).unwrap().map)(&request))
    };
    let ours = value("nuco+", 0.05);
    for tolerance in [0.01, 0.03, 0.12, 0.5] {
        assert!(ours <= value("refine", tolerance), "{tolerance}");
    }
}

/// A clock that goes on by being read: time is up at every place where it is read.
#[test]
fn a_search_ends_wherever_its_time_is_up() {
    // A limit of so many looks at a clock that each of them advances by `step`.
    let ends_after = |case: &Case, limit: u64, step: Nanos| {
        let options = Options { time_limit: step.scale(limit as f64), ..Options::default() };
        let time = Cell::new(0_u64);
        let clock = || {
            time.set(time.get() + 1);
            step.scale(time.get() as f64)
        };
        let request = case.request(&options, &clock);
        let mapping = (mapper("nuco+").unwrap().map)(&request);
        let value = |m: &[CoreIndex]| plus::objective_s(&request, m);
        assert!(mapping.iter().all(|&c| c < 8) && value(&mapping) <= value(&case.present));
        time.get().saturating_sub(limit)
    };
    // A limit of some nanoseconds stands for no sweep: what is done is done by others. One of milliseconds
    // stands for halving and sweeps.
    let cases = [(ring(300, 2, 4), Nanos(1)), (scattered_ring(300, 2, 4), Nanos::from_millis(1))];
    for (case, step) in &cases {
        for limit in 0..400 {
            // A search that is stopped asks again further out, and once more.
            let late = ends_after(case, limit, *step);
            assert!(late <= 16, "{limit} of {step}: {late} looks too many");
        }
    }
}

/// Many tasks that are all on one core, or each on another core than its neighbours, have nearly even
/// loads when their time is up. How long a search goes on without a look at the clock is measured by
/// `cargo bench -p evenly-nuco --bench map`.
#[test]
fn loads_of_many_tasks_are_nearly_even_when_their_time_is_up() {
    for case in [ring(50_000, 8, 8), scattered_ring(50_000, 8, 8)] {
        let options = Options { time_limit: Nanos::from_millis(400), ..Options::default() };
        // As many looks as in 400 ms of a CPU of 2025.
        let time = Cell::new(0_u64);
        let clock = || {
            time.set(time.get() + 1);
            Nanos::from_millis(time.get()).scale(0.2)
        };
        let mapping = (mapper("nuco+").unwrap().map)(&case.request(&options, &clock));
        let makespan_s = |mapping: &[CoreIndex]| {
            objectives(&case.graph, &case.cluster, &case.present, mapping).makespan_s
        };
        let (before_s, after_s) = (makespan_s(&case.present), makespan_s(&mapping));
        let expected_s = (before_s / 4.0).max(case.graph.load_s() / 64.0 * 1.05);
        assert!(after_s < expected_s, "{after_s} s of {before_s} s");
    }
}
