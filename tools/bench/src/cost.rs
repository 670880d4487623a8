//! What a balancing point costs: against the number of threads, from evenly's own reports, and
//! what reading one thread costs beside the system calls that it cannot do without.

use crate::measure::{HostExecutor, Site};
use crate::measured::Measured;
use crate::show::{Shown, table};
use crate::suite::{COST, HYBRID, Program};
use anyhow::Context;
use evenly_compare::{Arm, Executor, Progress, Round, RunError};
use evenly_engine::{Reader, Reading};
use evenly_linux::affinity;
use evenly_linux::journal::{Journal, StateDir};
use evenly_linux::machine::{LinuxMachine, Masks};
use evenly_linux::proc::Proc;
use evenly_linux::threads::{Source, ThreadReader};
use evenly_model::stats::{Random, median};
use evenly_model::{CpuSet, Pid, ThreadId, Tid};
use serde::Serialize;
use serde_json::Value;
use std::ffi::OsString;
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// What the benchmark measures, for the list.
pub(crate) const WHAT: &str = "what a balancing point costs, against the number of threads";

/// Threads that compute: multiples of the two CPUs, where nothing has to be moved, and others.
const RUNNING: [usize; 8] = [2, 4, 8, 16, 17, 32, 64, 65];
/// Threads that sleep beside three that compute, and threads started in a second.
const SLEEPING: [[usize; 2]; 6] =
    [[0, 0], [10, 0], [100, 0], [1_000, 0], [10_000, 0], [10_000, 1_000]];
/// Threads that are read in the comparison with bare system calls.
const READ: [usize; 3] = [1, 16, 256];

/// The costs of a balancing point in the runs with one number of threads, each the median over the
/// runs of the mean over the points of a run, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Point {
    /// How many threads compute.
    pub(crate) computing: usize,
    /// How many threads sleep.
    pub(crate) sleeping: usize,
    /// Threads started, and ended, in a second.
    pub(crate) churn_per_s: usize,
    /// How many runs there were.
    pub(crate) runs: usize,
    /// Balancing points of a run.
    pub(crate) points: f64,
    /// Migrations at each point, on average.
    pub(crate) migrations: f64,
    /// Wall time of reading.
    pub(crate) read_us: Measured,
    /// Wall time of deciding.
    pub(crate) decide_us: Measured,
    /// Wall time of applying.
    pub(crate) apply_us: Measured,
    /// Wall time of read, decide and apply together.
    pub(crate) wall_us: Measured,
    /// CPU time of the balancer's thread.
    pub(crate) cpu_us: Measured,
    /// CPU time of all of evenly as part of one CPU, in percent.
    pub(crate) overhead_percent: Measured,
    /// Mean length of a period, in milliseconds.
    pub(crate) period_ms: f64,
    /// The greatest part of the CPUs that others took in a run, in percent.
    pub(crate) others_max_percent: f64,
}

/// What reading one thread costs, in nanoseconds, each the median of batches that were interleaved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct ReadCost {
    /// Threads read in one call.
    pub(crate) threads: usize,
    /// A thread, as the balancer reads it.
    pub(crate) thread_ns: Measured,
    /// One `pread` of the same file and nothing else: the physical limit.
    pub(crate) pread_ns: Measured,
    /// The shortest of system calls.
    pub(crate) getppid_ns: Measured,
}

/// What reading all threads costs a program that does so now and then only, beside threads that compute:
/// by then nothing that it needs is in a cache. In microseconds of CPU time for all threads together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct SeldomCost {
    /// Threads that compute, and are read.
    pub(crate) threads: usize,
    /// How long the reader sleeps before each time, in milliseconds.
    pub(crate) gap_ms: u64,
    /// As the balancer reads them.
    pub(crate) threads_us: Measured,
    /// One `pread` for each thread and nothing else: the physical limit.
    pub(crate) preads_us: Measured,
}

