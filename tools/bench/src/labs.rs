//! The benchmarks in emulated machines: the same arms, interleaved in the same way, run in a guest.
//!
//! Invariant: before and after the runs of a guest its CPUs are checked to be equally fast. Where
//! they were not, the figures are shown, and called void.

pub(crate) mod loops;

use crate::figures::Report;
use crate::host::HostRecord;
use crate::measure::{MAKESPAN, Note, Noting, Site, note, outcome};
use crate::show::{interrupts, print, tell};
use crate::suite::Benchmark;
use crate::tools::{Tools, parse_calibration};
use anyhow::Context;
use evenly_compare::{Arm, Executor, RunError, RunOutcome};
use evenly_lab::{Include, Lab, LabOptions, shell_quote};
use evenly_linux::affinity;
use evenly_linux::usage::Load;
use evenly_model::Tid;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest time for one run in a guest.
const LIMIT: Duration = Duration::from_secs(300);
/// Length of the run that speed is taken from, in what the program takes for milliseconds.
const CALIBRATION_MS: u64 = 300;
/// Turns of the check that CPUs are equally fast, 50 s: on a shared host fewer say little.
const TURNS: u32 = 25;
/// As often again where they say too little.
const ROUNDS: u32 = 4;
/// Machines that are tried before runs are made where CPUs are not shown to be equal.
const BOOTS: u32 = 3;
/// Largest deviation of a CPU's speed.
const EQUAL: f64 = 0.05;
/// Stands between a program's output and evenly's report, which come back together.
const MARK: &str = "----evenly-report----";

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    /// Programs and policies.
    pub(crate) benchmarks: &'a [Benchmark],
    /// Parallel loops beside a load.
    pub(crate) loops: &'a [loops::Case],
    /// The kernel of the guests.
    pub(crate) kernel: &'a str,
    /// Whether it is the short form.
    pub(crate) quick: bool,
    /// Seed of orders and intervals.
    pub(crate) seed: u64,
}

impl Asked<'_> {
    /// A machine of this kind, in which there are these programs.
    fn machine(&self, [cpus, numa]: [u32; 2], programs: &[(PathBuf, &str)]) -> LabOptions {
        let include = |(host, name): &(PathBuf, &str)| Include {
            host: host.clone(),
            guest: format!("/usr/bin/{name}"),
        };
        LabOptions {
            cpus,
            numa,
            kernel: self.kernel.to_owned(),
            include: programs.iter().map(include).collect(),
            ..LabOptions::default()
        }
    }
}

/// Runs the benchmarks, in one guest for each machine that they need.
///
/// # Errors
/// Where a guest does not boot or breaks.
pub(crate) fn labs(tools: &Tools, asked: &Asked<'_>, json: Option<&Path>) -> anyhow::Result<()> {
    let interrupted = interrupts()?;
    let allowed = affinity::get(Tid(0)).context("cannot read the affinity mask")?;
    let mut report = Report::new(HostRecord::this(&allowed), asked.quick, asked.seed);
    let machines: BTreeSet<[u32; 2]> = asked.benchmarks.iter().filter_map(|b| b.lab).collect();
    for machine in machines {
        guest(tools, machine, asked, &interrupted, &mut report)?;
    }
    if !asked.loops.is_empty() && !report.interrupted {
        loops::guest(tools, asked, &interrupted, &mut report)?;
    }
    report.finish(json)
}

/// A machine with equally fast CPUs, and why it is none where no boot gave one.
fn boot(options: &LabOptions, interrupted: &AtomicBool) -> anyhow::Result<(Lab, Option<String>)> {
    let boot = || -> anyhow::Result<(Lab, Option<String>)> {
        let LabOptions { cpus, numa, .. } = *options;
        tell(&format!("evenly-bench: booting a machine with {cpus} CPUs and {numa} nodes"));
        let mut lab = Lab::boot(options.clone())?;
        print(&format!("\nemulated machine: {cpus} CPUs, {numa} nodes, {}\n", share(&lab)))?;
        let void = equal_speed(&mut lab, "before")?;
        Ok((lab, void))
    };
    let (mut lab, mut void) = boot()?;
    for _ in 1..BOOTS {
        if void.is_none() || interrupted.load(Ordering::Relaxed) {
            break;
        }
        drop(lab);
        (lab, void) = boot()?;
    }
    Ok((lab, void))
}

fn guest(
    tools: &Tools,
    machine: [u32; 2],
    asked: &Asked<'_>,
    interrupted: &Arc<AtomicBool>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let programs = [(tools.evenly.clone(), "evenly"), (tools.path("spmd")?, "spmd")];
    let (mut lab, mut void) = boot(&asked.machine(machine, &programs), interrupted)?;
    let iterations_per_ms = calibrate(&mut lab)?;
    let mut executor = GuestExecutor { lab, interrupted: interrupted.clone(), notes: Vec::new() };
    let first = report.benchmarks.len();
    for benchmark in asked.benchmarks.iter().filter(|b| b.lab == Some(machine)) {
        let mask = format!("{:x}", (1_u64 << benchmark.cpus) - 1);
        let site = Site::elsewhere(
            Tools::at("/usr/bin/evenly", "/usr/bin"),
            iterations_per_ms,
            vec!["taskset".into(), mask.into()],
            asked.seed,
        );
        report.run(benchmark, &site, &mut executor)?;
    }
    void = equal_speed(&mut executor.lab, "after")?.or(void);
    if let Some(why) = void {
        say_void(&why)?;
        for figures in &mut report.benchmarks[first..] {
            figures.void.get_or_insert_with(|| why.clone());
        }
    }
    Ok(())
}

