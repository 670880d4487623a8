//! The six kernels of the paper's Table 1 (`workloads/loops`): their answers are those of a sequential program, by OpenMP, and under
//! all policies by one to nine threads.
#![allow(missing_docs, clippy::unwrap_used)]
#![cfg(not(loom))]

use evenly_loops::Policy;
use evenly_testing::compiled::run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each with a size and steps that take some milliseconds.
const KERNELS: [(&str, &str, &str); 6] = [
    ("matrix", "60", "4"),
    ("jacobi", "100", "40"),
    ("sor", "160", "30"),
    ("shallow", "40", "12"),
    ("water", "90", "20"),
    ("gauss", "70", "70"),
];

fn build(name: &str, more: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = std::env::current_exe().unwrap();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let sources = std::fs::read_dir(here.join("../workloads/loops")).unwrap();
    let sources = sources.map(|entry| entry.unwrap().path());
    let mut cc = Command::new("cc");
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
    cc.args(sources.filter(|path| path.extension().is_some_and(|end| end == "c")));
    cc.arg("-o").arg(&program).args(more);
    if more.contains(&"-fopenmp") {
        // The library lies beside the test program.
        cc.arg(own.parent().unwrap().join("libevenly_loops.a")).args(["-lpthread", "-ldl", "-lm"]);
    }
    run(&mut cc);
    program
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
    let (sequential, parallel) = (build("kernels-plain", &[]), build("kernels", &["-fopenmp"]));
    for (kernel, size, steps) in KERNELS {
        let expected = answer(Command::new(&sequential).args([kernel, "1", "omp", size, steps]));
        for schedule in ["static", "dynamic", "guided"] {
            let mut program = Command::new(&parallel);
            program.args([kernel, "3", "omp", size, steps]).env("OMP_SCHEDULE", schedule);
            assert_eq!(answer(&mut program), expected, "{kernel}, {schedule}");
        }
        for policy in Policy::ALL {
            for threads in 1..=9 {
                let mut program = Command::new(&parallel);
                program.args([kernel, &threads.to_string(), policy.name(), size, steps]);
                assert_eq!(answer(&mut program), expected, "{kernel}, {policy}, {threads} threads");
            }
        }
    }
}
