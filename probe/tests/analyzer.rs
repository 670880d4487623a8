//! What is written in C, by the static analyzer of gcc: on all paths through it no memory is used after it was given
//! back, or never given back, no pointer may be NULL where it is followed, and nothing is read that was not written.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[macro_use]
mod common;

use common::has;
use std::path::Path;
use std::process::Command;

/// What the analyzer says of a file; None where the compiler has none.
fn said_of(compiler: &str, source: &Path, options: &[&str]) -> Option<String> {
    if !has(compiler) {
        return None;
    }
    let mut analyze = Command::new(compiler);
    analyze.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fanalyzer", "-c"]);
    let output = analyze.args(options).arg(source).args(["-o", "/dev/null"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if said.contains("unrecognized command") || said.contains("unknown argument") {
        evenly_testing::skip("analyzer", format!("{compiler} has no -fanalyzer"));
        return None;
    }
    assert_eq!(output.status.success(), said.is_empty(), "{said}");
    Some(said)
}

fn is_clean(compiler: &str, source: &str, options: &[&str]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(source);
    let said = said_of(compiler, &path, options).unwrap_or_default();
    assert!(said.is_empty(), "{said}");
}

#[test]
fn the_waiting_probe() {
    is_clean("gcc", "waiting.c", &["-fexceptions"]);
}

#[test]
fn the_library_that_hands_over() {
    is_clean("gcc", "handover.c", &["-fexceptions"]);
}

#[test]
#[ignore = "takes long: ./dev test --all"]
fn the_waiting_probe_with_mpi() {
    is_clean("gcc", "waiting.c", &["-fexceptions", "-DEVENLY_MPI_CALLS", "-DEVENLY_MPI_LARGE"]);
}

fn the_probe_of_messages(mpi: &str) {
    is_clean(&format!("mpicc.{mpi}"), "mpi.c", &[]);
}

fn ping_pong(mpi: &str) {
    is_clean(&format!("mpicc.{mpi}"), "pingpong.c", &[]);
}

each_mpi!(the_probe_of_messages, ping_pong);

#[test]
fn what_is_wrong_is_found() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wrong.c");
    let text = "#include <stdlib.h>\nvoid twice(void *p) { free(p); free(p); }\n";
    std::fs::write(&source, text).unwrap();
    if let Some(said) = said_of("gcc", &source, &[]) {
        assert!(said.contains("analyzer-double-free"), "{said}");
    }
}