fn say_void(why: &str) -> anyhow::Result<()> {
    print(&format!("  VOID: the figures of this machine do not count: {why}\n"))
}

/// Iterations of spmd in a millisecond of a guest's CPU. Its own calibration takes the best of short
/// stretches, which fit between two pauses of a CPU that is held to a quota; what counts is the mean
/// over many.
fn calibrate(lab: &mut Lab) -> anyhow::Result<u64> {
    let first = lab.run("taskset 1 spmd --calibrate", LIMIT)?.text();
    let iterations = parse_calibration(&first)
        .context("spmd --calibrate failed in the guest")?
        .saturating_mul(CALIBRATION_MS);
    let run = format!("taskset 1 spmd --threads 1 --phases 1 --iters {iterations}");
    let output = lab.run(&run, LIMIT)?.text();
    serde_json::from_str::<serde_json::Value>(&output)
        .ok()
        .and_then(|v| v[MAKESPAN].as_f64())
        .filter(|seconds| *seconds > 0.0)
        .map(|seconds| (iterations as f64 / (seconds * 1e3)).max(1.0) as u64)
        .with_context(|| format!("{run} in the guest printed no {MAKESPAN}: {output}"))
}

fn share(lab: &Lab) -> String {
    lab.share()
        .map_or_else(|| "CPUs not capped".to_owned(), |s| format!("each CPU {s:.3} of one here"))
}

/// Checks and prints: why figures are void, if they are.
fn equal_speed(lab: &mut Lab, when: &str) -> anyhow::Result<Option<String>> {
    let check = lab.equal_speed(TURNS, ROUNDS, EQUAL)?;
    print(&format!("  equal-speed check {when} the runs: {check}\n"))?;
    Ok((!check.ok()).then(|| format!("the equal-speed check {when} the runs failed: {check}")))
}

/// Runs in a guest.
struct GuestExecutor {
    lab: Lab,
    interrupted: Arc<AtomicBool>,
    notes: Vec<Note>,
}

impl Executor for GuestExecutor {
    fn run(&mut self, arm: &Arm, _index: usize) -> Result<RunOutcome, RunError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
        let broken = |e: evenly_lab::LabError| RunError::Wait(io::Error::other(e.to_string()));
        let output = self.lab.run(&command(arm), LIMIT).map_err(broken)?;
        if output.timed_out {
            return Err(RunError::TimedOut { limit: LIMIT, killed: true });
        }
        let (stdout, report) = split(&output.stdout);
        let seconds = output.elapsed.as_secs_f64();
        let mut outcome = outcome(seconds, output.status, stdout, &output.stderr)?;
        if let Some(path) = arm.report.as_ref().filter(|_| output.status == 0) {
            let report = serde_json::from_slice(report)
                .map_err(|e| RunError::Report { path: path.clone(), reason: e.to_string() })?;
            outcome.report = Some(report);
        }
        self.notes.push(note(arm, &outcome, 0.0, None));
        Ok(outcome)
    }
}

impl Noting for GuestExecutor {
    fn begin(&mut self, _benchmark: &Benchmark, _tools: &Tools) {
        self.notes.clear();
    }

    fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    fn last_load(&self) -> Option<Load> {
        self.notes.last()?.load
    }
}

/// The arm as a line for the guest's shell; what it reports is printed after its output.
fn command(arm: &Arm) -> String {
    let quoted = |w: &OsString| shell_quote(&w.to_string_lossy());
    let line = arm.argv.iter().map(quoted).collect::<Vec<_>>().join(" ");
    match &arm.report {
        None => line,
        Some(path) => {
            let path = shell_quote(&path.to_string_lossy());
            format!("rm -f {path}; {line} && echo {MARK} && cat {path}")
        }
    }
}

/// Output of the program, and evenly's report behind the mark.
fn split(stdout: &[u8]) -> (&[u8], &[u8]) {
    let mark = MARK.as_bytes();
    match stdout.windows(mark.len()).position(|w| w == mark) {
        Some(at) => (&stdout[..at], &stdout[at + mark.len()..]),
        None => (stdout, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_report_come_apart() {
        let both = format!("{{\"{MAKESPAN}\":1.5}}\n{MARK}\n{{\"seconds\":2}}\n");
        let (out, report) = split(both.as_bytes());
        assert_eq!(out, b"{\"makespan_s\":1.5}\n");
        assert_eq!(serde_json::from_slice::<serde_json::Value>(report).unwrap()["seconds"], 2);
        assert_eq!(split(b"plain"), (&b"plain"[..], &b""[..]));
    }

    #[test]
    fn words_are_quoted_for_the_guest() {
        let mut arm = Arm::new("x", ["a", "it's"]);
        assert_eq!(command(&arm), r"'a' 'it'\''s'");
        arm.report = Some("/tmp/x.json".into());
        assert!(command(&arm).starts_with("rm -f '/tmp/x.json'; 'a'"));
    }
}
