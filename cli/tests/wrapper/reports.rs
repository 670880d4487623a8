//! What evenly says of a run: report, JSON, decision log, recording.

use crate::schema::valid;
use crate::support::{Tool, json, of_kind, stderr, text, workload};
use evenly_linux::affinity;
use evenly_model::{CpuSet, Reason, Tid};
use std::fs;
use std::process::Command;

#[test]
fn the_json_has_all_of_it() {
    let tool = Tool::new();
    let spmd = workload("spmd");
    let (output, report) = tool.json_until(
        "--policy juggle --period 10ms --threads 3",
        &[&spmd, "--threads", "3", "--phases", "1000000", "--iters", "1000000"],
        |events| of_kind(events, "joined") == 3 && of_kind(events, "point") >= 10,
    );
    assert!(output.status.success(), "{}", stderr(&output));
    valid(&report);
    assert_eq!(report["started"], true);
    assert_eq!(report["threads"].as_array().unwrap().len(), 3, "{report:#}");
    assert_eq!(report["ended"]["exit"], 0);
    assert_eq!(report["expected_threads"], 3);
    let lines = stderr(&output);
    assert!(lines.contains("3 threads") && lines.lines().count() <= 8, "{lines}");

    let (output, report) = tool.json("", &["sh", "-c", "kill -TERM $$"]);
    valid(&report);
    assert_eq!(report["ended"]["signal"], 15);
    assert!(stderr(&output).lines().count() <= 2, "{}", stderr(&output));
}

#[test]
fn names_of_files() {
    let tool = Tool::new();
    let pattern = tool.path("%p-%r-%%.json");
    let options = format!("-q --json {}", pattern.display());
    let output =
        tool.run(&options, &["sh", "-c", "echo $$"]).env("PMI_RANK", "7").output().unwrap();
    let pid = text(&output.stdout).trim().to_owned();
    valid(&json(&tool.path(&format!("{pid}-7-%.json"))));
    // The try before the start has left nothing.
    let files = fs::read_dir(tool.dir.path())
        .unwrap()
        .filter(|e| e.as_ref().unwrap().path().extension().is_some_and(|x| x == "json"));
    assert_eq!(files.count(), 1);
}

#[test]
fn every_decision_with_its_reason() {
    const REASONS: [Reason; 4] = [Reason::Spread, Reason::Behind, Reason::Ahead, Reason::Evicted];
    let tool = Tool::new();
    let said = tool.balanced("");
    assert!(said.contains("domain 0: CPUs"), "{said}");
    assert_eq!(said.matches(" joins domain 0").count(), 3, "{said}");
    for line in said.lines().filter(|l| l.contains(" from CPU ")) {
        let reason = REASONS.iter().any(|r| line.ends_with(&format!(" ({})", r.text())));
        assert!(reason && line.contains(" s thread "), "{line}");
    }
}

