//! Bad input: one line that names it, status 125, as `evenly` has it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

#[test]
fn bad_options_are_one_line() {
    let cases: [(&[&str], &str); 8] = [
        (&["fly"], "unrecognized subcommand 'fly' (see evenly-bench --help)"),
        (
            &["run", "--runs", "many"],
            "--runs 'many': a whole number is needed (see evenly-bench run",
        ),
        (&["run", "--runs", "0"], "--runs: 0 is not in 1..=1000"),
        (&["run", "--only", ""], "--only"),
        (&["run", "--only", "no-such-benchmark", "--list"], "no-such-benchmark"),
        (&["demo", "--cpus", "3-1"], "--cpus"),
        (&["lab", "--kernel="], "--kernel"),
        (&["secretary", "--cpus", "3"], "--cpus"),
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

#[test]
fn help_is_no_failure() {
    for args in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_evenly-bench")).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(!output.stdout.is_empty() && output.stderr.is_empty());
    }
}
