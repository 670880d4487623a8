//! The demo: three threads on two CPUs, under static pinning, the kernel and evenly, and pictures
//! of who ran where.

use crate::figures::{Report, VOID};
use crate::host::Machine;
use crate::measure::{HostExecutor, Note, Noting, Site};
use crate::show::{interrupts, print, tell, tell_above};
use crate::suite::{Benchmark, HYBRID, Program, Way};
use crate::tools::Tools;
use anyhow::Context;
use evenly_compare::{Arm, Executor, RunError, RunOutcome};
use evenly_linux::usage::{Load, Usage};
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
        program: ONE_PHASE.program,
        neighbours: Vec::new(),
        ways: &[Way::Alone, Way::Full, Way::Static, Way::Kernel, HYBRID],
        runs,
        lab: None,
    }
}

/// How it is run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Runs of each.
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
    let benchmark = benchmark(runs);
    wait_for_quiet(cpus, options, &mut || look(cpus), &mut tell)?;
    tell(&format!(
        "evenly-bench: {}: the program with one thread, with two, and with three under static \
         pinning, the kernel alone, and evenly; {runs} runs of each in random order, about a minute",
        benchmark.what()
    ));
    let site = Site::host(tools, seed)?;
    let mut executor = HostExecutor::new(cpus.clone(), interrupts()?);
    let mut report = Report::new(Machine::this(cpus), true, seed);
    let planned = runs * benchmark.ways.len();
    let mut say = tell_above;
    let mut watched = Watched::new(&mut executor, planned, options.despite_load, &mut say);
    report.run(&benchmark, &site, &mut watched)?;
    if !report.interrupted && !report.benchmarks.is_empty() {
        let one_phase = picture(&ONE_PHASE, benchmark.threads, &site, &mut executor, out)?;
        let spinning = picture(&SPINNING, benchmark.threads, &site, &mut executor, out)?;
        print(&legend(&one_phase, &spinning))?;
    }
    report.finish(Some(&out.join("demo.json")))?;
    match report.benchmarks.first().and_then(|b| b.void.as_ref()).filter(|_| !options.despite_load)
    {
        Some(why) => anyhow::bail!("the demo shows nothing: {why}"),
        None => Ok(()),
    }
}

