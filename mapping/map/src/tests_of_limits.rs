//! Limits by work, and bounds on what a search may find, on real mappers.

use super::*;
use evenly_cluster::Cluster;
use evenly_model::{Edge, Task, TaskGraph};

/// Pairs that talk, each task on another core than its partner, and the first core with more than the others.
fn scattered(by_work: bool) -> Case {
    let task = |id: u64| Task {
        id,
        load_s: 1.0 + (id % 3) as f64,
        size_bytes: 0.0,
        core: Some(if id < 40 { 0 } else { (id % 8) as u32 }),
        movable: true,
    };
    let edge = |from: u64, to: u64| Edge { from, to, messages: 10.0, bytes: 100.0 };
    let edges: Vec<Edge> =
        (0..200).flat_map(|t| [edge(t, (t + 1) % 200), edge(t, (t * 7) % 200)]).collect();
    let graph = TaskGraph::new((0..200).map(task).collect(), &edges).unwrap();
    let cluster = Cluster::even(2, 4, 2.0).unwrap();
    let nature = Nature::default();
    let input = Input { graph, nature, tasks_file: "o.csv".into(), notes: Vec::new() };
    case(input, cluster, by_work)
}

fn case(input: Input, cluster: Cluster, by_work: bool) -> Case {
    let (present, from) = present(&input, &cluster, None).unwrap();
    Case {
        input,
        cluster,
        topology: "as given".into(),
        factors_from: "given",
        caches_from: None,
        present,
        from,
        background: None,
        by_work,
    }
}

/// By work alone a search does all that its limit stands for, as with a clock that stands still.
#[test]
fn a_limit_by_work_is_not_one_by_time() {
    use evenly_nuco::map::{Options, Request, mapper};
    let case = scattered(true);
    let searcher = mapper("nuco+").unwrap();
    let time_limit = evenly_model::Nanos::from_millis(20);
    let options = Options { time_limit, ..Options::default() };
    let request = Request::timeless(&case.input.graph, &case.cluster, &case.present, &options);
    assert_eq!(case.map(searcher, &options).mapping, (searcher.map)(&request));
}

/// With both bounds, whatever can be had of them: no migration too many, and the least imbalance.
#[test]
fn migrations_are_the_hard_bound() {
    use evenly_nuco::map::{Options, mapper};
    let case = scattered(true);
    let searcher = mapper("nuco+").unwrap();
    let time_limit = evenly_model::Nanos::from_millis(5);
    let before = case.before().objectives.imbalance;
    let mut last = before;
    for most in [0, 1, 5, 10, 20, 40] {
        let options = Options {
            time_limit,
            max_migrations: Some(most),
            max_imbalance: Some(0.01),
            ..Options::default()
        };
        let mapped = case.map(searcher, &options);
        let o = mapped.objectives;
        assert!(o.migrations <= most && o.imbalance <= last, "{most}: {o:?}");
        last = o.imbalance;
        assert_eq!(mapped.unreached.map(|u| u.reached), Some(o.imbalance).filter(|i| *i > 0.01));
        let json = case.json(&mapped, &options);
        assert_eq!(json["bounds_kept"], mapped.unreached.is_none());
        assert_eq!(json["notes"].as_array().unwrap().len(), 1 + usize::from(o.imbalance > 0.01));
    }
    assert!(last < 0.1 * before, "{last} of {before}");
}

/// A recorded program: what is found is there once, as it is printed; and the front has as little imbalance as a run
/// within a bound alone.
#[test]
fn a_front_reaches_what_a_bound_on_imbalance_does() {
    use evenly_nuco::map::{Options, mapper};
    use std::collections::HashSet;
    let dump = |name: &str| {
        let charm = "../../policies/nuco/tests/data/charm";
        Some(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(charm).join(name))
    };
    let [objects, edges] = ["lb_test_p32.objects.csv", "lb_test_p32.edges.csv"].map(dump);
    let input = Files { objects, edges, ..Files::default() }.read().unwrap();
    let case = case(input, Cluster::even(4, 8, 2.0).unwrap(), true);
    let time_limit = evenly_model::Nanos::from_millis(20);
    let options = Options { time_limit, ..Options::default() };
    let front = case.front(&options, Vec::new(), |_, _| {});
    let csv = front.csv();
    // But for how it came about, which is the second column.
    let row = |l: &str| l.split(',').skip(2).map(str::to_owned).collect::<Vec<_>>();
    let rows: Vec<_> = csv.lines().skip(1).map(row).collect();
    let different: HashSet<_> = rows.iter().map(|r| r[..3].to_vec()).collect();
    assert_eq!(different.len(), rows.len(), "{csv}");
    for most in [0.0, 0.002, 0.01, 0.05] {
        let options = Options { max_imbalance: Some(most), ..options.clone() };
        let alone = case.map(mapper("nuco+").unwrap(), &options).objectives;
        let reaches =
            front.best().any(|p| p.mapped.objectives.imbalance <= alone.imbalance.max(most));
        assert!(reaches, "{most}: {alone:?}\n{csv}");
    }
}
