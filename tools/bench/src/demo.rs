//! The demo: a program whose threads do not divide evenly among the CPUs, one beside which somebody computes, and one whose
//! threads spin, each under the kernel and under evenly, and a picture of who ran where.

mod picture;

use crate::figures::{Figures, Report, VOID};
use crate::host::HostRecord;
use crate::measure::{HostExecutor, Note, Noting, Site};
use crate::show::{interrupts, print, table, tell, tell_above};
use crate::suite::{Benchmark, DEFAULT, Habit, Neighbour, Program, Way};
use crate::tools::Tools;
use anyhow::Context;
use evenly_compare::{Arm, Executor, RunError, RunOutcome};
use evenly_linux::usage::{Load, Usage};
use evenly_model::CpuSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A row of the demo.
struct Row {
    /// What is shown, in words.
    what: &'static str,
    benchmark: Benchmark,
    /// Phases that its picture shows, where it has one.
    drawn: Option<usize>,
}

/// All rows; with four rounds and the picture they take about a minute.
fn rows(runs: usize) -> [Row; 3] {
    let row = |name: &str, threads, program, neighbours, ways: &[Way]| Benchmark {
        name: name.to_owned(),
        threads,
        cpus: 2,
        program,
        neighbours,
        ways: ways.to_vec(),
        runs,
        lab: None,
    };
    let omp = |phases, phase_ms| Program::OmpSpmd { runtime: "gomp", phases, phase_ms };
    let computes = Neighbour { cpu: Some(1), nice: 0, habit: Habit::Always };
    [
        Row {
            what: "3 threads on 2 CPUs, OpenMP, 1 ms of work between two barriers",
            benchmark: row("phases", 3, omp(1_200, 1.0), Vec::new(), THREE),
            drawn: Some(10),
        },
        Row {
            what: "2 threads on 2 CPUs, on one of which another program computes, 0.5 ms of work between two \
                barriers",
            benchmark: row("neighbour", 2, omp(1_600, 0.5), vec![computes], REST),
            drawn: None,
        },
        Row {
            what: "3 threads on 2 CPUs that spin at a barrier of their own, 0.2 ms of work between two barriers",
            benchmark: row(
                "spins",
                3,
                Program::Spmd { phases: 800, phase_ms: 0.2, barrier: "spin" },
                Vec::new(),
                REST,
            ),
            drawn: None,
        },
    ]
}

const THREE: &[Way] = &[Way::Alone, Way::Full, Way::Kernel, DEFAULT];
const REST: &[Way] = &[Way::Alone, Way::Kernel, DEFAULT];

/// How it is run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// How many runs each arm has.
    pub(crate) runs: usize,
    /// Seed of their order.
    pub(crate) seed: u64,
    /// How long it waits for others to leave the CPUs.
    pub(crate) patience: Duration,
    /// Whether it runs where others use the CPUs all the same.
    pub(crate) despite_load: bool,
}

/// Runs it; files go to `out`.
///
/// # Errors
/// Where a run fails or a file cannot be written, and where others use the CPUs, so that figures
/// would be void, unless that is asked for.
pub(crate) fn demo(
    tools: &Tools,
    cpus: &CpuSet,
    options: Options,
    out: &Path,
) -> anyhow::Result<()> {
    let Options { runs, seed, .. } = options;
    std::fs::create_dir_all(out)
        .with_context(|| format!("cannot make the directory {}", out.display()))?;
    wait_for_quiet(cpus, options, &mut || look(cpus), &mut tell)?;
    tell(&format!(
        "evenly-bench: three programs under Linux alone and under evenly, and what their work takes alone; \
         {runs} runs of each in random order, about a minute"
    ));
    let site = Site::host(tools, seed)?;
    let mut executor = HostExecutor::new(cpus.clone(), interrupts()?);
    let mut report = Report::new(HostRecord::this(cpus), true, seed);
    for row in rows(runs) {
        let made = report.benchmarks.len();
        let planned = runs * row.benchmark.ways.len();
        let mut say = tell_above;
        let mut watched = Watched::new(&mut executor, planned, options.despite_load, &mut say);
        let text = |figures: &Figures| text(row.what, figures);
        report.run_shown(&row.benchmark, &site, &mut watched, text)?;
        if report.interrupted || report.benchmarks.len() == made {
            break;
        }
        if let Some(phases) = row.drawn {
            let file = draw(&row, phases, &site, cpus, &mut executor, out)?;
            print(&format!("  who ran where: {}\n", file.display()))?;
        }
    }
    report.finish(Some(&out.join("demo.json")))?;
    let void = |figures: &Figures| figures.void.clone();
    match report.benchmarks.iter().find_map(void).filter(|_| !options.despite_load) {
        Some(why) => anyhow::bail!("the demo shows nothing: {why}"),
        None => Ok(()),
    }
}