#[test]
fn a_recording_becomes_a_page_a_trace_and_a_picture() {
    let tool = Tool::new();
    let record = tool.path("run.evenly");
    let file = tool.path("report.json");
    tool.balanced(&format!("--record {} --json {}", record.display(), file.display()));
    let said = json(&file);
    let output = tool.evenly(["report", record.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let page = fs::read_to_string(tool.path("run.html")).unwrap();
    // What evenly said of the run stands in the page: the verdict, and its figures.
    let escaped = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    let shown = escaped.iter().fold(page.clone(), |page, (from, to)| page.replace(from, to));
    let verdict = said["verdict"].as_str().unwrap();
    assert!(shown.contains(&format!("<p class=\"verdict\">{verdict}</p>")), "{verdict}");
    let row = |name: &str| {
        let cell = shown.split(&format!("<th>{name}</th><td>")).nth(1).unwrap_or_default();
        cell.split("</td>").next().unwrap_or_default().to_owned()
    };
    assert!(row("Threads").starts_with("3 balanced"), "{}", row("Threads"));
    assert!(row("CPUs").contains(said["cpus"].as_str().unwrap()), "{}", row("CPUs"));
    assert_eq!(row("Policy"), said["policy"].as_str().unwrap());
    let domains = said["domains"].as_array().unwrap();
    let points: u64 = domains.iter().map(|d| d["points"].as_u64().unwrap()).sum();
    assert_eq!(row("Balancing points").parse(), Ok(points));
    assert!(!page.contains("not in the recording"));
    assert!(
        page.contains("<svg") && !page.contains("http://"),
        "no picture, or one from elsewhere"
    );
    assert!(fs::metadata(tool.path("run.perfetto-trace")).unwrap().len() > 100);
}

#[test]
fn what_balancing_can_reach_for_a_recorded_program() {
    let tool = Tool::new();
    let record = tool.path("run.evenly");
    tool.balanced(&format!("--record {}", record.display()));
    let from = ["predict", "--from", record.to_str().unwrap(), "--phase", "100ms"];
    let said = tool.evenly(from).output().unwrap();
    assert!(said.status.success() && said.stderr.is_empty(), "{}", stderr(&said));
    assert!(text(&said.stdout).starts_with("evenly: 3 threads on "), "{}", text(&said.stdout));
    // As JSON on standard output; the words go to standard error.
    let both = tool.evenly(from.into_iter().chain(["--json", "-"])).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&both.stdout).unwrap();
    assert_eq!((&json["schema"], &json["threads"]), (&"evenly.predict/1".into(), &3.into()));
    assert_eq!(stderr(&both), text(&said.stdout));
    // Into a file, but not over the recording.
    let file = tool.path("%p.json");
    let into = |file: &std::path::Path| {
        tool.evenly(from).arg("--json").arg(file).output().unwrap().status.code()
    };
    assert_eq!((into(&file), into(&record)), (Some(0), Some(125)));
    assert!(tool.evenly(["report", record.to_str().unwrap()]).output().unwrap().status.success());
}

#[test]
fn nothing_to_balance_is_said_in_one_line() {
    let tool = Tool::new();
    let output = tool.run("", &["sleep", "0.3"]).output().unwrap();
    let said = stderr(&output);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("nothing was balanced"), "{said}");
    let file = tool.path("report.json");
    let options = format!("-q --threads 50 --json {}", file.display());
    let spmd = workload("spmd");
    let run = tool.start(&options, &[&spmd, "--threads", "3", "--iters", "1000000000000"]);
    run.wait_until_looked();
    run.end();
    let report = json(&file);
    assert!(report["verdict"].as_str().unwrap().contains("--threads"), "{report:#}");
}

#[test]
fn the_cpus_of_the_report_are_those_that_the_threads_may_use() {
    let tool = Tool::new();
    let whole = affinity::get(Tid(0)).unwrap();
    let one = CpuSet::single(whole.iter().last().unwrap());
    let spmd = workload("spmd");
    // The test's own thread hands its mask down.
    affinity::set(Tid(0), &one).unwrap();
    let (output, report) = tool.json_until(
        "--policy juggle --threads 3",
        &[&spmd, "--threads", "3", "--phases", "1000000", "--iters", "1000000"],
        |events| of_kind(events, "joined") == 3 && of_kind(events, "point") >= 10,
    );
    assert_eq!(report["cpus"], one.to_string(), "{report:#}");
    assert!(report["verdict"].as_str().unwrap().contains("only one CPU"), "{report:#}");
    let said = stderr(&output);
    assert!(said.contains(&format!("on 1 CPU ({one})")), "{said}");
}

#[test]
fn cpus_that_cannot_be_used_are_named() {
    let tool = Tool::new();
    let first = affinity::get(Tid(0)).unwrap().first().unwrap();
    let (output, report) = tool.json(&format!("--cpus {first},8000"), &["true"]);
    assert!(output.status.success());
    let note = report["notes"][0].as_str().unwrap();
    assert!(note.contains("--cpus") && note.contains("8000 cannot be used"), "{note}");
    assert!(stderr(&output).contains(note), "{}", stderr(&output));
    let (_, report) = tool.json(&format!("--cpus {first}"), &["true"]);
    assert_eq!(report["notes"].as_array().unwrap().len(), 0, "{report:#}");
}

