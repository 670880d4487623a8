//! What the probe and the balancer do to a program's answers: nothing. Every program of `workloads/`, with
//! each runtime that it is built for, and Fortran's MPI, runs by itself, watched with the probe, balanced with
//! it by progress and by work, and under the doctor; its output, but for times, and its status are the same
//! each time.
//!
//! Balanced as restlessly as possible, and with more threads than CPUs. Nothing here depends on how fast the
//! machine is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A program that is run in each way.
struct Case {
    /// Its source in `workloads/`, without the ending; empty for others.
    source: &'static str,
    command: Vec<String>,
    variables: Vec<(&'static str, &'static str)>,
    /// How many of its processes have the probe, at least.
    processes: u64,
}

/// Where its work is so long that it is balanced, on CPUs of today.
const PHASES: &str = "--threads 3 --phases 15 --iters 1500000 --imbalance 1,1,2";

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn case(source: &'static str, program: &str, options: &str) -> Case {
    let command = [vec![workload(program)], words(options)].concat();
    Case { source, command, variables: Vec::new(), processes: 1 }
}

/// Those of POSIX threads and OpenMP.
fn threads() -> Vec<Case> {
    let mut all = Vec::new();
    for barrier in ["block", "spin", "yield", "spinblock"] {
        all.push(case("spmd", "spmd", &format!("{PHASES} --barrier {barrier}")));
    }
    all.push(case(
        "spmd",
        "spmd",
        &format!("{PHASES} --kind memory --working-set 64K --main-works 1"),
    ));
    for (source, options) in [
        ("omp_spmd", PHASES),
        ("ep", "--threads 3"),
        ("jacobi", "--threads 3 --size 200 --sweeps 300"),
        ("triangle", "--threads 3 --rows 60 --sweeps 15 --iters 3000"),
    ] {
        for runtime in ["gomp", "omp"] {
            let program = format!("{source}-{runtime}");
            if !Path::new(&workload(&program)).exists() {
                evenly_testing::skip("clang", format!("there is no {program}"));
                continue;
            }
            all.push(case(source, &program, options));
            if source == "omp_spmd" {
                let mut spins = case(source, &program, options);
                spins.variables.push(("OMP_WAIT_POLICY", "active"));
                all.push(spins);
            }
        }
    }
    all.push(case("noise", "noise", "--sleep-ms 0,20 --busy-ms 10,20 --duration-s 0.3 --seed 3"));
    all.push(case(
        "churn",
        "churn",
        "--threads 20 --rate 300 --life-ms 5 --burn --workers 3 --duration-s 0.3",
    ));
    for oddity in [
        "exec-nonleader sh -c 'echo after; exit 7'",
        "leader-exit",
        "names",
        "spawn-late 3",
        "grow 2",
        "relay 3",
        "exit-status 5",
        "die-by TERM",
    ] {
        let (name, rest) = oddity.split_once(' ').unwrap_or((oddity, ""));
        let mut case = case("odd", "odd", "--duration-ms 200");
        case.command.push(name.to_owned());
        match rest.split_once('\'') {
            Some((before, script)) => {
                case.command.extend(words(before));
                case.command.push(script.trim_end_matches('\'').to_owned());
            }
            None => case.command.extend(words(rest)),
        }
        all.push(case);
    }
    all
}

/// Those of MPI: sources, forms of the program, and options.
const OF_MPI: [(&str, &str, &str); 7] = [
    ("metbench", "metbench", "--iterations 12 --iters 400000 --loads 1,4 --reverse 4"),
    ("metbench", "metbench", "--iterations 12 --iters 400000 --sync neighbours"),
    ("mpi_stencil", "stencil", "--size 200 --sweeps 25"),
    ("mpi_rate", "rate", "--messages 200 --steps 1000"),
    ("", "c", ""),
    ("", "mpi", ""),
    ("", "f08", ""),
];

/// Those of MPI, of each kind that is here.
fn ranks() -> Vec<Case> {
    let mut all = Vec::new();
    for mpi in mpi::here() {
        for (source, form, options) in OF_MPI {
            let program = mpi.program(form);
            let command: Vec<&str> =
                [program.as_str()].into_iter().chain(options.split_whitespace()).collect();
            let command = mpi.launch(&command);
            let variables = mpi::ENVIRONMENT.into();
            all.push(Case { source, command, variables, processes: mpi::N });
        }
    }
    all
}

