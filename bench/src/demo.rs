//! The demo: three threads on two CPUs, under static pinning, the kernel and evenly, and a picture
//! of who ran where.

use crate::figures::Report;
use crate::host::{Load, Machine, Usage};
use crate::measure::{HostExecutor, Site};
use crate::show::{interrupts, print, tell};
use crate::suite::{Benchmark, HYBRID, Program, Way};
use crate::tools::Tools;
use anyhow::Context;
use evenly_compare::{Arm, Executor};
use evenly_model::CpuSet;
use evenly_trace::{Recording, svg};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// With 1.5 s of work per thread, four rounds and the recorded runs take about a minute.
const PHASE_MS: u32 = 1_500;

/// The comparison of the demo.
fn benchmark(runs: usize) -> Benchmark {
    Benchmark {
        name: "demo".to_owned(),
        threads: 3,
        cpus: 2,
        program: Program::Spmd { phases: 1, phase_ms: PHASE_MS, barrier: "block" },
        neighbours: Vec::new(),
        ways: &[Way::Alone, Way::Full, Way::Static, Way::Kernel, HYBRID],
        runs,
        lab: None,
    }
}

/// Runs it; files go to `out`.
///
/// # Errors
/// Where a run fails or a file cannot be written.
pub(crate) fn demo(
    tools: &Tools,
    cpus: &CpuSet,
    runs: usize,
    seed: u64,
    out: &Path,
) -> anyhow::Result<()> {
    std::fs::create_dir_all(out)
        .with_context(|| format!("cannot make the directory {}", out.display()))?;
    let benchmark = benchmark(runs);
    tell(&format!(
        "evenly-bench: {}: the program with one thread, with two, and with three under static \
         pinning, the kernel alone, and evenly; {runs} runs of each in random order, about a minute",
        benchmark.what()
    ));
    if let Some(warning) = busy(&look(cpus)?, cpus) {
        tell(&warning);
    }
    let site = Site::host(tools, seed)?;
    let mut executor = HostExecutor::new(cpus.clone(), interrupts()?);
    let mut report = Report::new(Machine::this(cpus), true, seed);
    report.run(&benchmark, &site, &mut executor)?;
    if !report.interrupted && !report.benchmarks.is_empty() {
        let picture = picture(&benchmark, &site, &mut executor, out)?;
        print(&format!(
            "\n  e: what one thread takes alone. limit: no program of three such threads can be \
             faster on two CPUs.\n  static: two threads share a CPU to the end, so the third is done \
             early and its CPU idle.\n  who ran where: {}\n",
            picture.display()
        ))?;
    }
    report.finish(Some(&out.join("demo.json")))
}

/// For how long is looked whether others use the CPUs before anything is measured.
const LOOK: Duration = Duration::from_secs(1);
/// If others use more than this part of them, the figures will be poor, which is better known now
/// than in a minute.
const BUSY: f64 = 0.2;

/// What the CPUs are used for while this sleeps.
fn look(cpus: &CpuSet) -> anyhow::Result<Load> {
    let usage = || Usage::now(cpus).context("cannot read the load");
    let before = usage()?;
    std::thread::sleep(LOOK);
    Ok(usage()?.since(&before, cpus.len()))
}

fn busy(load: &Load, cpus: &CpuSet) -> Option<String> {
    let part = load.others + load.stolen;
    (part > BUSY).then(|| {
        format!(
            "demo: others use {:.0} % of CPUs {cpus} at this moment: the figures will not be worth \
             much; end what runs beside it (top shows it), or try again later",
            100.0 * part
        )
    })
}

/// Records one more run of each and draws them below each other.
fn picture(
    benchmark: &Benchmark,
    site: &Site,
    executor: &mut HostExecutor,
    out: &Path,
) -> anyhow::Result<PathBuf> {
    let shown =
        [("static pinning", "static"), ("the kernel alone", "observe"), ("evenly", HYBRID.name())];
    let mut recordings = Vec::new();
    for (label, policy) in shown {
        tell(&format!("demo: recording a run: {label}"));
        let file = out.join(format!("{policy}.evenly"));
        let mut argv: Vec<OsString> = vec![site.tools.evenly.clone().into(), "run".into()];
        argv.extend(["-q", "--policy", policy, "--record"].map(OsString::from));
        argv.extend([file.clone().into(), "--".into()]);
        argv.extend(benchmark.program.argv(&site.tools, benchmark.threads, site.iterations_per_ms));
        let outcome = executor.run(&Arm::new(label, argv), 0)?;
        anyhow::ensure!(
            outcome.status.success(),
            "the recorded run ({label}) {}; the end of its standard error: {}",
            outcome.status,
            outcome.stderr_tail
        );
        recordings.push((label, Recording::read(&file)?));
    }
    let all: Vec<(&str, &Recording)> = recordings.iter().map(|(l, r)| (*l, r)).collect();
    let options = svg::TimelineOptions {
        title: "Three threads on two CPUs: who ran where".to_owned(),
        ..svg::TimelineOptions::default()
    };
    let path = out.join("who-ran-where.svg");
    std::fs::write(&path, svg::timeline(&all, &options))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_told_at_once() {
        let cpus = "0-1".parse().unwrap();
        let load = |others, stolen| Load { elapsed_s: 1.0, own_s: 0.0, others, stolen };
        assert_eq!(busy(&load(0.1, 0.05), &cpus), None);
        let said = busy(&load(0.2, 0.15), &cpus).unwrap();
        assert!(said.contains("35 % of CPUs 0-1"), "{said}");
    }
}
