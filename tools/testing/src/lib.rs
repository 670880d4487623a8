//! What tests of several crates share: how a test says that it cannot run on this machine, how it waits
//! ([`waiting`]), [`scripts`] to run, [`compiled`] programs, [`snapshots`] for policies to decide on, and control [`groups`].
//!
//! The test harness hides what a test prints unless it fails, so that one which returns early looks
//! like one that passed. [`skip`] writes past the harness, and where it is known what the machine
//! can do (`./dev test` finds out), a skip that has no such reason is a failure.
//!
//! Invariant: no test is skipped without a line on standard error.

#![forbid(unsafe_code)]

pub mod compiled;
pub mod groups;
pub mod scripts;
pub mod snapshots;
pub mod waiting;

pub use scripts::script;
pub use waiting::{sleeps, wait_for, wait_for_ok, wait_until};

use std::env;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Says that the calling test cannot run here, or not all of it, and why. The caller returns after
/// it. `key` names what the machine lacks, for `EVENLY_MAY_SKIP`.
///
/// # Panics
/// With `EVENLY_NO_SKIP=1` in the environment, unless `key` is in the list `EVENLY_MAY_SKIP`
/// (separated by commas).
#[track_caller]
pub fn skip(key: &str, why: impl Display) {
    let value = |name| env::var(name).unwrap_or_default();
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    assert!(
        allowed(key, &value("EVENLY_NO_SKIP"), &value("EVENLY_MAY_SKIP")),
        "cannot run on this machine: {why}; EVENLY_NO_SKIP=1 makes that a failure (EVENLY_MAY_SKIP={key} allows it)"
    );
    // One write, so that the lines of tests that run side by side are not mixed.
    let line = format!("skipped: {test}: {why} [{key}]\n");
    // A closed stream is no failure of the test.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Whether a program is installed; false is a skip, as `key` is missing then.
#[track_caller]
#[must_use]
pub fn is_installed(program: &str, key: &str) -> bool {
    let asked = Command::new(program).arg("--version").output();
    let there = asked.is_ok_and(|output| output.status.success());
    if !there {
        skip(key, format!("{program} is not installed"));
    }
    there
}

/// Whether a workload is there; false is a skip, as only those that clang builds can be missing.
#[track_caller]
#[must_use]
pub fn is_built(workload: impl AsRef<Path>) -> bool {
    let file = workload.as_ref();
    let built = file.exists();
    if !built {
        skip("clang", format!("there is no {}", file.display()));
    }
    built
}

fn allowed(key: &str, no_skip: &str, may_skip: &str) -> bool {
    no_skip != "1" || may_skip.split(',').any(|k| k.trim() == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_on_the_list_is_a_failure() {
        assert!(allowed("root", "", ""));
        assert!(allowed("root", "0", "other"));
        assert!(!allowed("root", "1", ""));
        assert!(!allowed("root", "1", "two-cpus,rooted"));
        assert!(allowed("root", "1", "two-cpus, root"));
    }
}