/// What came out of a row.
fn text(what: &str, figures: &Figures) -> String {
    let head = ["", "seconds", "% of the limit", "times as fast"].map(str::to_owned).to_vec();
    let mut rows = vec![head];
    for arm in figures.arms.iter().filter(|arm| !arm.reference) {
        let is_kernel = arm.arm == Way::Kernel.name();
        let name = if is_kernel { "Linux alone" } else { arm.arm.as_str() };
        let cell = |m: Option<crate::measured::Measured>, decimals| {
            m.map_or_else(|| "-".to_owned(), |m| m.text(decimals))
        };
        let speedup = arm.speedup_vs_kernel.filter(|_| !is_kernel);
        rows.push(vec![
            name.to_owned(),
            cell(arm.makespan_s, 2),
            cell(arm.limit_percent, 0),
            cell(speedup, 2),
        ]);
    }
    let mut text = format!("\n{what}\n{}", table(&rows));
    text.push_str("  limit: no program can be faster, as the CPUs are never idle then\n");
    if let Some(why) = &figures.void {
        text.push_str(&format!("  VOID: {why}\n"));
    }
    text
}

/// Runs the program of a row once under the kernel and once under evenly, with a trace, and draws them.
fn draw(
    row: &Row,
    phases: usize,
    site: &Site,
    cpus: &CpuSet,
    executor: &mut HostExecutor,
    out: &Path,
) -> anyhow::Result<PathBuf> {
    let trace = site.scratch.join("trace.jsonl");
    let mut panels = Vec::new();
    for (label, way) in [("Linux alone", Way::Kernel), ("evenly", DEFAULT)] {
        let mut arm = site.arm(&row.benchmark, way);
        arm.argv.extend([OsString::from("--trace"), trace.clone().into()]);
        let outcome = executor.run(&arm, 0)?;
        anyhow::ensure!(
            outcome.status.success(),
            "the run for the picture ({label}) {}; the end of its standard error: {}",
            outcome.status,
            outcome.stderr_tail
        );
        let text = std::fs::read_to_string(&trace)
            .with_context(|| format!("cannot read {}", trace.display()))?;
        let shown = picture::typical(&picture::pieces(&text)?, phases);
        panels.push((label, picture::recording(&shown, cpus)));
    }
    let path = out.join("who-ran-where.svg");
    std::fs::write(&path, picture::draw(row.what, &panels))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// For how long is looked whether others use the CPUs.
const LOOK: Duration = Duration::from_secs(1);

/// What the CPUs are used for while this sleeps.
fn look(cpus: &CpuSet) -> anyhow::Result<Load> {
    let usage = || Usage::now(cpus).context("cannot read the load");
    let before = usage()?;
    std::thread::sleep(LOOK);
    Ok(usage()?.since(&before, cpus.len()))
}

/// The part of the CPUs that others take.
fn taken(load: &Load) -> f64 {
    load.others + load.stolen
}

/// Begins where others leave the CPUs to the demo: a minute of runs whose figures are void is worth
/// nothing, and that is better known before it. It gives up in the end.
fn wait_for_quiet(
    cpus: &CpuSet,
    options: Options,
    look: &mut dyn FnMut() -> anyhow::Result<Load>,
    tell: &mut dyn FnMut(&str),
) -> anyhow::Result<()> {
    let mut part = taken(&look()?);
    if part <= VOID {
        return Ok(());
    }
    let most = 100.0 * VOID;
    let others = |part: f64| format!("others use {:.0} % of CPUs {cpus}", 100.0 * part);
    if options.despite_load {
        tell(&format!(
            "demo: {}: above {most:.0} % the figures are void; going on (--despite-load)",
            others(part)
        ));
        return Ok(());
    }
    tell(&format!(
        "demo: {} at this moment, and above {most:.0} % the figures would be void: waiting up to {:.0} s \
         for them to end (top shows them; --despite-load does not wait)",
        others(part),
        options.patience.as_secs_f64()
    ));
    let looks = options.patience.as_secs_f64() / LOOK.as_secs_f64();
    for _ in 0..looks.ceil() as u64 {
        part = taken(&look()?);
        if part <= VOID {
            tell("demo: they have ended; it begins");
            return Ok(());
        }
    }
    anyhow::bail!(
        "{} still, so the figures would be void, and nothing was run; end them (top shows them), name \
         other CPUs with --cpus, wait longer with --wait-s, or see void figures with --despite-load",
        others(part)
    )
}

/// An executor that looks after each run whether the figures can still be of use, and ends the runs
/// where they cannot.
struct Watched<'a, E> {
    inner: &'a mut E,
    planned: usize,
    heavy: usize,
    despite_load: bool,
    tell: &'a mut dyn FnMut(&str),
}

