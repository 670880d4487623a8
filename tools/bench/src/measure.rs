//! Runs the arms of a benchmark, interleaved, and notes with every run how much CPU time others
//! took and how much the neighbours got.

use crate::show::Shown;
use crate::simulated::GUEST;
use crate::suite::{Benchmark, Habit, Neighbour, Way};
use crate::tools::{Tools, words};
use anyhow::Context;
use evenly_compare::{
    Arm, Comparison, Executor, Metric, Options, Output, ProcessExecutor, RunError, RunOutcome,
    compare,
};
use evenly_linux::limits::{self, Slice};
use evenly_linux::usage::{Load, Usage};
use evenly_model::CpuSet;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The figure that all programs print.
pub(crate) const MAKESPAN: &str = "makespan_s";
/// Where disturbed runs are made again: one of which others took more of the CPUs than this, so often in all; then the least
/// disturbed one counts.
pub(crate) const MOST_OTHERS: f64 = 0.04;
pub(crate) const TRIES: u32 = 4;
/// Longest time for one run; the slowest takes under a minute.
const LIMIT: Duration = Duration::from_secs(600);

/// Where the arms run: programs, and the amount of work that one millisecond is.
#[derive(Debug)]
pub(crate) struct Site {
    /// The programs, as they are named there.
    pub(crate) tools: Tools,
    /// Iterations of spmd in a millisecond.
    pub(crate) iterations_per_ms: u64,
    /// Words before every command.
    pub(crate) prefix: Vec<OsString>,
    /// The directory in which reports are kept.
    pub(crate) scratch: PathBuf,
    /// Seed of orders and intervals.
    pub(crate) seed: u64,
    /// How CPUs are shared there.
    pub(crate) clockwork: Slice,
    _kept: Option<tempfile::TempDir>,
}

impl Site {
    /// This machine.
    ///
    /// # Errors
    /// Where spmd does not work, or there is no room for reports.
    pub(crate) fn host(tools: &Tools, seed: u64) -> anyhow::Result<Self> {
        let kept = tempfile::tempdir().context("cannot make a directory for the reports")?;
        Ok(Self {
            tools: tools.clone(),
            iterations_per_ms: tools.iterations_per_ms()?,
            prefix: Vec::new(),
            scratch: kept.path().to_owned(),
            seed,
            clockwork: limits::slice(),
            _kept: Some(kept),
        })
    }

    /// A place to run in another machine: a guest of the lab.
    pub(crate) fn elsewhere(
        tools: Tools,
        iterations_per_ms: u64,
        prefix: Vec<OsString>,
        seed: u64,
    ) -> Self {
        let scratch = PathBuf::from("/tmp");
        let clockwork = GUEST;
        Self { tools, iterations_per_ms, prefix, scratch, seed, clockwork, _kept: None }
    }

    /// The command of an arm.
    pub(crate) fn arm(&self, benchmark: &Benchmark, way: Way) -> Arm {
        let program =
            |threads| benchmark.program.argv(&self.tools, threads, self.iterations_per_ms);
        let command = program(benchmark.threads);
        let (argv, report) = match way {
            Way::Alone => (program(1), None),
            Way::Full => (program(benchmark.cpus), None),
            Way::Kernel => (command, None),
            Way::Static if matches!(benchmark.program, crate::suite::Program::Spmd { .. }) => {
                let mut argv = command;
                argv.extend(["--pin".into(), "static".into()]);
                (argv, None)
            }
            Way::Static => self.under_evenly("static", "static", &[], command),
            Way::Evenly { name, policy, options } => {
                self.under_evenly(name, policy, options, command)
            }
        };
        let argv = self.prefix.iter().cloned().chain(argv);
        Arm { report, ..Arm::new(way.name(), argv) }
    }

