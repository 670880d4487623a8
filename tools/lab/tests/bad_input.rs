//! Bad input: one line that names it, status 125, and no guest is booted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

#[test]
fn bad_options_are_one_line() {
    let cases: [(&[&str], &str); 6] = [
        (&[], "<COMMAND>... (see evenly-lab --help)"),
        (&["--cpus", "many", "--", "true"], "--cpus 'many': a whole number is needed"),
        (&["--share", "all", "--", "true"], "--share 'all': needed: a fraction"),
        (
            &["--equal-speed-limit", "x", "--", "true"],
            "--equal-speed-limit 'x': a number from 0 to 100 is needed",
        ),
        (&["--kernel=", "--", "true"], "--kernel"),
        (&["--fly", "--", "true"], "unexpected argument '--fly' found"),
    ];
    for (args, words) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_evenly-lab")).args(args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with("evenly-lab: ") && said.contains(words), "{said}");
        assert!(output.stdout.is_empty());
    }
}
