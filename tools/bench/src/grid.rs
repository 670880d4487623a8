//! The default against the kernel, and against policies that are asked for by name, over a grid: how threads wait, how long
//! phases are, how many threads there are, with and without a program beside them, with equal and unequal work.
//!
//! Nobody knows before which cell a program is in, so what counts is the worst one. The figure of a cell is the speed under
//! the default over that in its best arm, the kernel included.
//!
//! Invariant: all arms of a cell are interleaved, and each run's checksum is that of all others of the same work.

use crate::args::Cases;
use crate::commands::{KERNEL, Program, Ready, SPINNING_RANKS, metbench, openmp, spmd};
use crate::measure::{Running, result};
use crate::measured::Measured;
use crate::mpi::MpiArg;
use crate::show::{interrupts, print, table};
use anyhow::Context;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use evenly_compare::{Arm, Executor, ProcessExecutor};
use std::ffi::OsString;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longer than any run should take; a program that spins under the kernel may take a hundred times as long as it could.
const LIMIT: Duration = Duration::from_secs(300);
/// Name of the arm as evenly is by default.
const DEFAULT: &str = "default";

/// The arguments of `evenly-bench grid`.
#[derive(Debug, Args)]
pub(crate) struct GridArgs {
    #[command(flatten)]
    pub(crate) cases: Cases,
    /// Also under this policy (may be given more than once)
    #[arg(long = "policy", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    policies: Vec<String>,
    /// How long a run takes with as many threads as CPUs, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
}

/// How threads wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    Spmd(&'static str),
    OpenMp(&'static str),
    Mpi(MpiArg),
}

/// By name.
const WAITS: [(&str, Waits); 7] = [
    ("block", Waits::Spmd("block")),
    ("yield", Waits::Spmd("yield")),
    ("spin", Waits::Spmd("spin")),
    ("libgomp", Waits::OpenMp("gomp")),
    ("libomp", Waits::OpenMp("omp")),
    ("openmpi", Waits::Mpi(MpiArg::Openmpi)),
    ("mpich", Waits::Mpi(MpiArg::Mpich)),
];
/// By name, in microseconds.
const PHASES: [(&str, u64); 6] = [
    ("20us", 20),
    ("200us", 200),
    ("2ms", 2_000),
    ("20ms", 20_000),
    ("200ms", 200_000),
    ("4s", 4_000_000),
];
const THREADS: [u32; 4] = [2, 3, 4, 5];

/// A cell of the grid.
#[derive(Debug, Clone, Copy)]
struct Cell {
    waits: (&'static str, Waits),
    phase: (&'static str, u64),
    threads: u32,
    /// A program of one thread that computes runs beside it.
    hog: bool,
    /// The first thread has half the work of the mean, the last one and a half times as much.
    unequal: bool,
}

fn cells() -> Vec<Cell> {
    let mut all = Vec::new();
    for waits in WAITS {
        for threads in THREADS {
            for (hog, unequal) in [(false, false), (true, false), (false, true)] {
                all.extend(PHASES.map(|phase| Cell { waits, phase, threads, hog, unequal }));
            }
        }
    }
    all
}

impl Cell {
    fn name(&self) -> String {
        format!("{}-{}", self.row(), self.phase.0)
    }

    /// All but the phases.
    fn row(&self) -> String {
        let mut name = format!("{}-{}", self.waits.0, self.threads);
        if self.hog {
            name.push_str("-hog");
        }
        if self.unequal {
            name.push_str("-unequal");
        }
        name
    }

    /// How much work each thread has, the mean being 1.
    fn loads(&self) -> Vec<f64> {
        let most = f64::from(self.threads.max(2) - 1);
        let load = |i| if self.unequal { 0.5 + f64::from(i) / most } else { 1.0 };
        (0..self.threads).map(load).collect()
    }

    /// The program, and the words of its command with so many iterations in a millisecond.
    fn command(&self, seconds: u32, per_ms: u64) -> (Program, Vec<String>) {
        let phases = (u64::from(seconds) * 1_000_000 / self.phase.1).max(1);
        let iterations = (self.phase.1 * per_ms / 1_000).max(1);
        let list =
            self.loads().iter().map(|load| format!("{load:.3}")).collect::<Vec<_>>().join(",");
        let (program, mut words) = match self.waits.1 {
            Waits::Spmd(barrier) => {
                (Program::Workload, spmd(barrier, self.threads, phases, iterations))
            }
            Waits::OpenMp(runtime) => {
                (Program::Workload, openmp(runtime, self.threads, phases, iterations))
            }
            Waits::Mpi(mpi) => (Program::Ranks(mpi), metbench("barrier", phases, iterations)),
        };
        if self.unequal {
            let option =
                if matches!(program, Program::Ranks(_)) { "--loads" } else { "--imbalance" };
            words.extend([option.to_owned(), list]);
        }
        (program, words)
    }
}

/// What came of a cell.
struct Measurement {
    cell: Cell,
    /// Seconds of each run, by arm.
    seconds: Vec<Vec<f64>>,
}

struct Bench<'a> {
    args: &'a GridArgs,
    programs: Ready,
    per_ms: u64,
    executor: ProcessExecutor,
}

impl Bench<'_> {
    /// Names of the arms, and how evenly is called in each.
    fn arms(&self) -> Vec<(&str, Vec<OsString>)> {
        let evenly = |options: &[&str]| {
            let mut words = vec![self.programs.tools.evenly.clone().into(), "run".into()];
            words.extend(["-q"].iter().chain(options).chain(&["--"]).map(OsString::from));
            words
        };
        let mut all = vec![(KERNEL, Vec::new()), (DEFAULT, evenly(&[]))];
        let policies = self.args.policies.iter().map(String::as_str);
        all.extend(policies.map(|policy| (policy, evenly(&["--policy", policy]))));
        all
    }

