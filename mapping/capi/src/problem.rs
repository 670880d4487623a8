//! The safe part: what the arrays say, checked and mapped.

use crate::options::EvenlyMapOptions;
use evenly_cluster::{Cluster, Core, Node, RATIO_NEEDED, RATIOS};
use evenly_model::{CacheLevel, Edge, MOST_OF_ANYTHING, Nanos, Task, TaskGraph, short};
use evenly_nuco::map::{Alpha, MapperInfo, Objectives, Options, Request, no_stop, objectives};
use std::fmt::Display;
use std::time::Instant;

/// What the call returns: `enum evenly_map_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Ok = 0,
    Input = 1,
    Algorithm = 2,
    Fault = 3,
}

/// What is wrong with a call, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) status: Status,
    pub(crate) what: String,
}

impl Trouble {
    pub(crate) fn input(what: impl Display) -> Self {
        Self { status: Status::Input, what: what.to_string() }
    }
}

/// The arrays of the caller, each as long as its count.
pub(crate) struct Problem<'a> {
    pub(crate) loads_s: &'a [f64],
    pub(crate) sizes_bytes: Option<&'a [f64]>,
    pub(crate) movable: Option<&'a [u8]>,
    pub(crate) present: &'a [u32],
    pub(crate) edge_from: &'a [u32],
    pub(crate) edge_to: &'a [u32],
    pub(crate) edge_messages: &'a [f64],
    pub(crate) edge_bytes: Option<&'a [f64]>,
    pub(crate) core_node: &'a [u32],
    pub(crate) core_speed: Option<&'a [f64]>,
    pub(crate) nodes: usize,
    pub(crate) node_host: Option<&'a [u32]>,
    pub(crate) factors: &'a [f64],
    pub(crate) bandwidths: Option<&'a [f64]>,
    pub(crate) cache_factors: &'a [f64],
    pub(crate) core_caches: &'a [u32],
}

/// An assignment, and what it is worth.
pub(crate) struct Solved {
    pub(crate) assignment: Vec<u32>,
    pub(crate) before: Objectives,
    pub(crate) after: Objectives,
}

/// An element of an array that may be missing.
fn at<T: Copy>(array: Option<&[T]>, i: usize, otherwise: T) -> T {
    array.map_or(otherwise, |a| a[i])
}

pub(crate) fn solve(
    problem: &Problem<'_>,
    mapper: &MapperInfo,
    options: &Options,
) -> Result<Solved, Trouble> {
    let p = problem;
    let tasks = (0..p.loads_s.len()).map(|i| Task {
        id: i as u64,
        load_s: p.loads_s[i],
        size_bytes: at(p.sizes_bytes, i, 0.0),
        core: Some(p.present[i]),
        movable: at(p.movable, i, 1) != 0,
    });
    let edges: Vec<Edge> = (0..p.edge_from.len())
        .map(|i| Edge {
            from: p.edge_from[i].into(),
            to: p.edge_to[i].into(),
            messages: p.edge_messages[i],
            bytes: at(p.edge_bytes, i, 0.0),
        })
        .collect();
    let graph = TaskGraph::new(tasks.collect(), &edges).map_err(Trouble::input)?;
    let levels = p.cache_factors.len();
    if let Some(level) = p.cache_factors.iter().position(|f| !RATIOS.contains(f)) {
        let found = short(p.cache_factors[level]);
        return Err(Trouble::input(format!(
            "cache_factors: that of level {level} is {found}; {RATIO_NEEDED} is needed"
        )));
    }
    let caches: Vec<CacheLevel> = (0..levels)
        .map(|level| CacheLevel { name: format!("level {level}"), factor: p.cache_factors[level] })
        .collect();
    let cores = (0u32..).zip(p.core_node).map(|(id, &node)| Core {
        id,
        cpu: id,
        node: node as usize,
        speed: at(p.core_speed, id as usize, 1.0),
        caches: p.core_caches[id as usize * levels..][..levels].to_vec(),
    });
    let nodes = (0u32..).zip(0..p.nodes).map(|(id, i)| Node { id, host: at(p.node_host, i, 0) });
    let cluster = Cluster::new(cores.collect(), nodes.collect(), caches, p.factors.to_vec())
        .and_then(|cluster| match p.bandwidths {
            Some(b) => cluster.with_bandwidths(b.to_vec()),
            None => Ok(cluster),
        })
        .map_err(Trouble::input)?;
    let cores = cluster.cores().len();
    let present: Vec<usize> = p.present.iter().map(|&c| c as usize).collect();
    if let Some(task) = present.iter().position(|&c| c >= cores) {
        return Err(Trouble::input(format!(
            "task {task} is on core {}; there are {cores} cores, numbered from 0",
            present[task]
        )));
    }
    let began = Instant::now();
    let clock = || Nanos::from(began.elapsed());
    let request = Request {
        graph: &graph,
        cluster: &cluster,
        present: &present,
        options,
        clock: &clock,
        stop: &no_stop,
    };
    let mapping = (mapper.map)(&request);
    Ok(Solved {
        before: objectives(&graph, &cluster, &present, &present),
        after: objectives(&graph, &cluster, &present, &mapping),
        // Cores are at their places, below the most that there may be.
        assignment: mapping.into_iter().map(|c| c as u32).collect(),
    })
}

