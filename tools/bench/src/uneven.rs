//! Programs whose ranks or threads have unequal work and wait for each other, more of them than CPUs:
//! MetBench and MetBenchVar of the HPCSched paper over both MPIs, and triangular loops in OpenMP.
//! The kernel, the default policy and the `hpc-` policies, one of each in every round.
//!
//! The limit is measured in between: for MetBench the same work in two ranks that have half of it each; for a
//! loop what one thread takes for all of it, divided by the CPUs, or the part of the thread that has most
//! where that is longer.
//!
//! What half a percent is cannot be seen from makespans, which differ more than that from run to run. So of
//! ranks with equal work ([`Case::is_balanced`]) it is also measured what part of the CPUs' time was lost for
//! computing, by the CPU time that ranks computed: a CPU that is slow for a while lengthens both that and the
//! makespan. And of work that turns round, how soon parts and times follow ([`crate::turning`]).
//!
//! Invariant: all arms of a case but the one for the limit do the same work, which their checksums show; a
//! wrong one ends all.

#[cfg(test)]
mod tests;
mod text;

use crate::args::Cases;
use crate::figures::{Own, own};
use crate::host::HostRecord;
use crate::measure::{MAKESPAN, Watching, printed};
use crate::measured::Measured;
use crate::mpi::{ENVIRONMENT, METBENCH, MpiArg};
use crate::show::{Shown, interrupts, print};
use crate::tools::{Tools, words};
use crate::turning::{Seen, Turning, reversals};
use anyhow::Context;
use clap::Args;
use evenly_compare::{
    Arm, Comparison, Executor, Metric, Options, ProcessExecutor, RunError, RunOutcome,
};
use evenly_model::stats::median;
use serde::Serialize;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Name and version of the JSON form.
const SCHEMA: &str = "evenly.bench-uneven/1";
/// How many ranks MetBench has.
const RANKS: u32 = 4;
/// CPUs that are used, as `take_two_cpus` sees to.
const CPUS: u32 = 2;
/// CPU time of a unit of load.
const UNIT_MS: u64 = 10;
/// Rows of the triangle, which can be divided by all numbers of threads that there are.
const ROWS: u64 = 240;
/// CPU time of a sweep over it.
const SWEEP_MS: u64 = 60;
/// How many sweeps over the triangle are made.
const SWEEPS: u32 = 60;
/// Longer than any run should take.
const LIMIT: Duration = Duration::from_secs(120);
/// Names of the arms.
const REFERENCE: &str = "limit";
const KERNEL: &str = "kernel";
const POLICIES: [&str; 5] = ["auto", "hybrid", "hpc-auto", "hpc-uniform", "hpc-adaptive"];

/// The arguments of `evenly-bench uneven`.
#[derive(Debug, Args)]
pub(crate) struct UnevenArgs {
    #[command(flatten)]
    pub(crate) cases: Cases,
    /// Only this policy beside the kernel (may be given more than once) [default: all of them]
    #[arg(long, value_name = "NAME", value_parser = POLICIES)]
    pub(crate) policy: Vec<String>,
    /// How many times as many iterations as usual
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub(crate) longer: f64,
    /// Write everything to FILE as JSON (evenly.bench-uneven/1)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// What threads do while they wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Waiting {
    /// Threads that wait spin.
    Spin,
    /// Spin, and let others run each time.
    Yield,
    /// As the runtime understands `OMP_WAIT_POLICY=active`. With more threads than CPUs libgomp spins for some
    /// microseconds then; libomp is made to spin for good.
    Active,
    /// Threads that wait sleep (`OMP_WAIT_POLICY=passive`).
    Passive,
}

/// The program of a case.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "name")]
enum Program {
    /// The loads of ranks are the two in turn, and turn round after so many iterations, where
    /// that is not 0. They wait for all others in a barrier, or for messages of both neighbours.
    Metbench {
        mpi: MpiArg,
        ranks: u32,
        loads: [u32; 2],
        iterations: u32,
        reverse: u32,
        neighbours: bool,
    },
    /// A triangular loop in equal blocks of rows.
    Triangle { runtime: &'static str, threads: u32, sweeps: u32 },
}

/// One program in one setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Case {
    /// Short and unique, to choose by.
    name: String,
    program: Program,
    waiting: Waiting,
}