#[test]
fn a_filter_that_nothing_passes_is_named() {
    let tool = Tool::new();
    let (spmd, file) = (workload("spmd"), tool.path("report.json"));
    let options = format!("-q --only nomatch --json {}", file.display());
    let run = tool.start(&options, &[&spmd, "--threads", "3", "--iters", "1000000000000"]);
    run.wait_until_looked();
    run.end();
    let report = json(&file);
    let verdict = report["verdict"].as_str().unwrap();
    assert!(verdict.contains("--only nomatch leaves no thread"), "{verdict}");
    assert!(verdict.contains("names of threads were spmd"), "{verdict}");
}

#[test]
fn behind_an_mpi_launcher_the_report_says_so() {
    let tool = Tool::new();
    let output = tool.run("", &["sleep", "0.2"]).env("OMPI_COMM_WORLD_SIZE", "3").output().unwrap();
    assert!(stderr(&output).contains("one of 3 MPI ranks"), "{}", stderr(&output));
}

#[test]
fn completions_and_manual_pages() {
    let tool = Tool::new();
    for shell in ["bash", "zsh", "fish"] {
        let output = tool.evenly(["completions", shell]).output().unwrap();
        let script = text(&output.stdout);
        assert!(output.status.success() && script.contains("evenly"));
        assert!(script.contains("restore") && script.contains("policy"), "{shell}");
        assert!(!script.contains("guardian"), "{shell} offers what is hidden");
        // As the scripts write the values of an option.
        let each = |end: &str| -> Vec<String> {
            evenly_policies::POLICIES.iter().map(|p| format!("{}{end}", p.name)).collect()
        };
        let values = match shell {
            "bash" => vec![format!("-W \"{}\"", each("").join(" "))],
            "zsh" => each("\\:"),
            _ => each("\\t"),
        };
        for value in values {
            assert!(script.contains(&value), "{shell} does not offer {value}");
        }
        // A reader that wants no more.
        let line =
            format!("{{ sleep 0.2; {} completions {shell}; echo $? >&2; }} | true", tool.exe());
        let output = tool.by("sh").args(["-c", &line]).output().unwrap();
        assert_eq!(stderr(&output), "0\n", "{shell}");
    }
    let bash = tool.evenly(["completions", "bash"]).output().unwrap();
    fs::write(tool.path("c"), &bash.stdout).unwrap();
    assert!(Command::new("bash").arg("-n").arg(tool.path("c")).status().unwrap().success());
    let pages = tool.path("man");
    assert!(tool.evenly(["manpages", pages.to_str().unwrap()]).status().unwrap().success());
    let page = fs::read_to_string(pages.join("evenly-run.1")).unwrap();
    for part in [".SH OPTIONS", ".SH EXIT STATUS", ".SH ENVIRONMENT", ".SH FILES", "/run/evenly"] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn a_recording_is_not_written_over() {
    let tool = Tool::new();
    let file = tool.path("r.html");
    let name = file.to_str().unwrap();
    assert!(tool.run(&format!("-q --record {name}"), &["true"]).status().unwrap().success());
    let recording = fs::read(&file).unwrap();
    for args in [&["report", name][..], &["report", name, "--svg", name]] {
        let output = tool.evenly(args).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
        assert_eq!(fs::read(&file).unwrap(), recording);
    }
    let both = format!("--json {name} --record {name}");
    let output = tool.run(&both, &["sh", "-c", "echo started"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{}", stderr(&output));
}

#[test]
fn a_recording_that_cannot_be_made_does_not_stop_balancing() {
    let tool = Tool::new();
    let file = tool.path("report.json");
    let said = tool.balanced(&format!("--record /dev/full --json {}", file.display()));
    assert!(said.contains("not recording"), "{said}");
    let report = json(&file);
    assert_eq!(report["started"], true, "{report:#}");
}

#[test]
fn one_tree_is_balanced_by_one_evenly() {
    let tool = Tool::new();
    // The outer one starts its program before it has a journal.
    let inside = format!(
        "while ! ls \"$EVENLY_STATE_DIR\"/*.journal >/dev/null 2>&1; do sleep 0.02; done; \
         {} run -q -- sh -c 'echo ran'",
        tool.exe()
    );
    let output = tool.run("-q", &["sh", "-c", &inside]).output();
    let output = output.unwrap();
    assert!(output.status.success() && text(&output.stdout) == "ran\n", "{}", stderr(&output));
    assert!(stderr(&output).contains("another evenly"), "{}", stderr(&output));
}
