//! `evenly doctor` beside other programs, on running programs and on recordings, and what it reports that it
//! cannot see. Its verdicts on many programs are tested in `doctor_verdicts`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::diagnosis::{diagnose, kinds, limited};
use common::*;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Each test holds this lock: a diagnosis is of the whole machine, where other tests would be found as
/// neighbours.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program runs on one CPU, and another one on the other CPU.
#[test]
fn a_busy_process_on_another_cpu_is_not_reported() {
    let _alone = alone();
    let Some(whole) = whole() else { return };
    let [first, second] = [0, 1].map(|i| whole.iter().nth(i).unwrap().to_string());
    let state = State::new();
    let noise = workload("noise");
    let hog = Running::start(&[&noise, "--always", "--cpu", &first, "--duration-s", "300"]);
    let spmd = workload("spmd");
    let work = ["--threads", "1", "--iters", "300000000"];
    let command = [&["taskset", "-c", &second, &spmd], &work[..]].concat();
    let (diagnosis, said) = diagnose(&state, &command, &[]);
    // Other processes may use the program's CPU as well, and are reported rightly.
    let pid = format!("(pid {})", hog.pid());
    assert!(diagnosis["threads"] == 1 && !said.contains(&pid), "{said}");
}

#[test]
fn a_busy_process_on_the_same_cpu_is_named() {
    let _alone = alone();
    if whole().is_none() {
        return;
    }
    let state = State::new();
    // Where permitted, it has a priority with which it gets more of that CPU than all others of a busy machine.
    let noise = workload("noise");
    let mut raised = Command::new(&noise);
    raised.args(["--nice", "-5", "--always", "--duration-s", "0"]);
    let raised = raised.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let nice = if raised.unwrap().success() { "-5" } else { "0" };
    let hog =
        Running::start(&[&noise, "--always", "--cpu", "0", "--nice", nice, "--duration-s", "300"]);
    let spmd = workload("spmd");
    let command = ["taskset", "-c", "0", &spmd, "--threads", "1", "--iters", "300000000"];
    let (diagnosis, said) = diagnose(&state, &command, &[]);
    let all = diagnosis["findings"].as_array().unwrap();
    let found = all.iter().find(|f| f["kind"] == "neighbour").unwrap_or_else(|| panic!("{said}"));
    assert_eq!(found["cpus"], "0", "{said}");
    let named = found["evidence"].to_string() + &found["sentence"].to_string();
    // The one that took most is named. Without a priority that may be another one of a busy machine.
    let named_it = named.contains(&format!("noise (pid {})", hog.pid()));
    assert!(named_it || nice == "0" && named.contains("more"), "{said}");
}

#[test]
fn threads_are_named() {
    let _alone = alone();
    let state = State::new();
    let spmd = workload("spmd");
    let uneven = ["--threads", "2", "--imbalance", "0.5,1.5", "--name-prefix", "rank"];
    let command = [&[spmd.as_str()], &uneven[..], &["--phases", "20", "--iters", "15000000"]];
    let (diagnosis, said) = diagnose(&state, &command.concat(), &[]);
    let all = diagnosis["findings"].as_array().unwrap();
    let found = all.iter().find(|f| f["kind"] == "uneven_work").unwrap_or_else(|| panic!("{said}"));
    assert!(found["sentence"].as_str().unwrap().starts_with("rank1 ("), "{said}");
    let balance = diagnosis["efficiency"]["factors"]["load_balance"].as_f64().unwrap();
    assert!((balance - 2.0 / 3.0).abs() < 0.1, "{said}");
}

/// The probe counts barriers, which decide which policy is proposed.
#[test]
fn barriers_are_counted() {
    let _alone = alone();
    let state = State::new();
    let (program, file) = (workload("omp_spmd-gomp"), state.sign("doctor.evenly"));
    if !evenly_testing::is_built(&program) {
        return;
    }
    // Some seconds of work in phases of a few milliseconds.
    let args = ["--threads", "2", "--phases", "400", "--iters", "3000000"];
    let options = ["doctor", "--record", &file, "--", &program];
    let o = state.command(&[&options[..], &args].concat()).output().unwrap();
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    let recorded = fs::read_to_string(&file).unwrap();
    let end: Value = serde_json::from_str(recorded.lines().last().unwrap()).unwrap();
    let (work, phases) = (&end["summary"]["phase"][0], &end["summary"]["phase"][1]);
    // A phase may count twice, at its barrier and at the end of its region; the last ones are not seen.
    assert!((100..=810).contains(&phases.as_u64().unwrap()), "{}", end["summary"]);
    assert!(work.as_f64().unwrap() > 0.0, "{}", end["summary"]);
}

