//! The guests in which the tests run: each kind of machine is booted once, for all tests that follow on it.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use evenly_lab::{GuestFile, Include, Lab, LabError, LabOptions, Output, Share};
use libtest_mimic::{Completion, Failed};

use crate::{builds, doctor, machine, shared};

/// No command needs a tenth of this, unless the host stands still. Longer than what runs there waits for something, so that it
/// can say what never came.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);
const FUNCTIONS: &[u8] = include_bytes!("../../guest/test-functions");
const MASKS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/masks"));

/// A kind of machine, with what its tests need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuestKind {
    /// Eight CPUs in two nodes.
    Eight,
    /// The same with the test programs of other crates.
    EightWithTests,
    /// Twelve CPUs in two nodes.
    Twelve,
    /// Two nodes with a CPU each.
    Two,
    /// Four CPUs in two nodes, for the doctor.
    Four,
}

impl GuestKind {
    fn options(self) -> LabOptions {
        match self {
            GuestKind::Eight => {
                let mut options = with_evenly(8, vec![machine::this_test()]);
                options.files.push(machine::odd_file());
                options
            }
            // They are right or wrong, and mostly start one process after the other: no CPU need be like the others.
            GuestKind::EightWithTests => {
                LabOptions { share: Share::Uncapped, ..with_evenly(8, shared::programs()) }
            }
            GuestKind::Twelve => with_evenly(12, Vec::new()),
            GuestKind::Two => with_evenly(2, Vec::new()),
            GuestKind::Four => doctor::options(),
        }
    }

    /// What its tests rely on.
    fn prepare(self) -> &'static str {
        match self {
            // Users without privileges have files, too.
            GuestKind::EightWithTests => "chmod 1777 /tmp",
            // The kernel moves memory, too, where it sees which CPU reads it.
            GuestKind::Two => "echo 0 >/proc/sys/kernel/numa_balancing",
            GuestKind::Eight | GuestKind::Twelve | GuestKind::Four => ":",
        }
    }
}

/// The guest that runs. Two at a time would disturb each other.
static GUEST: Mutex<Option<(GuestKind, Lab)>> = Mutex::new(None);
/// Why there is no guest here.
static UNAVAILABLE: OnceLock<String> = OnceLock::new();

pub(crate) type Outcome = Result<Completion, Failed>;

/// Runs a test in a guest of this kind. A guest in which a test has failed serves no other one.
pub(crate) fn with(machine: GuestKind, test: impl FnOnce(&mut Lab)) -> Outcome {
    let running = GUEST.lock().unwrap_or_else(PoisonError::into_inner).take();
    let mut lab = match running {
        Some((kind, lab)) if kind == machine => lab,
        other => {
            if let Some((_, lab)) = other {
                lab.shutdown()?;
            }
            match boot(machine) {
                Some(lab) => lab,
                None => return Ok(Completion::ignored()),
            }
        }
    };
    test(&mut lab);
    *GUEST.lock().unwrap_or_else(PoisonError::into_inner) = Some((machine, lab));
    Ok(Completion::Completed)
}

/// Ends the guest that runs, if any.
pub(crate) fn end() -> Result<(), LabError> {
    let running = GUEST.lock().unwrap_or_else(PoisonError::into_inner).take();
    running.map_or(Ok(()), |(_, lab)| lab.shutdown())
}

/// None, a skip, where there can be no guest.
fn boot(machine: GuestKind) -> Option<Lab> {
    if let Some(why) = UNAVAILABLE.get() {
        evenly_testing::skip("lab", why);
        return None;
    }
    let start = Instant::now();
    match Lab::boot(machine.options()) {
        Ok(mut lab) => {
            eprintln!("{machine:?}: booted in {:.1} s", start.elapsed().as_secs_f64());
            assert_eq!(run(&mut lab, machine.prepare()).status, 0);
            Some(lab)
        }
        Err(error) if error.is_unavailable() => {
            let why = UNAVAILABLE.get_or_init(|| error.to_string());
            evenly_testing::skip("lab", why);
            None
        }
        Err(error) => panic!("{machine:?} did not boot: {error}"),
    }
}

/// Runs a command to its end.
pub(crate) fn run(lab: &mut Lab, command: &str) -> Output {
    let output = lab.run(command, PATIENCE).unwrap();
    assert!(!output.timed_out, "no end within {PATIENCE:?}: {command}");
    output
}

/// What a command printed, which succeeds.
pub(crate) fn text(lab: &mut Lab, command: &str) -> String {
    let output = run(lab, command);
    assert_eq!(output.status, 0, "{command}: {}", String::from_utf8_lossy(&output.stderr));
    output.text()
}

/// So many CPUs in two nodes with evenly, the workloads, and what scripts of tests use.
fn with_evenly(cpus: u32, more: Vec<Include>) -> LabOptions {
    let workloads = builds::workloads("workloads-static", true);
    let program = |host: PathBuf, name: &str| Include { host, guest: format!("/usr/bin/{name}") };
    let file = |guest: &str, content: &[u8]| GuestFile {
        guest: guest.into(),
        content: content.into(),
        mode: 0o755,
    };
    let mut include = more;
    include.push(program(builds::evenly(), "evenly"));
    include.extend(["churn", "odd", "spmd"].map(|name| program(workloads.join(name), name)));
    include.push(program(workloads.join("jacobi-gomp"), "jacobi"));
    let files = vec![file("/usr/bin/masks", MASKS), file("/lab/test-functions", FUNCTIONS)];
    LabOptions { cpus, include, files, ..LabOptions::default() }
}
