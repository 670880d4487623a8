//! `--policy phase` on a real OpenMP program: threads move within its phases, its answers stay, and whatever
//! happens to evenly in the middle of a phase, the program runs on with the masks that it had.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use evenly_linux::affinity;
use evenly_linux::clock::now;
use evenly_linux::proc::{Proc, parse_schedstat};
use evenly_model::{CpuSet, Nanos, Pid, Tid};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A program of three threads with phases of about a millisecond.
fn program(runtime: &str, phases: &str) -> Vec<String> {
    let name = workload(&format!("omp_spmd-{runtime}"));
    [&name, "--threads", "3", "--iters", "400000", "--phases", phases].map(str::to_owned).into()
}

fn words(command: &[String]) -> Vec<&str> {
    command.iter().map(String::as_str).collect()
}

/// Waits until each thread of the process was seen on both CPUs, and never on any other.
fn wait_until_threads_turn(pid: Pid, whole: &CpuSet) {
    let mut seen: BTreeMap<i32, BTreeSet<String>> = BTreeMap::new();
    wait_until("each thread to be put on both CPUs", || {
        for (tid, mask) in masks(pid) {
            assert!(mask.is_subset(whole), "thread {tid} may use {mask} of {whole}");
            if mask.len() == 1 {
                seen.entry(tid).or_default().insert(mask.to_string());
            }
        }
        seen.len() == 3 && seen.values().all(|cpus| cpus.len() == 2)
    });
}

fn moves_within_phases(runtime: &str) {
    let Some(whole) = whole() else { return };
    let command = program(runtime, "1500");
    let (first, rest) = command.split_first().unwrap();
    let plain = Command::new(first).args(rest).output().unwrap();
    let checksum = |stdout: &str| -> Value {
        serde_json::from_str::<Value>(stdout).unwrap()["checksum"].clone()
    };
    let state = State::new();
    let mut evenly = state.run("phase", 3, &words(&command));
    let pid = evenly.program();
    wait_until_threads_turn(pid, &whole);
    assert_eq!(evenly.wait().code(), Some(0), "{}", evenly.stderr());
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert_eq!(checksum(&evenly.stdout()), checksum(&plain));
    evenly.report_of_moves();
}

#[test]
fn threads_of_libgomp_move_within_phases() {
    moves_within_phases("gomp");
}

#[test]
fn threads_of_libomp_move_within_phases() {
    if evenly_testing::is_built(workload("omp_spmd-omp")) {
        moves_within_phases("omp");
    }
}

/// Threads turn; then `disturb` does something to evenly, after which all masks are whole and the program goes on.
fn is_harmless(disturb: impl FnOnce(&Evenly)) {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let command = program("gomp", "10000000");
    let evenly = state.run("phase", 3, &words(&command));
    let pid = evenly.program();
    wait_until_threads_turn(pid, &whole);
    disturb(&evenly);
    wait_until_restored(pid, &whole);
    assert_eq!(masks(pid).len(), 3);
    let stat = Proc::default().process_stat(pid);
    assert!(stat.is_some_and(|s| s.state != b'Z'), "the program has ended");
    signal(pid, Signal::KILL);
}

#[test]
fn masks_are_given_back_when_evenly_is_killed_in_mid_phase() {
    is_harmless(|evenly| evenly.kill(Signal::KILL));
}

#[test]
fn masks_are_given_back_when_evenly_is_stopped_in_mid_phase() {
    is_harmless(|evenly| evenly.kill(Signal::STOP));
}

/// What the program and evenly share.
fn mapping(pid: Pid) -> File {
    let variables = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let mut variables = variables.split(|byte| *byte == 0);
    let path = variables.find_map(|v| v.strip_prefix(b"EVENLY_PROBE=")).unwrap();
    File::options().read(true).write(true).open(std::str::from_utf8(path).unwrap()).unwrap()
}

/// Where the notes are, and their size; and where each has when a barrier opened, and that masks were set (waiting.h).
const NOTES: u64 = 4096 + 65_535 * 64;
const NOTE: u64 = 64;
const OPENED: u64 = 16;
const BOUND: u64 = 56;

