//! The wrapper on real processes: the example `supervised`, which cargo builds along with the tests.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use std::path::PathBuf;
use std::process::Command;

/// The example: the wrapper, which is also a program that listens for signals.
pub(crate) fn supervised() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples/supervised");
    assert!(path.exists(), "{} is missing: cargo build --examples", path.display());
    path
}

/// A command with the wrapper in front of it, or without.
pub(crate) fn command(wrapped: bool, argv: &[&str]) -> Command {
    if !wrapped {
        let mut c = Command::new(argv[0]);
        c.args(&argv[1..]);
        return c;
    }
    let mut c = Command::new(supervised());
    c.args(["run", "--"]).args(argv);
    c
}