    /// A command under evenly, and the report that it leaves.
    pub(crate) fn under_evenly(
        &self,
        name: &str,
        policy: &str,
        options: &[&str],
        command: Vec<OsString>,
    ) -> (Vec<OsString>, Option<PathBuf>) {
        let report = self.scratch.join(format!("{}.json", name.replace(' ', "-")));
        let mut argv: Vec<OsString> = vec![self.tools.evenly.clone().into(), "run".into()];
        argv.extend(["-q", "--policy", policy].map(OsString::from));
        argv.extend(options.iter().map(OsString::from));
        argv.extend(["--json".into(), report.clone().into(), "--".into()]);
        argv.extend(command);
        (argv, Some(report))
    }
}

/// One run, beside its makespan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Note {
    /// The arm that was run.
    pub(crate) arm: String,
    /// What the program printed, in seconds.
    pub(crate) makespan_s: Option<f64>,
    /// Wall time of the run with start-up, in seconds.
    pub(crate) wall_s: f64,
    /// CPU time that the neighbours got while the program ran, in seconds.
    pub(crate) neighbours_s: f64,
    /// What others took; none where that cannot be seen.
    pub(crate) load: Option<Load>,
    /// The part of the time until they finished in which threads had no CPU, where the program says.
    pub(crate) off_cpu: Option<f64>,
}

/// An executor that takes notes.
pub(crate) trait Noting: Executor {
    /// Prepares for a benchmark: its neighbours.
    fn begin(&mut self, benchmark: &Benchmark, tools: &Tools);

    /// The notes since then, one for each run, in order.
    fn notes(&mut self) -> Vec<Note>;

    /// What others took during the last run; none where that cannot be seen.
    fn last_load(&self) -> Option<Load>;
}

/// Runs on this machine.
pub(crate) struct HostExecutor {
    inner: ProcessExecutor,
    cpus: CpuSet,
    neighbours: Vec<Neighbour>,
    noise: PathBuf,
    arms: usize,
    notes: Vec<Note>,
}

impl HostExecutor {
    /// On these CPUs, which this process is confined to.
    pub(crate) fn new(cpus: CpuSet, interrupted: Arc<AtomicBool>) -> Self {
        let inner =
            ProcessExecutor { limit: Some(LIMIT), interrupted, ..ProcessExecutor::default() };
        Self { inner, cpus, neighbours: vec![], noise: PathBuf::new(), arms: 1, notes: vec![] }
    }

    fn usage(&self) -> Result<Usage, RunError> {
        Usage::now(&self.cpus).map_err(RunError::Capture)
    }

    fn start(&self, neighbour: &Neighbour, round: usize) -> io::Result<Running> {
        let mut command = Command::new(&self.noise);
        if let Some(cpu) = neighbour.cpu.and_then(|c| self.cpus.iter().nth(c)) {
            command.args(["--cpu", &cpu.to_string()]);
        }
        command.args(["--nice", &neighbour.nice.to_string()]);
        match neighbour.habit {
            Habit::Always => command.arg("--always"),
            Habit::Turns { sleep_ms: [a, b], busy_ms: [c, d], seed } => command.args([
                "--sleep-ms",
                &format!("{a},{b}"),
                "--busy-ms",
                &format!("{c},{d}"),
                "--seed",
                // All arms of a round meet the same turns; every round has others.
                &(seed + 1_000 * round as u64).to_string(),
            ]),
        };
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        Ok(Running(child))
    }
}

