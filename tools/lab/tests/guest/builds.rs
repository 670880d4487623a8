//! What is built for a guest: evenly, and where the rest goes.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory that the build goes to: the one above this profile's.
pub(crate) fn target() -> PathBuf {
    let lab = Path::new(env!("CARGO_BIN_EXE_evenly-lab"));
    lab.parent().and_then(Path::parent).unwrap().to_owned()
}

/// A build of evenly with the profile `lab`: unoptimized, a balancing point takes very long in emulation.
pub(crate) fn evenly() -> PathBuf {
    if let Some(directory) = std::env::var_os("EVENLY_BIN_DIR") {
        return PathBuf::from(directory).join("evenly");
    }
    let target = target();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    succeed(
        Command::new(cargo)
            .args(["build", "--quiet", "--profile", "lab", "--locked", "--package", "evenly-cli"])
            .arg("--target-dir")
            .arg(&target),
    );
    target.join("lab/evenly")
}

pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The workloads, linked statically or not.
pub(crate) fn workloads(name: &str, fixed: bool) -> PathBuf {
    let out = target().join(name);
    let mut make = Command::new("make");
    make.args(["-s", "-C", concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads")]);
    make.args(fixed.then_some("STATIC=1")).arg(format!("OUT={}", out.display()));
    succeed(&mut make);
    out
}
