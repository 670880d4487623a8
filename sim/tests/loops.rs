//! Parallel loops in virtual time: what is divided, on which machine, and files that describe both.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_model::Nanos;
use evenly_sim::{
    Cluster, Divides, FileError, LOOP_KERNELS, LoopMachine, LoopProgram, LoopRun, compare_loops,
    loop_kernel, parse_loops, run_loops,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The machine of the paper, with half of each of 8 CPUs taken.
fn loaded() -> Cluster {
    Cluster::of_paper(4, 4, &[0.5, 0.5, 0.0, 0.0].repeat(4))
}

fn all(cluster: &Cluster, program: &LoopProgram) -> BTreeMap<String, LoopRun> {
    let compared = compare_loops(cluster, program, 1).unwrap();
    compared.arms.into_iter().map(|arm| (arm.divides, arm.run)).collect()
}

fn over_plain(runs: &BTreeMap<String, LoopRun>, divides: &str) -> f64 {
    runs[divides].makespan.as_secs_f64() / runs["plain"].makespan.as_secs_f64()
}

/// As many iterations as the program has, by loop.
fn counts(program: &LoopProgram) -> Vec<u64> {
    let in_step = |l: usize, step: u64| {
        let of = &program.loops[l];
        of.bounds.count().unwrap().saturating_sub(if of.shrinks { step } else { 0 })
    };
    (0..program.loops.len())
        .map(|l| (0..program.steps).map(|step| in_step(l, step)).sum())
        .collect()
}

#[track_caller]
fn each_iteration_once(program: &LoopProgram, run: &LoopRun, what: &str) {
    let done: Vec<u64> = run.loops.iter().map(|l| l.iterations.iter().sum()).collect();
    assert_eq!(done, counts(program), "{what}");
}

/// Nobody is in the way: whoever leaves data where they are is as fast as the plain program.
#[test]
fn without_load_nothing_is_lost() {
    for name in ["matrix", "jacobi", "sor", "shallow"] {
        let program = (loop_kernel(name).unwrap().program)();
        let runs = all(&Cluster::of_paper(4, 4, &[]), &program);
        for divides in ["static", "static-steal", "rp", "rp-steal", "auto"] {
            let of_plain = over_plain(&runs, divides);
            assert!((0.97..1.03).contains(&of_plain), "{name}, {divides}: {of_plain}");
        }
    }
}

#[test]
fn by_relative_power_loaded_processors_hold_nobody_up() {
    for kernel in LOOP_KERNELS {
        let program = (kernel.program)();
        let runs = all(&loaded(), &program);
        let of_plain = over_plain(&runs, "rp");
        assert!(of_plain < 1.0, "{}: {of_plain}", kernel.name);
        for (divides, run) in &runs {
            each_iteration_once(&program, run, &format!("{}, {divides}", kernel.name));
        }
    }
}

/// Would catch: a scheduler that pays for one party with the other's time.
#[test]
fn who_cooperates_is_no_slower_and_the_others_have_their_half() {
    for kernel in LOOP_KERNELS {
        let program = (kernel.program)();
        let c = compare_loops(&loaded().cooperating(), &program, 1).unwrap();
        let of = |name: &str| c.arms.iter().find(|arm| arm.divides == name).unwrap();
        for name in ["plain", "rp-steal"] {
            let (alone, both) = (of(name), of(&format!("{name}+sch")));
            assert!(!alone.cooperates && both.cooperates);
            let gain = both.run.makespan.as_secs_f64() / alone.run.makespan.as_secs_f64();
            // Who waits for whose lock differs from one division of Water to the next, by some per cent of its time.
            let is_so = kernel.name == "water" && name == "rp-steal";
            let most = if is_so { 1.06 } else { 1.0 };
            assert!(gain < most, "{}, {name}: {gain}", kernel.name);
            for arm in [alone, both] {
                let take = arm.others_take.unwrap();
                assert!((1.7..2.02).contains(&take), "{}, {}: {take}", kernel.name, arm.divides);
            }
        }
    }
    // Who waits for all others at each barrier loses no turn to them.
    let jacobi = (loop_kernel("jacobi").unwrap().program)();
    let time = |loads: &[f64], cooperates| {
        let cluster = Cluster::of_paper(4, 4, loads);
        let cluster = if cooperates { cluster.cooperating() } else { cluster };
        run_loops(&cluster, &jacobi, Divides::Plain, 1).unwrap().makespan.as_secs_f64()
    };
    let (all, one) = ([0.5, 0.5, 0.0, 0.0].repeat(4), [0.5]);
    assert!(
        time(&all, true) < 1.03 * time(&one, true) && time(&all, false) > 1.1 * time(&one, false)
    );
    // With nobody to yield to nothing changes.
    assert_eq!(time(&[], true), time(&[], false));
}

/// The processors that nobody else uses, alone: as many of these by themselves.
#[test]
fn the_free_processors_alone_are_an_arm() {
    let program = (loop_kernel("gauss").unwrap().program)();
    let loads =
        [vec![0.5; 4], vec![0.5, 0.0, 0.5, 0.5], vec![0.0; 4], vec![0.5, 0.5, 0.0, 0.0]].concat();
    let c = compare_loops(&Cluster::of_paper(4, 4, &loads), &program, 1).unwrap();
    let alone = c.arms.last().unwrap();
    assert_eq!(
        (alone.divides.as_str(), alone.cooperates, alone.others_take),
        ("free-cpus", false, Some(1.0))
    );
    assert_eq!((c.best.as_str(), alone.loaded), ("free-cpus", Some(0.0)));
    each_iteration_once(&program, &alone.run, "free-cpus");
    for (p, load) in loads.iter().enumerate() {
        let is_free = *load == 0.0;
        assert_eq!(alone.run.loops[0].iterations[p] > 0, is_free, "{p}");
        assert_eq!(alone.run.others[p], if is_free { 0.0 } else { 1.0 }, "{p}");
    }
    // On the paper's machine they are the half of each node.
    let halves = compare_loops(&loaded(), &program, 1).unwrap().arms.pop().unwrap();
    let dedicated = run_loops(&Cluster::of_paper(4, 2, &[]), &program, Divides::Plain, 1).unwrap();
    assert_eq!(halves.run.makespan, dedicated.makespan);
    // With all or none of them loaded there is no such arm.
    let matrix = (loop_kernel("matrix").unwrap().program)();
    for loads in [vec![0.5; 16], vec![]] {
        let c = compare_loops(&Cluster::of_paper(4, 4, &loads), &matrix, 1).unwrap();
        assert!(c.arms.iter().all(|arm| arm.divides != "free-cpus"), "{loads:?}");
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    let program = (loop_kernel("jacobi").unwrap().program)();
    for cluster in [loaded(), loaded().cooperating()] {
        for divides in Divides::all() {
            let run = |seed| run_loops(&cluster, &program, divides, seed).unwrap();
            assert_eq!(run(7), run(7), "{divides}");
            assert_ne!(run(7).makespan, run(8).makespan, "{divides}");
        }
    }
}

#[test]
fn one_node_fetches_nothing() {
    for kernel in LOOP_KERNELS {
        let program = (kernel.program)();
        for (divides, run) in all(&Cluster::of_paper(1, 8, &[0.5; 4]), &program) {
            let moved = (run.transfers, run.diffs, run.messages);
            assert_eq!(moved, (0, 0, 0), "{}, {divides}", kernel.name);
        }
    }
}

/// The limit is one: nobody is faster. And what is free of each processor is what it is given, about.
#[test]
fn a_comparison_says_what_the_limit_is() {
    let program = (loop_kernel("matrix").unwrap().program)();
    let c = compare_loops(&loaded(), &program, 1).unwrap();
    // 204 products of 512 rows of 9.855 ms, on 8 CPUs and 8 halves.
    assert_eq!(c.limit.as_secs_f64(), 204.0 * 512.0 * 0.009_855 / 12.0);
    assert!(c.gains && c.best != "plain" && c.main == "product");
    for arm in &c.arms {
        assert!(arm.run.makespan >= c.limit, "{arm:?}");
        let (loaded, free) = (arm.loaded.unwrap(), arm.free.unwrap());
        assert!((8.0 * (loaded + free) - 1.0).abs() < 1e-9, "{arm:?}");
    }
    let rp = c.arms.iter().find(|arm| arm.divides == "rp").unwrap();
    assert!((1.8..2.2).contains(&(rp.free.unwrap() / rp.loaded.unwrap())), "{rp:?}");
    let idle = compare_loops(&Cluster::of_paper(4, 4, &[]), &program, 1).unwrap();
    assert!(!idle.gains && idle.arms.iter().all(|arm| arm.loaded.is_none()), "{idle:?}");
}

fn example() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/scenarios/loops.toml");
    std::fs::read_to_string(path).unwrap()
}

fn durations(m: &LoopMachine) -> [Nanos; 6] {
    let costs = &m.costs;
    [m.fetch, costs.wire, costs.twin, costs.diff, costs.message, costs.barrier]
}

#[test]
fn the_example_runs() {
    let d = parse_loops(&example()).unwrap();
    // It names the usual values; durations are read to the nanosecond or two.
    let usual = LoopMachine::default();
    let counts = |m: &LoopMachine| (m.nodes, m.processors, m.page_bytes, m.quantum);
    assert_eq!(counts(&d.machine), counts(&usual));
    for (read, usual) in durations(&d.machine).into_iter().zip(durations(&usual)) {
        assert!(read.0.abs_diff(usual.0) < 2, "{read:?} for {usual:?}");
    }
    let runs = all(&loaded(), &d.program);
    assert!(runs["rp"].makespan < runs["plain"].makespan);
    runs.iter().for_each(|(divides, run)| each_iteration_once(&d.program, run, divides));
}

const GOOD: &str = "steps = 3\n[[array]]\nname = \"a\"\nrows = 64\nrow_bytes = 512\n\
    [[loop]]\nname = \"l\"\nwork = \"1ms\"\nwrites = [\"a\"]\n";

#[test]
fn what_is_left_out_has_usual_values() {
    let d = parse_loops(GOOD).unwrap();
    assert_eq!(d.machine, LoopMachine::default());
    let of = &d.program.loops[0];
    assert_eq!((of.bounds.count(), of.region.sections.len(), of.shrinks), (Some(64), 1, false));
    // The first array that is written, or else read, says how many there are.
    let two =
        GOOD.replace("[[loop]]", "[[array]]\nname = \"b\"\nrows = 9\nrow_bytes = 8\n[[loop]]");
    let reads = two.replace("writes = [\"a\"]", "reads = [\"b\", \"a\"]\naccess = \"stencil\"");
    let of = &parse_loops(&reads).unwrap().program.loops[0];
    assert_eq!((of.bounds.count(), of.region.sections.len()), (Some(9), 6));
    // A loop that only computes.
    let computes = "steps = 1\n[[loop]]\nname = \"l\"\nwork = \"1ms\"\niterations = 5\n";
    assert_eq!(parse_loops(computes).unwrap().program.loops[0].bounds.count(), Some(5));
}

/// Four pages, of which each of four nodes has one.
#[test]
fn what_is_needed_everywhere_goes_to_each_node_once() {
    let text = GOOD.replace("writes = [\"a\"]", "everywhere = [\"a\"]\niterations = 64");
    let d = parse_loops(&text).unwrap();
    for (divides, run) in all(&d.machine.cluster(&[0.5; 3]), &d.program) {
        assert_eq!(run.transfers, 12, "{divides}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    assert!(parse_loops(GOOD).is_ok());
    let with = |more: &str| format!("{GOOD}{more}\n");
    let on = |machine: &str| format!("{GOOD}[machine]\n{machine}\n");
    let instead = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from}");
        GOOD.replace(from, to)
    };
    let more = "[[loop]]\nname = \"l\"\nwork = \"1ms\"\niterations = 1\n";
    let array = "[[array]]\nname = \"a\"\nrows = 1\nrow_bytes = 1\n";
    let cases = [
        (String::new(), "missing field `steps`"),
        (String::from("x ="), "line 1"),
        (String::from("steps = 1\n"), "loop: there are 0; 1 to 64"),
        (with(&more.replace("\"l\"", "\"m\"").repeat(64)), "loop: there are 65"),
        (with(more), "loop[1].name: 'l' is the name of another"),
        (instead("steps = 3", "steps = 0"), "steps: it must be at least 1"),
        (instead("steps = 3", "steps = -1"), "steps: invalid value"),
        (instead("steps = 3", "steps = 9000000"), "instances: there are 9000000"),
        (instead("steps", "stepz"), "stepz: unknown field"),
        (with("colour = 1"), "loop[0].colour: unknown field"),
        (with("load = \"even\""), "loop[0].load: 'even' is unknown; there are fixed, variable"),
        (with("access = \"all\""), "loop[0].access: 'all' is unknown; there are independent"),
        (with("reads = [\"b\"]"), "loop[0].reads: there is no array 'b'; there are a"),
        (with("everywhere = [\"a\", \"a\"]"), "loop[0].everywhere: 'a' must be there once"),
        (with("iterations = 65"), "loop[0].iterations: 65 are more than the 64 rows of 'a'"),
        (with("iterations = 0"), "loop[0].iterations: there must be at least 1"),
        (with("shrinks = 1"), "loop[0].shrinks: invalid type"),
        (instead("writes = [\"a\"]\n", ""), "loop[0].iterations: it must be given"),
        (instead("name = \"l\"\n", ""), "loop[0]: missing field `name`"),
        (instead("\"l\"", "\"\""), "loop[0].name: it must have 1 to 40 letters"),
        (instead("\"l\"", "\"a\\tb\""), "loop[0].name: it must have"),
        (instead("\"1ms\"", "\"0s\""), "loop[0].work: it must be longer than 0"),
        (instead("\"1ms\"", "\"1\""), "loop[0].work: duration '1'"),
        (instead("\"1ms\"", "\"1000000s\""), "the program: its processors may need"),
        (with(array), "array[1].name: 'a' is the name of another"),
        (with(&array.repeat(64)), "array: there are 65; at most 64"),
        (instead("rows = 64", "rows = 0"), "array[0].rows: 0 must be from 1"),
        (instead("row_bytes = 512", "row_bytes = 0"), "array[0].row_bytes: 0 must be from 1"),
        (
            instead("row_bytes = 512", "row_bytes = 1099511627776"),
            "pages of all arrays: there are 8589934592; needed from 1 to 4000000",
        ),
        (on("nodes = 0"), "machine.nodes: 0 must be from 1 to 64"),
        (on("nodes = 65"), "machine.nodes: 65"),
        (on("processors = 1025"), "machine.processors: 1025 must be from 1 to 1024"),
        (on("nodes = 3"), "machine.processors: 16 must be a multiple of 3"),
        (on("page = 8"), "machine.page: 8 must be from 64"),
        (on("quantum = \"0s\""), "machine.quantum: it must be at least 10us"),
        (on("fetch = 3"), "machine.fetch: invalid type"),
        (on("speed = 1"), "machine.speed: unknown field"),
        (" ".repeat(2 << 20), "more than 1048576 bytes"),
    ];
    for (text, words) in cases {
        let said = parse_loops(&text).map(|_| ()).unwrap_err().to_string();
        assert!(said.contains(words), "{said}\nshould have: {words}\n{text:.300}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert!(matches!(parse_loops("a = ["), Err(FileError::Syntax { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever is described ends, under every way of dividing, with each iteration done once, and is no faster than the limit.
    #[test]
    fn what_is_described_runs(
        steps in 1..6u64,
        (nodes, each) in (1..6usize, 1..5usize),
        page in prop_oneof![Just(64u64), Just(100), Just(4_096)],
        quantum in prop_oneof![Just("10us"), Just("1ms"), Just("3s")],
        costs in prop_oneof![Just("0s"), Just("7us"), Just("1ms")],
        (rows, row_bytes) in (1..300u64, 1..3_000u64),
        fewer in 0..20u64,
        work in prop_oneof![Just("1ns"), Just("40us"), Just("5ms")],
        load in prop_oneof![Just("fixed"), Just("variable")],
        access in prop_oneof![Just("independent"), Just("stencil"), Just("unknown")],
        uses in prop::collection::vec(0..8u32, 2),
        shrinks: bool,
        loads in prop::collection::vec(prop_oneof![Just(0.0), Just(1e-12), 0.0..0.99], 1..20),
        cooperates: bool,
        seed: u64,
    ) {
        let list = |bit: u32| {
            let named: Vec<&str> =
                ["\"a\"", "\"b\""].into_iter().zip(&uses).filter(|(_, u)| *u >> bit & 1 == 1).map(|n| n.0).collect();
            named.join(", ")
        };
        let mut text = format!("steps = {steps}\n[machine]\nnodes = {nodes}\nprocessors = {}\n\
            page = {page}\nquantum = \"{quantum}\"\n", nodes * each);
        for key in ["fetch", "wire", "twin", "diff", "message", "barrier"] {
            text += &format!("{key} = \"{costs}\"\n");
        }
        for name in ["a", "b"] {
            text += &format!("[[array]]\nname = \"{name}\"\nrows = {rows}\nrow_bytes = {row_bytes}\n");
        }
        for (i, shrinks) in [shrinks, false].iter().enumerate() {
            text += &format!(
                "[[loop]]\nname = \"l{i}\"\niterations = {}\nwork = \"{work}\"\nload = \"{load}\"\n\
                 access = \"{access}\"\nreads = [{}]\nwrites = [{}]\neverywhere = [{}]\nshrinks = {shrinks}\n",
                rows.saturating_sub(fewer).max(1), list(0), list(1), list(2)
            );
        }
        let d = match parse_loops(&text) {
            Ok(d) => d,
            Err(e) => {
                prop_assert!(e.to_string().contains("operations of the simulator"), "{}", e);
                return Err(TestCaseError::reject("it takes too long"));
            }
        };
        let cluster = d.machine.cluster(&loads);
        let cluster = if cooperates { cluster.cooperating() } else { cluster };
        prop_assume!(d.program.operations(&cluster) < 3e7);
        let c = match compare_loops(&cluster, &d.program, seed) {
            Ok(c) => c,
            Err(e) => {
                // Each wait may cost a turn of the others, of which each may take minutes.
                prop_assert!(cooperates && e.to_string().contains("s together"), "{}", e);
                return Err(TestCaseError::reject("it takes too long"));
            }
        };
        for arm in &c.arms {
            each_iteration_once(&d.program, &arm.run, &arm.divides);
            prop_assert!((0.0..=1.0).contains(&arm.run.waited), "{}: {}", arm.divides, arm.run.waited);
            let others = &arm.run.others;
            prop_assert!(others.iter().all(|part| (0.0..=1.0).contains(part)), "{}: {:?}", arm.divides, others);
        }
    }
}