    fn arm(&self, cell: &Cell, name: &str, before: Vec<OsString>) -> anyhow::Result<Arm> {
        let (program, words) = cell.command(self.args.seconds, self.per_ms);
        let command = self.programs.command(program, cell.threads, &words)?;
        let of_ranks =
            if matches!(program, Program::Ranks(_)) { SPINNING_RANKS } else { Default::default() };
        let env = of_ranks.iter().chain(&command.environment);
        let env = env.map(|(name, value)| (name.into(), value.into())).collect();
        let argv = before.into_iter().chain(command.words);
        Ok(Arm { env, ..Arm::new(name, argv) })
    }

    fn measure(&mut self, cell: Cell) -> anyhow::Result<Measurement> {
        let arms = self.arms().into_iter();
        let arms: Vec<Arm> =
            arms.map(|(name, words)| self.arm(&cell, name, words)).collect::<Result<_, _>>()?;
        let mut seconds = vec![Vec::new(); arms.len()];
        let mut sum: Option<String> = None;
        for run in 0..self.args.cases.runs {
            for (i, arm) in arms.iter().enumerate() {
                let noise = self.programs.tools.workload("noise");
                let hog = cell.hog.then(|| Running::quiet(Command::new(noise).arg("--always")));
                let hog = hog.transpose()?;
                let outcome = self.executor.run(arm, run as usize)?;
                drop(hog);
                let (took, found) = result(&outcome).with_context(|| {
                    format!("{} {}: {}", cell.name(), arm.name, outcome.stderr_tail)
                })?;
                let first = sum.get_or_insert_with(|| found.clone());
                anyhow::ensure!(
                    *first == found,
                    "{}: checksum {found} instead of {first}",
                    cell.name()
                );
                seconds[i].push(took);
            }
        }
        Ok(Measurement { cell, seconds })
    }
}

impl Measurement {
    /// The speed of an arm over that of the kernel.
    fn over_kernel(&self, arm: usize, seed: u64) -> Option<Measured> {
        Measured::ratio(&self.seconds[0], &self.seconds[arm], seed)
    }

    /// The speed of the default over that of the best arm, and which that is.
    fn of_best(&self, seed: u64) -> Option<(f64, usize)> {
        let speeds = (0..self.seconds.len()).map(|arm| Some(self.over_kernel(arm, seed)?.value));
        let speeds: Vec<f64> = speeds.collect::<Option<_>>()?;
        let best = (0..speeds.len()).max_by(|&a, &b| speeds[a].total_cmp(&speeds[b]))?;
        Some((speeds[1] / speeds[best], best))
    }

