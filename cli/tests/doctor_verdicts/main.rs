//! `evenly doctor` on real programs: a table of ailing ones with their verdicts, and of healthy ones with
//! none. `cargo test -p evenly-cli --test doctor_verdicts -- --include-ignored --nocapture` prints it.
//!
//! Nothing here depends on how fast the machine is. Whether somebody else uses its CPUs does: what the
//! doctor says of that is right, and left out where a program is to be healthy.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../common/mod.rs"]
mod common;
mod programs;

use common::diagnosis::{kinds, limited};
use common::*;
use evenly_testing::groups::Group;
use programs::{ailing, healthy, scratch};
use std::fmt::Write as _;
use std::fs;

/// What other programs, and the host of a virtual machine, do to any program.
const OF_THE_MACHINE: [&str; 2] = ["neighbour", "slow_cpu"];

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn ailing_programs_have_their_verdicts_and_healthy_ones_none() {
    // Masks and pins are of CPU 0 among two.
    if whole().is_none_or(|cpus| cpus.to_string() != "0-1") {
        return evenly_testing::skip("exactly-two-cpus", "not exactly the CPUs 0 and 1");
    }
    let state = State::new();
    let (tight, ample) = (limited("doctor-tight", 10_000), limited("doctor-ample", 400_000));
    let script = |group: &Option<(Group, String)>| group.as_ref().map(|g| g.1.clone());
    let patients =
        ailing(script(&tight).as_deref()).into_iter().chain(healthy(script(&ample).as_deref()));
    let (mut table, mut wrong) = (String::new(), String::new());
    for p in patients {
        let (diagnosis, said) = p.see(&state);
        let found = kinds(&diagnosis);
        let own: Vec<&String> =
            found.iter().filter(|k| !OF_THE_MACHINE.contains(&k.as_str())).collect();
        let disturbed = own.len() < found.len();
        let taken = p.by_idle && own.is_empty() && disturbed;
        // What ails it is the first, and where nobody else had the CPUs the only one: one cause is not told twice.
        let first = own.first().map(|k| k.as_str()) == p.ails;
        let right = taken || first && (own.len() <= 1 || disturbed);
        let verdict = match own.as_slice() {
            [] if taken => String::from("- (others have the CPUs)"),
            [] => String::from("-"),
            own => format!("{own:?}"),
        };
        let _ = writeln!(table, "| {} | {} | {verdict} |", p.name, p.ails.unwrap_or("-"));
        if !right {
            let _ = writeln!(wrong, "{} is not {:?}:\n{said}", p.name, p.ails);
        }
        if let (Some(kind), true) = (p.ails, right && p.mended) {
            let all = diagnosis["findings"].as_array().unwrap();
            let finding = all.iter().find(|f| f["kind"] == kind).unwrap();
            let line = finding["paste"].as_str().unwrap();
            let (after, said) = p.pasted(line).see(&state);
            let gone = !kinds(&after).iter().any(|k| k == kind);
            let _ = writeln!(table, "| the same, pasted: {} | - | {:?} |", p.name, kinds(&after));
            if !gone || after["threads"] == 0 {
                let _ = writeln!(wrong, "{} is still so with {line}:\n{said}", p.name);
            }
        }
    }
    eprintln!("\n| program | ails | verdict |\n|---|---|---|\n{table}");
    assert!(wrong.is_empty(), "{wrong}");
    let _ = fs::remove_file(scratch());
}
