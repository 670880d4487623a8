//! Cooperative waiting: programs whose answers depend on every barrier run with it as they do without.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::built;
use evenly_phases::Openings;
use evenly_probe::load::{Calls, keep, preload};
use evenly_probe::waiting::Mapping;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// What `barriers` prints with so many threads, with the probe and without.
fn same(compiler: &str, options: &[&str], threads: &str, variables: &[(&str, &str)]) {
    same_with_lines(compiler, options, threads, variables, LINES);
}

/// Lines of the mapping, and where the header says how many of them were used (waiting.h).
const LINES: u32 = 65_535;
const HIGH: u64 = 72;

/// The same where only so many lines are left in the mapping.
fn same_with_lines(
    compiler: &str,
    options: &[&str],
    threads: &str,
    variables: &[(&str, &str)],
    lines: u32,
) {
    let program = built("barriers", compiler, options);
    let library = keep(Calls::None, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let run = |cooperates: Option<bool>| {
        let mapping = Mapping::new().unwrap();
        let mut command = Command::new("timeout");
        command.args(["120"]).arg(&program).arg(threads).envs(variables.iter().copied());
        if let Some(cooperates) = cooperates {
            mapping.set_cooperative(cooperates).unwrap();
            let (name, value) = mapping.variable();
            let file = File::options().write(true).open(&value).unwrap();
            file.write_all_at(&(LINES - lines).to_ne_bytes(), HIGH).unwrap();
            command.env(name, value).env("LD_PRELOAD", preload(&library, None).unwrap());
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let plain = run(None);
    assert!(plain.0 == Some(0) && plain.1.lines().count() >= 3, "{plain:?}");
    assert_eq!(run(Some(false)), plain);
    assert_eq!(run(Some(true)), plain);
}

#[test]
fn posix_barriers() {
    same("gcc", &[], "5", &[]);
}

/// Would catch: a thread that takes no part in a barrier, for want of a line, while the others wait for it.
#[test]
fn posix_barriers_of_threads_without_a_line() {
    same_with_lines("gcc", &[], "5", &[], 2);
}

mod libgomp {
    use super::*;

    #[test]
    fn one_thread() {
        same("gcc", &["-fopenmp"], "1", &[]);
    }

    #[test]
    fn two_threads() {
        same("gcc", &["-fopenmp"], "2", &[]);
    }

    #[test]
    fn more_threads_than_cpus() {
        same("gcc", &["-fopenmp"], "7", &[]);
    }

    #[test]
    fn threads_without_a_line() {
        same_with_lines("gcc", &["-fopenmp"], "4", &[], 3);
    }

    #[test]
    fn with_cancellation() {
        same("gcc", &["-fopenmp"], "3", &[("OMP_CANCELLATION", "true")]);
    }

    #[test]
    fn that_spins() {
        same("gcc", &["-fopenmp"], "2", &[("OMP_WAIT_POLICY", "active")]);
    }
}

mod libomp {
    use super::*;
    use common::has;

    #[test]
    fn two_threads() {
        if has("clang") {
            same("clang", &["-fopenmp"], "2", &[]);
        }
    }

    #[test]
    fn more_threads_than_cpus() {
        if has("clang") {
            same("clang", &["-fopenmp"], "5", &[]);
        }
    }

    #[test]
    fn threads_without_a_line() {
        if has("clang") {
            same_with_lines("clang", &["-fopenmp"], "4", &[], 3);
        }
    }
}

#[test]
fn libgomp_announces_openings_with_what_threads_compute() {
    openings_are_announced("gcc");
}

#[test]
fn libomp_announces_openings_with_what_threads_compute() {
    if common::has("clang") {
        openings_are_announced("clang");
    }
}

/// Would catch: threads that are not found, or of which nothing is reported; an opening that wakes nobody.
fn openings_are_announced(compiler: &str) {
    use evenly_model::{CpuId, Nanos, ThreadId, Tid};
    use evenly_phases::Opening;
    use evenly_testing::wait_for;
    let program = built("phases", compiler, &["-fopenmp"]);
    let library = keep(Calls::None, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let mapping = Mapping::new().unwrap();
    mapping.set_cooperative(true).unwrap();
    let barriers = mapping.openings().unwrap();
    let (name, value) = mapping.variable();
    let mut command = Command::new(program);
    command.env(name, value).env("LD_PRELOAD", preload(&library, None).unwrap());
    let mut child = command.spawn().unwrap();
    let threads = || -> Vec<ThreadId> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
        let ids = tasks.map(|t| t.unwrap().file_name().to_str().unwrap().parse().unwrap());
        // Started before they have a line.
        ids.map(|tid| ThreadId { tid: Tid(tid), start: 0 }).collect()
    };
    wait_for("the team", || barriers.follow(&threads()).then_some(()));
    // The second of them computes twice as long.
    let cpu = CpuId(0);
    barriers.arm(&[cpu]);
    let mut seen = Opening::default();
    wait_for("phases that are measured", || {
        let opening = barriers.wait(cpu, seen)?;
        assert!(opening.phase > seen.phase && opening.at > seen.at, "{opening:?} after {seen:?}");
        seen = opening;
        let reports = threads().into_iter().filter_map(|id| barriers.reported(id));
        let mut expected: Vec<Nanos> = reports.map(|r| r.expected).collect();
        expected.sort();
        let [short, long] = expected[..] else { return None };
        // Either may lose its CPU to others, which is no CPU time.
        (short > Nanos::ZERO && long > short.scale(1.5) && long < short.scale(2.5)).then_some(())
    });
    assert!(barriers.reported(ThreadId { tid: Tid(1), start: 0 }).is_none());
    child.kill().unwrap();
    child.wait().unwrap();
}
