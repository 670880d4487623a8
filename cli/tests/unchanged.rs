//! What the probe and the balancer do to a program's answers: nothing. Every program of `workloads/`, with
//! each runtime that it is built for, and Fortran's MPI, runs by itself, watched with the probe, balanced with
//! it by progress and by work, and under the doctor; its output, but for times, and its status are the same
//! each time. Each program is a test of its own, made from a table; those of MPI run with `--include-ignored`
//! only (`./dev test --all`).
//!
//! Balanced as restlessly as possible, and with more threads than CPUs. Nothing here depends on how fast the
//! machine is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::mpi::Mpi;
use common::*;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

/// A program that is run in each way.
struct Case {
    name: String,
    /// Its source in `workloads/`, without the ending; empty for others.
    source: &'static str,
    program: Program,
    arguments: Vec<String>,
    variables: Vec<(&'static str, &'static str)>,
}

/// What is built, once the test runs.
enum Program {
    /// The name of a program that is built of `workloads/`.
    Workload(String),
    /// One of MPI, in this form.
    Ranks(Mpi, &'static str),
}

/// Where its work is so long that it is balanced, on CPUs of today.
const PHASES: &str = "--threads 3 --phases 15 --iters 1500000 --imbalance 1,1,2";

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn case(name: &str, source: &'static str, program: &str, options: &str) -> Case {
    Case {
        name: format!("threads::{name}"),
        source,
        program: Program::Workload(program.to_owned()),
        arguments: words(options),
        variables: Vec::new(),
    }
}

/// Those of POSIX threads and OpenMP.
fn threads() -> Vec<Case> {
    let mut all = Vec::new();
    for barrier in ["block", "spin", "yield", "spinblock", "backoff"] {
        let options = format!("{PHASES} --barrier {barrier}");
        all.push(case(&format!("spmd_{barrier}"), "spmd", "spmd", &options));
    }
    let memory = format!("{PHASES} --kind memory --working-set 64K --main-works 1");
    all.push(case("spmd_memory", "spmd", "spmd", &memory));
    for (source, options) in [
        ("omp_spmd", PHASES),
        ("ep", "--threads 3"),
        ("jacobi", "--threads 3 --size 200 --sweeps 300"),
        ("triangle", "--threads 3 --rows 60 --sweeps 15 --iters 3000"),
        ("tasks", "--threads 3 --phases 20 --depth 6 --iters 20000"),
    ] {
        for runtime in ["gomp", "omp"] {
            let program = format!("{source}-{runtime}");
            let name = format!("{source}_{runtime}");
            all.push(case(&name, source, &program, options));
            if source == "omp_spmd" {
                let mut spins = case(&format!("{name}_active"), source, &program, options);
                spins.variables.push(("OMP_WAIT_POLICY", "active"));
                all.push(spins);
            }
        }
    }
    let noise = "--sleep-ms 0,20 --busy-ms 10,20 --duration-s 0.3 --seed 3";
    all.push(case("noise", "noise", "noise", noise));
    let churn = "--threads 20 --rate 300 --life-ms 5 --burn --workers 3 --duration-s 0.3";
    all.push(case("churn", "churn", "churn", churn));
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
        let mut case =
            case(&format!("odd_{}", name.replace('-', "_")), "odd", "odd", "--duration-ms 200");
        case.arguments.push(name.to_owned());
        match rest.split_once('\'') {
            Some((before, script)) => {
                case.arguments.extend(words(before));
                case.arguments.push(script.trim_end_matches('\'').to_owned());
            }
            None => case.arguments.extend(words(rest)),
        }
        all.push(case);
    }
    all
}

/// Those of MPI: names, sources, forms of the program, and options.
const OF_MPI: [(&str, &str, &str, &str); 7] = [
    ("metbench", "metbench", "metbench", "--iterations 12 --iters 400000 --loads 1,4 --reverse 4"),
    (
        "metbench_neighbours",
        "metbench",
        "metbench",
        "--iterations 12 --iters 400000 --sync neighbours",
    ),
    ("stencil", "mpi_stencil", "stencil", "--size 200 --sweeps 25"),
    ("rate", "mpi_rate", "rate", "--messages 200 --steps 1000"),
    ("pattern_c", "", "c", ""),
    ("pattern_mpi", "", "mpi", ""),
    ("pattern_f08", "", "f08", ""),
];