    fn text(&self, arms: &[String], seed: u64) -> String {
        let Some(own) = self.over_kernel(1, seed) else { return "-".into() };
        match self.of_best(seed) {
            Some((part, best)) if best > 1 => {
                format!("{} ({}, {part:.2})", own.text(2), arms[best])
            }
            _ => own.text(2),
        }
    }
}

/// A row for each way to wait and number of threads, a column for each length of phases.
fn report(measured: &[Measurement], arms: &[String], seed: u64) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let head = ["speed over the kernel's"].into_iter().chain(PHASES.map(|(name, _)| name));
    rows.push(head.map(str::to_owned).collect());
    let mut names: Vec<String> = measured.iter().map(|m| m.cell.row()).collect();
    names.dedup();
    for name in names {
        let find = |phase: &str| {
            let found = measured.iter().find(|m| m.cell.row() == name && m.cell.phase.0 == phase);
            found.map_or_else(String::new, |m| m.text(arms, seed))
        };
        let cells: Vec<String> = PHASES.iter().map(|(phase, _)| find(phase)).collect();
        rows.push(std::iter::once(name).chain(cells).collect());
    }
    let worst = measured.iter().filter_map(|m| Some((m.of_best(seed)?.0, m)));
    let worst = worst.min_by(|a, b| a.0.total_cmp(&b.0));
    let worst = worst.map_or_else(String::new, |(part, m)| {
        format!("The worst cell is {}: {part:.3} of the best arm.\n", m.cell.name())
    });
    let note = "Medians of runs in turn, 95 % intervals; in brackets a better arm, and the default's speed over \
                its. -hog: a program that computes runs beside; -unequal: threads have 0.5 to 1.5 times \
                the mean work.\n";
    table(&rows) + note + &worst
}

/// Runs the benchmark, and prints what came out.
pub(crate) fn compare(args: &GridArgs) -> anyhow::Result<()> {
    let all = cells();
    let chosen = args.cases.of(&all, Cell::name)?;
    if args.cases.list {
        return print(&chosen.iter().map(|cell| cell.name() + "\n").collect::<String>());
    }
    let needed = chosen.iter().map(|cell| cell.command(1, 1));
    let programs = Ready::find(&args.cases.programs, needed)?;
    crate::args::take_two_cpus(args.cases.cpus.as_ref())?;
    let per_ms = programs.tools.iterations_per_ms()?;
    let interrupted = interrupts()?;
    let executor = ProcessExecutor {
        limit: Some(LIMIT),
        interrupted: interrupted.clone(),
        ..ProcessExecutor::default()
    };
    let mut bench = Bench { args, programs, per_ms, executor };
    let arms: Vec<String> = bench.arms().iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut measured = Vec::new();
    for cell in chosen {
        if interrupted.load(Ordering::Relaxed) {
            break;
        }
        let m = bench.measure(*cell)?;
        crate::show::tell_above(&format!("{}   {}", cell.name(), m.text(&arms, args.cases.seed)));
        measured.push(m);
    }
    print(&report(&measured, &arms, args.cases.seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_a_name_of_its_own_and_the_same_work() {
        let all = cells();
        let names: std::collections::BTreeSet<String> = all.iter().map(Cell::name).collect();
        assert_eq!((names.len(), all.len()), (7 * 4 * 3 * 6, 7 * 4 * 3 * 6));
        for cell in &all {
            let mean = cell.loads().iter().sum::<f64>() / f64::from(cell.threads);
            assert!((mean - 1.0).abs() < 1e-12, "{}", cell.name());
        }
    }

    #[test]
    fn the_best_arm_is_named_where_it_is_not_the_default() {
        let cell = cells()[0];
        let of =
            |seconds: [f64; 3]| Measurement { cell, seconds: seconds.map(|s| vec![s]).to_vec() };
        let arms = [KERNEL, DEFAULT, "static"].map(str::to_owned);
        assert_eq!(of([2.0, 1.0, 1.5]).text(&arms, 1), "2.00");
        assert_eq!(of([2.0, 1.0, 0.5]).text(&arms, 1), "2.00 (static, 0.50)");
        assert_eq!(of([1.0, 2.0, 1.5]).text(&arms, 1), "0.50");
        let text = report(&[of([2.0, 1.0, 1.5]), of([1.0, 2.0, 1.5])], &arms, 1);
        assert!(text.contains("block-2-20us: 0.500 of the best arm"), "{text}");
    }
}
