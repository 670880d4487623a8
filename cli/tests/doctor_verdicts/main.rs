//! `evenly doctor` on real programs, each a test of its own: those with a cause that it has to find, and
//! healthy ones, for which it must report none.
//!
//! No verdict depends on how fast the machine is. Some depend on other programs that use its CPUs: the doctor
//! reports these rightly, so their findings are left out. Because each test diagnoses the whole machine, one
//! runs after the other, which is why they have a harness of their own. They run with `--include-ignored` only
//! (`./dev test --all`): they need MPI, clang and control groups.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../common/mod.rs"]
mod common;
mod programs;

use common::diagnosis::{diagnose, kinds, limited};
use common::{State, mpi, workload};
use evenly_linux::affinity;
use evenly_linux::samples::Samples;
use evenly_model::Tid;
use evenly_testing::groups::Group;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use programs::Program;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// Causes that other programs, or the host of a virtual machine, can add to any program.
const OF_THE_MACHINE: [&str; 2] = ["neighbour", "slow_cpu"];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let trial = |p: Program| {
        Trial::ignorable_test(p.name.clone(), move || check(&p)).with_ignored_flag(true)
    };
    let trials = programs::all().into_iter().map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Diagnoses the program, and once more as its line to paste starts it, where that has to help.
fn check(p: &Program) -> Result<Completion, Failed> {
    // Programs are restricted to CPU 0 of two.
    if !affinity::get(Tid(0)).is_ok_and(|cpus| cpus.to_string() == "0-1") {
        evenly_testing::skip("exactly-two-cpus", "not exactly the CPUs 0 and 1");
        return Ok(Completion::ignored());
    }
    if p.shown_by_samples
        && let Err(e) = Samples::new()
    {
        evenly_testing::skip("perf-events", e);
        return Ok(Completion::ignored());
    }
    let Some(started) = Started::new(p) else { return Ok(Completion::ignored()) };
    let state = State::new();
    let (diagnosis, said) = started.diagnose(&state, &started.command);
    let found = kinds(&diagnosis);
    let own: Vec<&str> =
        found.iter().map(String::as_str).filter(|k| !OF_THE_MACHINE.contains(k)).collect();
    let disturbed = own.len() < found.len();
    if disturbed && own.is_empty() && p.shown_by_idle_cpus {
        // Other programs had the idle CPUs that show the cause: this run says nothing.
        return Ok(Completion::ignored());
    }
    // The cause is the first finding, and the only one unless other programs had the CPUs: one cause is not
    // reported twice.
    if own.first().copied() != p.finding || (own.len() > 1 && !disturbed) {
        return Err(format!("expected {:?}, found {own:?}:\n{said}", p.finding).into());
    }
    let Some(kind) = p.finding.filter(|_| p.pasted) else { return Ok(Completion::Completed) };
    let all = diagnosis["findings"].as_array().unwrap();
    let finding = all.iter().find(|f| f["kind"] == kind).unwrap();
    let line = finding["paste"].as_str().unwrap();
    let (after, said) = started.diagnose(&state, &["sh", "-c", line].map(str::to_owned));
    // A little may remain: threads of libomp that are to sleep spin for a moment first.
    let cost = |f: &serde_json::Value| f["cost"].as_f64();
    let remains = after["findings"].as_array().unwrap().iter().find(|f| f["kind"] == kind);
    let helps = match remains.map(cost) {
        None => true,
        Some(after) => after.zip(cost(finding)).is_some_and(|(after, before)| after < before / 2.0),
    };
    if !helps || after["threads"] == 0 {
        return Err(format!("{kind} remains with {line}:\n{said}").into());
    }
    Ok(Completion::Completed)
}

/// A program that can be started here.
struct Started {
    command: Vec<String>,
    environment: Vec<(String, String)>,
    /// Removed when the test ends.
    _group: Option<Group>,
}

impl Started {
    /// None, a skip, where the machine lacks what the program needs.
    fn new(p: &Program) -> Option<Self> {
        let mut words = Vec::new();
        for word in p.command.split_whitespace() {
            words.push(match word.strip_prefix('@') {
                Some(name) => built(name, p)?,
                None => word.to_owned(),
            });
        }
        let mut command = if p.is_script { to_shell(&words.join(" "), &[]) } else { words };
        if let Some((mpi, ranks)) = p.ranks {
            let launcher = [mpi.tool("mpirun"), "-n".to_owned(), ranks.to_string()];
            command.splice(0..0, launcher);
        }
        let mut group = None;
        if let Some(quota_us) = p.quota_us {
            let (made, script) = limited("doctor", quota_us)?;
            command = to_shell(&script, &command);
            group = Some(made);
        }
        let launching = if p.ranks.is_some() { &mpi::ENVIRONMENT[..] } else { &[] };
        let pairs = launching.iter().chain(&p.environment);
        let mut environment: Vec<(String, String)> =
            pairs.map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        environment.push(("SCRATCH".to_owned(), scratch()));
        Some(Self { command, environment, _group: group })
    }

    fn diagnose(&self, state: &State, command: &[String]) -> (serde_json::Value, String) {
        let result = diagnose(state, command, &self.environment);
        let _ = fs::remove_file(scratch());
        result
    }
}

/// A script, and the words that it has as arguments.
fn to_shell(script: &str, words: &[String]) -> Vec<String> {
    let shell = ["sh", "-c", script, "sh"].map(str::to_owned);
    shell.iter().chain(words).cloned().collect()
}

/// The file of a workload. None, a skip, where it cannot be built.
fn built(name: &str, p: &Program) -> Option<String> {
    if let Some((mpi, _)) = p.ranks {
        return mpi.is_here().then(|| mpi.program(name));
    }
    let file = workload(name);
    if !evenly_testing::is_built(&file) {
        return None;
    }
    Some(file)
}

/// A file to which programs write, on a disk.
fn scratch() -> String {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    dir.join(format!("doctor-{}", std::process::id())).display().to_string()
}
