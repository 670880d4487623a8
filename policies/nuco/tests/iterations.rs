//! The model of tasks that exchange messages, term by term, by hand.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_cluster::{Cluster, CoreIndex, Node};
use evenly_model::{Edge, Nanos, Task, TaskGraph};
use evenly_nuco::iterations::{Parameters, Program, Remapper, Run, run};
use evenly_nuco::map::apps::APPS;
use evenly_nuco::map::machines::MACHINES;
use evenly_nuco::map::{Effort, MAPPERS, MapperInfo, Options, mapper};

/// Nothing costs anything, and nothing varies.
const FREE: Parameters = Parameters {
    memory_share: 0.0,
    memory_follows: true,
    message_s: 0.0,
    network_s: 0.0,
    flight_s: 0.0,
    jitter: 0.0,
    drift: 0.0,
    gather_s: 0.0,
    look_s: 0.0,
    migration_s: 0.0,
};

fn graph(loads: &[f64], edges: &[(u64, u64, f64, f64)]) -> TaskGraph {
    let task = |(id, &load_s): (usize, &f64)| Task {
        id: id as u64,
        load_s,
        size_bytes: 1e6,
        core: None,
        movable: true,
    };
    let edge =
        |&(from, to, messages, bytes): &(u64, u64, f64, f64)| Edge { from, to, messages, bytes };
    let tasks = loads.iter().enumerate().map(task).collect();
    TaskGraph::new(tasks, &edges.iter().map(edge).collect::<Vec<_>>()).unwrap()
}

/// Two hosts of two nodes of two cores: 2 between the nodes of a host, 5 between hosts; 1 GB/s in a
/// node, 0.5 between nodes, 0.1 between hosts.
fn machine() -> Cluster {
    let even = Cluster::even(4, 2, 2.0).unwrap();
    let of = |by: [f64; 3]| -> Vec<f64> {
        let pick = |k: usize| match (k / 4, k % 4) {
            (i, j) if i == j => by[0],
            (i, j) if i / 2 == j / 2 => by[1],
            _ => by[2],
        };
        (0..16).map(pick).collect()
    };
    let nodes = (0..4).map(|n| Node { id: n % 2, host: n / 2 }).collect();
    Cluster::new(even.cores().to_vec(), nodes, Vec::new(), of([1.0, 2.0, 5.0]))
        .unwrap()
        .with_bandwidths(of([1e9, 0.5e9, 0.1e9]))
        .unwrap()
}

/// A run of windows of one iteration, so that amounts are those of an iteration.
fn once(graph: &TaskGraph, start: &[CoreIndex], parameters: &Parameters) -> Run {
    let program = Program { graph, window: 1, iterations: 1, start };
    run(&program, &machine(), parameters, None, 1).unwrap()
}

#[track_caller]
fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-12 + 1e-9 * expected.abs(), "{found}, not {expected}");
}

/// What all cores are at work in the first iteration.
fn busy_s(r: &Run) -> f64 {
    r.busy_s[0].iter().sum()
}

#[test]
fn an_iteration_ends_with_the_slowest_core() {
    let g = graph(&[1.0, 2.0, 4.0], &[]);
    let r = once(&g, &[0, 0, 1], &FREE);
    near(r.makespan_s, 4.0);
    near(busy_s(&r), 7.0);
    near(r.idle(), 1.0 - 7.0 / 32.0);
    near(once(&g, &[0, 0, 0], &FREE).makespan_s, 7.0);
    // A window of several iterations has the load of all of them.
    let program = Program { graph: &g, window: 4, iterations: 6, start: &[0, 0, 1] };
    let r = run(&program, &machine(), &FREE, None, 1).unwrap();
    assert_eq!((r.iterations_s.len(), r.calls.len()), (6, 0));
    near(r.makespan_s, 6.0);
}

#[test]
fn a_message_from_another_node_is_read_at_its_factor() {
    let p = Parameters { message_s: 0.01, ..FREE };
    // 3 messages of together 60 MB to task 0: in its load as long as they come from its node.
    let g = graph(&[1.0, 0.0], &[(1, 0, 3.0, 60e6)]);
    near(once(&g, &[0, 0], &p).makespan_s, 1.0);
    near(once(&g, &[0, 1], &p).makespan_s, 1.0);
    // From the other node: as much again (factor 2). Two cores share 1 GB/s.
    let read = 3.0 * 0.01 + 60e6 / 0.5e9;
    near(once(&g, &[0, 2], &p).makespan_s, 1.0 + read);
    // One that only sends reads nothing.
    near(once(&g, &[2, 0], &p).makespan_s, 1.0 + read);
    let back = graph(&[1.0, 0.0], &[(0, 1, 3.0, 60e6)]);
    near(once(&back, &[0, 2], &p).makespan_s, 1.0);
    near(busy_s(&once(&back, &[0, 2], &p)), 1.0 + read);
}