/// What the runs of an arm amount to.
#[derive(Debug, Serialize)]
struct ArmFigures {
    name: String,
    /// What the program measured, in every run.
    seconds: Vec<f64>,
    makespan_s: Option<Measured>,
    /// The kernel's makespan over this one's, round by round.
    speedup_vs_kernel: Option<Measured>,
    /// The limit over the makespan, in percent.
    limit_percent: Option<Measured>,
    /// CPU time that other programs of this machine took, in the median run.
    others: Option<f64>,
    /// What evenly's own reports say.
    own: Option<Own>,
    /// Of ranks with equal work: what part of the CPUs' time went where.
    balanced: Option<Balanced>,
    /// How soon parts and times followed work that turned round.
    turning: Option<Turning>,
    /// What evenly's reports say of the runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reports: Vec<serde_json::Value>,
}

/// Where the CPUs' time went, of a program whose ranks have equal work, in percent of all that its ranks could
/// have had until its makespan. Medians.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Balanced {
    /// In which they did not compute. Where each rank has a CPU for itself: what the makespan has beyond the
    /// computing of the rank with the longest in each iteration.
    lost_percent: Option<Measured>,
    /// How much more that is than under the kernel, round by round.
    lost_more: Option<Measured>,
    /// By which others of this machine, as evenly, held up the rank with the longest in each iteration while it
    /// computed: by what the kernel counts as waiting for a CPU. None where ranks share CPUs.
    held_percent: Option<Measured>,
    held_more: Option<Measured>,
    /// Which they did not have at all, also because the host of a virtual machine had its CPU.
    taken_percent: Option<Measured>,
    taken_more: Option<Measured>,
    /// CPU time of evenly, of its whole run.
    own_percent: Option<Measured>,
}

/// What a run printed beside its makespan.
#[derive(Debug, Clone, PartialEq, Default)]
struct Printed {
    /// The parts of the time that [`Balanced`] has in percent.
    lost: Option<f64>,
    held: Option<f64>,
    taken: Option<f64>,
    seen: Option<Seen>,
}

/// A case and its figures.
#[derive(Debug, Serialize)]
struct Measurement {
    #[serde(flatten)]
    case: Case,
    limit_s: Option<Measured>,
    arms: Vec<ArmFigures>,
}

/// What the benchmark has measured.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    machine: HostRecord,
    runs: u32,
    longer: f64,
    seed: u64,
    cases: Vec<Measurement>,
    /// Whether it was interrupted.
    incomplete: bool,
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (0.01..=1_000.0).contains(&factor) => Ok(factor),
        _ => Err(String::from("it must be a number from 0.01 to 1000")),
    }
}

/// All cases that are run.
fn cases(longer: f64) -> Vec<Case> {
    let mut all = Vec::new();
    let times = |usual: u32| (f64::from(usual) * longer).round().max(1.0) as u32;
    for (mpi, waiting) in [
        (MpiArg::Mpich, Waiting::Spin),
        (MpiArg::Openmpi, Waiting::Spin),
        (MpiArg::Openmpi, Waiting::Yield),
    ] {
        for (what, loads, iterations, reverse, neighbours) in [
            ("4-1", [1, 4], 60, 0, false),
            ("3-1", [1, 3], 70, 0, false),
            ("1-1", [2, 2], 80, 0, false),
            ("var", [1, 4], 45, 15, false),
            ("neighbours", [1, 4], 60, 0, true),
            // Nothing is to be had here, and so little disturbs it that half a percent shows.
            ("2-on-2", [4, 4], 80, 0, false),
        ] {
            let iterations = times(iterations);
            let ranks = if what == "2-on-2" { CPUS } else { RANKS };
            all.push(Case {
                name: format!("metbench-{what}-{}-{}", mpi.name(), waiting.name()),
                program: Program::Metbench { mpi, ranks, loads, iterations, reverse, neighbours },
                waiting,
            });
        }
    }
    for runtime in ["gomp", "omp"] {
        for threads in [3, 4] {
            for waiting in [Waiting::Active, Waiting::Passive] {
                let program = Program::Triangle { runtime, threads, sweeps: times(SWEEPS) };
                let name = format!("triangle-{runtime}-{threads}-{}", waiting.name());
                all.push(Case { name, program, waiting });
            }
        }
    }
    all
}

