//! What loops tell of themselves where `EVENLY_LOOPS_REPORT` names a file for it.
#![allow(missing_docs, clippy::unwrap_used)]
#![cfg(not(loom))]

use evenly_testing::compiled::Library;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The program of `tells.c`.
fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let (include, into) = (here.join("include"), Path::new(env!("CARGO_TARGET_TMPDIR")));
        let flags = &["-D_GNU_SOURCE", "-pthread"];
        Library { name: "evenly_loops", include: &include, flags, into }
            .build(&here.join("tests/tells.c"), true)
    })
}

/// Runs it, so that it tells this file: the lines, and what came of it.
fn told(file: &Path, instances: u32, way: &str) -> (Vec<Value>, Output) {
    let mut command = Command::new(program());
    command.args([&instances.to_string(), way]).env("EVENLY_LOOPS_REPORT", file);
    let output = command.env_remove("LD_LIBRARY_PATH").output().unwrap();
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let schema = include_str!("../../docs/schemas/evenly.loops-1.json");
    let schema = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    for line in &lines {
        assert!(schema.is_valid(line), "{line:#}");
    }
    (lines, output)
}

fn of<'v>(lines: &'v [Value], event: &str) -> Vec<&'v Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

/// The number that the program has printed.
fn pid(output: &Output) -> u64 {
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap().parse().unwrap()
}

fn iterations(line: &Value) -> u64 {
    line["iterations"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum()
}

/// The first division, of a loop of which the second thread sleeps in each iteration.
fn assert_is_why(line: &Value) {
    let [before, after] =
        ["before", "after"].map(|key| line[key].as_array().unwrap()[1].as_f64().unwrap());
    assert!(before == 0.5 && after < before && line["instances"].as_u64() >= Some(1), "{line:#}");
    assert!(line["thread"] == 1 && line["pace"].as_f64().unwrap() < 1.0, "{line:#}");
}

/// Would catch: a division that is counted, and not told, as it is the first of a loop that others have data in common with.
#[test]
fn each_division_is_told_that_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (lines, output) = told(&dir.path().join("shares"), 4, "shares");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let totals = of(&lines, "totals");
    assert_eq!(totals.len(), 2);
    let all: u64 = totals.iter().map(|line| line["divisions"].as_u64().unwrap()).sum();
    assert!(all > 0 && of(&lines, "divided").len() as u64 == all, "{lines:#?}");
}

#[test]
fn divisions_and_totals_are_told() {
    let dir = tempfile::tempdir().unwrap();
    for way in ["frees", "exits"] {
        let file = dir.path().join(way);
        let (lines, output) = told(&file, 10, way);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let (divided, totals) = (of(&lines, "divided"), of(&lines, "totals"));
        assert_is_why(divided[0]);
        let [totals] = totals[..] else { panic!("{way}: {lines:#?}") };
        assert_eq!((&totals["loop"], &totals["policy"]), (&"sweep \"1\"".into(), &"rp".into()));
        assert_eq!((&totals["instances"], iterations(totals)), (&10.into(), 640));
        assert_eq!(totals["divisions"], divided.len());
        assert!(totals["seconds"].as_f64().unwrap() > 0.0, "{totals:#}");
        assert!(lines.iter().all(|line| line["pid"] == pid(&output)), "{lines:#?}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_program_that_is_killed_has_told_what_it_knew() {
    let dir = tempfile::tempdir().unwrap();
    let (lines, output) = told(&dir.path().join("told"), 10, "killed");
    assert_eq!(output.status.signal(), Some(9));
    assert_is_why(&lines[0]);
    assert!(of(&lines, "totals").is_empty(), "{lines:#?}");
}

/// Would catch: a child that tells of the loops of its parent as its own, or waits for a lock of it.
#[test]
fn children_tell_of_their_own_loops() {
    let dir = tempfile::tempdir().unwrap();
    let (lines, output) = told(&dir.path().join("forks"), 2, "forks");
    assert!(output.status.success(), "{output:?}");
    let totals = of(&lines, "totals");
    let is_parent = |line: &&&Value| line["pid"] == pid(&output);
    let names = |of: Vec<&&Value>| of.iter().map(|l| l["loop"].clone()).collect::<Vec<_>>();
    let (parent, child): (Vec<_>, Vec<_>) = totals.iter().partition(is_parent);
    assert_eq!((names(parent), names(child)), (vec!["sweep \"1\"".into()], vec!["child".into()]));

    // The number is that of the program before, but it began later.
    let (lines, output) = told(&dir.path().join("executes"), 2, "executes");
    assert!(output.status.success(), "{output:?}");
    let [first, second] = of(&lines, "totals")[..] else { panic!("{lines:#?}") };
    assert!(first["pid"] == second["pid"] && first["since_ns"] != second["since_ns"]);
}

/// Would catch: a file that grows for as long as a program runs.
#[test]
fn lines_are_limited_and_counts_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let (lines, output) = told(&dir.path().join("told"), 2, "many");
    assert!(output.status.success(), "{output:?}");
    let totals = of(&lines, "totals");
    assert_eq!(totals.len(), 257, "and one at the end");
    assert_eq!(totals[256]["instances"], 302);
}

/// Would catch: a file that is made, or a program that fails or waits, where nobody asks, or nothing can be written.
#[test]
fn what_cannot_be_told_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let run = |file: Option<&Path>| {
        let mut command = Command::new(program());
        command.args(["10", "frees"]).current_dir(dir.path()).env_remove("LD_LIBRARY_PATH");
        command.env_remove("EVENLY_LOOPS_REPORT");
        if let Some(file) = file {
            command.env("EVENLY_LOOPS_REPORT", file);
        }
        let output = command.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{file:?}: {output:?}");
    };
    run(None);
    run(Some(Path::new("")));
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let own = dir.path().join("own");
    let file = fs::File::create(&own).unwrap();
    let of_another = format!("/proc/{}/fd/{}", std::process::id(), {
        use std::os::fd::AsRawFd;
        file.as_raw_fd()
    });
    for file in [&fifo, dir.path(), Path::new("/dev/full"), Path::new("/none/at/all")] {
        run(Some(file));
    }
    run(Some(Path::new(&of_another)));
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.len() == 2 && fs::metadata(&own).unwrap().len() == 0, "{names:?}");
    // With a limit of the size of files a write would end it.
    let told = dir.path().join("told");
    let limited = Command::new("sh")
        .args(["-c", "ulimit -f 0; exec \"$0\" 2 frees"])
        .arg(program())
        .env("EVENLY_LOOPS_REPORT", &told)
        .env_remove("LD_LIBRARY_PATH")
        .stdout(std::process::Stdio::null())
        .status();
    assert!(limited.unwrap().success() && !told.exists());
}