/// What the benchmark has measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Cost {
    /// Against the number of threads.
    pub(crate) points: Vec<Point>,
    /// Whether it was interrupted.
    pub(crate) incomplete: bool,
    /// Runs in which evenly came to no balancing point, by their case.
    pub(crate) without_points: Vec<String>,
    /// What reading one thread costs, by the way it is read.
    pub(crate) reading: Vec<ReadCost>,
    /// Reading now and then.
    pub(crate) seldom: Vec<SeldomCost>,
}

/// Measures it.
///
/// # Errors
/// Where a run fails.
pub(crate) fn cost(
    site: &Site,
    cpus: &CpuSet,
    quick: bool,
    runs: Option<u32>,
    interrupted: &Arc<AtomicBool>,
) -> anyhow::Result<Cost> {
    let reading = READ.iter().map(|n| reading(*n, site.seed)).collect::<anyhow::Result<_>>()?;
    let seldom = seldom(cpus, site.seed)?;
    let runs = runs.map_or(if quick { 3 } else { 7 }, |r| r as usize);
    // Within its budget evenly needs some ten seconds to find the three that compute among 10,000.
    let seconds = |case: &[usize; 3]| match case[1] {
        1_000.. => 25.0,
        _ if quick => 1.5,
        _ => 3.0,
    };
    let cases: Vec<[usize; 3]> = RUNNING
        .iter()
        .map(|n| [*n, 0, 0])
        .chain(SLEEPING.iter().map(|[n, rate]| [3, *n, *rate]))
        .collect();
    let mut executor = HostExecutor::new(cpus.clone(), interrupted.clone());
    let mut shown = Shown::new(COST);
    shown.planned(cases.len() * runs);
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); cases.len()];
    let (mut without_points, mut incomplete) = (Vec::new(), false);
    let mut random = Random::new(site.seed);
    'rounds: for round in 1..=runs {
        let mut order: Vec<usize> = (0..cases.len()).collect();
        random.shuffle(&mut order);
        for i in order {
            let arm = arm(site, cases[i], cpus.len(), seconds(&cases[i]));
            shown.started(&arm, Round::Measured(round));
            match sample(&mut executor, &arm) {
                Ok(None) => without_points.push(arm.name),
                Ok(Some(s)) => {
                    shown.finished(&arm, Round::Measured(round), s.seconds);
                    samples[i].push(s);
                }
                Err(e) if e.downcast_ref::<RunError>().is_some_and(is_interrupt) => {
                    shown.interrupted();
                    incomplete = true;
                    break 'rounds;
                }
                Err(e) => {
                    shown.bar.clear();
                    return Err(e.context(format!("{COST}: {}", arm.name)));
                }
            }
        }
    }
    shown.bar.clear();
    let points =
        cases.iter().zip(&samples).filter_map(|(c, s)| Point::of(*c, s, site.seed)).collect();
    Ok(Cost { points, incomplete, without_points, reading, seldom })
}

fn is_interrupt(e: &RunError) -> bool {
    matches!(e, RunError::Interrupted)
}

/// The run of a case: about `seconds` long.
fn arm(site: &Site, [computing, sleeping, churn]: [usize; 3], cpus: usize, seconds: f64) -> Arm {
    let command: Vec<OsString> = if sleeping + churn == 0 {
        let phase_ms = (seconds * 1e3 * cpus as f64 / computing as f64).floor();
        let program = Program::Spmd { phases: 1, phase_ms, barrier: "block" };
        program.argv(&site.tools, computing, site.iterations_per_ms)
    } else {
        let numbers = [sleeping.to_string(), churn.to_string(), computing.to_string()];
        let [sleeping, churn, computing] = &numbers;
        let seconds = seconds.to_string();
        let list = [
            "--threads",
            sleeping,
            "--rate",
            churn,
            "--workers",
            computing,
            "--duration-s",
            &seconds,
        ];
        let mut argv = vec![site.tools.workload("churn").into_os_string()];
        argv.extend(list.map(OsString::from));
        argv
    };
    let name = format!("{computing} computing, {sleeping} sleeping, {churn} a second");
    let (argv, report) = site.under_evenly(HYBRID.name(), HYBRID.name(), &[], command);
    Arm { report, ..Arm::new(name, argv) }
}