impl Waiting {
    const fn name(self) -> &'static str {
        match self {
            Self::Spin => "spin",
            Self::Yield => "yield",
            Self::Active => "active",
            Self::Passive => "passive",
        }
    }
}

impl Case {
    /// The case in words.
    fn what(&self) -> String {
        match self.program {
            Program::Metbench { mpi, ranks, loads: [a, b], iterations, reverse, neighbours } => {
                let turning = match reverse {
                    0 => String::new(),
                    k => format!(" that turn round every {k}"),
                };
                format!(
                    "MetBench, {}, {ranks} ranks on {CPUS} CPUs that {}{}, {iterations} iterations with \
                     loads {a} and {b}{turning}",
                    mpi.words(),
                    self.waiting.name(),
                    if neighbours { " for their neighbours" } else { "" },
                )
            }
            Program::Triangle { runtime, threads, sweeps } => format!(
                "triangular loop, {runtime}, {threads} threads on {CPUS} CPUs, {}, {sweeps} sweeps",
                self.waiting.name(),
            ),
        }
    }

    /// What is set for all of its arms.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut all: Vec<(&str, &str)> = Vec::new();
        match (self.program, self.waiting) {
            (Program::Metbench { .. }, waiting) => {
                all.extend(ENVIRONMENT);
                let yields = if waiting == Waiting::Yield { "1" } else { "0" };
                all.push(("OMPI_MCA_mpi_yield_when_idle", yields));
            }
            (_, Waiting::Passive) => all.push(("OMP_WAIT_POLICY", "passive")),
            (_, _) => {
                all.push(("OMP_WAIT_POLICY", "active"));
                all.extend([("KMP_LIBRARY", "turnaround"), ("KMP_USE_YIELD", "0")]);
            }
        }
        all.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    /// The command, and that by which the limit is measured.
    fn commands(&self, bench: &Bench<'_>) -> [Vec<OsString>; 2] {
        let per_ms = bench.iterations_per_ms;
        let argv = |words: Vec<String>| words.into_iter().map(OsString::from).collect();
        match self.program {
            Program::Metbench { mpi, ranks, loads: [a, b], iterations, reverse, neighbours } => {
                let command = |ranks: u32, loads: String| {
                    let mut words = vec![
                        mpi.tool("mpirun"),
                        "-n".into(),
                        ranks.to_string(),
                        bench.metbench(mpi).display().to_string(),
                        "--iterations".into(),
                        iterations.to_string(),
                        "--iters".into(),
                        (UNIT_MS * per_ms).to_string(),
                        "--loads".into(),
                        loads,
                        "--reverse".into(),
                        reverse.to_string(),
                        "--sync".into(),
                        String::from(if neighbours { "neighbours" } else { "barrier" }),
                    ];
                    if reverse > 0 {
                        words.push("--parts".into());
                    }
                    argv(words)
                };
                // A CPU has as many ranks of the one load as of the other; all of its work is that of one rank.
                let half = format!("{}", (a + b) * ranks / (2 * CPUS));
                [command(ranks, format!("{a},{b}")), command(CPUS, half)]
            }
            Program::Triangle { runtime, threads, sweeps } => {
                let units = ROWS * (ROWS + 1) / 2;
                let program = bench.tools.workload(&format!("triangle-{runtime}"));
                let command = |threads: u32| {
                    argv(vec![
                        program.display().to_string(),
                        "--threads".into(),
                        threads.to_string(),
                        "--rows".into(),
                        ROWS.to_string(),
                        "--sweeps".into(),
                        sweeps.to_string(),
                        "--iters".into(),
                        (SWEEP_MS * per_ms / units).max(1).to_string(),
                    ])
                };
                [command(threads), command(1)]
            }
        }
    }

    /// Whether there is nothing to balance.
    fn is_balanced(&self) -> bool {
        matches!(self.program, Program::Metbench { loads: [a, b], neighbours: false, .. } if a == b)
    }

