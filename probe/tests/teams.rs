//! The barriers of teams of `waiting_team.h` by themselves: in every order of their steps, by a model checker, and with
//! real threads under ThreadSanitizer. Each is shown to find what is wrong where something is taken away.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{HEADERS, built, has};
use std::process::{Command, Output};

fn run(program: &str, broken: u32, options: &[&str], arguments: &str) -> Output {
    let broken = format!("-DBROKEN={broken}");
    let all = ["-std=gnu11", "-Werror", HEADERS, &broken].into_iter();
    let options: Vec<&str> = all.chain(options.iter().copied()).collect();
    // Where an order is missing a member may wait for ever.
    let mut run = Command::new("timeout");
    run.arg("120").arg(built(program, "gcc", &options)).args(arguments.split(' '));
    run.env("TSAN_OPTIONS", "exitcode=66").output().unwrap()
}

/// What the checker of the model says; None where nothing is wrong.
fn wrong_in_model(broken: u32, arguments: &str) -> Option<String> {
    // Stacks are left by jumps, of which the fortified ones know nothing.
    let output = run("team_model", broken, &["-O2", "-U_FORTIFY_SOURCE"], arguments);
    let said = String::from_utf8(output.stdout).unwrap();
    match output.status.code() {
        Some(0) => None,
        Some(1) => Some(said),
        _ => panic!("{arguments}: {:?} {said}", output.status),
    }
}

#[test]
fn no_order_of_steps_is_wrong() {
    if !has("gcc") {
        return;
    }
    // Two members in any order; more of them, or barriers, with a bound on preemptions. In the last two the team
    // leaves its barriers to the runtime.
    for arguments in ["2 2 99 1", "2 3 4 2", "3 1 2 1", "2 3 3 1 1", "3 2 1 1 1"] {
        assert_eq!(wrong_in_model(0, arguments), None, "{arguments}");
    }
}

#[test]
fn the_model_finds_what_is_wrong() {
    if !has("gcc") {
        return;
    }
    for (broken, found) in [
        (1, "a member waits for ever"),
        (2, "a member waits for ever"),
        (3, "a member waits for ever"),
        (4, "a member does not see what another wrote before the barrier"),
        (5, "a member waits for ever"),
    ] {
        let said = wrong_in_model(broken, "2 2 2 1 1").unwrap_or_default();
        assert!(said.starts_with(found), "{broken}: {said}");
    }
}

/// Whether ThreadSanitizer reports a race; None where it cannot run here.
fn races(broken: u32, arguments: &str) -> Option<bool> {
    let output = run("team_threads", broken, &["-fsanitize=thread", "-Wno-tsan"], arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    if said.contains("unexpected memory mapping") {
        evenly_testing::skip(
            "thread-sanitizer",
            "ThreadSanitizer does not know this address space",
        );
        return None;
    }
    let races = said.contains("ThreadSanitizer: data race");
    assert_eq!(output.status.code(), Some(if races { 66 } else { 0 }), "{arguments}: {said}");
    Some(races)
}

#[test]
fn what_is_written_before_a_barrier_is_read_after_it_without_a_race() {
    if !has("gcc") {
        return;
    }
    for arguments in ["2 500 20", "3 300 20", "4 100 20"] {
        assert_ne!(races(0, arguments), Some(true), "{arguments}");
    }
    for broken in 1..=3 {
        assert_ne!(races(broken, "3 300 20"), Some(false), "{broken}");
    }
}