/// Says at all times that the barrier of each of the first teams has opened then.
fn say_opened(shared: &File, at: Nanos, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        for line in 0..8 {
            shared.write_all_at(&at.0.to_ne_bytes(), NOTES + line * NOTE + OPENED).unwrap();
        }
    }
}

/// Would catch: a helper that sleeps until a time that the program has written, and so outlives it, and SIGTERM.
#[test]
fn evenly_ends_where_barriers_are_said_to_open_in_decades() {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let mut evenly = state.run("phase", 3, &words(&program("gomp", "10000000")));
    let pid = evenly.program();
    wait_until_threads_turn(pid, &whole);
    let (shared, stop) = (mapping(pid), AtomicBool::new(false));
    let decades = now() + Nanos::from_millis(1_000_000_000_000);
    std::thread::scope(|scope| {
        scope.spawn(|| say_opened(&shared, decades, &stop));
        (0..100).for_each(|_| evenly.wait_until_point());
        evenly.kill(Signal::TERM);
        let status = evenly.wait();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
    });
}

/// Would catch: limits of evenly's own threads that its program inherits.
#[test]
fn the_program_has_the_limits_that_it_has_without_evenly() {
    let Some(whole) = whole() else { return };
    let limits = |pid: Pid| fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let state = State::new();
    let evenly = state.run("phase", 3, &words(&program("gomp", "10000000")));
    let pid = evenly.program();
    wait_until_threads_turn(pid, &whole);
    assert_eq!(limits(pid), limits(Running::start(&["sleep", "600"]).pid()));
    signal(pid, Signal::KILL);
}

/// Would catch: a helper that takes the signal, which batch systems send, for its own.
#[test]
fn sigxcpu_goes_on_to_the_program_while_helpers_are_at_work() {
    let Some(_whole) = whole() else { return };
    let state = State::new();
    let script = "trap 'exit 7' XCPU; echo ready; while :; do sleep 0.01; done";
    let mut evenly = state.run("phase", 3, &["sh", "-c", script]);
    wait_until("the program", || evenly.stdout() == "ready\n");
    wait_until("helpers that wait", || {
        let threads = Proc::default().threads(evenly.pid());
        threads.into_iter().any(|tid| name(tid.0) == "phases-watch")
    });
    evenly.wait_until_point();
    evenly.kill(Signal::XCPU);
    assert_eq!(evenly.wait().code(), Some(7), "{}", evenly.stderr());
}

/// Would catch: moves where CPUs have the same to do.
#[test]
fn threads_that_divide_evenly_are_not_moved_within_phases() {
    let Some(_whole) = whole() else { return };
    let state = State::new();
    let name = workload("omp_spmd-gomp");
    let command = [name.as_str(), "--threads", "2", "--iters", "400000", "--phases", "800"];
    let mut evenly = state.run("phase", 2, &command);
    assert_eq!(evenly.wait().code(), Some(0), "{}", evenly.stderr());
    let report = evenly.report();
    // The first distribution may move each once.
    let moves = report["domains"][0]["migrations"].as_u64().unwrap();
    assert!(moves <= 2, "{report:#}");
}

/// The policy of a run with these options, as its report has it.
fn policy_of(options: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("report.json");
    let output = Command::new(env!("CARGO_BIN_EXE_evenly"))
        .args(["run", "-q", "--json"])
        .arg(&json)
        .args(options)
        .args(["--", "true"])
        .output()
        .unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    report["policy"].as_str().unwrap().to_owned()
}

/// Would catch: a default that is refused beside an option, and a policy that was asked for and is replaced.
#[test]
fn phase_is_the_default_where_the_probe_may_be_loaded() {
    assert_eq!(policy_of(&[]), "auto");
    assert_eq!(policy_of(&["--probe", "on"]), "auto");
    assert_eq!(policy_of(&["--probe", "off"]), "hybrid");
    assert_eq!(policy_of(&["--probe", "off", "--policy", "juggle"]), "juggle");
}

/// The program of the tests above, with nothing asked for.
#[test]
fn threads_move_within_phases_by_default() {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let command = program("gomp", "10000000");
    let evenly = state.start(&[&["run", "--no-guard", "--"], &words(&command)[..]].concat());
    let pid = evenly.program();
    wait_until_threads_turn(pid, &whole);
    signal(pid, Signal::KILL);
}