#[test]
fn the_program_runs_as_without_it() {
    let _alone = alone();
    let state = State::new();
    let run = |args: &[&str], threads: Option<&str>| {
        let mut c = state.command(&[&["doctor"], args].concat());
        match threads {
            Some(n) => c.env("OMP_NUM_THREADS", n),
            None => c.env_remove("OMP_NUM_THREADS"),
        };
        let o = c.output().unwrap();
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        (o.status.code(), text(&o.stdout), text(&o.stderr))
    };
    let echo = "echo $OMP_NUM_THREADS; exit 7";
    let (status, out, said) = run(&["--", "sh", "-c", echo], Some("9999"));
    assert_eq!((status, out.as_str()), (Some(7), "9999\n"), "{said}");
    let (status, out, said) = run(&["--fix-env", "--", "sh", "-c", echo], Some("9999"));
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert_eq!(status, Some(7));
    assert!(out.trim().parse::<usize>().is_ok_and(|n| n <= cpus), "{out}");
    assert!(said.contains(&format!("evenly: sets OMP_NUM_THREADS={}", out.trim())), "{said}");
    // Each setting that is wrong is changed, and reported.
    let wrong = [
        ("OMP_WAIT_POLICY", "active", "passive"),
        ("GOMP_SPINCOUNT", "infinity", "1000"),
        ("KMP_BLOCKTIME", "infinite", "0"),
        ("KMP_LIBRARY", "turnaround", "throughput"),
    ];
    let names: Vec<String> = wrong.iter().map(|(name, ..)| format!("${name}")).collect();
    let echo_all = format!("echo $OMP_NUM_THREADS {}", names.join(" "));
    let fixed = |before: &[&str], threads: Option<&str>| {
        let evenly = evenly().display().to_string();
        let words =
            [before, &[evenly.as_str(), "doctor", "--fix-env", "--", "sh", "-c", &echo_all]]
                .concat();
        let mut c = Command::new(words[0]);
        c.args(&words[1..]).env("EVENLY_STATE_DIR", state.path()).env_remove("OMP_NUM_THREADS");
        c.envs(wrong.map(|(name, value, _)| (name, value)));
        c.envs(threads.map(|n| ("OMP_NUM_THREADS", n)));
        let o = c.output().unwrap();
        let said = String::from_utf8_lossy(&o.stderr).into_owned();
        let out = String::from_utf8_lossy(&o.stdout).into_owned();
        let (threads, rest) = out.trim().split_once(' ').unwrap_or_else(|| panic!("{out}{said}"));
        assert_eq!(rest, "passive 1000 0 throughput", "{said}");
        for (name, value, fixed) in wrong {
            let set = format!("evenly: sets {name}={fixed}: {name}={value} lets threads spin");
            assert!(said.contains(&set), "{said}");
        }
        let set = format!("evenly: sets OMP_NUM_THREADS={threads}: ");
        let why = said.lines().find_map(|l| l.strip_prefix(&set)).unwrap_or_default().to_owned();
        (threads.to_owned(), why)
    };
    let (threads, why) = fixed(&[], Some("9999"));
    assert!(threads.parse::<usize>().is_ok_and(|n| n <= cpus), "{threads}");
    assert!(why.starts_with("it was 9999, and "), "{why}");
    // A quota that OpenMP does not see.
    if let Some((_group, script)) = limited("doctor-fix", 50_000).filter(|_| cpus > 1) {
        let (threads, why) = fixed(&["sh", "-c", &script, "limited"], None);
        assert_eq!(threads, "1");
        assert!(why.contains("the CPU quota is 1.00 CPUs"), "{why}");
    }
    // Settings that are right are left alone.
    let (_, out, said) = run(&["--fix-env", "--", "sh", "-c", echo], Some("1"));
    assert!(out == "1\n" && !said.contains("sets"), "{out}{said}");
    for (bad, word) in [
        (&["--", "/nowhere/program"][..], "cannot run"),
        (&[], "required"),
        (&["--fix-env", "4711"], "--fix-env"),
        (&["--from", "/nowhere/recording"], "/nowhere/recording"),
        (&["999999999"], "999999999"),
        (&["--json", "-", "--", "true"], "standard output"),
    ] {
        let (status, out, said) = run(bad, None);
        let expected = if word == "cannot run" { 127 } else { 125 };
        assert_eq!((status, out.as_str()), (Some(expected), ""), "{said}");
        assert!(said.contains(word) && said.lines().count() == 1, "{bad:?}: {said}");
    }
}

