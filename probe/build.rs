//! Builds the waiting probe (probe/c/waiting.c), which evenly carries with it: it knows no
//! MPI, so that it need not be built where it is used.
#![allow(missing_docs, clippy::expect_used, reason = "a build script fails by panicking")]

use std::path::{Path, PathBuf};

/// How it is compiled. Unwinding has to pass: a thread can be cancelled where it waits. Its variables of a
/// thread are where they can be reached without a call, and without allocating.
const FLAGS: [&str; 9] = [
    "-std=gnu11",
    "-fPIC",
    "-shared",
    "-fexceptions",
    "-fvisibility=hidden",
    "-ftls-model=initial-exec",
    "-Wall",
    "-Wextra",
    "-Werror",
];

fn main() {
    let sources = Path::new("c");
    println!("cargo:rerun-if-changed={}", sources.display());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let (mpi, large) = ("-DEVENLY_MPI_CALLS", "-DEVENLY_MPI_LARGE");
    for (name, defines) in [
        ("waiting.so", &[][..]),
        ("waiting-mpi.so", &[mpi]),
        ("waiting-mpi-large.so", &[mpi, large]),
    ] {
        // Always optimised: what it costs is paid by the program that is watched.
        let mut compile = cc::Build::new().opt_level(2).get_compiler().to_command();
        let script = format!("-Wl,--version-script={}", sources.join("waiting.map").display());
        compile.args(FLAGS).args(defines).arg(script).arg("-o").arg(out.join(name));
        compile.arg(sources.join("waiting.c"));
        let status = compile.status().expect("the C compiler cannot be run");
        assert!(status.success(), "the C compiler could not build probe/c/waiting.c: {status}");
    }
}
