//! Programs with `libevenly_loops` under `evenly run`: what it says of their loops.

use crate::support::{Tool, stderr};
use evenly_testing::compiled::Library;
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::OnceLock;

/// The loop "sweep" of two threads, of which the second sleeps in each of 64 iterations.
fn program() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| {
        let loops = Path::new(env!("CARGO_MANIFEST_DIR")).join("../loops");
        let (include, into) = (loops.join("include"), Path::new(env!("CARGO_TARGET_TMPDIR")));
        let flags = &["-D_GNU_SOURCE", "-pthread"];
        let library = Library { name: "evenly_loops", include: &include, flags, into };
        library.build(&loops.join("tests/tells.c"), false).to_str().unwrap().to_owned()
    })
}

fn all(report: &Value) -> &Vec<Value> {
    report["loops"]["loops"].as_array().unwrap_or_else(|| panic!("{report:#}"))
}

#[test]
fn who_had_which_share_of_a_loop_and_why_it_changed() {
    let tool = Tool::new();
    let (output, report) = tool.json("-v", &[program(), "10", "frees"]);
    crate::schema::valid(&report);
    let [sweep] = &all(&report)[..] else { panic!("{report:#}") };
    let name_of = (&sweep["name"], &sweep["threads"], &sweep["instances"]);
    assert_eq!(name_of, (&"sweep \"1\"".into(), &2.into(), &10.into()));
    let done = sweep["totals"]["iterations"].as_array().unwrap();
    assert_eq!(done.iter().map(|n| n.as_u64().unwrap()).sum::<u64>(), 640);
    assert_eq!(sweep["totals"]["policy"], "rp");
    let first = &sweep["divided"][0];
    assert!(first["thread"] == 1 && first["pace"].as_f64().unwrap() < 1.0, "{first:#}");
    assert!(first["at_s"].as_f64() < report["seconds"].as_f64(), "{report:#}");
    let said = stderr(&output);
    let line = said.lines().find(|l| l.starts_with("  loop  ")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.contains(" sweep \"1\": 10 instances, rp; iterations "), "{line}");
    assert!(line.contains("; divided anew ") && line.contains(" s: thread 1 got on "), "{line}");
}

#[test]
fn of_a_program_that_is_killed_it_is_said_what_is_known() {
    let tool = Tool::new();
    let (output, report) = tool.json("-v", &[program(), "10", "killed"]);
    crate::schema::valid(&report);
    assert_eq!(output.status.signal(), Some(9));
    let [sweep] = &all(&report)[..] else { panic!("{report:#}") };
    assert!(sweep["totals"].is_null() && sweep["divisions"].as_u64() >= Some(1), "{sweep:#}");
    let said = stderr(&output);
    assert!(said.contains("instances or more, as its process did not end by itself"), "{said}");
}

#[test]
fn loops_of_several_processes_are_told_apart() {
    let tool = Tool::new();
    let both = "\"$0\" 1 frees & \"$0\" 1 exits; wait";
    let (output, report) = tool.json("-v", &["sh", "-c", both, program()]);
    crate::schema::valid(&report);
    let [one, other] = &all(&report)[..] else { panic!("{report:#}") };
    assert!(one["pid"] != other["pid"] && report["loops"]["processes"] == 2, "{report:#}");
    let said = stderr(&output);
    for pid in [one, other].map(|l| &l["pid"]) {
        let words =
            format!("  sweep \"1\" of process {pid}: 1 instance, rp; iterations 50 % and 50 %");
        assert!(said.contains(&words), "{said}");
    }
}

/// Would catch: a file that the user has asked for, and evenly has taken away.
#[test]
fn without_the_library_nothing_is_said_and_a_file_of_the_user_is_written() {
    let tool = Tool::new();
    let (output, report) = tool.json("-v", &["true"]);
    assert!(report.get("loops").is_none(), "{report:#}");
    assert!(!stderr(&output).contains("  loop "), "{}", stderr(&output));

    let [told, json] = ["told", "report.json"].map(|name| tool.path(name));
    let options = format!("-q --json {}", json.display());
    let mut run = tool.run(&options, &[program(), "1", "frees"]);
    assert!(run.env("EVENLY_LOOPS_REPORT", &told).status().unwrap().success());
    assert!(crate::support::json(&json).get("loops").is_none());
    assert!(std::fs::read_to_string(told).unwrap().contains("\"event\":\"totals\""));
}