#[test]
fn a_message_between_hosts_costs_both_and_arrives_later() {
    let p = Parameters { message_s: 0.01, network_s: 0.1, flight_s: 0.5, ..FREE };
    let g = graph(&[1.0, 3.0], &[(1, 0, 2.0, 10e6)]);
    let r = once(&g, &[0, 4], &p);
    // The receiver: 1 s, reading 4 times more than in its load, and handling; the sender: 3 s and
    // handling. Then 10 MB at 0.1 GB/s, and the flight.
    let read = 2.0 * 0.01 + 10e6 / 0.5e9;
    near(busy_s(&r), 1.0 + 4.0 * read + 0.2 + 3.0 + 0.2);
    near(r.makespan_s, 3.2 + 0.5 + 0.1);
    // All hosts share the network: three messages of 10 s each, of which no core takes as long to read.
    let g = graph(&[0.0; 4], &[(0, 1, 1.0, 1e9), (1, 0, 1.0, 1e9), (2, 3, 1.0, 1e9)]);
    let r = once(&g, &[0, 4, 2, 6], &FREE);
    near(busy_s(&r), 3.0 * 4.0 * 2.0);
    near(r.makespan_s, 30.0);
}

/// Everything on the first core.
fn heap_up() -> MapperInfo {
    MapperInfo {
        name: "heap",
        about: "",
        effort: Effort::EveryCore,
        map: |r| vec![0; r.graph.len()],
    }
}

#[test]
fn a_call_takes_deciding_and_copying_host_by_host() {
    let p = Parameters { gather_s: 1.0, look_s: 0.01, migration_s: 0.1, ..FREE };
    let g = graph(&[1.0; 4], &[(0, 1, 1.0, 0.0)]);
    let program = Program { graph: &g, window: 1, iterations: 2, start: &[1, 2, 4, 6] };
    let (heap_up, options) = (heap_up(), Options::default());
    let balancer = Remapper::of(&heap_up, &options);
    let r = run(&program, &machine(), &p, Some(balancer), 1).unwrap();
    let [call] = r.calls[..] else { panic!("{r:?}") };
    // 1 MB within a node and from the other: 1 and 2 ms; from the other host 10 ms each.
    let deciding = 4.0 + 0.01 * (4.0 * 8.0 + 1.0);
    near(call.took_s, deciding + 2.0 * (0.1 + 0.01));
    assert_eq!((call.migrations, call.migrated_bytes), (4, 4e6));
    near(r.iteration_s(), 4.0);
    near(r.makespan_s, 1.0 + 4.0 + call.took_s);
    assert_eq!(r.mappings, [vec![1, 2, 4, 6], vec![0; 4]]);
    // One that searches takes its time.
    let searches = MapperInfo { effort: Effort::Search, ..heap_up };
    let options = Options { time_limit: Nanos::from_millis(2_500), ..options };
    let balancer = Remapper::of(&searches, &options);
    let r = run(&program, &machine(), &p, Some(balancer), 1).unwrap();
    near(r.calls[0].took_s, 4.0 + 2.5 + 2.0 * (0.1 + 0.01));
    // Longer where only judging takes longer.
    let options = Options { time_limit: Nanos::from_millis(250), ..options };
    let balancer = Remapper::of(&searches, &options);
    let r = run(&program, &machine(), &p, Some(balancer), 1).unwrap();
    near(r.calls[0].took_s, 4.0 + 4.0 * 0.13 + 2.0 * (0.1 + 0.01));
}

#[test]
fn memory_that_stays_behind_is_read_from_afar() {
    let g = graph(&[1.0], &[]);
    let program = Program { graph: &g, window: 1, iterations: 3, start: &[2] };
    let (heap_up, options) = (heap_up(), Options::default());
    let balancer = Remapper::of(&heap_up, &options);
    let takes = |memory_follows| {
        let p = Parameters { memory_share: 0.25, memory_follows, ..FREE };
        run(&program, &machine(), &p, Some(balancer), 1).unwrap().iterations_s
    };
    assert_eq!(takes(true), [1.0, 1.0, 1.0]);
    // A quarter of the second takes twice as long.
    assert_eq!(takes(false), [1.0, 1.25, 1.25]);
}