/// A program that is linked statically.
fn linked_statically(state: &State) -> String {
    let (source, program) = (state.sign("x.c"), state.sign("fixed"));
    fs::write(&source, "int main(void){return 0;}").unwrap();
    let built = Command::new("gcc").args(["-static", &source, "-o", &program]).status();
    assert!(built.unwrap().success());
    program
}

/// The gaps that the doctor reports, and its whole text.
fn gaps(state: &State, options: &[&str], command: &[&str]) -> (Value, String) {
    let json = state.sign("gaps.json");
    let args = [&["doctor", "--json", &json], options, &["--"], command].concat();
    let o = state.command(&args).envs(mpi::ENVIRONMENT).output().unwrap();
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    assert!(o.status.success(), "{said}");
    let value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    schema::valid(&value);
    (value["gaps"].clone(), said)
}

fn assert_reported(state: &State, program: &str, command: &[&str]) {
    let why = format!(
        "which threads spin while waiting: '{program}' runs without the probe: it is linked statically; link \
         it dynamically to be seen"
    );
    let (gaps, said) = gaps(state, &[], command);
    assert_eq!(gaps, serde_json::json!([why]), "{said}");
    assert!(said.contains(&format!("  not seen    {why}\n")), "{said}");
}

/// The loader ignores the probe silently.
#[test]
fn a_program_without_the_probe_is_reported() {
    let _alone = alone();
    let state = State::new();
    let program = linked_statically(&state);
    assert_reported(&state, &program, &[&program]);
}

#[test]
fn a_program_without_the_probe_that_another_starts_is_reported() {
    let _alone = alone();
    let state = State::new();
    let program = linked_statically(&state);
    assert_reported(&state, &program, &["env", "A=b", &program]);
}

#[test]
fn a_program_without_the_probe_that_a_shell_starts_is_reported() {
    let _alone = alone();
    let state = State::new();
    let program = linked_statically(&state);
    assert_reported(&state, &program, &["sh", "-c", &format!("cd / && exec {program} x")]);
}

#[test]
fn a_program_without_the_probe_is_no_gap_where_none_is_wanted() {
    let _alone = alone();
    let state = State::new();
    let program = linked_statically(&state);
    assert_eq!(gaps(&state, &["--probe", "off"], &[&program]).0, serde_json::json!([]));
}

#[test]
fn programs_with_the_probe_are_no_gap() {
    let _alone = alone();
    let state = State::new();
    assert_eq!(gaps(&state, &[], &["sh", "-c", "env true"]).0, serde_json::json!([]));
}

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn ranks_without_the_probe_are_reported() {
    let _alone = alone();
    let state = State::new();
    let program = linked_statically(&state);
    for mpi in mpi::here() {
        assert_reported(&state, &program, &[&mpi.tool("mpirun"), "-n", "2", &program]);
    }
}

/// A script that starts MPI is not recognised as MPI, so polling is unknown, and the efficiencies are without it.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn mpi_behind_a_script_is_reported_as_unseen() {
    let _alone = alone();
    let state = State::new();
    for mpi in mpi::here() {
        let script = state.sign("job");
        let line = format!("exec {} -n 2 {} 1 1 1", mpi.tool("mpirun"), mpi.program("pairs"));
        evenly_testing::script(Path::new(&script), &format!("#!/bin/sh\n{line}\n"));
        let json = state.sign("script.json");
        let mut evenly = state.command(&["doctor", "--json", &json, "--", &script]);
        let o = evenly.envs(mpi::ENVIRONMENT).output().unwrap();
        let said = String::from_utf8_lossy(&o.stderr);
        assert!(o.status.success(), "{}: {said}", mpi.said);
        let value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        schema::valid(&value);
        let missed =
            "which threads spin while waiting: a program had MPI, and calls of it were not seen";
        assert!(value["gaps"][0].as_str().is_some_and(|g| g.starts_with(missed)), "{value:#}");
        assert!(said.contains("(evenly doctor -- mpirun -n 1 ...)"), "{said}");
        assert_ne!(value["efficiency"]["basis"], "probe", "{value:#}");
    }
}