    /// What a run has printed beside its makespan.
    fn parse_output(&self, text: &str) -> Printed {
        let Program::Metbench { ranks, reverse, .. } = self.program else {
            return Printed::default();
        };
        let (lost, taken) = lost(text, ranks).unzip();
        let held = held(text).filter(|_| ranks <= CPUS);
        Printed { lost, held, taken, seen: Seen::in_output(text).filter(|_| reverse > 0) }
    }

    /// How soon runs followed work that turned round.
    fn turning(&self, runs: &[&Printed]) -> Option<Turning> {
        let Program::Metbench { ranks, loads, reverse, .. } = self.program else { return None };
        let loads: Vec<f64> =
            loads.iter().cycle().take(ranks as usize).copied().map(f64::from).collect();
        let seen = runs.iter().filter_map(|t| t.seen.as_ref());
        Turning::of(seen.map(|s| reversals(s, &loads, reverse as usize)).collect())
    }

    /// The limit as part of what the arm for it takes.
    fn part(&self) -> f64 {
        match self.program {
            Program::Metbench { .. } => 1.0,
            Program::Triangle { threads, .. } => {
                let sum = |rows: u64| (rows * (rows + 1) / 2) as f64;
                let others = ROWS - ROWS / u64::from(threads);
                (1.0 - sum(others) / sum(ROWS)).max(1.0 / f64::from(CPUS))
            }
        }
    }
}

/// What all cases have in common.
struct Bench<'a> {
    args: &'a UnevenArgs,
    tools: Tools,
    iterations_per_ms: u64,
    /// A directory for files.
    room: PathBuf,
}

/// Runs the benchmark, and prints what came out.
pub(crate) fn compare(args: &UnevenArgs) -> anyhow::Result<()> {
    let all = cases(args.longer);
    let chosen = args.cases.of(&all, |case| case.name.clone())?;
    if args.cases.list {
        let line = |c: &&Case| format!("{:<28} {}\n", c.name, c.what());
        return print(&chosen.iter().map(line).collect::<String>());
    }
    let mut needed = vec![String::from("spmd")];
    for case in &chosen {
        if let Program::Triangle { runtime, .. } = case.program {
            needed.push(format!("triangle-{runtime}"));
        }
    }
    let needed: Vec<&str> = needed.iter().map(String::as_str).collect();
    let tools = args.cases.programs.find(&needed)?;
    let cpus = crate::args::take_two_cpus(args.cases.cpus.as_ref())?;
    let room = tempfile::tempdir().context("cannot make a directory")?;
    let iterations_per_ms = tools.iterations_per_ms()?;
    let bench = Bench { args, tools, iterations_per_ms, room: room.path().to_owned() };
    for mpi in [MpiArg::Openmpi, MpiArg::Mpich] {
        let is_it = |c: &&&Case| matches!(c.program, Program::Metbench { mpi: m, .. } if m == mpi);
        if chosen.iter().any(|c| is_it(&c)) {
            mpi.build(&METBENCH, &bench.metbench(mpi))?;
        }
    }
    let interrupted = interrupts()?;
    let mut report = Report {
        schema: SCHEMA,
        machine: HostRecord::this(&cpus),
        runs: args.cases.runs,
        longer: args.longer,
        seed: args.cases.seed,
        cases: Vec::new(),
        incomplete: false,
    };
    for case in chosen {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        let inner = ProcessExecutor {
            limit: Some(LIMIT.mul_f64(args.longer.max(1.0))),
            interrupted: interrupted.clone(),
            ..ProcessExecutor::default()
        };
        let inner = Watching { inner, cpus: cpus.clone(), loads: Vec::new() };
        let mut executor = Checking { inner, case, sums: Vec::new(), printed: Vec::new() };
        let measured = bench.measure(case, &mut executor)?;
        print(&measured.text())?;
        report.cases.push(measured);
    }
    report.incomplete = interrupted.load(Ordering::Relaxed);
    print(&report.text())?;
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

impl Bench<'_> {
    fn metbench(&self, mpi: MpiArg) -> PathBuf {
        self.room.join(mpi.tool("metbench"))
    }

    fn measure(&self, case: &Case, executor: &mut Checking<'_>) -> anyhow::Result<Measurement> {
        let [command, reference] = case.commands(self);
        let mut arms =
            vec![Arm::new(REFERENCE, reference), Arm::new(KERNEL, command.iter().cloned())];
        let asked = &self.args.policy;
        let is_asked = |policy: &str| asked.is_empty() || asked.iter().any(|one| one == policy);
        let policies = POLICIES.into_iter().filter(|policy| is_asked(policy));
        arms.extend(policies.map(|policy| self.under(policy, &command)));
        for arm in &mut arms {
            arm.env = case.environment();
        }
        let options = Options {
            command: words(&command),
            runs: self.args.cases.runs as usize,
            seed: self.args.cases.seed,
            metric: Metric::Field(MAKESPAN.to_owned()),
            keep_reports: true,
            ..Options::default()
        };
        let mut shown = Shown::new(&case.name);
        let found = evenly_compare::compare(&arms, &options, executor, &mut shown);
        shown.bar.clear();
        let found = found.with_context(|| format!("case {}", case.name))?;
        let right = executor.sums.first().cloned().unwrap_or_default();
        if let Some(wrong) = executor.sums.iter().find(|sum| **sum != right) {
            anyhow::bail!(
                "case {}: runs of the same work had the checksums {right} and {wrong}: the program's answers \
                 cannot be trusted, and so its times",
                case.name
            );
        }
        Ok(figures(case, found, executor, self.args.cases.seed))
    }

    /// A command under evenly.
    fn under(&self, policy: &str, command: &[OsString]) -> Arm {
        let report = self.room.join(format!("{policy}.json"));
        let mut argv: Vec<OsString> = vec![self.tools.evenly.clone().into()];
        argv.extend(["run", "-q", "--policy", policy, "--json"].map(OsString::from));
        argv.extend([report.clone().into(), "--".into()]);
        argv.extend(command.iter().cloned());
        Arm { report: Some(report), ..Arm::new(policy, argv) }
    }
}