/// What one run has measured.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    seconds: f64,
    points: f64,
    migrations: f64,
    period_ms: f64,
    read_us: f64,
    decide_us: f64,
    apply_us: f64,
    cpu_us: f64,
    overhead_percent: f64,
    others_percent: f64,
}

fn sample(executor: &mut HostExecutor, arm: &Arm) -> anyhow::Result<Option<Sample>> {
    let outcome = executor.run(arm, 0)?;
    anyhow::ensure!(
        outcome.status.success(),
        "the program {}; the end of its standard error: {}",
        outcome.status,
        outcome.stderr_tail
    );
    let load = crate::measure::Noting::notes(executor).pop().and_then(|n| n.load);
    let others = load.map_or(0.0, |l| 100.0 * (l.others + l.stolen));
    let report = outcome.report.as_ref().context("evenly left no report")?;
    Ok(Sample::of(report, others))
}

impl Sample {
    /// From evenly's report (`evenly.run/1`). None where it balanced nothing.
    fn of(report: &Value, others_percent: f64) -> Option<Self> {
        let domains = report["domains"].as_array()?;
        let total = |path: &[&str]| -> f64 {
            let at = |d: &Value| path.iter().fold(d.clone(), |v, key| v[*key].clone()).as_f64();
            domains.iter().filter_map(at).sum()
        };
        let points = total(&["points"]);
        let us = |part: &str| total(&["cost", part]) / points / 1e3;
        (points > 0.0).then_some(())?;
        Some(Self {
            seconds: report["seconds"].as_f64()?,
            points,
            migrations: total(&["migrations"]) / points,
            period_ms: domains.first()?["period_s"].as_f64()? * 1e3,
            read_us: us("read_ns"),
            decide_us: us("decide_ns"),
            apply_us: us("apply_ns"),
            cpu_us: total(&["cpu_s"]) / points * 1e6,
            overhead_percent: 100.0 * report["overhead_s"].as_f64()?
                / report["seconds"].as_f64()?.max(1e-9),
            others_percent,
        })
    }
}

impl Point {
    fn of([computing, sleeping, churn]: [usize; 3], samples: &[Sample], seed: u64) -> Option<Self> {
        let values = |f: fn(&Sample) -> f64| samples.iter().map(f).collect::<Vec<f64>>();
        let measured = |f: fn(&Sample) -> f64| Measured::median(&values(f), seed);
        Some(Self {
            computing,
            sleeping,
            churn_per_s: churn,
            runs: samples.len(),
            points: median(&values(|s| s.points))?,
            migrations: median(&values(|s| s.migrations))?,
            read_us: measured(|s| s.read_us)?,
            decide_us: measured(|s| s.decide_us)?,
            apply_us: measured(|s| s.apply_us)?,
            wall_us: measured(|s| s.read_us + s.decide_us + s.apply_us)?,
            cpu_us: measured(|s| s.cpu_us)?,
            overhead_percent: measured(|s| s.overhead_percent)?,
            period_ms: median(&values(|s| s.period_ms))?,
            others_max_percent: values(|s| s.others_percent).into_iter().fold(0.0, f64::max),
        })
    }
}

/// Threads of this process that do something until they are dropped.
struct Threads {
    threads: Vec<ThreadId>,
    _alive: Vec<mpsc::Sender<()>>,
}

impl Threads {
    /// Starts so many threads that sleep.
    fn sleeping(count: usize) -> anyhow::Result<Self> {
        Self::new(count, |ended| _ = ended.recv())
    }

