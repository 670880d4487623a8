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
        print(&legend(&picture))?;
    }
    report.finish(Some(&out.join("demo.json")))
}

/// What is to be known to read the table, and where the picture is.
fn legend(picture: &Path) -> String {
    format!(
        "\n  e: what one thread takes alone. limit: no program of three such threads can be faster on \
         two CPUs.\n  static: two threads share a CPU to the end, so the third is done early and its \
         CPU idle.\n  who ran where: {}\n",
        picture.display()
    )
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

/// What is recorded for the picture: what it is called there, and the policy.
const SHOWN: [(&str, &str); 3] =
    [("static pinning", "static"), ("the kernel alone", "observe"), ("evenly", HYBRID.name())];

/// Records one more run of each and draws them below each other.
fn picture(
    benchmark: &Benchmark,
    site: &Site,
    executor: &mut HostExecutor,
    out: &Path,
) -> anyhow::Result<PathBuf> {
    let mut recordings = Vec::new();
    for (label, policy) in SHOWN {
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
    let path = out.join("who-ran-where.svg");
    std::fs::write(&path, draw(&recordings))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The recordings below each other, as a picture.
fn draw(recordings: &[(&str, Recording)]) -> String {
    let all: Vec<(&str, &Recording)> = recordings.iter().map(|(l, r)| (*l, r)).collect();
    let options = svg::TimelineOptions {
        title: "Three threads on two CPUs: who ran where".to_owned(),
        ..svg::TimelineOptions::default()
    };
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
        let legend = legend(Path::new("/out/who-ran-where.svg"));
        assert!(legend.ends_with("  who ran where: /out/who-ran-where.svg\n"), "{legend}");
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
                cost: Nanos::ZERO,
                threads: on.iter().map(thread).collect(),
                cpus: [0, 1]
                    .map(|c| CpuRecord { id: CpuId(c), threads: with(c) as u32, speed: None })
                    .into(),
                moves: Vec::new(),
            }));
        }
        recorder.finish(serde_json::Value::Null).unwrap();
        Recording::read(file.path()).unwrap()
    }

    /// Which thread is drawn on which CPU.
    fn drawn(panel: &str) -> BTreeSet<(i32, u32)> {
        let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
        let spans = panel.split("<title>").filter(|span| span.contains("% of CPU "));
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
            (SHOWN[0].0, fixed),
            (SHOWN[1].0, recording(35, turns)),
            (SHOWN[2].0, recording(30, turns)),
        ];
        let picture = draw(&recordings);
        assert!(picture.contains("Three threads on two CPUs: who ran where"));
        let panels: Vec<&str> = picture.split(r#"<tspan class="head">"#).skip(1).collect();
        assert_eq!(panels.len(), 3);
        let labels = panels.iter().map(|p| p.split_once('<').unwrap().0).collect::<Vec<_>>();
        assert_eq!(labels, ["static pinning", "the kernel alone", "evenly"]);
        assert_eq!(drawn(panels[0]), BTreeSet::from([(101, 0), (102, 0), (103, 1)]));
        let everywhere = (101..=103).flat_map(|tid| [(tid, 0), (tid, 1)]);
        assert_eq!(drawn(panels[2]), everywhere.collect::<BTreeSet<_>>());
        // The line at the end of each is further left, the sooner it was done.
        let end = |panel: &str| -> f64 {
            let line = panel.split(r#"<line class="mark" x1=""#).nth(1).unwrap();
            line.split('"').next().unwrap().parse().unwrap()
        };
        let ends: Vec<f64> = panels.iter().map(|p| end(p)).collect();
        // The axis begins behind the names of the CPUs.
        let width = |x: f64| x - 64.0;
        assert!((width(ends[1]) / width(ends[0]) - 35.0 / 40.0).abs() < 1e-3, "{ends:?}");
        assert!((width(ends[2]) / width(ends[0]) - 30.0 / 40.0).abs() < 1e-3, "{ends:?}");
        assert!(picture.ends_with("</svg>\n"));
    }

    #[test]
    fn a_busy_machine_is_told_at_once() {
        let cpus = "0-1".parse().unwrap();
        let load = |others, stolen| Load { elapsed_s: 1.0, own_s: 0.0, others, stolen };
        assert_eq!(busy(&load(0.1, 0.05), &cpus), None);
        let said = busy(&load(0.2, 0.15), &cpus).unwrap();
        assert!(said.contains("35 % of CPUs 0-1"), "{said}");
    }
}