/// What is to be known to read the table, and where the pictures are.
fn legend(one_phase: &Path, spinning: &Path) -> String {
    format!(
        "\n  e: what one thread takes alone. limit: no program of three such threads can be faster on \
         two CPUs.\n  static: two threads share a CPU to the end, so the third is done early and its \
         CPU idle.\n  who ran where: {}\n  with spinning barriers, kernel and evenly: {}\n",
        one_phase.display(),
        spinning.display()
    )
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

/// A picture of who ran where: one recorded run for each panel.
struct Picture {
    file: &'static str,
    title: &'static str,
    program: Program,
    /// The label of each panel, and the policy that it shows.
    panels: &'static [(&'static str, &'static str)],
}

/// The program of the table.
const ONE_PHASE: Picture = Picture {
    file: "who-ran-where",
    title: "Three threads on two CPUs: who ran where",
    program: Program::Spmd { phases: 1, phase_ms: PHASE_MS, barrier: "block" },
    panels: &[
        ("static pinning", "static"),
        ("the kernel alone", "observe"),
        ("evenly", HYBRID.name()),
    ],
};

/// What the README shows: the kernel does not move threads that spin, so two share a CPU throughout.
const SPINNING: Picture = Picture {
    file: "demo",
    title: "Three threads on two CPUs, a spinning barrier every 100 ms of work",
    program: Program::Spmd { phases: 15, phase_ms: 100, barrier: "spin" },
    panels: &[("Linux alone", "observe"), ("with evenly", HYBRID.name())],
};

/// Records a run for each panel and draws them below each other.
fn picture(
    picture: &Picture,
    threads: usize,
    site: &Site,
    executor: &mut HostExecutor,
    out: &Path,
) -> anyhow::Result<PathBuf> {
    let mut recordings = Vec::new();
    for &(label, policy) in picture.panels {
        tell(&format!("demo: recording a run: {label}"));
        let file = out.join(format!("{}-{policy}.evenly", picture.file));
        let mut argv: Vec<OsString> = vec![site.tools.evenly.clone().into(), "run".into()];
        argv.extend(["-q", "--policy", policy, "--record"].map(OsString::from));
        argv.extend([file.clone().into(), "--".into()]);
        argv.extend(picture.program.argv(&site.tools, threads, site.iterations_per_ms));
        let outcome = executor.run(&Arm::new(label, argv), 0)?;
        anyhow::ensure!(
            outcome.status.success(),
            "the recorded run ({label}) {}; the end of its standard error: {}",
            outcome.status,
            outcome.stderr_tail
        );
        recordings.push((label, Recording::read(&file)?));
    }
    let path = out.join(format!("{}.svg", picture.file));
    std::fs::write(&path, draw(picture.title, &recordings))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The recordings below each other, as a picture.
fn draw(title: &str, recordings: &[(&str, Recording)]) -> String {
    let all: Vec<(&str, &Recording)> = recordings.iter().map(|(l, r)| (*l, r)).collect();
    let options =
        svg::TimelineOptions { title: title.to_owned(), ..svg::TimelineOptions::default() };
    svg::timeline(&all, &options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::scripted;
    use evenly_engine::{CpuRecord, Event, Observer, PointRecord, ThreadMeta, ThreadRecord};
    use evenly_model::{CpuId, DomainId, Nanos, Pid, ThreadId, Tid};
    use evenly_trace::{Recorder, RecorderOptions};
    use std::collections::BTreeSet;

    /// What stands in the columns of each line of the table.
    fn cells(text: &str) -> Vec<Vec<&str>> {
        let rows = text.lines().map(|line| -> Vec<&str> {
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
        });
        rows.filter(|row| row.len() == 8).collect()
    }

    #[test]
    fn the_table_has_makespans_speedups_and_the_limit() {
        let text = scripted(&benchmark(3), None).text();
        let head: Vec<&str> = text.lines().filter(|l| !l.is_empty()).take(2).collect();
        assert!(head[0].starts_with("demo: 3 threads on 2 CPUs, "), "{text}");
        assert_eq!(
            head[1],
            "  one thread alone e 2.000 [2.000, 2.000] s; limit e*n/m 3.000 [3.000, 3.000] s; all CPUs \
             busy: 1.100 [1.100, 1.100] times e"
        );
        let whole = |value: &str| format!("{value} [{value}, {value}]");
        let row = |arm: &str, values: [&str; 4]| -> Vec<String> {
            let cell = |value: &str| if value == "-" { value.to_owned() } else { whole(value) };
            let [makespan, fixed, kernel, limit] = values.map(cell);
            let dash = || "-".to_owned();
            vec![arm.to_owned(), "3".to_owned(), makespan, dash(), fixed, kernel, limit, dash()]
        };
        let names = "arm|runs|makespan s|simulated s|vs static|vs kernel|% of limit|others %";
        let expected = [
            names.split('|').map(str::to_owned).collect(),
            row("alone", ["2.000", "-", "-", "-"]),
            row("full", ["2.200", "-", "-", "-"]),
            row("static", ["4.000", "1.000", "0.875", "75.0"]),
            row("kernel", ["3.500", "1.143", "1.000", "85.7"]),
            row("hybrid", ["3.100", "1.290", "1.129", "96.8"]),
        ];
        assert_eq!(cells(&text), expected, "{text}");
        let legend = legend(Path::new("/out/who-ran-where.svg"), Path::new("/out/demo.svg"));
        assert!(legend.contains("  who ran where: /out/who-ran-where.svg\n"), "{legend}");
        assert!(legend.ends_with("kernel and evenly: /out/demo.svg\n"), "{legend}");
    }

    /// A recording of so many periods of 100 ms: thread `t` is on CPU `cpu(t, period)`, or has ended
    /// where that is none.
    fn recording(periods: u64, cpu: impl Fn(usize, u64) -> Option<u32>) -> Recording {
        let file = tempfile::NamedTempFile::new().unwrap();
        let recorder = Recorder::create(file.path(), RecorderOptions::default()).unwrap();
        let mut observer = recorder.handle();
        let (domain, length) = (DomainId(0), Nanos::from_millis(100));
        let id = |t: usize| ThreadId { tid: Tid(101 + t as i32), start: 1 };
        let cpus = "0-1".parse().unwrap();
        observer.event(&Event::Domain { at: Nanos::ZERO, domain, cpus });
        for t in 0..3 {
            let thread = ThreadMeta { id: id(t), pid: Pid(101), name: format!("worker {t}") };
            observer.event(&Event::Joined { at: Nanos::ZERO, domain, thread });
        }
        for period in 0..periods {
            let on: Vec<(usize, u32)> = (0..3).filter_map(|t| Some((t, cpu(t, period)?))).collect();
            let with = |c: u32| on.iter().filter(|(_, at)| *at == c).count() as u64;
            let thread = |&(t, c): &(usize, u32)| {
                let ran = Nanos(length.0 / with(c));
                ThreadRecord {
                    id: id(t),
                    cpu: CpuId(c),
                    progress: (ran.0 * (period + 1)) as i64,
                    ran,
                    waited: length - ran,
                    blocked: Nanos::ZERO,
                    spinning: None,
                    turns: None,
                    minor_faults: 0,
                    major_faults: 0,
                }
            };
            observer.event(&Event::Point(PointRecord {
                domain,
                point: period,
                at: Nanos(length.0 * (period + 1)),
                elapsed: length,
                paused: false,
                held: false,
                spins_progress: false,
                cost: Nanos::ZERO,
                threads: on.iter().map(thread).collect(),
                cpus: [0, 1]
                    .map(|c| CpuRecord { id: CpuId(c), threads: with(c) as u32, speed: None })
                    .into(),
                moves: Vec::new(),
                weights: Vec::new(),
            }));
        }
        recorder.finish(serde_json::Value::Null).unwrap();
        Recording::read(file.path()).unwrap()
    }

    /// Which thread is drawn on which CPU.
    fn drawn(panel: &str) -> BTreeSet<(i32, u32)> {
        let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
        let spans = panel.split("title>").filter(|span| span.contains("% of CPU "));
        spans
            .map(|span| {
                let tid = number(span.split_once('(').unwrap().1).parse().unwrap();
                (tid, number(span.split_once("of CPU ").unwrap().1).parse().unwrap())
            })
            .collect()
    }

    #[test]
    fn the_picture_has_who_ran_where_and_who_was_done_first() {
        // Two share a CPU to the end, the third is done at half of the time.
        let fixed = recording(40, |t, p| if t < 2 { Some(0) } else { (p < 20).then_some(1) });
        // Each has a CPU to itself in its turn.
        let turns = |t: usize, p: u64| Some(u32::from(t as u64 != p % 3));
        let recordings = [
            ("static pinning", fixed),
            ("the kernel alone", recording(35, turns)),
            ("evenly", recording(30, turns)),
        ];
        let picture = draw(ONE_PHASE.title, &recordings);
        assert!(picture.contains("Three threads on two CPUs: who ran where"));
        let panels: Vec<&str> = picture.split(r#"class="head">"#).skip(1).collect();
        assert_eq!(panels.len(), 3);
        let labels = panels.iter().map(|p| p.split_once('<').unwrap().0).collect::<Vec<_>>();
        assert_eq!(labels, ["static pinning", "the kernel alone", "evenly"]);
        assert_eq!(drawn(panels[0]), BTreeSet::from([(101, 0), (102, 0), (103, 1)]));
        let everywhere = (101..=103).flat_map(|tid| [(tid, 0), (tid, 1)]);
        assert_eq!(drawn(panels[2]), everywhere.collect::<BTreeSet<_>>());
        // The line at the end of each is further left, the sooner it was done.
        let end = |panel: &str| -> f64 {
            let line = panel.split(r#"class="mark" x1=""#).nth(1).unwrap();
            line.split('"').next().unwrap().parse().unwrap()
        };
        let ends: Vec<f64> = panels.iter().map(|p| end(p)).collect();
        // The axis begins behind the names of the CPUs.
        let width = |x: f64| x - 64.0;
        assert!((width(ends[1]) / width(ends[0]) - 35.0 / 40.0).abs() < 1e-3, "{ends:?}");
        assert!((width(ends[2]) / width(ends[0]) - 30.0 / 40.0).abs() < 1e-3, "{ends:?}");
        assert!(picture.ends_with("</svg>\n"));
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