/// A neighbour at work; it ends with this value.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Starts one that nobody hears of.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub(crate) fn quiet(command: &mut Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().context("cannot start a neighbour")?))
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// Where that takes longer than this.
    pub(crate) fn wait(mut self, limit: Duration) -> io::Result<()> {
        let begin = Instant::now();
        while self.0.try_wait()?.is_none() {
            if begin.elapsed() > limit {
                return Err(io::Error::other("the neighbour does not end"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Asks it to end.
    ///
    /// # Errors
    /// Where the signal cannot be sent.
    pub(crate) fn terminate(&self) -> io::Result<()> {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the neighbour has no process id"))?;
        Ok(kill_process(pid, Signal::TERM)?)
    }

    /// Ends it: the CPU time that it got, in seconds.
    fn end(mut self) -> io::Result<f64> {
        self.terminate()?;
        let mut text = String::new();
        if let Some(out) = &mut self.0.stdout {
            out.read_to_string(&mut text)?;
        }
        self.0.wait()?;
        neighbour_cpu_s(&text)
            .ok_or_else(|| io::Error::other(format!("the neighbour printed no cpu_s: {text}")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already in the usual case; an error says just that.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The CPU time that a neighbour says it got, in seconds.
pub(crate) fn neighbour_cpu_s(text: &str) -> Option<f64> {
    serde_json::from_str::<serde_json::Value>(text.trim()).ok()?.get("cpu_s")?.as_f64()
}

impl Executor for HostExecutor {
    fn run(&mut self, arm: &Arm, index: usize) -> Result<RunOutcome, RunError> {
        let alone = arm.name == Way::Alone.name() || arm.name == Way::Full.name();
        let before = self.usage()?;
        let started = |source| RunError::Start { program: "noise".to_owned(), source };
        let neighbours = self
            .neighbours
            .iter()
            .filter(|_| !alone)
            .map(|n| self.start(n, index / self.arms))
            .collect::<io::Result<Vec<_>>>()
            .map_err(started)?;
        let outcome = self.inner.run(arm, index)?;
        let got: f64 = neighbours
            .into_iter()
            .map(Running::end)
            .sum::<io::Result<f64>>()
            .map_err(RunError::Wait)?;
        let load = self.usage()?.since(&before, self.cpus.len());
        self.notes.push(note(arm, &outcome, got, Some(load)));
        Ok(outcome)
    }
}

impl Noting for HostExecutor {
    fn begin(&mut self, benchmark: &Benchmark, tools: &Tools) {
        self.neighbours.clone_from(&benchmark.neighbours);
        self.noise = tools.workload("noise");
        self.arms = benchmark.ways.len();
        self.notes.clear();
    }

    fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    fn last_load(&self) -> Option<Load> {
        self.notes.last()?.load
    }
}

/// An executor that notes how much of the CPUs others took in each run.
pub(crate) struct Watching {
    /// What runs the command.
    pub(crate) inner: ProcessExecutor,
    /// The CPUs that are looked at.
    pub(crate) cpus: CpuSet,
    /// What was noted: the arm, and the load.
    pub(crate) loads: Vec<(String, Load)>,
}

impl Executor for Watching {
    fn run(&mut self, arm: &Arm, index: usize) -> Result<RunOutcome, RunError> {
        let now = |cpus| Usage::now(cpus).map_err(RunError::Capture);
        let before = now(&self.cpus)?;
        let outcome = self.inner.run(arm, index)?;
        let load = now(&self.cpus)?.since(&before, self.cpus.len());
        self.loads.push((arm.name.clone(), load));
        Ok(outcome)
    }
}

/// The note of a run.
pub(crate) fn note(arm: &Arm, outcome: &RunOutcome, got: f64, load: Option<Load>) -> Note {
    Note {
        arm: arm.name.clone(),
        makespan_s: Metric::Field(MAKESPAN.to_owned()).of(outcome).ok(),
        wall_s: outcome.seconds,
        neighbours_s: got,
        load,
        off_cpu: printed(outcome).and_then(|text| off_cpu(&text)),
    }
}

/// What the program has printed, as far as it is no more than it prints of itself.
pub(crate) fn printed(outcome: &RunOutcome) -> Option<String> {
    let mut text = String::new();
    outcome.output.reader().take(1 << 20).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The makespan that the program has printed, in seconds, and its checksum.
///
/// # Errors
/// Where it has not.
pub(crate) fn result(outcome: &RunOutcome) -> anyhow::Result<(f64, String)> {
    result_in(&printed(outcome).unwrap_or_default())
}

/// The same in what it has printed.
pub(crate) fn result_in(text: &str) -> anyhow::Result<(f64, String)> {
    let result: serde_json::Value = serde_json::from_str(text.trim())
        .with_context(|| format!("it printed no result: {text}"))?;
    let seconds = result["makespan_s"].as_f64().context("a result without makespan_s")?;
    Ok((seconds, result["checksum"].to_string()))
}

/// The part of the time from the start to their ends in which threads had no CPU, from the times that
/// a program prints of each thread. What is left of the makespan's noise: a CPU that is slow for a
/// while takes no part in it.
fn off_cpu(text: &str) -> Option<f64> {
    let object: serde_json::Value = serde_json::from_str(text.trim()).ok()?;
    let sum = |field: &str| -> Option<f64> {
        object.get(field)?.as_array()?.iter().map(serde_json::Value::as_f64).sum()
    };
    let (finish, cpu) = (sum("finish_s")?, sum("cpu_s")?);
    (finish > 0.0).then(|| 1.0 - cpu / finish)
}

/// An outcome that was had elsewhere.
///
/// # Errors
/// Where its output cannot be kept.
pub(crate) fn outcome(
    seconds: f64,
    status: i32,
    stdout: &[u8],
    stderr: &[u8],
) -> Result<RunOutcome, RunError> {
    Ok(RunOutcome {
        seconds,
        status: evenly_compare::Status::Exited(status),
        output: Output::of_bytes(stdout).map_err(RunError::Capture)?,
        stderr_tail: String::from_utf8_lossy(stderr).into_owned(),
        report: None,
    })
}

/// Runs a benchmark; what each run noted is with the executor.
///
/// # Errors
/// Where a run fails. An interrupt is no error.
pub(crate) fn measure<E: Noting>(
    benchmark: &Benchmark,
    site: &Site,
    executor: &mut E,
) -> anyhow::Result<Comparison> {
    let arms: Vec<Arm> = benchmark.ways.iter().map(|w| site.arm(benchmark, *w)).collect();
    let kernel = site.arm(benchmark, Way::Kernel);
    let options = Options {
        command: words(&kernel.argv),
        runs: benchmark.runs,
        warmup: 0,
        seed: site.seed,
        metric: Metric::Field(MAKESPAN.to_owned()),
        same_output: false,
        bound_s: None,
        keep_reports: true,
    };
    executor.begin(benchmark, &site.tools);
    let mut shown = Shown::new(&benchmark.name);
    let result = compare(&arms, &options, executor, &mut shown);
    shown.bar.clear();
    result.with_context(|| format!("benchmark {}", benchmark.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite;

    #[test]
    fn time_without_a_cpu() {
        let text = "{\"finish_s\":[2.0,3.0],\"cpu_s\":[1.95,2.95]}\n";
        assert!((off_cpu(text).unwrap() - 0.02).abs() < 1e-12);
        assert_eq!(off_cpu("{\"finish_s\":[],\"cpu_s\":[]}"), None);
        assert_eq!((off_cpu("{\"finish_s\":[1.0]}"), off_cpu("nothing")), (None, None));
    }

    #[test]
    fn what_a_neighbour_prints() {
        let text = "{\"workload\":\"noise\",\"seed\":1,\"elapsed_s\":0.224454,\"busy_s\":0.224450,\
            \"cpu_s\":0.040905,\"interval_count\":1,\"intervals\":[]}\n";
        assert_eq!(neighbour_cpu_s(text), Some(0.040905));
        assert_eq!(neighbour_cpu_s(""), None);
    }

    #[test]
    fn arms_run_the_same_program_with_the_same_work() {
        let site =
            Site::elsewhere(Tools::at("/e", "/w"), 10, vec!["taskset".into(), "7f".into()], 1);
        let all = suite::lab(true);
        let text = |way| words(&site.arm(&all[0], way).argv).join(" ");
        let program = "/w/spmd --threads 8 --phases 1 --iters 40000 --barrier block";
        assert_eq!(text(Way::Kernel), format!("taskset 7f {program}"));
        assert_eq!(text(Way::Static), format!("taskset 7f {program} --pin static"));
        assert_eq!(
            text(suite::HYBRID),
            format!("taskset 7f /e run -q --policy hybrid --json /tmp/hybrid.json -- {program}")
        );
        assert!(text(Way::Alone).contains("--threads 1 "));
    }
}
