//! Names of threads and files cannot drive the terminal: whatever shows them, live or from a recording.

use crate::support::{Child, Tool, stderr, text, wait_until};
use evenly_model::is_printable;
use serde_json::Value;
use std::fs;
use std::process::{Output, Stdio};

/// Clears the screen, in 7 and 8 bits; breaks the line; turns the text. 15 bytes, with one letter.
const NAME: &str = "\x1b[2J\u{9b}2J\n\u{202e}\u{e4}";
/// As it is shown.
const SHOWN: &str = "\u{fffd}[2J\u{fffd}2J\u{fffd}\u{fffd}\u{e4}";

/// Two processes of this name on one CPU, and one beside them, for as long as there is this file.
fn program(file: &str) -> [String; 3] {
    let octal: String = NAME.bytes().map(|b| format!("\\{b:03o}")).collect();
    let busy = format!(
        "printf \"{octal}\" >/proc/self/comm; while [ -e \"{file}\" ]; do i=0; \
         while [ $i -lt 20000 ]; do i=$((i + 1)); done; done"
    );
    let script = format!(
        "cpu=$(taskset -pc $$ | sed 's/.* //; s/[-,].*//')\n\
         for i in 1 2; do taskset -c $cpu sh -c '{busy}' & done\n{busy}\nwait"
    );
    ["sh", "-c", &script].map(str::to_owned)
}

#[track_caller]
fn harmless(what: &str, text: &str) {
    let bad: Vec<char> =
        text.chars().filter(|&c| !is_printable(c) && !matches!(c, '\n' | '\t')).collect();
    assert!(bad.is_empty(), "{what}: {bad:?} in {text:?}");
}

/// Both streams of a command, each harmless.
#[track_caller]
fn seen(what: &str, output: &Output) -> String {
    harmless(what, &text(&output.stdout));
    harmless(what, &stderr(output));
    text(&output.stdout) + &stderr(output)
}

#[test]
fn names_of_threads_live_and_recorded() {
    let tool = Tool::new();
    let go = tool.path("go");
    fs::write(&go, "").unwrap();
    let (recording, report) = (tool.path("a.evenly"), tool.path("report.json"));
    let options = format!("-v --record {} --json {}", recording.display(), report.display());
    let words = program(go.to_str().unwrap());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut run = tool.run(&options, &words);
    let run = Child::spawn(run.stdout(Stdio::null()).stderr(Stdio::piped()));
    // Without a process id it is the one that is balanced.
    seen("top", &tool.top(&["--plain"], |shown| shown.contains(SHOWN)));
    // The JSON has the names as they are.
    let json = tool.top(&["--json", "-"], |shown| {
        let mut states = shown.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
        states.any(|s| s["threads"].as_array().unwrap().iter().any(|t| t["name"] == NAME))
    });
    seen("top --json", &json);
    fs::remove_file(&go).unwrap();
    let mut run = run;
    let mut said = String::new();
    std::io::Read::read_to_string(run.0.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert!(run.0.wait().unwrap().success(), "{said}");
    harmless("run", &said);
    harmless("run --json", &fs::read_to_string(&report).unwrap());

    let recording = recording.to_str().unwrap();
    for format in ["--html", "--svg", "--json"] {
        let output = tool.evenly(["report", recording, format, "-"]).output().unwrap();
        let shown = seen(format, &output);
        // In HTML and SVG a line feed is a space.
        let name = "\u{fffd}[2J\u{fffd}2J \u{fffd}\u{e4}";
        assert!(format == "--json" || shown.contains(name), "{format} lacks the name");
    }
    for args in
        [&["doctor", "--from", recording][..], &["doctor", "--from", recording, "--json", "-"]]
    {
        seen(&args.join(" "), &tool.evenly(args).output().unwrap());
    }
}

#[test]
fn names_of_threads_that_the_doctor_sees() {
    let tool = Tool::new();
    let go = tool.path("go");
    fs::write(&go, "").unwrap();
    let words = program(go.to_str().unwrap());
    let _program = Child::spawn(tool.by("sh").args(&words[1..]).stdout(Stdio::null()));
    let id = _program.id();
    // Whether it names threads depends on what it finds, and so on who else uses the machine.
    wait_until("the doctor names a thread", || {
        let output = tool.evenly(["doctor", &id, "--for", "2s"]).output().unwrap();
        seen("doctor", &output).contains(SHOWN)
    });
    fs::remove_file(&go).unwrap();
}

#[test]
fn names_of_files_and_arguments() {
    let tool = Tool::new();
    let file = tool.path("\x1b[2J\nb\u{202e}");
    let file = file.to_str().unwrap();
    for args in [
        &["report", file][..],
        &["doctor", "--from", file],
        &["run", "--", file],
        &["run", "--json", file, "--record", file, "--", "true"],
        &["simulate", "--scenario", file],
        &["map", "--tasks", file],
        &["topology", "--xml", file],
        &["topology", file],
        &["compare", "--policies", file, "--", "true"],
        &["compare", "--runs", "1", "--", file],
        &[file],
    ] {
        let output = tool.evenly(args).output().unwrap();
        let said = seen(&args.join(" "), &output);
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
        // Some messages have it escaped.
        assert!(said.contains("b\u{fffd}") || said.contains("b\\u{202e}"), "{said}");
    }
}