/// The doctor reads the probe of a program that another evenly has started with it.
#[test]
#[ignore = "needs clang: ./dev test --all"]
fn the_probe_of_a_running_program_is_read() {
    let _alone = alone();
    let Some(whole) = whole() else { return };
    let program = workload("omp_spmd-omp");
    if !evenly_testing::is_built(&program) {
        return;
    }
    let state = State::new();
    let threads = (2 * whole.len()).to_string();
    let work = ["--threads", &threads, "--phases", "100000", "--iters", "4000000"];
    // Threads that do not yield: spinning cannot be seen from outside.
    let spins =
        [("OMP_WAIT_POLICY", "active"), ("KMP_LIBRARY", "turnaround"), ("KMP_USE_YIELD", "0")];
    let command = [&[program.as_str(), "--imbalance-linear", "1.6"], &work[..]].concat();
    for probe in ["on", "off"] {
        let options =
            [&["run", "--policy", "observe", "--probe", probe, "--"], &command[..]].concat();
        let running = state.start_in(&evenly(), &options, &spins);
        let pid = running.program();
        wait_until("its threads", || masks(pid).len() >= 2 * whole.len());
        let json = state.sign("asked.json");
        let args = ["doctor", &pid.to_string(), "--for", "1s", "--json", &json];
        let o = state.command(&args).output().unwrap();
        let said = String::from_utf8_lossy(&o.stdout).into_owned();
        assert_eq!(o.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&o.stderr));
        let value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        schema::valid(&value);
        // From outside, samples show it where they are permitted and the loop can be decoded.
        let basis = value["efficiency"]["basis"].as_str();
        assert_eq!(basis == Some("probe"), probe == "on", "{said}");
        // How much they spin, and so whether that is a finding, depends on the other programs of the machine.
        let known = value["efficiency"]["factors"].is_object();
        assert_eq!(known, basis != Some("cpu_time"), "{value:#}");
        signal(pid, Signal::TERM);
    }
}

#[test]
fn a_running_program_is_diagnosed() {
    let _alone = alone();
    let Some(whole) = whole() else { return };
    let state = State::new();
    let running = Running::start(&[
        "taskset",
        "-c",
        &whole.first().unwrap().to_string(),
        &workload("churn"),
        "--workers",
        "3",
        "--duration-s",
        "300",
    ]);
    wait_until("the program to compute", || masks(running.pid()).len() > 3);
    let (status, said) = {
        let pid = running.pid().to_string();
        let o = state.command(&["doctor", &pid, "--for", "700ms"]).output().unwrap();
        (o.status.code(), String::from_utf8_lossy(&o.stdout).into_owned())
    };
    assert_eq!(status, Some(0), "{said}");
    let paste = format!("taskset -apc {whole} {}", running.pid());
    assert!(said.contains(&paste), "{said}");
}

#[test]
fn a_recording_is_diagnosed_with_and_without_evidence() {
    let _alone = alone();
    if whole().is_none() {
        return;
    }
    let state = State::new();
    let record = state.sign("record");
    let spmd = workload("spmd");
    // Without --threads balancing begins when both compute at the same time for long enough, which they may not.
    let args =
        ["run", "-q", "--policy", "observe", "--threads", "2", "--record", &record, "--", &spmd];
    let work =
        ["--threads", "2", "--imbalance", "0.5,1.5", "--phases", "40", "--iters", "12000000"];
    assert_eq!(state.output(&[&args[..], &work].concat()).0, Some(0));
    let o = state.command(&["doctor", "--from", &record, "--json", "-"]).output().unwrap();
    let value: Value = serde_json::from_slice(&o.stdout).unwrap();
    schema::valid(&value);
    assert_eq!(value["gaps"], serde_json::json!([]), "{value:#}");
    assert!(kinds(&value).iter().any(|k| k == "uneven_work"), "{value:#}");

    // A recording without evidence, as an earlier evenly made it.
    let text = fs::read_to_string(&record).unwrap();
    let (before, last) = text.trim_end().rsplit_once('\n').unwrap();
    let mut end: Value = serde_json::from_str(last).unwrap();
    assert!(end["summary"].as_object_mut().unwrap().remove("evidence").is_some());
    fs::write(&record, format!("{before}\n{end}\n")).unwrap();
    let o = state.command(&["doctor", "--from", &record, "--json", "-"]).output().unwrap();
    let value: Value = serde_json::from_slice(&o.stdout).unwrap();
    assert!(value["gaps"][0].as_str().unwrap().contains("evenly doctor --record"), "{value:#}");
    assert_eq!(kinds(&value), ["uneven_work"], "{value:#}");
}

