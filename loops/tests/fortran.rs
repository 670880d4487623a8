//! The module for Fortran: it has all that the header for C has, its loops are those of Fortran, and what is wrong is said.
#![allow(missing_docs, clippy::unwrap_used)]
#![cfg(not(loom))]

use evenly_loops::Policy;
use evenly_testing::compiled::{Library, code_behind, run};
use evenly_testing::is_installed;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn source(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn read(file: &str) -> String {
    std::fs::read_to_string(source(file)).unwrap()
}

fn has_compiler() -> bool {
    is_installed("gfortran", "gfortran")
}

/// Builds a program with the module, linked with the shared or with the static library.
fn build(file: &Path, shared: bool) -> PathBuf {
    let (include, into) = (source("include"), Path::new(env!("CARGO_TARGET_TMPDIR")));
    // What the compiler writes of the module, which others compile at the same time.
    let modules = tempfile::tempdir().unwrap();
    let (module, modules) = (source("include/evenly/loops.f90"), modules.path());
    // Reals are compared in all digits.
    let flags = ["-Wno-compare-reals", "-fopenmp", "-J", modules.to_str().unwrap()];
    let flags = &[&flags[..], &[module.to_str().unwrap()]].concat();
    Library { name: "evenly_loops", include: &include, flags, into }.build(file, shared)
}

fn printed(program: &mut Command) -> String {
    String::from_utf8(run(program).stdout).unwrap()
}

#[test]
fn the_module_has_all_that_the_header_has() {
    let (header, module) = (read("include/evenly/loops.h"), read("include/evenly/loops.f90"));
    let (for_c, _) = header.split_once("namespace evenly").unwrap();
    let mut known = 0;
    for line in for_c.lines().filter(|line| !line.starts_with(' ')) {
        if let Some(values) = line.strip_prefix("enum ") {
            let (_, values) = values.trim_end_matches(" };").split_once("{ ").unwrap();
            for value in values.split(", ") {
                assert!(module.contains(value), "{value}");
                known += 1;
            }
        } else if let Some((before, _)) = line.split_once('(').filter(|_| line.ends_with(");")) {
            let name = before.rsplit([' ', '*']).next().unwrap();
            // Fortran has no integers without a sign, and no macros.
            if ["evenly_reduce_uint64", "evenly_reduce_double_is_meant"].contains(&name) {
                continue;
            }
            assert!(module.contains(&format!("bind(c, name='{name}')")), "{name}");
            known += 1;
        }
    }
    assert_eq!(known, 10 + 16);
}

/// Would catch: a program that stores its sum in each iteration, as the address of that is known to others.
#[test]
fn what_is_reduced_is_given_by_value() {
    let module = read("include/evenly/loops.f90");
    let (_, functions) = module.split_once("\ncontains\n").unwrap();
    assert_eq!(functions.matches(", value :: given\n").count(), 4);
}

/// The example of the manual, as it stands there, prints what that in C does.
#[test]
fn the_manuals_example_works() {
    if !has_compiler() {
        return;
    }
    let manual = read("../docs/loops.md");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("example.f90");
    std::fs::write(&file, code_behind(&manual, "Fortran example")).unwrap();
    let example = build(&file, true);
    // OpenMP starts fewer threads than it is asked for.
    for (threads, most) in [("1", "9"), ("3", "9"), ("3", "2")] {
        let mut program = Command::new("timeout");
        program.arg("60").arg(&example).env("OMP_NUM_THREADS", threads);
        let found = printed(program.env("OMP_THREAD_LIMIT", most));
        assert_eq!(found.trim_end(), code_behind(&manual, "its output").trim_end());
    }
}

#[test]
fn answers_are_those_of_do_loops() {
    if !has_compiler() {
        return;
    }
    for shared in [true, false] {
        let jacobi = build(&source("tests/jacobi.f90"), shared);
        for policy in Policy::ALL {
            for threads in ["1", "2", "3", "4", "5"] {
                let mut program = Command::new("timeout");
                program.arg("60").arg(&jacobi).args([threads, policy.name()]);
                assert_eq!(printed(&mut program), "the same\n", "{policy}, {threads} threads");
            }
        }
    }
}

/// Would catch: a handler that stays, or gets what is not the message; a handle that outlives what is freed.
#[test]
fn what_is_wrong_is_said() {
    if !has_compiler() {
        return;
    }
    let wrong = build(&source("tests/wrong.f90"), true);
    let aborted = |arguments: &[&str]| {
        let mut program = Command::new("timeout");
        program.arg("60").arg(&wrong).args(arguments).env_remove("LD_LIBRARY_PATH");
        let output = program.output().unwrap();
        assert_eq!(output.status.signal().or(output.status.code()), Some(6), "{output:?}");
        [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap())
    };
    let [_, said] = aborted(&[]);
    let begun = "was begun by thread 1 of a team of 1; they are counted from 0";
    assert!(said.starts_with(&format!("evenly: loop 'sweep' {begun}\n")), "{said}");

    let [told, said] = aborted(&["handled"]);
    assert!(said.starts_with(&format!("evenly: loop 'last' {begun}\n")), "{said}");
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "evenly_region_uses was given NULL");
    assert_eq!(lines[1], "evenly_region_new: a load is EVENLY_FIXED or EVENLY_VARIABLE, not 9");
    assert!(lines[2].starts_with("evenly_region_policy: no policy for loops is called 'fast'"));
    let nobodys = "a team has from 1 to 1024 threads, not 0";
    assert_eq!(lines[3..6], [nobodys, "evenly_region_new was given NULL", "it has failed"]);
    let leaves = lines[6].starts_with("loop 'columns' uses element 27 of the array at ")
        && lines[6].ends_with(" in iteration 10, and it has 3 x 9 elements (counted from 0)");
    assert!(leaves, "{lines:?}");
    assert_eq!(lines[7..], ["evenly_region_policy was given NULL"]);
}