/// Would catch: pools that a program sizes by the one CPU on which a thread of it was put, also in the programs that it
/// starts.
#[test]
fn programs_see_all_their_cpus_by_default() {
    let Some(whole) = whole() else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/asks.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("asks");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-fopenmp", "-o"]).arg(&program).arg(source);
    assert!(gcc.status().unwrap().success());
    let state = State::new();
    let mut evenly = state.start(&["run", "--no-guard", "--", program.to_str().unwrap()]);
    assert_eq!(evenly.wait().code(), Some(0), "{}", evenly.stderr());
    let all = Command::new("getconf").arg("_NPROCESSORS_ONLN").output().unwrap();
    let all = String::from_utf8(all.stdout).unwrap();
    let n = whole.len();
    assert_eq!(evenly.stdout(), format!("{n} {} {n}\n", all.trim()));
}

/// Would catch: a mask that is set from outside, of which the program is not told that it is not evenly's.
#[test]
fn the_program_knows_of_masks_that_somebody_else_sets() {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let evenly = state.run("phase", 3, &words(&program("gomp", "10000000")));
    let pid = evenly.program();
    wait_until_threads_turn(pid, &whole);
    let shared = mapping(pid);
    let is_told = || {
        let mut bound = [0; 4];
        (0..8).any(|line| {
            shared.read_exact_at(&mut bound, NOTES + line * NOTE + BOUND).unwrap();
            bound != [0; 4]
        })
    };
    assert!(!is_told());
    // The other CPU for each, so that no thread has the mask that evenly has given it: it finds that when it moves one. Again
    // after a second, as it may move one just then.
    let mut again = Instant::now();
    wait_until("the program to be told", || {
        if Instant::now() >= again {
            again += Duration::from_secs(1);
            for (tid, mask) in masks(pid) {
                let other = whole.minus(&mask);
                // One that was let go just then has no other.
                let _ = affinity::set(Tid(tid), &other);
            }
        }
        is_told()
    });
    signal(pid, Signal::KILL);
}

/// CPU time of the helpers of a running evenly, and how many there are.
fn helpers(evenly: Pid) -> (Nanos, u32) {
    let threads = Proc::default().threads(evenly).into_iter();
    let helpers = threads.filter(|tid| {
        let name = name(tid.0);
        name.starts_with("phases-") && name != "phases-watch"
    });
    helpers.fold((Nanos::ZERO, 0), |(time, count), tid| {
        let line = fs::read(format!("/proc/{tid}/schedstat")).unwrap_or_default();
        let ran = parse_schedstat(&line).unwrap_or_default().ran;
        (time + ran, count + 1)
    })
}

/// Would catch: helpers that are woken by each opening, and take what they need for that: 40 % of a CPU at real-time
/// priority. Threads that meet as often as they can; nothing can be gained.
#[test]
fn helpers_keep_to_the_budget_where_barriers_open_all_the_time() {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let name = workload("omp_spmd-gomp");
    let command = [&name, "--threads", "3", "--iters", "1", "--phases", "1000000000"];
    let run = ["run", "--policy", "phase", "--no-guard", "--budget", "0.1", "--"];
    let evenly = state.start(&[&run[..], &command].concat());
    let pid = evenly.program();
    // They begin one after the other.
    let are_all = |h: &(Nanos, u32)| h.1 as usize == whole.len();
    let all = wait_for("helpers of all CPUs", || Some(helpers(evenly.pid())).filter(are_all));
    let began = now();
    // Until they have been at work for 0.3 s of their time, or have had 3 s.
    wait_until("time to pass", || {
        now() - began > Nanos::from_millis(3_000)
            || helpers(evenly.pid()).0 > Nanos::from_millis(300)
    });
    let (took, count) = helpers(evenly.pid());
    let time = now() - began;
    // Together they have the budget, and ten times that each for what is gained, which is nothing; each has a burst of 2 ms,
    // and may begin what takes longer.
    let most = time.scale(0.001) + Nanos::from_millis(4).scale(f64::from(count)) + all.0;
    assert!(took < most, "{took} of {time}, allowed {most}");
    signal(pid, Signal::KILL);
}