#[test]
fn the_balancer_is_called_between_windows_and_sees_what_tasks_took() {
    fn heaviest_alone(r: &evenly_nuco::map::Request<'_>) -> Vec<CoreIndex> {
        // Task 1 has the less load, and takes longer for its messages.
        let load = |t: usize| r.graph.tasks()[t].load_s;
        vec![0, if load(1) > load(0) { 1 } else { 0 }]
    }
    let mapper = MapperInfo { name: "", about: "", effort: Effort::EveryCore, map: heaviest_alone };
    let options = Options::default();
    let g = graph(&[8.0, 4.0], &[(0, 1, 4.0, 0.0)]);
    let p = Parameters { message_s: 3.0, ..FREE };
    let go = |start: [CoreIndex; 2], iterations| {
        let program = Program { graph: &g, window: 4, iterations, start: &start };
        let balancer = Remapper::of(&mapper, &options);
        run(&program, &machine(), &p, Some(balancer), 1).unwrap()
    };
    // On another node task 1 takes 1 s and 3 s more an iteration: 16 s in a window, more than 8.
    let r = go([0, 2], 12);
    assert_eq!((r.calls.len(), r.mappings[2][1], r.before), (2, 0, 4));
    assert_eq!(r.calls[0].migrations, 1);
    // After that it is on the node of its partner and takes less: then it goes to the same core.
    assert_eq!(r.iterations_s, [4.0, 4.0, 4.0, 4.0, 2.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 3.0]);
    assert_eq!((go([0, 2], 4).calls.len(), go([0, 2], 5).calls.len()), (0, 1));
    assert_eq!(go([0, 2], 13).calls.len(), 3);
}

/// Within a window loads stay as they are; from one to the next each changes by up to the drift, whoever balances.
#[test]
fn loads_drift_from_window_to_window_the_same_under_all() {
    let g = graph(&[8.0, 4.0, 2.0], &[]);
    let p = Parameters { drift: 0.25, ..FREE };
    let options = Options::default();
    let go = |balancer| {
        let program = Program { graph: &g, window: 4, iterations: 12, start: &[0, 1, 2] };
        run(&program, &machine(), &p, balancer, 1).unwrap()
    };
    let stays =
        MapperInfo { name: "", about: "", effort: Effort::EveryTask, map: |r| r.present.to_vec() };
    let (alone, balanced) = (go(None), go(Some(Remapper::of(&stays, &options))));
    assert_eq!(alone.busy_s, balanced.busy_s);
    let takes = |core: usize, window: usize| alone.busy_s[4 * window][core];
    for (core, first) in [2.0, 1.0, 0.5].into_iter().enumerate() {
        assert_eq!(takes(core, 0), first);
        for window in 0..3 {
            let within: Vec<f64> =
                alone.busy_s[4 * window..][..4].iter().map(|b| b[core]).collect();
            assert!(within.iter().all(|b| *b == takes(core, window)), "{within:?}");
        }
        for window in 1..3 {
            let by = takes(core, window) / takes(core, window - 1) - 1.0;
            assert!(by != 0.0 && by.abs() <= 0.25, "core {core}, window {window}: {by}");
        }
    }
}

#[test]
fn a_run_is_repeatable_and_no_time_is_lost() {
    for machine in MACHINES {
        let cluster = (machine.make)().unwrap();
        for app in APPS {
            let g = app.graph(1).unwrap();
            let start = app.start(&g, &cluster);
            let program = Program::of(&app, &g, &start);
            let options = Options { time_limit: Nanos::from_millis(1), ..Options::default() };
            let go = |m: &MapperInfo, seed| {
                let balancer = Remapper::of(m, &options);
                let p = Parameters::default();
                run(&program, &cluster, &p, Some(balancer), seed).unwrap()
            };
            let nuco = mapper("nuco").unwrap();
            let r = go(nuco, 1);
            assert_eq!(r, go(nuco, 1), "{}", app.name);
            assert_ne!(r.busy_s, go(nuco, 2).busy_s, "{}", app.name);
            assert_eq!(r.calls.len() as u32, app.iterations / app.window - 1, "{}", app.name);
            assert!((0.0..1.0).contains(&r.idle()), "{}: {}", app.name, r.idle());
            for (busy, iteration) in r.busy_s.iter().zip(&r.iterations_s) {
                assert_eq!(busy.len(), cluster.cores().len());
                assert!(busy.iter().all(|busy| *busy <= iteration * (1.0 + 1e-12)));
            }
        }
    }
    assert_eq!(MAPPERS.iter().filter(|m| m.effort.searches()).count(), 1);
}
