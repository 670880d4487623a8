//! The six kernels of the paper's Table 1 (`workloads/loops`): their answers are those of a sequential program, by OpenMP, under all
//! policies by one to nine threads, and by the libraries that ours is compared with.
#![allow(missing_docs, clippy::unwrap_used)]
#![cfg(not(loom))]

use evenly_loops::Policy;
use evenly_testing::compiled::run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each with a size and steps that take some milliseconds.
const KERNELS: [[&str; 3]; 7] = [
    ["matrix", "60", "4"],
    ["jacobi", "100", "40"],
    ["sor", "160", "30"],
    ["shallow", "40", "12"],
    ["water", "90", "20"],
    ["gauss", "70", "69"],
    ["empty", "5", "100"],
];

/// Below the folder of the kernels.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/loops")
}

/// A library for C, which lies beside the test program.
fn library(name: &str) -> String {
    let own = std::env::current_exe().unwrap();
    own.with_file_name(format!("lib{name}.a")).to_str().unwrap().to_owned()
}

/// Loops are given away as functions.
const BY_CALL: &str = "-DLOOPS_BY_CALL";

/// The kernels, compiled and linked with these words as well.
fn build(name: &str, more: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let files = std::fs::read_dir(sources()).unwrap().map(|entry| entry.unwrap().path());
    // Only gcc has functions inside functions.
    let mut cc = Command::new(if more.contains(&BY_CALL) { "gcc" } else { "cc" });
    cc.args([
        "-std=c11",
        "-D_GNU_SOURCE",
        "-O2",
        "-ffp-contract=off",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]);
    cc.args(["-Wno-unused", "-I"]).arg(here.join("include"));
    cc.args(files.filter(|path| path.extension().is_some_and(|end| end == "c")));
    cc.arg("-o").arg(&program).args(more).args(["-lpthread", "-ldl", "-lm"]);
    run(&mut cc);
    program
}

/// The object file of `tbb.cpp`; none where oneTBB is missing.
fn one_tbb() -> Option<String> {
    let source = sources().join("tbb.cpp");
    let has_headers = Command::new("g++").arg("-E").arg(&source).output();
    if !has_headers.is_ok_and(|output| output.status.success()) {
        evenly_testing::skip("tbb", "oneTBB, with g++, is not installed");
        return None;
    }
    let object = format!("{}/tbb.o", env!("CARGO_TARGET_TMPDIR"));
    let mut cc = Command::new("g++");
    cc.args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-c"]).arg(source);
    run(cc.args(["-o", &object]));
    Some(object)
}

/// What a sequential program prints.
fn expected(sequential: &Path, [kernel, size, steps]: [&str; 3]) -> String {
    answer(Command::new(sequential).args([kernel, "1", "omp", size, steps]))
}

fn answer(command: &mut Command) -> String {
    let output = run(command);
    assert!(output.stderr.is_empty(), "{command:?}: {output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let (_, rest) = said.split_once("\"checksum\":\"").unwrap();
    rest[..16].to_owned()
}

#[test]
fn answers_are_those_of_a_sequential_program() {
    let sequential = build("kernels-plain", &[]);
    let parallel = build("kernels", &["-fopenmp", &library("evenly_loops")]);
    for [kernel, size, steps] in KERNELS {
        let expected = expected(&sequential, [kernel, size, steps]);
        for schedule in ["static", "dynamic", "guided"] {
            let mut program = Command::new(&parallel);
            program.args([kernel, "3", "omp", size, steps]).env("OMP_SCHEDULE", schedule);
            assert_eq!(answer(&mut program), expected, "{kernel}, {schedule}");
        }
        let mut in_turn = Command::new(&parallel);
        in_turn.args([kernel, "2", "omp", size, steps]).env("LOOPS_TURNS", "1");
        assert_eq!(answer(&mut in_turn), expected, "{kernel}, in turn");
        let said = String::from_utf8(run(&mut in_turn).stdout).unwrap();
        let stretches = said.split_once("\"turns_s\":[").unwrap().1.split_once(']').unwrap().0;
        assert_eq!(stretches.split(',').count(), steps.parse::<usize>().unwrap(), "{said}");
        for policy in Policy::ALL {
            for threads in 1..=9 {
                let mut program = Command::new(&parallel);
                program.args([kernel, &threads.to_string(), policy.name(), size, steps]);
                let shown = format!("{kernel}, {policy}, {threads} threads");
                assert_eq!(answer(&mut program), expected, "{shown}");
                let all_meet = answer(program.env("LOOPS_MEET", "1"));
                assert_eq!(all_meet, expected, "{shown} that meet");
            }
        }
    }
}

#[test]
fn answers_are_the_same_by_libraries_that_ours_is_compared_with() {
    let sequential = build("kernels-plain-too", &[]);
    let by_call =
        |name, more: &[&str]| build(name, &[&[BY_CALL, "-z", "execstack"], more].concat());
    let rayon = by_call("kernels-rayon", &[&library("evenly_loops_rayon")]);
    let tbb = one_tbb().map(|object| by_call("kernels-tbb", &[&object, "-ltbb", "-lstdc++"]));
    for program in std::iter::once(&rayon).chain(&tbb) {
        for [kernel, size, steps] in KERNELS {
            let expected = expected(&sequential, [kernel, size, steps]);
            for threads in 1..=9 {
                let mut command = Command::new(program);
                command.args([kernel, &threads.to_string(), "omp", size, steps]);
                let shown = program.display();
                assert_eq!(answer(&mut command), expected, "{kernel}, {shown}, {threads} threads");
            }
        }
    }
}
