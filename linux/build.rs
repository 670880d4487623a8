//! Compiles what `--source bpf` loads into the kernel (linux/bpf/threads.c), which evenly carries with it, where
//! there is a clang that can. Where there is none evenly is whole but for that source, and says so when it
//! is asked for: a second compiler is not needed to build evenly.
#![allow(missing_docs, clippy::expect_used, reason = "a build script fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The third version of the instructions has atomics that are barriers (Linux 5.12). `-g` is for the type
/// information by which the fields of the kernel's structures are found where it is loaded.
const FLAGS: [&str; 8] =
    ["-target", "bpf", "-mcpu=v3", "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra"];

fn main() {
    let source = Path::new("bpf/threads.c");
    println!("cargo:rerun-if-changed={}", source.display());
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let object = out.join("threads.o");
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let targets = Command::new(&clang).arg("--print-targets").output();
    if !targets.is_ok_and(|t| String::from_utf8_lossy(&t.stdout).contains(" bpf ")) {
        std::fs::write(&object, []).expect("OUT_DIR can be written to");
        return;
    }
    let mut compile = Command::new(&clang);
    compile.args(FLAGS).arg("-Werror").arg("-c").arg(source).arg("-o").arg(&object);
    let status = compile.status().expect("clang cannot be run");
    assert!(status.success(), "clang could not build linux/bpf/threads.c: {status}");
}