/// What is printed but for what is another each time: times and what follows from them, ids, and masks,
/// which are what balancing changes.
fn answer(stdout: &[u8]) -> String {
    fn leave_out(value: &mut Value) {
        const VARY: [&str; 10] = [
            "created",
            "created_per_s",
            "worker_steps",
            "interval_count",
            "intervals",
            "seconds",
            "legs",
            "tid",
            "child",
            "mask",
        ];
        match value {
            Value::Object(fields) => {
                fields.retain(|name, _| !name.ends_with("_s") && !VARY.contains(&name.as_str()));
                fields.values_mut().for_each(leave_out);
            }
            Value::Array(values) => values.iter_mut().for_each(leave_out),
            _ => {}
        }
    }
    let text = String::from_utf8_lossy(stdout);
    let lines = text.lines().map(|line| match serde_json::from_str::<Value>(line) {
        Ok(mut value) => {
            leave_out(&mut value);
            value.to_string()
        }
        Err(_) => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What can be told of a program from outside.
fn seen(output: &Output) -> (String, Option<i32>, Option<i32>) {
    (answer(&output.stdout), output.status.code(), output.status.signal())
}

fn same_in_all_ways(cases: &[Case]) {
    let state = State::new();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let restless = words("run -q --period 10ms --budget 50 --no-guard --policy");
    for case in cases {
        let run = |command: &mut Command| {
            command.envs(case.variables.iter().copied()).env("XDG_CACHE_HOME", &cache);
            let output = command.stdin(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            (seen(&output), said)
        };
        let (alone, said) = run(Command::new(&case.command[0]).args(&case.command[1..]));
        assert!(!alone.0.is_empty() || alone.1 != Some(0), "{:?}: {said}", case.command);
        let json = state.sign("run.json");
        let under = |options: &[String]| -> Vec<String> {
            let all = [options, &words(&format!("--probe on --json {json} --")), &case.command];
            all.concat()
        };
        let watched = under(&words("run -q --policy observe"));
        let [level, uneven] =
            ["hybrid", "hpc-auto"].map(|policy| under(&[restless.clone(), words(policy)].concat()));
        let examined = under(&words("doctor"));
        for arguments in [&watched, &level, &uneven, &examined] {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            // That of the run before is no report of this one.
            match fs::remove_file(&json) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => panic!("{json}: {e}"),
                _ => {}
            }
            let (found, said) = run(&mut state.command(&arguments));
            assert_eq!(found, alone, "{arguments:?}: {said}");
            assert!(!said.contains("ld.so"), "{arguments:?}: {said}");
            let report: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
            schema::valid(&report);
            if arguments[0] == "run" {
                let probe = &report["probe"];
                let processes = probe["processes"].as_u64().unwrap();
                assert!(processes >= case.processes && probe["left_out"] == 0, "{probe:#}");
            }
        }
    }
}

#[test]
fn programs_with_threads_print_the_same() {
    same_in_all_ways(&threads());
}

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn programs_of_mpi_print_the_same() {
    same_in_all_ways(&ranks());
}

/// A workload that is new has to be in one of these lists.
#[test]
fn no_workload_is_left_out() {
    let all = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads")).unwrap();
    let programs: BTreeSet<String> = all
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "c"))
        .filter(|path| fs::read_to_string(path).unwrap().contains("\nint main("))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let mut covered: BTreeSet<String> =
        threads().iter().map(|case| case.source.to_owned()).collect();
    // From the table, as neither MPI need be here.
    let of_mpi = OF_MPI.iter().map(|(source, ..)| *source).filter(|source| !source.is_empty());
    covered.extend(of_mpi.map(String::from));
    assert_eq!(programs, covered);
}

#[test]
fn only_times_are_left_out() {
    let line = br#"{"checksum":"7","makespan_s":1.5,"threads":[{"tid":7,"name":"x"}],"created":5}"#;
    assert_eq!(answer(line), r#"{"checksum":"7","threads":[{"name":"x"}]}"#);
    assert_eq!(answer(b"plain\n1.5"), "plain\n1.5");
}