impl<'a, E: Noting> Watched<'a, E> {
    fn new(
        inner: &'a mut E,
        planned: usize,
        despite_load: bool,
        tell: &'a mut dyn FnMut(&str),
    ) -> Self {
        Self { inner, planned, heavy: 0, despite_load, tell }
    }

    /// Whether the median run will be one of which others took too much, whatever comes.
    fn is_void(&self) -> bool {
        2 * self.heavy > self.planned && !self.despite_load
    }

    fn note(&mut self, part: f64) {
        self.heavy += 1;
        let (heavy, planned, most) = (self.heavy, self.planned, 100.0 * VOID);
        if self.is_void() {
            (self.tell)(&format!(
                "demo: others took more than {most:.0} % of the CPUs in {heavy} of {planned} runs: the \
                 figures are void whatever comes, so it ends here"
            ));
        } else if heavy == 1 && !self.despite_load {
            (self.tell)(&format!(
                "demo: others took {:.0} % of the CPUs in this run; it goes on, and ends when that was \
                 more than {most:.0} % in more than half of the {planned} runs, as the figures are void \
                 then",
                100.0 * part
            ));
        }
    }
}

impl<E: Noting> Executor for Watched<'_, E> {
    fn run(&mut self, arm: &Arm, index: usize) -> Result<RunOutcome, RunError> {
        if self.is_void() {
            return Err(RunError::Interrupted);
        }
        let outcome = self.inner.run(arm, index)?;
        if let Some(part) = self.inner.last_load().map(|l| taken(&l)).filter(|part| *part > VOID) {
            self.note(part);
        }
        Ok(outcome)
    }
}