/// The options as mappers take them. Where a number is below 0 there is no bound.
pub(crate) fn options(given: &EvenlyMapOptions) -> Result<Options, Trouble> {
    for (name, value, least) in [
        ("alpha", given.alpha, f64::NEG_INFINITY),
        ("time_limit_s", given.time_limit_s, 0.0),
        ("migration_worth_s", given.migration_worth_s, f64::NEG_INFINITY),
        ("max_imbalance", given.max_imbalance, f64::NEG_INFINITY),
        ("tolerance", given.tolerance, 0.0),
        ("beta", given.beta, f64::NEG_INFINITY),
        ("windows", given.windows, 0.0),
    ] {
        if value.is_nan() || value < least || value > MOST_OF_ANYTHING {
            let need = if least == 0.0 { "not negative and at most" } else { "at most" };
            return Err(Trouble::input(format!(
                "{name} is {}; a number that is {need} {MOST_OF_ANYTHING:e} is needed",
                short(value)
            )));
        }
    }
    if !RATIOS.contains(&given.windows) {
        let found = short(given.windows);
        return Err(Trouble::input(format!("windows is {found}; {RATIO_NEEDED} is needed")));
    }
    let bound = |x: f64| (x >= 0.0).then_some(x);
    Ok(Options {
        alpha: bound(given.alpha).map_or(Alpha::Auto, Alpha::Fixed),
        seed: given.seed,
        // More than any number of nanoseconds is the most that there is.
        time_limit: Nanos((given.time_limit_s * 1e9) as u64),
        migration_worth_s: bound(given.migration_worth_s),
        max_migrations: usize::try_from(given.max_migrations).ok(),
        max_imbalance: bound(given.max_imbalance),
        tolerance: given.tolerance,
        beta: bound(given.beta),
        windows: given.windows,
        ..Options::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_nuco::map::mapper;

    fn two() -> Problem<'static> {
        Problem {
            loads_s: &[1.0, 1.0],
            sizes_bytes: None,
            movable: None,
            present: &[0, 0],
            edge_from: &[0],
            edge_to: &[1],
            edge_messages: &[3.0],
            edge_bytes: None,
            core_node: &[0, 1],
            core_speed: None,
            nodes: 2,
            node_host: None,
            factors: &[1.0, 2.0, 2.0, 1.0],
            bandwidths: None,
            cache_factors: &[],
            core_caches: &[],
        }
    }

    fn refused(problem: &Problem<'_>) -> String {
        let nuco = mapper("nuco").unwrap();
        let trouble = solve(problem, nuco, &Options::default()).err().unwrap();
        assert_eq!(trouble.status, Status::Input);
        trouble.what
    }

    #[test]
    fn tasks_are_spread() {
        let solved = solve(&two(), mapper("nuco").unwrap(), &Options::default()).unwrap();
        assert_eq!(solved.assignment, [1, 0]);
        assert_eq!((solved.before.makespan_s, solved.after.makespan_s), (2.0, 1.0));
        assert_eq!((solved.after.nuco_messages, solved.after.migrations), (6.0, 1));
        let fixed = Problem { movable: Some(&[0, 0]), ..two() };
        let solved = solve(&fixed, mapper("nuco").unwrap(), &Options::default()).unwrap();
        assert_eq!(solved.assignment, [0, 0]);
    }

    #[test]
    fn no_imbalance_is_worth_a_migration_too_many() {
        for (max_migrations, assignments) in [(0, [[0, 0], [0, 0]]), (1, [[1, 0], [0, 1]])] {
            let options = Options {
                max_migrations: Some(max_migrations),
                max_imbalance: Some(0.0),
                ..Options::default()
            };
            let solved = solve(&two(), mapper("nuco+").unwrap(), &options).unwrap();
            assert!(assignments.contains(&[solved.assignment[0], solved.assignment[1]]));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let said = refused(&Problem { loads_s: &[1.0, f64::NAN], ..two() });
        assert!(said.starts_with("task 1: the load is NaN"), "{said}");
        let said = refused(&Problem { present: &[0, 2], ..two() });
        assert_eq!(said, "task 1 is on core 2; there are 2 cores, numbered from 0");
        let said = refused(&Problem { edge_to: &[7], ..two() });
        assert!(said.starts_with("edge from 0 to 7: there is no task 7"), "{said}");
        let said = refused(&Problem { core_node: &[0, 2], ..two() });
        assert!(said.starts_with("core 1 is on node 2"), "{said}");
        let said = refused(&Problem { factors: &[1.0, 2.0, -2.0, 1.0], ..two() });
        assert!(said.starts_with("the factors from node 1 to node 0 is -2"), "{said}");
        let said = refused(&Problem { bandwidths: Some(&[1.0, 0.0, 1.0, 1.0]), ..two() });
        assert!(said.starts_with("the bandwidths"), "{said}");
        let said = refused(&Problem { factors: &[1.0, 2.0, 1e308, 1.0], ..two() });
        assert!(said.starts_with("the factors from node 1 to node 0 is 1e308; a number"), "{said}");
        let said = refused(&Problem { core_speed: Some(&[1.0, 1e-308]), ..two() });
        assert!(said.starts_with("core 1: its speed"), "{said}");
        let said = refused(&Problem { cache_factors: &[0.5, 0.0], core_caches: &[0; 4], ..two() });
        assert_eq!(
            said,
            "cache_factors: that of level 1 is 0; a number above 0, from 1e-9 to 1e9, is needed"
        );
    }

    #[test]
    fn options_are_checked() {
        let usual = EvenlyMapOptions::usual();
        let o = options(&usual).unwrap();
        let d = Options::default();
        assert_eq!((o.alpha, o.seed, o.time_limit), (d.alpha, d.seed, d.time_limit));
        assert_eq!((o.max_migrations, o.max_imbalance), (d.max_migrations, d.max_imbalance));
        assert_eq!((o.beta, o.windows), (d.beta, d.windows));
        assert_eq!((o.migration_worth_s, d.migration_worth_s), (None, None));
        let o = options(&EvenlyMapOptions { migration_worth_s: 1e-3, ..usual }).unwrap();
        assert_eq!(o.migration_worth_s, Some(1e-3));
        let o = options(&EvenlyMapOptions { beta: 0.0, windows: 20.0, ..usual }).unwrap();
        assert_eq!((o.beta, o.windows), (Some(0.0), 20.0));
        let bounded =
            EvenlyMapOptions { alpha: -1.0, max_migrations: 3, max_imbalance: 0.0, ..usual };
        let o = options(&bounded).unwrap();
        assert_eq!((o.alpha, o.max_migrations, o.max_imbalance), (Alpha::Auto, Some(3), Some(0.0)));
        for bad in [
            EvenlyMapOptions { alpha: f64::NAN, ..usual },
            EvenlyMapOptions { time_limit_s: -1.0, ..usual },
            EvenlyMapOptions { tolerance: f64::INFINITY, ..usual },
            EvenlyMapOptions { beta: f64::NAN, ..usual },
            EvenlyMapOptions { windows: 0.0, ..usual },
            EvenlyMapOptions { windows: -1.0, ..usual },
            EvenlyMapOptions { windows: 1e-308, ..usual },
            EvenlyMapOptions { alpha: 1e308, ..usual },
            EvenlyMapOptions { migration_worth_s: 1e19, ..usual },
        ] {
            assert_eq!(options(&bad).unwrap_err().status, Status::Input);
        }
    }
}
