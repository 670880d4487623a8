//! `evenly run --policy nuco` on real programs: threads of unequal work are placed by their load,
//! within what they may use, and everything is given back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use evenly_model::CpuSet;
use std::fs;

const PLACED: &str = "placed anew by load and communication";

/// Five threads on two CPUs, of which two have three parts of work between barriers and the others two:
/// best is each kind on a CPU. Where the kernel had them so by accident there is nothing to move, so
/// some runs are tried.
#[test]
fn threads_of_unequal_work_are_placed_by_load() {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let spmd = workload("spmd");
    let command = [&spmd, "--threads", "5", "--phases", "1000000", "--iters", "4000000"];
    let command = [&command[..], &["--imbalance", "3,2,3,2,2", "--barrier", "block"]].concat();
    let two: CpuSet = whole.iter().take(2).collect();
    let cpus = two.to_string();
    let placed = (0..8).any(|_| {
        let options = ["--every", "20", "--cpus", &cpus];
        let mut evenly = state.run_with("nuco", 5, &options, &command);
        let program = evenly.program();
        // A window is a fifth of a second where the machine has time for it.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while evenly.decisions(PLACED) == 0 && std::time::Instant::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(20));
            for mask in masks(program).values() {
                assert!(mask.is_subset(&whole), "{mask}");
            }
        }
        let found = evenly.decisions(PLACED) > 0;
        evenly.kill(Signal::TERM);
        evenly.wait();
        let report = evenly.report();
        schema::valid(&report);
        let notes = report["notes"].to_string();
        assert!(notes.contains("nuco: without --profile nothing is known of messages"), "{notes}");
        found
    });
    assert!(placed, "in none of the runs");
    assert_eq!(state.journals().len(), 0);
}

/// A profile names ranks or threads by their numbers; what is no profile is bad input.
#[test]
fn profiles_are_read_before_anything_is_started() {
    let state = State::new();
    let file = |name: &str, text: &str| {
        let path = state.sign(name);
        fs::write(&path, text).unwrap();
        path
    };
    let good = file(
        "good",
        r#"{"schema": "evenly.tasks/1", "tasks": [{"id": 0, "load_s": 1}, {"id": 1, "load_s": 1}],
            "edges": [{"from": 0, "to": 1, "messages": 100}]}"#,
    );
    let bad = file("bad", r#"{"schema": "evenly.tasks/1", "tasks": [{"id": 0, "load_s": -1}]}"#);
    for (args, words) in [
        (vec!["--policy", "nuco", "--profile", "/nowhere"], "--profile: /nowhere cannot be read"),
        (vec!["--policy", "nuco", "--profile", &bad], "a number that is not negative is needed"),
        (vec!["--profile", &good], "--profile: the policy hybrid does not look at it"),
        (vec!["--policy", "juggle", "--every", "9"], "--every: the policy juggle does not look"),
    ] {
        let command = ["--", "sh", "-c", "echo started >&2"];
        let (status, said) = state.output(&[&["run"], &args[..], &command].concat());
        assert_eq!(status, Some(125), "{args:?}: {said}");
        assert!(said.lines().count() == 1 && said.contains(words), "{args:?}: {said}");
    }
    let args = ["run", "--policy", "nuco", "--profile", &good, "--", "true"];
    let (status, said) = state.output(&args);
    assert!(status == Some(0) && !said.contains("without --profile"), "{said}");
}

/// Killed in between, it leaves nothing.
#[test]
fn masks_are_given_back() {
    let Some(whole): Option<CpuSet> = whole() else { return };
    let state = State::new();
    let n = whole.len() + 1;
    let program = Running::computing(n as u32);
    let evenly = state.attach("nuco", n as u32, program.pid());
    wait_until_narrowed(program.pid(), &whole, n);
    evenly.kill(Signal::KILL);
    wait_until_restored(program.pid(), &whole);
}