/// Those of MPI, of each kind.
fn ranks() -> Vec<Case> {
    let of = |mpi: Mpi| {
        OF_MPI.map(|(name, source, form, options)| Case {
            name: format!("{}::{name}", mpi.name),
            source,
            program: Program::Ranks(mpi, form),
            arguments: words(options),
            variables: mpi::ENVIRONMENT.into(),
        })
    };
    mpi::MPIS.into_iter().flat_map(of).collect()
}

impl Case {
    /// The command, built. None, a skip, where it cannot be.
    fn command(&self) -> Option<Vec<String>> {
        match &self.program {
            Program::Workload(name) => {
                let file = workload(name);
                if !evenly_testing::is_built(&file) {
                    return None;
                }
                Some([&[file], &self.arguments[..]].concat())
            }
            Program::Ranks(mpi, form) => {
                let program = mpi.is_here().then(|| mpi.program(form))?;
                let arguments = self.arguments.iter().map(String::as_str);
                let command: Vec<&str> = [program.as_str()].into_iter().chain(arguments).collect();
                Some(mpi.launch(&command))
            }
        }
    }

    /// How many of its processes have the probe, at least.
    fn processes(&self) -> u64 {
        match self.program {
            Program::Workload(_) => 1,
            Program::Ranks(..) => mpi::N,
        }
    }
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

fn same_in_all_ways(case: &Case) -> Result<Completion, Failed> {
    let Some(command) = case.command() else { return Ok(Completion::ignored()) };
    let state = State::new();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let restless = words("run -q --period 10ms --budget 50 --no-guard --policy");
    let run = |command: &mut Command| {
        command.envs(case.variables.iter().copied()).env("XDG_CACHE_HOME", &cache);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (seen(&output), said)
    };
    let (alone, said) = run(Command::new(&command[0]).args(&command[1..]));
    assert!(!alone.0.is_empty() || alone.1 != Some(0), "{command:?}: {said}");
    let json = state.sign("run.json");
    let under = |options: &[String]| -> Vec<String> {
        [options, &words(&format!("--probe on --json {json} --")), &command].concat()
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
            assert!(processes >= case.processes() && probe["left_out"] == 0, "{probe:#}");
        }
    }
    Ok(Completion::Completed)
}

/// A workload that is new has to be in one of these lists.
fn no_workload_is_left_out() {
    let all = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads")).unwrap();
    let programs: BTreeSet<String> = all
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "c"))
        .filter(|path| fs::read_to_string(path).unwrap().contains("\nint main("))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let cases = threads().into_iter().chain(ranks());
    let covered: BTreeSet<String> =
        cases.map(|case| case.source.to_owned()).filter(|source| !source.is_empty()).collect();
    assert_eq!(programs, covered);
}

fn only_times_are_left_out() {
    let line = br#"{"checksum":"7","makespan_s":1.5,"threads":[{"tid":7,"name":"x"}],"created":5}"#;
    assert_eq!(answer(line), r#"{"checksum":"7","threads":[{"name":"x"}]}"#);
    assert_eq!(answer(b"plain\n1.5"), "plain\n1.5");
}

/// A trial by the name of its function.
macro_rules! plain {
    ($($test:ident),*) => {
        [$(Trial::test(stringify!($test), || { $test(); Ok(()) })),*]
    };
}

fn main() -> ExitCode {
    let trial = |case: Case| {
        let needs_mpi = matches!(case.program, Program::Ranks(..));
        Trial::ignorable_test(case.name.clone(), move || same_in_all_ways(&case))
            .with_ignored_flag(needs_mpi)
    };
    let mut trials: Vec<Trial> = threads().into_iter().chain(ranks()).map(trial).collect();
    trials.extend(plain![no_workload_is_left_out, only_times_are_left_out]);
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