    /// They compute on these CPUs, in the first level cache.
    fn computing(count: usize, cpus: &CpuSet) -> anyhow::Result<Self> {
        let cpus = cpus.clone();
        Self::new(count, move |ended| {
            // On other CPUs they compute as well.
            let _ = affinity::set(own_tid(), &cpus);
            let mut numbers = [1.0f64; 1_024];
            while ended.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
                numbers.iter_mut().for_each(|x| *x = x.mul_add(1.000_1, 1e-9));
                black_box(&numbers);
            }
        })
    }

    fn new(
        count: usize,
        act: impl Fn(mpsc::Receiver<()>) + Clone + Send + 'static,
    ) -> anyhow::Result<Self> {
        let (sender, ids) = mpsc::channel();
        let mut alive = Vec::new();
        for _ in 0..count {
            let (end, ended) = mpsc::channel::<()>();
            let (sender, act) = (sender.clone(), act.clone());
            std::thread::Builder::new()
                .stack_size(64 << 10)
                .spawn(move || {
                    // The one that asked may have given up; then there is nothing to do it for.
                    if sender.send(rustix::thread::gettid()).is_ok() {
                        act(ended);
                    }
                })
                .context("cannot start a thread to be read")?;
            alive.push(end);
        }
        drop(sender);
        let proc = Proc::default();
        let threads = ids
            .iter()
            .take(count)
            .filter_map(|tid| {
                let tid = Tid(tid.as_raw_nonzero().get());
                Some(ThreadId { tid, start: proc.thread_stat(tid)?.start })
            })
            .collect();
        Ok(Self { threads, _alive: alive })
    }
}

/// Batches of each kind, and readings of a thread in a batch: long beside the clock's resolution,
/// short beside a tick, so that the median is of batches that nothing interrupted.
const BATCHES: usize = 400;
const CALLS: usize = 1_024;

/// The ways to read these threads: their files, and the machine as the balancer has it.
struct Readers {
    files: Vec<File>,
    journal: Arc<Journal>,
    machine: LinuxMachine,
}

fn readers(threads: &Threads, count: usize) -> anyhow::Result<Readers> {
    anyhow::ensure!(threads.threads.len() == count, "threads to be read have vanished");
    let files: Vec<File> = threads
        .threads
        .iter()
        .map(|t| File::open(format!("/proc/self/task/{}/schedstat", t.tid)))
        .collect::<std::io::Result<_>>()
        .context("cannot open schedstat of a thread")?;
    let journal = Arc::new(Journal::create(&StateDir::find()?, None)?);
    let own = Pid(std::process::id().cast_signed());
    let masks = Arc::new(Masks::new(journal.clone()));
    let machine =
        LinuxMachine::new(own, masks, ThreadReader::new(Source::Schedstat, 4 * count + 64));
    Ok(Readers { files, journal, machine })
}

/// Threads, and the sleeps of the reader in milliseconds: about the periods with 2 and 16 threads.
const SELDOM: [(usize, u64); 4] = [(2, 15), (16, 1), (16, 15), (16, 70)];
/// How often each is read in each way.
const SELDOM_ROUNDS: usize = 60;

fn seldom(cpus: &CpuSet, seed: u64) -> anyhow::Result<Vec<SeldomCost>> {
    // A thread of its own, whose mask no other has.
    let cpus = cpus.clone();
    let all = move || SELDOM.iter().map(|&(n, gap)| seldom_one(n, gap, &cpus, seed)).collect();
    std::thread::spawn(all).join().map_err(|_| anyhow::anyhow!("the reader ended early"))?
}

fn seldom_one(threads: usize, gap_ms: u64, cpus: &CpuSet, seed: u64) -> anyhow::Result<SeldomCost> {
    affinity::set(own_tid(), cpus).context("cannot go to the CPUs of the benchmark")?;
    let computing = Threads::computing(threads, cpus)?;
    let Readers { files, journal, mut machine } = readers(&computing, threads)?;
    let mut out: Vec<Reading> = Vec::new();
    let mut text = [0u8; 96];
    let mut samples: [Vec<f64>; 2] = Default::default();
    let mut random = Random::new(seed);
    for round in 0..=SELDOM_ROUNDS {
        let mut order = [0, 1];
        random.shuffle(&mut order);
        for kind in order {
            std::thread::sleep(Duration::from_millis(gap_ms));
            let begin = thread_cpu_time();
            if kind == 0 {
                machine.read(&computing.threads, &mut out);
                black_box(&out);
            } else {
                for file in &files {
                    _ = black_box(file.read_at(black_box(&mut text), 0));
                }
            }
            // The first round opens descriptors.
            if round > 0 {
                samples[kind].push((thread_cpu_time() - begin).as_secs_f64() * 1e6);
            }
        }
    }
    drop(machine);
    journal.finish()?;
    let measured = |i: usize| Measured::median(&samples[i], seed).context("nothing was measured");
    Ok(SeldomCost { threads, gap_ms, threads_us: measured(0)?, preads_us: measured(1)? })
}