impl<E: Noting> Noting for Watched<'_, E> {
    fn begin(&mut self, benchmark: &Benchmark, tools: &Tools) {
        self.inner.begin(benchmark, tools);
    }

    fn notes(&mut self) -> Vec<Note> {
        self.inner.notes()
    }

    fn last_load(&self) -> Option<Load> {
        self.inner.last_load()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::scripted;

    #[test]
    fn a_row_has_what_linux_and_evenly_took_beside_the_limit() {
        let [row, ..] = rows(3);
        let text = text(row.what, &scripted(&row.benchmark, None));
        let lines: Vec<&str> = text.lines().filter(|l| !l.is_empty()).collect();
        assert_eq!(lines[0], row.what);
        let cells = |line: &str| -> Vec<String> {
            line.split("  ").map(str::trim).filter(|c| !c.is_empty()).map(str::to_owned).collect()
        };
        assert_eq!(cells(lines[1]), ["seconds", "% of the limit", "times as fast"]);
        let (kernel, evenly) = (cells(lines[2]), cells(lines[3]));
        assert_eq!(kernel, ["Linux alone", "3.50 [3.50, 3.50]", "86 [86, 86]", "-"], "{text}");
        let expected = ["evenly", "3.10 [3.10, 3.10]", "97 [97, 97]", "1.13 [1.13, 1.13]"];
        assert_eq!(evenly, expected, "{text}");
        assert_eq!(lines.len(), 5, "{text}");
    }

    fn load(others: f64, stolen: f64) -> Load {
        Load { elapsed_s: 1.0, own_s: 0.0, others, stolen }
    }

    /// Whether it begins after these looks, and what is said.
    fn waited(loads: &[Load], patience_s: u64, despite_load: bool) -> (Result<(), String>, String) {
        let patience = Duration::from_secs(patience_s);
        let options = Options { runs: 4, seed: 1, patience, despite_load };
        let (mut loads, mut said) = (loads.iter(), String::new());
        let result = wait_for_quiet(
            &"0-1".parse().unwrap(),
            options,
            &mut || Ok(*loads.next().unwrap()),
            &mut |line| said += line,
        );
        (result.map_err(|e| e.to_string()), said)
    }

    #[test]
    fn it_waits_for_others_and_gives_up_in_the_end() {
        assert_eq!(waited(&[load(0.05, 0.05)], 30, false), (Ok(()), String::new()));
        let busy = load(0.2, 0.15);
        let (result, said) = waited(&[busy, busy, load(0.0, 0.0)], 30, false);
        assert!(said.contains("35 % of CPUs 0-1") && said.contains("up to 30 s"), "{said}");
        assert!(result.is_ok() && said.ends_with("it begins"), "{said}");
        let (result, _) = waited(&[busy; 4], 3, false);
        let why = result.unwrap_err();
        assert!(why.contains("35 % of CPUs 0-1 still") && why.contains("nothing was run"), "{why}");
        let (result, said) = waited(&[busy], 30, true);
        assert!(result.is_ok() && said.contains("are void; going on"), "{said}");
    }

    /// Runs that take no time, beside others that take these parts of the CPUs.
    struct Beside(Vec<f64>, usize);

    impl Executor for Beside {
        fn run(&mut self, _: &Arm, _: usize) -> Result<RunOutcome, RunError> {
            self.1 += 1;
            crate::measure::outcome(1.0, 0, b"{}", b"")
        }
    }

    impl Noting for Beside {
        fn begin(&mut self, _: &Benchmark, _: &Tools) {}

        fn notes(&mut self) -> Vec<Note> {
            Vec::new()
        }

        fn last_load(&self) -> Option<Load> {
            Some(load(self.0[self.1 - 1], 0.0))
        }
    }

    #[test]
    fn runs_end_as_soon_as_figures_must_be_void() {
        let run = |others: &[f64], despite_load| -> (usize, Vec<String>) {
            let (mut inner, mut said) = (Beside(others.to_vec(), 0), Vec::new());
            let mut tell = |line: &str| said.push(line.to_owned());
            let planned = others.len();
            let mut watched = Watched::new(&mut inner, planned, despite_load, &mut tell);
            let arm = Arm::new("kernel", ["x"]);
            let made = (0..planned).take_while(|i| watched.run(&arm, *i).is_ok()).count();
            (made, said)
        };
        assert_eq!(run(&[0.0, 0.05, 0.1, 0.0], false), (4, vec![]));
        let (made, said) = run(&[0.5, 0.0, 0.5, 0.0], false);
        assert_eq!((made, said.len()), (4, 1));
        assert!(said[0].contains("50 %") && said[0].contains("half of the 4 runs"), "{said:?}");
        let (made, said) = run(&[0.5, 0.5, 0.5, 0.0], false);
        assert_eq!((made, said.len()), (3, 2));
        assert!(said[1].contains("in 3 of 4 runs") && said[1].contains("ends here"), "{said:?}");
        assert_eq!(run(&[0.5, 0.5, 0.5, 0.5], true), (4, vec![]));
    }
}
