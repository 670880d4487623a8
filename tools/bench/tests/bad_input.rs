//! Bad input: one line that names it, status 125, as `evenly` has it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use evenly_linux::affinity;
use evenly_model::{CpuSet, Tid};
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn bad_options_are_one_line() {
    let cases: [(&[&str], &str); 14] = [
        (&["fly"], "unrecognized subcommand 'fly' (see evenly-bench --help)"),
        (
            &["run", "--runs", "many"],
            "--runs 'many': a whole number is needed (see evenly-bench run",
        ),
        (&["run", "--runs", "0"], "--runs '0': it must be from 1 to 1000"),
        (&["run", "--only", ""], "--only"),
        (&["run", "--only", "no-such-benchmark", "--list"], "no-such-benchmark"),
        (&["demo", "--cpus", "3-1"], "--cpus"),
        (&["lab", "--kernel="], "--kernel"),
        (&["secretary", "--cpus", "3"], "--cpus"),
        (&["uneven", "--longer", "0"], "--longer '0': it must be a number from 0.01 to 1000"),
        (&["uneven", "--policy", "juggle"], "--policy"),
        (&["real", "--arm", "juggle"], "--arm"),
        (&["real", "--beside", "nobody"], "--beside"),
        (&["real", "--only", "nonsense"], "no case has that in its name; there are lammps-2"),
        (&["uneven", "--only", "nonsense"], "no case has that in its name; there are metbench-4-1"),
    ];
    for (args, words) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_evenly-bench")).args(args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with("evenly-bench: ") && said.contains(words), "{said}");
        assert!(output.stdout.is_empty());
    }
}

/// Two threads of this test compute on all CPUs, and others than the demo.
#[test]
fn the_demo_runs_nothing_where_figures_would_be_void() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    for name in ["evenly", "spmd", "noise", "omp_spmd-gomp"] {
        fs::write(file(name), "").unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let output = Command::new(env!("CARGO_BIN_EXE_evenly-bench"))
            .args(["demo", "--wait-s", "1", "--evenly"])
            .arg(file("evenly"))
            .arg("--workloads")
            .arg(dir.path())
            .arg("--out")
            .arg(file("out"))
            .output();
        done.store(true, Ordering::Relaxed);
        let output = output.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{said}");
        let last = said.lines().last().unwrap();
        if last.contains("two CPUs are needed") {
            return evenly_testing::skip("two-cpus", "fewer than two CPUs");
        }
        assert!(said.contains("waiting up to 1 s"), "{said}");
        assert!(last.contains("nothing was run") && last.contains("--despite-load"), "{said}");
        assert!(!file("out/demo.json").exists());
    });
}

#[test]
fn with_one_cpu_one_line_says_so() {
    // This thread, and so what it starts.
    let one = CpuSet::single(affinity::get(Tid(0)).unwrap().first().unwrap());
    affinity::set(Tid(0), &one).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_evenly-bench")).arg("demo").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(
        said.contains(&format!("there is only one here that may be used, CPU {one};")),
        "{said}"
    );
    assert!(said.starts_with("evenly-bench: ") && said.lines().count() == 1, "{said}");
}

#[test]
fn help_is_no_failure() {
    for args in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_evenly-bench")).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(!output.stdout.is_empty() && output.stderr.is_empty());
    }
}