fn own_tid() -> Tid {
    Tid(rustix::thread::gettid().as_raw_nonzero().get())
}

fn thread_cpu_time() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec.unsigned_abs(), t.tv_nsec.unsigned_abs() as u32)
}

fn reading(threads: usize, seed: u64) -> anyhow::Result<ReadCost> {
    let sleepers = Threads::sleeping(threads)?;
    let Readers { files, journal, mut machine } = readers(&sleepers, threads)?;
    let mut out: Vec<Reading> = Vec::new();
    let rounds = CALLS.div_ceil(threads);
    let calls = (rounds * threads) as f64;
    let mut text = [0u8; 96];
    let mut samples: [Vec<f64>; 3] = Default::default();
    let mut random = Random::new(seed);
    // The first batch opens descriptors and fills caches.
    for batch in 0..=BATCHES {
        let mut order = [0, 1, 2];
        random.shuffle(&mut order);
        for kind in order {
            let begin = Instant::now();
            match kind {
                0 => {
                    for _ in 0..rounds {
                        machine.read(&sleepers.threads, &mut out);
                        black_box(&out);
                    }
                }
                1 => {
                    for _ in 0..rounds {
                        for file in &files {
                            _ = black_box(file.read_at(black_box(&mut text), 0));
                        }
                    }
                }
                _ => {
                    for _ in 0..rounds * threads {
                        black_box(rustix::process::getppid());
                    }
                }
            }
            if batch > 0 {
                samples[kind].push(begin.elapsed().as_nanos() as f64 / calls);
            }
        }
    }
    anyhow::ensure!(
        out.len() == threads && out.iter().all(|r| matches!(r, Reading::Times(_))),
        "threads that sleep could not be read"
    );
    drop(machine);
    journal.finish()?;
    let measured = |i: usize| Measured::median(&samples[i], seed).context("no batch was measured");
    Ok(ReadCost {
        threads,
        thread_ns: measured(0)?,
        pread_ns: measured(1)?,
        getppid_ns: measured(2)?,
    })
}