/// The figures of a case.
fn figures(case: &Case, found: Comparison, noted: &Checking<'_>, seed: u64) -> Measurement {
    let seconds = |name: &str| {
        let arm = found.results.iter().find(|r| r.policy == name);
        arm.map(|r| r.seconds.clone()).unwrap_or_default()
    };
    let limit: Vec<f64> = seconds(REFERENCE).iter().map(|s| s * case.part()).collect();
    let kernel = seconds(KERNEL);
    let of = |r: evenly_compare::ArmResult| {
        let by_round: Vec<f64> = kernel.iter().zip(&r.seconds).map(|(k, s)| k / s).collect();
        let is_compared = r.policy != REFERENCE && r.policy != KERNEL;
        let others: Vec<f64> = noted
            .inner
            .loads
            .iter()
            .filter(|(name, _)| *name == r.policy)
            .map(|(_, load)| load.others)
            .collect();
        ArmFigures {
            makespan_s: Measured::median(&r.seconds, seed),
            speedup_vs_kernel: Measured::median(&by_round, seed).filter(|_| is_compared),
            limit_percent: Measured::ratio(&limit, &r.seconds, seed)
                .filter(|_| r.policy != REFERENCE)
                .map(|m| m.scaled(100.0)),
            others: median(&others),
            own: if is_compared { own(&r.reports) } else { None },
            balanced: (case.is_balanced() && r.policy != REFERENCE)
                .then(|| Balanced::new(&noted.of(&r.policy), &noted.of(KERNEL), &r.reports, seed)),
            turning: case.turning(&noted.of(&r.policy)).filter(|_| r.policy != REFERENCE),
            seconds: r.seconds,
            name: r.policy,
            reports: r.reports,
        }
    };
    let limit_s = Measured::median(&limit, seed);
    Measurement { case: case.clone(), limit_s, arms: found.results.into_iter().map(of).collect() }
}

