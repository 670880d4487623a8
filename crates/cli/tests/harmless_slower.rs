//! Never slower (promise P7): what of it can be shown on a real machine.
//!
//! That balancing is paused to be measured, and begins again, is tested here. That the guard stands
//! down is not: it does so where five comparisons agree that balancing harms, and whether they do
//! on this machine depends on what else it runs at that time. It is tested in virtual time, with
//! the same engine and a program that balancing does harm, masks given back and all
//! (`sim/tests/behaviour.rs`, `the_guard_ends_what_harms`); what the user is then told is tested in
//! `evenly-report`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;

#[test]
fn balancing_pauses_to_measure_its_effect() {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let program = Running::start(&[&workload("churn"), "--workers", "3", "--duration-s", "300"]);
    let pid = program.pid().to_string();
    let options = ["--policy", "juggle", "--period", "10ms", "--budget", "50", "--threads", "3"];
    let args = [&["attach"], &options[..], &[&pid]].concat();
    let mut evenly = state.start(&args);
    wait_until_narrowed(program.pid(), &whole, 3);
    // The program runs as it would without evenly, for a moment.
    wait_until("a pause", || narrowed(program.pid(), &whole) == 0);
    wait_until_narrowed(program.pid(), &whole, 3);
    evenly.kill(Signal::TERM);
    assert_eq!(evenly.wait().code(), Some(0), "{}", evenly.stderr());
    let json = evenly.report();
    schema::valid(&json);
    assert!(json["measured"]["pairs"].as_u64() >= Some(1), "{json:#}");
}