impl Cost {
    /// The tables, beside what is to be reached.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("\n{COST}: {WHAT} (policy {})\n", HYBRID.name());
        let heading = [
            "computing",
            "sleeping",
            "started/s",
            "runs",
            "points",
            "moves",
            "read us",
            "decide us",
            "apply us",
            "together us",
            "CPU us",
            "overhead %",
            "period ms",
            "others %",
        ];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        for p in &self.points {
            rows.push(vec![
                p.computing.to_string(),
                p.sleeping.to_string(),
                p.churn_per_s.to_string(),
                p.runs.to_string(),
                format!("{:.0}", p.points),
                format!("{:.2}", p.migrations),
                format!("{:.1}", p.read_us.value),
                format!("{:.1}", p.decide_us.value),
                format!("{:.1}", p.apply_us.value),
                p.wall_us.text(1),
                p.cpu_us.text(1),
                p.overhead_percent.text(2),
                format!("{:.1}", p.period_ms),
                format!("{:.1}", p.others_max_percent),
            ]);
        }
        text.push_str(&table(&rows));
        for case in &self.without_points {
            text.push_str(&format!("  a run without any balancing point: {case}\n"));
        }
        text.push_str(
            "  moves are per point; us per point: wall time of each part, and CPU time of the \
             balancer's thread; overhead: all of evenly\n  to reach: 16 threads under 15 us \
             without moves, under 50 us with; overhead under the budget of 1 %\n\n  reading one \
             thread\n",
        );
        let heading = ["threads", "as evenly reads ns", "bare pread ns", "getppid ns"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        for r in &self.reading {
            rows.push(vec![
                r.threads.to_string(),
                r.thread_ns.text(0),
                r.pread_ns.text(0),
                r.getppid_ns.text(0),
            ]);
        }
        text.push_str(&table(&rows));
        text.push_str("  to reach: under 600 ns; the physical limit is the bare pread\n");
        text.push_str("\n  reading all threads now and then, while they compute\n");
        let heading = ["threads", "every ms", "as evenly reads us", "bare preads us"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        for r in &self.seldom {
            rows.push(vec![
                r.threads.to_string(),
                r.gap_ms.to_string(),
                r.threads_us.text(1),
                r.preads_us.text(1),
            ]);
        }
        text.push_str(&table(&rows));
        text.push_str("  CPU time; the bare preads are the physical limit of a balancing point\n");
        text
    }
}

/// Costs as they are measured, for the tests of what is made of them.
#[cfg(test)]
pub(crate) fn sample_of_costs() -> Cost {
    let report = serde_json::json!({
        "seconds": 2.0, "overhead_s": 0.01,
        "domains": [{
            "points": 100, "migrations": 50, "cpu_s": 0.002, "period_s": 0.02,
            "cost": {"read_ns": 1_000_000, "decide_ns": 200_000, "apply_ns": 400_000, "record_ns": 0},
        }],
    });
    let samples: Vec<Sample> = Sample::of(&report, 3.0).into_iter().cycle().take(3).collect();
    let ns = |v| Measured { value: v, ci95: None };
    Cost {
        points: Point::of([16, 10, 0], &samples, 1).into_iter().collect(),
        incomplete: false,
        without_points: vec!["65 computing".to_owned()],
        reading: vec![ReadCost {
            threads: 1,
            thread_ns: ns(500.0),
            pread_ns: ns(450.0),
            getppid_ns: ns(90.0),
        }],
        seldom: vec![SeldomCost {
            threads: 16,
            gap_ms: 15,
            threads_us: ns(60.0),
            preads_us: ns(40.0),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_reduced_to_costs_per_point() {
        let report = serde_json::json!({
            "seconds": 2.0, "overhead_s": 0.01,
            "domains": [{
                "points": 100, "migrations": 50, "cpu_s": 0.002, "period_s": 0.02,
                "cost": {"read_ns": 1_000_000, "decide_ns": 200_000, "apply_ns": 400_000, "record_ns": 0},
            }],
        });
        let s = Sample::of(&report, 3.0).unwrap();
        assert_eq!((s.read_us, s.decide_us, s.apply_us), (10.0, 2.0, 4.0));
        assert!((s.cpu_us - 20.0).abs() < 1e-9 && (s.overhead_percent - 0.5).abs() < 1e-9);
        let p = Point::of([16, 0, 0], &[s, s, s], 1).unwrap();
        assert_eq!((p.wall_us.value, p.migrations, p.others_max_percent), (16.0, 0.5, 3.0));
        let none = serde_json::json!({"seconds": 2.0, "overhead_s": 0.0, "domains": []});
        assert_eq!(Sample::of(&none, 0.0), None);
    }

    #[test]
    fn sleepers_are_read_and_end() {
        let sleepers = Threads::sleeping(3).unwrap();
        assert_eq!(sleepers.threads.len(), 3);
        assert!(sleepers.threads.iter().all(|t| t.start > 0));
    }

    #[test]
    fn threads_that_compute_are_read() {
        let cpus = affinity::get(own_tid()).unwrap();
        let cost = seldom_one(2, 1, &cpus, 1).unwrap();
        assert!(cost.preads_us.value > 0.0 && cost.threads_us.value > 0.0);
    }
}