impl Balanced {
    /// Of the runs of an arm beside those of the kernel, in the order of rounds, and evenly's reports of them.
    fn new(
        runs: &[&Printed],
        kernel: &[&Printed],
        reports: &[serde_json::Value],
        seed: u64,
    ) -> Self {
        let percent = |of: &dyn Fn(&Printed) -> Option<f64>| {
            let parts: Vec<f64> = runs.iter().filter_map(|t| of(t)).map(|p| 100.0 * p).collect();
            Measured::median(&parts, seed)
        };
        let more = |of: &dyn Fn(&Printed) -> Option<f64>| {
            let rounds = runs.iter().zip(kernel);
            let by_round = rounds.filter_map(|(t, k)| Some(100.0 * (of(t)? - of(k)?)));
            let differences: Vec<f64> = by_round.collect();
            Measured::median(&differences, seed).filter(|_| !reports.is_empty())
        };
        let own = reports.iter().filter_map(|r| {
            let (used, elapsed) = (r["overhead_s"].as_f64()?, r["seconds"].as_f64()?);
            (elapsed > 0.0).then(|| 100.0 * used / elapsed / f64::from(CPUS))
        });
        Self {
            lost_percent: percent(&|t| t.lost),
            lost_more: more(&|t| t.lost),
            held_percent: percent(&|t| t.held),
            held_more: more(&|t| t.held),
            taken_percent: percent(&|t| t.taken),
            taken_more: more(&|t| t.taken),
            own_percent: Measured::median(&own.collect::<Vec<f64>>(), seed),
        }
    }
}

/// The part of the makespan by which others of this machine made computing longer, by what metbench prints.
fn held(text: &str) -> Option<f64> {
    let object: serde_json::Value = serde_json::from_str(text.trim()).ok()?;
    let makespan = object.get(MAKESPAN)?.as_f64().filter(|s| *s > 0.0)?;
    Some(object.get("held_s")?.as_f64()? / makespan)
}

/// The part of the time of the CPUs that ranks can have, until the makespan, in which they did not compute, and
/// that which they did not have at all, by what metbench prints.
fn lost(text: &str, ranks: u32) -> Option<(f64, f64)> {
    let object: serde_json::Value = serde_json::from_str(text.trim()).ok()?;
    let sum = |field: &str| -> Option<f64> {
        object.get(field)?.as_array()?.iter().map(serde_json::Value::as_f64).sum()
    };
    let one = |field: &str| object.get(field)?.as_f64();
    let makespan = one(MAKESPAN).filter(|s| *s > 0.0)?;
    let cpus = f64::from(ranks.min(CPUS));
    let computed =
        if ranks <= CPUS { one("longest_cpu_s")? } else { sum("computing_cpu_s")? / cpus };
    // Each rank's own time: they do not begin and end at the same moment.
    let elapsed = sum("elapsed_s").filter(|s| *s > 0.0)? / f64::from(ranks);
    Some((1.0 - computed / makespan, 1.0 - sum("cpu_s")? / cpus / elapsed))
}

/// An executor that keeps the checksums of runs that do the same work, and what they print.
struct Checking<'a> {
    inner: Watching,
    case: &'a Case,
    sums: Vec<String>,
    /// Of each run, in order: its arm, and what it printed.
    printed: Vec<(String, Printed)>,
}

impl Checking<'_> {
    /// What the runs of an arm printed, in the order of rounds.
    fn of(&self, arm: &str) -> Vec<&Printed> {
        self.printed.iter().filter(|(name, _)| name == arm).map(|(_, printed)| printed).collect()
    }
}

impl Executor for Checking<'_> {
    fn run(&mut self, arm: &Arm, index: usize) -> Result<RunOutcome, RunError> {
        let outcome = self.inner.run(arm, index)?;
        if arm.name != REFERENCE
            && let Some(text) = printed(&outcome)
        {
            self.sums.push(checksum(&text).unwrap_or_else(|| String::from("none")));
            self.printed.push((arm.name.clone(), self.case.parse_output(&text)));
        }
        Ok(outcome)
    }
}

/// The checksum that a program prints.
fn checksum(text: &str) -> Option<String> {
    let object: serde_json::Value = serde_json::from_str(text.trim()).ok()?;
    object.get("checksum")?.as_str().map(str::to_owned)
}