/// A recording of a run contains what the doctor needs: settings, masks and other processes.
#[test]
fn a_recording_of_a_run_can_be_diagnosed() {
    let _alone = alone();
    let Some(whole) = whole() else { return };
    let state = State::new();
    let (record, first) = (state.sign("run.evenly"), whole.first().unwrap().to_string());
    let gomp = workload("omp_spmd-gomp");
    let work = ["--threads", "4", "--phases", "40", "--iters", "3000000"];
    let narrow = [&["taskset", "-c", &first, &gomp][..], &work].concat();
    let wide = [&[gomp.as_str()][..], &work].concat();
    for (policy, command) in [("observe", &narrow), ("juggle", &wide)] {
        let options = ["run", "-q", "--policy", policy, "--record", &record, "--"];
        let mut evenly = state.command(&[&options[..], command].concat());
        let o = evenly.env("OMP_NUM_THREADS", "4").output().unwrap();
        assert_eq!(o.status.code(), Some(0), "{}", String::from_utf8_lossy(&o.stderr));
        let text = fs::read_to_string(&record).unwrap();
        let end: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let evidence = &end["summary"]["evidence"];
        schema::valid(evidence);
        assert_eq!(evidence["environment"]["OMP_NUM_THREADS"], "4", "{end:#}");
        let o = state.command(&["doctor", "--from", &record, "--json", "-"]).output().unwrap();
        let value: Value = serde_json::from_slice(&o.stdout).unwrap();
        schema::valid(&value);
        let found = kinds(&value);
        if policy == "observe" {
            assert!(found.iter().any(|k| k == "narrow_mask"), "{value:#}");
            assert_eq!(value["gaps"], serde_json::json!([]), "{value:#}");
        } else {
            // The narrow masks were evenly's own, so they are no finding.
            assert_eq!(value["cpus"], whole.to_string(), "{value:#}");
            assert!(!found.iter().any(|k| k == "pinned_together"), "{value:#}");
            let gap = value["gaps"][0].as_str().unwrap();
            assert!(gap.contains("it was balanced by juggle"), "{value:#}");
        }
    }
    // More threads than fit into the evidence of a small recording.
    let churn = ["--threads", "100", "--workers", "2", "--duration-s", "1"];
    let options = ["run", "-q", "--policy", "observe", "--record-limit", "1", "--record", &record];
    let program = workload("churn");
    let words = [&options[..], &["--", &program], &churn].concat();
    assert_eq!(state.output(&words).0, Some(0));
    let o = state.command(&["doctor", "--from", &record]).output().unwrap();
    let said = String::from_utf8_lossy(&o.stdout);
    let gap = "not seen    this recording has threads and CPUs only, as they were too many";
    assert!(o.status.success() && said.contains(gap), "{said}");
}

/// The diagnosis of the doctor's own recording is the one that it printed.
#[test]
fn a_recording_of_the_doctor_has_the_same_verdict() {
    let _alone = alone();
    let Some(whole) = whole() else { return };
    let state = State::new();
    let (record, live) = (state.sign("record.evenly"), state.sign("live.json"));
    let first = whole.first().unwrap().to_string();
    let gomp = workload("omp_spmd-gomp");
    let program = ["taskset", "-c", &first, &gomp, "--threads", "4", "--phases", "40"];
    let args = ["doctor", "--record", &record, "--json", &live, "--"];
    let words = [&args[..], &program, &["--iters", "3000000"]].concat();
    let o = state.command(&words).env("OMP_NUM_THREADS", "4").output().unwrap();
    assert_eq!(o.status.code(), Some(0), "{}", String::from_utf8_lossy(&o.stderr));
    let live: Value = serde_json::from_str(&fs::read_to_string(&live).unwrap()).unwrap();
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    assert!(kinds(&live).iter().any(|k| k == "narrow_mask"), "{said}");

    let o = state.command(&["doctor", "--from", &record]).output().unwrap();
    assert_eq!(o.status.code(), Some(0), "{}", String::from_utf8_lossy(&o.stderr));
    assert_eq!(String::from_utf8_lossy(&o.stdout), said);
    let text = fs::read_to_string(&record).unwrap();
    let end: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    schema::valid(&end["summary"]);
    assert_eq!(end["summary"]["environment"]["OMP_NUM_THREADS"], "4", "{end:#}");
    // Other readers of recordings show it, or report that there is nothing to show.
    let page = state.sign("page.html");
    for (args, expected) in
        [(&["report", &record, "--html", &page][..], 0), (&["predict", "--from", &record], 125)]
    {
        let o = state.command(args).output().unwrap();
        let said = String::from_utf8_lossy(&o.stderr);
        assert_eq!(o.status.code(), Some(expected), "{args:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
    // A broken recording is an error that names the field.
    fs::write(&record, text.replace("\"seconds\":", "\"seconds\":-")).unwrap();
    let o = state.command(&["doctor", "--from", &record]).output().unwrap();
    let said = String::from_utf8_lossy(&o.stderr);
    assert!(o.status.code() == Some(125) && said.contains("seconds is not from 0"), "{said}");
}
